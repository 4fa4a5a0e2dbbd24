"""Heat maps over an image: of a record of attention, or of scores.

Shapes: R rows and C columns of the grid; height and width in pixels.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from ..models.alignment import AttentionRecord, check_drawable
from .images import ScoredImage
from .labels import is_special, label
from .layout import MARGIN, frame, new_figure, text_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

# Red, green, blue (0 to 255) and opacity over the image, at evenly spaced weights from 0 to the largest: an image is
# dark where the weight is small, and seen through a light color where it is large.
WEIGHT_COLORS = ((10, 12, 20, 0.78), (120, 28, 70, 0.62), (235, 95, 20, 0.45), (255, 214, 90, 0.3))
# Scores from -1 to 1: vermilion against the answer, blue for it, as in colored texts.
SCORE_COLORS = ((213, 94, 0, 0.85), (213, 94, 0, 0.55), (20, 22, 28, 0.6), (0, 114, 178, 0.55), (0, 144, 230, 0.85))
_PANEL, _COLUMNS, _LONGEST = 1.7, 6, 22  # inches; panels in a row; characters of a heading
_SMALLEST = 224  # pixels of the longer side


class Panel(NamedTuple):
    """A heat map (R, C) and its heading."""

    heading: str
    values: torch.Tensor
    signed: bool = False


def answering_row(record: AttentionRecord, row: int | None = None) -> AttentionRecord:
    """Return the record of one row of self-attention over an image.

    Args:
        record: self-attention with a grid, or rollout.
        row: index of the token that attends; None is the first token of the prefix, which is the class token, or the
            mean over all tokens if there is no prefix.

    Raises:
        ValueError: if there is no such row.
    """
    count = len(record.target_tokens)
    if row is None and record.num_prefix_tokens == 0 and count > 1:
        return replace(record, target_tokens=("[mean]",), weights=record.weights.mean(-2, keepdim=True))
    row = row or 0
    if not 0 <= row < count:
        raise ValueError(f"row is {row}; write 0 to {count - 1}.")
    return replace(
        record, target_tokens=record.target_tokens[row : row + 1], weights=record.weights[..., row : row + 1, :]
    )


def heat_map(values: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Interpolate a map (R, C) to the pixels (height, width) of an image, bilinearly.

    The value of a patch is that of its middle; beyond the middle of the outermost patches, values are constant.
    """
    return torch.nn.functional.interpolate(values[None, None].float(), size=size, mode="bilinear")[0, 0]


def lay_over(image: "Image", values: torch.Tensor, signed: bool = False) -> "Image":
    """Return an image with a heat map (R, C) over it; the colors span 0 to the largest weight, or ± the largest score.

    A small image is enlarged first, so that the map is smooth.
    """
    from PIL import Image

    factor = -(-_SMALLEST // max(image.size))
    picture = image.convert("RGB").resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    shares = heat_map(values, (picture.height, picture.width))
    shares = shares / values.abs().max().clamp(min=1e-12)
    colors = np.array(SCORE_COLORS if signed else WEIGHT_COLORS)
    place = ((shares + 1) / 2 if signed else shares).clamp(0, 1).numpy() * (len(colors) - 1)
    red, green, blue, opacity = (np.interp(place, np.arange(len(colors)), channel) for channel in colors.T)
    over, opacity = np.stack([red, green, blue], -1), opacity[..., None]
    return Image.fromarray(np.rint(np.asarray(picture) * (1 - opacity) + over * opacity).astype(np.uint8))


def image_panels(
    shown: AttentionRecord | ScoredImage | Sequence[ScoredImage],
    target: int | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> list[Panel]:
    """Return the maps that ``plot_overlay`` draws.

    Raises:
        ValueError: if the record has no grid, or there is no such token, layer or head.
    """
    if isinstance(shown, ScoredImage):
        return [Panel(shown.heading, shown.scores, signed=True)]
    if not isinstance(shown, AttentionRecord):
        return [Panel(each.target, each.scores, signed=True) for each in shown]
    check_drawable(shown)
    if shown.kind == "cross" and target is None:
        words = [place for place, token in enumerate(shown.target_tokens) if not is_special(token)]
        maps = shown.maps(layer, head)
        return [Panel(label(shown.target_tokens[place], _LONGEST), maps[place]) for place in words]
    record = answering_row(shown, target)
    name = label(record.target_tokens[0], _LONGEST)
    layers, heads = record.weights.shape[:2]
    if layers == heads == 1:
        return [Panel(name, record.maps()[0])]
    if layer is None:
        layer = layers - 1
    if head is not None:
        return [Panel(f"{name} L{layer % layers + 1} H{head % heads + 1}", record.maps(layer, head)[0])]
    return [Panel(f"L{layer % layers + 1} H{each + 1}", record.maps(layer, each)[0]) for each in range(heads)]


def plot_overlay(
    shown: AttentionRecord | ScoredImage | Sequence[ScoredImage],
    image: "Image",
    *,
    target: int | None = None,
    layer: int | None = None,
    head: int | None = None,
    title: str | None = None,
) -> "Figure":
    """Draw an image, and heat maps over it: one for each word of a caption, or for each head of a vision Transformer.

    The weights are interpolated from the grid to the pixels. The colors of each map span its own range, from 0 to its
    largest weight, so weights of different maps cannot be compared. Scores are blue for the answer, orange against it.

    Args:
        shown: cross-attention over an image, with a map for each word; self-attention, with a map for each head; the
            scores of ``image_saliency``, or a list of them, one for each word.
        image: the image as the model saw it, such as ``seen_image`` returns.
        target: index of the token that attends. None takes all words of a caption; in self-attention, the class token,
            or the mean over all tokens if there is none.
        layer: index of the layer; None is the mean over layers for words, and the last layer for heads.
        head: index of the head; None is the mean over heads for words, and a map for each head otherwise.
        title: line above the maps.

    Returns:
        A matplotlib figure, as ``plot_alignment``.

    Raises:
        ValueError: if the record has no grid, there is no such token, layer or head, or a weight is NaN or infinite.
        UserError: if matplotlib is not installed.
    """
    return plot_panels(image, image_panels(shown, target, layer, head), title)


def plot_panels(image: "Image", panels: Sequence[Panel], title: str | None = None) -> "Figure":
    """Draw an image, and beside it a heat map for each panel over it."""
    figure = new_figure()
    ratio = image.height / image.width
    width, heading = _PANEL / max(1, ratio), 0.22
    height = width * ratio
    pictures = [("", image.convert("RGB"))]
    pictures += [(panel.heading, lay_over(image, panel.values, panel.signed)) for panel in panels]
    rows = -(-len(pictures) // _COLUMNS)
    columns = -(-len(pictures) // rows)
    step = width + MARGIN
    top, place = frame(figure, title, MARGIN, columns * step + MARGIN, rows * (height + heading + MARGIN))
    for number, (name, picture) in enumerate(pictures):
        left, above = MARGIN + number % columns * step, top + number // columns * (height + heading + MARGIN)
        axes = figure.add_axes(place(left, above + heading, width, height))
        axes.imshow(picture, aspect="auto", interpolation="nearest" if max(image.size) < _SMALLEST else "antialiased")
        axes.set_axis_off()
        axes.set_title(name, pad=3, **text_style(8))
    return figure
