"""Every configuration's tiny variant is trained by its recipe's command, and scores what is expected of it.

``pytest tests/test_tiny_recipes.py --durations 0`` shows how long each takes; half of that is starting Python.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import ROOT, run
from typer.testing import CliRunner

from hfattn.cli import app
from hfattn.training.expected import SUFFIX, expected_files, read_expected

FILES = expected_files(ROOT / "recipes")
LONGEST = 120  # seconds, which is what a tiny variant is allowed on a CPU


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}/{path.name.removesuffix(SUFFIX)}" for path in FILES])
def test_the_tiny_variant_scores_what_is_expected(
    path: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    config = path.with_name(path.name.removesuffix(SUFFIX) + ".yaml")
    words = ["--config", config, "--output_dir", tmp_path / "run", *read_expected(path).tiny.overrides]
    started = time.perf_counter()
    done = run([sys.executable, path.parent / "train.py", *words])
    seconds = time.perf_counter() - started
    record_property("seconds", round(seconds, 1))
    assert done.returncode == 0, done.stderr
    checked = CliRunner().invoke(app, ["recipes", "check", str(tmp_path / "run")])
    assert "tiny variant" in checked.output
    assert checked.exit_code == 0, checked.output
    assert seconds < LONGEST
