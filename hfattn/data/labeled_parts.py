"""The section ``data`` of recipes for classifiers."""

from collections.abc import Hashable
from dataclasses import dataclass

from huggingface_hub.dataclasses import strict

from .labeled import Labeled, LabeledTexts, read_labeled
from .parts import PartsConfig


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

    def read(self, dataset: str, split: str, train: LabeledTexts | None = None) -> LabeledTexts:
        return read_labeled(
            dataset,
            text_column=self.text_column,
            pair_column=self.pair_column,
            label_column=self.label_column,
            labels=self.labels if train is None else train.labels,
            part_column=self.part_column,
            config=self.config,
            split=split,
            revision=self.revision,
        )

    def key(self, item: Labeled) -> Hashable:
        return item.text

    def locate(self, place: str) -> tuple[str, str]:
        return (self.dataset, place) if self.part_column is not None else super().locate(place)
