"""The commands ``hfattn data``: write generated datasets to folders, and publish them."""

from pathlib import Path
from typing import Annotated

import typer

from .common import (
    AsJson,
    Branch,
    Execute,
    Include,
    Message,
    NewFolder,
    Over,
    Private,
    PullRequest,
    Tag,
    one_sentence,
    print_plan,
)

data_app = typer.Typer(help="Write the generated datasets to folders, and publish them.", no_args_is_help=True)


@data_app.command("make")
def make(
    name: Annotated[str, typer.Argument(help="dates, phrases, opinions or reber.")],
    output: NewFolder,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Rows of the training split; default: as many as the recipe uses.")
    ] = None,
    evaluation_rows: Annotated[
        int | None, typer.Option(min=1, help="Rows of each other split; default: as the recipe.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed; the same seed gives the same rows.")] = 1,
) -> None:
    """Write a generated dataset and its card to a folder.

    load_dataset, the recipes and hfattn data push read this folder.

    Example: hfattn data make dates --output dates --rows 100
    """
    from hfattn.extras import require

    with one_sentence():
        require("recipes")
        from hfattn.hub.data_sets import make_data_set

        make_data_set(name, output, rows, evaluation_rows, seed)
        print(f"Written: {output}. To see what publishing would send, run: hfattn data push {output} USER/NAME")


@data_app.command("push")
def push_data(
    folder: Annotated[Path, typer.Argument(help="Folder of a dataset with its card.")],
    repo_id: Annotated[str, typer.Argument(metavar="USER/NAME", help="The repository, created if needed.")],
    private: Private = False,
    branch: Branch = None,
    pr: PullRequest = False,
    over: Over = None,
    message: Message = None,
    tag: Tag = None,
    include: Include = None,
    execute: Execute = False,
    as_json: AsJson = False,
) -> None:
    """Push a dataset folder to the Hub.

    Without --execute, only show what would be uploaded. The upload is one commit.

    Example: hfattn data push dates user/dates
    """
    from hfattn.errors import UserError

    with one_sentence():
        from hfattn.hub import PushOptions, push

        if not (folder / "README.md").is_file():
            raise UserError(f"{folder} has no README.md, the card of a dataset; write one with hfattn data make.")
        options = PushOptions(private, branch, pr, over, message, tag, tuple(include or ()), execute)
        print_plan(push(folder, repo_id, options, repo_type="dataset"), as_json)
