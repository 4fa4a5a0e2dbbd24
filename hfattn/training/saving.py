"""Writing on a disk that may be full."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from ..errors import UserError

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


__all__ = ["writing"]
