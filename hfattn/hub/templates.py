"""Load the templates of cards in ``model_cards/``."""

import json
import math
import re
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
        functions: further functions for the template, besides ``interval``, ``page`` and ``picture``, and the filters
            ``plain``, ``code``, ``fence`` and ``literal``.
    """
    environment = Environment(
        loader=FileSystemLoader(resource("model_cards")),
        undefined=_Missing,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"code": code, "fence": fence, "literal": literal, "plain": plain}
    environment.globals.update(interval=interval, page=page, picture=picture, **functions)
    return environment.get_template(name)


@pass_context
def picture(context: Context, alternative: str, file: str) -> str:
    """Return the Markdown of a picture; nothing if the end of the run could not draw it."""
    return "" if file in context.get("unfinished", {}) else f"![{plain(alternative)}]({file})"


@pass_context
def page(context: Context, name: str) -> str:
    """Return a link to the page beside the picture of an attention record; nothing if it could not be drawn."""
    return "" if f"{name}.png" in context.get("unfinished", {}) else f"[Interactive page]({name}.html)"


def plain(text: Any) -> str:
    """Return text on one line, with escapes that make Markdown and HTML show it as it is.

    Nothing in it becomes an image, a link, an element or a formula, in or outside a table.
    """
    escaped = re.sub(r"[\\`*_\[\]|!#~$]|^[-+=]|^\d+(?=[.)](?: |$))", r"\\\g<0>", _line(text))
    escaped = re.sub(r"^\\(\d+)", r"\1\\", escaped)  # of "1." the period is escaped
    escaped = re.sub(r"&(?=\\?#?\w+;)", "&amp;", escaped).replace("<", "&lt;").replace(">", "&gt;")
    # Sites make links of bare addresses too, unless something stands inside them.
    return re.sub(r"(?i)\b(https?|ftp|mailto|xmpp)(?=:)|\bwww(?=\.)|(?<=\w)(?=@\w)", r"\g<0><!-- -->", escaped)


def _line(text: Any) -> str:
    return " ".join("".join(each if each.isprintable() else " " for each in str(text)).split())


def code(text: Any) -> str:
    """Return text on one line as a code span of Markdown, also for a cell of a table."""
    line = _line(text)
    if not line:
        return ""
    marks = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    space = " " if "`" in line else ""
    return f"{marks}{space}{line}{space}{marks}".replace("|", "\\|")


def fence(text: Any, language: str = "text") -> str:
    """Return text as a block of code, between fences that are longer than those in the text."""
    marks = "`" * max(4, 1 + max(map(len, re.findall("`+", str(text))), default=0))
    return f"{marks}{language}\n{text}{'' if str(text).endswith(chr(10)) else chr(10)}{marks}"


def literal(value: Any) -> str:
    """Return a text, or a list of texts, as a literal of Python and of YAML; characters that do not print are escaped.

    JSON is not enough: it writes 😀 as two surrogates, which Python and YAML do not join.
    """
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in quoted)


def interval(share: float, n: int) -> str:
    """Return ``interval_of`` as text."""
    least, most = interval_of(share, n)
    return f"{least:.4f} – {most:.4f}"


def interval_of(share: float, n: int) -> tuple[float, float]:
    """Return the 95% confidence interval of a proportion in n independent trials.

    This is the score interval of Wilson (1927), which stays within 0 and 1 and is accurate near them.
    """
    z = 1.959964
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, middle - half), min(1.0, middle + half)
