"""The report of the recipe image_text."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from transformers import BaseImageProcessor

from ..data import ImageTexts
from ..hub.fingerprints import synthetic_text
from ..metrics.retrieval import ranks
from ..training import scores_of_part
from .base import TrainedRun, leave_behind, shown_part

Found = tuple[dict[str, Any], np.ndarray, np.ndarray]  # metrics, embeddings of the images, and of the texts
CLASSES = ("a red circle", "a green square", "a blue line")  # of the card's code, if no texts may be quoted
EXAMPLES = 4  # texts that the card's code compares


def report(
    run: TrainedRun,
    processor: BaseImageProcessor,
    encoded: Mapping[str, ImageTexts],
    found: Mapping[str, Found],
    facts: Mapping[str, Any],
) -> None:
    """Save the model and write all other output files of the run.

    Args:
        run: the finished run.
        processor: the image processor of the model.
        encoded: the images with their texts of each part, training included.
        found: metrics and embeddings of the other parts.
        facts: facts about the towers and what was trained, for ``results.json``.
    """
    run.save()
    processor.save_pretrained(run.folder)
    shown = shown_part(encoded)
    config: Any = run.config
    quotes = run.texts == "samples"
    classes = encoded[shown].texts[:EXAMPLES] if quotes else list(CLASSES)
    metrics = {part: scores_of_part(scores, part) for part, (scores, *_) in found.items()}
    sections = {
        "data": {
            "name": encoded["train"].images.name,
            "max_length": config.data.max_length,
            "tested_column": _tested_column(config.data),
            "parts": {
                part: {"images": len(each), "texts": len(each.texts), "sha256": each.images.fingerprint}
                for part, each in encoded.items()
            },
        },
        "model": {
            "model_type": run.model.config.model_type,
            "projection_dim": config.model.projection_dim,
            "loss": config.model.loss,
            "needs": ["pillow"],
            "scale": run.model.logit_scale.detach().exp().item(),
            **facts,
        },
        "metrics": metrics,
        "training": run.training_facts("images", len(encoded["train"])),
        "samples": worst_images(encoded[shown], found[shown], config.sample.mistakes) if quotes else [],
        "example": {"texts": classes, "template": config.sample.template},
    }
    columns = f"{'R@1':>8}{'R@5':>8}{'R@10':>8}{'median':>8}{'MRR':>8}"
    lines = ["", f"{'':16}{'images':>8}{'texts':>8}{columns}"]
    for part, score in metrics.items():
        recalls = "".join(f"{score[f'recall_at_{cutoff}']:8.4f}" for cutoff in (1, 5, 10))
        lines.append(
            f"{part:16}{score['examples']:8d}{score['texts']:8d}{recalls}{score['median_rank']:8.1f}{score['mrr']:8.4f}"
        )
    summary = "\n".join([*lines, "", f"Model, results, curve and table: {run.folder}"])
    texts = classes[:2] if quotes else [synthetic_text(run.tokenizer)]
    leave_behind(run, sections, summary, texts, loss="loss", loss_unit=f"{config.model.loss} loss")


def _tested_column(data: Any) -> str | None:
    """Return the column of images that no training image is of; None if all columns are trained on."""
    return data.image_columns[data.fold - 1] if data.image_columns and data.fold is not None else None


def worst_images(dataset: ImageTexts, found: Found, number: int) -> list[dict[str, Any]]:
    """Return the images whose text has the worst rank, with the text that was nearest."""
    _, images, texts = found
    rank = ranks(images, texts, dataset.groups[dataset.numbers], dataset.groups)
    samples = []
    for i in np.argsort(-rank, kind="stable")[:number].tolist():
        nearest = int(np.argmax(images[i] @ texts.T))
        samples.append(
            {
                "place": dataset.images.place(i),
                "text": dataset.texts[dataset.numbers[i]],
                "nearest": dataset.texts[nearest],
                "rank": int(rank[i]),
            }
        )
    return samples
