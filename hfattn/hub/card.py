"""Model cards, rendered from the results of a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard
from jinja2 import Environment, StrictUndefined

from ..resources import resource


def write_card(folder: Path, template: str, results: Mapping[str, Any]) -> None:
    """Render a template of ``model_cards/`` with the results of a run, as the folder's ``README.md``.

    Every number of the card is a field of ``results``; a field that the template names and the results lack is an
    error, never a blank.

    Args:
        folder: the model folder.
        template: name of the template, such as ``"char_lm"``.
        results: what ``results.json`` holds.

    Raises:
        jinja2.UndefinedError: a field is missing.
    """
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    text = environment.from_string(resource("model_cards", f"{template}.md").read_text(encoding="utf-8"))
    ModelCard(text.render(results)).save(folder / "README.md")
