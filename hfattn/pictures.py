"""Pictures of a run, described by values that ``results.json`` can hold until they are drawn."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .errors import UserError
from .models.alignment import AttentionRecord
from .plots import (
    plot_bleu_by_length,
    plot_confusion,
    plot_curves,
    plot_head_maps,
    plot_images,
    plot_predictions,
    plot_reliability,
    plot_self_distillation,
)


def plot_attention(path: Path, record: AttentionRecord, title: str) -> None:
    """Draw an attention record as a picture, and as a page with the suffix ``.html`` beside it."""
    from .explaining import plot_alignment, save_html

    plot_alignment(record, title=title).savefig(path, dpi=150)
    save_html(record, path.with_suffix(".html"), title=title)


def plot_caption(path: Path, image: str, record: AttentionRecord, title: str) -> None:
    """Draw an image (PNG in base64) and where each word of its caption looks, and a page with the suffix ``.html``."""
    import base64
    import io

    from PIL import Image

    from .explaining import plot_overlay, save_image_html

    opened = Image.open(io.BytesIO(base64.b64decode(image)))
    plot_overlay(record, opened, title=title).savefig(path, dpi=150)
    save_image_html(opened, {"attention": record}, path.with_suffix(".html"), title=title)


KINDS: dict[str, Callable[..., None]] = {
    "attention": plot_attention,
    "bleu_by_length": plot_bleu_by_length,
    "caption": plot_caption,
    "confusion": plot_confusion,
    "curves": plot_curves,
    "head_maps": plot_head_maps,
    "images": plot_images,
    "predictions": plot_predictions,
    "reliability": plot_reliability,
    "self_distillation": plot_self_distillation,
}


@dataclass(frozen=True)
class Picture:
    """A picture that is to be drawn.

    Attributes:
        file: name of its file in the run folder.
        kind: a key of ``KINDS``.
        arguments: keyword arguments of that function, except the path: values that JSON can store, or a record.
    """

    file: str
    kind: str
    arguments: Mapping[str, Any]

    def draw(self, folder: Path) -> None:
        """Draw the picture into a run folder."""
        KINDS[self.kind](folder / self.file, **self.arguments)

    def to_dict(self) -> dict[str, Any]:
        """Return the picture as values that JSON can store. Of a record, only the mean of its heads is stored."""
        arguments = {
            name: _mean(value).to_dict() if isinstance(value, AttentionRecord) else value
            for name, value in self.arguments.items()
        }
        return {"kind": self.kind, "arguments": arguments}

    @classmethod
    def from_dict(cls, file: str, stored: Mapping[str, Any]) -> "Picture":
        """Return the picture that ``to_dict`` stored.

        Raises:
            UserError: the values are not those of a picture in the run folder.
        """
        if Path(file).name != file or stored.get("kind") not in KINDS:
            raise UserError(f"{file!r} is not a picture of a run; train the model again.")
        arguments = dict(stored["arguments"])
        if "record" in arguments:
            arguments["record"] = AttentionRecord.from_dict(arguments["record"])
        return cls(file, stored["kind"], arguments)


def _mean(record: AttentionRecord) -> AttentionRecord:
    return replace(record, weights=record.matrix()[None, None])
