"""Scenes: images composed of real images of things, each with one right caption, for image captioning.

A scene shows two to four things on a background. Its caption names them in a fixed order, the left or upper one first,
so that no other caption is right: "a seven above a three". Each scene keeps where its things are, and which words of
the caption name them, to measure whether a model looks at what it names.
"""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import ClassVar, NamedTuple

import numpy as np
from huggingface_hub.dataclasses import strict

from ..errors import UserError
from ..fields import at_least, one_of
from .digits import SPANISH_WORDS
from .image_parts import CaptionedDataConfig
from .images import CaptionedImage, CaptionedImages, Encoded, open_image, read_captioned_images, read_images
from .rows import Source
from .text import PARTS

LANGUAGES = ("en", "es")

# The layouts of a number of things: the place of each, (row, column) in a grid of (rows, columns), and the caption.
_CAPTIONS = {
    "en": {
        "row2": "{} left of {}",
        "column2": "{} above {}",
        "row3": "{} and {} and {} in a row",
        "column3": "{} and {} and {} in a column",
        "grid4": "{} and {} above {} and {}",
    },
    "es": {
        "row2": "{} a la izquierda de {}",
        "column2": "{} encima de {}",
        "row3": "{} y {} y {} en fila",
        "column3": "{} y {} y {} en columna",
        "grid4": "{} y {} encima de {} y {}",
    },
}
_GRIDS = {"row2": (1, 2), "column2": (2, 1), "row3": (1, 3), "column3": (3, 1), "grid4": (2, 2)}

_DIGITS = {
    "en": ("a zero", "a one", "a two", "a three", "a four", "a five", "a six", "a seven", "an eight", "a nine"),
    "es": tuple(f"un {name}" for name in SPANISH_WORDS),
}
_ARTICLES = {"en": ("a", "an"), "es": ("un", "una")}
_MOST_WORDS = 5  # of the caption of a stamp; longer ones tell a story
EVALUATION_SHARE = 0.1  # of the compositions, for each of validation and test


class Thing(NamedTuple):
    """A thing that scenes show.

    Attributes:
        pixels: (height, width, 4) in uint8 with an alpha channel, or (height, width), the opacity of a white thing.
        name: its caption, with an article.
    """

    pixels: np.ndarray
    name: str


class SceneObject(NamedTuple):
    """Where a thing is in a scene.

    Attributes:
        words: the first and the last word of the caption that name it, without its article, counted from 0.
        box: top, left, height and width, in pixels.
        mask: boolean (height, width), True where it is, inside the box.
    """

    words: tuple[int, int]
    box: tuple[int, int, int, int]
    mask: np.ndarray

    def region(self, height: int, width: int) -> np.ndarray:
        """Return the mask in the whole image, boolean (height, width)."""
        top, left, rows, columns = self.box
        whole = np.zeros((height, width), bool)
        whole[top : top + rows, left : left + columns] = self.mask
        return whole


@dataclass(frozen=True)
class Scenes:
    """How scenes are drawn.

    Args:
        things: the things of each part. If all parts have the same things, their compositions differ.
        numbers: possible numbers of things in a scene: 2, 3 and 4.
        size: height and width of a scene, in pixels.
        scale: smallest and largest size of a thing, the longer side as a share of its cell of the layout.
        background: "black", or "clutter" for colored rectangles and noise.
        language: "en" or "es".
        name: name of the dataset.
    """

    things: Mapping[str, Sequence[Thing]]
    numbers: Sequence[int]
    size: int
    scale: tuple[float, float]
    background: str
    language: str
    name: str

    def draw(self, part: str, number: int, seed: int) -> CaptionedImages:
        """Return ``number`` scenes of a part; ``fields`` of each has its ``objects``."""
        random = np.random.default_rng([seed, PARTS.index(part)])
        layouts = [layout for layout, grid in _GRIDS.items() if grid[0] * grid[1] in self.numbers]
        items: list[CaptionedImage] = []
        while len(items) < number:
            layout = layouts[random.integers(len(layouts))]
            rows, columns = _GRIDS[layout]
            things = self.things[part]
            chosen = random.integers(len(things), size=rows * columns).tolist()
            if self._is_shared and _part_of(layout, chosen) != part:
                continue
            items.append(self._compose(layout, [things[i] for i in chosen], random))
        return CaptionedImages(self.name, items, unit="Scene")

    @property
    def _is_shared(self) -> bool:
        """Whether all parts have the same things."""
        first, *others = self.things.values()
        return all(each is first for each in others)

    def _compose(self, layout: str, things: Sequence[Thing], random: np.random.Generator) -> CaptionedImage:
        rows, columns = _GRIDS[layout]
        pixels = background(self.background, self.size, random)
        objects = []
        for index, (thing, words) in enumerate(zip(things, self._words(layout, things), strict=True)):
            row, column = divmod(index, columns)
            cell = (self.size / rows, self.size / columns)
            side = min(cell) * random.uniform(*self.scale)
            scaled = resized_thing(thing.pixels, side)
            box = []
            for place, length, extent in zip((row, column), cell, scaled.shape[:2], strict=True):
                # In a row, things move up and down by their whole cell, and so in a column.
                box.append(int(place * length + random.uniform(0, max(length - extent, 0))))
            top, left = (min(start, self.size - extent) for start, extent in zip(box, scaled.shape[:2], strict=True))
            height, width = scaled.shape[:2]
            alpha = scaled[..., 3:] / 255
            region = pixels[top : top + height, left : left + width]
            region[:] = (alpha * scaled[..., :3] + (1 - alpha) * region).round()
            objects.append(SceneObject(words, (top, left, height, width), scaled[..., 3] > 127))
        if self.background == "black" and all(thing.pixels.ndim == 2 for thing in things):
            pixels = pixels[..., 0]  # a third of the memory
        caption = _CAPTIONS[self.language][layout].format(*(thing.name for thing in things))
        return CaptionedImage(pixels, caption, fields={"objects": objects})

    def _words(self, layout: str, things: Sequence[Thing]) -> list[tuple[int, int]]:
        """Return the first and the last word of each thing in the caption, without its article."""
        spans, position, names = [], 0, iter(things)
        for word in _CAPTIONS[self.language][layout].split():
            length = 1
            if word == "{}":
                length = len(next(names).name.split())
                spans.append((position + 1, position + length - 1))
            position += length
        return spans


def background(kind: str, size: int, random: np.random.Generator) -> np.ndarray:
    """Return a background (size, size, 3) in uint8: "black", or "clutter" for colored rectangles and noise."""
    if kind == "black":
        return np.zeros((size, size, 3), np.uint8)
    pixels = np.empty((size, size, 3))
    pixels[:] = random.integers(256, size=3)
    for _ in range(random.integers(2, 7)):
        top, left = random.integers(size, size=2)
        height, width = random.integers(size // 8, size, size=2)
        pixels[top : top + height, left : left + width] = random.integers(256, size=3)
    return (pixels + random.normal(0, 12, pixels.shape)).clip(0, 255).astype(np.uint8)


def resized_thing(pixels: np.ndarray, side: float) -> np.ndarray:
    """Return the pixels (height, width, 4) of a thing, whose longer side has a number of pixels."""
    from PIL import Image

    if pixels.ndim == 2:
        pixels = np.dstack([np.full((*pixels.shape, 3), 255, np.uint8), pixels])
    height, width = pixels.shape[:2]
    scale = side / max(height, width)
    size = max(round(width * scale), 1), max(round(height * scale), 1)
    # Colors are weighted with their alpha: what a transparent pixel hides must not appear at an edge.
    return np.asarray(Image.fromarray(pixels).convert("RGBa").resize(size).convert("RGBA"))


def _part_of(layout: str, chosen: Sequence[int]) -> str:
    """Return the part of a composition, which a hash of the layout and the numbers of its things decides."""
    first = sha256(f"{layout} {chosen}".encode()).digest()[0] / 256
    return "test" if first < EVALUATION_SHARE else "validation" if first < 2 * EVALUATION_SHARE else "train"


def digit_things(source: Source | None, language: str) -> dict[str, list[Thing]]:
    """Return the digits of each part: no digit is in two parts.

    Args:
        source: a dataset of digits with the splits train and test, as in ``read_images``, such as the folder of the
            files of MNIST or "ylecun/mnist"; the last tenth of train is for validation. None: the 8 x 8 digits of
            scikit-learn.
        language: language of the names.

    Raises:
        UserError: the dataset cannot be read, or has other classes than the ten digits.
    """
    if source is None:
        from sklearn.datasets import load_digits

        digits = load_digits()
        drawn = [
            ((image * 15.9).astype(np.uint8), int(label))
            for image, label in zip(digits.images, digits.target, strict=True)
        ]
        test = drawn[-len(drawn) // 5 :]
        drawn = drawn[: -len(drawn) // 5]
    else:
        drawn, test = _read_digits(source, "train"), _read_digits(source, "test")
    cut = len(drawn) - len(drawn) // 10
    return {
        part: [Thing(_cropped(image), _DIGITS[language][label]) for image, label in digits]
        for part, digits in zip(PARTS, (drawn[:cut], drawn[cut:], test), strict=True)
    }


def _read_digits(source: Source, split: str) -> list[tuple[np.ndarray, int]]:
    images = read_images(source, split=split)
    if len(images.labels) != 10:
        raise UserError(
            f"{images.name} has {len(images.labels)} classes, and scenes of digits need the ten digits; write the "
            "folder of MNIST, or null for the digits of scikit-learn."
        )

    def gray(image: Encoded) -> np.ndarray:
        if isinstance(image, np.ndarray) and image.ndim == 2:
            return image
        return np.asarray(open_image(image).convert("L"))

    return [(gray(item.image), item.label) for item in images]


def _cropped(opacity: np.ndarray) -> np.ndarray:
    """Cut off the rows and columns at the edges in which nothing is drawn."""
    rows, columns = (np.flatnonzero((opacity > 63).any(axis)) for axis in (1, 0))
    return opacity[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].copy()


def stamp_things(source: Source, language: str) -> dict[str, list[Thing]]:
    """Return the cut-out photographs of a dataset, the same ones for each part.

    Args:
        source: a dataset with the column ``image``, images with an alpha channel; a column with captions for each
            language ("en", "es"), such as "A red flower."; and the column ``cartoon``, whose drawings are left out.
            Captions that do not start with an article, or have more than ``_MOST_WORDS`` words, are left out, also if
            those in the other language do, so that the scenes of both languages are the same.
        language: column of the captions.

    Raises:
        UserError: the dataset cannot be read, or has no such captions.
    """
    from PIL import Image

    stamps = read_captioned_images(source, text_column=language)
    things = []
    for item in stamps:
        captions = {**item.fields, language: item.text}
        if item.fields.get("cartoon") or not all(_names_a_thing(captions, each) for each in LANGUAGES):
            continue
        assert isinstance(item.image, bytes)
        pixels = np.asarray(Image.open(io.BytesIO(item.image)).convert("RGBA"))
        rows, columns = (np.flatnonzero((pixels[..., 3] > 127).any(axis)) for axis in (1, 0))
        cut = pixels[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].copy()
        things.append(Thing(cut, item.text[0].lower() + item.text[1:].rstrip(".")))
    if not things:
        raise UserError(
            f"{stamps.name} has no caption such as 'A red flower.' in {language!r}; write the dataset of the stamps."
        )
    return dict.fromkeys(PARTS, things)


def _names_a_thing(captions: Mapping[str, str], language: str) -> bool:
    """Return whether a caption is an article and a few words, such as "A red flower."."""
    articles = "|".join(_ARTICLES[language])
    named = rf"(?i:{articles})( [\w-]+){{1,{_MOST_WORDS - 1}}}\.?"
    return re.fullmatch(named, captions.get(language, "")) is not None


@strict
@dataclass
class SceneDataConfig(CaptionedDataConfig):
    """Source of images and their captions: one's own, or scenes.

    The datasets ``digit_scenes`` and ``stamp_scenes`` are drawn from real images of things, which ``things`` names.
    """

    unit: ClassVar[str] = "images"
    generated: ClassVar[tuple[str, ...]] = ("digit_scenes", "stamp_scenes")

    dataset: str = "digit_scenes"
    text_column: str = "caption"
    # Of scenes: a dataset of digits, as in read_images; null: the 8 x 8 digits of scikit-learn. Of stamp_scenes, a
    # dataset of cut-out photographs with a column of captions for each language.
    things: str | None = None
    language: str = one_of(LANGUAGES, "en")
    numbers: list[int] = field(default_factory=lambda: [2])  # of things in a scene: 2, 3 and 4
    scale: list[float | int] = field(default_factory=lambda: [0.55, 0.9])  # size of a thing, as a share of its cell
    scene_background: str = one_of(("black", "clutter"), "black")
    examples: int = at_least(1, 20_000)  # number of scenes to train on
    evaluation_examples: int = at_least(1, 1000)  # number of scenes in each of validation and test
    image_size: int = at_least(8, 64)  # height and width of all images, in pixels

    def validate_scenes(self) -> None:
        if not self.numbers or not set(self.numbers) <= {2, 3, 4}:
            raise ValueError(f"numbers is {self.numbers}; write numbers of things from 2 to 4, such as [2, 3].")
        if len(self.scale) != 2 or not 0.1 <= self.scale[0] <= self.scale[1] <= 1:
            raise ValueError(f"scale is {self.scale}; write two shares from 0.1 to 1, such as [0.55, 0.9].")
        if self.dataset == "stamp_scenes" and self.things is None:
            raise ValueError("stamp_scenes are drawn from a dataset; write its path in things.")

    def generate(self, seed: int) -> dict[str, CaptionedImages]:
        if self.dataset == "digit_scenes":
            things = digit_things(self.things, self.language)
        else:
            assert self.things is not None
            things = stamp_things(self.things, self.language)
        scale = (self.scale[0], self.scale[1])
        scenes = Scenes(
            things, self.numbers, self.image_size, scale, self.scene_background, self.language, self.dataset
        )
        numbers = {part: self.examples if part == "train" else self.evaluation_examples for part in PARTS}
        return {part: scenes.draw(part, number, seed) for part, number in numbers.items()}
