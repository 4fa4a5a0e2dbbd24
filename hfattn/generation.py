"""Text from a language model: samples during training, streams on the command line."""

import sys
from typing import Any, TextIO

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.generation.streamers import BaseStreamer


def sample_text(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    temperature: float,
    max_new_tokens: int,
    seed: int,
) -> str:
    """Continue a prompt by sampling, the same each time, and without a trace in the random state of training.

    Args:
        model: a causal language model; it is left in the mode (training or evaluation) it was in.
        tokenizer: its tokenizer.
        prompt: at least one character.
        temperature: above 0; the lower, the more probable and repetitive the text.
        max_new_tokens: length of the continuation.
        seed: of the draw.

    Returns:
        The prompt and its continuation.
    """
    training = model.training
    model.eval()
    inputs = tokenizer(prompt, return_tensors="pt").to(model.device)
    devices = [model.device] if model.device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices):
            torch.manual_seed(seed)
            ids = model.generate(
                **inputs,
                do_sample=True,
                temperature=float(temperature),
                top_k=0,
                max_new_tokens=max_new_tokens,
                use_cache=True,
            )
    finally:
        model.train(training)
    return tokenizer.decode(ids[0], skip_special_tokens=True)


class CharacterStreamer(BaseStreamer):
    """Writes each token as soon as it is generated.

    The streamers of transformers hold a word back until the space after it; a character model has nothing to wait for.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, out: TextIO = sys.stdout) -> None:
        self.tokenizer, self.out = tokenizer, out

    def put(self, value: Any) -> None:
        self.out.write(self.tokenizer.decode(value.flatten().tolist(), skip_special_tokens=True))
        self.out.flush()

    def end(self) -> None:
        self.out.write("\n")
        self.out.flush()


__all__ = ["CharacterStreamer", "sample_text"]
