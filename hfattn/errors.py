"""Errors that a user can fix, with a one-sentence message (the problem and its solution) and an exit code."""

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

_LONGEST = 1000  # characters of a message; a value of any length may be part of it
INTERRUPTED = 130  # the exit code of a command that Ctrl-C ended, as shells have it
_WAIT = 30  # seconds in which the first process of a launch can report an error that all of them have


class UserError(ValueError):
    """Bad input. The message is one sentence; a command prints it without a traceback and exits with code 2."""

    exit_code = 2


class NonFiniteError(UserError):
    """A loss or a weight is NaN or infinite; a command exits with code 1."""

    exit_code = 1


class UnfinishedError(UserError):
    """A training ended, but a file of its folder could not be written; a command exits with code 1."""

    exit_code = 1


@contextmanager
def one_sentence() -> Iterator[None]:
    """On bad input, an unreadable file, too little memory or Ctrl-C, print one sentence, not a traceback, and exit."""
    try:
        yield
    except UserError as error:
        # Usually all processes of a launch have the same error, and the first one reports it. The launcher stops all
        # when one ends, so the others wait for that report; one that is still running then had an error of its own.
        if os.environ.get("LOCAL_RANK", "0") != "0":
            time.sleep(_WAIT)
        print(f"error: {_one_line(str(error))}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt as interruption:
        print(str(interruption) or "Interrupted.", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except OSError as error:
        if error.filename is None:
            raise
        reason = f"{error.filename}: {error.strerror}; check the path and its permissions."
        print(f"error: {_one_line(reason)}", file=sys.stderr)
        sys.exit(UserError.exit_code)
    except RuntimeError as error:
        asked = re.search(r"tried to allocate ([\d.]+ \w+)", str(error), re.IGNORECASE)  # as torch says it
        if asked is None:
            raise
        advice = "use smaller batches, shorter texts or fewer beams"
        print(f"error: The memory is not enough: {asked[1]} more were asked for; {advice}.", file=sys.stderr)
        sys.exit(1)


def _one_line(message: str) -> str:
    """Return a message in one line, without characters that a terminal does not show, and without its middle if long.

    A part of a message may be a name or a value that the user wrote, with line breaks and control characters.
    """
    line = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in re.sub(r"\s*\n\s*", " ", message)
    )
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} … {line[-_LONGEST // 2 :]}"


__all__ = ["INTERRUPTED", "NonFiniteError", "UnfinishedError", "UserError", "one_sentence"]
