"""Load the templates of cards in ``model_cards/``."""

import json
import math
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, pass_context
from jinja2.runtime import Context

from ..resources import resource


class _Missing(StrictUndefined):
    """A field that is missing; formatting it is an error too."""

    __format__ = StrictUndefined._fail_with_undefined_error


def template(name: str, **functions: Any) -> Template:
    """Load a template by its path in ``model_cards/``; a missing field is an error when it is rendered.

    Args:
        functions: further functions for the template, besides ``interval``, ``picture`` and the filters ``cell`` and
            ``literal``.
    """
    environment = Environment(
        loader=FileSystemLoader(resource("model_cards")),
        undefined=_Missing,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"cell": cell, "literal": literal}
    environment.globals.update(interval=interval, picture=picture, **functions)
    return environment.get_template(name)


@pass_context
def picture(context: Context, alternative: str, file: str) -> str:
    """Return the Markdown of a picture; nothing if the end of the run could not draw it."""
    return "" if file in context.get("unfinished", {}) else f"![{cell(alternative)}]({file})"


def cell(text: Any) -> str:
    """Escape text for a cell of a Markdown table."""
    return str(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def literal(value: Any) -> str:
    """Return a text, or a list of texts, as a literal of Python and of YAML; characters that do not print are escaped.

    JSON is not enough: it writes 😀 as two surrogates, which Python and YAML do not join.
    """
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in quoted)


def interval(share: float, n: int) -> str:
    """Return the 95% confidence interval of a proportion in n independent trials.

    This is the score interval of Wilson (1927), which stays within 0 and 1 and is accurate near them.
    """
    z = 1.959964
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return f"{max(0.0, middle - half):.4f} – {min(1.0, middle + half):.4f}"
