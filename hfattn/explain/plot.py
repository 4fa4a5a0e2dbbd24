"""A record of attention as a heat map for a paper or a slide."""

from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..models.alignment import AttentionRecord
from ..models.alignment_page import check_drawable
from .labels import label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CELL, _SMALLEST_CELL, _LONGEST_SIDE, _MARGIN = 0.3, 0.13, 24.0, 0.12  # inches
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


def installed_fonts() -> list[str]:
    """Families to write any text in, for ``fontfamily``: each glyph is taken from the first that has it."""
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return [name for name in _FONTS if name in installed]


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
        ValueError: the record has no token on one side, or no such layer or head, or a
            weight that is no finite number.
        UserError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        message = "Pictures need matplotlib, which is not installed; run: pip install 'hfattn[recipes]'"
        raise UserError(message) from error

    check_drawable(record)
    matrix = record.matrix(layer, head).float()
    rows, columns = ([label(token, _LONGEST_LABEL) for token in side] for side in (record.target_tokens, record.tokens))
    cell = min(_CELL, max(_SMALLEST_CELL, _LONGEST_SIDE / max(matrix.shape)))
    fonts = installed_fonts()
    style: dict[str, Any] = {"fontfamily": fonts, "fontsize": 36 * cell, "parse_math": False}  # a token may spell "$x"

    figure = Figure()
    axes = figure.add_axes((0, 0, 1, 1))
    image = axes.imshow(matrix, cmap="cividis", vmin=min(0.0, matrix.min().item()), aspect="auto")
    axes.set_xticks(range(len(columns)), columns, va="bottom", **style)
    axes.set_yticks(range(len(rows)), rows, **style)
    axes.set_xticks([x - 0.5 for x in range(1, len(columns))], minor=True)
    axes.set_yticks([y - 0.5 for y in range(1, len(rows))], minor=True)
    axes.grid(which="minor", color="white", linewidth=2 * cell)
    axes.tick_params(which="both", length=0, top=False, bottom=False, left=False)
    axes.tick_params(labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    for tick in axes.get_xticklabels():
        tick.set_rotation(0 if len(tick.get_text()) <= 2 else 90)

    # Square cells, and around them as much room as the labels turn out to need.
    figure.draw_without_rendering()
    bounds = axes.get_tightbbox()
    assert bounds is not None  # it is for invisible axes
    inches = bounds.transformed(figure.dpi_scale_trans.inverted())
    box = axes.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
    width, height = cell * len(columns), cell * len(rows)
    left, above = box.x0 - inches.x0 + _MARGIN, inches.y1 - box.y1 + _MARGIN
    if title is not None:
        heading = figure.text(0, 0, title, fontfamily=fonts, parse_math=False)
        extent = heading.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
        above += extent.height + 2 * _MARGIN
    bar_height = min(max(height, 1.2), 3.0)
    whole = (left + width + 1.1, above + max(height, bar_height) + _MARGIN)
    if title is not None:
        whole = (max(whole[0], extent.width + 2 * _MARGIN), whole[1])
        heading.set_position((_MARGIN / whole[0], 1 - (extent.height + _MARGIN) / whole[1]))
    figure.set_size_inches(whole)

    def place(x: float, top: float, w: float, h: float) -> tuple[float, float, float, float]:
        return x / whole[0], 1 - (top + h) / whole[1], w / whole[0], h / whole[1]

    axes.set_position(place(left, above, width, height))
    bar = figure.colorbar(image, cax=figure.add_axes(place(left + width + 0.2, above, 0.14, bar_height)))
    bar.set_label("weight", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    return figure


__all__ = ["plot_alignment"]
