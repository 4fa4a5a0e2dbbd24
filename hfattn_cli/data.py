"""The commands ``hfattn data``: show what is in a dataset, write generated datasets to folders, and publish them."""

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

data_app = typer.Typer(
    help="Show what is in a dataset; write generated datasets to folders, and publish them.", no_args_is_help=True
)


@data_app.command("make")
def make(
    name: Annotated[str, typer.Argument(help="dates, phrases, opinions, reber, listops, duplicate or recall.")],
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


@data_app.command("show", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def show_data(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG_OR_DATA",
            help="Configuration, or a file, a folder or the id of a dataset with labeled texts, prompts or messages.",
        ),
    ],
) -> None:
    """Show what is in a dataset, and which fields deal with what is wrong in it. Overrides may follow.

    The data are not changed.

    Example: hfattn data show tickets.csv --data.text_column message --data.label_column intent
    """
    from hfattn.extras import require

    with one_sentence():
        require("recipes")
        import yaml

        from hfattn.data import form_of, open_rows
        from hfattn.data.report import describe_text
        from hfattn.loading import load_tokenizer
        from hfattn.resources import find_configuration, load_recipe, resource
        from hfattn.training import FineTuningConfig, load_config
        from hfattn.training.config import checked, split_overrides

        named = source.endswith((".yaml", ".yml")) or (resource("recipes") / f"{source}.yaml").is_file()
        if not named:
            fields = {
                name.removeprefix("data."): yaml.safe_load(value) for name, value in split_overrides(context.args)
            }
            columns = ("messages", "prompt", "completion")
            place = {name: fields[name] for name in ("config", "revision") if name in fields}
            rows = open_rows(source, split=fields.get("hub_split", "train"), **place)
            form = form_of(rows, *(fields.get(f"{name}_column", name) for name in columns))
            name = "classification" if form == "text" or "label_column" in fields else "causal_lm"
            recipe = load_recipe(resource("recipes", name, "train.py"))
            print(checked(recipe.DataConfig, {**fields, "dataset": source}, prefix="data.").report())
            return
        found = find_configuration(source)
        recipe = load_recipe(found.script)
        config = load_config(recipe.Config, found.path, context.args)
        data = config.data
        if recipe.RECIPE == "char_lm":
            print(describe_text(data.open_text(), data.split, config.tokenizer.unknown))
            return
        tokenizer = None
        pretrained = config.model if isinstance(config, FineTuningConfig) else getattr(config, "pretrained", None)
        if data.is_own and recipe.RECIPE == "causal_lm":
            if data.form_of(*data.places()["train"]) != "text":
                tokenizer = recipe.open_tokenizer(config, chat=True)
        elif data.is_own and pretrained is not None:
            tokenizer = load_tokenizer(pretrained)
        print(data.report(tokenizer=tokenizer, languages=config.card.language))
