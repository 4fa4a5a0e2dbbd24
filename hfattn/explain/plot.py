"""A record of attention as a picture for a paper or a slide."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import nn

from ..errors import UserError
from ..models.alignment import AttentionRecord, check_drawable
from ..plots import installed_fonts
from .labels import label, right_to_left

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_CELL, _SMALLEST_CELL, _LONGEST_SIDE, _MARGIN = 0.3, 0.13, 24.0, 0.12  # inches
_LONGEST_LABEL = 24  # characters
_COLOURS = "cividis"  # lighter means more, for any kind of sight, and in print without colours
_THREAD = (0.106, 0.424, 0.659)  # the blue of the page's threads


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
    figure = _new_figure(record)
    matrix = record.matrix(layer, head).float()
    rows, columns = _labels(record)
    cell = min(_CELL, max(_SMALLEST_CELL, _LONGEST_SIDE / max(matrix.shape)))
    style = _text_style(36 * cell)

    axes = figure.add_axes((0, 0, 1, 1))
    image = axes.imshow(matrix, cmap=_COLOURS, vmin=min(0.0, matrix.min().item()), aspect="auto")
    axes.set_xticks(range(len(columns)), columns, va="bottom", **style)
    axes.set_yticks(range(len(rows)), rows, **style)
    axes.set_xticks([x - 0.5 for x in range(1, len(columns))], minor=True)
    axes.set_yticks([y - 0.5 for y in range(1, len(rows))], minor=True)
    axes.grid(which="minor", color="white", linewidth=2 * cell)
    axes.tick_params(which="both", length=0, top=False, bottom=False, left=False)
    axes.tick_params(labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    for tick in axes.get_xticklabels():
        tick.set_rotation(_rotation(tick.get_text()))

    # Square cells, and around them as much room as the labels turn out to need.
    figure.draw_without_rendering()
    bounds = axes.get_tightbbox()
    assert bounds is not None  # it is for invisible axes
    inches = bounds.transformed(figure.dpi_scale_trans.inverted())
    box = axes.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
    width, height = cell * len(columns), cell * len(rows)
    left, above = box.x0 - inches.x0 + _MARGIN, inches.y1 - box.y1 + _MARGIN
    bar_height = min(max(height, 1.2), 3.0)
    above, place = _frame(figure, title, above, left + width + 1.1, max(height, bar_height) + _MARGIN)
    axes.set_position(place(left, above, width, height))
    _add_scale(figure, image, place(left + width + 0.2, above, 0.14, bar_height), "weight")
    return figure


def plot_heads(record: AttentionRecord, *, title: str | None = None) -> "Figure":
    """Draw a small map of each head: a row of maps for each layer; L1 H1 is layer 0 and head 0 of the record.

    Each map has the colours of its own range, from 0 (or its least weight, where that is negative) to its greatest, so
    that the pattern of a head can be seen that spreads its weight thinly; weights of two maps cannot be compared. The
    tokens are named at the left and below where there is room for them.

    Args:
        record: at least one token on either side.
        title: a line above.

    Returns:
        A matplotlib figure, as ``plot_alignment`` returns it.

    Raises:
        ValueError: the record has no token on one side, or a weight that is no finite number.
        UserError: matplotlib is not installed.
    """
    figure = _new_figure(record)
    layers, heads, num_rows, num_columns = record.weights.shape
    # At most 2.2 inches for a map, less where there are many, and never a strip too thin to see.
    side = min(2.2, max(0.5, 16 / max(layers, heads)))
    cell = min(_CELL, side / max(num_rows, num_columns))
    width, height = max(0.4, cell * num_columns), max(0.4, cell * num_rows)
    gap, caption = 0.14, 0.2
    # Of the weights that share a dot, the greatest: a thin line of them stays one.
    dots = min(num_rows, 160), min(num_columns, 160)
    maps = nn.functional.adaptive_max_pool2d(record.weights.flatten(0, 1).float(), dots)
    low = maps.amin((1, 2), keepdim=True).clamp_(max=0)
    maps = (maps - low) / (maps.amax((1, 2), keepdim=True) - low).clamp_(min=1e-12)

    rows, columns = _labels(record) if cell >= _SMALLEST_CELL else ([], [])
    style = _text_style(36 * cell)
    left = _MARGIN + max((_extent(figure, name, **style)[0] + 0.08 for name in rows), default=0.0)
    turned = {name: _rotation(name) for name in columns}
    below = max((_extent(figure, name, rotation=turned[name], **style)[1] + 0.08 for name in columns), default=0.0)
    wide, high = heads * (width + gap), layers * (height + caption + gap)
    bar_height = min(max(high - caption - gap, 1.3), 3.0)
    above, place = _frame(figure, title, _MARGIN, left + wide + 1.1, max(high + below, bar_height + caption) + _MARGIN)
    axes = _sheet(figure)
    tops = [above + caption + (height + caption + gap) * layer for layer in range(layers)]
    lefts = [left + (width + gap) * head for head in range(heads)]
    for index, matrix in enumerate(maps):
        x, y = lefts[index % heads], tops[index // heads]
        image = axes.imshow(
            matrix, cmap=_COLOURS, vmin=0, vmax=1, aspect="auto", extent=(x, x + width, y + height, y)
        )  # fmt: skip
        name = f"L{index // heads + 1} H{index % heads + 1}"
        axes.text(x, y - 0.05, name, fontsize=8 if width > 0.5 else 6, va="bottom")
    for y in tops:
        for row, name in enumerate(rows):
            axes.text(left - 0.06, y + height * (row + 0.5) / num_rows, name, ha="right", va="center", **style)
    for x in lefts:
        for column, name in enumerate(columns):
            spot = x + width * (column + 0.5) / num_columns, tops[-1] + height + 0.06
            axes.text(*spot, name, ha="center", va="top", rotation=turned[name], **style)
    _fill(figure, axes)
    scale = place(left + wide + 0.08, above + caption, 0.14, bar_height)
    _add_scale(figure, image, scale, "weight / greatest")
    return figure


def plot_flow(
    record: AttentionRecord, *, layer: int | None = None, head: int | None = None, title: str | None = None
) -> "Figure":
    """Draw the two texts and between them a thread for each weight, the wider and darker the greater it is.

    Short texts are two lines, what is attended to above what attends; a text of more than twelve inches makes them two
    columns. Weights below a twentieth of the greatest are left out, and in long texts all but the strongest, ten for
    each token on the average.

    Args:
        record: at least one token on either side.
        layer, head: which of the record's; None is the mean over all.
        title: a line above.

    Returns:
        A matplotlib figure, as ``plot_alignment`` returns it.

    Raises:
        ValueError: the record has no token on one side, or no such layer or head, or a
            weight that is no finite number.
        UserError: matplotlib is not installed.
    """
    figure = _new_figure(record)
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path

    matrix = record.matrix(layer, head).float()
    rows, columns = _labels(record)
    longest = max(len(rows), len(columns))
    style, space = _text_style(12), 0.14
    widths = {name: _extent(figure, name, **style)[0] for name in {*rows, *columns}}
    line_width = max(sum(widths[name] + space for name in side) for side in (rows, columns))
    in_lines = line_width <= 12
    # Where each token's threads end, and where its text stands, in inches from a corner.
    if in_lines:
        apart, high = min(2.6, max(1.1, 0.3 * line_width)), 0.25
        wide, tall = line_width, apart + 2 * high

        def spots(names: list[str]) -> list[float]:
            x, found = (line_width - sum(widths[name] + space for name in names)) / 2, []
            for name in names:
                found.append(x + (widths[name] + space) / 2)
                x += widths[name] + space
            return [line_width - spot for spot in found] if right_to_left(names) else found

        above_, below_ = [(x, high) for x in spots(columns)], [(x, high + apart) for x in spots(rows)]
    else:
        line = min(0.26, max(_SMALLEST_CELL, _LONGEST_SIDE / longest))
        style = _text_style(42 * line)
        widths = {name: _extent(figure, name, **style)[0] for name in widths}
        sides = [max(widths[name] for name in names) + 0.08 for names in (columns, rows)]
        wide, tall = sides[0] + 2.2 + sides[1], line * longest
        above_, below_ = (
            [(x, line * (k + 0.5)) for k in range(len(names))]
            for x, names in ((sides[0], columns), (sides[0] + 2.2, rows))
        )
    top, _ = _frame(figure, title, _MARGIN, wide + 2 * _MARGIN, tall + _MARGIN)
    axes = _sheet(figure)
    placed = [[(_MARGIN + x, top + y) for x, y in side] for side in (above_, below_)]

    greatest = max(matrix.max().item(), 1e-12)
    kept = matrix.flatten().topk(min(matrix.numel(), 10 * longest))
    paths, colours, line_widths = [], [], []
    for weight, index in reversed(list(zip(kept.values.tolist(), kept.indices.tolist(), strict=True))):
        share = weight / greatest
        if share < 0.05:
            continue
        (x0, y0), (x1, y1) = placed[0][index % len(columns)], placed[1][index // len(columns)]
        middle = [(x0, (y0 + y1) / 2), (x1, (y0 + y1) / 2)] if in_lines else [((x0 + x1) / 2, y) for y in (y0, y1)]
        paths.append(Path([(x0, y0), *middle, (x1, y1)], [Path.MOVETO, *[Path.CURVE4] * 3]))
        colours.append((*_THREAD, 0.12 + 0.78 * share))
        line_widths.append(0.5 + 3.5 * share)
    axes.add_collection(
        PathCollection(paths, facecolors="none", edgecolors=colours, linewidths=line_widths, capstyle="round")
    )
    aligned = [("center", "bottom"), ("center", "top")] if in_lines else [("right", "center"), ("left", "center")]
    for (across, along), points, names in zip(aligned, placed, (columns, rows), strict=True):
        dx = {"center": 0, "right": -0.06, "left": 0.06}[across]
        dy = {"center": 0, "bottom": -0.05, "top": 0.05}[along]
        for (x, y), name in zip(points, names, strict=True):
            axes.text(x + dx, y + dy, name, ha=across, va=along, **style)
    _fill(figure, axes)
    return figure


# What the pictures share


def _new_figure(record: AttentionRecord) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        message = "Pictures need matplotlib, which is not installed; run: pip install 'hfattn[recipes]'"
        raise UserError(message) from error

    check_drawable(record)
    return Figure()


def _labels(record: AttentionRecord) -> tuple[list[str], list[str]]:
    """Names of rows and of columns."""
    rows, columns = ([label(token, _LONGEST_LABEL) for token in side] for side in (record.target_tokens, record.tokens))
    return rows, columns


def _text_style(size: float) -> dict[str, Any]:
    return {"fontfamily": installed_fonts(), "fontsize": size, "parse_math": False}  # a token may spell "$x"


def _rotation(name: str) -> int:
    return 0 if len(name) <= 2 else 90


def _extent(figure: "Figure", words: str, **style: Any) -> tuple[float, float]:
    """Width and height of a text, in inches."""
    written = figure.text(0, 0, words, **style)
    box = written.get_window_extent()
    written.remove()
    return box.width / figure.dpi, box.height / figure.dpi


def _frame(
    figure: "Figure", title: str | None, above: float, width: float, height: float
) -> tuple[float, Callable[[float, float, float, float], tuple[float, float, float, float]]]:
    """Make the figure as large as ``width`` and ``above`` and ``height`` together, and its title.

    Returns:
        where the picture begins, in inches from above, and a function from left, top, width and height in inches to
        what matplotlib calls a position.
    """
    whole = (width, above + height)
    if title is not None:
        style = _text_style(10)
        title_width, title_height = _extent(figure, title, **style)
        above += title_height + 2 * _MARGIN
        whole = (max(width, title_width + 2 * _MARGIN), above + height)
        figure.text(_MARGIN / whole[0], 1 - (title_height + _MARGIN) / whole[1], title, **style)
    figure.set_size_inches(whole)

    def place(x: float, top: float, w: float, h: float) -> tuple[float, float, float, float]:
        return x / whole[0], 1 - (top + h) / whole[1], w / whole[0], h / whole[1]

    return above, place


def _sheet(figure: "Figure") -> "Axes":
    """Axes over the whole figure, to draw on in inches from the upper left corner; ``_fill`` when all is drawn."""
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    _fill(figure, axes)
    return axes


def _fill(figure: "Figure", axes: "Axes") -> None:
    width, height = figure.get_size_inches()
    axes.set(xlim=(0, width), ylim=(height, 0))


def _add_scale(figure: "Figure", image: "AxesImage", position: tuple[float, float, float, float], name: str) -> None:
    bar = figure.colorbar(image, cax=figure.add_axes(position))
    bar.set_label(name, fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)


__all__ = ["plot_alignment", "plot_flow", "plot_heads"]
