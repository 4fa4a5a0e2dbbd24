"""Layout of figures in inches, measured from the upper left corner."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..extras import require
from ..plots import installed_fonts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARGIN = 0.12  # inches
Position = tuple[float, float, float, float]


def new_figure() -> "Figure":
    """Return an empty figure that is not registered with pyplot, so that it need not be closed.

    Raises:
        UserError: if matplotlib is not installed.
    """
    require("explain", "matplotlib")
    from matplotlib.figure import Figure

    return Figure()


def text_style(size: float) -> dict[str, Any]:
    """Return the keyword arguments of a text of that size in points, with fonts for all scripts."""
    return {"fontfamily": installed_fonts(), "fontsize": size, "parse_math": False}  # a token may contain "$"


def extent(figure: "Figure", text: str, **style: Any) -> tuple[float, float]:
    """Return the width and the height of a text, in inches."""
    written = figure.text(0, 0, text, **style)
    box = written.get_window_extent()
    written.remove()
    return box.width / figure.dpi, box.height / figure.dpi


def frame(
    figure: "Figure", title: str | None, above: float, width: float, height: float
) -> tuple[float, Callable[[float, float, float, float], Position]]:
    """Set the size of a figure and write its title.

    Args:
        figure: the figure.
        title: line above the content, or None.
        above: space above the content without a title, in inches.
        width: width of the figure, in inches; a longer title widens it.
        height: height of the content and the space below it, in inches.

    Returns:
        The top of the content in inches, and a function that converts left, top, width and height in inches to a
        position for ``figure.add_axes``.
    """
    size = (width, above + height)
    if title is not None:
        style = text_style(10)
        title_width, title_height = extent(figure, title, **style)
        above += title_height + 2 * MARGIN
        size = (max(width, title_width + 2 * MARGIN), above + height)
        figure.text(MARGIN / size[0], 1 - (title_height + MARGIN) / size[1], title, **style)
    figure.set_size_inches(size)

    def place(x: float, top: float, w: float, h: float) -> Position:
        return x / size[0], 1 - (top + h) / size[1], w / size[0], h / size[1]

    return above, place


def sheet(figure: "Figure") -> "Axes":
    """Return axes over the whole figure whose coordinates are inches; call ``fill`` after drawing images."""
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    fill(figure, axes)
    return axes


def fill(figure: "Figure", axes: "Axes") -> None:
    """Set the limits of a sheet to the size of its figure."""
    width, height = figure.get_size_inches()
    axes.set(xlim=(0, width), ylim=(height, 0))
