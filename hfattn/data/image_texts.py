"""Images with their texts as the inputs of a dual encoder."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from huggingface_hub.dataclasses import strict
from transformers import PreTrainedTokenizerBase

from ..fields import at_least
from .batches import TrainingExamples
from .digits import read_digit_words
from .image_augmentation import AugmentationConfig
from .image_encoding import ImageReader
from .image_parts import CaptionedDataConfig
from .images import WHITE, CaptionedImage, CaptionedImages, digest
from .rows import Source

if TYPE_CHECKING:
    from transformers import BaseImageProcessor

COLUMN = "image_column"  # the field of an image with the name of its column, where a row has several images


@strict
@dataclass
class ImageTextDataConfig(CaptionedDataConfig):
    """Source of the images and texts of each part, where a row may have several images and several texts.

    Attributes:
        image_columns: columns with images of the same text, such as drawings in several styles, instead of
            ``image_column``. Each image is an example, and with ``folds``, each column is a fold.
        text_columns: columns with texts of the same image, such as its names in several languages, instead of
            ``text_column``. Each text of each image is an example. Of the digits, the languages of their names.
        max_length: maximum number of tokens of a text; longer texts are truncated.
    """

    generated: ClassVar[tuple[str, ...]] = ("digits",)  # of scikit-learn, with their names as texts

    image_columns: list[str] = field(default_factory=list)
    text_columns: list[str] = field(default_factory=list)
    max_length: int = at_least(3, 32)

    def validate_image_columns(self) -> None:
        if self.image_columns and self.folds not in (None, len(self.image_columns)):
            raise ValueError(
                f"folds is {self.folds}, and each of the {len(self.image_columns)} image_columns is a fold; write "
                f"folds: {len(self.image_columns)}, or one image_column."
            )

    def generate(self, seed: int) -> dict[str, CaptionedImages]:
        whole = read_digit_words(self.text_columns or ["en"])
        return self.split_whole(whole, seed if self.split_seed is None else self.split_seed)

    def read(self, dataset: Source, split: str, train: CaptionedImages | None = None) -> CaptionedImages:
        if not self.image_columns and not self.text_columns:
            return super().read(dataset, split, train)
        items = []
        others = {*self.image_columns, *self.text_columns}
        for image_column in self.image_columns or [self.image_column]:
            for text_column in self.text_columns or [self.text_column]:
                of_columns = replace(
                    self, image_column=image_column, text_column=text_column, image_columns=[], text_columns=[]
                ).read(dataset, split)
                for item in of_columns:
                    fields = {name: value for name, value in item.fields.items() if name not in others}
                    if self.image_columns:
                        fields[COLUMN] = image_column
                    items.append(item._replace(fields=fields))
        return replace(of_columns, items=items)

    def fold_parts(self, whole: CaptionedImages, seed: int) -> Sequence[int | None]:
        if not self.image_columns:
            return super().fold_parts(whole, seed)
        assert self.fold is not None
        tested = self.image_columns[self.fold - 1]
        return [int(item.fields[COLUMN] == tested) for item in whole]


def text_numbers(images: Iterable[CaptionedImage]) -> tuple[list[str], np.ndarray]:
    """Return the different texts of images, in the order in which they occur, and the number of each image's text."""
    number_of: dict[str, int] = {}
    numbers = [number_of.setdefault(item.text, len(number_of)) for item in images]
    return list(number_of), np.array(numbers)


def text_groups(images: Sequence[CaptionedImage]) -> np.ndarray:
    """Return the group (M,) of each text of ``text_numbers``: texts of one image are in one group.

    So are texts that other images and texts connect. In a group, each text counts as right for each image.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    texts, numbers = text_numbers(images)
    place: dict[str, int] = {}
    places = [len(texts) + place.setdefault(digest(item.image), len(place)) for item in images]
    size = len(texts) + len(place)
    graph = coo_array((np.ones(len(images)), (numbers, places)), shape=(size, size))
    groups: np.ndarray = connected_components(graph, directed=False)[1][: len(texts)]
    return groups.astype(np.int64)


class ImageTexts(TrainingExamples[dict[str, Any]]):
    """Images with their texts, for ``ImageTextCollator``.

    An example has ``pixel_values`` and ``input_ids``, or what a locked tower has made of them, and ``labels`` (2,), the
    number of its text among the different texts of the part, and the group of that text.

    Args:
        images: the images with their texts.
        processor, tokenizer: those of the towers.
        max_length: maximum number of tokens of a text.
        background: color behind transparent pixels.
        augmentation: random changes, for training. By default, images are what the processor makes of them.
        seed: seed of the random changes.
        image_features: (N, width) instead of the images.
        text_features: (M, width) instead of the texts, in the order of ``texts``.

    Attributes:
        texts: the different texts, in the order in which they occur.
        numbers: (N,) number of the text of each image.
        groups: (M,) group of each text, see ``text_groups``.
        lengths: (N, 1) tokens of each text.
    """

    def __init__(
        self,
        images: CaptionedImages,
        processor: "BaseImageProcessor",
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        background: Sequence[int] = WHITE,
        augmentation: AugmentationConfig | None = None,
        seed: int = 0,
        image_features: np.ndarray | None = None,
        text_features: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self.images, self.seed = images, seed
        self.read = ImageReader(images, processor, background, augmentation)
        self.image_features, self.text_features = image_features, text_features
        self.texts, self.numbers = text_numbers(images)
        self.groups = text_groups(images.items)
        encoded = tokenizer(self.texts, truncation=True, max_length=max_length)
        self.inputs = [{name: encoded[name][i] for name in encoded} for i in range(len(self.texts))]
        self.lengths = np.array([[len(self.inputs[number]["input_ids"])] for number in self.numbers])

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Any]:
        number = int(self.numbers[index])
        text: dict[str, Any] = self.inputs[number]
        if self.text_features is not None:
            text = {"text_features": self.text_features[self.texts[number]]}
        return {**self._image(index), **text, "labels": [number, int(self.groups[number])]}

    def _image(self, index: int) -> dict[str, torch.Tensor]:
        if self.image_features is not None:
            return {"image_features": torch.from_numpy(np.array(self.image_features[index]))}
        return {"pixel_values": self.read(index, self.generator(index))}


class ImageTextCollator:
    """Batches of ``ImageTexts``: texts are padded, and everything else is stacked.

    Args:
        tokenizer: tokenizer of the text tower.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        names = [name for name in examples[0] if name in self.tokenizer.model_input_names]
        batch: dict[str, torch.Tensor] = {}
        if names:
            texts = [{name: example[name] for name in names} for example in examples]
            batch |= self.tokenizer.pad(texts, padding_side="right", return_tensors="pt")
        for name in examples[0]:
            if name not in names:
                batch[name] = torch.stack([torch.as_tensor(example[name]) for example in examples])
        return batch
