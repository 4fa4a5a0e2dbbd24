"""What makes a saved model a folder that can be verified and published."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..errors import UserError
from ..files import write_results
from .card import write_card
from .manifest import write_manifest
from .probes import store_probes


def finish_folder(
    folder: Path,
    results: Mapping[str, Any],
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    probes: Sequence[str | Sequence[str]] = (),
) -> None:
    """Put beside a saved model what it was measured to do: probes, results, card, manifest.

    Args:
        folder: where the model is saved.
        results: for ``results.json``.
        model, tokenizer: as they were saved; None where they are not those of transformers.
        probes: a text or two, or pairs of texts, by which a copy of the model is recognised.
    """
    if model is not None and tokenizer is not None:
        store_probes(folder, model, tokenizer, probes)
    write_results(folder / "results.json", results)
    write_card(folder, results)
    write_manifest(folder)


def write_again(folder: Path) -> None:
    """Render the card of a finished run anew, from its results.

    Raises:
        UserError: the folder holds no results.
    """
    path = folder / "results.json"
    if not path.is_file():
        raise UserError(
            f"{folder} has no results.json, from which a card is written; give the folder of a finished run."
        )
    write_card(folder, json.loads(path.read_text(encoding="utf-8")))
    write_manifest(folder)


__all__ = ["finish_folder", "write_again"]
