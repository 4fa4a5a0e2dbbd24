"""Every configuration's tiny variant is trained by its recipe, and scores what is expected of it.

``pytest tests/test_tiny_recipes.py --durations 0`` shows how long each takes.
"""

import time
from pathlib import Path

import pytest
from commands import ROOT, run_here
from tiny_models import with_tiny_models
from typer.testing import CliRunner

from hfattn.cli import app
from hfattn.training.expected import SUFFIX, expected_files, read_expected

FILES = expected_files(ROOT / "recipes")
LONGEST = 120  # seconds, which is what a tiny variant is allowed on a CPU


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}/{path.name.removesuffix(SUFFIX)}" for path in FILES])
def test_the_tiny_variant_scores_what_is_expected(
    path: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe runs in this process: starting Python for each would take longer than training."""
    config = path.with_name(path.name.removesuffix(SUFFIX) + ".yaml")
    expected = read_expected(path).tiny.overrides
    overrides = with_tiny_models(expected, tmp_path_factory.getbasetemp())
    words = ["--config", config, "--output_dir", tmp_path / "run", *overrides]
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    started = time.perf_counter()
    run_here(path.parent, monkeypatch, *words)
    assert time.perf_counter() - started < LONGEST
    made = ["--tiny"] if overrides != expected else []  # by its command, a run of a folder made here is no tiny variant
    checked = CliRunner().invoke(app, ["recipes", "check", str(tmp_path / "run"), *made])
    assert "tiny variant" in checked.output
    assert checked.exit_code == 0, checked.output
