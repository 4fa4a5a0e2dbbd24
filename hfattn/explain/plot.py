"""A record of attention as a heat map for a paper or a slide."""

import importlib.util
from typing import TYPE_CHECKING

from ..errors import UserError
from ..models.alignment import AttentionRecord
from .labels import label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CELL, _SMALLEST_CELL, _LONGEST_SIDE = 0.3, 0.13, 24.0  # inches
_LONGEST_LABEL = 24  # characters
# Fonts that hold what matplotlib's own does not; those that are installed are tried in turn, glyph by glyph.
_FONTS = (
    "DejaVu Sans",
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Noto Sans JP",
    "Noto Sans SC",
    "Hiragino Sans",
    "PingFang SC",
    "Yu Gothic",
    "Microsoft YaHei",
    "Malgun Gothic",
    "WenQuanYi Zen Hei",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
    "Arial Unicode MS",
)


def plot_alignment(
    record: AttentionRecord, *, layer: int | None = None, head: int | None = None, title: str | None = None
) -> "Figure":
    """Draw the weights: a row for each token that attends, a column for each that is attended to.

    Args:
        record: at least one token on either side.
        layer, head: which of the record's; None is the mean over all.
        title: a line above.

    Returns:
        A matplotlib figure, for ``figure.savefig("map.png")``, ``.svg`` or ``.pdf``. It is not registered with pyplot,
        so that nothing has to be closed.

    Raises:
        ValueError: the record has no token on one side, or no such layer or head.
        UserError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError("Pictures need matplotlib, which is not installed; run: pip install 'hfattn[recipes]'")
    from matplotlib.figure import Figure
    from matplotlib.font_manager import fontManager

    if not record.tokens or not record.target_tokens:
        raise ValueError("This record has no tokens on one side, so there is nothing to show; choose a longer text.")
    matrix = record.matrix(layer, head).float()
    rows, columns = ([label(token, _LONGEST_LABEL) for token in side] for side in (record.target_tokens, record.tokens))
    cell = min(_CELL, max(_SMALLEST_CELL, _LONGEST_SIDE / max(matrix.shape)))
    size = cell * 72 * (0.62 if cell < _CELL else 0.5)  # points
    character = 0.65 * size / 72  # inches, about
    upright = max(map(len, columns)) <= 2

    figure = Figure(figsize=(cell * len(columns) + 2, cell * len(rows) + 2), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(matrix, cmap="cividis", vmin=min(0.0, matrix.min().item()), aspect="equal")
    installed = set(fontManager.get_font_names())
    style = {
        "fontfamily": [name for name in _FONTS if name in installed],
        "fontsize": size,
        "parse_math": False,  # a token may well spell "$x"
    }
    axes.set_xticks(range(len(columns)), columns, rotation=0 if upright else 90, **style)
    axes.set_yticks(range(len(rows)), rows, **style)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    axes.set_xticks([x - 0.5 for x in range(1, len(columns))], minor=True)
    axes.set_yticks([y - 0.5 for y in range(1, len(rows))], minor=True)
    axes.grid(which="minor", color="white", linewidth=0.4 if cell < _CELL else 0.8)
    axes.tick_params(which="minor", length=0, top=False)
    bar = figure.colorbar(image, ax=axes, label="weight", shrink=min(1.0, 4 / (cell * len(rows))), pad=0.02)
    bar.outline.set_visible(False)
    if title is not None:
        axes.set_title(title, parse_math=False, fontfamily=style["fontfamily"], wrap=True)
    # Room for the longest labels, which are known only now.
    width = cell * len(columns) + character * max(map(len, rows)) + 1.4
    height = cell * len(rows) + (character * max(map(len, columns)) if not upright else 0.2) + 0.5
    figure.set_size_inches(max(width, 3), max(height, 2.2))
    return figure


__all__ = ["plot_alignment"]
