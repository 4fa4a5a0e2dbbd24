"""The command ``hfattn inspect``."""

from typing import Annotated

import typer

from ..errors import one_sentence
from .common import Model


def inspect_code(
    model: Model,
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit of a model on the Hub; default: main.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
) -> None:
    """Show what code a model would run under trust_remote_code, and run none of it; exit code 1 if any is unusual.

    Unusual is what a model needs rarely and an attack often, each with its line. Whoever hides code with care can still
    hide it: read what is shown before you trust it. Of a model on the Hub only small text files are fetched.

    Example: hfattn inspect runs/dates
    """
    with one_sentence():
        from ..hub.inspection import inspect

        inspection = inspect(model, revision)
    print(inspection.json() if json else inspection)
    if inspection.findings:
        raise typer.Exit(1)
