"""The command ``reproduce``."""

import json
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from .common import AsJson, Places, Sign, name_value_pairs, one_sentence
from .recipes import run_training


def reproduce(
    name: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a finished run, or USER/NAME on the Hub.")],
    data: Places = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Another place of what the run read, such as model.name=DIR; may be repeated.",
        ),
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option("--output_dir", help="New folder to keep the second run in; default: it is deleted.")
    ] = None,
    open_pr: Annotated[
        bool, typer.Option("--open-pr", help="Propose the result to the repository, as a file in .reproductions/.")
    ] = False,
    sign: Sign = None,
    as_json: AsJson = False,
) -> None:
    """Train a recorded run again, and compare weights and scores with the record.

    The exit code is 0 if it is reproduced bit for bit, 3 if its scores are within the tolerance that the report states,
    1 if it is not reproduced, and 2 if it could not be trained.

    The recipe is that of the installed hfattn, with the recorded configuration; no code of the folder is run. The
    report names versions and hardware that are not as recorded. Data that are not part of hfattn are read only from
    places that you name.

    With --sign, the file that --open-pr proposes has a signature beside it.

    Example: hfattn reproduce runs/dates
    """
    from hfattn.errors import UserError
    from hfattn.extras import require

    with one_sentence():
        require("recipes")
        from hfattn.files import new_folder
        from hfattn.hub.fetching import current_commit, model_files
        from hfattn.hub.manifest import LEFT_OUT
        from hfattn.hub.signing import check_key, read_key
        from hfattn.hub_access import local_path
        from hfattn.reproduction import (
            EXIT_CODES,
            check_statement,
            compare,
            plan_reproduction,
            propose_statement,
            train_again,
        )

        is_local = local_path(name) is not None
        if open_pr and is_local:
            raise UserError("--open-pr proposes the result to a repository; give its id in place of the folder.")
        key = read_key(sign)
        if key is not None:
            if not open_pr:
                raise UserError("--sign signs what --open-pr proposes; add --open-pr.")
            check_key(key)
        account = check_statement(name) if open_pr else ""
        commit = None if is_local else current_commit(name)
        with model_files(name, commit) as (folder, downloaded):
            plan = plan_reproduction(folder, data or [], name_value_pairs("--set", settings))

            def shown(text: object) -> str:
                return str(text).replace(str(folder), name) if downloaded else str(text)

            print(shown(plan), file=sys.stderr, flush=True)
            with (
                nullcontext() if output_dir is None else new_folder(output_dir) as kept,
                TemporaryDirectory(prefix="hfattn-") as scratch,
            ):
                # The run records the name of its folder.
                again = Path(scratch) / ("run" if output_dir is None else output_dir.name)
                seconds = train_again(plan, again, lambda words, more: run_training(words, sys.stderr, more))
                result = compare(plan, again, seconds)
                if kept is not None:
                    shutil.copytree(again, kept, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True)
            print(json.dumps(result.to_dict(), indent=2, ensure_ascii=False) if as_json else shown(result), flush=True)
            if commit is not None and open_pr:
                print(f"Proposed: {propose_statement(name, commit, account, result, key)}", file=sys.stderr)
    raise typer.Exit(EXIT_CODES[result.verdict])
