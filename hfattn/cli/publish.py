"""The commands that take a finished run to the Hub: ``card``, ``verify``, ``push``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ..errors import one_sentence

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a finished run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for a program to read.")]


def card(folder: Folder) -> None:
    """Write the model card of a finished run anew, from its results.json: its code is run, and what it prints is in it.

    Example: hfattn card runs/dates
    """
    with one_sentence():
        from ..hub import write_again

        write_again(folder)
        print(f"Written: {folder / 'README.md'}")


def verify(folder: Folder, as_json: AsJson = False) -> None:
    """Load a model folder as a stranger would, where hfattn is not and no network; exit code 1 if anything is wrong.

    The code that the folder brings along is run, as trust_remote_code=True runs it. Looked at: files and their hashes,
    pickles, tokens and paths of this computer, the card's numbers and its code, weights, ties, logits, generation,
    tokenizer, pipeline.

    Example: hfattn verify runs/dates
    """
    with one_sentence():
        from ..hub import verify as verify_folder

        report = verify_folder(folder)
        print(json.dumps(report.to_dict(), indent=2, ensure_ascii=False) if as_json else report)
    if not report.passed:
        raise typer.Exit(1)


def push(
    folder: Folder,
    repo_id: Annotated[str, typer.Argument(metavar="USER/NAME", help="The repository, which is made if need be.")],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository that only its owner sees.")] = False,
    branch: Annotated[str | None, typer.Option(help="Of the repository, made if need be; default: main.")] = None,
    pr: Annotated[bool, typer.Option("--pr", help="Propose the commit as a pull request.")] = False,
    over: Annotated[
        str | None, typer.Option(metavar="COMMIT", help="The commit of somebody else that may be replaced.")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Send it; without this, only show what would be sent.")
    ] = False,
) -> None:
    """Verify a model folder and push it to the Hub as one commit. Without --execute nothing is sent.

    Example: hfattn push runs/dates user/dates
    """
    with one_sentence():
        from ..hub import push as push_folder

        print(push_folder(folder, repo_id, private=private, branch=branch, pr=pr, over=over, execute=execute))
