"""The templates of cards, in ``model_cards/``."""

import math
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from ..resources import resource


class _Missing(StrictUndefined):
    """A field that is not given; it cannot be formatted either."""

    __format__ = StrictUndefined._fail_with_undefined_error


def template(name: str, **functions: Any) -> Template:
    """A template by the path of its file in ``model_cards/``; a field that it names and is not given is an error.

    Args:
        functions: others that it may call, beside ``interval`` and the filter ``cell``.
    """
    environment = Environment(
        loader=FileSystemLoader(resource("model_cards")),
        undefined=_Missing,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["cell"] = cell
    environment.globals.update(interval=interval, **functions)
    return environment.get_template(name)


def cell(text: Any) -> str:
    """Text as it can stand in a cell of a table."""
    return str(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def interval(share: float, n: int) -> str:
    """The 95 % confidence interval of a share of n independent trials.

    Wilson 1927: it stays within 0 and 1, and holds also for shares near these.
    """
    z = 1.959964
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return f"{max(0.0, middle - half):.4f} – {min(1.0, middle + half):.4f}"
