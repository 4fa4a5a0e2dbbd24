"""The report of the recipe classification for several labels: any number of labels for each text or pair of texts."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from transformers.trainer_utils import PredictionOutput

from ..baselines.comparison import linear_baseline
from ..data import EncodedTexts, LabeledTexts, WindowedTexts
from ..evaluation import classify, set_decision
from ..metrics import (
    best_thresholds,
    calibration_scores,
    fitted_temperature,
    label_probabilities,
    multi_label_report,
)
from ..training import OwnClassifierEvaluationConfig, OwnClassifierSampleConfig, divide_logits, scores_of_part
from .base import TrainedRun, leave_behind, quotable, shown_part
from .classification import (
    example_texts,
    part_facts,
    read_attention,
    reliability_picture,
    shortened,
    shown_examples,
    threshold_choice,
)


def report(
    run: TrainedRun,
    encoded: Mapping[str, EncodedTexts | WindowedTexts],
    outputs: Mapping[str, PredictionOutput],
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    evaluation: OwnClassifierEvaluationConfig,
    sample: OwnClassifierSampleConfig,
) -> None:
    """Choose a threshold for each label on validation, save the model and write all other output files of the run.

    Args:
        run: the finished run.
        encoded: the texts of each part, training included.
        outputs: logits for the other parts.
        data: facts about the reading of the texts, for ``results.json``.
        model: facts about the model and what was trained, for ``results.json``.
        evaluation: the slices, and whether to calibrate.
        sample: which texts are shown.
    """
    parts = {part: dataset.texts for part, dataset in encoded.items()}
    labels, shown = parts["train"].labels, shown_part(outputs)
    logits = {part: np.asarray(output.predictions) for part, output in outputs.items()}
    right = {part: np.array([item.target for item in parts[part]]) for part in logits}
    calibration: dict[str, dict[str, Any]] = {}
    if evaluation.calibration:
        logits, calibration = calibrated_labels(run, logits, right)
    thresholds = best_thresholds(logits["validation"], right["validation"])
    named = dict(zip(labels, thresholds.tolist(), strict=True))
    set_decision(run.model, thresholds=named, label_separator=asdict(run.config)["data"]["label_separator"])
    run.save()
    metrics = {
        part: {
            **scores_of_part(output.metrics or {}, part),
            **multi_label_report(parts[part], logits[part], thresholds, evaluation.columns, evaluation.words),
            **({"calibration": calibration[part]} if calibration else {}),
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
        "selection": {
            **run.selection,
            "thresholds": {"part": "validation", "metric": "f1"},
            **threshold_choice(metrics),
        },
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


def calibrated_labels(
    run: TrainedRun, logits: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
    """Divide the logits of the model by the temperature that fits the decisions on all labels of the validation part.

    Args:
        run: the finished run, whose model is not saved yet.
        logits: (n, C) of the texts of each part, from the model as it was trained.
        right: (n, C) of 1 for each label of a text and 0 for the others.

    Returns:
        The logits of the calibrated model; and for each part the ``temperature``, and ``calibration_scores`` of the
        decisions as ``before`` and ``after``.
    """
    decisions = {part: torch.from_numpy(each).reshape(-1, 1) for part, each in logits.items()}
    hot = {part: each.reshape(-1).astype(int) for part, each in right.items()}
    temperature = fitted_temperature(decisions["validation"], hot["validation"])
    divide_logits(run.model, temperature)
    set_decision(run.model, temperature=temperature)
    scores = {
        part: {
            "temperature": temperature,
            "before": calibration_scores(decisions[part], hot[part]),
            "after": calibration_scores(decisions[part] / temperature, hot[part]),
        }
        for part in logits
    }
    run.pictures.append(reliability_picture(scores[shown_part(scores)], run.title))
    return {part: each / temperature for part, each in logits.items()}, scores


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
