"""Attention weights of a model, and the dependence of its answer on the input.

``cross_attention`` and ``self_attention`` read a text with a model and return an ``AttentionRecord``; ``alignment``
makes one from the outputs of a model. ``render_html``, ``plot_alignment``, ``plot_heads``, ``plot_flow`` and
``save_animation`` draw a record, ``rollout`` traces it through the layers, and ``summary`` measures it. ``saliency``
uses gradients instead of attention; it returns a ``ScoredText``, as do ``score_attention`` and ``score_unit``, which
``render_scores_html`` and ``plot_scores`` draw as a colored text. ``read_image``, ``image_attention`` and
``image_saliency`` do the same for images, which ``plot_overlay`` and ``render_image_html`` draw as heat maps.
"""

from ..models.alignment import AttentionRecord, alignment
from .animation import save_animation
from .images import (
    ImageReading,
    ScoredImage,
    caption_saliency,
    image_attention,
    image_saliency,
    read_captions,
    read_image,
    seen_image,
)
from .listing import render_text
from .numbers import (
    Agreement,
    agreement,
    alignment_error_rate,
    coverage,
    coverage_deviation,
    diagonality,
    effective_tokens,
    entropy,
    links,
    mean_distance,
    summary,
)
from .overlay import plot_overlay
from .page import render_comparison, render_html, render_image_html, render_list, save_html, save_image_html
from .plot import plot_alignment, plot_flow, plot_heads
from .reading import cross_attention, self_attention
from .rollout import rollout
from .saliency import METHODS, attribute, log_odds, saliency, saliency_rows
from .scored import (
    ScoredText,
    plot_rows,
    plot_scores,
    render_rows_html,
    render_rows_text,
    render_scores_html,
    render_scores_text,
    score_attention,
    score_tokens,
    scores_snippet,
    write_rows_csv,
)
from .sharing import attention_groups, layer_similarity
from .units import HiddenUnits, hidden_units, score_unit, strongest_unit, unit_states
from .words import hide_special, merge_words

__all__ = [
    "METHODS",
    "Agreement",
    "AttentionRecord",
    "HiddenUnits",
    "ImageReading",
    "ScoredImage",
    "ScoredText",
    "agreement",
    "alignment",
    "alignment_error_rate",
    "attention_groups",
    "attribute",
    "caption_saliency",
    "coverage",
    "coverage_deviation",
    "cross_attention",
    "diagonality",
    "effective_tokens",
    "entropy",
    "hidden_units",
    "hide_special",
    "image_attention",
    "image_saliency",
    "layer_similarity",
    "links",
    "log_odds",
    "mean_distance",
    "merge_words",
    "plot_alignment",
    "plot_flow",
    "plot_heads",
    "plot_overlay",
    "plot_rows",
    "plot_scores",
    "read_captions",
    "read_image",
    "render_comparison",
    "render_html",
    "render_image_html",
    "render_list",
    "render_rows_html",
    "render_rows_text",
    "render_scores_html",
    "render_scores_text",
    "render_text",
    "rollout",
    "saliency",
    "saliency_rows",
    "save_animation",
    "save_html",
    "save_image_html",
    "score_attention",
    "score_tokens",
    "score_unit",
    "scores_snippet",
    "seen_image",
    "self_attention",
    "strongest_unit",
    "summary",
    "unit_states",
    "write_rows_csv",
]
