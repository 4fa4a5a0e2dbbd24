"""Demos whose models are trained when they are built."""

import re
import sys
from pathlib import Path

import pytest
from commands import ROOT, run
from gradio_client import Client
from space_server import PYTHON

from hfattn.spaces.building import build_space, space_names
from hfattn.spaces.serving import running
from hfattn.spaces.settings import read_space

CLEAN = sys.executable != PYTHON


@pytest.mark.skipif(not CLEAN, reason="SPACES_PYTHON names no environment of its own; make spaces makes one")
@pytest.mark.parametrize("name", space_names())
def test_each_starts_where_only_its_requirements_are(name: str, tmp_path: Path) -> None:
    """Its models are trained as a build trains them, in a few steps."""
    space = read_space(ROOT / "spaces" / name)
    short = {f"{model}.training.{field}": 4 for model in space for field in ("max_steps", "save_steps", "eval_steps")}
    steps = {f"{model}.training.{field}": "steps" for model in space for field in ("save_strategy", "eval_strategy")}
    build_space(name, tmp_path / name, overrides=short | steps)
    with running(tmp_path / name, PYTHON) as address:
        names = Client(address, verbose=False).view_api(return_format="dict", print_info=False)
    assert names["named_endpoints"]


def test_an_interrupted_build_goes_on(tmp_path: Path) -> None:
    """It trains what is missing, and says so in a line or two for each model; of a failed training it shows the end."""
    fields = ("data.examples=200", "data.evaluation_examples=40", "training.num_train_epochs=2")
    short = [f"--set={name}.{field}" for name in ("recurrent", "pretrained") for field in fields]
    diverging = [
        f"--set=pretrained.training.{each}" for each in ("learning_rate=1e3", "weight_decay=1e3", "logging_steps=1")
    ]
    build = [sys.executable, "-m", "hfattn", "space", "build", "sentiment_lens", "--output", tmp_path / "lens"]
    assets = str(tmp_path / "assets")
    failed = run([*build, *short, *diverging, "--set=pretrained.training.num_train_epochs=6"], HF_ASSETS_CACHE=assets)
    assert failed.returncode == 2
    *_, before, last = failed.stderr.splitlines()
    assert before.startswith("step ")
    assert last.startswith("error: The training of pretrained failed: The loss is nan at step ")
    assert not (tmp_path / "lens").exists()
    done = run([*build, *short], HF_ASSETS_CACHE=assets)
    assert done.returncode == 0, done.stderr
    first, training, trained, *_ = done.stdout.splitlines()
    assert first.startswith(f"1/2 recurrent: trained before, in {assets}")
    assert training == "2/2 pretrained: training a toy with classification/opinions_transformer"
    assert re.fullmatch(r"2/2 pretrained: trained in \d+ s", trained)
    assert len(done.stdout.splitlines()) == 5
    kept = Path(first.partition(", in ")[2])
    copied = tmp_path / "lens" / "models" / "recurrent"
    assert (kept / "model.safetensors").read_bytes() == (copied / "model.safetensors").read_bytes()
