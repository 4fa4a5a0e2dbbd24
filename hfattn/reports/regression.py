"""The report of the recipe classification for a regression: a number for each text or pair of texts."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from transformers.trainer_utils import PredictionOutput

from ..data import EncodedTexts, LabeledTexts, WindowedTexts
from ..evaluation import classify
from ..metrics import ClassifierEvaluationConfig, regression_report
from ..pictures import Picture
from ..training import OwnClassifierSampleConfig, scores_of_part
from .base import TrainedRun, leave_behind, quotable, shown_part
from .classification import example_texts, part_facts, read_attention, shortened, shown_examples


def report(
    run: TrainedRun,
    encoded: Mapping[str, EncodedTexts | WindowedTexts],
    outputs: Mapping[str, PredictionOutput],
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    evaluation: ClassifierEvaluationConfig,
    sample: OwnClassifierSampleConfig,
) -> None:
    """Save the model and write all other output files of the run.

    Args:
        run: the finished run.
        encoded: the texts of each part, training included.
        outputs: predictions for the other parts.
        data: facts about the reading of the texts, for ``results.json``.
        model: facts about the model and what was trained, for ``results.json``.
        evaluation: the slices.
        sample: which texts are shown.
    """
    parts = {part: dataset.texts for part, dataset in encoded.items()}
    label = parts["train"].labels[0]
    shown = shown_part(parts)
    dataset = encoded[shown]
    run.save()
    predicted = {part: np.asarray(output.predictions, dtype=np.float64) for part, output in outputs.items()}
    metrics = {
        part: {
            **scores_of_part(output.metrics or {}, part),
            **regression_report(parts[part], predicted[part], evaluation.columns, evaluation.words),
        }
        for part, output in outputs.items()
    }
    numbers = [item.target for item in parts["train"]]
    right = [item.target for item in parts[shown]]
    points = {"right": right, "predicted": predicted[shown].tolist(), "label": label, "title": run.title}
    run.pictures.append(Picture("predictions.png", "predictions", points))
    samples = largest_errors(parts[shown], predicted[shown], sample.mistakes if run.texts == "samples" else 0)
    short = example_texts(run, dataset)
    sections = {
        "data": {
            "name": parts["train"].name,
            "labels": [label],
            "regression": True,
            "lowest": min(numbers),
            "highest": max(numbers),
            "pairs": parts["train"].has_pairs,
            **quotable(run, data),
            "parts": part_facts(parts),
        },
        "model": {"model_type": run.model.config.model_type, **model},
        "metrics": metrics,
        "training": run.training_facts("texts", len(parts["train"])),
        "samples": samples,
        "own_code": any(run.folder.glob("modeling_*.py")),  # a model of this package, whose code is beside its weights
        "example": classify(run.model, run.tokenizer, short[0]),
        **shown_examples(run, sample, [label]),
    }
    if isinstance(dataset, EncodedTexts) and run.texts == "samples":
        sections["short_texts"] = read_attention(run, dataset, sample.alignments)
    lines = ["", f"{'':16}{'texts':>8}{'Pearson':>10}{'Spearman':>10}{'MSE':>10}"]
    lines += [
        f"{part:16}{score['examples']:8d}{score['pearson']:10.4f}{score['spearman']:10.4f}"
        f"{score['mean_squared_error']:10.4f}"
        for part, score in metrics.items()
    ]
    summary = "\n".join([*lines, "", f"Model, results, curve and pictures: {run.folder}"])
    leave_behind(run, sections, summary, short[:2], loss="mean_squared_error")


def largest_errors(texts: LabeledTexts, predicted: np.ndarray, number: int) -> list[dict[str, Any]]:
    """Return the texts whose predictions (n,) are farthest from the right numbers, the farthest first."""
    errors = np.abs(predicted - np.array([item.target for item in texts]))
    return [
        {
            "place": texts.place(i),
            "text": shortened(texts, texts.items[i]),
            "right": f"{texts.items[i].target:g}",
            "predicted": f"{predicted[i]:.2f}",
        }
        for i in np.argsort(-errors, kind="stable")[:number].tolist()
    ]
