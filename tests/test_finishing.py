"""The end of a run: whatever fails there, model and results are kept, and ``hfattn card`` writes what is missing."""

import json
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from commands import RECIPE, ROOT, environment, results_of, tiny_config, train_here, train_until, wait_for
from fork_server import Forked
from test_training import files_of_at_most
from typer.testing import CliRunner

from hfattn.errors import UnfinishedError, UserError, one_sentence
from hfattn.hub import finish_folder, write_again
from hfattn.hub.card import check_card
from hfattn.hub.manifest import check_manifest, repository_files
from hfattn.loading import load_language_model
from hfattn.pictures import Picture
from hfattn.training import finishing
from hfattn_cli import app

pytestmark = pytest.mark.runs

FINGERPRINTS = "fingerprints.safetensors"
CURVES = {"log_history": [{"step": 1, "loss": 3.0}], "levels": {}, "title": "a run", "unit": "nats"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of char_lm."""
    folder = tmp_path_factory.mktemp("finishing")
    train_here(RECIPE, tiny_config(folder))
    return folder / "run"


@pytest.fixture
def saved(finished: Path, tmp_path: Path) -> Path:
    """A folder as it is when training and evaluation have ended: the model and its tokenizer."""
    names = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    (tmp_path / "run").mkdir()
    for path in finished.iterdir():
        if path.name in names or path.suffix == ".py":
            shutil.copyfile(path, tmp_path / "run" / path.name)
    return tmp_path / "run"


def finish(folder: Path, finished: Path) -> None:
    picture = Picture("loss_curve.png", "curves", CURVES)
    finish_folder(folder, results_of(finished), *load_language_model(str(folder)), ["The fox"], [picture])


def check_whole(folder: Path) -> None:
    results = results_of(folder)
    assert "unfinished" not in results
    check_card(folder, results)
    check_manifest(folder)
    assert {"loss_curve.png", FINGERPRINTS} <= set(repository_files(folder))
    assert "not finished" not in (folder / "README.md").read_text()


def test_a_file_that_cannot_be_written_is_named_and_written_later(saved: Path, finished: Path) -> None:
    """One after another, each file that the end of a run writes is a folder, which nothing can write to."""
    for name in ("loss_curve.png", FINGERPRINTS, "manifest.json", "README.md"):
        (saved / name).mkdir()
        with pytest.raises(UnfinishedError, match=rf"has its model and its results, but {name} could not be") as error:
            finish(saved, finished)
        assert str(error.value).endswith(f"; correct that, then run hfattn card {saved}.")
        assert results_of(saved)["metrics"] == results_of(finished)["metrics"]
        if name != "README.md":
            assert name in (saved / "README.md").read_text()
            shown = "![training and validation loss]" in (saved / "README.md").read_text()
            assert shown == (name == FINGERPRINTS)
            with pytest.raises(AssertionError, match=f"not finished: .*{name}"):
                check_card(saved, results_of(saved))
        if name == "loss_curve.png":
            again = CliRunner().invoke(app, ["card", str(saved)])
            assert (again.exit_code, again.stderr.count("\n")) == (1, 1), again.stderr
        (saved / name).rmdir()
        done = CliRunner().invoke(app, ["card", str(saved)])
        assert done.exit_code == 0, done.stderr
        check_whole(saved)
        for file in ("loss_curve.png", FINGERPRINTS, "manifest.json", "README.md", "results.json"):
            (saved / file).unlink()


def test_code_that_does_not_run_leaves_a_card_that_says_so(saved: Path, finished: Path) -> None:
    model, tokenizer = load_language_model(str(saved))
    (saved / "tokenizer.json").rename(saved / "elsewhere.json")
    with pytest.raises(
        UnfinishedError, match=r"README\.md could not be written \(The code of the card of .* cannot be"
    ):
        finish_folder(saved, results_of(finished), model, tokenizer, ["The fox"])
    assert "`README.md` | The code of the card" in (saved / "README.md").read_text()
    (saved / "elsewhere.json").rename(saved / "tokenizer.json")
    write_again(saved)
    assert "It prints:" in (saved / "README.md").read_text()
    check_manifest(saved)


def test_a_disk_that_fills_keeps_the_results(saved: Path, finished: Path) -> None:
    size = len((finished / "results.json").read_bytes())
    with files_of_at_most(2 * size), pytest.raises(UnfinishedError, match=r"loss_curve\.png .*\(the disk is full\)"):
        finish(saved, finished)
    assert not list(saved.glob("*.part"))
    write_again(saved)
    check_whole(saved)


def test_results_that_cannot_be_written_are_measured_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end, one_sentence(), finishing(tmp_path):
        (tmp_path / "absent" / "model.safetensors").write_bytes(b"")
    assert end.value.code == 1
    said = capsys.readouterr().err
    assert re.fullmatch(r"error: The training ended, but its results .* with --resume\.\n", said)
    assert "give the same command with --resume" in (tmp_path / "README.md").read_text()


def test_a_run_that_is_terminated_at_its_end_is_finished_by_its_card(tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = train_until(tiny_config(tmp_path), run / "results.json", "--output_dir", run, number=signal.SIGTERM)
    assert done.returncode == 1, done.stderr
    assert f"terminated while it wrote {run}; to finish it, run hfattn card {run}." in done.stderr.splitlines()[-1]
    assert "not finished" in (run / "README.md").read_text()
    assert (run / "model.safetensors").is_file()
    with pytest.raises(UserError, match="has ended, but not its files; run hfattn card"):
        train_here(RECIPE, tmp_path / "tiny.yaml", "--resume")
    write_again(run)
    check_whole(run)


def test_results_of_somebody_else_draw_nothing_elsewhere(saved: Path, finished: Path) -> None:
    plan = {"kind": "curves", "arguments": CURVES, "reason": "none"}
    for name, planned in {"../curve.png": plan, "curve.png": {**plan, "kind": "system"}}.items():
        (saved / "results.json").write_text(json.dumps({**results_of(finished), "unfinished": {name: planned}}))
        with pytest.raises(UnfinishedError, match="is not a picture of a run"):
            write_again(saved)
    assert not (saved.parent / "curve.png").exists()


def test_two_trainings_do_not_share_a_folder(tmp_path: Path) -> None:
    config, run = tiny_config(tmp_path, training={"max_steps": 100_000}), tmp_path / "run"
    words = [sys.executable, RECIPE / "train.py", "--config", config, "--output_dir", run]
    first = Forked([str(word) for word in words], ROOT, environment())
    try:
        deadline = time.monotonic() + 120
        while not list(run.glob("checkpoints/checkpoint-*/trainer_state.json")):
            assert first.poll() is None, first.result().stderr
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for option in ([], ["--resume"]):
            with pytest.raises(UserError, match=r"Another process is training in .*; wait until it ends, or choose"):
                train_here(RECIPE, config, *option)
    finally:
        first.kill()
        wait_for([first])
    # The lock does not survive the process that held it, and is not published.
    results = train_here(RECIPE, config, "--resume", "--training.max_steps", "20")
    assert results["training"]["steps"] >= 10
    assert not [name for name in repository_files(run) if "lock" in name]
