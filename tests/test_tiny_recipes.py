"""The tiny variant of every configuration.

``pytest tests/test_tiny_recipes.py --durations 0`` shows how long each takes; ``--bands 5`` trains each with five seeds
and writes the bands.
"""

from pathlib import Path

import pytest
from commands import ROOT
from tiny_recipes import check_tiny_variant

from hfattn.training.expected import SUFFIX, expected_files

FILES = expected_files(ROOT / "recipes")


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}/{path.name.removesuffix(SUFFIX)}" for path in FILES])
def test_the_tiny_variant_scores_what_is_expected(
    path: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    seeds = request.config.getoption("bands")
    check_tiny_variant(path, tmp_path, tmp_path_factory.getbasetemp(), monkeypatch, seeds)
