"""What the commands share: what they need, and what they refuse before any work."""

import importlib.util
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import UserError

Model = Annotated[str, typer.Argument(metavar="DIR", help="Model folder, or the id of a model on the Hub.")]


def require(*modules: str, extra: str = "recipes") -> None:
    """Make sure that the modules of an extra are there.

    Raises:
        UserError: one is missing; it names the first, and the extra that brings it.
    """
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise UserError(f"This command needs {name}, which is not installed; run: pip install 'hfattn[{extra}]'")


def require_text(*texts: str) -> None:
    if not all(text.strip() for text in texts):
        raise UserError("A text is empty; give at least one character.")


def require_vocabulary(tokenizer: Any, *texts: str) -> None:
    from ..tokenizers import uncovered_characters

    for text in texts:
        if missing := uncovered_characters(tokenizer, text):
            raise UserError(f"The text holds {missing[0]!r}, which is not in the model's vocabulary; leave it out.")


def check_output(path: Path, kinds: tuple[str, ...] = (".html", ".png", ".svg", ".pdf")) -> None:
    """Say before any work what would keep a picture from being written."""
    if path.suffix.lower() not in kinds:
        known = f"{', '.join(kinds[:-1])} or {kinds[-1]}"
        raise UserError(f"{path} is no picture that can be drawn; end its name with {known}.")
    if not path.parent.is_dir():
        raise UserError(f"There is no folder {path.parent} to write {path.name} into; make it first.")
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the name of a file.")
    if path.suffix.lower() != ".html":
        require("matplotlib")
