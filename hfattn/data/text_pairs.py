"""Pairs of texts for sentence encoders: similar texts, scored pairs, classified pairs, and translations."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from huggingface_hub.dataclasses import strict
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..fields import at_least
from .encoding import EncodedExamples, Segmenter, Side
from .examples import Examples
from .grouping import components, split_by_shared_text
from .labeled import classes_of, number_of_label
from .parts import PartsConfig
from .rows import Row, Rows, Source, open_rows
from .vectors import WordVectorsConfig

LARGE = 0.01  # share of the pairs above which a connected component is assigned to a part before the others


class TextPair(NamedTuple):
    """Two texts that belong together, or how similar they are.

    Attributes:
        text, pair: the texts.
        score: how similar they are, if that is known.
        label: the class of the pair, such as that of an entailment, if it has one.
        negative: a third text that is similar to ``text`` and does not belong to it, if there is one.
        line, fields: its line or row in the dataset, and the other columns of that.
    """

    text: str
    pair: str
    score: float | None = None
    label: int | None = None
    negative: str | None = None
    line: int | None = None
    fields: Mapping[str, Any] = {}


@dataclass(frozen=True)
class TextPairs(Examples[TextPair]):
    """Pairs of texts in memory, with the names of their classes."""

    labels: list[str] = field(default_factory=list, repr=False)

    noun = "Pair"

    def columns(self, item: TextPair) -> tuple[str, ...]:
        score = () if item.score is None else (repr(item.score),)
        label = () if item.label is None else (self.labels[item.label],)
        return (*score, *label, *self.texts(item))

    def texts(self, item: TextPair) -> tuple[str, ...]:
        return (item.text, item.pair) if item.negative is None else (item.text, item.pair, item.negative)

    def inputs(self, item: TextPair) -> dict[str, str]:
        return {"max_length": max(self.texts(item), key=len)}


class PairNumbers:
    """The different texts of pairs, and which of them belong together.

    Attributes:
        texts: all different texts, in the order in which they occur.
        rows: (N, 2) or, if the pairs have negatives, (N, 3) numbers of the texts of each pair.
        first, second: numbers of the different first and second texts.
    """

    def __init__(self, pairs: TextPairs) -> None:
        number_of: dict[str, int] = {}
        numbered = [[number_of.setdefault(text, len(number_of)) for text in pairs.texts(item)] for item in pairs]
        self.texts = list(number_of)
        self.rows = np.array(numbered, np.int64)
        self.first, self.second = (np.unique(self.rows[:, side]) for side in (0, 1))


@strict
@dataclass
class TextPairDataConfig(PartsConfig[TextPairs], WordVectorsConfig):
    """Source of the pairs of each part.

    The data are split by connected component: pairs that share a text, also indirectly, are in one part. Components
    with more than a hundredth of the pairs are assigned first, and the others in random order.

    Attributes:
        text_column, pair_column: columns of the two texts; a tab-separated file without these names in its first line
            has them as its only two columns.
        negative_column: column of a third text, which is similar to the first one and does not belong to it.
        score_column: column of a number that says how similar the texts are; with it, parts are evaluated by the
            correlation of cosines and scores.
        score_range: the scores whose cosines should be 0 and 1; null: the lowest and the highest of the training pairs.
        label_column: column with the class of a pair, such as that of an entailment.
        labels: names of the classes, from class 0 on; null: names in the data.
        positive_labels: classes of the pairs that belong together; where a loss needs such pairs, it trains on these.
        negative_labels: classes of the pairs whose second text is a hard negative of their first one.
        training_examples: pairs to draw from the training part; null: all.
        max_length: maximum number of tokens of a text; longer texts are cut.
    """

    unit: ClassVar[str] = "pairs"

    text_column: str = "text"
    pair_column: str = "pair"
    negative_column: str | None = None
    score_column: str | None = None
    score_range: list[float | int] | None = None
    label_column: str | None = None
    labels: list[str] | None = None
    positive_labels: list[str] = field(default_factory=list)
    negative_labels: list[str] = field(default_factory=list)
    training_examples: int | None = at_least(2, None)
    max_length: int = at_least(3, 128)

    def validate_columns(self) -> None:
        chosen = [*self.positive_labels, *self.negative_labels]
        if (chosen or self.labels) and self.label_column is None:
            raise ValueError("labels, positive_labels and negative_labels name classes; write label_column too.")
        if self.negative_labels and not self.positive_labels:
            raise ValueError("negative_labels are beside positive_labels; write both.")
        if self.negative_labels and self.negative_column is not None:
            raise ValueError("negative_column and negative_labels are two sources of negatives; write one of them.")
        if set(self.positive_labels) & set(self.negative_labels):
            raise ValueError("positive_labels and negative_labels share a class; remove it from one of them.")
        span = self.score_range
        if span is not None and not (len(span) == 2 and span[0] < span[1]):
            raise ValueError(f"score_range is {span}; write the scores of cosines 0 and 1, such as [1, 5].")

    def read(self, dataset: Source, split: str, train: TextPairs | None = None) -> TextPairs:
        return read_text_pairs(dataset, self, split, labels=self.labels if train is None else train.labels)

    def key(self, item: TextPair) -> Hashable:
        return item.text

    def groups(self, whole: TextPairs) -> list[Hashable]:
        return super().groups(whole) if self.group_column is not None else list(components(whole))

    def cut(self, whole: TextPairs, seed: int) -> list[TextPairs]:
        return split_by_shared_text(whole, self.split, seed, large=LARGE)


def read_text_pairs(
    dataset: Source, columns: TextPairDataConfig, split: str = "train", *, labels: Sequence[str] | None = None
) -> TextPairs:
    """Read pairs of texts.

    Args:
        dataset: a source of rows, as in ``open_rows``; or a tab-separated file of two columns without their names.
        columns: which columns are read.
        split: split of a dataset that has splits.
        labels: names of the classes, from class 0 on.

    Raises:
        UserError: the dataset cannot be read, a column does not exist, or a text or a score is missing.
    """
    open_with = partial(open_rows, dataset, config=columns.config, split=split, revision=columns.revision)
    rows = open_with()
    plain = (columns.text_column, columns.pair_column)
    if _is_plain(rows, plain):
        rows = open_with(columns=plain)
    named = {*plain, columns.negative_column, columns.score_column, columns.label_column}
    items, written = [], []
    for row in rows:
        text = rows.text(row, columns.text_column, "text", "text_column")
        pair = rows.text(row, columns.pair_column, "second text", "pair_column")
        negative = score = None
        if columns.negative_column is not None:
            negative = rows.text(row, columns.negative_column, "negative", "negative_column")
        if columns.score_column is not None:
            score = number_of_label(rows.value(row, columns.score_column, "score_column"), rows.place(row))
        if columns.label_column is not None:
            written.append(_label(rows, row, columns.label_column))
        fields = {name: row.values[name] for name in row.values if name not in named}
        items.append(TextPair(text, pair, score, None, negative, row.number, fields))
    if not items:
        raise UserError(f"{rows.name} is empty; write two texts on each line.")
    if columns.label_column is None:
        return TextPairs(rows.name, items, unit=rows.unit)
    names, number_of = classes_of(rows, columns.label_column, labels, written)
    for label, item in zip(written, items, strict=True):
        if label not in number_of:
            raise UserError(
                f"{rows.unit} {item.line} of {rows.name} has the label {label!r}, which is not one of "
                f"{', '.join(names)}; correct it, or change data.labels."
            )
    for name in (*columns.positive_labels, *columns.negative_labels):
        if name not in names:
            raise UserError(f"The labels of {rows.name} are {', '.join(names)}, and not {name!r}; name one of them.")
    classified = [item._replace(label=number_of[label]) for item, label in zip(items, written, strict=True)]
    return TextPairs(rows.name, classified, names, unit=rows.unit)


def _is_plain(rows: Rows, columns: tuple[str, str]) -> bool:
    """Return whether a tab-separated file has two columns whose names are not in its first line."""
    if rows.unit != "Line":
        return False
    first = next(iter(rows), None)
    return first is not None and len(first.values) == 2 and not set(columns) & first.values.keys()


def _label(rows: Rows, row: Row, column: str) -> int | str:
    label = rows.value(row, column, "label_column")
    if isinstance(label, bool) or not isinstance(label, int | str) or not str(label).strip():
        raise UserError(f"{rows.place(row)} has the label {label!r}; write the name or the number of a class.")
    return label


def from_pairs(pairs: Examples[Any]) -> TextPairs:
    """Return pairs of a source and a target as pairs of texts."""
    items = [TextPair(item.source, item.target, line=item.line, fields=item.fields) for item in pairs]
    return TextPairs(pairs.name, items, unit=pairs.unit)


def positives(pairs: TextPairs, labels: Sequence[str]) -> TextPairs:
    """Return the pairs of some classes; all pairs if no class is named.

    Raises:
        UserError: there is no such pair.
    """
    if not labels:
        return pairs
    kept = [item for item in pairs if item.label is not None and pairs.labels[item.label] in labels]
    if not kept:
        raise UserError(f"{pairs.name} has no pair of the class {' or '.join(labels)}; add some.")
    return replace(pairs, items=kept)


def with_negatives(pairs: TextPairs, whole: TextPairs, labels: Sequence[str], seed: int) -> TextPairs:
    """Give each pair a hard negative: the second text of a pair of ``whole`` with the same first text.

    A pair whose first text has none gets the second text of another pair, drawn at random, which is a negative like
    those of the batch. Texts that some pair says to be right are not drawn, unless there are no others.

    Args:
        pairs: pairs of texts that belong together.
        whole: the pairs among which those of the classes ``labels`` are looked for.
        labels: the classes whose second texts are hard negatives.
        seed: random seed.
    """
    right: dict[str, set[str]] = defaultdict(set)
    for item in pairs:
        right[item.text] |= {item.text, item.pair}
    of_text: dict[str, list[str]] = defaultdict(list)
    for item in positives(whole, labels):
        if item.pair not in right[item.text]:
            of_text[item.text].append(item.pair)
    random, seconds = Random(seed), [item.pair for item in pairs]
    different = set(seconds)

    def drawn(item: TextPair) -> str:
        if known := of_text[item.text]:
            return random.choice(known)
        while (text := random.choice(seconds)) in right[item.text] and not different <= right[item.text]:
            pass
        return text

    return replace(pairs, items=[item._replace(negative=drawn(item)) for item in pairs])


class EncodedTextPairs(EncodedExamples):
    """Token ids of pairs of texts, for ``TextPairCollator``.

    An example has ``texts``, the ids of its two or three texts, ``labels``, its target, ``numbers``, those of the texts
    in ``PairNumbers``, and, if given, ``vectors``.

    Args:
        pairs: the pairs.
        tokenizer: the tokenizer.
        max_length: maximum number of tokens of a text.
        targets: the target of each pair: a number or a class; None: 0.
        vectors: (M, D) vectors of a teacher for the texts of ``PairNumbers``; an example has that of its first one.
        sampler, seed: see ``EncodedExamples``.
    """

    def __init__(
        self,
        pairs: TextPairs,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        targets: Sequence[float] | None = None,
        vectors: torch.Tensor | None = None,
        sampler: Segmenter | None = None,
        seed: int = 0,
    ) -> None:
        self.pairs, self.targets, self.vectors = pairs, targets, vectors
        self.numbered = PairNumbers(pairs)
        columns = zip(*map(pairs.texts, pairs), strict=True)
        sides = [Side("text", list(column), tokenizer, max_length, "data.max_length", sampler) for column in columns]
        super().__init__(pairs, sides, "cut", seed)

    def __getitem__(self, index: int) -> dict[str, Any]:
        numbers = self.numbered.rows[index]
        example = {
            "labels": 0 if self.targets is None else self.targets[index],
            "numbers": numbers,
            "texts": self.segmentation(index),
        }
        return example if self.vectors is None else {**example, "vectors": self.vectors[numbers[0]]}


class TextPairCollator:
    """Batches of ``EncodedTextPairs``: ``texts`` is a list of padded inputs, one for each side.

    Args:
        tokenizer: the tokenizer.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = {
            "labels": torch.tensor([example["labels"] for example in examples]),
            "numbers": torch.tensor(np.stack([example["numbers"] for example in examples])),
        }
        if "vectors" in examples[0]:
            batch["vectors"] = torch.stack([example["vectors"] for example in examples])
        sides = zip(*(example["texts"] for example in examples), strict=True)
        batch["texts"] = [
            dict(self.tokenizer.pad({"input_ids": list(side)}, padding_side="right", return_tensors="pt"))
            for side in sides
        ]
        return batch
