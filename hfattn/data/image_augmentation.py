"""The section ``augmentation``: random changes of training images, on Pillow and tensors.

Each field is off by default and has its usual name. ``shift`` to ``erasing`` change an image; ``mixup`` and ``cutmix``
mix the images of a batch and their labels.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from huggingface_hub.dataclasses import strict

from ..fields import at_least, number, share

if TYPE_CHECKING:
    from PIL.Image import Image

GRAYSCALE_WEIGHTS = (0.299, 0.587, 0.114)  # of ITU-R BT.601, as in Pillow


@strict
@dataclass
class AugmentationConfig:
    """Random changes of training images. Sizes are fractions of the image, unless the field says pixels."""

    shift: int = at_least(0, 0)  # pixels of the resized image, in both directions; what appears is the nearest pixel
    # Least share of the area of a random crop, which gets the size of the model (Szegedy et al. 2015); null: off.
    crop_scale: float | None = number(None, above=0, most=1)
    crop_ratio: float | int = number(4 / 3, least=1)  # largest ratio of the sides of a crop
    flip: float | int = share(0.0)  # probability of a mirror image, left to right
    rotation: float | int = number(0.0, least=0, most=180)  # largest angle, in degrees
    # Largest change of brightness, contrast and saturation, as a factor, and a quarter of it of the hue, as a turn.
    jitter: float | int = number(0.0, least=0, most=1)
    grayscale: float | int = share(0.0)  # probability
    blur: float | int = share(0.0)  # probability of a Gaussian blur
    blur_radius: float | int = number(2.0, above=0)  # largest standard deviation, in pixels at a side of 224
    solarize: float | int = share(0.0)  # probability of inverting all values above one half
    erasing: float | int = share(0.0)  # probability of a rectangle of noise (Zhong et al. 2020)
    mixup: float | int = number(0.0, least=0)  # α of the Beta distribution (Zhang et al. 2018); 0: off
    cutmix: float | int = number(0.0, least=0)  # α (Yun et al. 2019); with mixup, one of the two at random

    @property
    def changes_images(self) -> bool:
        """Whether single images are changed; mixtures of them are not counted."""
        return any(
            (self.shift, self.crop_scale, self.flip, self.rotation, self.jitter, self.grayscale, self.blur,
             self.solarize, self.erasing)
        )  # fmt: skip

    @property
    def mixes(self) -> bool:
        """Whether images of a batch are mixed."""
        return self.mixup > 0 or self.cutmix > 0


class Augmentation:
    """Random changes of single images.

    Args:
        config: the changes.
        size: height and width of the result, in pixels.
        resample: number of Pillow's filter that resizes whole images; None: see ``resized``.
    """

    def __init__(self, config: AugmentationConfig, size: tuple[int, int], resample: int | None = None) -> None:
        self.config, self.size, self.resample = config, size, resample

    def __call__(self, image: "Image", random: np.random.Generator) -> "Image":
        """Change an RGB image by random numbers, and resize it to the size of the model."""
        for change in self.changes(random):
            image = change(image)
        return image

    def changes(self, random: np.random.Generator) -> Iterator[Callable[["Image"], "Image"]]:
        """Yield the changes of an image, in their order."""
        config, size = self.config, self.size
        if config.crop_scale is None:
            yield partial(resized, size=size, resample=self.resample)
        else:
            yield partial(random_crop, size=size, scale=config.crop_scale, ratio=config.crop_ratio, random=random)
        if config.shift:
            x, y = (int(step) for step in random.integers(-config.shift, config.shift + 1, 2))
            yield partial(shifted, x=x, y=y)
        if config.rotation:
            yield partial(rotated, degrees=random.uniform(-config.rotation, config.rotation))
        if random.random() < config.flip:
            yield mirrored
        if config.jitter:
            yield partial(jittered, strength=config.jitter, random=random)
        if random.random() < config.grayscale:
            yield gray
        if random.random() < config.blur:
            yield partial(blurred, radius=random.uniform(0.05, 1) * config.blur_radius * min(size) / 224)
        if random.random() < config.solarize:
            yield solarized
        if random.random() < config.erasing:
            yield partial(erased, random=random)


def resized(image: "Image", size: tuple[int, int], resample: int | None = None) -> "Image":
    """Resize an image to (height, width), by the filter with this number in Pillow; None: bilinear."""
    from PIL import Image

    resampling = Image.Resampling.BILINEAR if resample is None else Image.Resampling(resample)
    return image if image.size == size[::-1] else image.resize(size[::-1], resampling)


def random_crop(
    image: "Image", size: tuple[int, int], scale: float, ratio: float, random: np.random.Generator, most: float = 1.0
) -> "Image":
    """Cut a random rectangle and resize it to (height, width).

    Args:
        scale, most: bounds of its share of the area.
        ratio: largest ratio of its sides, relative to those of the result.
    """
    from PIL import Image

    area = random.uniform(scale, most) * image.width * image.height
    sides = np.exp(random.uniform(-np.log(ratio), np.log(ratio))) * size[1] / size[0]
    width = min(round(np.sqrt(area * sides)) or 1, image.width)
    height = min(round(np.sqrt(area / sides)) or 1, image.height)
    left, top = random.integers(image.width - width + 1), random.integers(image.height - height + 1)
    box = (int(left), int(top), int(left + width), int(top + height))
    return image.resize(size[::-1], Image.Resampling.BICUBIC, box=box)


def shifted(image: "Image", x: int, y: int) -> "Image":
    """Move an image to the right and down; what appears has the value of the nearest pixel."""
    from PIL import Image

    if x == y == 0:
        return image
    pixels = np.asarray(image)
    rows = np.clip(np.arange(image.height) - y, 0, image.height - 1)
    columns = np.clip(np.arange(image.width) - x, 0, image.width - 1)
    return Image.fromarray(pixels[rows[:, None], columns])


def rotated(image: "Image", degrees: float) -> "Image":
    """Rotate an image; the corners get the color of its upper left pixel."""
    from PIL import Image

    return image.rotate(degrees, Image.Resampling.BILINEAR, fillcolor=image.getpixel((0, 0)))


def mirrored(image: "Image") -> "Image":
    """Mirror an image, left to right."""
    from PIL import ImageOps

    return ImageOps.mirror(image)


def jittered(image: "Image", strength: float, random: np.random.Generator) -> "Image":
    """Change brightness, contrast, saturation and hue, in a random order."""
    from PIL import ImageEnhance

    kinds = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
    factors = random.uniform(1 - strength, 1 + strength, len(kinds))
    turn = random.uniform(-strength / 4, strength / 4)
    for step in random.permutation(len(kinds) + 1):
        image = turned(image, turn) if step == len(kinds) else kinds[step](image).enhance(factors[step])
    return image


def turned(image: "Image", turn: float) -> "Image":
    """Turn the hues of an image by a fraction of the circle of colors."""
    from PIL import Image

    hue, saturation, value = image.convert("HSV").split()
    hue = Image.fromarray(((np.asarray(hue).astype(int) + round(turn * 256)) % 256).astype(np.uint8))
    return Image.merge("HSV", (hue, saturation, value)).convert("RGB")


def gray(image: "Image") -> "Image":
    """Remove the colors of an image."""
    return image.convert("L").convert("RGB")


def blurred(image: "Image", radius: float) -> "Image":
    """Blur an image by a Gaussian with this standard deviation in pixels."""
    from PIL import ImageFilter

    return image.filter(ImageFilter.GaussianBlur(radius))


def solarized(image: "Image") -> "Image":
    """Invert the values of an image that are above one half."""
    from PIL import ImageOps

    return ImageOps.solarize(image)


def erased(image: "Image", random: np.random.Generator) -> "Image":
    """Fill a rectangle of 2 to 33 % of the area with noise."""
    from PIL import Image

    pixels = np.array(image)
    area = random.uniform(0.02, 1 / 3) * image.width * image.height
    sides = np.exp(random.uniform(-np.log(3.3), np.log(3.3)))
    width = min(round(np.sqrt(area * sides)) or 1, image.width)
    height = min(round(np.sqrt(area / sides)) or 1, image.height)
    left, top = random.integers(image.width - width + 1), random.integers(image.height - height + 1)
    pixels[top : top + height, left : left + width] = random.integers(0, 256, (height, width, 3))
    return Image.fromarray(pixels)


def mixed(
    pixel_values: torch.Tensor, targets: torch.Tensor, config: AugmentationConfig, random: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mix each image of a batch with another one (mixup, CutMix), and their targets in the same proportion.

    Args:
        pixel_values: (B, C, height, width).
        targets: (B, labels), the share of each class.
        config: the section ``augmentation``, with ``mixup``, ``cutmix`` or both.
        random: random numbers.

    Returns:
        The mixtures, and their targets.
    """
    cuts = config.cutmix > 0 and (config.mixup == 0 or random.random() < 0.5)
    alpha = config.cutmix if cuts else config.mixup
    kept = random.beta(alpha, alpha)
    others = torch.from_numpy(random.permutation(len(targets)))
    if cuts:
        height, width = pixel_values.shape[-2:]
        rows, columns = (random_span(side, (1 - kept) ** 0.5, random) for side in (height, width))
        pixel_values = pixel_values.clone()
        pixel_values[..., rows, columns] = pixel_values[others][..., rows, columns]
        kept = 1 - (rows.stop - rows.start) * (columns.stop - columns.start) / (height * width)
    else:
        pixel_values = kept * pixel_values + (1 - kept) * pixel_values[others]
    return pixel_values, kept * targets + (1 - kept) * targets[others]


def random_span(side: int, part: float, random: np.random.Generator) -> slice:
    """Return this part of a side around a random pixel, cut at the border."""
    center, half = int(random.integers(side)), round(side * part / 2)
    return slice(max(center - half, 0), min(center + half, side))
