"""The end of a run: a folder that is whole, and on the Hub where that is asked for."""

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..hub import finish_folder, push
from .command import RecipeCommand


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


__all__ = ["publish_run"]
