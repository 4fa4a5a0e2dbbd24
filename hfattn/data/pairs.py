"""Pairs of a source and a target text: where they come from, how they are split, how they become training examples."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random
from typing import NamedTuple

from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..tokenizers import uncovered_characters
from .batches import PermutationSampler
from .text import split_positions


class Pair(NamedTuple):
    """A source, its target, what it is an example of where that is known, and its line in the file it comes from."""

    source: str
    target: str
    kind: str = ""
    line: int | None = None


@dataclass(frozen=True)
class Pairs:
    """Pairs in memory, and where they come from (``name``, without the folders of a local path)."""

    name: str
    items: list[Pair] = field(repr=False)

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.items)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the pairs as a tab-separated file in UTF-8."""
        digest = hashlib.sha256()
        for pair in self.items:
            digest.update(f"{pair.source}\t{pair.target}\n".encode())
        return digest.hexdigest()

    @property
    def counts(self) -> Counter[str]:
        """How often each character occurs, sources and targets together."""
        counts: Counter[str] = Counter()
        for pair in self.items:
            counts.update(pair.source)
            counts.update(pair.target)
        return counts

    def place(self, index: int) -> str:
        """Where a pair stands, in words."""
        line = self.items[index].line
        return f"Pair {index + 1} of {self.name}" if line is None else f"Line {line} of {self.name}"


def read_pairs(path: str | Path) -> Pairs:
    """Read a UTF-8 file that holds a source, a tab and its target on each line.

    Raises:
        UserError: there is no such file, it is empty, or a line is not that; the message has the line's number.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise UserError(f"There is no file {path}; write the path of a tab-separated file, or 'dates'.")
    items = []
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                columns = line.decode("utf-8").rstrip("\r\n").split("\t")
            except UnicodeDecodeError:
                raise UserError(
                    f"Line {number} of {path.name} is not UTF-8; convert the file, for example with iconv -t UTF-8."
                ) from None
            if len(columns) != 2:
                found = f"{len(columns) - 1} tabs" if len(columns) > 1 else "no tab"
                raise UserError(
                    f"Line {number} of {path.name} has {found}; write the source, one tab and its target on each line."
                )
            source, target = columns
            for name, text in (("source", source), ("target", target)):
                if not text.strip():
                    raise UserError(
                        f"Line {number} of {path.name} has an empty {name}; fill it in, or remove the line."
                    )
            items.append(Pair(source, target, line=number))
    if not items:
        raise UserError(f"{path.name} is empty; write a source, a tab and its target on each line.")
    return Pairs(path.name, items)


def split_pairs(pairs: Pairs, split: Sequence[float | int | str], seed: int) -> list[Pairs]:
    """Shuffle pairs and cut them into train, validation and, if three parts are given, test.

    The pairs of one source, which may have several translations, stay together: no source that is evaluated was
    trained on.

    Args:
        pairs: all of them.
        split: shares or numbers of distinct sources, as in ``split_positions``.
        seed: of the shuffling.

    Raises:
        UserError: the split does not fit, or leaves a part empty.
    """
    sources = list(dict.fromkeys(pair.source for pair in pairs))
    Random(seed).shuffle(sources)
    parts = split_positions(len(sources), split, unit="sources")
    part_of = {source: part for part, positions in enumerate(parts) for source in sources[positions]}
    items: list[list[Pair]] = [[] for _ in parts]
    for pair in pairs:
        items[part_of[pair.source]].append(pair)
    if not all(items):
        raise UserError(
            f"{pairs.name} has {len(sources)} sources, and split {list(split)} leaves a part of them empty; give more "
            "pairs, or another split."
        )
    return [Pairs(pairs.name, part) for part in items]


class EncodedPairs(Dataset[dict[str, list[int]]]):
    """Token ids of pairs: ``input_ids`` of the source and ``labels`` of the target, for ``DataCollatorForSeq2Seq``.

    Args:
        pairs: the pairs.
        tokenizer: of both sides; it ends each text with its end symbol.
        max_source_length, max_target_length: in tokens, that end included.

    Raises:
        UserError: a text is longer, or holds a character that the tokenizer can neither encode nor replace.
    """

    def __init__(
        self, pairs: Pairs, tokenizer: PreTrainedTokenizerBase, max_source_length: int, max_target_length: int
    ) -> None:
        if missing := uncovered_characters(tokenizer, pairs.counts):
            index = next(i for i, pair in enumerate(pairs) if missing[0] in pair.source + pair.target)
            raise UserError(
                f"{pairs.place(index)} holds {missing[0]!r} (U+{ord(missing[0]):04X}), which does not occur in the "
                "training pairs; write tokenizer.unknown: true to admit it."
            )
        self.sources: list[list[int]] = tokenizer([pair.source for pair in pairs]).input_ids
        self.targets: list[list[int]] = tokenizer([pair.target for pair in pairs]).input_ids
        for name, rows, longest in (
            ("source", self.sources, max_source_length),
            ("target", self.targets, max_target_length),
        ):
            for i, row in enumerate(rows):
                if len(row) > longest:
                    raise UserError(
                        f"{pairs.place(i)} has a {name} of {len(row)} tokens, its end included; raise "
                        f"data.max_{name}_length, which is {longest}, or shorten it."
                    )

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        return {"input_ids": self.sources[index], "labels": self.targets[index]}

    def set_epoch(self, epoch: int) -> None:
        """Pairs have the same ids at each pass."""

    def sampler(self, seed: int) -> PermutationSampler:
        """The order in which training reads the pairs."""
        return PermutationSampler(len(self), seed)
