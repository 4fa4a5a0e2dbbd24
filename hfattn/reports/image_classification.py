"""The report of the recipe image_classification."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from transformers.trainer_utils import PredictionOutput

from ..data import EncodedImages, LabeledImages, input_size, open_image
from ..data.images import as_base64
from ..metrics import Accuracy, ClassResults, ConfusionMatrix, class_results, column_slices, scores_by_slice
from ..metrics.neighbors import neighbor_accuracy
from ..pictures import Picture
from ..training import FrozenFeatures, ImageTeacher, scores_of_part
from .base import TrainedRun, leave_behind, shown_part
from .classification import confusion_picture

SIDE = 96  # longest side of an image in the card, in pixels


def report(
    run: TrainedRun,
    parts: Mapping[str, LabeledImages],
    encoded: Mapping[str, EncodedImages | FrozenFeatures],
    outputs: Mapping[str, PredictionOutput],
    teacher: ImageTeacher | None,
    model: Mapping[str, Any],
) -> None:
    """Save the model and write all other output files of the run.

    Args:
        run: the finished run; its tokenizer is the image processor.
        parts: the images of each part, training included.
        encoded: the same as inputs of the model.
        outputs: predictions for the other parts.
        teacher: the teacher, if there was one.
        model: facts about the model and what was trained, for ``results.json``.
    """
    run.save()
    config = asdict(run.config)
    columns = config["evaluation"]["columns"]
    metrics = {part: part_scores(parts[part], output, part, columns) for part, output in outputs.items()}
    bank = encoded["train"]
    if config["evaluation"]["neighbors"] and isinstance(bank, FrozenFeatures):
        for part, scores in metrics.items():
            queries = encoded[part]
            assert isinstance(queries, FrozenFeatures)
            vectors = (queries.features, queries.labels, bank.features, bank.labels)
            scores["knn_accuracy"] = neighbor_accuracy(*vectors, neighbors=config["evaluation"]["neighbors"])
    if teacher is not None:
        for part, scores in metrics.items():
            scores["teacher_accuracy"] = teacher_accuracy(run, teacher, encoded[part])
    shown = shown_part(parts)
    labels, results = parts["train"].labels, class_results(outputs[shown])
    run.pictures.append(confusion_picture(metrics[shown], labels, run.title))
    wrong = confident_mistakes(parts[shown], results, config["sample"]["mistakes"] if run.texts == "samples" else 0)
    background = config["data"]["background"]
    if wrong:
        images = [thumbnail(parts[shown], i, background) for i in wrong]
        names = [f"{labels[results.right[i]]}, not {labels[results.predicted[i]]}" for i in wrong]
        titles = {"images": images, "names": names, "title": f"{run.title}: the most confident mistakes"}
        run.pictures.append(Picture("mistakes.png", "images", titles))
    sections: dict[str, Any] = {
        "data": {
            "name": parts["train"].name,
            "labels": labels,
            "parts": {part: {"images": len(images), "sha256": images.fingerprint} for part, images in parts.items()},
            "image_size": list(input_size(run.tokenizer)),
        },
        "model": {"model_type": run.model.config.model_type, **model, "needs": ["pillow"]},
        "metrics": metrics,
        "training": run.trainer.training_facts("images", run.trainer.state.epoch * len(parts["train"])),
        "teacher": None if teacher is None else teacher_facts(teacher),
        "own_code": any(run.folder.glob("modeling_*.py")),
        "mistakes": len(wrong),
    }
    leave_behind(run, sections, summary(run, metrics), [], loss="nats_per_example", loss_unit="nats per image")


def part_scores(images: LabeledImages, output: PredictionOutput, part: str, columns: list[str]) -> dict[str, Any]:
    """Return the scores of a part, its confusion matrix, and the accuracy of each class and column value."""
    results = class_results(output)
    predicted, right = results.predicted.tolist(), results.right.tolist()
    slices = column_slices("class", [images.labels[label] for label in right])
    for column in columns:
        slices |= column_slices(column, [item.fields[column] for item in images])
    confusion = ConfusionMatrix().compute(predictions=predicted, references=right, num_classes=len(images.labels))
    return {
        **scores_of_part(output.metrics or {}, part),
        "confusion": confusion["confusion_matrix"],
        "by_slice": scores_by_slice(Accuracy(), predicted, right, slices),
    }


@torch.inference_mode()
def teacher_accuracy(run: TrainedRun, teacher: ImageTeacher, encoded: EncodedImages | FrozenFeatures) -> float:
    """Return the share of images that the teacher classifies correctly."""
    assert isinstance(encoded, EncodedImages)
    rows, right = run.trainer.args.per_device_eval_batch_size, 0
    for start in range(0, len(encoded), rows):
        batch = [encoded[i] for i in range(start, min(start + rows, len(encoded)))]
        pixels = torch.stack([each["pixel_values"] for each in batch]).to(run.trainer.args.device)
        labels = torch.tensor([each["labels"] for each in batch])
        right += int((teacher(pixels).argmax(-1).cpu() == labels).sum())
    return right / len(encoded)


def teacher_facts(teacher: ImageTeacher) -> dict[str, Any]:
    """Return the name, kind and size of a teacher."""
    kind = teacher.model.config.model_type
    return {"name": teacher.name, "model_type": kind, "parameters": teacher.model.num_parameters()}


def confident_mistakes(images: LabeledImages, results: ClassResults, number: int) -> list[int]:
    """Return the indices of the wrong images whose right class had the lowest probability, the lowest first."""
    wrong = np.flatnonzero(results.predicted != results.right)
    order: list[int] = wrong[np.argsort(-results.nats[wrong], kind="stable")][:number].tolist()
    return order


def thumbnail(images: LabeledImages, index: int, background: list[int]) -> str:
    """Return an image, made smaller if it is large, as PNG in base64."""
    image = open_image(images.items[index].image, background)
    image.thumbnail((SIDE, SIDE))
    return as_base64(image)


def summary(run: TrainedRun, metrics: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the scores of each part as text."""
    lines = ["", f"{'':16}{'images':>8}{'top 1':>10}{'top 5':>10}{'F1':>10}{'nats/image':>12}"]
    for part, score in metrics.items():
        lines.append(
            f"{part:16}{score['examples']:8d}{score['accuracy']:10.4f}{score['top5_accuracy']:10.4f}{score['f1']:10.4f}"
            f"{score['nats_per_example']:12.4f}"
        )
    shown = metrics[shown_part(metrics)]
    for name, called in (("knn_accuracy", "nearest neighbors"), ("teacher_accuracy", "teacher")):
        if name in shown:
            lines.append(f"{called:24}{shown[name]:10.4f}")
    lines += ["", f"{'slice':24}{'images':>8}{'accuracy':>10}"]
    lines += [
        f"{name:24}{score['examples']:8d}{score['accuracy']:10.4f}"
        for name, score in shown["by_slice"].items()
        if score["examples"]
    ]
    return "\n".join([*lines, "", f"Model, results, curve and pictures: {run.folder}"])
