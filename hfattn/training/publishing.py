"""The end of a run: a folder that is whole, and on the Hub where that is asked for."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..hub import push, store_probes, write_card, write_manifest
from .command import RecipeCommand
from .results import write_results


def publish_run(
    command: RecipeCommand,
    results: Mapping[str, Any],
    summary: str,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    probes: Sequence[str | Sequence[str]] = (),
) -> None:
    """Evaluate, then card, then verify, then push: what a recipe does when its model is saved and measured.

    Args:
        command: of the recipe; with ``--push_to`` the folder is verified and pushed.
        summary: of the run, to print.
        results, model, tokenizer, probes: as ``finish_folder`` has them.

    Raises:
        UserError: the folder was not pushed; all of it is there, and ``hfattn push`` tries again.
    """
    finish_folder(command.run, results, model, tokenizer, probes)
    print(summary)
    if command.push_to is not None:
        print(push(command.run, command.push_to, private=command.push_private, execute=True))


def finish_folder(
    folder: Path,
    results: Mapping[str, Any],
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    probes: Sequence[str | Sequence[str]] = (),
) -> None:
    """Put beside a saved model what it was measured to do: probes, card, results, manifest.

    Args:
        folder: where the model is saved.
        results: for ``results.json``.
        model, tokenizer: as they were saved; None where they are not those of transformers.
        probes: a text or two, or pairs of texts, by which a copy of the model is recognised.
    """
    if model is not None and tokenizer is not None:
        store_probes(folder, model, tokenizer, probes)
    write_card(folder, results)
    write_results(folder / "results.json", results)
    write_manifest(folder)


__all__ = ["finish_folder", "publish_run"]
