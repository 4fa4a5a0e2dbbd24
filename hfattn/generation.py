"""Text from a language model: samples during training, streams on the command line."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.generation.streamers import BaseStreamer

from . import models  # noqa: F401  (registers the classes)
from .errors import UserError

TARGET = "target"  # sub-folder of a translator for the tokenizer of a target with a vocabulary of its own


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
    inputs = tokenizer(list(texts), padding=True, return_tensors="pt").to(model.device)
    try:
        with torch.no_grad():
            ids = model.generate(**inputs)
    finally:
        model.train(training)
    return (target_tokenizer or tokenizer).batch_decode(ids, skip_special_tokens=True)


def save_translator(
    folder: str | Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
) -> None:
    """Write an encoder-decoder with what it needs to read and to write.

    Args:
        folder: has the model and the tokenizer at its top, where ``AutoTokenizer`` finds it.
        model: one of this package.
        tokenizer: of both sides, or of the source.
        target_tokenizer: of a target that has a vocabulary of its own; it goes into the sub-folder ``target``, and the
            model's configuration says so.
    """
    model.config.target_tokenizer = None if target_tokenizer is None else TARGET
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if target_tokenizer is not None:
        target_tokenizer.save_pretrained(Path(folder) / TARGET)


def load_language_model(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a causal language model and its tokenizer from a folder or from the Hub.

    The classes of this package and of transformers are used; code from a repository is never run.

    Raises:
        UserError: there is no such folder or repository, or it holds no causal language model with a tokenizer.
    """
    return _load(name, lambda config: AutoModelForCausalLM, "language model")


def load_translation_model(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load an encoder-decoder and its tokenizer, as ``load_language_model`` does."""
    return _load(name, lambda config: AutoModelForSeq2SeqLM, "translation model")


def load_reading_model(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a model to see where it looks, as ``load_language_model`` does: an encoder-decoder with its output layer,
    because it has to write, and any other model without."""
    return _load(name, lambda config: AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModel, "model")


def _load(name: str, choose: Callable[[Any], Any], what: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    path = Path(name)
    # "runs/mine" looks like an id; where there is a folder "runs", or the name is that of runs, it is a path.
    local = name.count("/") != 1 or name.startswith((".", "~", "/", "runs/")) or path.parent.is_dir()
    if not path.is_dir() and local:
        raise UserError(
            f"There is no model folder {name}; train one with a recipe, or give the id of a model on the Hub."
        )
    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        model = choose(config).from_pretrained(name, config=config, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError, RuntimeError, SafetensorError, StrictDataclassError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{name} does not load as a {what} ({reason}); check the folder or the Hub id.") from error
    return model.eval(), tokenizer


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


__all__ = [
    "CharacterStreamer",
    "load_language_model",
    "load_reading_model",
    "load_translation_model",
    "sample_text",
    "save_translator",
    "translate_texts",
]
