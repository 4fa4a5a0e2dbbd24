"""What a model attended to: records of its attention, and pictures of them.

``alignment`` makes a record of what a model returned; ``render_html`` and ``plot_alignment`` draw any record.
"""

from ..models.alignment import AttentionRecord, alignment
from .listing import render_text
from .page import render_html, save_html
from .plot import plot_alignment
from .units import HiddenUnits, hidden_units, unit_states

__all__ = [
    "AttentionRecord",
    "HiddenUnits",
    "alignment",
    "hidden_units",
    "plot_alignment",
    "render_html",
    "render_text",
    "save_html",
    "unit_states",
]
