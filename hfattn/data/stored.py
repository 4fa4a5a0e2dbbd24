"""Sequences in temporary files: texts, token ids and examples, which are read from there when they are needed.

A temporary file is mapped into memory, so that the operating system keeps as much of it in memory as there is room for.
It has no name, and is removed when the process ends. It is in the system's folder for temporary files, which the
environment variable TMPDIR can change; if that folder is in memory itself, so are the texts.
"""

import hashlib
import tempfile
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import IO, Any, Generic, Self, TypeVar

import numpy as np

Value = TypeVar("Value")
Taken = TypeVar("Taken")
Item = TypeVar("Item")

BUFFER = 1 << 20  # bytes that are written at once


class Again(Generic[Value]):
    """What a function yields, from the beginning each time that it is read.

    Args:
        start: function that returns an iterator.
    """

    def __init__(self, start: Callable[[], Iterator[Value]]) -> None:
        self.start = start

    def __iter__(self) -> Iterator[Value]:
        return self.start()


class LazySequence(Sequence[Value]):
    """Base of sequences whose values are made anew each time that they are read.

    Args:
        length: number of values.
    """

    def __init__(self, length: int) -> None:
        self._places: range | np.ndarray = range(length)

    def read(self, place: int) -> Value:
        """Return the value at a place of the whole sequence, from which others were selected."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.select(range(len(self))[index])
        return self.read(self._places[index])

    def __iter__(self) -> Iterator[Value]:
        return map(self.read, self._places)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(own == value for own, value in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def select(self, indices: Sequence[int] | np.ndarray) -> Self:
        """Return the values at some indices, without reading them."""
        if isinstance(indices, range) and indices == range(len(self)):
            return self
        found = copy(self)
        found._places = self._places[indices] if isinstance(self._places, np.ndarray) else np.asarray(indices)
        return found


def selected(values: Sequence[Value], indices: Sequence[int] | np.ndarray) -> Sequence[Value]:
    """Return the values at some indices: a list of those of a list."""
    return values.select(indices) if isinstance(values, LazySequence) else [values[i] for i in indices]


class Derived(LazySequence[Value]):
    """A function of each value of another sequence.

    Args:
        values: the other sequence.
        function: the function; processes that load data need one that can be pickled.
    """

    def __init__(self, values: Sequence[Taken], function: Callable[[Taken], Value]) -> None:
        super().__init__(len(values))
        self.values, self.function = values, function

    def read(self, place: int) -> Value:
        return self.function(self.values[place])


class _Stored(LazySequence[Value]):
    """Arrays of different lengths, one after the other in a file.

    Args:
        rows: the bytes of each array.
        dtype: type of their elements.
    """

    def __init__(self, rows: Iterable[bytes], dtype: type) -> None:
        size, ends = np.dtype(dtype).itemsize, array("q", [0])
        with tempfile.TemporaryFile(buffering=BUFFER) as file:
            for row in rows:
                file.write(row)
                ends.append(ends[-1] + len(row) // size)
            self._values = mapped(file, dtype)
        self._ends = np.frombuffer(ends, np.int64)
        super().__init__(len(ends) - 1)

    def row(self, place: int) -> np.ndarray:
        return self._values[self._ends[place] : self._ends[place + 1]]

    @property
    def lengths(self) -> np.ndarray:
        """Number of elements of each array, (n,)."""
        lengths = np.diff(self._ends)
        return lengths if isinstance(self._places, range) else lengths[self._places]


class StoredTexts(_Stored[str]):
    """Texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        # An escape in JSON, such as "\ud800", may be half of a character, which strict UTF-8 cannot encode.
        super().__init__((text.encode(errors="surrogatepass") for text in texts), np.uint8)

    def read(self, place: int) -> str:
        return self.row(place).tobytes().decode(errors="surrogatepass")


class StoredIds(_Stored[list[int]]):
    """Token ids of texts."""

    def __init__(self, ids: Iterable[Sequence[int]]) -> None:
        super().__init__((array("i", each).tobytes() for each in ids), np.int32)

    def read(self, place: int) -> list[int]:
        return self.row(place).tolist()


class StoredArrays(_Stored[np.ndarray]):
    """Arrays of one dimension.

    Args:
        arrays: the arrays.
        dtype: type of their elements.
    """

    def __init__(self, arrays: Iterable[np.ndarray], dtype: type) -> None:
        super().__init__((each.tobytes() for each in arrays), dtype)

    def read(self, place: int) -> np.ndarray:
        return self.row(place)


class StoredItems(LazySequence[Item]):
    """Examples as named tuples: their texts are in a file, and their lines and other columns in memory.

    Args:
        kind: the class of the examples, which begins with their texts and has ``line`` and ``fields``.
        number: number of texts of an example.
        items: the examples.
    """

    def __init__(self, kind: Callable[..., Item], number: int, items: Iterable[Any]) -> None:
        lines, self._fields = array("q"), dict[int, Mapping[str, Any]]()

        def texts() -> Iterator[str]:
            for place, item in enumerate(items):
                lines.append(item.line)
                if item.fields:
                    self._fields[place] = item.fields
                yield from item[:number]

        self._kind, self._number, self._texts = kind, number, StoredTexts(texts())
        self._lines = np.frombuffer(lines, np.int64)
        super().__init__(len(lines))

    def read(self, place: int) -> Item:
        texts = map(self._texts.read, range(place * self._number, (place + 1) * self._number))
        return self._kind(*texts, line=int(self._lines[place]), fields=self._fields.get(int(place), {}))


def mapped(file: IO[bytes], dtype: type) -> np.ndarray:
    """Return the elements of a temporary file, which may then be closed."""
    file.flush()
    return np.asarray(np.memmap(file, dtype, "r")) if file.tell() else np.empty(0, dtype)


def numbered(keys: Iterable[Hashable], length: int) -> tuple[np.ndarray, int]:
    """Number keys in the order in which they first occur, without keeping them.

    Keys are compared by 64 bits of a hash: of ten million keys, two different ones are taken for equal with a
    probability of 3e-6.

    Args:
        keys: texts, or tuples of texts.
        length: their number n.

    Returns:
        The number of each key, (n,), and how many different ones there are.
    """
    digests = (hashlib.blake2b(repr(key).encode(), digest_size=8).digest() for key in keys)
    found = np.fromiter((int.from_bytes(each) for each in digests), np.uint64, length)
    _, first, places = np.unique(found, return_index=True, return_inverse=True)
    numbers = np.empty(len(first), np.int64)
    numbers[np.argsort(first)] = np.arange(len(first))
    return numbers[places], len(first)
