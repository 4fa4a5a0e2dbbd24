"""Complete a folder with converted weights, so that it can be verified and published like a run."""

import platform
import shlex
from collections.abc import Sequence
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..hub import finish_folder
from ..loading import max_positions
from .checkpoint import Converted
from .weights import weight_files

TASKS = {
    "CausalLM": "text-generation",
    "LMHeadModel": "text-generation",
    "MaskedLM": "fill-mask",
    "SequenceClassification": "text-classification",
}
PACKAGES = ("hfattn", "torch", "transformers", "tokenizers")
TOKENS, NEW_TOKENS = 8, 20  # tokens of the example, and of its continuation


def write_record(folder: Path, kind: str, file: Path, converted: Converted, command: Sequence[str]) -> None:
    """Write fingerprints, results, card and manifest into a folder with a converted model and its tokenizer.

    Args:
        folder: the model folder.
        kind: kind of checkpoint, such as "nanogpt".
        file: the checkpoint, or its folder.
        converted: the model and tokenizer made from it.
        command: arguments of the command that created it.
    """
    model, tokenizer = converted.model, converted.tokenizer
    assert tokenizer is not None
    positions = max_positions(model.config) or 2 * (TOKENS + NEW_TOKENS)
    text = first_entries(tokenizer, min(TOKENS, positions // 2))
    results = {
        "recipe": "convert",
        "config": kind,
        "task": task_of(model),
        "command": shlex.join(command),
        "data": {
            "name": file.name,
            "sha256": sha256(b"".join(part.read_bytes() for part in weight_files(file))).hexdigest(),
            "separate": converted.target_tokenizer is not None,
        },
        "model": {"model_type": model.config.model_type, "parameters": model.num_parameters()},
        "metrics": {},
        "assumed": converted.assumed,
        "example": text,
        "new_tokens": min(NEW_TOKENS, positions // 2),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
    }
    finish_folder(folder, results, model, tokenizer, [text])


def first_entries(tokenizer: PreTrainedTokenizerBase, number: int) -> str:
    """Return a text made of the first entries of a vocabulary that are not special."""
    special = set(tokenizer.all_special_ids)
    ids = [i for i in sorted(tokenizer.get_vocab().values()) if i not in special]
    return tokenizer.decode(ids[:number])


def task_of(model: PreTrainedModel) -> str | None:
    """Return the task of a model, or None if it has no output layer."""
    if model.config.is_encoder_decoder:
        return "translation"
    return next((task for name, task in TASKS.items() if name in type(model).__name__), None)
