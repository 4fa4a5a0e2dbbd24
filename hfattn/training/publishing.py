"""The end of a run: a complete folder, pushed to the Hub on request."""

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..hub import PushOptions, finish_folder, push
from .command import RecipeCommand


def publish_run(
    command: RecipeCommand,
    results: Mapping[str, Any],
    summary: str,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    fingerprint_texts: Sequence[str | Sequence[str]] = (),
) -> None:
    """Write results, card and manifest, print the summary, and push the folder if ``--push_to`` was given.

    Args:
        command: the command line of the run.
        summary: text to print.
        results, model, tokenizer, fingerprint_texts: see ``finish_folder``.

    Raises:
        UserError: the push failed. The folder is complete, so it can be pushed again with ``hfattn push``.
    """
    finish_folder(command.run, results, model, tokenizer, fingerprint_texts)
    print(summary)
    if command.push_to is not None:
        print(push(command.run, command.push_to, PushOptions(private=command.push_private, execute=True)))
