"""Errors that a user can mend: one sentence that says what was wrong and what to do, and an exit code."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class UserError(ValueError):
    """Bad input. The message is one sentence; a command prints it without a traceback and exits with code 2."""

    exit_code = 2


class NonFiniteError(UserError):
    """Training met a loss or a weight that is not a finite number; a command exits with code 1."""

    exit_code = 1


@contextmanager
def one_sentence() -> Iterator[None]:
    """End the process with one sentence and an exit code on bad input or a file out of reach, without a traceback."""
    try:
        yield
    except UserError as error:
        # Every process of a launch meets the same bad input, and one of them says so.
        if isinstance(error, NonFiniteError) or os.environ.get("LOCAL_RANK", "0") == "0":
            print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.filename is None:
            raise
        print(f"error: {error.filename}: {error.strerror}; check the path and its permissions.", file=sys.stderr)
        sys.exit(UserError.exit_code)


__all__ = ["NonFiniteError", "UserError", "one_sentence"]
