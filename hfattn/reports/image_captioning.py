"""The report of the recipe image_captioning."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import BaseImageProcessor, PreTrainedTokenizerBase

from ..data import CaptionCollator, CaptionedImages, EncodedCaptions, SceneObject, open_image
from ..data.images import as_base64
from ..generation import evaluation_mode
from ..loading import base_facts
from ..metrics import decode_generated, mass_on, points_at, translation_report
from ..models.modeling_show_attend_tell import ShowAttendTellForConditionalGeneration
from ..models.strict_config import own_fields
from ..pictures import Picture
from ..pipelines import captions as caption_images
from ..training import CaptionerConfig
from .base import TrainedRun, leave_behind, shown_part

LIKELIHOODS = ("nats_per_token", "perplexity", "token_accuracy", "tokens")
EXAMPLE = "example.webp"  # an image that the code of the card captions; the sandbox hides pictures in PNG


class EvaluatedCaptions(NamedTuple):
    """The evaluation of one part.

    Attributes:
        likelihoods: scores of the right captions, by ``TranslationScores``.
        generated: the ids of the captions that the model wrote (n, T).
        search: "greedy" or "beam", by which they were found.
    """

    likelihoods: dict[str, Any]
    generated: np.ndarray
    search: str


def captioner_facts(config: CaptionerConfig, model: ShowAttendTellForConditionalGeneration) -> dict[str, Any]:
    """Return facts about the model and what was trained, for ``results.json``. Call it before ``whole_model``."""
    location = config.pretrained
    return {
        "model_type": model.config.model_type,
        "preset": config.model.get("preset"),
        "parameters": model.num_parameters(),
        "trained_parameters": sum(each.numel() for each in model.parameters() if each.requires_grad),
        **base_facts(location),
        "encoder": "cnn" if location is None else model.config.vision_config.model_type,
        "frozen": model.config.freeze_vision,
        **{
            field.name: getattr(model.config, field.name)
            for field in own_fields(type(model.config))
            if field.name != "vision_config"
        },
    }


def report(
    run: TrainedRun,
    processor: BaseImageProcessor,
    encoded: Mapping[str, EncodedCaptions],
    evaluated: Mapping[str, EvaluatedCaptions],
    facts: Mapping[str, Any],
) -> None:
    """Save the model and write all other output files of the run.

    Args:
        run: the finished run.
        processor: the image processor of the model.
        encoded: the images and captions of each part, training included.
        evaluated: what was measured on the other parts.
        facts: facts about the model and what was trained, for ``results.json``.
    """
    run.save()
    processor.save_pretrained(run.folder)
    config, shown, rows = asdict(run.config), shown_part(evaluated), run.trainer.args.eval_batch_size
    metrics = {}
    for part, each in evaluated.items():
        written = decode_generated(run.tokenizer, each.generated)
        likelihoods = {name: each.likelihoods[name] for name in LIKELIHOODS}
        looks = attention_scores(run.model, run.tokenizer, encoded[part], rows)
        scores = caption_scores(encoded[part].images, written)
        metrics[part] = {**scores, **likelihoods, **looks, "search": each.search}
    quotes = run.texts == "samples"
    written = decode_generated(run.tokenizer, evaluated[shown].generated)
    samples = wrong_captions(encoded[shown].images, written, config["sample"]["mistakes"]) if quotes else []
    drawn = list(encoded[shown].images)[: config["sample"]["images"]] if quotes else []
    images = [open_image(item.image, config["data"]["background"]) for item in drawn]
    captions = caption_images(run.model, run.tokenizer, processor, images) if images else []
    for number, (image, found) in enumerate(zip(images, captions, strict=True), 1):
        arguments = {"image": as_base64(image), "record": found["alignment"], "title": found["caption_text"]}
        run.pictures.append(Picture(f"caption-{number}.png", "caption", arguments))
    if images:
        images[0].save(run.folder / EXAMPLE, lossless=True)
    sections: dict[str, Any] = {
        "data": {
            "name": encoded["train"].images.name,
            "image_size": config["data"]["image_size"],
            "max_length": config["data"]["max_length"],
            "vocabulary": len(run.tokenizer) - len(run.tokenizer.all_special_ids),
            "parts": {part: {"images": len(each), "sha256": each.images.fingerprint} for part, each in encoded.items()},
        },
        "model": {**facts, "needs": ["pillow"]},
        "metrics": metrics,
        "training": run.training_facts("images", len(encoded["train"])),
        "samples": samples,
        "captions": [
            {"reference": item.text, "caption": found["caption_text"]}
            for item, found in zip(drawn, captions, strict=True)
        ],
        "own_code": any(run.folder.glob("modeling_*.py")),
        "example": EXAMPLE if images else None,
    }
    lines = ["", f"{'':16}{'images':>8}{'exact match':>13}{'BLEU':>8}{'pointing':>10}{'mass':>8}{'area':>8}"]
    for part, score in metrics.items():
        looked = [score.get(name) for name in ("pointing", "mass", "area")]
        shares = ["–" if each is None else f"{each:.4f}" for each in looked]
        columns = "".join(f"{share:>{width}}" for share, width in zip(shares, (10, 8, 8), strict=True))
        lines.append(f"{part:16}{score['images']:8d}{score['exact_match']:13.4f}{score['bleu']:8.2f}{columns}")
    summary = "\n".join([*lines, "", f"Model, results, curve and captions: {run.folder}"])
    leave_behind(run, sections, summary, [], loss="nats_per_token", loss_unit="nats per word")


def caption_scores(images: CaptionedImages, captions: Sequence[str]) -> dict[str, Any]:
    """Return exact match, BLEU and chrF of the captions of a part."""
    references = [item.text for item in images]
    scores = translation_report(references, captions, references)
    names = ("exact_match", "bleu", "bleu_interval", "chrf", "signatures")
    return {**{name: scores[name] for name in names}, "images": len(captions)}


@torch.inference_mode()
def attention_scores(
    model: ShowAttendTellForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    dataset: EncodedCaptions,
    rows: int,
) -> dict[str, float]:
    """Return whether the words of the right captions look at the things that they name.

    Args:
        model: the captioner, which reads the right captions.
        tokenizer: its tokenizer, with the positions of tokens in texts.
        dataset: the images; ``fields`` of each may have its ``objects``.
        rows: number of images that the model reads at once.

    Returns:
        ``pointing``, the share of things whose words have their largest weight, on average, at a cell with a pixel of
        the thing; ``mass``, the share of the weight that is on the thing, and ``area``, the share of the image that is;
        and the terms ``doubly_stochastic`` and ``doubly_stochastic_floor``, per caption. Images without ``objects``
        have the last two only.
    """
    found: dict[str, list[float]] = {"pointing": [], "mass": [], "area": []}
    terms: dict[str, list[float]] = {"doubly_stochastic": [], "doubly_stochastic_floor": []}
    collate, items = CaptionCollator(), dataset.images.items
    with evaluation_mode(model):
        for start in range(0, len(dataset), rows):
            batch = collate([dataset[i] for i in range(start, min(start + rows, len(dataset)))])
            batch = {name: tensor.to(model.device) for name, tensor in batch.items()}
            outputs = model(**batch, output_attentions=True)
            for name, values in terms.items():
                values += outputs[name].tolist()
            grid = outputs.grid[0].tolist()
            maps = outputs.cross_attentions[0][:, 0].unflatten(-1, grid).float().cpu()  # (B, T, rows, columns)
            for item, words in zip(items[start : start + rows], maps, strict=False):
                for thing in item.fields.get("objects", []):
                    scored = of_thing(words, thing, item, tokenizer)
                    for name, value in zip(found, scored, strict=True):
                        found[name].append(value)
    return {name: fmean(values) for name, values in {**found, **terms}.items() if values}


def of_thing(
    maps: torch.Tensor, thing: SceneObject, item: Any, tokenizer: PreTrainedTokenizerBase
) -> tuple[float, float, float]:
    """Return pointing, mass and area of a thing, from the maps (T, rows, columns) of the tokens of a caption."""
    spans = [match.span() for match in re.finditer(r"\S+", item.text)]
    first, last = (spans[word] for word in thing.words)
    offsets = tokenizer(item.text, return_offsets_mapping=True)["offset_mapping"]
    tokens = [i for i, (start, end) in enumerate(offsets) if start < end and first[0] <= start and end <= last[1]]
    weights = maps[tokens].mean(0)
    height, width = np.asarray(item.image).shape[:2]
    mask = thing.region(height, width)
    # A convolution of an odd number of pixels has half a cell more.
    missing = [-side % cells for side, cells in zip((height, width), weights.shape, strict=True)]
    whole = torch.from_numpy(np.pad(mask, [(0, missing[0]), (0, missing[1])]))
    return float(points_at(weights, whole)), mass_on(weights, whole), float(mask.mean())


def wrong_captions(images: CaptionedImages, captions: Sequence[str], number: int) -> list[dict[str, str]]:
    """Return the first wrong captions, beside the right ones."""
    pairs = [(i, item.text, caption) for i, (item, caption) in enumerate(zip(images, captions, strict=True))]
    return [
        {"place": images.place(i), "reference": reference, "caption": caption}
        for i, reference, caption in pairs
        if reference != caption
    ][:number]
