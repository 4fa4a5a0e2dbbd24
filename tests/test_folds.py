"""Cross-validation: a run for each fold, and what ``folds.json`` and the command say of them."""

import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import run_here
from typer.testing import CliRunner

import hfattn_cli.recipes
from hfattn.errors import INTERRUPTED
from hfattn.files import read_json_object
from hfattn_cli import app

pytestmark = pytest.mark.runs

OWN: dict[str, Any] = {
    "recipe": "classification",
    "data": {"dataset": "opinions.csv", "folds": 3},
    "tokenizer": {"unknown": True},
    "model": {"model_type": "rnn_encoder", "hidden_size": 8, "embedding_size": 8, "pooling": "mean"},
    "training": {"max_steps": 10, "learning_rate": 0.02, "seed": 3},
}
HERE = ["train", "own.yaml", "--output_dir", "runs/folds"]


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Train in this process, which is faster, and return the commands that were run."""
    monkeypatch.chdir(tmp_path)
    rows = [f"I {'liked' if i % 2 else 'hated'} film {i},{'good' if i % 2 else 'bad'}\n" for i in range(45)]
    (tmp_path / "opinions.csv").write_text("text,label\n" + "".join(rows))
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(OWN))
    commands: list[list[str]] = []

    def run(command: list[str]) -> int:
        commands.append(command)
        run_here(Path(command[1]).parent, monkeypatch, *command[2:])
        return 0

    monkeypatch.setattr(hfattn_cli.recipes, "run_training", run)
    return commands


def said(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == code, done.output
    return done.output if code == 0 else done.stderr


def test_each_fold_is_a_run_and_the_scores_are_joined(trained: list[list[str]], tmp_path: Path) -> None:
    output = said(*HERE)
    folder = tmp_path / "runs" / "folds"
    record = read_json_object(folder / "folds.json")
    runs = [read_json_object(folder / f"fold-{i}" / "results.json") for i in (1, 2, 3)]
    accuracies = [run["metrics"]["test"]["accuracy"] for run in runs]
    assert record["metrics"]["test"]["accuracy"] == {
        "mean": pytest.approx(statistics.mean(accuracies)),
        "deviation": pytest.approx(statistics.stdev(accuracies)),
        "values": accuracies,
    }
    assert [run["configuration"]["data"]["fold"] for run in runs] == [1, 2, 3]
    assert f"accuracy {statistics.mean(accuracies):.4g} " in " ".join(output.split())

    assert "is not empty" in said(*HERE, code=2)
    said(*HERE, "--resume")
    assert len(trained) == 3  # nothing is trained again
    (folder / "fold-2" / "results.json").unlink()
    said(*HERE, "--resume")
    assert len(trained) == 4
    again = read_json_object(folder / "folds.json")["metrics"]["test"]["accuracy"]
    assert again["values"] == pytest.approx(accuracies)

    error = said(*HERE, "--resume", "--training.max_steps", "12", code=2)
    assert "has folds with overrides [], not ['--training.max_steps', '12']; resume them with the same" in error
    (tmp_path / "own.yaml").write_text(yaml.safe_dump({**OWN, "sample": {"examples": ["I liked film 1"]}}))
    shutil.rmtree(folder / "fold-3")
    error = said(*HERE, "--resume", code=2)
    assert "fold-3 was trained with another sample.examples than fold 1; remove the folds of the older" in error


def test_what_folds_cannot_do_is_said_before_training(
    trained: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "none is published; train without data.folds" in said(*HERE, "--push_to", "me/x", code=2)
    assert "has seen texts that the folds test on" in said(*HERE, "--search", "search.json", code=2)
    assert "fold is 4, and there are 3 folds" in said(*HERE, "--data.fold", "4", code=2)
    lines = said("train", "--dry-run", *HERE[1:]).splitlines()
    assert [line.partition("own.yaml ")[2] for line in lines] == [
        f"--data.fold {i} --output_dir runs/folds/fold-{i}" for i in (1, 2, 3)
    ]
    assert trained == []
    monkeypatch.setattr(hfattn_cli.recipes, "run_training", lambda command: 1)
    assert "The training of a fold ended with exit code 1" in said(*HERE, code=2)
    monkeypatch.setattr(hfattn_cli.recipes, "run_training", lambda command: INTERRUPTED)
    assert "with --resume" in said(*HERE, "--resume", code=INTERRUPTED)
