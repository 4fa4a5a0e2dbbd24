"""Model soups: the mean of runs, chosen or all, and what is said where there is none."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from commands import ROOT, printed_by_card, results_of, steps, train_here, write_config
from safetensors.torch import load_file, save_file
from tiny_models import labeled_file, tiny_model
from typer.testing import CliRunner

from hfattn.soup import greedy_soup, write_soup
from hfattn_cli import app

RECIPE = ROOT / "recipes" / "classification"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs from one model that differ in their learning rate, and one whose head says the opposite."""
    folder = tmp_path_factory.mktemp("runs")
    dataset, split = str(labeled_file(folder / "reviews.tsv", pairs=False)), [0.8, 0.1, 0.1]
    fields = {
        "model": {"name": str(tiny_model(folder / "model", "bert"))},
        "data": {"dataset": dataset, "training_examples": 160, "max_length": 64, "split": split},
        "training": {**steps(20), "per_device_train_batch_size": 16, "metric_for_best_model": "nats_per_example"},
        "evaluation": {"counterfactual_texts": 0, "coverage": 0.8},
    }
    config = write_config(folder, fields)
    for name, rate in (("one", "3e-3"), ("two", "2e-3")):
        train_here(RECIPE, config, "--training.learning_rate", rate, to=name)
    shutil.copytree(folder / "one", folder / "opposite")
    weights = load_file(folder / "one" / "model.safetensors")
    weights |= {name: -3 * weights[name] for name in ("classifier.weight", "classifier.bias")}
    save_file(weights, folder / "opposite" / "model.safetensors", metadata={"format": "pt"})
    return folder


def soup(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["soup", *map(str, words)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def test_a_soup_is_the_mean_of_its_runs_and_is_measured(runs: Path, tmp_path: Path) -> None:
    data = f"data.dataset={runs / 'reviews.tsv'}"
    code, output = soup(runs / "one", runs / "two", "--output", tmp_path / "soup", "--set", data)
    assert code == 0, output
    one, two, mixed = (
        load_file(path / "model.safetensors") for path in (runs / "one", runs / "two", tmp_path / "soup")
    )
    for name, tensor in mixed.items():
        torch.testing.assert_close(tensor, (one[name].double() + two[name].double()).div(2).float(), atol=0, rtol=0)
    results = results_of(tmp_path / "soup")
    for row, name in zip(results["soup"]["ingredients"], ("one", "two"), strict=True):
        own = results_of(runs / name)["metrics"]
        measured_again = pytest.approx(own["validation"]["nats_per_example"], rel=1e-4)
        assert row["validation"] == measured_again
        assert row["test"] == own["test"]["nats_per_example"]
    assert "uniform soup" in output
    one, mixed = (json.loads((path / "config.json").read_text()) for path in (runs / "one", tmp_path / "soup"))
    assert "threshold" in one["task_specific_params"]["text-classification"]
    assert "threshold" not in mixed["task_specific_params"]["text-classification"], "it was chosen for another model"
    assert printed_by_card(tmp_path / "soup").strip() == results["example"]["label"]
    for file in ("results.json", "README.md"):
        assert str(runs) not in (tmp_path / "soup" / file).read_text()


def test_a_greedy_soup_leaves_out_what_makes_it_worse(runs: Path, tmp_path: Path) -> None:
    data = f"data.dataset={runs / 'reviews.tsv'}"
    code, output = soup(
        runs / "opposite", runs / "one", runs / "two", "--greedy", "--output", tmp_path / "soup", "--set", data
    )
    assert code == 0, output
    results = results_of(tmp_path / "soup")
    taken = {row["name"]: row["taken"] for row in results["soup"]["ingredients"]}
    best = min(row["validation"] for row in results["soup"]["ingredients"])
    assert results["metrics"]["validation"]["nats_per_example"] <= best + 1e-6
    assert not taken["opposite"]
    assert "left out" in output


def test_the_greedy_choice_is_that_of_the_paper() -> None:
    """Against a table of scores: the best first, and one stays where the score is no worse."""
    a, b, c = Path("a"), Path("b"), Path("c")
    table = {(a,): 0.5, (b,): 0.9, (c,): 0.7, (b, c): 0.9, (b, c, a): 0.89}
    chosen, alone = greedy_soup([a, b, c], lambda members: table[tuple(members)], greater_is_better=True)
    assert (chosen, alone) == ([b, c], [0.5, 0.9, 0.7])
    lower = {key: -value for key, value in table.items()}
    assert greedy_soup([a, b, c], lambda members: lower[tuple(members)], greater_is_better=False)[0] == [b, c]


def test_what_cannot_be_mixed_is_refused(runs: Path, tmp_path: Path) -> None:
    def refused(*words: object) -> str:
        code, output = soup(*words)
        assert code == 2, output
        return output

    out = tmp_path / "soup"
    assert "A soup needs at least two runs" in refused(runs / "one", "--output", out)
    assert "absent was not found" in refused(runs / "one", runs / "absent", "--output", out)
    assert "exists already" in refused(runs / "one", runs / "two", "--output", runs / "two")
    other = tmp_path / "other"
    shutil.copytree(runs / "one", other)
    weights = load_file(other / "model.safetensors")
    weights["classifier.weight"] = torch.zeros(3, 32)
    save_file(weights, other / "model.safetensors")
    assert "classifier.weight is [2, 32] in one and [3, 32] in the other" in refused(
        runs / "one", other, "--output", out
    )
    results = results_of(runs / "one")
    results["data"]["parts"]["validation"]["sha256"] = "0"
    (other / "results.json").write_text(json.dumps(results))
    assert "were trained or measured on different texts" in refused(runs / "one", other, "--output", out)
    results["model"].pop("base_model")
    (other / "results.json").write_text(json.dumps(results))
    assert "is not a fine-tuned classifier" in refused(other, runs / "one", "--output", out)
    gone = ("--set", "data.dataset=absent.tsv", "--output", out)
    sentence = refused(runs / "one", runs / "two", *gone)
    assert "absent.tsv was not found locally or on the Hub" in sentence
    assert "write --set data.dataset=PATH with the path of the data." in sentence
    assert not out.exists()


def test_three_runs_are_rounded_once(tmp_path: Path) -> None:
    folders = [tmp_path / str(i) for i in range(3)]
    values = [torch.tensor([1.0, 1e8]), torch.tensor([2.0, 1.0]), torch.tensor([4.0, -1e8])]
    for folder, value in zip(folders, values, strict=True):
        folder.mkdir()
        save_file({"w": value}, folder / "model.safetensors")
    write_soup(folders, tmp_path / "soup")
    assert load_file(tmp_path / "soup" / "model.safetensors")["w"].tolist() == pytest.approx([7 / 3, 1 / 3])
