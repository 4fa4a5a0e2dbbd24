"""Examples in memory: where each one comes from, what they are together, how they are split."""

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
    """Examples, in their order.

    Attributes:
        name: where they come from, without the folders of a local path.
        items: the examples; each has a ``line``, or None where it comes from no file.
        unit: what a line is there: "Line" of a file, or "Row" of a data set on the Hub.
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
        """What an example holds, as the columns of a tab-separated file."""
        raise NotImplementedError

    def texts(self, item: Item) -> tuple[str, ...]:
        """The texts of an example."""
        raise NotImplementedError

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the examples as a tab-separated file in UTF-8."""
        digest = hashlib.sha256()
        for item in self.items:
            digest.update(("\t".join(self.columns(item)) + "\n").encode())
        return digest.hexdigest()

    @property
    def counts(self) -> Counter[str]:
        """How often each character occurs in the texts."""
        counts: Counter[str] = Counter()
        for item in self.items:
            for text in self.texts(item):
                counts.update(text)
        return counts

    def place(self, index: int) -> str:
        """Where an example stands, in words."""
        line = self.items[index].line
        return f"{self.noun} {index + 1} of {self.name}" if line is None else f"{self.unit} {line} of {self.name}"

    def sample(self, number: int, seed: int) -> Self:
        """So many of the examples, drawn with a seed, in their order; all where there are fewer."""
        if number >= len(self):
            return self
        return replace(self, items=[self.items[i] for i in sorted(Random(seed).sample(range(len(self)), number))])

    def split(self, split: Sequence[float | int | str], seed: int, key: Callable[[Item], Any], unit: str) -> list[Self]:
        """Shuffle examples and cut them into train, validation and, if three parts are given, test.

        Args:
            split: shares or numbers of distinct keys, as in ``split_positions``.
            seed: of the shuffling.
            key: examples with equal keys stay together.
            unit: what is counted, for the messages.

        Raises:
            UserError: the split does not fit, or leaves a part empty.
        """
        keys = list(dict.fromkeys(map(key, self.items)))
        Random(seed).shuffle(keys)
        parts = split_positions(len(keys), split, unit)
        part_of = {each: part for part, positions in enumerate(parts) for each in keys[positions]}
        items: list[list[Item]] = [[] for _ in parts]
        for item in self.items:
            items[part_of[key(item)]].append(item)
        if not all(items):
            raise UserError(
                f"{self.name} has {len(keys)} {unit}, and split {list(split)} leaves a part of them empty; give more "
                "of them, or another split."
            )
        return [replace(self, items=part) for part in items]


def check_columns(columns: Sequence[str], examples: Examples[Any]) -> None:
    """Make sure that the examples have the columns whose values ``evaluation.columns`` is to tell apart.

    Raises:
        UserError: they lack one.
    """
    known = examples.items[0].fields
    for column in columns:
        if column not in known:
            raise UserError(
                f"evaluation.columns names {column!r}, and the other columns of {examples.name} are "
                f"{', '.join(known) or 'none'}; write one of these, or remove it."
            )
