"""A record of attention as a page to read with a mouse, a finger or the arrow keys."""

import html
import json
import re
from importlib.resources import files
from pathlib import Path

from ..models.alignment import AttentionRecord

# What would end the script element that holds the data, or a line of it in an old browser, written as JSON allows.
_ESCAPES = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


def render_html(record: AttentionRecord, title: str | None = None) -> str:
    """One self-contained page: two lines of text that light each other up, and the heat map beside them.

    It loads nothing and runs from a file. Weights are rounded to four digits. A reader chooses layer and head where
    there are several, and sees their mean at first.

    Args:
        record: at least one token on either side.
        title: heading of the page; default "Alignment", or "Self-attention".

    Raises:
        ValueError: the record has no token on one side, or a weight that is not a number.
    """
    if not record.tokens or not record.target_tokens:
        raise ValueError("This record has no tokens on one side, so there is nothing to show; choose a longer text.")
    if not record.weights.isfinite().all():
        raise ValueError("This record holds weights that are no finite numbers; look for their cause in the model.")
    if title is None:
        title = "Alignment" if record.kind == "cross" else "Self-attention"
    weights = [[[[float(f"{w:.4g}") for w in row] for row in m] for m in layer] for layer in record.weights.tolist()]
    data = json.dumps({**record.to_dict(), "weights": weights}, separators=(",", ":"))
    template = files(__package__).joinpath("alignment.html").read_text(encoding="utf-8")
    pieces = {"title": html.escape(title), "record": data.translate(_ESCAPES)}
    # One pass over the template: what a token spells is never taken for a place to fill.
    return re.sub("@(title|record)@", lambda match: pieces[match[1]], template)


def save_html(record: AttentionRecord, path: str | Path, title: str | None = None) -> None:
    """Write the page of ``render_html`` to a file."""
    page = render_html(record, title)
    Path(path).write_text(page, encoding="utf-8")


__all__ = ["render_html", "save_html"]
