"""Errors that a user can fix, with a one-sentence message (the problem and its solution) and an exit code."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 130  # the exit code of a command that Ctrl-C ended, as shells have it


class UserError(ValueError):
    """Bad input. The message is one sentence; a command prints it without a traceback and exits with code 2."""

    exit_code = 2


class NonFiniteError(UserError):
    """A loss or a weight is NaN or infinite; a command exits with code 1."""

    exit_code = 1


@contextmanager
def one_sentence() -> Iterator[None]:
    """On bad input, an unreadable file or Ctrl-C, print one sentence without a traceback, and exit with a code."""
    try:
        yield
    except UserError as error:
        # All processes of a launch get the same bad input; one of them reports it.
        if isinstance(error, NonFiniteError) or os.environ.get("LOCAL_RANK", "0") == "0":
            print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt as interruption:
        print(str(interruption) or "Interrupted.", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except OSError as error:
        if error.filename is None:
            raise
        print(f"error: {error.filename}: {error.strerror}; check the path and its permissions.", file=sys.stderr)
        sys.exit(UserError.exit_code)


__all__ = ["INTERRUPTED", "NonFiniteError", "UserError", "one_sentence"]
