"""The report of the recipe self_supervised."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from ..data import EncodedImages, LabeledImages, input_size, open_image
from ..data.image_augmentation import resized
from ..data.images import as_base64
from ..errors import UserError
from ..explaining import image_attention
from ..explaining.overlay import answering_row
from ..metrics import neighbor_accuracy
from ..pictures import Picture
from .base import TrainedRun, leave_behind, shown_part

LARGEST = 224  # pixels of a side of an image that is shown
WATCHED = ("teacher_entropy", "divergence")


def report(
    run: TrainedRun,
    parts: Mapping[str, LabeledImages],
    whole: Mapping[str, EncodedImages],
    metrics: dict[str, dict[str, Any]],
    base_model: str | None,
) -> None:
    """Save the teacher and write all other output files of the run.

    Args:
        run: the finished run; its tokenizer is the image processor.
        parts: the images of each part, training included.
        whole: the same as whole images; of the training part, those of the bank.
        metrics: scores of each part but the training part; those of images without labels are left out.
        base_model: name of the pretrained model, or None from scratch.
    """
    run.save()
    config, model, history = asdict(run.config), run.model, run.trainer.state.log_history
    labeled = config["data"]["label_column"] is not None
    size = input_size(run.tokenizer)
    if not labeled:
        metrics = {}
    if metrics:
        bank = pixel_vectors(whole["train"].images, size)
        for part, scores in metrics.items():
            scores["pixels_accuracy"] = neighbor_accuracy(*pixel_vectors(whole[part].images, size), *bank)
    last = next(entry for entry in reversed(history) if WATCHED[0] in entry)
    sections: dict[str, Any] = {
        "data": {
            "name": parts["train"].name,
            "labels": parts["train"].labels if labeled else None,
            "size": list(size),
            "bank": len(whole["train"]),
            "parts": {part: {"images": len(images), "sha256": images.fingerprint} for part, images in parts.items()},
        },
        "model": {
            "model_type": model.config.model_type,
            "base_model": base_model,
            "parameters": model.num_parameters(),
            "feature": config["dino"]["feature"],
            "width": model.config.hidden_size,
            "needs": ["pillow"],
        },
        "metrics": metrics,
        "training": run.trainer.training_facts("images", run.trainer.state.epoch * len(parts["train"])),
        "collapse": {
            **{name: round(last[name], 4) for name in WATCHED},
            "highest_entropy": round(math.log(config["dino"]["prototypes"]), 4),
        },
        "curve": [
            {"step": entry["step"], "accuracy": round(entry["eval_accuracy"], 4)}
            for entry in history
            if "eval_accuracy" in entry
        ],
        "own_code": any(run.folder.glob("modeling_*.py")),
        "attention": False,
    }
    curves = {
        "log_history": history,
        "highest_entropy": math.log(config["dino"]["prototypes"]),
        "pixels": metrics["validation"]["pixels_accuracy"] if labeled else None,
        "title": run.title,
    }
    run.pictures.append(Picture("self_distillation.png", "self_distillation", curves))
    shown = parts[shown_part(parts)].items[: config["sample"]["images"]]
    if run.texts == "samples" and config["dino"]["feature"] == "class":
        images = [open_image(item.image, config["data"]["background"]) for item in shown]
        for image in images:
            image.thumbnail((LARGEST, LARGEST))
        pixel_values = torch.stack([whole[shown_part(parts)][i]["pixel_values"] for i in range(len(shown))])
        maps = class_attention(model, pixel_values)
        if maps is not None:
            sections["attention"] = True
            encoded = {"images": [as_base64(image) for image in images], "maps": maps.tolist()}
            run.pictures.append(Picture("attention.png", "head_maps", {**encoded, "title": run.title}))
    leave_behind(run, sections, summary(run, sections), [], loss="loss", loss_unit="nats")


def pixel_vectors(images: LabeledImages, size: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the values of the pixels (n, D), from 0 to 1, which are compared instead of features, and labels (n,).

    Args:
        images: the images.
        size: height and width to which they are resized.
    """
    opened = (resized(open_image(item.image), (size[0], size[1])) for item in images)
    vectors = np.stack([np.asarray(image, np.float32).ravel() / 255 for image in opened])
    return torch.from_numpy(vectors), torch.tensor([item.label for item in images])


def class_attention(model: PreTrainedModel, pixel_values: torch.Tensor) -> torch.Tensor | None:
    """Return the attention of the class token to the patches in the last layer, (B, heads, rows, columns).

    None if the model has no attention to patches.
    """
    try:
        records = [image_attention("the model", model, pixels[None]) for pixels in pixel_values]
    except (UserError, ValueError):
        return None
    rows = [answering_row(record) for record in records]
    return torch.stack([torch.cat([row.maps(-1, head) for head in range(row.weights.shape[1])]) for row in rows])


def summary(run: TrainedRun, results: Mapping[str, Any]) -> str:
    """Return the printed summary: the accuracy of neighbors beside that of the pixels, and entropy and divergence."""
    lines = []
    if results["metrics"]:
        lines += ["", f"{'':16}{'images':>10}{'k-NN':>10}{'k-NN of pixels':>16}"]
    for part, score in results["metrics"].items():
        lines.append(f"{part:16}{score['examples']:10d}{score['accuracy']:10.4f}{score['pixels_accuracy']:16.4f}")
    collapse = results["collapse"]
    lines += [
        "",
        f"entropy of the teacher {collapse['teacher_entropy']:.3f} nats, of at most {collapse['highest_entropy']:.3f}; "
        f"divergence of the student {collapse['divergence']:.3f} nats",
        "",
        f"Model, results, curves and card: {run.folder}",
    ]
    return "\n".join(lines)
