"""Classification with several labels per text, through the real command line, against literal counts."""

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from commands import ROOT, results_of, steps, train_here, write_config, written
from datasets import ClassLabel, Dataset, Features, List, Value
from huggingface_hub import ModelCard
from recipe_contract import BadInput, BadInputs, Configure, FinishedRun, Stated
from sklearn.metrics import f1_score
from tiny_models import tiny_model
from transformers import EvalPrediction, pipeline
from transformers.modeling_outputs import SequenceClassifierOutput
from typer.testing import CliRunner

import hfattn
from hfattn.data import Labeled, LabeledTexts, read_labeled
from hfattn.data.splitting import label_combinations
from hfattn.errors import UserError
from hfattn.evaluation import evaluate_folder
from hfattn.metrics import MultiLabelScores, best_thresholds, multi_label_scores
from hfattn.training import OwnClassifierDataConfig, class_weights, weighted_loss
from hfattn_cli import app

pytestmark = pytest.mark.runs

RECIPE = ROOT / "recipes" / "classification"
WORDS = ("the", "old", "man", "saw", "a", "dog")
TOLD_BY = {"billing": "invoice", "delivery": "parcel", "praise": "thanks"}  # each label by its word


def tickets(path: Path, number: int, seed: int = 0) -> Path:
    generator = np.random.default_rng(seed)
    rows = []
    for i in range(number):
        labels = [label for label in TOLD_BY if generator.random() < 0.4]
        words = list(generator.choice(WORDS, size=int(generator.integers(4, 8)))) + [TOLD_BY[each] for each in labels]
        generator.shuffle(words)
        rows.append({"text": " ".join(words), "labels": labels, "even": "yes" if i % 2 == 0 else "no"})
    return written(path, rows)


TINY: dict[str, dict[str, Any]] = {
    "publish": {"texts": "samples"},
    "data": {
        "label_column": "labels",
        "multi_label": True,
        "split": [0.7, 0.15, 0.15],
        "stratify": False,
        "max_length": 32,
    },
    "training": {**steps(160, 40), "per_device_eval_batch_size": 7, "metric_for_best_model": "macro_f1"},
    "evaluation": {"columns": ["even"], "words": ["man"]},
    "sample": {"mistakes": 3, "examples": ["thanks for the parcel", "the old dog"]},
}
TINY["training"]["learning_rate"] = 0.02
RECURRENT = {"model_type": "rnn_encoder", "embedding_size": 8, "hidden_size": 8, "pooling": "attention"}
FROM_SCRATCH = {"tokenizer": {"kind": "word"}, "model": RECURRENT}


def tiny_config(folder: Path, **fields: Any) -> Path:
    return write_config(folder, TINY, {"data": {"dataset": str(tickets(folder / "tickets.jsonl", 240))}}, fields)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    train_here(RECIPE, tiny_config(folder, **FROM_SCRATCH))
    return folder


# Metrics and data


def test_scores_are_those_counted_one_decision_at_a_time() -> None:
    generator = np.random.default_rng(0)
    logits, right = generator.normal(size=(23, 3)), (generator.random((23, 3)) < 0.4).astype(float)
    thresholds = np.array([0.3, 0.5, 0.7])
    counts, nats, exact = {label: [0, 0, 0] for label in range(3)}, 0.0, 0
    for row, hot in zip(logits.tolist(), right.tolist(), strict=True):
        agree = True
        for label in range(3):
            probability = 1 / (1 + math.exp(-row[label]))
            nats -= math.log(probability if hot[label] else 1 - probability)
            predicted = probability >= thresholds[label]
            counts[label][0] += predicted and hot[label] == 1
            counts[label][1] += predicted and hot[label] == 0
            counts[label][2] += not predicted and hot[label] == 1
            agree &= predicted == (hot[label] == 1)
        exact += agree

    def f1(hits: int, wrong: int, missed: int) -> float:
        return 2 * hits / (2 * hits + wrong + missed)

    assert multi_label_scores(logits, right, thresholds) == pytest.approx(
        {
            "accuracy": exact / 23,
            "f1": f1(*(sum(counts[label][i] for label in range(3)) for i in range(3))),
            "macro_f1": sum(f1(*counts[label]) for label in range(3)) / 3,
            "nats_per_example": nats / 23,
            "examples": 23,
        }
    )
    scores = MultiLabelScores()
    for _ in range(2):  # nothing of one evaluation is left in the next
        for start in range(0, 23, 5):
            batch = EvalPrediction(logits[start : start + 5], right[start : start + 5])
            result = scores(batch, compute_result=start + 5 >= 23)
        assert result == pytest.approx(multi_label_scores(logits, right))


def test_no_other_threshold_has_a_higher_f1() -> None:
    generator = np.random.default_rng(1)
    logits = generator.normal(size=(40, 3)).round(1)  # with equal ones
    right = (generator.random((40, 3)) < 0.3).astype(float)
    right[:, 2] = 0
    thresholds = best_thresholds(logits, right)
    assert thresholds[2] == 0.5  # no text has the label
    probabilities = 1 / (1 + np.exp(-logits))
    for label in range(2):
        reached = f1_score(right[:, label], probabilities[:, label] >= thresholds[label])
        for other in np.linspace(0, 1, 501):
            assert f1_score(right[:, label], probabilities[:, label] >= other, zero_division=0) <= reached + 1e-12


def test_labels_are_lists_or_texts_with_a_separator(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\na\tred; green\nb\t\nc\tblue;red\nd\tgray\n")
    texts = read_labeled(path, separator=";", rename_labels={"gray": None})
    assert texts.labels == ["blue", "green", "red"]
    assert [texts.names(item) for item in texts] == [["green", "red"], [], ["blue", "red"], []]
    assert texts.items[0].target == [0.0, 1.0, 1.0]
    features = Features({"text": Value("string"), "label": List(ClassLabel(names=["no", "yes"]))})
    rows = Dataset.from_dict({"text": ["a", "b"], "label": [[1], [0, 1]]}, features=features)
    read = read_labeled(rows, separator=",")
    assert [item.classes for item in read] == [[1], [0, 1]]
    renamed = read_labeled(rows, separator=",", rename_labels={"no": "never"})
    assert [renamed.names(item) for item in renamed] == [["yes"], ["never", "yes"]]
    odd = Dataset.from_dict(
        {"text": ["a"], "label": [[7]]}, features=Features({**features, "label": List(Value("int64"))})
    )
    with pytest.raises(UserError, match="label 7, which is not one of no, yes"):
        read_labeled(odd, separator=",", labels=["no", "yes"])
    with pytest.raises(UserError, match=r"Row 0 .* the labels 3; write a list of names, or names with ','"):
        read_labeled(Dataset.from_dict({"text": ["a"], "label": [3]}), separator=",")


# Runs


def test_the_results_are_those_of_the_published_model(finished: Path, tmp_path: Path) -> None:
    results, folder = results_of(finished / "run"), str(finished / "run")
    assert results["data"]["labels"] == sorted(TOLD_BY)
    shown = results["metrics"]["test"]
    assert shown["f1"] > 0.9
    assert results["selection"]["thresholds"] == {"part": "validation", "metric": "f1"}
    again = tickets(tmp_path / "new.jsonl", 60, seed=5)
    rows = [json.loads(line) for line in again.read_text().splitlines()]
    answers = hfattn.predict(folder, [row["text"] for row in rows])
    for answer in answers:
        reached = [label for label, value in answer["probabilities"].items() if value >= results["thresholds"][label]]
        assert answer["labels"] == reached
    exact = np.mean([sorted(a["labels"]) == sorted(r["labels"]) for a, r in zip(answers, rows, strict=True)])
    scores = evaluate_folder(folder, str(again), columns=["text", "labels"])
    assert scores["accuracy"] == pytest.approx(exact)
    done = CliRunner().invoke(app, ["classify", folder, "thanks for the parcel", "the old dog"])
    first, second = done.stdout.splitlines()
    assert re.fullmatch(r"[01]\.\d{4}  delivery,  [01]\.\d{4}  praise", first)
    assert second == "(no label)"
    by_pipeline = pipeline("text-classification", folder, top_k=None)([row["text"] for row in rows])
    for answer, found in zip(answers, by_pipeline, strict=True):
        assert {each["label"]: each["score"] for each in found} == pytest.approx(answer["probabilities"], abs=1e-5)


def test_weights_are_those_of_the_positive_decisions() -> None:
    items = [Labeled("a", 0, hot=hot) for hot in ((1.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0))]
    texts = LabeledTexts("t", items, ["x", "y"])
    weights = class_weights("balanced", texts)
    assert weights is not None
    assert weights.tolist() == pytest.approx([2 / 3, 4.0])
    logits, total = torch.tensor([[0.5, -1.0], [2.0, 0.3], [-0.7, 1.1]], dtype=torch.float64), 0.0
    hot = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    for row, right in zip(logits.tolist(), hot.tolist(), strict=True):
        for logit, is_right, weight in zip(row, right, weights.tolist(), strict=True):
            probability = 1 / (1 + math.exp(-logit))
            total -= weight * math.log(probability) if is_right else math.log(1 - probability)
    loss = weighted_loss(SequenceClassifierOutput(logits=logits), hot, weights=weights)
    assert float(loss) == pytest.approx(total / 6, rel=1e-6)
    with pytest.raises(UserError, match="No training text has the class 'y'"):
        class_weights("balanced", LabeledTexts("t", items[:2], ["x", "y"]))


def test_parts_have_the_same_share_of_each_combination_of_labels(tmp_path: Path) -> None:
    rows = [["a"]] * 50 + [["a", "b"]] * 30 + [["c"]] * 10 + [[]] * 8 + [["b", "c"]] * 2
    data = [{"text": f"text {i}", "label": labels} for i, labels in enumerate(rows)]
    config = OwnClassifierDataConfig(
        dataset=str(written(tmp_path / "t.jsonl", data)), multi_label=True, split=[0.8, 0.1, 0.1]
    )
    counts = {
        part: Counter(", ".join(texts.names(item)) for item in texts) for part, texts in config.read_parts(1).items()
    }
    for part in ("validation", "test"):
        assert [counts[part][name] for name in ("a", "a, b")] == [5, 3]
        assert counts[part]["c"] + counts[part]["b, c"] == 1
        assert counts[part][""] == 1
    assert label_combinations([[0], [0], [0], [0, 1], [1], [1]], 2) == [0, 0, 0, 1, 1, 1]
    assert label_combinations([[0], [0], [0], [0, 1]], 2) == [0, 0, 0, 0]


def test_a_calibrated_run_with_weights_is_evaluated_with_its_separator(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in tickets(tmp_path / "tickets.jsonl", 240).read_text().splitlines()]
    lines = ["text\tlabels", *("\t".join((row["text"], ";".join(row["labels"]))) for row in rows)]
    path = tmp_path / "tickets.tsv"
    path.write_text("\n".join(lines) + "\n")
    fields = {
        "data": {"dataset": str(path), "label_separator": ";", "stratify": True},
        "evaluation": {"calibration": True, "columns": []},
    }
    short = {"training": {**TINY["training"], **steps(30, 15)}, "class_weights": "balanced"}
    results = train_here(RECIPE, write_config(tmp_path, TINY, FROM_SCRATCH, fields, short))
    calibration = results["metrics"]["validation"]["calibration"]
    assert calibration["after"]["nats_per_example"] <= calibration["before"]["nats_per_example"]
    folder = str(tmp_path / "run")
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["task_specific_params"]["text-classification"]
    assert settings["temperature"] == calibration["temperature"] != 1
    scores = evaluate_folder(folder, str(path), columns=["text", "labels"])
    assert scores["examples"] == 240
    assert sorted(scores["by_label"]) == sorted(TOLD_BY)
    card = (tmp_path / "run" / "README.md").read_text()
    assert f"| after | {results['metrics']['test']['calibration']['after']['calibration_error']:.4f} |" in card
    assert (tmp_path / "run" / "reliability.png").is_file()


@pytest.mark.parametrize("kind", ["distilbert", "gpt2"])
def test_a_pretrained_model_is_fine_tuned_to_several_labels(kind: str, tmp_path: Path) -> None:
    model = tiny_model(tmp_path / kind, kind)
    config = tiny_config(tmp_path, model={"name": str(model)}, training=steps(9, 3), data={"too_long": "cut_start"})
    results = train_here(RECIPE, config)
    settings = json.loads((tmp_path / "run" / "config.json").read_text())
    assert settings["problem_type"] == "multi_label_classification"
    assert settings["task_specific_params"]["text-classification"]["thresholds"] == results["thresholds"]
    answers = hfattn.predict(str(tmp_path / "run"), ["thanks", "a dog"])
    assert all(set(answer["labels"]) <= set(TOLD_BY) for answer in answers)


def test_the_loss_is_the_mean_over_texts_and_labels(tmp_path: Path) -> None:
    """Of a step in one batch or accumulated over several, for a pretrained model."""
    model = tiny_model(tmp_path / "bert", "bert")
    losses = []
    for number, training in enumerate(
        ({"per_device_train_batch_size": 8}, {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4})
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        options = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        config = tiny_config(
            folder,
            model={"name": str(model), "options": options},
            training={**steps(3, 3), "logging_steps": 1, **training},
        )
        train_here(RECIPE, config)
        states = sorted((folder / "run" / "checkpoints").rglob("trainer_state.json"))
        history = json.loads(states[-1].read_text())["log_history"]
        losses.append([entry["loss"] for entry in history if "loss" in entry])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert losses[0][0] == pytest.approx(math.log(2), rel=0.1)  # of a new head, which knows nothing


class TestSeveralLabels(FinishedRun, BadInputs):
    recipe, tiny = "classification", FROM_SCRATCH
    files: ClassVar[set[str]] = {*FinishedRun.files, "modeling_rnn_encoder.py"}
    pictures: ClassVar[tuple[str, ...]] = ("loss_curve.png", "alignment-1.png")
    stated: ClassVar[Stated] = {
        ("f1", "micro F1 (test)"): ("test", "f1"),
        ("f1", "macro F1 (validation)"): ("validation", "macro_f1"),
        ("accuracy", "texts with all labels right (test)"): ("test", "accuracy"),
    }
    bad: ClassVar[list[BadInput]] = [
        ("--evaluation.coverage 0.9", "evaluation.coverage is for texts with one label"),
        ("--class_weights [1,2]", r"class_weights is \[1, 2\]; write balanced, null, or 3 numbers"),
        ("--training.label_smoothing_factor 0.1", "label_smoothing_factor needs one label per text"),
        ("--data.dataset reber", "multi_label is for texts with several labels, and reber has one label per text"),
        ("--data.regression true", "multi_label is for texts with several labels, and regression predicts one number"),
        ("--data.label_separator ' '", "label_separator is blank"),
        ("--data.labels [billing,delivery]", "has the label 'praise', which is not one of billing, delivery"),
    ]

    @pytest.fixture
    def configure(self) -> Configure:
        return tiny_config

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        assert printed.strip() == str(sorted(results["example"]["labels"]))
        score = results["metrics"]["test"]["by_label"]["praise"]
        row = f"| praise | {results['thresholds']['praise']:.4f} | {score['examples']} | {score['predicted']} |"
        for words in (row, "Linear SVMs on TF-IDF", "| thanks for the parcel | delivery, praise |"):
            assert words in card.text
