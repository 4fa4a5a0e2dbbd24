"""The command line ``hfattn``."""

from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .caption import caption
from .data import data_app
from .doctor import doctor
from .exchange import convert, export
from .inspect import inspect_code
from .prompt import prompt
from .publish import card, push, refresh, verify
from .recipes import recipes_app, soup, train
from .reproduce import reproduce
from .show import attend, show_app
from .space import space_app
from .tune import tune
from .use import classify, evaluate, generate, predict, score, search, translate
from .words import words_app

_UsageError: Any = typer.BadParameter.__base__  # typer exports only its subclass
_SHOWN = 400  # characters of the start and of the end of a message


class _Commands(TyperGroup):
    """The commands; a message about their arguments has a bounded length, also if an argument has not."""

    def invoke(self, context: Any) -> Any:
        try:
            return super().invoke(context)
        except _UsageError as error:
            if len(error.message) > 2 * _SHOWN:
                error.message = f"{error.message[:_SHOWN]} … {error.message[-_SHOWN:]}"
            raise


app = typer.Typer(
    cls=_Commands,
    help="Train, use, explain and publish attention and recurrent models in the Hugging Face ecosystem.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(version("hfattn"))
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


app.add_typer(recipes_app, name="recipes")
app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})(train)
app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})(tune)
app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})(prompt)
app.command()(predict)
app.command()(evaluate)
app.command()(generate)
app.command()(score)
app.command()(search)
app.command()(translate)
app.command()(caption)
app.command()(classify)
app.command()(attend)
app.add_typer(show_app, name="show")
app.command()(soup)
app.command()(card)
app.command()(verify)
app.command()(push)
app.command()(reproduce)
app.command()(refresh)
app.command("inspect")(inspect_code)
app.command()(convert)
app.command()(export)
app.add_typer(words_app, name="words")
app.add_typer(data_app, name="data")
app.add_typer(space_app, name="space")
app.command()(doctor)

__all__ = ["app"]
