"""The report of the recipe classification for several labels: any number of labels for each text or pair of texts."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from transformers.trainer_utils import PredictionOutput

from ..baselines.comparison import linear_baseline
from ..data import EncodedTexts, LabeledTexts, WindowedTexts
from ..evaluation import classify, set_decision
from ..metrics import ClassifierEvaluationConfig, best_thresholds, label_probabilities, multi_label_report
from ..training import OwnClassifierSampleConfig, scores_of_part
from .base import TrainedRun, leave_behind, shown_part
from .classification import example_texts, part_facts, quotable, read_attention, shortened, shown_examples


def report(
    run: TrainedRun,
    encoded: Mapping[str, EncodedTexts | WindowedTexts],
    outputs: Mapping[str, PredictionOutput],
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    evaluation: ClassifierEvaluationConfig,
    sample: OwnClassifierSampleConfig,
) -> None:
    """Choose a threshold for each label on validation, save the model and write all other output files of the run.

    Args:
        run: the finished run.
        encoded: the texts of each part, training included.
        outputs: logits for the other parts.
        data: facts about the reading of the texts, for ``results.json``.
        model: facts about the model and what was trained, for ``results.json``.
        evaluation: the slices.
        sample: which texts are shown.
    """
    parts = {part: dataset.texts for part, dataset in encoded.items()}
    labels, shown = parts["train"].labels, shown_part(outputs)
    logits = {part: np.asarray(output.predictions) for part, output in outputs.items()}
    right = np.array([item.target for item in parts["validation"]])
    thresholds = best_thresholds(logits["validation"], right)
    named = dict(zip(labels, thresholds.tolist(), strict=True))
    set_decision(run.model, thresholds=named)
    run.save()
    metrics = {
        part: {
            **scores_of_part(output.metrics or {}, part),
            **multi_label_report(parts[part], logits[part], thresholds, evaluation.columns, evaluation.words),
        }
        for part, output in outputs.items()
    }
    baseline = linear_baseline(parts, run.trainer.args.seed)
    dataset = encoded[shown]
    short = example_texts(run, dataset)
    sections = {
        "data": {
            "name": parts["train"].name,
            "labels": labels,
            "multi_label": True,
            "pairs": parts["train"].has_pairs,
            **quotable(run, data),
            "parts": part_facts(parts),
        },
        "model": {"model_type": run.model.config.model_type, **model},
        "thresholds": named,
        "metrics": metrics,
        "baseline": baseline,
        "selection": {**run.selection, "thresholds": {"part": "validation", "metric": "f1"}},
        "training": run.training_facts("texts", len(parts["train"])),
        "samples": worst_texts(
            parts[shown], logits[shown], thresholds, sample.mistakes if run.texts == "samples" else 0
        ),
        "own_code": any(run.folder.glob("modeling_*.py")),  # a model of this package, whose code is beside its weights
        "example": classify(run.model, run.tokenizer, short[0]),
        **shown_examples(run, sample, labels),
    }
    if isinstance(dataset, EncodedTexts) and run.texts == "samples":
        sections["short_texts"] = read_attention(run, dataset, sample.alignments)
    leave_behind(
        run, sections, summary(run, metrics, baseline), short[:2], loss="nats_per_example", loss_unit="nats per text"
    )


def worst_texts(texts: LabeledTexts, logits: np.ndarray, thresholds: np.ndarray, number: int) -> list[dict[str, Any]]:
    """Return the texts with a wrong label whose right labels had the lowest probability, the lowest first."""
    right = np.array([item.target for item in texts]) > 0.5
    probabilities = label_probabilities(logits)
    predicted = probabilities >= thresholds
    likelihood = np.where(right, probabilities, 1 - probabilities).prod(1)
    wrong = np.flatnonzero((predicted != right).any(1))
    return [
        {
            "place": texts.place(i),
            "text": shortened(texts, texts.items[i]),
            "right": ", ".join(texts.names(texts.items[i])) or "none",
            "predicted": ", ".join(texts.labels[label] for label in np.flatnonzero(predicted[i])) or "none",
            "probability of the right labels": f"{likelihood[i]:.2g}",
        }
        for i in wrong[np.argsort(likelihood[wrong], kind="stable")][:number].tolist()
    ]


def summary(run: TrainedRun, metrics: Mapping[str, Mapping[str, Any]], baseline: Mapping[str, Any] | None) -> str:
    """Return the scores of each part and label, as text."""
    shown = shown_part(metrics)
    lines = ["", f"{'':16}{'texts':>8}{'all right':>10}{'micro F1':>10}{'macro F1':>10}{'nats/text':>11}"]
    for part, score in metrics.items():
        numbers = "".join(f"{score[name]:10.4f}" for name in ("accuracy", "f1", "macro_f1"))
        lines.append(f"{part:16}{score['examples']:8d}{numbers}{score['nats_per_example']:11.4f}")
    if baseline is not None:
        numbers = "".join(f"{baseline[shown][name]:10.4f}" for name in ("accuracy", "f1", "macro_f1"))
        lines.append(f"{'linear SVM':24}{numbers}  on TF-IDF")
    lines += ["", f"{'label':24}{'texts':>8}{'precision':>10}{'recall':>10}{'F1':>10}"]
    for label, score in metrics[shown]["by_label"].items():
        numbers = "".join(f"{score[name]:10.4f}" for name in ("precision", "recall", "f1"))
        lines.append(f"{label:24}{score['examples']:8d}{numbers}")
    return "\n".join([*lines, "", f"Model, results, curve and pictures: {run.folder}"])
