"""Folders that are there whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ..errors import UserError


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


__all__ = ["new_folder"]
