"""Animate an attention record, row by row."""

from pathlib import Path

from ..models.alignment import AttentionRecord
from .plot import plot_alignment

_LONGEST_SIDE, _MAX_DPI = 1200, 120  # pixels, dots per inch
_ROW, _SHORTEST_ROW, _ALL_ROWS, _AT_THE_END = 500, 40, 30_000, 2500  # milliseconds


def save_animation(
    record: AttentionRecord,
    path: str | Path,
    *,
    layer: int | None = None,
    head: int | None = None,
    title: str | None = None,
) -> None:
    """Write a GIF of the heat map in which one row after another appears, in the order of generation.

    The animation repeats. Each row takes 0.5 s, or less if all rows would take more than 30 s.

    Args:
        record: at least one token on each side.
        path: output file, ending in ``.gif``.
        layer: see ``plot_alignment``.
        head: see ``plot_alignment``.
        title: see ``plot_alignment``.

    Raises:
        ValueError: if the path does not end in ``.gif``, or ``plot_alignment`` raises it.
        UserError: if matplotlib is not installed.
    """
    path = Path(path)
    if path.suffix.lower() != ".gif":
        raise ValueError(f"An animation is a GIF, not {path.suffix or path.name!r}; end the name with .gif.")
    figure = plot_alignment(record, layer=layer, head=head, title=title)
    # Imported after plot_alignment, which raises a helpful error if matplotlib is missing; matplotlib installs these.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    figure.set_dpi(min(_MAX_DPI, _LONGEST_SIDE / max(figure.get_size_inches())))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    # One palette for all frames, so that colors do not flicker.
    buffer = canvas.buffer_rgba()
    whole = Image.frombuffer("RGBA", (buffer.shape[1], buffer.shape[0]), buffer).convert("RGB").quantize(255)
    paper = whole.getpixel((0, 0))
    assert isinstance(paper, int)  # an index into the palette
    box = figure.axes[0].get_window_extent()
    row_height, top = box.height / len(record.target_tokens), whole.height - box.y1

    frames = []
    for row in range(1, len(record.target_tokens)):
        frame = whole.copy()
        frame.paste(paper, (0, round(top + row * row_height), round(box.x1) + 1, whole.height))
        frames.append(frame)
    first, *rest = [*frames, whole]
    pause = int(min(_ROW, max(_SHORTEST_ROW, _ALL_ROWS / len(record.target_tokens))))
    first.save(path, save_all=True, append_images=rest, duration=[*[pause] * len(rest), _AT_THE_END], loop=0)
