"""The recipe classification on labels that are numbers, read as single texts and as pairs."""

import json
import math
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from commands import ROOT, results_of, steps, train_here, write_config, written
from huggingface_hub import ModelCard
from recipe_contract import BadInput, BadInputs, Configure, FinishedRun, Stated
from tiny_models import tiny_model
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    EvalPrediction,
    TrainingArguments,
    pipeline,
)

import hfattn
from hfattn.data import WindowCollator, WindowedTexts, read_labeled
from hfattn.errors import UserError
from hfattn.evaluation import evaluate_folder
from hfattn.loading import ModelLocation, load_model, load_tokenizer
from hfattn.metrics import RegressionMetric, RegressionScores
from hfattn.soup import cook
from hfattn.tokenizers import TokenizerConfig, build_tokenizer
from hfattn.training import ClassifierTrainer, TuningConfig
from hfattn.training.bands import limits, sampling_error

pytestmark = pytest.mark.runs

RECIPE = ROOT / "recipes" / "classification"
WORDS = ("the", "man", "film", "plot", "was", "and", "dog", "old", "in", "of")


def scored_pairs(path: Path, number: int = 200, seed: int = 0) -> Path:
    """Pairs of sentences whose score, from 1 to 5, is told by how often "good" is in either of them."""
    generator = np.random.default_rng(seed)
    rows = []
    for i in range(number):
        first, second = (list(generator.choice(WORDS, size=int(generator.integers(4, 8)))) for _ in range(2))
        good = int(generator.integers(5))
        for place in range(good):
            (first if place % 2 else second).insert(0, "good")
        topic = "even" if i % 2 == 0 else "odd"
        rows.append({"one": " ".join(first), "two": " ".join(second), "score": 1 + good, "topic": topic, "id": i})
    return written(path, rows)


TINY: dict[str, dict[str, Any]] = {
    "publish": {"texts": "samples"},
    "data": {
        "text_column": "one",
        "pair_column": "two",
        "label_column": "score",
        "regression": True,
        "split": [0.7, 0.15, 0.15],
        "max_length": 64,
    },
    "training": {**steps(60, 20), "per_device_eval_batch_size": 7, "metric_for_best_model": "spearman"},
    "evaluation": {"columns": ["topic"], "words": ["man"]},
    "sample": {"mistakes": 3, "examples": [["good good dog", "the good man"], ["the man", "old dog"]]},
}
RECURRENT = {"model_type": "rnn_encoder", "embedding_size": 8, "hidden_size": 8, "pooling": "attention"}
FROM_SCRATCH = {"tokenizer": {"kind": "word"}, "model": RECURRENT}


def tiny_config(folder: Path, **fields: Any) -> Path:
    return write_config(folder, TINY, {"data": {"dataset": str(scored_pairs(folder / "pairs.jsonl"))}}, fields)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    train_here(RECIPE, tiny_config(folder, **FROM_SCRATCH))
    return folder


def ranks(numbers: list[float]) -> list[float]:
    """The ranks from 1 on, with their mean for equal numbers, counted one by one."""
    return [sum(other < x for other in numbers) + (sum(other == x for other in numbers) + 1) / 2 for x in numbers]


def correlation(one: list[float], other: list[float]) -> float:
    means = sum(one) / len(one), sum(other) / len(other)
    covariance = variance = variance_of_other = 0.0
    for a, b in zip(one, other, strict=True):
        covariance += (a - means[0]) * (b - means[1])
        variance += (a - means[0]) ** 2
        variance_of_other += (b - means[1]) ** 2
    return covariance / math.sqrt(variance * variance_of_other)


def literal_scores(predicted: list[float], right: list[float]) -> dict[str, float]:
    return {
        "pearson": correlation(predicted, right),
        "spearman": correlation(ranks(predicted), ranks(right)),
        "mean_squared_error": sum((a - b) ** 2 for a, b in zip(predicted, right, strict=True)) / len(right),
    }


# Metrics


def test_scores_are_the_formulas_whatever_the_batches() -> None:
    generator = np.random.default_rng(0)
    right = generator.integers(1, 6, size=23).astype(float)  # with equal numbers
    predicted = (right + generator.normal(size=23)).round(1)
    expected = literal_scores(predicted.tolist(), right.tolist())
    assert RegressionMetric().compute(predictions=predicted, references=right) == pytest.approx(expected, rel=1e-12)
    scores = RegressionScores()
    for _ in range(2):  # nothing of one evaluation is left in the next
        for start in range(0, 23, 5):
            batch = EvalPrediction(predicted[start : start + 5], right[start : start + 5])
            result = scores(batch, compute_result=start + 5 >= 23)
        assert result == pytest.approx({**expected, "examples": 23}, rel=1e-12)


def test_equal_predictions_have_no_correlation() -> None:
    scores = RegressionMetric().compute(predictions=[3.0, 3.0, 3.0], references=[1.0, 2.0, 3.0])
    assert scores == {"pearson": 0.0, "spearman": 0.0, "mean_squared_error": pytest.approx(5 / 3)}


def test_the_sampling_error_of_a_correlation_is_that_of_drawn_pairs() -> None:
    generator = np.random.default_rng(0)
    one = generator.normal(size=(2000, 400))
    other = 0.8 * one + 0.6 * generator.normal(size=one.shape)
    drawn = np.std([np.corrcoef(a, b)[0, 1] for a, b in zip(one, other, strict=True)])
    assert sampling_error(0.8, "metrics.test.pearson", {"examples": 400}) == pytest.approx(drawn, rel=0.1)
    assert limits("metrics.test.spearman") == (-1.0, 1.0)
    assert limits("metrics.test.mean_squared_error") == (0.0, math.inf)


# Data


def test_numbers_are_read_from_text_and_from_json(tmp_path: Path) -> None:
    lines = written(tmp_path / "a.tsv", "text\tscore\na dog\t4.5\nno dog\t1\n")
    rows = written(tmp_path / "a.jsonl", [{"text": "a dog", "score": 4.5}, {"text": "no dog", "score": 1}])
    read = [read_labeled(path, label_column="score", regression=True) for path in (lines, rows)]
    assert [item.target for item in read[0]] == [item.target for item in read[1]] == [4.5, 1.0]
    assert read[0].labels == ["score"]
    assert read[0].fingerprint == read[1].fingerprint
    other = read_labeled(
        written(tmp_path / "a.tsv", "text\tscore\na dog\t4.4\nno dog\t1\n"), label_column="score", regression=True
    )
    assert other.fingerprint != read[0].fingerprint


@pytest.mark.parametrize("label", ["high", "nan", "inf", True, None, [1]])
def test_a_label_that_is_no_number_is_refused(tmp_path: Path, label: object) -> None:
    path = written(tmp_path / "a.jsonl", [{"text": "a", "label": 1}, {"text": "b", "label": label}])
    with pytest.raises(UserError, match=rf"^Line 2 of a.jsonl has the label {re.escape(repr(label))}; write a number"):
        read_labeled(path, regression=True)


@pytest.mark.parametrize("kind", ["word", "bpe", "unigram", "wordpiece", "char"])
def test_our_tokenizers_put_a_separator_between_the_texts_of_a_pair(kind: str) -> None:
    config = TokenizerConfig(kind=kind, vocab_size=60 if kind in ("bpe", "unigram", "wordpiece") else None)
    texts = ["the man [SEP] was old", "a dog"]
    tokenizer = build_tokenizer(config, texts, ends=False, pairs=True)
    first, second = (tokenizer(text).input_ids for text in ("the man", "a dog"))
    assert tokenizer("the man", "a dog").input_ids == [*first, tokenizer.sep_token_id, *second]
    # In a text, the word [SEP] is no separator.
    assert tokenizer.sep_token_id not in tokenizer(texts[0]).input_ids


# The loss


def test_the_loss_is_the_mean_squared_error_and_an_accumulated_step_is_one_batch(tmp_path: Path) -> None:
    """Against a literal loop in float64; and 2 x 4 pairs give the gradient of 8."""
    where = ModelLocation(name=str(tiny_model(tmp_path / "bert", "bert")))
    pairs = read_labeled(
        scored_pairs(tmp_path / "a.jsonl"), text_column="one", pair_column="two", label_column="score", regression=True
    )
    tokenizer = load_tokenizer(where)
    loaded = load_model(
        AutoModelForSequenceClassification,
        where,
        id2label={0: "score"},
        label2id={"score": 0},
        problem_type="regression",
    )
    arguments = TrainingArguments(str(tmp_path), report_to="none", use_cpu=True)
    trainer = ClassifierTrainer(loaded.model, arguments, source=where, loaded=loaded, tuning=TuningConfig())
    model = trainer.model.eval()
    dataset, collate = WindowedTexts(pairs, tokenizer, 64), WindowCollator(tokenizer)
    batches = [collate([dataset[i] for i in range(start, start + 4)]) for start in (0, 4)]
    whole = collate([dataset[i] for i in range(8)])
    loss, outputs = trainer.compute_loss(model, dict(whole), return_outputs=True)
    expected = 0.0
    for logit, item in zip(outputs.logits.double()[:, 0].tolist(), pairs.items[:8], strict=True):
        expected += (logit - item.target) ** 2 / 8
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    loss.backward()
    gradients = {name: tensor.grad.clone() for name, tensor in model.named_parameters() if tensor.grad is not None}
    model.zero_grad()
    for batch in batches:
        trainer.compute_loss(model, dict(batch), num_items_in_batch=torch.tensor(8)).backward()
    for name, tensor in model.named_parameters():
        if tensor.grad is not None:
            torch.testing.assert_close(tensor.grad, gradients[name], atol=1e-5, rtol=1e-4)


# Runs


def predicted_one_by_one(run: Path, rows: list[dict[str, Any]]) -> list[float]:
    model = AutoModelForSequenceClassification.from_pretrained(run).eval()
    tokenizer = AutoTokenizer.from_pretrained(run)
    with torch.no_grad():
        return [model(**tokenizer(r["one"], r["two"], return_tensors="pt")).logits.item() for r in rows]


def test_scores_are_those_of_the_published_model_one_pair_at_a_time(finished: Path) -> None:
    rows = [json.loads(line) for line in (finished / "pairs.jsonl").read_text().splitlines()]
    results = results_of(finished / "run")
    whole = read_labeled(
        finished / "pairs.jsonl", text_column="one", pair_column="two", label_column="score", regression=True
    )
    (_, _, test) = whole.split([0.7, 0.15, 0.15], 0, lambda item: item.text, "texts")
    chosen = [rows[item.fields["id"]] for item in test]
    predicted, right = predicted_one_by_one(finished / "run", chosen), [float(row["score"]) for row in chosen]
    measured = results["metrics"]["test"]
    expected = literal_scores(predicted, right)
    assert {name: measured[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    assert measured["examples"] == len(right)
    even = [i for i, row in enumerate(chosen) if row["topic"] == "even"]
    slice_ = measured["by_slice"]["topic: even"]
    assert slice_["examples"] == len(even)
    assert slice_["spearman"] == pytest.approx(
        literal_scores([predicted[i] for i in even], [right[i] for i in even])["spearman"], rel=1e-4
    )
    assert expected["pearson"] > 0.7
    low, high = measured["pearson_interval"]
    assert low < expected["pearson"] < high
    errors = [abs(float(each["predicted"]) - float(each["right"])) for each in results["samples"]]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] == pytest.approx(max(abs(a - b) for a, b in zip(predicted, right, strict=True)), abs=0.006)
    assert results["selection"]["checkpoint"] == {"part": "validation", "metric": "spearman"}


def test_the_pipeline_and_the_command_line_give_numbers(finished: Path) -> None:
    run = finished / "run"
    one, two = results_of(run)["example"]["texts"]
    said = pipeline("text-classification", str(run))({"text": one, "text_pair": two})
    assert said == {"label": "score", "score": pytest.approx(results_of(run)["example"]["number"], abs=1e-4)}
    section = (RECIPE / "README.md").read_text().split("## Regression")[1]
    snippet = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    *lines, last = snippet.replace("runs/classification-sick_relatedness_transformer", str(run)).splitlines()
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)
    assert eval(last, names)[0].keys() == {"label", "score"}
    rows = [json.loads(line) for line in (finished / "pairs.jsonl").read_text().splitlines()]
    scores = evaluate_folder(str(run), str(finished / "pairs.jsonl"), columns=["one", "two", "score"])
    expected = literal_scores(predicted_one_by_one(run, rows), [float(row["score"]) for row in rows])
    assert {name: scores[name] for name in expected} == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("data", "threshold"), [("templates", None), ("pairs.jsonl", 0.9)])
def test_what_needs_classes_is_refused_by_evaluate(finished: Path, data: str, threshold: float | None) -> None:
    with pytest.raises(UserError, match="predicts a number and no class"):
        evaluate_folder(str(finished / "run"), data, threshold=threshold)
    with pytest.raises(UserError, match="abstain is not for the task of"):
        hfattn.predict(str(finished / "run"), [("a", "b")], abstain=True)


@pytest.mark.parametrize("kind", ["vaswani from scratch", "distilbert", "gpt2", "vaswani"])
def test_every_body_predicts_numbers(kind: str, tmp_path: Path) -> None:
    if kind == "vaswani from scratch":
        sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
        fields = {"tokenizer": {"kind": "word"}, "model": {"model_type": "vaswani", "preset": "small", **sizes}}
    else:
        texts = (*WORDS, "good")
        fields = {"model": {"name": str(tiny_model(tmp_path / "body", kind, (" ".join(texts), *texts)))}}
    results = train_here(RECIPE, tiny_config(tmp_path, **fields, training={**steps(8), "learning_rate": 3e-3}))
    rows = [dict(zip(("one", "two"), results["example"]["texts"], strict=True))]
    assert predicted_one_by_one(tmp_path / "run", rows) == pytest.approx([results["example"]["number"]], abs=1e-4)
    config = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run").config
    assert (config.problem_type, config.id2label) == ("regression", {0: "score"})


def test_a_single_text_may_have_a_number(tmp_path: Path) -> None:
    fields = {"data": {"pair_column": None, "too_long": "cut_start"}, "sample": {"examples": []}, **FROM_SCRATCH}
    results = train_here(RECIPE, tiny_config(tmp_path, **fields, training=steps(4)))
    assert len(results["example"]["texts"]) == 1
    assert not results["data"]["pairs"]


def test_a_soup_of_regressions_is_refused(finished: Path, tmp_path: Path) -> None:
    results = results_of(finished / "run")
    results["model"]["base_model"] = "bert"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        written(tmp_path / name / "results.json", json.dumps(results))
    with pytest.raises(UserError, match="predicts a number, and a soup is of classifiers"):
        cook([tmp_path / "a", tmp_path / "b"], tmp_path / "soup", greedy=False, overrides=[])
    assert not (tmp_path / "soup").exists()


class TestRegression(FinishedRun, BadInputs):
    recipe, tiny = "classification", FROM_SCRATCH
    files: ClassVar[set[str]] = {*FinishedRun.files, "modeling_rnn_encoder.py"}
    pictures: ClassVar[tuple[str, ...]] = ("loss_curve.png", "predictions.png", "alignment-1.png")
    stated: ClassVar[Stated] = {
        ("spearmanr", "Spearman correlation (test)"): ("test", "spearman"),
        ("pearsonr", "Pearson correlation (validation)"): ("validation", "pearson"),
        ("mse", "mean squared error (test)"): ("test", "mean_squared_error"),
    }
    bad: ClassVar[list[BadInput]] = [
        ("--data.labels [low,high]", "data.labels is for classes"),
        ("--evaluation.calibration true", "evaluation.calibration is for classes"),
        ("--evaluation.coverage 0.9", "evaluation.coverage is for classes"),
        ("--evaluation.templates true", "evaluation.templates is for classes"),
        ("--evaluation.counterfactual_texts 10", "evaluation.counterfactual_texts is for classes"),
        ("--training.label_smoothing_factor 0.1", "label_smoothing_factor is for classes"),
        ("--model.preset gru128 --model.problem_type regression", "model.problem_type follows from the data"),
        ("--data.dataset reber", "regression is for labels that are numbers, and reber has classes"),
        ("--data.label_column topic", "Line 1 of pairs.jsonl has the label 'even'; write a number"),
        ("--data.too_long cut_start", "too_long cut_start is for single texts, and pair_column makes pairs"),
        (
            "--tokenizer.kind bpe --tokenizer.vocab_size 60 --tokenizer.sampling 0.1",
            "tokenizer.sampling is for single texts",
        ),
    ]

    @pytest.fixture
    def configure(self) -> Configure:
        return tiny_config

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        assert results["example"] == results["examples"][0]
        assert results["examples"][0]["number"] > results["examples"][1]["number"]
        assert f"| good good dog / the good man | {results['example']['number']:.2f} |" in card.text
        assert float(printed) == pytest.approx(results["example"]["number"], abs=0.006)
        for words in ("predict a number for pairs of texts: score, from 1 to 5", "| topic: even |", "### Attention"):
            assert words in card.text
        assert "class" not in card.text.split("## Results")[1].split("## Data")[0]
