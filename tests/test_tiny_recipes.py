"""The tiny variant of every configuration that begins from nothing.

``pytest tests/test_tiny_recipes.py --durations 0`` shows how long each takes; ``--bands 5`` trains each with five seeds
and writes the bands.
"""

from pathlib import Path

import pytest
from tiny_recipes import check_tiny_variant, variants


@variants(from_scratch=True)
def test_the_tiny_variant_scores_what_is_expected(
    path: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    seeds = request.config.getoption("bands")
    check_tiny_variant(path, tmp_path, tmp_path_factory.getbasetemp(), monkeypatch, seeds)
