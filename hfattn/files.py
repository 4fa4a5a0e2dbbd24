"""Write files and folders completely or not at all, also on a full disk."""

import contextlib
import errno
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors import SafetensorError

from .errors import UserError

LARGEST_JSON = 2**26  # bytes; lists without values take twenty times as much memory
_NOT_UTF8 = re.compile("[\ud800-\udfff]")  # half of a surrogate pair, which JSON can contain, is not a character
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no space, quota exceeded, file too large


@contextmanager
def writing(folder: str | Path, advice: str = "free some space and continue with --resume") -> Iterator[None]:
    """Convert errors of a full disk, raised by any library that writes to ``folder``, to a one-sentence error.

    Raises:
        UserError: the disk is full; the folder may be incomplete.
    """
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        if not is_full(error):
            raise
        raise UserError(f"The disk is full: {folder} is incomplete; {advice}.") from error


def is_full(error: BaseException | None) -> bool:
    """Return whether an error, or the one that caused it, is that of a full disk."""
    if isinstance(error, UserError):
        return is_full(error.__cause__)
    if isinstance(error, OSError):
        return error.errno in _FULL
    if isinstance(error, SafetensorError):
        return any(f"os error {code}" in str(error) for code in _FULL)
    # torch.save does not raise a more specific error.
    return isinstance(error, RuntimeError) and any(
        words in str(error) for words in ("inline_container", "iostream error")
    )


def write_at_once(path: Path, text: str) -> None:
    """Write a file under a temporary name, and rename it when it is complete.

    Raises:
        UserError: the disk is full.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        with writing(path.parent):
            part.write_text(text, encoding="utf-8")
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def is_not_utf8(text: str) -> bool:
    """Return whether a text has half of a surrogate pair, or a byte that Python could not decode."""
    return _NOT_UTF8.search(text) is not None


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file with ``write_at_once``."""
    text = json.dumps(content, indent=2, ensure_ascii=False)
    text = _NOT_UTF8.sub(lambda half: f"\\u{ord(half[0]):04x}", text)
    write_at_once(path, f"{text}\n")


def read_json(path: Path) -> Any:
    """Return the value of a JSON file.

    Raises:
        UserError: the file does not exist, is not UTF-8, is not JSON, is nested too deeply, or is larger than 64 MiB.
    """
    if path.is_file() and path.stat().st_size > LARGEST_JSON:
        raise UserError(f"{path} has more than {LARGEST_JSON // 2**20} MiB, too much for it; copy it again.")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path} was not found; give a folder that is complete.") from None
    except RecursionError:
        raise UserError(f"{path} is not valid JSON: its values are nested too deeply.") from None
    except ValueError as error:  # not JSON, not UTF-8, or a number with more digits than Python converts
        raise UserError(f"{path} is not valid JSON: {' '.join(str(error).split())}.") from None


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file.

    Raises:
        UserError: as ``read_json``, or the value is not an object.
    """
    content = read_json(path)
    if not isinstance(content, dict):
        raise UserError(f"{path} is not an object of fields; write {{...}}.")
    return content


@contextmanager
def made_parents(path: Path) -> Iterator[None]:
    """Create the missing parents of a path; if an error follows, remove those again that are empty."""
    missing = [parent for parent in path.absolute().parents if not os.path.lexists(parent)]
    path.absolute().parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for parent in missing:
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """Provide a temporary folder to write to, which is renamed to ``output`` at the end.

    Raises:
        UserError: ``output`` exists, or its parent does not.
    """
    if os.path.lexists(output):
        raise UserError(f"{output} exists already; choose a new folder.")
    parent = output.absolute().parent
    if not parent.is_dir():
        raise UserError(f"The folder {output.parent} does not exist; create it first.")
    with TemporaryDirectory(dir=parent, prefix=f".{output.name}-") as scratch:
        folder = Path(scratch) / "new"
        folder.mkdir()
        yield folder
        folder.rename(output)
