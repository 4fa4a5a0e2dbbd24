"""The section ``data``: the fields that recipes share, and those of recipes for classifiers."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from huggingface_hub.dataclasses import strict

from ..errors import UserError
from ..fields import one_of
from .examples import Examples
from .grouping import split_by_phrase, split_by_shared_text
from .labeled import Labeled, LabeledTexts, read_labeled
from .rows import is_local
from .text import check_split

PARTS = ("train", "validation", "test")
Part = TypeVar("Part", bound=Examples[Any])


@strict
@dataclass
class PartsConfig(Generic[Part]):
    """The common fields of the section ``data``. A recipe adds the columns that it reads and overrides ``read``.

    Attributes:
        unit: plural name of the examples, used in messages.
        generated: names of the generated datasets that the recipe supports; these come with their own parts.
    """

    unit: ClassVar[str] = "texts"
    generated: ClassVar[tuple[str, ...]] = ()

    dataset: str = ""  # name of a generated dataset, path of a file, or id of a dataset on the Hub
    validation: str | None = None  # another file, or a split of the dataset on the Hub; null: taken from dataset
    test: str | None = None
    # Fractions for train, validation and optionally test, or counts, of which the last may be "rest". Used if
    # validation is null.
    split: list[float | int | str] = field(default_factory=lambda: [0.9, 0.1])
    config: str | None = None  # configuration of a dataset on the Hub
    hub_split: str = "train"
    revision: str | None = None
    without_test: bool = False  # leave out the test part, as hfattn tune does

    def validate_parts(self) -> None:
        if not self.dataset:
            names = "".join(f"{name!r}, " for name in self.generated)
            raise ValueError(f"dataset is empty; write {names}the path of a file, or the id of a dataset on the Hub.")
        check_split(self.split, unit=self.unit)
        if self.dataset in self.generated and (self.validation, self.test) != (None, None):
            raise ValueError(f"{self.dataset} has its own validation and test; remove validation and test.")
        if self.validation is None and self.test is not None and len(self.split) == 3:
            raise ValueError(f"split {self.split} already makes a test, and test is given too; remove one of them.")

    def read_parts(self, seed: int) -> dict[str, Part]:
        """Return the examples of each part: train, validation, and other parts that are evaluated at the end.

        Args:
            seed: random seed for generated data and for shuffling before a split.

        Raises:
            UserError: a part cannot be read, or the split does not fit.
        """
        if self.dataset in self.generated:
            parts = self.generate(seed)
        else:
            whole = self.read(self.dataset, self.hub_split)
            parts = {"train": whole}
            if self.validation is None:
                parts = dict(zip(PARTS, self.cut(whole, seed), strict=False))
            for part, place in (("validation", self.validation), ("test", self.test)):
                if place is not None:
                    parts[part] = self.read(*self.locate(place), train=whole)
        return {part: parts[part] for part in parts if part in PARTS[:2] or not self.without_test}

    def read(self, dataset: str, split: str, train: Part | None = None) -> Part:
        """Read one part.

        Args:
            dataset: path of a file, or id of a dataset on the Hub.
            split: name of the split on the Hub.
            train: the training part, given when another part is read, because its label names apply to all parts.
        """
        raise NotImplementedError

    def generate(self, seed: int) -> dict[str, Part]:
        """Return the parts of a dataset in ``generated``."""
        raise NotImplementedError

    def key(self, item: Any) -> Hashable:
        """Return the key of an example; examples with the same key stay in the same part."""
        raise NotImplementedError

    def cut(self, whole: Part, seed: int) -> list[Part]:
        """Cut the dataset into train, validation and, if the split has three parts, test."""
        return whole.split(self.split, seed, key=self.key, unit=self.unit)

    def locate(self, place: str) -> tuple[str, str]:
        """Return the dataset and the split that ``validation`` or ``test`` names.

        Raises:
            UserError: the dataset is a file, and the part is not.
        """
        if not is_local(self.dataset):
            return self.dataset, place
        if not is_local(place):
            raise UserError(
                f"data.dataset is the file {self.dataset}, and {place!r} can only be a split on the Hub; write null "
                "or another file for the part that has this value."
            )
        return place, self.hub_split


@strict
@dataclass
class LabeledDataConfig(PartsConfig[LabeledTexts]):
    """Source of the labeled texts of each part.

    ``dataset`` is a ``.jsonl`` file, a tab-separated file whose first line names its columns, or the id of a dataset on
    the Hub.
    """

    text_column: str = "text"
    pair_column: str | None = None  # second text of each example, for pairs
    label_column: str = "label"
    labels: list[str] | None = None  # names of the classes, from class 0 on; null: names in the data
    # Column with the part to which a row of the file belongs; hub_split, validation and test are then its values.
    part_column: str | None = None
    # What goes into one part if dataset is split. text: equal first texts; shared_text: pairs that share a text, also
    # indirectly, through other pairs; phrase: a sentence and its phrases, of which those of a held-out sentence leave
    # training.
    split_by: str = one_of(("text", "shared_text", "phrase"), "text")

    def validate_split_by(self) -> None:
        if self.split_by == "shared_text" and self.pair_column is None:
            raise ValueError("split_by: shared_text is for pairs; write split_by: text, or pair_column.")
        if self.split_by == "phrase" and self.pair_column is not None:
            raise ValueError("split_by: phrase is for single texts; write split_by: shared_text, or no pair_column.")

    def read(
        self, dataset: str, split: str, train: LabeledTexts | None = None, *, regression: bool = False
    ) -> LabeledTexts:
        return read_labeled(
            dataset,
            text_column=self.text_column,
            pair_column=self.pair_column,
            label_column=self.label_column,
            labels=self.labels if train is None else train.labels,
            regression=regression,
            part_column=self.part_column,
            config=self.config,
            split=split,
            revision=self.revision,
        )

    def key(self, item: Labeled) -> Hashable:
        return item.text

    def cut(self, whole: LabeledTexts, seed: int) -> list[LabeledTexts]:
        if self.split_by == "text":
            return super().cut(whole, seed)
        split = split_by_phrase if self.split_by == "phrase" else split_by_shared_text
        return split(whole, self.split, seed)

    def locate(self, place: str) -> tuple[str, str]:
        return (self.dataset, place) if self.part_column is not None else super().locate(place)


def fingerprints(parts: Mapping[str, Examples[Any]]) -> dict[str, str]:
    """Return the SHA-256 of the examples of each part."""
    return {part: examples.fingerprint for part, examples in parts.items()}
