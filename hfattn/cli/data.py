"""The commands ``hfattn data``: generated data sets, made and published."""

from pathlib import Path
from typing import Annotated

import typer

from ..errors import UserError, one_sentence
from ..extras import require

data_app = typer.Typer(help="Make the generated data sets, and publish them.", no_args_is_help=True)


@data_app.command("make")
def make(
    name: Annotated[str, typer.Argument(help="dates, phrases, opinions or reber.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to make.")],
    rows: Annotated[
        int | None, typer.Option(min=1, help="To train on; default: as many as the recipe's own configuration takes.")
    ] = None,
    evaluation_rows: Annotated[int | None, typer.Option(min=1, help="In each other split; default: likewise.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the draw: the same seed, the same rows.")] = 1,
) -> None:
    """Draw a data set into a folder with a card, for load_dataset, the recipes and hfattn data push.

    Example: hfattn data make dates --output dates --rows 100
    """
    with one_sentence():
        require("recipes")
        from ..hub.data_sets import make_data_set

        make_data_set(name, output, rows, evaluation_rows, seed)
        print(f"Written: {output}. See what publishing it would send with: hfattn data push {output} USER/NAME")


@data_app.command("push")
def push_data(
    folder: Annotated[Path, typer.Argument(help="Folder of a data set with its card.")],
    repo_id: Annotated[str, typer.Argument(metavar="USER/NAME", help="Where on the Hub.")],
    private: Annotated[bool, typer.Option("--private", help="A new repository is one that only you see.")] = False,
    branch: Annotated[str | None, typer.Option(help="Of the repository; default: main.")] = None,
    pr: Annotated[bool, typer.Option("--pr", help="Propose it as a pull request.")] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Send it; without this it is only shown.")] = False,
    over: Annotated[str | None, typer.Option(help="Commit that may be overwritten though it is not yours.")] = None,
) -> None:
    """Publish a data set as one commit; without --execute only show what would be sent.

    Example: hfattn data push dates user/dates
    """
    with one_sentence():
        from ..hub.push import push

        if not (folder / "README.md").is_file():
            raise UserError(f"{folder} has no README.md, which is a data set's card; make one with hfattn data make.")
        print(
            push(
                folder, repo_id, repo_type="dataset", private=private, branch=branch, pr=pr, execute=execute, over=over
            )
        )
