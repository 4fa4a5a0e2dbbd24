"""Complete the folder of a saved model, so that it can be verified and published."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..errors import UserError
from ..files import write_json
from .card import read_results, write_card
from .fingerprints import store_fingerprints
from .manifest import write_manifest


def finish_folder(
    folder: Path,
    results: Mapping[str, Any],
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    fingerprint_texts: Sequence[str | Sequence[str]] = (),
) -> None:
    """Write fingerprints, results, card and manifest into the folder of a saved model.

    Args:
        folder: folder of the saved model.
        results: content of ``results.json``.
        model, tokenizer: as they were saved; None if they are not transformers classes.
        fingerprint_texts: one or two texts, or pairs of texts, whose outputs are recorded to check copies of the model.
    """
    if model is not None and tokenizer is not None:
        store_fingerprints(folder, model, tokenizer, fingerprint_texts)
    write_json(folder / "results.json", results)
    write_card(folder, results)
    write_manifest(folder)


def write_again(folder: Path) -> None:
    """Write the card and the manifest of a finished run again.

    Raises:
        UserError: the folder has no ``results.json``, or one of an earlier version.
    """
    if not (folder / "results.json").is_file():
        raise UserError(f"{folder} has no results.json to write a card from; give the folder of a finished run.")
    write_card(folder, read_results(folder))
    write_manifest(folder)
