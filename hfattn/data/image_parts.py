"""The section ``data`` of recipes that read images."""

import math
from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..fields import at_least, one_of
from .digits import read_digits
from .examples import Examples
from .images import (
    WHITE,
    CaptionedImages,
    LabeledImages,
    digest,
    image_size,
    read_captioned_images,
    read_images,
    without_duplicates,
)
from .parts import PartsConfig
from .report import DataReport, sizes_of
from .rows import Source
from .splitting import check_classes

SIZES = 1000  # images whose sizes are read for the report


Images = TypeVar("Images", LabeledImages, CaptionedImages)


@strict
@dataclass
class ImagePartsConfig(PartsConfig[Images]):
    """The common fields of the section ``data`` of recipes that read images. Equal images go into one part."""

    unit: ClassVar[str] = "images"

    image_column: str = "image"
    background: list[int] = field(default_factory=lambda: list(WHITE))  # red, green and blue behind transparent pixels

    def validate_background(self) -> None:
        if len(self.background) != 3 or not all(0 <= value <= 255 for value in self.background):
            raise ValueError(
                f"background is {self.background}; write three numbers from 0 to 255, such as [255, 255, 255]."
            )

    def key(self, item: Any) -> Hashable:
        return digest(item.image)


@strict
@dataclass
class ImageDataConfig(ImagePartsConfig[LabeledImages]):
    """Source of the labeled images of each part, as in ``hfattn.data.images.read_images``.

    ``dataset`` may also be "digits": the 1,797 digits of 8 x 8 pixels in scikit-learn.
    """

    generated: ClassVar[tuple[str, ...]] = ("digits",)

    label_column: str | None = "label"
    labels: list[str] | None = None  # names of the classes, from class 0 on; null: names in the data
    stratify: bool = True  # all parts of a split have the same share of each class
    # drop: read no training image that is in another part.
    duplicates: str = one_of(("keep", "drop"), "keep")
    train_size: int | None = at_least(1, None)  # of the training part, a random sample of so many images; null: all
    # Of red, green and blue, from 0 to 1; for a model from scratch.
    mean: list[float] = field(default_factory=lambda: [0.5] * 3)
    std: list[float] = field(default_factory=lambda: [0.5] * 3)

    def generate(self, seed: int) -> dict[str, LabeledImages]:
        return self.split_whole(read_digits(), seed if self.split_seed is None else self.split_seed)

    def read(self, dataset: Source, split: str, train: LabeledImages | None = None) -> LabeledImages:
        return read_images(
            dataset,
            image_column=self.image_column,
            label_column=self.label_column,
            labels=self.labels if train is None else train.labels,
            config=self.config,
            split=split,
            revision=self.revision,
        )

    def classes(self, whole: LabeledImages) -> list[int] | None:
        return [item.label for item in whole] if self.stratify and self.label_column is not None else None

    def split_whole(self, whole: LabeledImages, seed: int) -> dict[str, LabeledImages]:
        parts = super().split_whole(whole, seed)
        if self.label_column is not None:
            of_part = {part: [item.label for item in images] for part, images in parts.items()}
            check_classes(of_part, whole.labels, whole.name, self.unit, "the data")
        return parts

    def read_parts(self, seed: int, given: Source | None = None) -> dict[str, LabeledImages]:
        parts = super().read_parts(seed, given)
        if self.duplicates == "drop":
            parts["train"] = without_duplicates(
                parts["train"], [images for part, images in parts.items() if part != "train"]
            )
        if self.train_size is not None:
            if self.train_size > len(parts["train"]):
                raise UserError(
                    f"data.train_size is {self.train_size}, and there are {len(parts['train'])} training images; write "
                    "a smaller number, or null."
                )
            parts["train"] = parts["train"].sample(self.train_size, seed)
        return parts

    def report(
        self,
        parts: Mapping[str, LabeledImages] | None = None,
        given: Source | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        target_tokenizer: PreTrainedTokenizerBase | None = None,
        languages: Collection[str] = (),
    ) -> DataReport:
        parts = self.read_parts(1, given) if parts is None else parts
        report = image_report(parts, "data.duplicates: drop")
        if self.label_column is not None:
            train = parts["train"]
            counts = Counter(item.label for item in train)
            report.facts.append(
                "classes in train: " + ", ".join(f"{name} {counts[i]:,}" for i, name in enumerate(train.labels))
            )
            if missing := [name for i, name in enumerate(train.labels) if not counts[i]]:
                report.warnings.append(f"{missing[0]!r} has no training image: data.labels, data.split")
        return report


@strict
@dataclass
class CaptionedDataConfig(ImagePartsConfig[CaptionedImages]):
    """Source of the images and texts of each part, as in ``hfattn.data.images.read_captioned_images``."""

    text_column: str = "text"

    def read(self, dataset: Source, split: str, train: CaptionedImages | None = None) -> CaptionedImages:
        return read_captioned_images(
            dataset,
            image_column=self.image_column,
            text_column=self.text_column,
            config=self.config,
            split=split,
            revision=self.revision,
        )

    def report(
        self,
        parts: Mapping[str, CaptionedImages] | None = None,
        given: Source | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        target_tokenizer: PreTrainedTokenizerBase | None = None,
        languages: Collection[str] = (),
    ) -> DataReport:
        parts = self.read_parts(1, given) if parts is None else parts
        report = image_report(parts, "remove them from the files")
        words = [len(item.text.split()) for item in parts["train"]]
        report.facts.append(
            f"words of a text in train: {min(words)} to {max(words)}, mean {sum(words) / len(words):.1f}"
        )
        return report


def image_report(parts: Mapping[str, Examples[Any]], advice: str) -> DataReport:
    """Report the sizes of the images of each part, and how many are in two parts.

    Args:
        parts: the images of each part.
        advice: what to do about images in two parts.
    """
    report = DataReport([sizes_of(parts)])
    train = parts["train"]
    sizes = sorted({image_size(item.image) for item in list(train)[:SIZES]}, key=math.prod)
    described = [f"{width} × {height}" for width, height in (sizes[0], sizes[-1])]
    report.facts.append(
        "pixels of an image in train: "
        + (described[0] if len(sizes) == 1 else f"{' to '.join(described)}, in {len(sizes)} sizes")
    )
    seen = {digest(item.image) for item in train}
    for part, images in parts.items():
        if part != "train" and (shared := sum(digest(item.image) in seen for item in images)):
            report.warnings.append(f"{shared} images of {part} are in train too: {advice}")
    return report
