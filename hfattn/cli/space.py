"""The commands for the demos: ``hfattn space list | build | run | push``."""

from pathlib import Path
from typing import Annotated

import typer

from ..errors import UserError, one_sentence
from ..extras import require
from .common import Branch, Execute, Over, Private, PullRequest

space_app = typer.Typer(help="Build, serve and push the Gradio demos.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A demo, as hfattn space list names it.")]
Given = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="MODEL=DIR", help="A model of the demo: a folder, or an id on the Hub. Repeat it."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="MODEL.FIELD=VALUE", help="A field of what trains a small model. Repeat it."),
]


@space_app.command("list")
def list_spaces() -> None:
    """List the demos, and which models they show.

    Example: hfattn space list
    """
    with one_sentence():
        from ..resources import resource
        from ..spaces.building import space_names
        from ..spaces.settings import read_space

        for name in space_names():
            print(name)
            for model, settings in read_space(resource("spaces", name)).items():
                print(f"    {model:22} {settings.variable}, or {settings.recipe}/{settings.config}")


@space_app.command("build")
def build(
    name: Name,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to make; default: runs/spaces/NAME.")
    ] = None,
    model: Given = None,
    settings: Set = None,
) -> None:
    """Make the folder that is pushed: the demo, this package, and its models, trained small where none is given.

    Example: hfattn space build attention_lab --output runs/lab
    """
    with one_sentence():
        print(f"Built: {_built(name, output, model, settings)}")


@space_app.command("run")
def run(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A demo, or the folder of a built one.")],
    model: Given = None,
    settings: Set = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where it listens.")] = 7860,
    host: Annotated[str, typer.Option(help="0.0.0.0 lets other computers in.")] = "127.0.0.1",
) -> None:
    """Serve a demo on this computer, built in runs/spaces/NAME first if it is not there.

    Example: hfattn space run attention_lab
    """
    with one_sentence():
        require("spaces")
        from ..spaces.serving import serve
        from ..spaces.settings import SETTINGS

        folder = Path(name) if (Path(name) / SETTINGS).is_file() else Path("runs", "spaces", name)
        if not folder.is_dir():
            _built(name, None, model, settings)
        elif model or settings:
            raise UserError(f"{folder} is built already; remove it, or leave out --model and --set.")
        print(f"{folder} at http://{host}:{port}", flush=True)
        code = serve(folder, port, host)
    raise typer.Exit(code)


@space_app.command("push")
def push(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a built demo.")],
    repo_id: Annotated[str, typer.Argument(metavar="USER/NAME", help="The Space, which is made if need be.")],
    private: Private = False,
    branch: Branch = None,
    pr: PullRequest = False,
    over: Over = None,
    execute: Execute = False,
) -> None:
    """Check that a built demo starts, and push it to the Hub as one commit. Without --execute nothing is sent.

    Example: hfattn space push runs/spaces/attention_lab user/attention-lab
    """
    with one_sentence():
        require("spaces")
        from ..hub import PushOptions
        from ..spaces.serving import push_space

        print(push_space(folder, repo_id, PushOptions(private, branch, pr, over, execute)))


def _built(name: str, output: Path | None, model: list[str] | None, settings: list[str] | None) -> Path:
    from ..spaces.building import build_space

    if output is None:
        output = Path("runs", "spaces", name)
        output.parent.mkdir(parents=True, exist_ok=True)
    build_space(name, output, _pairs("--model", model), _pairs("--set", settings))
    return output


def _pairs(option: str, words: list[str] | None) -> dict[str, str]:
    for word in words or ():
        if "=" not in word:
            raise UserError(f"{option} {word} gives no value; write {option} NAME=VALUE.")
    return dict(word.split("=", 1) for word in words or ())


__all__ = ["space_app"]
