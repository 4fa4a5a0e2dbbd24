"""The interactive page of an attention record: its HTML, style and script, and the code that fills them."""

from .render import render_comparison, render_html, render_list, save_html

__all__ = ["render_comparison", "render_html", "render_list", "save_html"]
