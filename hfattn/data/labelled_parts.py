"""The section ``data`` of recipes for classifiers: where the labelled texts of each part come from."""

from dataclasses import dataclass, field
from typing import Any

from huggingface_hub.dataclasses import strict

from .labelled import LabelledTexts, read_labelled, split_labelled
from .rows import source_of_part
from .text import check_split


@strict
@dataclass
class LabelledDataConfig:
    # A .jsonl file, a tab-separated file whose first line names its columns, or the id of a data set on the Hub.
    source: str = ""
    # Another file of that kind, or the split of the Hub data set; null: a part of source.
    validation: str | None = None
    test: str | None = None
    # Of the distinct texts, where validation is null: train, validation[, test].
    split: list[float | int | str] = field(default_factory=lambda: [0.9, 0.1])
    text_column: str = "text"
    pair_column: str | None = None  # of the second text, where each example is two
    label_column: str = "label"
    labels: list[str] | None = None  # names of the classes, from class 0 on; null: as the data have them
    # Of a file that holds all parts: the column that says which; hub_split, validation and test are then its values.
    part_column: str | None = None
    config: str | None = None  # of a Hub data set
    hub_split: str = "train"
    revision: str | None = None

    def validate_parts(self) -> None:
        if not self.source:
            raise ValueError("source is empty; write the path of a file, or the id of a Hub data set.")
        check_split(self.split, unit="texts")
        if self.validation is None and self.test is not None and len(self.split) == 3:
            raise ValueError(f"split {self.split} cuts a test from source, and test is given too; leave one out.")

    def read_parts(self, seed: int) -> dict[str, LabelledTexts]:
        """The texts of each part: train, validation, and the test where there is one.

        Raises:
            UserError: as ``read_labelled`` and ``split_labelled``.
        """
        options: dict[str, Any] = {
            "text_column": self.text_column,
            "pair_column": self.pair_column,
            "label_column": self.label_column,
            "part_column": self.part_column,
            "config": self.config,
            "revision": self.revision,
        }
        whole = read_labelled(self.source, labels=self.labels, split=self.hub_split, **options)
        parts = {"train": whole}
        if self.validation is None:
            parts = dict(zip(("train", "validation", "test"), split_labelled(whole, self.split, seed), strict=False))
        for part, place in (("validation", self.validation), ("test", self.test)):
            if place is not None:
                source, split = self.source, place
                if self.part_column is None:
                    source, split = source_of_part(self.source, place, self.hub_split)
                parts[part] = read_labelled(source, labels=whole.labels, split=split, **options)
        return parts


__all__ = ["LabelledDataConfig"]
