"""The command ``hfattn inspect``."""

from typing import Annotated

import typer

from .common import AsJson, Model, one_sentence


def inspect_code(
    model: Model,
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit of a model on the Hub; default: main.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the code of a model without running it, and say which of it is known.

    This is the code that trust_remote_code=True would run. The exit code is 0 if each code file is byte for byte one of
    a release of hfattn or of this installation, 3 if code is unknown, and 1 if there are findings; 2 means that the
    model could not be read.

    A finding is a line of unknown code with a name that is not on a list of harmless ones or cannot be followed, or a
    file that cannot be read. Unknown code without findings can still be harmful. From the Hub only small text files are
    downloaded.

    Example: hfattn inspect runs/dates
    """
    with one_sentence():
        from hfattn.hub.inspection import inspect

        inspection = inspect(model, revision)
    print(inspection.json() if as_json else inspection)
    if inspection.exit_code:
        raise typer.Exit(inspection.exit_code)
