"""Training the tiny variant of a configuration, to see whether it scores what is expected or to set its band."""

import time
from pathlib import Path

import pytest
from commands import run_here
from tiny_models import with_tiny_models
from typer.testing import CliRunner

from hfattn.training.expected import SUFFIX, read_expected, read_run, with_tiny_band, write_expected
from hfattn_cli import app

LONGEST = 120  # seconds, which is what a tiny variant is allowed on a CPU


def run_tiny_variant(path: Path, run: Path, models: Path, monkeypatch: pytest.MonkeyPatch, *words: object) -> list[str]:
    """Train a tiny variant in this process: starting Python for each would take longer than training.

    Args:
        path: the ``CONFIG.expected.json``.
        run: folder to train in.
        models: folder of the tiny pretrained models and their data, made where it lacks one.
        words: further overrides.

    Returns:
        The option that ``hfattn recipes check`` needs: by its command, a run of a folder made here is not a variant.
    """
    config = path.with_name(path.name.removesuffix(SUFFIX) + ".yaml")
    expected = read_expected(path).tiny.overrides
    overrides = with_tiny_models(expected, models)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    run_here(path.parent, monkeypatch, "--config", config, "--output_dir", run, *overrides, *words)
    return ["--tiny"] if overrides != expected else []


def check_tiny_variant(
    path: Path, scratch: Path, models: Path, monkeypatch: pytest.MonkeyPatch, seeds: int | None
) -> None:
    """Train a tiny variant and check its score, or set its band.

    Args:
        path: the ``CONFIG.expected.json``.
        scratch: folder to train in.
        models: folder of the tiny pretrained models.
        seeds: train with the seeds 1, 2, … up to this one, and write their scores and the band of these to ``path``.
    """
    if seeds is not None:
        return measure_band(path, scratch, models, monkeypatch, seeds)
    started = time.perf_counter()
    option = run_tiny_variant(path, scratch / "run", models, monkeypatch)
    assert time.perf_counter() - started < LONGEST
    checked = CliRunner().invoke(app, ["recipes", "check", str(scratch / "run"), *option])
    assert "tiny variant" in checked.output
    assert checked.exit_code == 0, checked.output


def measure_band(path: Path, scratch: Path, models: Path, monkeypatch: pytest.MonkeyPatch, seeds: int) -> None:
    expected = read_expected(path)
    metric = expected.tiny.metric or expected.metric
    scores = []
    for seed in range(1, seeds + 1):
        run = scratch / str(seed)
        run_tiny_variant(path, run, models, monkeypatch, "--training.seed", seed)
        scores.append(read_run(run).score(metric))
    write_expected(path, with_tiny_band(expected, scores))
