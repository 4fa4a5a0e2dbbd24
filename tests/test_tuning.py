"""The search for settings: real trials of a baseline, and searches that were stopped."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import run
from tiny_models import labeled_file

from hfattn.errors import UserError
from hfattn.training import load_config
from hfattn.training.config import split_overrides
from hfattn.training.selection import read_search
from hfattn.tuning import SearchConfig, best_overrides, tune
from hfattn.yaml_values import load_yaml

pytestmark = pytest.mark.runs

FIELDS = {"training.learning_rate": {"low": 1e-5, "high": 1e-1, "log": True}, "model.layers": {"low": 1, "high": 4}}


def search_file(folder: Path, **fields: Any) -> Path:
    path = folder / "search.yaml"
    path.write_text(yaml.safe_dump({"fields": FIELDS, "trials": 8, **fields}))
    return path


def search(folder: Path, **fields: Any) -> SearchConfig:
    return load_config(SearchConfig, search_file(folder, **fields))


@pytest.mark.examples  # slow
def test_a_search_continues_and_its_best_trial_trains(tmp_path: Path) -> None:
    """A trial, and another when the command is given again; neither sees the test part."""
    reviews = labeled_file(tmp_path / "reviews.tsv", pairs=False)
    words = ["hfattn", "tune", "--output_dir", "search", "baselines/sst2_tfidf_svm", "search.yaml"]
    shared = [
        *("--data.dataset", reviews, "--data.text_column", "text", "--data.labels", "null", "--data.test", "null"),
        *("--data.split", "[0.6, 0.2, 0.2]", "--data.split_by", "text"),
    ]
    fields = {"classifier.kind": ["naive_bayes", "svm"], "classifier.c": {"low": 0.01, "high": 10.0, "log": True}}
    for trials in (1, 2):
        search_file(tmp_path, fields=fields, trials=trials)
        done = run([*words, *shared], cwd=tmp_path)
        assert done.returncode == 0, done.stderr + done.stdout
        assert len(re.findall(r"^Trial \d of \d: ", done.stdout, re.MULTILINE)) == 1
    record = json.loads((tmp_path / "search" / "search.json").read_text())
    scores = [trial["score"] for trial in record["trials"]]
    assert len(scores) == 2
    assert record["part"] == "validation"
    assert record["trials"][record["best"] - 1]["score"] == max(scores)
    for trial in record["trials"]:
        results = json.loads((tmp_path / "search" / f"trial-{trial['number']}" / "results.json").read_text())
        assert results["metrics"]["validation"]["accuracy"] == trial["score"]
        assert "test" not in results["metrics"]


class Training:
    """Writes the results of a training without the training; the score is best at a learning rate of 0.001."""

    def __init__(self, stop_at: int | None = None, fail_at: tuple[int, ...] = ()) -> None:
        self.calls, self.stop_at, self.fail_at = 0, stop_at, fail_at

    def __call__(self, words: list[str], log: Path) -> None:
        self.calls += 1
        if self.calls == self.stop_at:
            raise KeyboardInterrupt
        if self.calls in self.fail_at:
            raise UserError("the learning rate is too large.")
        given = dict(zip(words[::2], words[1::2], strict=False))
        score = -abs(float(given["--training.learning_rate"]) - 1e-3) - int(given["--model.layers"])
        folder = Path(given["--output_dir"])
        folder.mkdir()
        results: dict[str, Any] = {name: {} for name in ("model", "training", "data", "hardware", "versions")}
        results |= {"seed": 1, "recipe": "any", "config": "tiny", "metrics": {"validation": {"accuracy": score}}}
        results["command"] = shlex.join(["train.py", "--config", "tiny.yaml"])
        (folder / "results.json").write_text(json.dumps(results))


def without_seconds(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "trials": [{**trial, "seconds": None} for trial in record["trials"]]}


@pytest.mark.parametrize("stop_at", [1, 4])
def test_a_search_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path, stop_at: int) -> None:
    whole = tune("any/tiny", search(tmp_path), [], tmp_path / "whole", Training())
    with pytest.raises(KeyboardInterrupt):
        tune("any/tiny", search(tmp_path), [], tmp_path / "stopped", Training(stop_at))
    continued = tune("any/tiny", search(tmp_path), [], tmp_path / "stopped", Training())
    assert without_seconds(continued) == without_seconds(whole)
    assert len(whole["trials"]) == 8


def test_a_search_with_more_trials_keeps_those_that_it_has(tmp_path: Path) -> None:
    four = tune("any/tiny", search(tmp_path, trials=4), [], tmp_path / "search", Training())
    training = Training()
    eight = tune("any/tiny", search(tmp_path, trials=8), [], tmp_path / "search", training)
    assert training.calls == 4
    assert eight["trials"][:4] == four["trials"]


def test_the_best_trial_is_the_lowest_where_lower_is_better(tmp_path: Path) -> None:
    record = tune("any/tiny", search(tmp_path, higher_is_better=False), [], tmp_path / "search", Training())
    assert record["trials"][record["best"] - 1]["score"] == min(trial["score"] for trial in record["trials"])


def test_a_failed_trial_is_counted_and_the_first_one_ends_the_search(tmp_path: Path) -> None:
    record = tune("any/tiny", search(tmp_path), [], tmp_path / "search", Training(fail_at=(3, 5)))
    assert record["failed"] == 2
    assert [trial["number"] for trial in record["trials"]] == [1, 2, 4, 6, 7, 8]
    with pytest.raises(UserError, match="Trial 1 failed, and none has finished: the learning rate is too large"):
        tune("any/tiny", search(tmp_path), [], tmp_path / "other", Training(fail_at=(1,)))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"metric": "metrics.test.accuracy"}, "settings are chosen on validation, so write metrics.validation.NAME"),
        ({"fields": {}}, "fields is empty; write a field such as training.learning_rate"),
        (
            {"fields": {"model.layers": [2]}},
            r"fields.model.layers is \[2\]; write two or more choices, or low and high",
        ),
        ({"fields": {"model.layers": {"low": 3, "high": 3}}}, "write two or more choices, or low and high"),
        ({"fields": {"model.layers": {"low": 3, "hihg": 4}}}, "write two or more choices, or low and high"),
        ({"trials": 0}, "trials is 0; write a whole number of at least 1"),
        ({"trial": 3}, "trial"),
    ],
)
def test_a_search_that_cannot_be_is_refused(tmp_path: Path, fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        search(tmp_path, **fields)


@pytest.mark.parametrize(
    "values",
    [
        {"low": 0.0, "high": 1.0, "log": True},
        {"low": 1, "high": 8, "log": True, "step": 2},
        {"low": "a", "high": "b"},
        {"low": 1, "high": 8, "step": 0},
    ],
)
def test_a_range_that_cannot_be_is_refused(tmp_path: Path, values: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"^fields\.model\.layers is \{.*\}: "):
        tune("any/tiny", search(tmp_path, fields={"model.layers": values}), [], tmp_path / "search", Training())
    assert not (tmp_path / "search").exists()


def test_choices_are_written_as_the_recipe_reads_them(tmp_path: Path) -> None:
    choices = [None, True, 0.001, "gru", "1e-4"]

    def train(words: list[str], log: Path) -> None:
        given = dict(split_overrides(words[:-1]))
        assert load_yaml(given["model.cell"]) in (*choices, 1e-4)
        Training()(["--training.learning_rate", "0.1", "--model.layers", "1", *words], log)

    record = tune("any/tiny", search(tmp_path, fields={"model.cell": choices}), [], tmp_path / "search", train)
    path = tmp_path / "search" / "search.json"
    best = dict(split_overrides(best_overrides(record)))
    assert read_search(path, best)["trials"] == record["trials"]
    with pytest.raises(UserError, match=r"has model\.cell .*, and this run does not; write --model\.cell "):
        read_search(path, {**best, "model.cell": "lstm"})


def test_a_field_that_the_recipe_lacks_is_refused_before_the_first_trial(tmp_path: Path) -> None:
    search_file(tmp_path, fields={"model.hiden_size": [8, 16]})
    done = run(["hfattn", "tune", "--output_dir", "search", "classification/opinions", "search.yaml"], cwd=tmp_path)
    assert (done.returncode, "did you mean 'hidden_size'" in done.stderr) == (2, True)
    assert not (tmp_path / "search").exists()


def test_another_search_in_the_folder_is_refused(tmp_path: Path) -> None:
    tune("any/tiny", search(tmp_path, trials=1), [], tmp_path / "search", Training())
    with pytest.raises(UserError, match="holds a search with seed 1, not 2; continue it with that"):
        tune("any/tiny", search(tmp_path, seed=2), [], tmp_path / "search", Training())
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    with pytest.raises(UserError, match="run is not empty and holds no search"):
        tune("any/tiny", search(tmp_path), [], tmp_path / "run", Training())
