"""A record of attention as a film: how an alignment came about, token after token."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..models.alignment import AttentionRecord
from .plot import plot_alignment

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

_LONGEST_SIDE, _SHARPEST = 1200, 120  # pixels, dots per inch
_ROW, _QUICKEST_ROW, _ALL_ROWS, _AT_THE_END = 500, 40, 30_000, 2500  # milliseconds


def save_animation(
    record: AttentionRecord,
    path: str | Path,
    *,
    layer: int | None = None,
    head: int | None = None,
    title: str | None = None,
) -> None:
    """Write a GIF of the heat map in which row after row appears, each with its token, as they were written.

    It runs over and over: half a second for each row, less where that would take more than half a minute.

    Args:
        record: at least one token on either side.
        path: a file that ends in ``.gif``.
        layer, head, title: as for ``plot_alignment``, whose picture is the last one.

    Raises:
        ValueError: the path does not end in ``.gif``, or ``plot_alignment`` refuses the record.
        UserError: matplotlib is not installed.
    """
    path = Path(path)
    if path.suffix.lower() != ".gif":
        raise ValueError(f"An animation is written as GIF, not as {path.suffix or path.name!r}; end the name in .gif.")
    figure = plot_alignment(record, layer=layer, head=head, title=title)
    # What matplotlib needs for its pictures; imported after it, so that its absence is told in a sentence.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    figure.set_dpi(min(_SHARPEST, _LONGEST_SIDE / max(figure.get_size_inches())))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    # One palette for all pictures, so that no colour flickers.
    buffer = canvas.buffer_rgba()
    whole = Image.frombuffer("RGBA", (buffer.shape[1], buffer.shape[0]), buffer).convert("RGB").quantize(255)
    paper = whole.getpixel((0, 0))
    assert isinstance(paper, int)  # a place in the palette
    box = figure.axes[0].get_window_extent()
    row_height, top = box.height / len(record.target_tokens), whole.height - box.y1

    def frames() -> Iterator["Picture"]:
        for row in range(1, len(record.target_tokens)):
            frame = whole.copy()
            frame.paste(paper, (0, round(top + row * row_height), round(box.x1) + 1, whole.height))
            yield frame
        yield whole

    first, *rest = frames()
    pause = int(min(_ROW, max(_QUICKEST_ROW, _ALL_ROWS / len(record.target_tokens))))
    first.save(path, save_all=True, append_images=rest, duration=[*[pause] * len(rest), _AT_THE_END], loop=0)


__all__ = ["save_animation"]
