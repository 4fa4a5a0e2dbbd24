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
    """Show the code of a model without running it.

    This is the code that trust_remote_code=True would run. The exit code is 1 if there are findings.

    A finding is code that models rarely need and attacks often use, with its line. Carefully hidden code can escape
    detection, so read the files before you trust them. From the Hub only small text files are downloaded.

    Example: hfattn inspect runs/dates
    """
    with one_sentence():
        from hfattn.hub.inspection import inspect

        inspection = inspect(model, revision)
    print(inspection.json() if as_json else inspection)
    if inspection.findings:
        raise typer.Exit(1)
