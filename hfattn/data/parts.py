"""The section ``data``: the fields that recipes share, and those of recipes for classifiers."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..fields import at_least, one_of
from .examples import Examples
from .grouping import components, split_by_phrase, split_by_shared_text
from .labeled import Labeled, LabeledTexts, read_labeled
from .report import DataReport, count_tokens, describe, report_labeled
from .rows import GIVEN, Source, is_local
from .splitting import as_time, check_classes, held_out, label_combinations, shuffled_parts, timed_fold, timed_parts
from .text import EMBEDDED, PARTS, check_split

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

    # Name of a generated dataset, path of a file or a folder, or id of a dataset on the Hub.
    dataset: str = ""
    validation: str | None = None  # another file, or a split of the folder or dataset; null: taken from dataset
    test: str | None = None
    # Fractions for train, validation and optionally test, or counts, of which the last may be "rest". Used if
    # validation is null.
    split: list[float | int | str] = field(default_factory=lambda: [0.9, 0.1])
    split_seed: int | None = at_least(0, 0)  # of the split and the folds; null: training.seed
    group_column: str | None = None  # rows with one value, such as a customer, go into one part
    time_column: str | None = None  # the earliest rows are for training, the latest for the test; number or ISO date
    # Cross-validation: the test part is one of k folds, and validation is taken from the others by the first two shares
    # of split. Without fold, hfattn train trains once for each.
    folds: int | None = at_least(2, None)
    fold: int | None = at_least(1, None)  # the fold to test on, from 1 on
    config: str | None = None  # configuration of a folder or of a dataset on the Hub
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

    def check_split_by(self, split_by: str) -> None:
        """Check that a dataset is split in one way, by the field ``split_by`` of a subclass or by a column.

        Raises:
            ValueError: it is split in both ways.
        """
        if split_by != "text" and (self.group_column or self.time_column):
            raise ValueError(f"split_by: {split_by} is another way to split; write split_by: text.")

    def validate_way(self) -> None:
        if self.group_column is not None and self.time_column is not None:
            raise ValueError("group_column and time_column are two ways to split; remove one of them.")
        given = next((name for name in ("validation", "test") if getattr(self, name) is not None), None)
        if self.validation is not None and (self.group_column or self.time_column):
            raise ValueError("validation is given, so there is nothing to split; remove group_column and time_column.")
        if self.folds is None:
            if self.fold is not None:
                raise ValueError("fold is one of folds; write folds, or remove fold.")
        elif given is not None or self.dataset in self.generated:
            raise ValueError(f"folds split one dataset; remove {given or 'folds'}, or write another dataset.")
        elif not all(isinstance(share, float) for share in self.split):
            raise ValueError(f"folds take the share of validation from split; write [0.9, 0.1], not {self.split}.")
        elif self.fold is not None and self.fold > self.folds:
            raise ValueError(f"fold is {self.fold}, and there are {self.folds} folds; write a smaller number.")

    def read_parts(self, seed: int, given: Source | None = None) -> dict[str, Part]:
        """Return the examples of each part: train, validation, and other parts that are evaluated at the end.

        Args:
            seed: random seed for generated data, and for a split whose ``split_seed`` is None.
            given: a ``Dataset`` or ``DatasetDict`` to read instead of ``dataset``. If ``validation`` and ``test`` are
                None, the splits of these names of a ``DatasetDict`` are those parts.

        Raises:
            UserError: a part cannot be read, or the split does not fit.
        """
        if self.dataset in self.generated and given is None:
            parts = self.generate(seed)
        else:
            located = self.places(given)
            whole = self.read(*located.pop("train"))
            parts = {"train": whole}
            if "validation" not in located:
                if "test" in located and len(self.split) == 3:
                    raise UserError(f"data.split {self.split} makes a test, and the data have one; write two parts.")
                parts = self.split_whole(whole, seed if self.split_seed is None else self.split_seed)
            for part, place in located.items():
                parts[part] = self.read(*place, train=whole)
        return {part: parts[part] for part in parts if part in PARTS[:2] or not self.without_test}

    def places(self, given: Source | None = None) -> dict[str, tuple[Source, str]]:
        """Return the source and the split of each part that is not taken from another one, train first.

        Args:
            given: as in ``read_parts``.

        Raises:
            UserError: ``dataset`` is a file, and another part is not; or nothing was given to read.
        """
        if self.dataset == GIVEN and given is None:
            raise UserError("The data of this configuration were given in Python; write data.dataset.")
        named = {"validation": self.validation, "test": self.test}
        if isinstance(given, Mapping) and self.folds is None:
            named = {part: place or (part if part in given else None) for part, place in named.items()}
        source = self.dataset if given is None else given
        located = {part: self.locate(place, source) for part, place in named.items() if place is not None}
        return {"train": (source, self.hub_split), **located}

    @property
    def is_own(self) -> bool:
        """Whether the data come from outside the package: neither generated nor embedded."""
        return self.dataset not in (EMBEDDED, *self.generated)

    def report(
        self,
        parts: Mapping[str, Part] | None = None,
        given: Source | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        target_tokenizer: PreTrainedTokenizerBase | None = None,
        languages: Collection[str] = (),
    ) -> DataReport:
        """Report on the data before training, with the field that deals with each finding.

        Args:
            parts: what ``read_parts`` returned; None: it is called.
            given: as in ``read_parts``.
            tokenizer: tokenizer of the model; None counts words.
            target_tokenizer: tokenizer of the texts that a translator writes; None: the same.
            languages: the languages that the card names.

        Raises:
            UserError: the data cannot be read.
        """
        parts = self.read_parts(1, given) if parts is None else parts
        return describe(self, parts, tokenizer, target_tokenizer, languages)

    def split_whole(self, whole: Part, seed: int) -> dict[str, Part]:
        """Split the dataset into parts: as ``cut`` does, or by time or in folds."""
        if self.folds is None:
            return dict(zip(PARTS, self._cut(whole, seed), strict=False))
        if self.fold is None:
            raise UserError(
                f"hfattn train trains all folds, each as a run of its own; to train one, write data.fold, from 1 to "
                f"{self.folds}."
            )
        rest, test = whole.distribute(self.fold_parts(whole, seed), [1, 1], len(whole), self.unit)
        train, validation = (float(share) for share in self.split[:2])
        shares: list[float | int | str] = [train / (train + validation), validation / (train + validation)]
        inner = replace(self, split=shares, folds=None, fold=None)._cut(rest, seed)
        return dict(zip(PARTS, [*inner, test], strict=True))

    def fold_parts(self, whole: Part, seed: int) -> Sequence[int | None]:
        """Return 1 for each example of the fold to test on, 0 for one to train on, and None for one to leave out."""
        assert self.folds is not None
        assert self.fold is not None
        if self.time_column is not None:
            return timed_fold(self._times(whole), self.folds, self.fold)
        held = held_out(self.groups(whole), self.classes(whole), self.folds, self.fold, seed, self.unit)
        return held.astype(int).tolist()

    def _cut(self, whole: Part, seed: int) -> list[Part]:
        if self.time_column is not None:
            parts = timed_parts(self._times(whole), self.split, self.unit)
        elif self.group_column is not None:
            parts = shuffled_parts(self.groups(whole), self.classes(whole), self.split, seed, "groups")
        else:
            return self.cut(whole, seed)
        return whole.distribute(parts, self.split, len(whole), self.unit)

    def groups(self, whole: Part) -> list[Hashable]:
        """Return the group of each example; those of one group go into one part."""
        if self.group_column is None:
            return [self.key(item) for item in whole]
        return [str(value) for value in _column(whole, self.group_column, "group_column")]

    def classes(self, whole: Part) -> list[int] | None:
        """Return the class of each example, of which all parts get the same share; None for examples without."""
        return None

    def _times(self, whole: Part) -> list[float]:
        assert self.time_column is not None
        values = _column(whole, self.time_column, "time_column")
        return [as_time(value, whole.place(i)) for i, value in enumerate(values)]

    def read(self, dataset: Source, split: str, train: Part | None = None) -> Part:
        """Read one part.

        Args:
            dataset: a source of rows, as in ``open_rows``, or of what else the recipe reads.
            split: name of the split of a source that has splits.
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
        """Cut the dataset into train, validation and, if the split has three parts, test.

        If the examples have classes, all parts have the same share of each.
        """
        if (classes := self.classes(whole)) is None:
            return whole.split(self.split, seed, key=self.key, unit=self.unit)
        return self.cut_groups(whole, classes, seed, self.unit)

    def cut_groups(self, whole: Part, classes: list[int] | None, seed: int, unit: str) -> list[Part]:
        """Cut the dataset so that the examples of a group stay together; ``unit`` names the groups in messages."""
        parts = shuffled_parts(self.groups(whole), classes, self.split, seed, unit)
        return whole.distribute(parts, self.split, len(whole), unit)

    def locate(self, place: str, source: Source) -> tuple[Source, str]:
        """Return the source and the split that ``validation`` or ``test`` names.

        Args:
            place: value of ``validation`` or ``test``.
            source: source of the training part.

        Raises:
            UserError: the dataset is a file, and the part is not.
        """
        if not isinstance(source, str):
            return source, place
        if not is_local(source):
            # A folder has splits of its own, and the part may be another folder or a file.
            is_another = Path(source).is_dir() and Path(place).exists() and not (Path(source) / place).exists()
            return (place, self.hub_split) if is_another else (source, place)
        if not is_local(place):
            raise UserError(
                f"data.dataset is the file {source}, and {place!r} can only be a split on the Hub; write null "
                "or another file for the part that has this value."
            )
        return place, self.hub_split


@strict
@dataclass
class LabeledDataConfig(PartsConfig[LabeledTexts]):
    """Source of the labeled texts of each part.

    ``dataset`` is a source of rows, as in ``hfattn.data.open_rows``.
    """

    text_column: str = "text"
    pair_column: str | None = None  # second text of each example, for pairs
    label_column: str = "label"
    labels: list[str] | None = None  # names of the classes, from class 0 on; null: names in the data
    # Other names for labels, such as {"refund ": Refund}; rows with a label that is renamed to null are left out.
    rename_labels: dict[str, str | None] = field(default_factory=dict)
    empty: str = one_of(("error", "drop"), "error")  # drop: leave out rows with an empty text or label
    # drop: read rows with the same texts and label once, and no training text that is in another part.
    duplicates: str = one_of(("keep", "drop"), "keep")
    # Column with the part to which a row of the file belongs; hub_split, validation and test are then its values.
    part_column: str | None = None
    # What goes into one part if dataset is split. text: equal first texts; shared_text: pairs that share a text, also
    # indirectly, through other pairs; phrase: a sentence and its phrases, of which those of a held-out sentence leave
    # training.
    split_by: str = one_of(("text", "shared_text", "phrase"), "text")
    # All parts of a split have the same share of each class, or of each frequent combination of labels; not with
    # split_by: phrase.
    stratify: bool = True

    def validate_split_by(self) -> None:
        if self.split_by == "shared_text" and self.pair_column is None:
            raise ValueError("split_by: shared_text is for pairs; write split_by: text, or pair_column.")
        if self.split_by == "phrase" and self.pair_column is not None:
            raise ValueError("split_by: phrase is for single texts; write split_by: shared_text, or no pair_column.")
        if self.split_by == "phrase" and self.stratify:
            raise ValueError("split_by: phrase does not keep the shares of the classes; write stratify: false.")
        self.check_split_by(self.split_by)
        if self.split_by == "phrase" and self.folds:
            raise ValueError("split_by: phrase leaves texts out, and has no folds; write split_by: text.")

    def read(
        self,
        dataset: Source,
        split: str,
        train: LabeledTexts | None = None,
        *,
        regression: bool = False,
        separator: str | None = None,
    ) -> LabeledTexts:
        return read_labeled(
            dataset,
            text_column=self.text_column,
            pair_column=self.pair_column,
            label_column=self.label_column,
            labels=self.labels if train is None else train.labels,
            rename_labels=self.rename_labels,
            regression=regression,
            separator=separator,
            empty=self.empty,
            duplicates=self.duplicates,
            part_column=self.part_column,
            config=self.config,
            split=split,
            revision=self.revision,
        )

    def key(self, item: Labeled) -> Hashable:
        return item.text

    def report(
        self,
        parts: Mapping[str, LabeledTexts] | None = None,
        given: Source | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        target_tokenizer: PreTrainedTokenizerBase | None = None,
        languages: Collection[str] = (),
        **reading: Any,
    ) -> DataReport:
        if not self.is_own:
            return super().report(parts, given, tokenizer)
        count = None if tokenizer is None else partial(count_tokens, tokenizer)
        return report_labeled(self, parts, given, count_tokens=count, languages=languages, **reading)

    def groups(self, whole: LabeledTexts) -> list[Hashable]:
        return list(components(whole)) if self.split_by == "shared_text" else super().groups(whole)

    def classes(self, whole: LabeledTexts) -> list[int] | None:
        if whole.has_numbers or not self.stratify:
            return None
        if whole.has_several:
            return label_combinations([item.classes for item in whole], max(2 * len(self.split), self.folds or 0))
        return [item.label for item in whole]

    def cut(self, whole: LabeledTexts, seed: int) -> list[LabeledTexts]:
        if self.split_by == "text":
            return super().cut(whole, seed)
        if (classes := self.classes(whole)) is not None:
            return self.cut_groups(whole, classes, seed, "groups of connected pairs")
        split = split_by_phrase if self.split_by == "phrase" else split_by_shared_text
        return split(whole, self.split, seed)

    def read_parts(self, seed: int, given: Source | None = None) -> dict[str, LabeledTexts]:
        parts = super().read_parts(seed, given)
        if self.duplicates == "drop":
            held = {parts[part].texts(item) for part in parts if part != "train" for item in parts[part]}
            parts["train"] = parts["train"].without(held, parts["train"].texts, "texts")
        return parts

    def split_whole(self, whole: LabeledTexts, seed: int) -> dict[str, LabeledTexts]:
        parts = super().split_whole(whole, seed)
        if not whole.has_numbers:
            of_part = {part: [label for item in texts for label in item.classes] for part, texts in parts.items()}
            check_classes(of_part, whole.labels, whole.name, "texts", "data.rename_labels")
        return parts

    def locate(self, place: str, source: Source) -> tuple[Source, str]:
        return (source, place) if self.part_column is not None else super().locate(place, source)


def as_recorded(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section ``data`` of a ``results.json`` with the way of splitting of its time.

    Before there was ``split_seed``, ``training.seed`` was that of the split, and no split was stratified.
    """
    then: dict[str, Any] = {} if "split_seed" in data else {"split_seed": None}
    if "split_by" in data and "stratify" not in data:  # of a recipe for classifiers
        then["stratify"] = False
    return {**data, **then}


def _column(whole: Examples[Any], column: str, field: str) -> list[Any]:
    """Return the values of a column that is not one of those that the recipe reads.

    Raises:
        UserError: the column does not exist.
    """
    known = whole.items[0].fields
    if column not in known:
        raise UserError(
            f"data.{field} names {column!r}, and the other columns of {whole.name} are {', '.join(known) or 'none'}; "
            "write one of these, or remove it."
        )
    return [item.fields[column] for item in whole]


def fingerprints(parts: Mapping[str, Examples[Any]]) -> dict[str, str]:
    """Return the SHA-256 of the examples of each part."""
    return {part: examples.fingerprint for part, examples in parts.items()}
