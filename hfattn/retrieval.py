"""Use a dual encoder: embed images and texts, and search a folder of images by a text."""

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .data.image_encoding import processed
from .data.images import FORMATS, Encoded, image_files
from .errors import UserError
from .generation import evaluation_mode
from .loading import ModelLocation, load_any_model, load_image_processor
from .tokenizers import uncovered_characters

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

UNLIMITED = 10**9  # transformers states a larger length if a tokenizer has none


@torch.inference_mode()
def vectors_of_texts(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    texts: Sequence[str],
    read: Callable[..., torch.Tensor],
    rows: int,
    max_length: int | None = None,
) -> torch.Tensor:
    """Return what ``read`` makes of the inputs of texts, (M, D), in float32.

    A text without any token is read as one unknown token, as in training.

    Args:
        rows: number of texts that the model reads at once; those of similar length share a batch.
        max_length: tokens to which texts are cut; None: what the tokenizer states.

    Raises:
        UserError: a text has a character that the tokenizer does not know.
    """
    if missing := uncovered_characters(tokenizer, chain.from_iterable(texts)):
        raise UserError(
            f"The tokenizer does not know {missing[0]!r} (U+{ord(missing[0]):04X}), which is in a text; remove it, or "
            "train with tokenizer.unknown: true."
        )
    if max_length is None and tokenizer.model_max_length < UNLIMITED:
        max_length = tokenizer.model_max_length
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    found: list[torch.Tensor] = [torch.empty(0)] * len(texts)
    with evaluation_mode(model):
        for start in range(0, len(order), rows):
            places = order[start : start + rows]
            batch = [texts[i] for i in places]
            ids = tokenizer(batch, truncation=max_length is not None, max_length=max_length).input_ids
            if tokenizer.unk_token_id is not None:
                ids = [each or [tokenizer.unk_token_id] for each in ids]
            inputs = tokenizer.pad({"input_ids": ids}, padding_side="right", return_tensors="pt")
            for place, vector in zip(places, read(**inputs.to(model.device)).float().cpu(), strict=True):
                found[place] = vector
    return torch.stack(found)


def embed_texts(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str], rows: int = 64
) -> torch.Tensor:
    """Return the embeddings (M, D) of texts, of length 1; texts are cut to the length that the tokenizer states.

    Args:
        rows: number of texts that the model reads at once; those of similar length share a batch.
    """
    return vectors_of_texts(model, tokenizer, texts, lambda **inputs: model(**inputs).text_embeds, rows)


@torch.inference_mode()
def embed_images(
    model: "PreTrainedModel",
    processor: Any,
    images: Sequence[Encoded],
    background: Sequence[int] | None = None,
    rows: int = 64,
) -> torch.Tensor:
    """Return the embeddings (N, D) of images, of length 1.

    Args:
        background: color behind transparent pixels; None: the one that the processor states, or white.
        rows: number of images that the model reads at once.
    """
    embeds = []
    with evaluation_mode(model):
        for start in range(0, len(images), rows):
            pixel_values = processed(images[start : start + rows], processor, background)
            embeds.append(model(pixel_values=pixel_values.to(model.device)).image_embeds.float().cpu())
    return torch.cat(embeds)


def load_dual_encoder(name: str) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase, Any]":
    """Load a dual encoder, its tokenizer and its image processor from a folder or from the Hub.

    Raises:
        UserError: there is no such model, or it does not embed images and texts.
    """
    model, tokenizer, _ = load_any_model(name)
    if model.config.model_type != "dual_encoder":
        raise UserError(f"{name} is a {type(model).__name__}; give a dual encoder, as the recipe image_text trains it.")
    return model, tokenizer, load_image_processor(ModelLocation(name=name))


def search_images(name: str, text: str, folder: Path, number: int = 5) -> list[tuple[Path, float]]:
    """Return the images of a folder and its subfolders that are nearest to a text, with their cosines, the best first.

    Args:
        name: folder or Hub id of a dual encoder.
        text: what to look for.
        folder: folder with images.
        number: number of images to return.

    Raises:
        UserError: the model cannot be loaded, the text is empty, or the folder has no images, or a damaged one.
    """
    if not text.strip():
        raise UserError("The text to look for is empty; write a few words.")
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; give a folder with images.")
    if not (paths := image_files(folder)):
        raise UserError(f"{folder} has no images; give a folder with files in the format {', '.join(FORMATS)}.")
    model, tokenizer, processor = load_dual_encoder(name)
    cosines = embed_images(model, processor, paths) @ embed_texts(model, tokenizer, [text])[0]
    best = cosines.topk(min(number, len(paths)))
    return [(paths[i], cosine) for i, cosine in zip(best.indices.tolist(), best.values.tolist(), strict=True)]
