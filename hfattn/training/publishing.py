"""The end of a run: a complete folder, pushed to the Hub on request."""

import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..errors import UnfinishedError
from ..files import read_json_object
from ..hub import PushOptions, finish_folder, push
from ..hub.card import UNFINISHED
from ..hub.finishing import reason_of, write_left, write_notice
from ..pictures import Picture
from .command import RecipeCommand


class _Terminated(BaseException):
    """SIGTERM arrived. It is not an ``Exception``, so that no step takes it for a failure of its own."""


@contextmanager
def finishing(run: Path, advice: str = "give the same command with --resume") -> Iterator[None]:
    """Run what follows a training. If it fails or is terminated, the error is one sentence, and the card says why.

    Args:
        run: the run folder.
        advice: how to get the results of a training whose end failed before it wrote them.

    Raises:
        UnfinishedError: a file could not be written, or the process was terminated.
    """
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _terminate) if main else None
    try:
        yield
    except _Terminated as error:
        raise UnfinishedError(_stopped(run, advice)) from error
    except Exception as error:
        if (run / "results.json").exists():
            raise
        raise UnfinishedError(_not_measured(run, reason_of(error), advice)) from error
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)


def _stopped(run: Path, advice: str) -> str:
    if not (run / "results.json").exists():
        return _not_measured(run, "the process was terminated", advice)
    left = read_json_object(run / "results.json").get(UNFINISHED)
    if left is None:
        return f"The process was terminated; {run} is complete."
    write_left(run, left)
    return f"The process was terminated while it wrote {run}; to finish it, run hfattn card {run}."


def _not_measured(run: Path, reason: str, advice: str) -> str:
    write_notice(run, {"results.json": reason}, advice)
    return f"The training ended, but its results could not be written to {run} ({reason}); correct that, then {advice}."


def _terminate(number: int, frame: FrameType | None) -> None:
    raise _Terminated


def publish_run(
    command: RecipeCommand,
    results: Mapping[str, Any],
    summary: str,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    fingerprint_texts: Sequence[str | Sequence[str]] = (),
    pictures: Sequence[Picture] = (),
) -> None:
    """Write results, pictures, card and manifest, print the summary, and push the folder if ``--push_to`` was given.

    Args:
        command: the command line of the run.
        summary: text to print.
        results, model, tokenizer, fingerprint_texts, pictures: see ``finish_folder``.

    Raises:
        UnfinishedError: see ``finish_folder``.
        UserError: the push failed. The folder is complete, so it can be pushed again with ``hfattn push``.
    """
    try:
        finish_folder(command.run, results, model, tokenizer, fingerprint_texts, pictures)
    except UnfinishedError:
        print(summary)
        raise
    print(summary)
    if command.push_to is not None:
        options = PushOptions(private=command.push_private, execute=True, trust=True)
        print(push(command.run, command.push_to, options))
