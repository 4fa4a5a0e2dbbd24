"""Images: labeled, or with a text each. They stay encoded in memory, and are decoded when they are used."""

import base64
import hashlib
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ..errors import UserError
from .examples import Examples
from .labeled import classes_of
from .rows import Row, Rows, Source, local_file, open_rows

if TYPE_CHECKING:
    from PIL.Image import Image

    # The bytes or the path of a file, values of pixels (height, width) or (height, width, 3) in uint8, or an image.
    Encoded: TypeAlias = bytes | Path | np.ndarray | Image
else:
    Encoded: TypeAlias = Any

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")  # Pillow reads others by running programs
SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")  # of files in these formats
MOST_PIXELS = 50_000_000  # of an image; a small file can hold many more, which fill the memory when they are decoded
WHITE = (255, 255, 255)


class LabeledImage(NamedTuple):
    """An image, the index of its class, its row in the dataset, and the other columns of that row."""

    image: Encoded
    label: int
    line: int | None = None
    fields: Mapping[str, Any] = {}


class CaptionedImage(NamedTuple):
    """An image, a text about it, its row in the dataset, and the other columns of that row."""

    image: Encoded
    text: str
    line: int | None = None
    fields: Mapping[str, Any] = {}


@dataclass(frozen=True)
class LabeledImages(Examples[LabeledImage]):
    """Labeled images in memory, with the names of the classes from class 0 on."""

    labels: list[str] = field(repr=False)

    noun = "Image"

    def columns(self, item: LabeledImage) -> tuple[str, ...]:
        return self.labels[item.label], digest(item.image)

    def texts(self, item: LabeledImage) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class CaptionedImages(Examples[CaptionedImage]):
    """Images with a text each, in memory."""

    noun = "Image"

    def columns(self, item: CaptionedImage) -> tuple[str, ...]:
        return item.text, digest(item.image)

    def texts(self, item: CaptionedImage) -> tuple[str, ...]:
        return (item.text,)


def digest(image: Encoded) -> str:
    """Return the SHA-256 of a file, or of the pixels of an array or of an image. A file is read once."""
    if isinstance(image, Path):
        state = image.stat()
        return _file_digest(image, state.st_size, state.st_mtime_ns)
    if isinstance(image, bytes):
        return hashlib.sha256(image).hexdigest()
    pixels = np.ascontiguousarray(image)
    return hashlib.sha256(repr(pixels.shape).encode() + pixels.tobytes()).hexdigest()


@cache
def _file_digest(path: Path, size: int, changed: int) -> str:
    """Return the SHA-256 of a file, which is read again if its size or its time has changed."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def as_file(image: Encoded) -> bytes:
    """Return the bytes of a file, or those of a PNG file with the pixels of an array or of an image."""
    if isinstance(image, bytes):
        return image
    if isinstance(image, Path):
        return image.read_bytes()
    file = io.BytesIO()
    _opened(image, "The image").save(file, "PNG")
    return file.getvalue()


def as_base64(image: Encoded) -> str:
    """Return these bytes in base64, as JSON can hold them."""
    return base64.b64encode(as_file(image)).decode()


def open_image(image: Encoded, background: Sequence[int] = WHITE, place: str | None = None) -> "Image":
    """Decode an image to RGB, upright, without the metadata of its file.

    Args:
        image: the image. Of several images in a file, the first is taken.
        background: color behind transparent pixels.
        place: what the image is called in messages. By default, they name its file, if its path is given.

    Raises:
        UserError: the file is not an image in one of ``FORMATS``, is damaged, has more than ``MOST_PIXELS`` pixels, or
            has pixels of more than 16 bits.
    """
    place = place or _called(image)
    return _decoded(_opened(image, place), background, place)


def check_image(image: Encoded, place: str | None = None) -> None:
    """Check that an image can be decoded, as ``open_image`` decodes it.

    Raises:
        UserError: see ``open_image``.
    """
    place = place or _called(image)
    opened = _opened(image, place)
    if isinstance(image, bytes | Path):  # an image of the caller must keep its size
        opened.draft(None, (1, 1))  # a JPEG file is read to its end, and computed at an eighth of its size
    _decoded(opened, WHITE, place)


def image_size(image: Encoded, place: str | None = None) -> tuple[int, int]:
    """Return width and height of an image, which is not decoded.

    Raises:
        UserError: the file is not an image in one of ``FORMATS``, or has more than ``MOST_PIXELS`` pixels.
    """
    return _opened(image, place or _called(image)).size


def _called(image: Encoded) -> str:
    return f"The image {image}" if isinstance(image, Path) else "The image"


def _decoded(opened: "Image", background: Sequence[int], place: str) -> "Image":
    from PIL import Image, ImageOps

    try:
        upright = _of_eight_bits(ImageOps.exif_transpose(opened), place)
        if upright.has_transparency_data:
            with_alpha = upright.convert("RGBA")
            opaque = Image.new("RGBA", upright.size, (*background, 255))
            upright = Image.alpha_composite(opaque, with_alpha)
        rgb = upright.convert("RGB")
    except UserError:
        raise
    except (OSError, SyntaxError, ValueError) as error:  # what Pillow raises for damaged files
        raise UserError(f"{place} is damaged ({str(error).rstrip('.')}); save it again, or remove it.") from error
    rgb.info = {}
    return rgb


def _of_eight_bits(image: "Image", place: str) -> "Image":
    """Scale pixels of 16 bits, also those that Pillow holds in 32, to 8: it would cut off all values above 255."""
    from PIL import Image

    if image.mode == "F":
        raise UserError(f"{place} has floating-point pixels, whose range is unknown; save it with 8 or 16 bits.")
    if image.mode != "I" and not image.mode.startswith("I;16"):
        return image
    pixels = np.asarray(image)
    if pixels.min() < 0 or pixels.max() > 65_535:
        raise UserError(
            f"{place} has pixels from {pixels.min():,} to {pixels.max():,}, which are not of 16 bits; save it with 8 "
            "or 16 bits."
        )
    return Image.fromarray((pixels >> 8).astype(np.uint8))


def _opened(image: Encoded, place: str) -> "Image":
    from PIL import Image, UnidentifiedImageError

    if isinstance(image, np.ndarray):
        return Image.fromarray(image)
    if isinstance(image, Image.Image):
        return image
    try:
        with warnings.catch_warnings(action="ignore", category=Image.DecompressionBombWarning):
            opened = Image.open(io.BytesIO(image) if isinstance(image, bytes) else image, formats=FORMATS)
    except Image.DecompressionBombError:
        raise UserError(f"{place} has more than {MOST_PIXELS:,} pixels; make it smaller.") from None
    except UnidentifiedImageError:
        raise UserError(
            f"{place} is not an image in the format {', '.join(FORMATS)}; convert it, or remove it."
        ) from None
    except (OSError, SyntaxError, ValueError) as error:
        raise UserError(f"{place} cannot be read ({str(error).rstrip('.')}); save it again, or remove it.") from error
    if opened.width * opened.height > MOST_PIXELS:
        raise UserError(
            f"{place} has {opened.width:,} × {opened.height:,} pixels, more than {MOST_PIXELS:,}; make it smaller."
        )
    return opened


def image_files(folder: Path) -> list[Path]:
    """Return the files of images in a folder and its subfolders, in alphabetical order, by their suffixes."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())


def read_images(
    dataset: Source,
    *,
    image_column: str = "image",
    label_column: str | None = "label",
    labels: Sequence[str] | None = None,
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
) -> LabeledImages:
    """Read labeled images. All other columns are stored in ``fields``.

    Args:
        dataset: a source of rows, as in ``open_rows``: a folder with a folder of images for each class, the IDX files
            of MNIST, a Parquet file, a dataset on the Hub, or a file whose column has paths of images.
        image_column, label_column: columns to read. Without ``label_column``, all images are of one class.
        labels: names of the classes, from class 0 on, as in ``read_labeled``.
        config, split, revision: configuration, split and revision of a folder or of a dataset on the Hub.

    Raises:
        UserError: the source or a column does not exist, or a row has no image, a damaged one, or no label.
    """
    rows = open_rows(dataset, config=config, split=split, revision=revision)
    written: list[Any] = []
    items = []
    for row, image, fields in _image_rows(rows, dataset, image_column, label_column):
        if label_column is not None:
            label = rows.value(row, label_column, "label_column")
            if isinstance(label, bool) or not isinstance(label, int | str) or label in ("", -1):
                raise UserError(f"{rows.place(row)} has the label {label!r}; write the name or the number of a class.")
            written.append(label)
        items.append(LabeledImage(image, 0, row.number, fields))
    if label_column is None:
        return LabeledImages(rows.name, items, unit=rows.unit, labels=["image"])
    names, number_of = classes_of(rows, label_column, labels, written)
    for index, label in enumerate(written):
        if label not in number_of:
            raise UserError(
                f"{rows.unit} {items[index].line} of {rows.name} has the label {label!r}, which is not one of "
                f"{', '.join(names)}; correct it, or change data.labels."
            )
        items[index] = items[index]._replace(label=number_of[label])
    return LabeledImages(rows.name, items, unit=rows.unit, labels=names)


def read_captioned_images(
    dataset: Source,
    *,
    image_column: str = "image",
    text_column: str = "text",
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
) -> CaptionedImages:
    """Read images with a text each.

    Args:
        dataset, image_column, config, split, revision: as in ``read_images``; a folder of images has the other columns
            in ``metadata.csv`` or ``metadata.jsonl``.
        text_column: column of the texts. A row with a list of texts counts as one example for each of them.

    Raises:
        UserError: the source or a column does not exist, or a row has no image, a damaged one, or no text.
    """
    rows = open_rows(dataset, config=config, split=split, revision=revision)
    items = []
    for row, image, fields in _image_rows(rows, dataset, image_column, text_column):
        value = rows.value(row, text_column, "text_column")
        texts = value if isinstance(value, list) else [value]
        if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
            raise UserError(f"{rows.place(row)} has {value!r} in {text_column!r}; write a text, or remove the row.")
        for text in texts:
            items.append(CaptionedImage(image, text, row.number, fields))
    return CaptionedImages(rows.name, items, unit=rows.unit)


def _image_rows(
    rows: Rows, dataset: Source, image_column: str, other_column: str | None
) -> Iterator[tuple[Row, Encoded, dict[str, Any]]]:
    """Yield the rows with their images, which are still encoded, and with the columns that are neither of the two."""
    file = local_file(dataset)
    empty = True
    for row in rows:
        empty = False
        value = rows.value(row, image_column, "image_column")
        image = _encoded(value, file)
        if image is None:
            raise UserError(f"{rows.place(row)} has no image in {image_column!r}; write another data.image_column.")
        path = image if isinstance(image, Path) else value.get("path") if isinstance(value, Mapping) else None
        # Otherwise a damaged image would end the training, or the evaluation after it. This takes 0.7 ms for a JPEG
        # file of 640 × 480 pixels, and 8 ms for such a PNG file: less than reading it in one epoch.
        check_image(image, f"The image {f'{path} ' if path else ''}in {rows.unit.lower()} {row.number} of {rows.name}")
        used = {image_column, other_column}
        yield row, image, {name: value for name, value in row.values.items() if name not in used}
    if empty:
        raise UserError(f"{rows.name} is empty; add images.")


def _encoded(value: Any, file: Path | None) -> Encoded | None:
    """Return the image of a column; ``file`` is the file of the rows, beside which the path of an image begins."""
    if isinstance(value, Mapping):
        if isinstance(content := value.get("bytes"), bytes):
            return content
        if file is None and "bytes" in value:  # of ``datasets.Image``, undecoded
            return Path(value["path"]) if value.get("path") else None
        value = value.get("path")
    if isinstance(value, str):  # a dataset of the Hub must not name files of this machine
        return file.parent / value if file is not None and value else None
    return value if isinstance(value, bytes | np.ndarray) or hasattr(value, "getbands") else None


def unlabeled_images(images: Sequence[Encoded]) -> LabeledImages:
    """Return images without labels, for a model to predict, with class 0 assigned to each."""
    return LabeledImages("images", [LabeledImage(image, 0) for image in images], labels=["image"])


def without_duplicates(train: LabeledImages, others: Sequence[LabeledImages]) -> LabeledImages:
    """Return the training images that are in no other part.

    Raises:
        UserError: none is.
    """
    held = {digest(item.image) for part in others for item in part}
    return train.without(held, lambda item: digest(item.image), "images")
