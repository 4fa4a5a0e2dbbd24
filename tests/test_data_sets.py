"""The generated datasets as folders and as repositories: everywhere the same rows."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from commands import ROOT
from hub_server import Hub
from huggingface_hub import DatasetCard, DatasetCardData
from typer.testing import CliRunner, Result

from hfattn.data import Demonstration, Demonstrations, LabeledTexts, Pair, Pairs
from hfattn.data.rows import benchmark_tasks
from hfattn.generated import (
    date_pairs,
    duplicates,
    listops_texts,
    opinion_texts,
    phrase_pairs,
    reber_texts,
    recalls,
)
from hfattn_cli import app

pytestmark = [pytest.mark.runs, pytest.mark.usefixtures("online")]

DRAWN: dict[str, Callable[[str, int, int], Pairs | LabeledTexts | Demonstrations]] = {
    "dates": date_pairs,
    "phrases": phrase_pairs,
    "opinions": opinion_texts,
    "reber": reber_texts,
    "listops": listops_texts,
    "duplicate": duplicates,
    "recall": recalls,
}
NUMBERS = ["--rows", "60", "--evaluation-rows", "20", "--seed", "3"]


def data(*words: object) -> Result:
    return CliRunner().invoke(app, ["data", *map(str, words)])


def make(name: str, folder: Path) -> Path:
    done = data("make", name, "--output", folder, *NUMBERS)
    assert done.exit_code == 0, done.output
    return folder


def card(folder: Path) -> tuple[dict[str, Any], str]:
    """The metadata of a card and its text."""
    _, metadata, text = (folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(metadata), text


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def rows_in(folder: Path, split: str) -> list[dict[str, Any]]:
    return pq.read_table(folder / f"{split}.parquet").to_pylist()


def test_the_rows_are_those_of_the_recipes(tmp_path: Path) -> None:
    for name, others in {
        "dates": ("validation", "test", "unseen_forms"),
        "phrases": ("validation", "test", "unseen_pairs"),
        "opinions": ("validation", "test"),
        "reber": ("validation", "test"),
        "listops": ("validation", "test"),
        "duplicate": ("validation", "test"),
        "recall": ("validation", "test"),
    }.items():
        folder = make(name, tmp_path / name)
        for part, number in {"train": 60, **dict.fromkeys(others, 20)}.items():
            assert rows_in(folder, part) == [
                {"source": item.source, "target": item.target, "form": item.kind}
                if isinstance(item, Pair)
                else {"messages": item.completion}
                if isinstance(item, Demonstration)
                else {"text": item.text, "label": item.label, **item.fields}
                for item in DRAWN[name](part, number, 3)
            ]
    assert {path.name for path in tmp_path.iterdir()} == set(DRAWN)  # and nothing half made


@pytest.mark.parametrize("name", DRAWN)
def test_the_card_says_what_is_there(name: str, tmp_path: Path) -> None:
    folder = make(name, tmp_path / "made here")
    metadata, text = card(folder)
    assert metadata.keys() <= {*vars(DatasetCardData()), "configs", "tags"}
    assert DatasetCard.load(folder / "README.md").data.to_dict() == metadata
    assert (metadata["license"], metadata["size_categories"]) == ("cc0-1.0", "n<1K")
    splits = {each["split"]: each["path"] for each in metadata["configs"][0]["data_files"]}
    assert {*splits.values(), "README.md", "eval.yaml"} == set(files(folder))
    tasks = benchmark_tasks((folder / "eval.yaml").read_text())
    assert tasks == [{"id": each, "config": "default", "split": each} for each in splits if each != "train"]

    # Each number and each example is the data's own.
    table = dict(re.findall(r"^\| `(\w+)` \| (\d+) \| `\w{64}` \|$", text, re.MULTILINE))
    assert table == {split: "60" if split == "train" else "20" for split in splits}
    drawn = {split: DRAWN[name](split, int(table[split]), 3) for split in splits}
    assert all(f"`{examples.fingerprint}`" in text for examples in drawn.values())
    (shown,) = re.findall(r"```json\n(.*?)\n```", text, re.DOTALL)
    first = [row for split in splits for row in rows_in(folder, split)[:3]]
    assert [json.loads(line) for line in shown.splitlines()] == first
    assert all(f"| `{column}` |" in text for column in first[0])
    assert str(tmp_path) not in text

    # The command in the card makes the same folder.
    (command,) = re.findall(r"```sh\n(hfattn data make .*?)\n```", text)
    again = tmp_path / "again"
    again.mkdir()
    words = shlex.split(command)[2:]
    words[words.index("--output") + 1] = str(again / words[words.index("--output") + 1])
    assert data(*words).exit_code == 0
    assert files(again / "made here") == files(folder)


def test_the_tables_of_forms_and_lengths_add_up(tmp_path: Path) -> None:
    for name, splits in {"dates": 4, "phrases": 4, "opinions": 3}.items():
        _, text = card(make(name, tmp_path / name))
        table = r"^\| [^|]* (?:\| \w+ \| \w+ )?\|(" + splits * r" \d+ \|" + ")$"
        rows = re.findall(table, text, re.MULTILINE)
        numbers = [[int(number) for number in row.split("|")[:-1]] for row in rows]
        assert [sum(column) for column in zip(*numbers, strict=True)] == [60, 20, 20, 20][:splits]
        assert len(numbers) > 8
        assert name != "dates" or all(seen == 0 or unseen == 0 for seen, *_, unseen in numbers)
    _, text = card(make("reber", tmp_path / "reber"))
    train = reber_texts("train", 60, 3)
    lengths = sorted(len(item.text) for item in train)
    (row,) = re.findall(r"^\| train \| (.*) \|$", text, re.MULTILINE)
    valid, middle, end, shortest, middling, longest = map(int, row.split(" | "))
    assert (valid, middle + end) == (30, 30)
    assert (shortest, middling, longest) == (lengths[0], lengths[29], lengths[-1])


def test_what_cannot_be_made_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    for words, sentence in {
        (
            "make",
            "facts",
            "--output",
            tmp_path / "new",
        ): "write one of dates, phrases, opinions, reber, listops, duplicate, recall.",
        ("make", "dates", "--output", tmp_path / "there"): "exists already; choose a new folder.",
        ("make", "reber", "--output", tmp_path / "new", "--rows", 10**6): "write at most 40000.",
        ("push", tmp_path, "user/name"): "has no README.md, the card of a dataset",
    }.items():
        done = data(*words)
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert sentence in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_publishing(hub: Hub, tmp_path: Path) -> None:
    folder = make("dates", tmp_path / "dates")
    shown = data("push", folder, "user/dates", "--private")
    assert (shown.exit_code, hub.repos) == (0, {})
    assert "Nothing was sent" in shown.stdout
    assert not {request.method for request in hub.requests} - {"GET"}

    # An answer that is lost, and then the same command: one commit, and all of it.
    hub.fault("commit", "lost")
    lost = data("push", folder, "user/dates", "--private", "--execute")
    assert (lost.exit_code, lost.stderr.splitlines()[-1][:7]) == (2, "error: ")
    again = data("push", folder, "user/dates", "--private", "--execute")
    assert (again.exit_code, "is up to date" in again.stdout) == (0, True), again.output
    repo = hub.repos["dataset", "user/dates"]
    assert repo.private
    assert len(list(repo.head("main").history())) == 2
    assert {name: content for name, content in hub.files("dataset", "user/dates").items() if name[0] != "."} == files(
        folder
    )

    other = make("reber", tmp_path / "reber")
    assert data("push", other, "user/dates", "--pr", "--execute").exit_code == 0
    assert "unseen_forms.parquet" in hub.files("dataset", "user/dates")
    assert hub.files("dataset", "user/dates", "refs/pr/1")["train.parquet"] == (other / "train.parquet").read_bytes()
    refused = data("push", other, "user/dates", "--execute")
    assert (refused.exit_code, "--over" in refused.stderr) == (2, True)
    assert data("push", other, "user/dates", "--branch", "reber", "--execute").exit_code == 0
    assert hub.files("dataset", "user/dates", "reber")["test.parquet"] == (other / "test.parquet").read_bytes()


# In a process of its own, as datasets takes the address of the Hub when it is imported.
LOAD = """
import json, sys
from dataclasses import asdict
from pathlib import Path
import datasets
from hfattn.resources import load_recipe
from hfattn.training import load_config, run_facts

root, told = Path(sys.argv[1]), {}
for name, recipe in {
    "dates": "translation", "phrases": "translation", "opinions": "classification", "reber": "classification",
    "listops": "classification", "duplicate": "causal_lm", "recall": "causal_lm"
}.items():
    here, there = datasets.load_dataset(name), datasets.load_dataset(f"user/{name}")
    assert {split: list(rows) for split, rows in here.items()} == {split: list(rows) for split, rows in there.items()}
    assert here["train"].features == there["train"].features
    module = load_recipe(root / "recipes" / recipe / "train.py")
    overrides = ["--data.dataset", f"user/{name}", "--data.validation", "validation", "--data.test", "test"]
    config = load_config(module.Config, root / "recipes" / recipe / f"{name}.yaml", overrides)
    parts = config.data.read_parts(1)
    if recipe == "classification":
        labels, field, values = {
            "opinions": (["negative", "positive"], "language", {"en", "es"}),
            "reber": (["broken", "valid"], "broken", {"nowhere", "middle"}),
            "listops": (list("0123456789"), "root", {"MIN", "MAX", "MED", "SM"}),
        }[name]
        assert parts["train"].labels == here["train"].features["label"].names == labels
        assert {item.fields[field] for item in parts["train"]} >= values
    told[name] = {part: examples.fingerprint for part, examples in parts.items()}
    source = run_facts(recipe, Path(f"{name}.yaml"), asdict(config), 1)["dataset"]
    assert source["id"] == f"user/{name}" and len(source["commit"]) == 40
    assert {"id": "test", "config": "default", "split": "test"} in source["tasks"]
print(json.dumps(told))
"""


def test_what_is_published_is_loaded_and_learned_from(hub: Hub, tmp_path: Path) -> None:
    expected, snippets = {}, ""
    for name, draw in DRAWN.items():
        folder = make(name, tmp_path / name)
        assert data("push", folder, f"user/{name}", "--execute").exit_code == 0
        numbers = {"train": 60, "validation": 20, "test": 20}
        expected[name] = {part: draw(part, number, 3).fingerprint for part, number in numbers.items()}
        snippets += re.findall(r"```python\n(.*?)```", card(folder)[1], re.DOTALL)[0]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | hub.environment(tmp_path / "home") | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", snippets + LOAD, str(ROOT)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("DatasetDict(") == len(DRAWN)  # what the cards' own code prints
    assert json.loads(done.stdout.splitlines()[-1]) == expected
