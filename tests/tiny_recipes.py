"""Training the tiny variant of a configuration, and seeing whether it scores what is expected."""

import time
from pathlib import Path

import pytest
import yaml
from commands import ROOT, run_here
from tiny_models import with_tiny_models
from typer.testing import CliRunner

from hfattn.training.expected import SUFFIX, expected_files, read_expected
from hfattn_cli import app

LONGEST = 120  # seconds, which is what a tiny variant is allowed on a CPU
# Two test files, so that two processes can run them.
FROM_SCRATCH = ("baselines", "char_lm", "classification", "token_classification", "translation")
FILES = expected_files(ROOT / "recipes")


def begins_from_scratch(path: Path) -> bool:
    """Return whether the configuration of an expected.json trains without a pretrained model or a teacher."""
    config = yaml.safe_load(path.with_name(path.name.removesuffix(SUFFIX) + ".yaml").read_text())
    return path.parent.name in FROM_SCRATCH and "name" not in config.get("model", {})


def variants(from_scratch: bool) -> pytest.MarkDecorator:
    """Return the parameter ``path`` of a test: all configurations from scratch, or all others."""
    files = [path for path in FILES if begins_from_scratch(path) == from_scratch]
    return pytest.mark.parametrize(
        "path", files, ids=[f"{path.parent.name}/{path.name.removesuffix(SUFFIX)}" for path in files]
    )


def check_tiny_variant(path: Path, scratch: Path, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe runs in this process: starting Python for each would take longer than training.

    Args:
        path: the ``CONFIG.expected.json``.
        scratch: folder to train in.
        models: folder of the tiny pretrained models, made where it lacks one.
    """
    config = path.with_name(path.name.removesuffix(SUFFIX) + ".yaml")
    expected = read_expected(path).tiny.overrides
    overrides = with_tiny_models(expected, models)
    words = ["--config", config, "--output_dir", scratch / "run", *overrides]
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    started = time.perf_counter()
    run_here(path.parent, monkeypatch, *words)
    assert time.perf_counter() - started < LONGEST
    made = ["--tiny"] if overrides != expected else []  # by its command, a run of a folder made here is not a variant
    checked = CliRunner().invoke(app, ["recipes", "check", str(scratch / "run"), *made])
    assert "tiny variant" in checked.output
    assert checked.exit_code == 0, checked.output
