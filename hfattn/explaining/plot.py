"""Figures of an attention record, for a paper or a slide."""

from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor, nn

from ..models.alignment import AttentionRecord, check_drawable
from ..plots import palette, weight_colors
from .labels import is_special, label, right_to_left
from .layout import MARGIN, Position, extent, fill, frame, new_figure, sheet, text_style

if TYPE_CHECKING:
    from matplotlib.collections import PathCollection
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_CELL, _SMALLEST_CELL, _LONGEST_SIDE, _LONGEST_LINE = 0.3, 0.13, 24.0, 12.0  # inches
_WEAKEST_THREAD = 0.05  # fraction of the largest weight
_LONGEST_LABEL = 24  # characters


def plot_alignment(
    record: AttentionRecord, *, layer: int | None = None, head: int | None = None, title: str | None = None
) -> "Figure":
    """Draw a heat map: a row for each token that attends, a column for each token that is attended to.

    A larger weight is darker. With a dark style of matplotlib (light text), zero is dark and a larger weight is
    brighter.

    Args:
        record: at least one token on each side.
        layer: index of the layer; None takes the mean over all layers.
        head: index of the head; None takes the mean over all heads.
        title: line above the map.

    Returns:
        A matplotlib figure, for ``figure.savefig("map.png")``, ``.svg`` or ``.pdf``. It is not registered with pyplot
        and need not be closed.

    Raises:
        ValueError: if one side has no tokens, there is no such layer or head, or a weight is NaN or infinite.
        UserError: if matplotlib is not installed.
    """
    check_drawable(record)
    figure = new_figure()
    matrix = record.matrix(layer, head).float()
    rows, columns = _labels(record)
    cell = min(_CELL, max(_SMALLEST_CELL, _LONGEST_SIDE / max(matrix.shape)))
    style = text_style(36 * cell)

    axes = figure.add_axes((0, 0, 1, 1))
    image = axes.imshow(matrix, cmap=weight_colors(), vmin=min(0.0, matrix.min().item()), aspect="auto")
    axes.set_xticks(range(len(columns)), columns, va="bottom", **style)
    axes.set_yticks(range(len(rows)), rows, **style)
    axes.set_xticks([x - 0.5 for x in range(1, len(columns))], minor=True)
    axes.set_yticks([y - 0.5 for y in range(1, len(rows))], minor=True)
    axes.grid(which="minor", color=palette().ramp[0], linewidth=2 * cell)
    axes.tick_params(which="both", length=0, top=False, bottom=False, left=False)
    axes.tick_params(labeltop=True, labelbottom=False)
    axes.spines[:].set(visible=True, linewidth=0.5, alpha=0.4)
    turned = _rotation(record)
    for tick, size in zip(axes.get_xticklabels(), _sizes(figure, columns, turned, 36 * cell, cell), strict=True):
        tick.set(rotation=turned, fontsize=size)

    # Square cells, with as much space around them as the rendered labels need.
    figure.draw_without_rendering()
    bounds = axes.get_tightbbox()
    assert bounds is not None  # this warning is for invisible axes
    inches = bounds.transformed(figure.dpi_scale_trans.inverted())
    box = axes.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
    width, height = cell * len(columns), cell * len(rows)
    left, above = box.x0 - inches.x0 + MARGIN, inches.y1 - box.y1 + MARGIN
    bar_height = min(max(height, 1.2), 3.0)
    above, place = frame(figure, title, above, left + width + 1.1, max(height, bar_height) + MARGIN)
    axes.set_position(place(left, above, width, height))
    _add_scale(figure, image, place(left + width + 0.2, above, 0.14, bar_height), "weight")
    return figure


def plot_heads(record: AttentionRecord, *, layer: int | None = None, title: str | None = None) -> "Figure":
    """Draw a small map of each head, with a row of maps for each layer; L1 H1 is layer 0 and head 0 of the record.

    The colors of each map span its own range, from 0 (or its smallest weight, if that is negative) to its largest, so
    that the pattern of a diffuse head is visible; weights of different maps cannot be compared. Tokens are named at the
    left and below if there is room for them.

    Args:
        record: at least one token on each side.
        layer: index of the layer to draw; None draws all of them.
        title: line above the maps.

    Returns:
        A matplotlib figure, as ``plot_alignment``.

    Raises:
        ValueError: if one side has no tokens, there is no such layer, or a weight is NaN or infinite.
        UserError: if matplotlib is not installed.
    """
    check_drawable(record)
    figure = new_figure()
    record.matrix(layer)  # checks the layer
    drawn = list(range(record.weights.shape[0])) if layer is None else [layer % record.weights.shape[0]]
    weights = record.weights[drawn]
    layers, heads, num_rows, num_columns = weights.shape
    # At most 2.2 inches for a map, less if there are many, with a visible minimum size.
    side = min(2.2, max(0.5, 16 / max(layers, heads)))
    cell = min(_CELL, side / max(num_rows, num_columns))
    width, height = max(0.4, cell * num_columns), max(0.4, cell * num_rows)
    gap, caption = 0.14, 0.2
    # The largest of the weights that share a dot, so that thin lines remain visible.
    dots = min(num_rows, 160), min(num_columns, 160)
    maps = nn.functional.adaptive_max_pool2d(weights.flatten(0, 1).float(), dots)
    low = maps.amin((1, 2), keepdim=True).clamp_(max=0)
    maps = (maps - low) / (maps.amax((1, 2), keepdim=True) - low).clamp_(min=1e-12)

    rows, columns = _labels(record) if cell >= _SMALLEST_CELL else ([], [])
    style = text_style(36 * cell)
    left = MARGIN + max((extent(figure, name, **style)[0] + 0.08 for name in rows), default=0.0)
    turned = _rotation(record)
    below = max((extent(figure, name, rotation=turned, **style)[1] + 0.08 for name in columns), default=0.0)
    sizes = _sizes(figure, columns, turned, 36 * cell, width / num_columns)
    wide, high = heads * (width + gap), layers * (height + caption + gap)
    bar_height = min(max(high - caption - gap, 1.3), 3.0)
    above, place = frame(figure, title, MARGIN, left + wide + 1.1, max(high + below, bar_height + caption) + MARGIN)
    axes = sheet(figure)
    tops = [above + caption + (height + caption + gap) * layer for layer in range(layers)]
    lefts = [left + (width + gap) * head for head in range(heads)]
    for index, matrix in enumerate(maps):
        x, y = lefts[index % heads], tops[index // heads]
        image = axes.imshow(
            matrix, cmap=weight_colors(), vmin=0, vmax=1, aspect="auto", extent=(x, x + width, y + height, y)
        )  # fmt: skip
        name = f"L{drawn[index // heads] + 1} H{index % heads + 1}"
        axes.text(x, y - 0.05, name, fontsize=8 if width > 0.5 else 6, va="bottom")
    for y in tops:
        for row, name in enumerate(rows):
            axes.text(left - 0.06, y + height * (row + 0.5) / num_rows, name, ha="right", va="center", **style)
    for x in lefts:
        for column, (name, size) in enumerate(zip(columns, sizes, strict=True)):
            spot = x + width * (column + 0.5) / num_columns, tops[-1] + height + 0.06
            axes.text(*spot, name, ha="center", va="top", rotation=turned, **{**style, "fontsize": size})
    fill(figure, axes)
    scale = place(left + wide + 0.08, above + caption, 0.14, bar_height)
    _add_scale(figure, image, scale, "weight / greatest")
    return figure


def plot_flow(
    record: AttentionRecord, *, layer: int | None = None, head: int | None = None, title: str | None = None
) -> "Figure":
    """Draw both texts, and a line between tokens for each weight. Larger weights have wider, darker lines.

    Short texts are two lines, with the text that is attended to above. If a line of text would exceed twelve inches,
    the texts are two columns. Weights below 5% of the largest are left out; of long texts, only the largest are drawn
    (ten per token on average).

    Args:
        record: at least one token on each side.
        layer: index of the layer; None takes the mean over all layers.
        head: index of the head; None takes the mean over all heads.
        title: line above the texts.

    Returns:
        A matplotlib figure, as ``plot_alignment``.

    Raises:
        ValueError: if one side has no tokens, there is no such layer or head, or a weight is NaN or infinite.
        UserError: if matplotlib is not installed.
    """
    check_drawable(record)
    figure = new_figure()
    matrix = record.matrix(layer, head).float()
    rows, columns = _labels(record)
    texts = _in_lines(figure, rows, columns) or _in_columns(figure, rows, columns)
    top, _ = frame(figure, title, MARGIN, texts.width + 2 * MARGIN, texts.height + MARGIN)
    axes = sheet(figure)
    sources, targets = ([(MARGIN + x, top + y) for x, y in side] for side in (texts.sources, texts.targets))
    axes.add_collection(_threads(matrix, sources, targets, texts.lines))
    style = text_style(texts.font_size)
    for points, names, ha, va, away in ((sources, columns, "right", "bottom", -1), (targets, rows, "left", "top", 1)):
        for (x, y), name in zip(points, names, strict=True):
            if texts.lines:
                axes.text(x, y + 0.05 * away, name, ha="center", va=va, **style)
            else:
                axes.text(x + 0.06 * away, y, name, ha=ha, va="center", **style)
    fill(figure, axes)
    return figure


Point = tuple[float, float]


class _Texts(NamedTuple):
    """Two texts, in inches: as two lines or as two columns, and the end points of the lines of each token."""

    lines: bool
    width: float
    height: float
    font_size: float
    sources: list[Point]
    targets: list[Point]


def _in_lines(figure: "Figure", rows: list[str], columns: list[str]) -> _Texts | None:
    """Return both texts as lines, the columns above the rows; None if a line is too long."""
    font_size, space = 12, 0.14
    widths = {name: extent(figure, name, **text_style(font_size))[0] + space for name in {*rows, *columns}}
    width = max(sum(widths[name] for name in names) for names in (rows, columns))
    if width > _LONGEST_LINE:
        return None
    apart, line_height = min(2.6, max(1.1, 0.3 * width)), 0.25

    def points(names: list[str], y: float) -> list[Point]:
        ends = list(accumulate(widths[name] for name in names))
        start = (width - ends[-1]) / 2
        middles = [start + end - widths[name] / 2 for end, name in zip(ends, names, strict=True)]
        return [(width - x if right_to_left(names) else x, y) for x in middles]

    sources, targets = points(columns, line_height), points(rows, line_height + apart)
    return _Texts(True, width, apart + 2 * line_height, font_size, sources, targets)


def _in_columns(figure: "Figure", rows: list[str], columns: list[str]) -> _Texts:
    """Return both texts as columns, one token per line, the columns at the left of the rows."""
    longest = max(len(rows), len(columns))
    line = min(0.26, max(_SMALLEST_CELL, _LONGEST_SIDE / longest))
    font_size, apart = 42 * line, 2.2
    left, right = (
        max(extent(figure, name, **text_style(font_size))[0] for name in names) + 0.08 for names in (columns, rows)
    )
    sources, targets = (
        [(x, line * (k + 0.5)) for k in range(len(names))] for x, names in ((left, columns), (left + apart, rows))
    )
    return _Texts(False, left + apart + right, line * longest, font_size, sources, targets)


def _threads(matrix: Tensor, sources: list[Point], targets: list[Point], lines: bool) -> "PathCollection":
    """Return a curve for each weight (T, S) that is drawn, the strongest last."""
    from matplotlib.collections import PathCollection
    from matplotlib.colors import to_rgb
    from matplotlib.path import Path

    greatest, thread = max(matrix.max().item(), 1e-12), to_rgb(palette().thread)
    kept = matrix.flatten().topk(min(matrix.numel(), 10 * max(matrix.shape)))
    paths, colors, widths = [], [], []
    for weight, index in reversed(list(zip(kept.values.tolist(), kept.indices.tolist(), strict=True))):
        share = weight / greatest
        if share < _WEAKEST_THREAD:
            continue
        (x0, y0), (x1, y1) = sources[index % len(sources)], targets[index // len(sources)]
        middle = [(x0, (y0 + y1) / 2), (x1, (y0 + y1) / 2)] if lines else [((x0 + x1) / 2, y) for y in (y0, y1)]
        paths.append(Path([(x0, y0), *middle, (x1, y1)], [Path.MOVETO, *[Path.CURVE4] * 3]))
        colors.append((*thread, 0.12 + 0.78 * share))
        widths.append(0.5 + 3.5 * share)
    return PathCollection(paths, facecolors="none", edgecolors=colors, linewidths=widths, capstyle="round")


# Shared by the figures


def _labels(record: AttentionRecord) -> tuple[list[str], list[str]]:
    """Return the names of rows and of columns."""
    rows, columns = ([label(token, _LONGEST_LABEL) for token in side] for side in (record.target_tokens, record.tokens))
    return rows, columns


def _rotation(record: AttentionRecord) -> int:
    """Return the angle of all column labels: 0 if the tokens are characters, otherwise 90 degrees."""
    return 90 if any(len(label(token)) > 2 and not is_special(token) for token in record.tokens) else 0


def _sizes(figure: "Figure", columns: list[str], turned: int, size: float, room: float) -> list[float]:
    """Return the font size of each column label: ``size``, or less where a horizontal label would exceed its room."""
    if turned:
        return [size] * len(columns)
    return [min(size, size * 0.9 * room / extent(figure, name, **text_style(size))[0]) for name in columns]


def _add_scale(figure: "Figure", image: "AxesImage", position: Position, name: str) -> None:
    bar = figure.colorbar(image, cax=figure.add_axes(position))
    bar.set_label(name, fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
