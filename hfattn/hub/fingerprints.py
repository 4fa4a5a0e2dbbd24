"""Fingerprints: texts and the outputs of a model for them, stored with its weights to check copies of the model."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoImageProcessor, BaseImageProcessor, PreTrainedModel, PreTrainedTokenizerBase

from ..clean_process import (
    FINGERPRINTS,
    LONGEST,
    MAX_TOKENS,
    batch_logits,
    drawn_picture,
    encode_texts,
    greedy_continuation,
    named,
)
from ..errors import UserError
from ..generation import evaluation_mode
from ..loading import reads_images

# Symbols that few vocabularies have: a snowman, a letter of mathematics beyond U+FFFF, Tamil, a private character.
_UNKNOWN = "\u2603 \U0001d465 \u0b95\u0bbf \ue000"

# What a stranger's file may have: bytes, batches, rows of one, and characters of all texts together.
_LARGEST, _MOST_BATCHES, _MOST_ROWS, _MOST_CHARACTERS = 2**26, 8, 8, 2**22

_SENTENCE = "This is an example."
_PICTURES = [["picture 1"], ["picture 2"]]  # names of drawn pictures


def synthetic_text(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return a text that is not from the data, of tokens that the tokenizer knows.

    It is an English sentence, or, if that has unknown words, a dozen tokens from the start of the vocabulary, where the
    most frequent ones are.
    """
    special = set(tokenizer.all_special_ids)
    if _reads(tokenizer, _SENTENCE):
        ids = tokenizer(_SENTENCE, add_special_tokens=False)["input_ids"]
        if tokenizer.unk_token_id not in ids:
            return _SENTENCE
    tokens = sorted(set(tokenizer.get_vocab().values()) - special)[:1000]
    drawn = random.Random(0).sample(tokens, min(12, len(tokens)))
    text = str(tokenizer.decode(drawn)).strip()
    return text if text and _reads(tokenizer, text) else _SENTENCE


@torch.no_grad()
def store_fingerprints(
    folder: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | BaseImageProcessor,
    texts: Sequence[str | Sequence[str]],
) -> None:
    """Write ``fingerprints.safetensors``, which ``verify`` compares with the outputs in a clean process.

    Of a model of images, they are its outputs for two drawn pictures, such as their captions.

    Besides the given texts it has the inputs and, if these have a token, the logits of three others: the first one
    repeated until it is longer than what is read, an empty one, and, if the tokenizer reads them, unknown symbols.

    Args:
        folder: folder of the saved model.
        model: a model with a head; it stays on its device and in its mode (training or evaluation).
        tokenizer: the tokenizer of its input, or its image processor.
        texts: one or two texts, or pairs of texts, of the kind that the model was trained on.

    Raises:
        UserError: there is no text.
    """
    is_processor = isinstance(tokenizer, BaseImageProcessor)
    if is_processor or reads_images(model):
        processor = tokenizer if is_processor else AutoImageProcessor.from_pretrained(folder)
        pictures = processor([drawn_picture(name) for (name,) in _PICTURES], return_tensors="pt").to(model.device)
        tensors = {}
        with evaluation_mode(model):
            if model.can_generate():
                tensors["generated"] = greedy_continuation(model, pictures)
                pictures["decoder_input_ids"] = tensors["generated"].to(model.device)
            tensors["logits"] = batch_logits(model, {"": pictures})[""]
        save_file(tensors, folder / FINGERPRINTS, {"format": "pt", "texts": json.dumps(_PICTURES)})
        return
    rows = [[text] if isinstance(text, str) else list(text) for text in texts]
    if not rows:
        raise UserError("There is no text to store the model's outputs for; give one or two.")
    if tokenizer.pad_token_id is None:
        rows = rows[:1]  # without a padding token, a batch needs texts of one length
    batches = {
        "": rows,
        "longest": [[_repeated(tokenizer, text) for text in rows[0]]],
        "empty": [[""] * len(rows[0])],
    }
    if _reads(tokenizer, _UNKNOWN):
        batches["unknown"] = [[_UNKNOWN] * len(rows[0])]
    # Accelerate wraps forward for mixed precision, but a loaded model computes in float32.
    mixed = vars(model).pop("forward", None)
    tensors = {}
    try:
        with evaluation_mode(model):
            inputs = {}
            for name, batch in batches.items():
                encoded = encode_texts(tokenizer, batch, model, LONGEST if name else MAX_TOKENS)
                inputs[name] = {key: ids.to(model.device) for key, ids in encoded.items()}
            if model.can_generate():
                tensors["generated"] = greedy_continuation(model, inputs[""])
            if model.config.is_encoder_decoder:
                for name in inputs:
                    first = tensors["generated"][:1] if name else tensors["generated"]
                    inputs[name]["decoder_input_ids"] = first.to(model.device)
            for name, logits in batch_logits(model, inputs).items():
                tensors |= named({"logits": logits}, name, "")
    finally:
        if mixed is not None:
            vars(model)["forward"] = mixed
    for name, each in inputs.items():
        tensors |= named({key: ids.cpu().clone() for key, ids in each.items()}, name, "inputs.")
    metadata = {"texts": json.dumps(batches.pop(""), ensure_ascii=False), "more": json.dumps(batches)}
    save_file(tensors, folder / FINGERPRINTS, {"format": "pt", **metadata})


def _repeated(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    """Return a text, repeated until it is longer than ``LONGEST`` tokens."""
    space = " " if _reads(tokenizer, f"{text} {text}") else ""  # the symbols of a grammar have no space
    return space.join([text] * (LONGEST // max(1, len(text.split())) + 1))


def _reads(tokenizer: PreTrainedTokenizerBase, text: str) -> bool:
    try:
        tokenizer(text)
    except Exception:  # the Rust library raises plain Exception for a symbol that a vocabulary lacks
        return False
    return True


def read_fingerprints(folder: Path) -> tuple[dict[str, list[list[str]]], dict[str, torch.Tensor]]:
    """Read what ``store_fingerprints`` has written.

    Returns:
        The texts by batch, and the tensors by name.

    Raises:
        ValueError, RecursionError, TypeError, OSError, SafetensorError: the file is missing, has no texts or more than
            ``store_fingerprints`` writes, or cannot be read.
    """
    if (folder / FINGERPRINTS).stat().st_size > _LARGEST:
        raise ValueError(f"it has more than {_LARGEST // 2**20} MiB")
    with safe_open(folder / FINGERPRINTS, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a mapping)
        metadata = file.metadata() or {}
    if sum(map(len, metadata.values())) > _MOST_CHARACTERS:
        raise ValueError(f"its texts have more than {_MOST_CHARACTERS:,} characters")
    batches = {"": json.loads(metadata.get("texts", "[]")), **json.loads(metadata.get("more", "{}"))}
    if len(batches) > _MOST_BATCHES or any(len(batch) > _MOST_ROWS for batch in batches.values()):
        raise ValueError("it has more texts than a model needs")
    if not all(batches.values()) or not all(_are_texts(row) for batch in batches.values() for row in batch):
        raise ValueError("it has no texts")
    return batches, tensors


def _are_texts(row: Any) -> bool:
    return isinstance(row, list) and bool(row) and all(isinstance(text, str) for text in row)
