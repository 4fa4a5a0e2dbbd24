"""The commands ``hfattn space``: list, build, run and push the demos."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from .common import (
    AsJson,
    Branch,
    Execute,
    Include,
    Message,
    Over,
    Private,
    PullRequest,
    Tag,
    name_value_pairs,
    one_sentence,
    print_plan,
)

space_app = typer.Typer(help="Build, run and push the Gradio demos.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a demo; hfattn space list shows them.")]
Given = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="MODEL=DIR", help="Model of the demo: a folder, or an id on the Hub. Repeatable."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="MODEL.FIELD=VALUE", help="Field of a recipe that trains a toy model."),
]


@space_app.command("list")
def list_spaces() -> None:
    """List the demos and their models, with the configurations that train them.

    Example: hfattn space list
    """
    with one_sentence():
        from hfattn.resources import resource
        from hfattn.spaces.building import space_names
        from hfattn.spaces.settings import read_space

        for name in space_names():
            print(name)
            for model, settings in read_space(resource("spaces", name)).items():
                print(f"    {model:18}hfattn train {settings.real}")
                print(f"{'':22}--model {model}=RUN or {settings.variable}; toy: {settings.recipe}/{settings.config}")


@space_app.command("build")
def build(
    name: Name,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to create; default: runs/spaces/NAME.")
    ] = None,
    model: Given = None,
    settings: Set = None,
) -> None:
    """Build the folder of a demo.

    The folder contains the demo, hfattn and the models. For models that you do not give, toys are trained.

    Example: hfattn space build attention_lab --output runs/lab
    """
    with one_sentence():
        print(f"Built: {_built(name, output, model, settings)}")


@space_app.command("run")
def run(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a demo, or folder of a built demo.")],
    model: Given = None,
    settings: Set = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 7860,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 accepts other computers.")] = "127.0.0.1",
) -> None:
    """Run a demo on this computer.

    If needed, it is built in runs/spaces/NAME first.

    Example: hfattn space run attention_lab
    """
    from hfattn.errors import UserError
    from hfattn.extras import require

    with one_sentence():
        require("spaces")
        from hfattn.spaces.serving import serve
        from hfattn.spaces.settings import SETTINGS

        folder = Path(name) if (Path(name) / SETTINGS).is_file() else Path("runs", "spaces", name)
        if not folder.is_dir():
            _built(name, None, model, settings)
        elif model or settings:
            raise UserError(f"{folder} is already built; remove it, or remove --model and --set.")
        code = serve(folder, port, host)
    raise typer.Exit(code)


@space_app.command("push")
def push(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a built demo.")],
    repo_id: Annotated[str, typer.Argument(metavar="USER/NAME", help="The Space, created if needed.")],
    private: Private = False,
    branch: Branch = None,
    pr: PullRequest = False,
    over: Over = None,
    message: Message = None,
    tag: Tag = None,
    include: Include = None,
    toy: Annotated[bool, typer.Option("--toy", help="Push a demo with toy models.")] = False,
    execute: Execute = False,
    as_json: AsJson = False,
) -> None:
    """Check a built demo and push it to the Hub.

    Without --execute, only show what would be uploaded.

    Example: hfattn space push runs/spaces/attention_lab user/attention-lab
    """
    from hfattn.extras import require

    with one_sentence():
        require("spaces")
        from hfattn.hub import PushOptions
        from hfattn.spaces.serving import push_space

        options = PushOptions(private, branch, pr, over, message, tag, tuple(include or ()), execute)
        print_plan(push_space(folder, repo_id, options, toy), as_json)


def _built(name: str, output: Path | None, model: list[str] | None, settings: list[str] | None) -> Path:
    from hfattn.files import made_parents
    from hfattn.spaces.building import build_space

    folder = output or Path("runs", "spaces", name)
    with contextlib.nullcontext() if output else made_parents(folder):
        models = build_space(name, folder, name_value_pairs("--model", model), name_value_pairs("--set", settings))
    if toys := [model for model, settings in models.items() if settings.toy]:
        print(
            f"Toy models: {', '.join(toys)}. For a real one: hfattn train {models[toys[0]].real} --output_dir "
            f"runs/mine, then hfattn space build {name} --model {toys[0]}=runs/mine"
        )
    return folder
