"""Complete the folder of a saved model, so that it can be verified and published; what fails can be done again."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..clean_process import FINGERPRINTS
from ..errors import UnfinishedError, UserError
from ..files import is_full, write_at_once, write_json
from ..pictures import Picture
from .card import UNFINISHED, read_results, write_card
from .fingerprints import store_fingerprints
from .manifest import CARD, MANIFEST, check_regular, write_manifest
from .templates import template

Step = Callable[[], object]
_STOPPED = "the process was stopped before it wrote this file"


def finish_folder(
    folder: Path,
    results: Mapping[str, Any],
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    fingerprint_texts: Sequence[str | Sequence[str]] = (),
    pictures: Sequence[Picture] = (),
) -> None:
    """Write the results into the folder of a saved model, then pictures, fingerprints, card and manifest.

    The results are written first, with a list of the files that are still to be written, and a card that says so. If
    the process is killed, or one of the files cannot be written, ``write_again`` writes what is left.

    Args:
        folder: folder of the saved model.
        results: content of ``results.json``.
        model, tokenizer: as they were saved; None if they are not transformers classes.
        fingerprint_texts: one or two texts, or pairs of texts, whose outputs are recorded to check copies of the model.
        pictures: what is to be drawn.

    Raises:
        UnfinishedError: a file cannot be written; the message and the card say which and why.
    """
    steps: dict[str, Step] = {picture.file: partial(picture.draw, folder) for picture in pictures}
    planned = {picture.file: picture.to_dict() for picture in pictures}
    if model is not None and tokenizer is not None:
        steps[FINGERPRINTS] = partial(store_fingerprints, folder, model, tokenizer, fingerprint_texts)
        planned[FINGERPRINTS] = {"texts": list(fingerprint_texts)}
    planned |= {CARD: {}, MANIFEST: {}}
    left = {name: {**plan, "reason": _STOPPED} for name, plan in planned.items()}
    write_json(folder / "results.json", {**results, UNFINISHED: left})
    write_left(folder, left)
    _finish(folder, results, steps, planned, partial(write_card, own_run=True))


def write_again(folder: Path, *, trust: bool = False) -> str | None:
    """Write the card and the manifest of a run again, and everything that its end did not write.

    Args:
        folder: folder of the run.
        trust: whether code that is not that of hfattn may run where the kernel has no sandbox.

    Returns:
        The sandbox in which the code of the card ran, and whose code it is; None if the code of no card was run.

    Raises:
        UserError: the folder has no ``results.json``, or one of an earlier version; or it has links or devices.
        UnfinishedError: a file that the end of the run did not write still cannot be written.
    """
    if not (folder / "results.json").is_file():
        raise UserError(f"{folder} has no results.json to write a card from; give the folder of a finished run.")
    check_regular(folder)
    results = read_results(folder)
    planned = results.pop(UNFINISHED, {})
    if not planned:
        where = write_card(folder, results, trust=trust)
        write_manifest(folder)
        return where
    drawn = {name: plan for name, plan in planned.items() if name not in (CARD, MANIFEST)}
    steps = {name: partial(_repeat, folder, name, plan) for name, plan in drawn.items()}
    return _finish(folder, results, steps, planned, partial(write_card, trust=trust))


def _repeat(folder: Path, name: str, plan: Mapping[str, Any]) -> None:
    if name == FINGERPRINTS:
        from ..loading import load_any_model  # it imports all models

        model, tokenizer, _ = load_any_model(str(folder))
        store_fingerprints(folder, model, tokenizer, plan["texts"])
    else:
        Picture.from_dict(name, plan).draw(folder)


def _finish(
    folder: Path,
    results: Mapping[str, Any],
    steps: Mapping[str, Step],
    planned: Mapping[str, Any],
    write: Callable[[Path, Mapping[str, Any]], str | None],
) -> str | None:
    """Carry out the steps by file, then write card and manifest; record in ``results.json`` what failed."""
    failed: dict[str, dict[str, Any]] = {}
    where = None

    def attempt(name: str, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except Exception as error:  # a library that draws or computes may raise anything
            failed[name] = {**planned.get(name, {}), "reason": reason_of(error)}

    def record() -> dict[str, Any]:
        now = {**results, UNFINISHED: failed} if failed else dict(results)
        write_json(folder / "results.json", now)
        return now

    for name, step in steps.items():
        attempt(name, step)
    try:
        now = record()
        where = attempt(CARD, lambda: write(folder, now))
        if CARD in failed:
            record()
        attempt(MANIFEST, lambda: write_manifest(folder))
        if MANIFEST in failed:
            record()
    except (OSError, UserError) as error:  # results.json still lists all files
        failed["results.json"] = {"reason": reason_of(error)}
    if failed:
        if not failed.keys() <= steps.keys():
            write_left(folder, failed)
        name, reason = next((name, plan["reason"]) for name, plan in failed.items())
        others = "" if len(failed) == 1 else f", and {len(failed) - 1} more could not either"
        raise UnfinishedError(
            f"{folder} has its model and its results, but {name} could not be written ({reason}){others}; correct "
            f"that, then {_mended(folder)}."
        )
    return where


def write_left(folder: Path, left: Mapping[str, Mapping[str, Any]]) -> None:
    """Write a card that says which files of a folder are left to be written, as ``results.json`` lists them."""
    write_notice(folder, {name: plan["reason"] for name, plan in left.items()}, _mended(folder))


def write_notice(folder: Path, reasons: Mapping[str, str], advice: str) -> None:
    """Write a card that says what of a folder is missing, if anything can be written there.

    Args:
        folder: the run folder.
        reasons: the missing files, each with the reason.
        advice: what to do, without a period.
    """
    text = template("unfinished.md").render(reasons=reasons, advice=advice)
    with suppress(OSError, UserError):
        write_at_once(folder / CARD, text)


def reason_of(error: BaseException) -> str:
    """Return the message of an error in one line, without a period at its end."""
    if is_full(error):
        return "the disk is full"
    text = " ".join(str(error).split()).rstrip(".")
    return text if isinstance(error, UserError) and text else f"{type(error).__name__}: {text}".rstrip(": ")


def _mended(folder: Path) -> str:
    return f"run hfattn card {shlex.quote(str(folder))}"
