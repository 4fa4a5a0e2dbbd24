"""The interactive pages of attention records: their HTML, style and scripts, and the code that fills them."""

from .image import render_image_html, save_image_html
from .render import render_comparison, render_html, render_list, save_html

__all__ = [
    "render_comparison",
    "render_html",
    "render_image_html",
    "render_list",
    "save_html",
    "save_image_html",
]
