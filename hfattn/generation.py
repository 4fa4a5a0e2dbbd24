"""Generate text: samples and translations during training, streamed output on the command line."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.generation.streamers import BaseStreamer

from .errors import UserError
from .loading import max_positions

UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # decoding of bytes that are not yet a whole character


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and then back into its mode."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def read_prompt(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt: str, max_new_tokens: int
) -> tuple[dict[str, torch.Tensor], int]:
    """Encode a prompt for a causal language model, and limit the length of its continuation.

    Returns:
        ``input_ids`` and ``attention_mask`` (1, T), and ``max_new_tokens``, reduced to the positions that the model
        has left.

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
    """Return the arguments of ``generate()`` for sampling from all tokens, the ``top_k`` most probable ones, or the
    smallest set with probability ``top_p``; temperature 0 means greedy decoding."""
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
    """Continue a prompt deterministically, without changing the global random state.

    Args:
        model: a causal language model; its mode (training or evaluation) is not changed.
        tokenizer: its tokenizer.
        prompt: at least one character.
        temperature, top_k, top_p: see ``sampling_options``; the lower the temperature, the more probable and repetitive
            the text.
        max_new_tokens: length of the continuation in tokens, if the model has positions for it.
        seed: random seed for sampling.

    Returns:
        The prompt and its continuation.

    Raises:
        UserError: the model has no position for a continuation.
    """
    inputs, max_new_tokens = read_prompt(model, tokenizer, prompt, max_new_tokens)
    devices = [model.device] if model.device.type == "cuda" else []
    with evaluation_mode(model), torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        ids = model.generate(
            **inputs,
            **sampling_options(temperature, top_k, top_p),
            max_new_tokens=max_new_tokens,
            use_cache=True,
        )
    return tokenizer.decode(ids[0], skip_special_tokens=True)


def translate_texts(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    target_tokenizer: PreTrainedTokenizerBase | None = None,
) -> list[str]:
    """Translate a batch of texts with the model's generation configuration.

    Args:
        model: an encoder-decoder; its mode (training or evaluation) is not changed.
        tokenizer: tokenizer of both sides, or of the source.
        texts: source texts.
        target_tokenizer: tokenizer of the target, if it has its own vocabulary.
    """
    inputs = tokenizer(list(texts), padding=True, truncation=True, return_attention_mask=True, return_tensors="pt").to(
        model.device
    )
    with evaluation_mode(model), torch.no_grad():
        ids = model.generate(**inputs)
    writer = tokenizer if target_tokenizer is None else target_tokenizer
    return writer.batch_decode(ids, skip_special_tokens=True)


class TokenStreamer(BaseStreamer):
    """Write each token when it is generated, or when the character that it belongs to is complete.

    The streamers of transformers wait for the space after a word, which delays the output of a character model.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, out: TextIO) -> None:
        self.tokenizer, self.out = tokenizer, out
        self.before: list[int] = []  # tokens already written, which affect the decoding of the next ones
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
    "evaluation_mode",
    "read_prompt",
    "sample_text",
    "sampling_options",
    "translate_texts",
]
