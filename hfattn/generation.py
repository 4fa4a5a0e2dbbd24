"""Text from a trained model: samples and translations during training, streams on the command line."""

from collections.abc import Sequence
from typing import Any, TextIO

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.generation.streamers import BaseStreamer

from .errors import UserError
from .loading import max_positions

UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # what bytes decode to that are no character yet


def read_prompt(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt: str, max_new_tokens: int
) -> tuple[dict[str, torch.Tensor], int]:
    """A prompt as a causal language model reads it, and how long its continuation may be.

    Returns:
        ``input_ids`` and ``attention_mask`` (1, T), and ``max_new_tokens``, or fewer where the model has no position
        for more.

    Raises:
        UserError: the prompt leaves no position for a continuation.
    """
    encoded = tokenizer(prompt, return_tensors="pt").to(model.device)
    inputs = {name: encoded[name] for name in ("input_ids", "attention_mask")}
    length, positions = inputs["input_ids"].shape[1], max_positions(model.config)
    if positions is not None and length >= positions:
        raise UserError(
            f"The prompt has {length} tokens, and the model has {positions} positions for it and its continuation; "
            "shorten it."
        )
    return inputs, max_new_tokens if positions is None else min(max_new_tokens, positions - length)


def sampling_options(temperature: float, top_k: int = 0, top_p: float = 1.0) -> dict[str, Any]:
    """Arguments of ``generate()`` that draw from all tokens, the ``top_k`` most probable, or the smallest set of
    probability ``top_p``; temperature 0 takes the most probable."""
    if temperature == 0:
        return {"do_sample": False}
    return {"do_sample": True, "temperature": float(temperature), "top_k": top_k, "top_p": float(top_p)}


def sample_text(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    temperature: float,
    max_new_tokens: int,
    seed: int,
    top_k: int = 0,
    top_p: float = 1.0,
) -> str:
    """Continue a prompt, the same each time, and without a trace in the random state of training.

    Args:
        model: a causal language model; it is left in the mode (training or evaluation) it was in.
        tokenizer: its tokenizer.
        prompt: at least one character.
        temperature, top_k, top_p: as ``sampling_options`` has them; the lower the temperature, the more probable and
            repetitive the text.
        max_new_tokens: length of the continuation, where the model has positions for it.
        seed: of the draw.

    Returns:
        The prompt and its continuation.

    Raises:
        UserError: the model has no position for a continuation.
    """
    training = model.training
    model.eval()
    devices = [model.device] if model.device.type == "cuda" else []
    try:
        inputs, max_new_tokens = read_prompt(model, tokenizer, prompt, max_new_tokens)
        with torch.random.fork_rng(devices):
            torch.manual_seed(seed)
            ids = model.generate(
                **inputs,
                **sampling_options(temperature, top_k, top_p),
                max_new_tokens=max_new_tokens,
                use_cache=True,
            )
    finally:
        model.train(training)
    return tokenizer.decode(ids[0], skip_special_tokens=True)


def translate_texts(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    target_tokenizer: PreTrainedTokenizerBase | None = None,
) -> list[str]:
    """Translate a batch of texts, as the model's generation configuration says.

    Args:
        model: an encoder-decoder; it is left in the mode (training or evaluation) it was in.
        tokenizer: of both sides, or of the source.
        texts: the sources.
        target_tokenizer: of a target that has a vocabulary of its own.
    """
    training = model.training
    model.eval()
    inputs = tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt").to(model.device)
    try:
        with torch.no_grad():
            ids = model.generate(**inputs)
    finally:
        model.train(training)
    writer = tokenizer if target_tokenizer is None else target_tokenizer
    return writer.batch_decode(ids, skip_special_tokens=True)


class TokenStreamer(BaseStreamer):
    """Writes each token as soon as it is generated, or as soon as the character that it is a part of is whole.

    The streamers of transformers hold a word back until the space after it; a character model has nothing to wait for.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, out: TextIO) -> None:
        self.tokenizer, self.out = tokenizer, out
        self.before: list[int] = []  # tokens that are written, without which the next ones may read otherwise
        self.waiting: list[int] = []

    def put(self, value: Any) -> None:
        self.waiting += value.flatten().tolist()
        text = self._new_text()
        if not text.endswith(UNFINISHED):
            self._write(text)

    def end(self) -> None:
        self._write(f"{self._new_text()}\n")

    def _new_text(self) -> str:
        return self._decode(self.before + self.waiting)[len(self._decode(self.before)) :]

    def _decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def _write(self, text: str) -> None:
        self.out.write(text)
        self.out.flush()
        self.before, self.waiting = self.waiting, []


__all__ = [
    "TokenStreamer",
    "read_prompt",
    "sample_text",
    "sampling_options",
    "translate_texts",
]
