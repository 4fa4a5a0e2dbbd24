"""Pairs of a source and a target text: where they come from, how they are split, how they become training examples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import NamedTuple

from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from .batches import PermutationSampler
from .encoding import Segmenter, draw, encode_texts, lengths_of
from .examples import Examples
from .rows import Row, Rows, open_rows, parallel_files, read_lines


class Pair(NamedTuple):
    """A source, its target, what it is an example of where that is known, and its line in the file it comes from."""

    source: str
    target: str
    kind: str = ""
    line: int | None = None


@dataclass(frozen=True)
class Pairs(Examples[Pair]):
    """Pairs in memory."""

    noun = "Pair"

    def columns(self, item: Pair) -> tuple[str, ...]:
        return item.source, item.target

    texts = columns


def read_pairs(
    source: str | Path,
    *,
    source_column: str = "source",
    target_column: str = "target",
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
) -> Pairs:
    """Read pairs from a file, from two parallel files, or from a data set on the Hub.

    Args:
        source: one of

            - the path of a tab-separated UTF-8 file: a source, a tab and its target on each line, without a header;
            - the path of a ``.jsonl`` file: an object with both columns on each line;
            - two paths at once, such as ``"folder/train.{en,de}"``: line by line, the sources and their targets;
            - the id of a data set on the Hub.

        source_column, target_column: of JSON lines and of data sets; ``translation.en`` reaches inside a column.
        config, split, revision: the part of a Hub data set to read.

    Raises:
        UserError: there is no such file, data set or column, it is empty, or a line is not as it should be; the message
            has the line's number.
    """
    source, columns = str(source), (source_column, target_column)
    if files := parallel_files(source):
        rows = _parallel_rows(source, files, columns)
    else:
        rows = open_rows(source, columns=columns, config=config, split=split, revision=revision)
    items = [
        Pair(rows.text(row, source_column, "source"), rows.text(row, target_column, "target"), line=row.number)
        for row in rows
    ]
    if not items:
        raise UserError(f"{rows.name} is empty; write a source and its target on each line.")
    return Pairs(rows.name, items, unit=rows.unit)


def _parallel_rows(source: str, files: tuple[str, str], columns: tuple[str, str]) -> Rows:
    paths = [Path(file).expanduser() for file in files]
    for path in paths:
        if not path.is_file():
            raise UserError(f"There is no file {path}; write the paths of two parallel files, such as train.{{en,de}}.")
    texts = [[line for _, line in read_lines(path)] for path in paths]
    if len(texts[0]) != len(texts[1]):
        raise UserError(
            f"{paths[0].name} has {len(texts[0])} lines and {paths[1].name} has {len(texts[1])}; give files whose "
            "lines are translations of each other."
        )
    rows = [Row(i, dict(zip(columns, row, strict=True))) for i, row in enumerate(zip(*texts, strict=True), start=1)]
    return Rows(Path(source).name, lambda: iter(rows))


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
    return pairs.split(split, seed, key=lambda pair: pair.source, unit="sources")


class EncodedPairs(Dataset[dict[str, list[int]]]):
    """Token ids of pairs: ``input_ids`` of the source and ``labels`` of the target, for ``DataCollatorForSeq2Seq``.

    Args:
        pairs: the pairs.
        tokenizer, target_tokenizer: of the sources and of the targets; each ends each text with its end symbol.
        max_source_length, max_target_length: in tokens, that end included.
        overlong: a pair with a longer text is an error ("error"), is left out ("drop"), or loses what is too much of
            that text before its end symbol ("truncate").
        sampler: for training, draws the ids of a text anew each time that it is read: a ``SubwordSampler`` of both
            sides, or one or None for each side. A draw that is too long gives way to the tokenizer's own segmentation,
            which is the one that ``overlong`` is about.
        seed: of the draws; seed, epoch and index decide each of them.

    Attributes:
        pairs: those that are kept, in their order.
        dropped: number of pairs that were left out.
        lengths: (n, 2) tokens of each source and each target, their ends included; where they are drawn, those of the
            first pass, around which those of other passes lie.

    Raises:
        UserError: a text is too long, or all are, or holds a character that can be neither encoded nor replaced.
    """

    def __init__(
        self,
        pairs: Pairs,
        tokenizer: PreTrainedTokenizerBase,
        target_tokenizer: PreTrainedTokenizerBase,
        max_source_length: int,
        max_target_length: int,
        *,
        overlong: str = "error",
        sampler: Segmenter | tuple[Segmenter | None, Segmenter | None] | None = None,
        seed: int = 0,
    ) -> None:
        self.longest = (max_source_length, max_target_length)
        sources, targets = (
            encode_texts(
                texts,
                side_tokenizer,
                longest,
                overlong=overlong,
                place=pairs.place,
                what=f"a {side}",
                option=f"data.max_{side}_length",
            )
            for side, texts, side_tokenizer, longest in (
                ("source", [pair.source for pair in pairs], tokenizer, max_source_length),
                ("target", [pair.target for pair in pairs], target_tokenizer, max_target_length),
            )
        )
        kept = [
            (pair, source, target)
            for pair, source, target in zip(pairs, sources, targets, strict=True)
            if source is not None and target is not None
        ]
        if not kept:
            raise UserError(
                f"Every pair of {pairs.name} is longer than data.max_source_length, {max_source_length}, or "
                f"data.max_target_length, {max_target_length}; raise them."
            )
        self.dropped = len(pairs) - len(kept)
        self.pairs = replace(pairs, items=[pair for pair, _, _ in kept])
        self.sources, self.targets = [source for _, source, _ in kept], [target for _, _, target in kept]
        self.samplers = sampler if isinstance(sampler, tuple) else (sampler, sampler)
        self.seed, self.epoch = seed, 0
        first = [self[i] for i in range(len(self))] if any(self.samplers) else []
        self.lengths = (
            lengths_of([each["input_ids"] for each in first], [each["labels"] for each in first])
            if first
            else lengths_of(self.sources, self.targets)
        )

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        pair, generator = self.pairs.items[index], Random(f"{self.seed} {self.epoch} {index}")
        source, target = (
            draw(sampler, text, ids, longest, generator)
            for sampler, text, ids, longest in zip(
                self.samplers, pair[:2], (self.sources[index], self.targets[index]), self.longest, strict=True
            )
        )
        return {"input_ids": source, "labels": target}

    def set_epoch(self, epoch: int) -> None:
        """Draw other segmentations than in other epochs."""
        self.epoch = epoch

    def sampler(self, seed: int) -> PermutationSampler:
        """The order in which training reads the pairs."""
        return PermutationSampler(len(self), seed)
