"""The functions of ``hfattn`` itself: in one process, with the checks and the results of the commands."""

import inspect
import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import train_here
from datasets import Dataset, DatasetDict
from transformers.utils.logging import enable_progress_bar, is_progress_bar_enabled
from typer.testing import CliRunner

import hfattn
from hfattn import api
from hfattn.errors import UserError
from hfattn.files import read_json_object
from hfattn.resources import resource
from hfattn_cli import app

pytestmark = pytest.mark.runs

OWN: dict[str, Any] = {
    "recipe": "classification",
    "data": {"dataset": "opinions", "examples": 100, "evaluation_examples": 20},
    "tokenizer": {"unknown": True},
    "model": {"model_type": "rnn_encoder", "hidden_size": 8, "embedding_size": 8, "pooling": "attention"},
    "training": {"max_steps": 4, "seed": 3},
}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(OWN))
    return path


def test_the_names_are_those_that_the_documentation_promises() -> None:
    """They follow the deprecation policy of docs/python.md; a change here is a change for every user."""
    promised = {
        "train": "config, fields, datasets, output_dir, resume, push_to, push_private, search",
        "evaluate": "model, data, options",
        "predict": "model, inputs, batch_size, abstain, hypotheses, num_beams, max_new_tokens, engine, quantization, "
        "together_with",
        "explain": "model, text, method, target, contrast",
        "verify": "model, measure, signer, issuer, trust",
        "push": "model, repo_id, private, public, sign, execute",
        "Run": "folder",
    }
    assert sorted(api.__all__) == sorted(promised)
    for name, parameters in promised.items():
        assert ", ".join(inspect.signature(getattr(hfattn, name)).parameters) == parameters
        assert name in hfattn.__all__
    assert {"folder", "results", "metrics", "figures", "model", "tokenizer"} <= {*dir(hfattn.Run), "folder", "results"}
    page = (resource() / "docs" / "python.md").read_text()
    assert all(f"`{name}`" in page for name in promised)


def test_train_gives_what_the_command_gives(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice in one process: the second run is not changed by the first, and nothing of either remains."""
    enable_progress_bar()  # a recipe that an earlier test ran in this process leaves it off
    fields = {"training": {"learning_rate": 1e-3}, "data.examples": 80}
    runs = [
        hfattn.train(own, {**fields, "training.per_device_train_batch_size": size}, output_dir=f"runs/{size}")
        for size in (4, 8)
    ]
    assert "TENSORBOARD_LOGGING_DIR" not in os.environ
    assert is_progress_bar_enabled()
    run = runs[1]
    assert (run.folder, os.fspath(run)) == (Path("runs/8"), "runs/8")
    assert list((run.folder / "logs").iterdir())
    assert run.results == read_json_object(Path("runs/8/results.json"))
    words = shlex.split(run.results["command"])
    assert words[:2] == ["accelerate", "launch"]
    overrides = words[words.index("--training.learning_rate") :]
    recipe = resource("recipes", "classification")
    by_command = train_here(recipe, own, *overrides[: overrides.index("--output_dir")], to="command")
    for part, scores in by_command["metrics"].items():
        assert scores["nats_per_example"] == run.metrics[part]["nats_per_example"]
    assert (tmp_path / "command" / "model.safetensors").read_bytes() == (run.folder / "model.safetensors").read_bytes()
    assert run.figures["loss_curve.png"].read_bytes().startswith(b"\x89PNG")
    assert run.model.config.hidden_size == 8
    assert run.tokenizer("good").input_ids
    assert hfattn.Run("runs/8").metrics == run.metrics
    with pytest.raises(UserError, match="already holds a finished run"):
        hfattn.train(own, fields, output_dir="runs/8")


def test_a_copied_recipe_is_called_too(own: Path, tmp_path: Path) -> None:
    shutil.copytree(resource("recipes", "classification"), tmp_path / "mine")
    script = tmp_path / "mine" / "train.py"
    changed = script.read_text().replace(
        "def main(command: RecipeCommand) -> None:", "def main(command):\n    print('mine')"
    )
    script.write_text(changed)
    own.write_text(yaml.safe_dump({**OWN, "recipe": "mine"}))
    run = hfattn.train("own.yaml", output_dir="run")
    assert (
        run.metrics["test"]["accuracy"]
        == hfattn.train("own.yaml", {"training.max_steps": 4}, output_dir="again").metrics["test"]["accuracy"]
    )


def test_data_in_memory_are_those_of_a_file(own: Path) -> None:
    """A Dataset is split as its file is; of a DatasetDict, the splits are the parts. The record says so."""
    rows = [{"text": f"a {('bad', 'good')[i % 2]} film {i}", "label": ("no", "yes")[i % 2]} for i in range(60)]
    Path("films.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    own.write_text(yaml.safe_dump({**OWN, "data": {"dataset": "films.jsonl", "split": [0.6, 0.2, 0.2]}}))
    given = Dataset.from_list(rows)
    runs = [hfattn.train(own, output_dir="file"), hfattn.train(own, datasets=given, output_dir="memory")]
    parts = [{part: facts["sha256"] for part, facts in run.results["data"]["parts"].items()} for run in runs]
    assert parts[0] == parts[1]
    assert runs[1].results["configuration"]["data"]["dataset"] == "given in Python"
    assert (runs[0].folder / "model.safetensors").read_bytes() == (runs[1].folder / "model.safetensors").read_bytes()
    splits = DatasetDict(train=given.select(range(40)), validation=given.select(range(40, 60)))
    run = hfattn.train(own, {"data.split": [0.9, 0.1]}, datasets=splits, output_dir="splits")
    assert {part: facts["texts"] for part, facts in run.results["data"]["parts"].items()} == {
        "train": 40,
        "validation": 20,
    }
    with pytest.raises(UserError, match=r"were given in Python; write data.dataset"):
        hfattn.train(own, {"data.dataset": "given in Python"}, output_dir="again")


def test_fields_are_flat_names_and_an_empty_one_is_a_value() -> None:
    assert api._dotted({"data": {"rename_labels": {}, "split": [1, "rest"]}, "training": {}}) == {
        "data.rename_labels": {},
        "data.split": [1, "rest"],
    }
    assert api._dotted({"data.rename_labels": {}}) == {"data.rename_labels": {}}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"trainin.max_steps": 3}, "'trainin' is not a field of this recipe; did you mean 'training'"),
        ({"training": {"max_steps": "many"}}, "max_steps"),
        ({"data": {"max_length": 0}}, "max_length is 0"),
    ],
)
def test_bad_fields_leave_nothing(own: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        hfattn.train(own, fields, output_dir="run")
    assert sorted(path.name for path in Path().iterdir()) == ["own.yaml"]


def test_arguments_of_other_types(own: Path) -> None:
    Path("data.tsv").write_text("text\tlabel\nGood.\tpositive\n")
    rows: Any = [{"text": "Good.", "label": "positive"}]
    with pytest.raises(UserError, match="datasets is of the type list; give a Dataset, such as"):
        hfattn.train(own, datasets=rows, output_dir="run")
    with pytest.raises(UserError, match="columns is one text; give a list of names"):
        hfattn.evaluate("model", "data.tsv", columns="text,label")
    with pytest.raises(UserError, match=r"data.tsv/results.json was not found; give a folder that is complete."):
        hfattn.Run("data.tsv")
    assert sorted(path.name for path in Path().iterdir()) == ["data.tsv", "own.yaml"]


def test_a_run_is_a_model_for_all_functions(own: Path) -> None:
    run = hfattn.train("own.yaml", output_dir="run")
    text = "The film was good."
    (answer,) = hfattn.predict(run, [text])
    printed = CliRunner().invoke(app, ["classify", "run", text, "--json"]).stdout
    assert json.loads(printed) == [answer]
    Path("data.tsv").write_text(f"text\tlabel\n{text}\tpositive\nBad.\tnegative\n")
    printed = CliRunner().invoke(app, ["evaluate", "run", "data.tsv", "--json"]).stdout
    assert json.loads(printed) == json.loads(json.dumps(hfattn.evaluate(run, "data.tsv")))
    record: Any = hfattn.explain(run, text)
    assert record.weights.sum(-1).tolist() == [[pytest.approx([1.0])]]
    scored: Any = hfattn.explain(run, text, "integrated_gradients")
    assert float(scored.scores.sum()) + scored.rest == pytest.approx(scored.output - scored.baseline, abs=1e-3)
    report = hfattn.verify(run)
    assert report.passed, report
    plan = hfattn.push(run, "user/opinions")
    assert "model.safetensors" in str(plan)
    for wrong, message in (
        ("lime", "method is 'lime'; write one of attention, gradient_x_input"),
        ("attention", "are for methods"),
    ):
        with pytest.raises(UserError, match=message):
            hfattn.explain(run, text, wrong, target=1)
    with pytest.raises(UserError, match=r"results.json was not found"):
        hfattn.Run("no")
