"""Examples: their origin, their fingerprint, and their split into parts."""

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np

from ..errors import UserError
from .stored import Again, numbered, selected
from .text import split_positions


class _Placed(Protocol):
    @property
    def line(self) -> int | None: ...


Item = TypeVar("Item", bound=_Placed)


@dataclass(frozen=True)
class Examples(Generic[Item]):
    """A sequence of examples.

    Attributes:
        name: name of the file or dataset, without the folders of a local path.
        items: the examples, a list or ``StoredItems``; the ``line`` of each is None if it does not come from a file or
            dataset.
        unit: "Line" for a file, "Row" for a dataset on the Hub.
    """

    name: str
    items: Sequence[Item] = field(repr=False)
    unit: str = field(default="Line", kw_only=True)

    noun: ClassVar[str] = "Example"
    shared_name: ClassVar[str] = ""  # what ``shared_key`` is, in words; "" if it is the whole example

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

    def shared_key(self, item: Item) -> Hashable:
        """Return what no two examples of different parts should have in common."""
        return self.texts(item)

    def inputs(self, item: Item) -> dict[str, str]:
        """Return what a model reads of an example at once, by the field of ``data`` that limits its tokens.

        The name is "" for what is not cut: it is read in windows, or joined with other examples.
        """
        return {"": " ".join(self.texts(item))}

    @property
    def all_texts(self) -> Iterable[str]:
        """The texts of all examples, which can be read repeatedly and are not kept."""
        return Again(lambda: (text for item in self for text in self.texts(item)))

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
        for text in self.all_texts:
            counts.update(text)
        return counts

    def place(self, index: int) -> str:
        """Describe the position of an example, for messages."""
        line = self.items[index].line
        return f"{self.noun} {index + 1} of {self.name}" if line is None else f"{self.unit} {line} of {self.name}"

    def select(self, indices: Sequence[int] | np.ndarray) -> Self:
        """Return the examples at some indices."""
        return replace(self, items=selected(self.items, indices))

    def without(self, held: Container[Hashable], key: Callable[[Item], Hashable], unit: str) -> Self:
        """Return the training examples that have nothing in common with the other parts, for ``duplicates: drop``.

        Args:
            held: the keys of the examples of the other parts.
            key: function from an example to its key.
            unit: plural name of the keys, such as "texts", used in messages.

        Raises:
            UserError: no example is left.
        """
        items = [item for item in self if key(item) not in held]
        if not items:
            raise UserError(
                f"All training {unit} of {self.name} are also in another part, and data.duplicates: drop leaves none "
                "of them; give other data, or write keep."
            )
        return replace(self, items=items)

    def sample(self, number: int, seed: int) -> Self:
        """Return a random sample of the examples in their order, or all of them if there are fewer."""
        if number >= len(self):
            return self
        return self.select(sorted(Random(seed).sample(range(len(self)), number)))

    def split(self, split: Sequence[float | int | str], seed: int, key: Callable[[Item], Any], unit: str) -> list[Self]:
        """Shuffle examples and cut them into train, validation and, if three parts are given, test.

        Args:
            split: fractions or counts of distinct keys, see ``split_positions``.
            seed: random seed for shuffling.
            key: function from an example to its key, a text or a tuple of texts; examples with equal keys go into the
                same part.
            unit: plural name of the keys, such as "texts", used in messages.

        Raises:
            UserError: the split is impossible, or leaves a part empty.
        """
        numbers, different = numbered(map(key, self.items), len(self))
        shuffled = array("q", range(different))
        Random(seed).shuffle(shuffled)
        part_of = np.empty(different, np.int64)
        for part, positions in enumerate(split_positions(different, split, unit)):
            part_of[shuffled[positions]] = part
        return self.distribute(part_of[numbers], split, different, unit)

    def distribute(
        self, part_of: Sequence[int | None] | np.ndarray, split: Sequence[float | int | str], number: int, unit: str
    ) -> list[Self]:
        """Return the parts of the examples, in their order.

        Args:
            part_of: the part of each example, from 0 on; None leaves it out.
            split: the split as given, for its number of parts and for messages.
            number, unit: what was split, for messages.

        Raises:
            UserError: a part is empty.
        """
        numbers = np.array(part_of)
        indices = [np.flatnonzero(numbers == part) for part in range(len(split))]
        if not all(map(len, indices)):
            raise UserError(
                f"{self.name} has {number} {unit}, and split {list(split)} leaves a part empty; add {unit}, or "
                "write another split."
            )
        return list(map(self.select, indices))


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
