"""Images as the inputs of models: augmented in training, as the processor makes them in evaluation."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..errors import UserError
from .batches import TrainingExamples
from .examples import Examples
from .image_augmentation import Augmentation, AugmentationConfig, mixed
from .images import WHITE, Encoded, LabeledImages, open_image

if TYPE_CHECKING:
    from PIL.Image import Image
    from transformers import BaseImageProcessor, ViTImageProcessorPil


def make_processor(size: tuple[int, int], mean: Sequence[float], std: Sequence[float]) -> "ViTImageProcessorPil":
    """Return the processor of a model from scratch.

    Args:
        size: height and width of the model's images, in pixels.
        mean, std: mean and standard deviation of red, green and blue, from 0 to 1, by which pixels are normalized.
    """
    from transformers import ViTImageProcessorPil  # slow to import

    height, width = size
    return ViTImageProcessorPil(
        size={"height": height, "width": width}, image_mean=list(mean), image_std=list(std), do_convert_rgb=True
    )


def input_size(processor: "BaseImageProcessor") -> tuple[int, int]:
    """Return height and width of the images that a processor makes.

    Raises:
        UserError: the processor makes images of different sizes.
    """
    from transformers import ConvNextImageProcessorPil  # slow to import

    size = processor.crop_size if getattr(processor, "do_center_crop", None) else processor.size
    if isinstance(processor, ConvNextImageProcessorPil) and "shortest_edge" in dict(size):
        return size["shortest_edge"], size["shortest_edge"]  # its resizing ends with a square
    if not {"height", "width"} <= dict(size).keys():
        raise UserError(
            f"The processor resizes to {dict(size)}, so images have different sizes; write the height and the width of "
            "images in its preprocessor_config.json."
        )
    return size["height"], size["width"]


def is_plain(processor: "BaseImageProcessor") -> bool:
    """Return whether a processor resizes, rescales and normalizes, as that of ``make_processor``, and nothing else."""
    from transformers import ViTImageProcessorPil  # slow to import

    return type(processor) is ViTImageProcessorPil


def normalized(image: "Image", processor: "BaseImageProcessor") -> torch.Tensor:
    """Return ``pixel_values`` (3, height, width) of an image that has its final size.

    They are what the processor makes of it without resizing or cropping: other steps, such as another order of the
    channels, are applied.
    """
    if not is_plain(processor):
        unchanged = {"do_resize": False, "do_center_crop": False}
        pixel_values: torch.Tensor = processor([image], return_tensors="pt", **unchanged)["pixel_values"]
        return pixel_values[0]
    # Recorded runs of models from scratch were trained with this arithmetic, which the processor rounds differently.
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float()
    if processor.do_rescale:
        pixels = pixels * processor.rescale_factor
    if processor.do_normalize:
        mean, std = (torch.tensor(values)[:, None, None] for values in (processor.image_mean, processor.image_std))
        pixels = (pixels - mean) / std
    return pixels


def color_values(processor: "BaseImageProcessor") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return how a processor writes colors: black (3,) and white (3,), and the number of the color in each channel."""
    from PIL import Image

    colors = ((0, 0, 0), (255, 255, 255), (255, 0, 0), (0, 255, 0), (0, 0, 255))
    values = torch.stack([normalized(Image.new("RGB", (8, 8), color), processor)[:, 0, 0] for color in colors])
    return values[0], values[1], (values[2:] - values[0]).abs().argmax(0)


def store_background(processor: "BaseImageProcessor", background: Sequence[int]) -> None:
    """Write the color behind transparent pixels into a processor, whose preprocessor_config.json then states it."""
    processor.background = list(background)


def processed(
    images: Sequence[Encoded], processor: "BaseImageProcessor", background: Sequence[int] | None = None
) -> torch.Tensor:
    """Return ``pixel_values`` (B, 3, height, width) of images, as the processor makes them.

    Args:
        images: the images.
        processor: the processor.
        background: color behind transparent pixels; None: the one that the processor states, or white.
    """
    color = getattr(processor, "background", WHITE) if background is None else background
    opened = [open_image(image, color) for image in images]
    pixel_values: torch.Tensor = processor(opened, return_tensors="pt")["pixel_values"]
    return pixel_values


def augmentation_for(processor: "BaseImageProcessor", config: AugmentationConfig | None) -> Augmentation | None:
    """Return the random changes of single images, which get the size of a processor; None: there are none."""
    if config is None or not config.changes_images:
        return None
    return Augmentation(config, input_size(processor), processor.resample)


class ImageReader:
    """Images of a part as ``pixel_values`` (3, height, width): changed at random, or as the processor makes them.

    Args:
        images: the images.
        processor: the processor of the model.
        background: color behind transparent pixels.
        augmentation: random changes, for training; None: there are none.
    """

    def __init__(
        self,
        images: Examples[Any],
        processor: "BaseImageProcessor",
        background: Sequence[int],
        augmentation: AugmentationConfig | None,
    ) -> None:
        self.images, self.processor, self.background = images, processor, background
        self.augment = augmentation_for(processor, augmentation)

    def __call__(self, index: int, random: np.random.Generator) -> torch.Tensor:
        image = open_image(self.images.items[index].image, self.background, self.images.place(index))
        if self.augment is None:
            return processed([image], self.processor)[0]
        return normalized(self.augment(image, random), self.processor)


class EncodedImages(TrainingExamples[dict[str, Any]]):
    """Labeled images as ``pixel_values`` and ``labels``, for ``ImageCollator``.

    Args:
        images: the images.
        processor: the processor of the model.
        background: color behind transparent pixels.
        augmentation: random changes, for training. By default, images are what the processor makes of them.
        seed: seed of the random changes.
    """

    def __init__(
        self,
        images: LabeledImages,
        processor: "BaseImageProcessor",
        background: Sequence[int] = WHITE,
        augmentation: AugmentationConfig | None = None,
        seed: int = 0,
    ) -> None:
        self.images, self.processor, self.seed = images, processor, seed
        self.read = ImageReader(images, processor, background, augmentation)
        self.mixes = augmentation is not None and augmentation.mixes

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Any]:
        random = self.generator(index)
        example = {"pixel_values": self.read(index, random), "labels": self.images.items[index].label}
        return {**example, "draw": int(random.integers(1 << 32))} if self.mixes else example


class ImageCollator:
    """Batches of ``EncodedImages``: ``pixel_values`` (B, 3, height, width) and ``labels``.

    Labels are classes (B,), or, if training images are mixed, the shares of the classes (B, labels).

    Args:
        num_labels: number of classes.
        augmentation: the section of that name.
    """

    def __init__(self, num_labels: int, augmentation: AugmentationConfig | None = None) -> None:
        self.num_labels, self.augmentation = num_labels, augmentation or AugmentationConfig()

    def __call__(self, examples: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        pixel_values = torch.stack([example["pixel_values"] for example in examples])
        labels = torch.tensor([example["labels"] for example in examples])
        if self.augmentation.mixes and "draw" in examples[0]:
            targets = torch.nn.functional.one_hot(labels, self.num_labels).to(pixel_values.dtype)
            random = np.random.default_rng([example["draw"] for example in examples])
            pixel_values, labels = mixed(pixel_values, targets, self.augmentation, random)
        return {"pixel_values": pixel_values, "labels": labels}
