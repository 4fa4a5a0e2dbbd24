"""Images and their captions as the inputs of a captioner."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from .batches import IGNORED
from .encoding import EncodedExamples, Side
from .image_augmentation import AugmentationConfig
from .image_encoding import augmentation_for, input_size, is_plain, normalized, processed
from .images import WHITE, CaptionedImages, open_image

if TYPE_CHECKING:
    from transformers import BaseImageProcessor


class EncodedCaptions(EncodedExamples):
    """Images as ``pixel_values`` or ``image_features``, and their captions as ``labels``, for ``CaptionCollator``.

    Args:
        images: the images and their captions.
        tokenizer: tokenizer of the captions; it adds an end token.
        processor: the processor of the model.
        max_length: maximum number of tokens of a caption, the end token included.
        background: color behind transparent pixels.
        features: (n, rows, columns, width), the features of all images by a frozen encoder, which is then not run; None
            to read the images.
        augmentation: random changes of the images, for training. By default, they are what the processor makes of them.
        too_long, seed: see ``EncodedExamples``; the seed is also that of the random changes.

    Attributes:
        images: the images whose captions are kept, in their order.

    Raises:
        UserError: see ``EncodedExamples``.
    """

    def __init__(
        self,
        images: CaptionedImages,
        tokenizer: PreTrainedTokenizerBase,
        processor: "BaseImageProcessor",
        max_length: int,
        *,
        background: Sequence[int] = WHITE,
        features: np.ndarray | None = None,
        augmentation: AugmentationConfig | None = None,
        too_long: str = "error",
        seed: int = 0,
    ) -> None:
        sides = [Side("caption", [item.text for item in images], tokenizer, max_length, "data.max_length")]
        super().__init__(images, sides, too_long, seed)
        self.images = images.select(self.kept)
        self.processor, self.background, self.features = processor, background, features
        self.size = input_size(processor)
        self.augment = augmentation_for(processor, augmentation)

    def __getitem__(self, index: int) -> dict[str, Any]:
        (labels,) = self.segmentation(index)
        if self.features is not None:
            features = torch.from_numpy(np.array(self.features[self.kept[index]]))
            return {"image_features": features, "labels": labels}
        item = self.images.items[index]
        image = open_image(item.image, self.background, self.images.place(index))
        if self.augment is not None:
            image = self.augment(image, self.generator(index))
        elif image.size[::-1] != self.size or not is_plain(self.processor):
            return {"pixel_values": processed([image], self.processor)[0], "labels": labels}
        return {"pixel_values": normalized(image, self.processor), "labels": labels}


class CaptionCollator:
    """Batches of ``EncodedCaptions``: the images, and ``labels`` (B, T), -100 after the end of a caption."""

    def __call__(self, examples: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        name = next(iter(examples[0]))
        captions = [torch.tensor(example["labels"]) for example in examples]
        return {
            name: torch.stack([example[name] for example in examples]),
            "labels": torch.nn.utils.rnn.pad_sequence(captions, batch_first=True, padding_value=IGNORED),
        }
