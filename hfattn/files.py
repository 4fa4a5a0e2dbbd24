"""Files and folders that are there whole or not at all, on a disk that may be full."""

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors import SafetensorError

from .errors import UserError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no space, no more of it for this user, a file that is too large


@contextmanager
def writing(folder: str | Path, advice: str = "free some space and continue with --resume") -> Iterator[None]:
    """Say in one sentence that a file did not fit into ``folder``, whichever library was writing it.

    Raises:
        UserError: the disk is full; what is in the folder may be incomplete.
    """
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        if not _is_full(error):
            raise
        raise UserError(f"The disk is full, and {folder} could not be written to its end; {advice}.") from error


def _is_full(error: Exception) -> bool:
    if isinstance(error, OSError):
        return error.errno in _FULL
    if isinstance(error, SafetensorError):
        return any(f"os error {code}" in str(error) for code in _FULL)
    # All that torch.save says of a file that it could not go on with.
    return any(words in str(error) for words in ("inline_container", "iostream error"))


def write_at_once(path: Path, text: str) -> None:
    """Write a file that a reader, or the next run, finds whole or not at all.

    Raises:
        UserError: the disk is full.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        with writing(path.parent):
            part.write_text(text, encoding="utf-8")
    except UserError:
        part.unlink(missing_ok=True)
        raise
    part.replace(path)


def write_results(path: Path, results: Mapping[str, Any]) -> None:
    """Write ``results.json``, the sign that a run has finished."""
    write_at_once(path, json.dumps(results, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """A folder to write into, which takes the name ``output`` once all of it is written.

    Raises:
        UserError: there is something of that name, or no folder to make it in.
    """
    if os.path.lexists(output):
        raise UserError(f"{output} exists already; choose a new folder.")
    parent = output.absolute().parent
    if not parent.is_dir():
        raise UserError(f"There is no folder {output.parent} to make {output.name} in; make it first.")
    with TemporaryDirectory(dir=parent, prefix=f".{output.name}-") as scratch:
        folder = Path(scratch) / "new"
        folder.mkdir()
        yield folder
        folder.rename(output)


__all__ = ["new_folder", "write_at_once", "write_results", "writing"]
