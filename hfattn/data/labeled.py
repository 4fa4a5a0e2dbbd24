"""Labeled texts: read them, split them, and encode them as training examples."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from .encoding import EncodedExamples, Segmenter, Side
from .examples import Examples
from .rows import Rows, Source, open_rows


class Labeled(NamedTuple):
    """A text, the index of its class, its line or row in the dataset, and the other columns of that row.

    ``pair`` is the second text of an example that consists of two, such as premise and hypothesis. ``number`` is the
    label of a regression, such as the relatedness of two sentences, and ``hot`` has 1.0 for each class of a text with
    several labels and 0.0 for the others; the class is then 0.
    """

    text: str
    label: int
    line: int | None = None
    fields: Mapping[str, Any] = {}
    pair: str | None = None
    number: float | None = None
    hot: tuple[float, ...] | None = None

    @property
    def target(self) -> int | float | list[float]:
        """What a model is trained to predict: the class, the number of a regression, or 1.0 or 0.0 for each class."""
        if self.hot is not None:
            return list(self.hot)
        return self.label if self.number is None else self.number

    @property
    def classes(self) -> list[int]:
        """The class of a text, or all classes of a text with several labels."""
        return [self.label] if self.hot is None else [i for i, value in enumerate(self.hot) if value]


@dataclass(frozen=True)
class LabeledTexts(Examples[Labeled]):
    """Labeled texts in memory, with the names of the classes from class 0 on; for a regression, one name."""

    labels: list[str] = field(repr=False)

    noun = "Text"

    @property
    def has_pairs(self) -> bool:
        return self.items[0].pair is not None

    @property
    def has_numbers(self) -> bool:
        return self.items[0].number is not None

    @property
    def has_several(self) -> bool:
        return self.items[0].hot is not None

    def names(self, item: Labeled) -> list[str]:
        return [self.labels[label] for label in item.classes]

    def columns(self, item: Labeled) -> tuple[str, ...]:
        return ", ".join(self.names(item)) if item.number is None else repr(item.number), *self.texts(item)

    def texts(self, item: Labeled) -> tuple[str, ...]:
        return (item.text,) if item.pair is None else (item.text, item.pair)


def guess_accuracy(train: LabeledTexts, texts: LabeledTexts, column: str | None = None) -> float:
    """Return the accuracy of a guess that reads no text: what a score has to be compared with.

    The guess is the most frequent class of the training texts; with a column, the most frequent class of those with the
    same value in it. For a value that no training text has, it is that of all training texts.

    Args:
        train: the training texts, each with one class.
        texts: the texts whose class is guessed.
        column: name of a column in ``fields``.
    """
    by_value: dict[Any, Counter[int]] = defaultdict(Counter)
    for item in train:
        by_value[item.fields.get(column or "")][item.label] += 1
    (of_all, _), *_ = Counter(item.label for item in train).most_common(1)
    guesses = {value: counts.most_common(1)[0][0] for value, counts in by_value.items()}
    right = sum(guesses.get(item.fields.get(column or ""), of_all) == item.label for item in texts)
    return right / len(texts)


def read_labeled(
    dataset: Source,
    *,
    text_column: str = "text",
    pair_column: str | None = None,
    label_column: str = "label",
    labels: Sequence[str] | None = None,
    rename_labels: Mapping[str, str | None] | None = None,
    regression: bool = False,
    separator: str | None = None,
    empty: str = "error",
    duplicates: str = "keep",
    part_column: str | None = None,
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
) -> LabeledTexts:
    """Read labeled texts.

    Labels are class names or class indices, or numbers of a ``regression``. All other columns are stored in ``fields``.

    Args:
        dataset: a source of rows, as in ``open_rows``.
        text_column, label_column: columns to read; ``review.text`` is the field ``text`` nested in the column
            ``review``.
        pair_column: column of the second text, if each example consists of two.
        labels: names of the classes, from class 0 on. If a dataset on the Hub names its classes, give the same names in
            any order, or a new name for each. By default, the names of that dataset or, if it names none, all labels
            that occur: numbers in ascending order, names in alphabetical order.
        rename_labels: other names for labels of the data, such as ``{"refund ": "Refund"}``; rows with a label that is
            renamed to None are left out.
        regression: labels are numbers to predict, and ``label_column`` is their name.
        separator: texts have any number of labels: ``label_column`` has lists, or texts with this between two labels.
            None: each text has one label.
        empty: whether an empty text or label is an ``"error"``, or ``"drop"`` leaves the row out.
        duplicates: ``"drop"`` reads rows with the same texts and the same label once.
        part_column: column with the name of the part to which a row belongs. Only rows of the part ``split`` are read,
            and the column is not in ``fields``.
        config, split, revision: configuration, split and revision of a dataset on the Hub.

    Raises:
        UserError: the file, dataset or column does not exist or is empty, or a line is malformed; the message has the
            line number.
    """
    rows = open_rows(dataset, config=config, split=split, revision=revision)
    written: list[Any] = []
    unnumbered = []
    used = {text_column, label_column, pair_column, part_column}
    parts_seen = set()
    renamed, names_known = dict(rename_labels or {}), rows.classes.get(label_column)
    if renamed:  # the classes are then those of the new names
        rows = replace(rows, classes={})
    found: set[str] = set()
    for row in rows:
        if part_column is not None:
            parts_seen.add(rows.text(row, part_column, None, "part_column"))
            if rows.text(row, part_column) != split:
                continue
        text = rows.text(row, text_column, None, "text_column")
        pair = None if pair_column is None else rows.text(row, pair_column, None, "pair_column")
        label = rows.value(row, label_column, "label_column")
        without_text = not text.strip() or (pair is not None and not pair.strip())
        no_label = label is None or (isinstance(label, str) and not label.strip())
        if without_text or (no_label and separator is None and (empty == "drop" or not regression)):
            if empty == "drop":
                continue
            what = "text" if without_text else "label"
            raise UserError(
                f"{rows.place(row)} has an empty {what}; fill it in, or remove the row; in a configuration, "
                "data.empty: drop leaves such rows out."
            )
        if separator is not None:
            label = label_list(label, separator, rows.place(row))
            if renamed:
                known: dict[int | str, str] = dict(enumerate(names_known or ()))
                label = [known.get(each, each) for each in label]
                found.update(map(str, label))
                label = [each for name in label if (each := renamed.get(str(name), name)) is not None]
        elif renamed:
            label = names_known[label] if names_known and isinstance(label, int) and label >= 0 else label
            found.add(str(label))
            label = renamed.get(str(label), label)
            if label is None:
                continue
        if regression:
            label = number_of_label(label, rows.place(row), ", or data.regression: false for classes")
        elif separator is None and (isinstance(label, bool) or not isinstance(label, int | str)):
            raise UserError(f"{rows.place(row)} has the label {label!r}; write the name or the number of a class.")
        written.append(label)
        fields = {name: row.values[name] for name in row.values if name not in used}
        unnumbered.append(Labeled(text, -1, row.number, fields, pair))
    if not written and parts_seen:
        raise UserError(
            f"{rows.name} has no row with {split!r} in the column {part_column!r}; write one of "
            f"{', '.join(sorted(parts_seen))}."
        )
    if not written:
        raise UserError(f"{rows.name} is empty; write a text and its label on each line.")
    if labels is None and (unknown := [name for name in renamed if name not in found]):
        seen = ", ".join(map(repr, sorted(found)))
        raise UserError(
            f"data.rename_labels names {unknown[0]!r}, and the labels of {rows.name} are {seen}; correct it."
        )
    if duplicates == "drop":
        keys = [(item.text, item.pair, str(label)) for item, label in zip(unnumbered, written, strict=True)]
        first = {key: i for i, key in reversed(list(enumerate(keys)))}
        kept = sorted(first.values())
        unnumbered, written = [unnumbered[i] for i in kept], [written[i] for i in kept]
    if regression:
        numbered = [item._replace(label=0, number=label) for label, item in zip(written, unnumbered, strict=True)]
        return LabeledTexts(rows.name, numbered, [label_column], unit=rows.unit)
    lists = written if separator is not None else [[label] for label in written]
    names, number_of = classes_of(rows, label_column, labels, [label for several in lists for label in several])
    items = []
    for several, item in zip(lists, unnumbered, strict=True):
        if unknown := [label for label in several if label not in number_of]:
            raise UserError(
                f"{rows.unit} {item.line} of {rows.name} has the label {unknown[0]!r}, which is not one of "
                f"{', '.join(names)}; correct it, or change data.labels."
            )
        classes = {number_of[label] for label in several}
        if separator is None:
            items.append(item._replace(label=classes.pop()))
        else:
            items.append(item._replace(label=0, hot=tuple(float(i in classes) for i in range(len(names)))))
    return LabeledTexts(rows.name, items, names, unit=rows.unit)


def label_list(label: Any, separator: str, place: str) -> list[int | str]:
    """Return the labels of a text: those of a list, or of a text with a separator between two labels.

    Raises:
        UserError: the value is neither; ``place`` says where it is.
    """
    if label is None:
        return []
    several = [each.strip() for each in label.split(separator)] if isinstance(label, str) else label
    if not isinstance(several, Sequence) or any(isinstance(x, bool) or not isinstance(x, int | str) for x in several):
        raise UserError(
            f"{place} has the labels {label!r}; write a list of names, or names with {separator!r} between."
        )
    return [each for each in several if each != ""]


def number_of_label(label: Any, place: str, otherwise: str = "") -> float:
    """Return a label as a finite number.

    Args:
        label: the label.
        place: where it is, for the message.
        otherwise: what else the message advises.

    Raises:
        UserError: it is not a number, or not finite; ``place`` says where it is.
    """
    try:
        number = math.nan if isinstance(label, bool) else float(label)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"{place} has the label {label!r}; write a number{otherwise}.")
    return number


def classes_of(
    rows: Rows, column: str, labels: Sequence[str] | None, written: Iterable[int | str]
) -> tuple[list[str], dict[int | str, int]]:
    """Return the names of the classes, and the class index for each way in which a label may be written."""
    known = rows.classes.get(column)
    names = list(labels or known or sorted({str(label) for label in written}, key=_number_or_name))
    if len(set(names)) < max(2, len(names)):
        raise UserError(f"The labels of {rows.name} are {', '.join(names)}; write at least two, each once.")
    number_of: dict[int | str, int] = {name: i for i, name in enumerate(names)}
    if known is not None and set(known) == set(names):
        return names, number_of | {i: names.index(name) for i, name in enumerate(known)}
    if known is not None and (len(known) != len(names) or set(known) & set(names)):
        raise UserError(
            f"The labels are {', '.join(names)}, and {rows.name} has {', '.join(known)}; write these, or another name "
            "for each of them."
        )
    if any(_is_number(name) for name in names):  # then numbers are class names
        return names, number_of | {int(name): i for i, name in enumerate(names) if _is_number(name)}
    return names, number_of | {i: i for i in range(len(names))} | {str(i): i for i in range(len(names))}


def _is_number(name: str) -> bool:
    return name.removeprefix("-").isdecimal()


def _number_or_name(name: str) -> tuple[bool, int, str]:
    return (False, int(name), name) if _is_number(name) else (True, 0, name)


class EncodedTexts(EncodedExamples):
    """Token ids of labeled texts: ``input_ids`` and ``labels``, for ``DataCollatorWithPadding``.

    Args:
        texts: the texts, or pairs of texts, which the tokenizer joins.
        tokenizer: the tokenizer. If it adds an end token, texts that are cut end with it too.
        max_length: maximum number of tokens, end token included.
        too_long, seed: see ``EncodedExamples``.
        float_labels: labels are lists ``[0.0]`` or ``[1.0]`` instead of class indices, for models with one sigmoid that
            do not convert them.
        sampler: for training, samples another segmentation of a text each time that it is read (``SubwordSampler``).

    Attributes:
        texts: the texts that are kept, in their order.

    Raises:
        UserError: see ``EncodedExamples``; or there are more than two classes with ``float_labels``.
    """

    def __init__(
        self,
        texts: LabeledTexts,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        *,
        too_long: str = "cut",
        float_labels: bool = False,
        sampler: Segmenter | None = None,
        seed: int = 0,
    ) -> None:
        if float_labels and len(texts.labels) > 2:
            raise UserError(f"{texts.name} has {len(texts.labels)} classes, and one sigmoid distinguishes two.")
        pairs = [item.pair for item in texts if item.pair is not None] if texts.has_pairs else None
        side = Side("text", [item.text for item in texts], tokenizer, max_length, "data.max_length", sampler, pairs)
        super().__init__(texts, [side], too_long, seed)
        self.texts = texts.select(self.kept)
        self.float_labels = float_labels

    def __getitem__(self, index: int) -> dict[str, Any]:
        (ids,), item = self.segmentation(index), self.texts.items[index]
        return {"input_ids": ids, "labels": [float(item.label)] if self.float_labels else item.target}


def unlabeled(texts: Sequence[str | tuple[str, str]]) -> LabeledTexts:
    """Return unlabeled texts, or pairs of texts, for a model to predict, with class 0 assigned to each."""
    items = [Labeled(text, 0) if isinstance(text, str) else Labeled(text[0], 0, pair=text[1]) for text in texts]
    return LabeledTexts("texts", items, ["any"])
