"""Which texts ``evaluate`` gives to a classifier, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from test_baselines import finished as finished_baseline  # noqa: F401
from tiny_models import labeled_file, tiny_model
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import hfattn
from hfattn.errors import UserError

PAIRS = ["text", "pair", "label"]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier with large random weights in its head, and pairs of texts beside it."""
    folder = tmp_path_factory.mktemp("classifier")
    body = tiny_model(folder / "body")
    torch.manual_seed(1)
    model = AutoModelForSequenceClassification.from_pretrained(body, num_labels=2, id2label={0: "0", 1: "1"})
    with torch.no_grad():
        for parameter in list(model.parameters())[-4:]:
            parameter.normal_(std=0.5)
    model.save_pretrained(folder / "run")
    AutoTokenizer.from_pretrained(body).save_pretrained(folder / "run")
    labeled_file(folder / "pairs.tsv", pairs=True, texts=60)
    return folder


def test_a_run_that_was_trained_on_pairs_reads_pairs(classifier: Path) -> None:
    run, file = classifier / "run", classifier / "pairs.tsv"
    single, both = hfattn.evaluate(run, file), hfattn.evaluate(run, file, columns=PAIRS)
    assert single["nats_per_example"] != both["nats_per_example"]
    (run / "results.json").write_text(json.dumps({"data": {"pairs": True}}))
    try:
        assert hfattn.evaluate(run, file) == both
        assert hfattn.evaluate(run, file, columns=["text", "label"]) == single
    finally:
        (run / "results.json").unlink()


@pytest.mark.parametrize("columns", [["text"], [*PAIRS, "label"]])
def test_columns_without_a_use_are_refused(classifier: Path, columns: list[str]) -> None:
    with pytest.raises(UserError, match=rf"^columns names {len(columns)} columns; write text,label or text,pair,label"):
        hfattn.evaluate(classifier / "run", classifier / "pairs.tsv", columns=columns)


def test_a_baseline_does_not_drop_the_second_text(finished_baseline: Path, classifier: Path) -> None:  # noqa: F811
    with pytest.raises(UserError, match="is a baseline, which reads one text; name its column and that of the label"):
        hfattn.evaluate(finished_baseline / "run", classifier / "pairs.tsv", columns=PAIRS)


def test_what_other_programs_store_for_classification_is_no_reading(classifier: Path) -> None:
    run, file = classifier / "run", classifier / "pairs.tsv"
    expected = hfattn.evaluate(run, file)
    config: dict[str, Any] = json.loads((run / "config.json").read_text())
    others = {"text-classification": {"function_to_apply": "softmax"}}
    (run / "config.json").write_text(json.dumps({**config, "task_specific_params": others}))
    try:
        assert hfattn.evaluate(run, file) == expected
    finally:
        (run / "config.json").write_text(json.dumps(config))


def test_other_classifiers_are_paths_too(classifier: Path) -> None:
    run, file = classifier / "run", classifier / "pairs.tsv"
    alone, twice = hfattn.evaluate(run, file), hfattn.evaluate(run, file, together_with=[run])
    assert twice["nats_per_example"] == pytest.approx(alone["nats_per_example"], rel=1e-5)
