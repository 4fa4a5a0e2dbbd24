"""Examples in memory: their origin, their fingerprint, and their split into parts."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from ..errors import UserError
from .text import split_positions


class _Placed(Protocol):
    @property
    def line(self) -> int | None: ...


Item = TypeVar("Item", bound=_Placed)


@dataclass(frozen=True)
class Examples(Generic[Item]):
    """A list of examples.

    Attributes:
        name: name of the file or dataset, without the folders of a local path.
        items: the examples; the ``line`` of each is None if it does not come from a file or dataset.
        unit: "Line" for a file, "Row" for a dataset on the Hub.
    """

    name: str
    items: list[Item] = field(repr=False)
    unit: str = field(default="Line", kw_only=True)

    noun: ClassVar[str] = "Example"

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def columns(self, item: Item) -> tuple[str, ...]:
        """Return the columns of an example in a tab-separated file, for the fingerprint."""
        raise NotImplementedError

    def texts(self, item: Item) -> tuple[str, ...]:
        """Return the texts of an example."""
        raise NotImplementedError

    def inputs(self, item: Item) -> dict[str, str]:
        """Return what a model reads of an example at once, by the field of ``data`` that limits its tokens.

        The name is "" for what is not cut: it is read in windows, or joined with other examples.
        """
        return {"": " ".join(self.texts(item))}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the examples as a tab-separated file in UTF-8."""
        digest = hashlib.sha256()
        for item in self.items:
            digest.update(("\t".join(self.columns(item)) + "\n").encode())
        return digest.hexdigest()

    @property
    def counts(self) -> Counter[str]:
        """Number of occurrences of each character in the texts."""
        counts: Counter[str] = Counter()
        for item in self.items:
            for text in self.texts(item):
                counts.update(text)
        return counts

    def place(self, index: int) -> str:
        """Describe the position of an example, for messages."""
        line = self.items[index].line
        return f"{self.noun} {index + 1} of {self.name}" if line is None else f"{self.unit} {line} of {self.name}"

    def sample(self, number: int, seed: int) -> Self:
        """Return a random sample of the examples in their order, or all of them if there are fewer."""
        if number >= len(self):
            return self
        return replace(self, items=[self.items[i] for i in sorted(Random(seed).sample(range(len(self)), number))])

    def split(self, split: Sequence[float | int | str], seed: int, key: Callable[[Item], Any], unit: str) -> list[Self]:
        """Shuffle examples and cut them into train, validation and, if three parts are given, test.

        Args:
            split: fractions or counts of distinct keys, see ``split_positions``.
            seed: random seed for shuffling.
            key: function from an example to its key; examples with equal keys go into the same part.
            unit: plural name of the keys, such as "texts", used in messages.

        Raises:
            UserError: the split is impossible, or leaves a part empty.
        """
        keys = list(dict.fromkeys(map(key, self.items)))
        Random(seed).shuffle(keys)
        parts = split_positions(len(keys), split, unit)
        part_of = {each: part for part, positions in enumerate(parts) for each in keys[positions]}
        return self.distribute([part_of[key(item)] for item in self.items], split, len(keys), unit)

    def distribute(
        self, part_of: Sequence[int | None], split: Sequence[float | int | str], number: int, unit: str
    ) -> list[Self]:
        """Return the parts of the examples, in their order.

        Args:
            part_of: the part of each example, from 0 on; None leaves it out.
            split: the split as given, for its number of parts and for messages.
            number, unit: what was split, for messages.

        Raises:
            UserError: a part is empty.
        """
        items: list[list[Item]] = [[] for _ in split]
        for item, part in zip(self.items, part_of, strict=True):
            if part is not None:
                items[part].append(item)
        if not all(items):
            raise UserError(
                f"{self.name} has {number} {unit}, and split {list(split)} leaves a part empty; add {unit}, or "
                "write another split."
            )
        return [replace(self, items=part) for part in items]


def check_columns(columns: Sequence[str], examples: Examples[Any]) -> None:
    """Check that the examples have the columns that ``evaluation.columns`` names.

    Raises:
        UserError: a column is missing.
    """
    known = examples.items[0].fields
    for column in columns:
        if column not in known:
            raise UserError(
                f"evaluation.columns names {column!r}, and the other columns of {examples.name} are "
                f"{', '.join(known) or 'none'}; write one of these, or remove it."
            )
