"""Render an image with heat maps as one interactive HTML page, read with a mouse, by touch or with the arrow keys.

Shapes: L layers, H heads, N words, R rows and C columns of the grid.
"""

import base64
import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import torch

from ...models.alignment import AttentionRecord, check_drawable
from ..images import ScoredImage
from ..labels import is_special
from ..overlay import SCORE_COLORS, WEIGHT_COLORS, answering_row
from .render import to_json

if TYPE_CHECKING:
    from PIL.Image import Image

_HERE = Path(__file__).parent
_LONGEST_SIDE = 768  # pixels
_LOSSLESS = 128  # pixels of the longer side, up to which an image is written exactly

Shown = AttentionRecord | ScoredImage | Sequence[ScoredImage]


def render_image_html(image: "Image", views: Mapping[str, Shown], title: str = "", row: int | None = None) -> str:
    """Return one self-contained page: an image, and over it the heat map of the word or the head that is pointed at.

    The page loads nothing, works from a file, and is in English or Spanish, following the browser. It has an image for
    each view, side by side. Of a caption, readers choose a word; layers and heads are chosen from a map of each.
    Each map is written as one byte for each patch, in 255 steps from 0 to its largest weight.

    Args:
        image: the image as the model saw it; a longer side than 768 pixels is reduced.
        views: what to show, by its name: a record of attention, rollout, the scores of ``image_saliency``, or a list
            with the scores of each word. The names "attention", "rollout", "gradient", "integrated" and "occlusion" are
            translated. Words are those of the first view. All views have one grid, and maps for the same number of
            words.
        title: heading of the page.
        row: index of the word that is shown first; of self-attention, index of the token that attends, as for
            ``plot_overlay``.

    Raises:
        ValueError: if there is no view, a record has no grid, or the views differ in their grid or number of words.
    """
    if not views:
        raise ValueError("There is nothing to show over the image; pass at least one view.")
    found = [_view(name, shown, row) for name, shown in views.items()]
    first = found[0]
    if any(each["grid"] != first["grid"] or len(each["words"]) != len(first["words"]) for each in found):
        raise ValueError("The views have different grids or numbers of words, so they cannot be shown together.")
    words = first["words"]
    chosen = row if row is not None and len(words) > 1 else 0
    if not 0 <= chosen < len(words):
        raise ValueError(f"row is {row}; write 0 to {len(words) - 1}.")
    picture = image.convert("RGB")
    picture.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
    data: dict[str, Any] = {
        "image": _address(picture),
        "size": picture.size,
        "grid": first["grid"],
        "words": words,
        "special": [place for place, word in enumerate(words) if is_special(word)],
        "row": chosen,
        "colors": {"weights": WEIGHT_COLORS, "scores": SCORE_COLORS},
        "views": [{key: value for key, value in each.items() if key not in ("grid", "words")} for each in found],
    }
    leading = next(iter(views.values()))
    if isinstance(leading, AttentionRecord) and leading.probabilities is not None:
        data["probabilities"] = [round(share, 4) for share in leading.probabilities.tolist()]
    page, style, more, common, script = (
        (_HERE / name).read_text(encoding="utf-8")
        for name in ("image.html", "page.css", "image.css", "common.js", "image.js")
    )
    return Template(page).substitute(
        title=html.escape(title or "Attention"),
        style=style + more,
        script=f'"use strict";\n{common}{script}',
        record=to_json(data),
    )


def save_image_html(
    image: "Image", views: Mapping[str, Shown], path: str | Path, title: str = "", row: int | None = None
) -> None:
    """Write the page of ``render_image_html`` to a file."""
    page = render_image_html(image, views, title, row)
    Path(path).write_text(page, encoding="utf-8")


def _view(name: str, shown: Shown, row: int | None) -> dict[str, Any]:
    """Return the maps of a view as bytes, with its words and its grid."""
    if isinstance(shown, AttentionRecord):
        check_drawable(shown)
        record = shown if shown.kind == "cross" else answering_row(shown, row)
        if record.grid is None:
            raise ValueError("The record has no grid, because its tokens are those of a text; use render_html.")
        weights = record.weights[..., record.num_prefix_tokens :]
        return {
            "name": name,
            "grid": record.grid,
            "words": record.target_tokens,
            "shape": weights.shape[:2],
            **_bytes(weights.flatten(0, 2), signed=bool((weights < 0).any())),
        }
    scored = [shown] if isinstance(shown, ScoredImage) else list(shown)
    grid = tuple(scored[0].scores.shape)
    return {
        "name": name,
        "target": scored[0].target if len(scored) == 1 else "",
        "grid": grid,
        "words": tuple(each.target for each in scored),
        "shape": (1, 1),
        **_bytes(torch.stack([each.scores.flatten() for each in scored]), signed=True),
    }


def _bytes(maps: torch.Tensor, signed: bool) -> dict[str, Any]:
    """Return maps (M, R * C) as bytes: 0 to 255 of the largest weight, or around 128 if there are negative numbers."""
    maps = maps.double()
    largest = maps.abs().amax(-1, keepdim=True).clamp(min=1e-12)
    zero, unit = (128, 127) if signed else (0, 255)
    levels = (zero + unit * maps / largest).round().to(torch.uint8)
    return {
        "signed": signed,
        "largest": [float(f"{value:.4g}") for value in largest.flatten().tolist()],
        "data": base64.b64encode(levels.numpy().tobytes()).decode(),
    }


def _address(image: "Image") -> str:
    """Return an image as an address that contains it."""
    file = io.BytesIO()
    kind = "png" if max(image.size) <= _LOSSLESS else "jpeg"
    image.save(file, kind, quality=88)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
