"""Views of images for training without labels: two large random crops and several small ones of each image."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from .batches import TrainingExamples
from .image_augmentation import Augmentation, AugmentationConfig, random_crop
from .image_encoding import normalized
from .images import WHITE, LabeledImages, open_image

if TYPE_CHECKING:
    from PIL.Image import Image
    from transformers import BaseImageProcessor


class Crops(NamedTuple):
    """Random crops of an image: their number, height and width in pixels, and bounds of their share of its area."""

    number: int
    size: tuple[int, int]
    scale: Sequence[float]


class MultiCropImages(TrainingExamples[dict[str, torch.Tensor]]):
    """Random views of images (Caron et al. 2020, section 3.3).

    An example has ``global_views`` (2, 3, height, width) and, if there are local views, ``local_views`` (n, 3, local
    height, local width). They depend only on seed, epoch and index, so that a resumed run and a run of several
    processes read the same views as an uninterrupted run of one process.

    The same augmentation changes all views. In the authors' code, blur and solarization have another probability in
    each of the two global views and in the local ones.

    Args:
        images: the images; their labels are not read.
        processor: the processor of the model.
        crops: the crops by name, ``global_views`` first.
        augmentation: changes of a crop, without ``crop_scale``.
        background: color behind transparent pixels.
        seed: seed of the random changes.
    """

    def __init__(
        self,
        images: LabeledImages,
        processor: "BaseImageProcessor",
        crops: dict[str, Crops],
        augmentation: AugmentationConfig,
        background: Sequence[int] = WHITE,
        seed: int = 0,
    ) -> None:
        self.images, self.processor, self.background, self.seed = images, processor, background, seed
        self.crops = {name: each for name, each in crops.items() if each.number}
        self.ratio = augmentation.crop_ratio
        self.changes = {name: Augmentation(augmentation, each.size) for name, each in self.crops.items()}

    def __len__(self) -> int:
        return len(self.images)

    def views(self, index: int) -> dict[str, list["Image"]]:
        """Return the views of an image in the current epoch."""
        image = open_image(self.images.items[index].image, self.background, self.images.place(index))
        random = self.generator(index)
        views = {}
        for name, (number, size, (least, most)) in self.crops.items():
            cut = (random_crop(image, size, least, self.ratio, random, most) for _ in range(number))
            views[name] = [self.changes[name](crop, random) for crop in cut]
        return views

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {
            name: torch.stack([normalized(view, self.processor) for view in views])
            for name, views in self.views(index).items()
        }
