"""A record of attention as a page in a file."""

from pathlib import Path

from ..models.alignment import AttentionRecord
from ..models.alignment_page import render_html


def save_html(record: AttentionRecord, path: str | Path, title: str | None = None) -> None:
    """Write the page of ``render_html`` to a file."""
    page = render_html(record, title)
    Path(path).write_text(page, encoding="utf-8")


__all__ = ["save_html"]
