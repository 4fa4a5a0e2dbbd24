"""Pairs of a source text and a target text: reading, splitting, and encoding as training examples."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from .encoding import EncodedExamples, Segmenter, Side
from .examples import Examples
from .rows import Row, Rows, Source, open_rows, parallel_files, read_lines
from .stored import Derived, StoredItems

TARGETS = "max_target_length"  # the field of data that limits the texts that a translator writes


class Pair(NamedTuple):
    """A source text and its target text.

    Attributes:
        source: the text to translate.
        target: its translation.
        kind: kind of pair, such as the written form of a date; empty if unknown.
        line: line number in the file; None if the pair is not from a file.
        fields: the other columns of its row.
    """

    source: str
    target: str
    kind: str = ""
    line: int | None = None
    fields: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Pairs(Examples[Pair]):
    """Pairs."""

    noun = "Pair"
    shared_name = "source"

    def columns(self, item: Pair) -> tuple[str, ...]:
        return item.source, item.target

    texts = columns

    def shared_key(self, item: Pair) -> str:
        return item.source

    def inputs(self, item: Pair) -> dict[str, str]:
        return {"max_source_length": item.source, TARGETS: item.target}


def read_pairs(
    dataset: Source,
    *,
    source_column: str = "source",
    target_column: str = "target",
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
) -> Pairs:
    """Read pairs; their texts are stored in a temporary file.

    Args:
        dataset: one of

            - the path of a tab-separated UTF-8 file without a header: a source, a tab and its target on each line;
            - two paths at once, such as ``"folder/train.{en,de}"``: the sources and their targets, line by line;
            - another source of rows, as in ``open_rows``, with both columns.

        source_column, target_column: names of the columns; ``translation.en`` is the field ``en`` nested in the column
            ``translation``.
        config, split, revision: configuration, split and revision of a dataset on the Hub.

    Raises:
        UserError: the file, dataset or column does not exist, is empty, or has a malformed line; the message has the
            line number.
    """
    columns = (source_column, target_column)
    used = {*columns, *(column.partition(".")[0] for column in columns)}
    if isinstance(dataset, str | Path) and (files := parallel_files(str(dataset))):
        rows = _parallel_rows(str(dataset), files, columns)
    else:
        rows = open_rows(dataset, columns=columns, config=config, split=split, revision=revision)

    def read() -> Iterator[Pair]:
        for row in rows:
            source = rows.text(row, source_column, "source", "source_column")
            target = rows.text(row, target_column, "target", "target_column")
            fields = {name: row.values[name] for name in row.values if name not in used}
            yield Pair(source, target, line=row.number, fields=fields)

    items = StoredItems(Pair, 2, read())
    if not items:
        raise UserError(f"{rows.name} is empty; write a source and its target on each line.")
    return Pairs(rows.name, items, unit=rows.unit)


def _parallel_rows(dataset: str, files: tuple[str, str], columns: tuple[str, str]) -> Rows:
    paths = [Path(file).expanduser() for file in files]
    for path in paths:
        if not path.is_file():
            raise UserError(f"There is no file {path}; write the paths of two parallel files, such as train.{{en,de}}.")

    def start() -> Iterator[Row]:
        for lines in zip_longest(*map(read_lines, paths)):
            if None in lines:
                numbers = [sum(1 for _ in read_lines(path)) for path in paths]
                raise UserError(
                    f"{paths[0].name} has {numbers[0]} lines and {paths[1].name} has {numbers[1]}; give files whose "
                    "lines are translations of each other."
                )
            (number, source), (_, target) = lines
            yield Row(number, dict(zip(columns, (source, target), strict=True)))

    return Rows(Path(dataset).name, start)


def _prefixed(prefix: str, pair: Pair) -> str:
    return prefix + pair.source


class EncodedPairs(EncodedExamples):
    """Token ids of pairs, for ``DataCollatorForSeq2Seq``: ``input_ids`` of the source and ``labels`` of the target.

    Args:
        pairs: the pairs.
        tokenizer, target_tokenizer: tokenizers of the two sides; both add an end token.
        max_source_length, max_target_length: maximum numbers of tokens, the end token included.
        prefix: text before each source, such as the task of T5.
        too_long, seed: see ``EncodedExamples``.
        sampler: for training, samples another segmentation of a text each time that it is read (subword
            regularization): one ``SubwordSampler`` for both sides, or a tuple with one or None for each side.

    Attributes:
        pairs: the pairs that are kept, in their order.

    Raises:
        UserError: see ``EncodedExamples``.
    """

    def __init__(
        self,
        pairs: Pairs,
        tokenizer: PreTrainedTokenizerBase,
        target_tokenizer: PreTrainedTokenizerBase,
        max_source_length: int,
        max_target_length: int,
        *,
        prefix: str = "",
        too_long: str = "error",
        sampler: Segmenter | tuple[Segmenter | None, Segmenter | None] | None = None,
        seed: int = 0,
    ) -> None:
        source_sampler, target_sampler = sampler if isinstance(sampler, tuple) else (sampler, sampler)
        sources = Derived(pairs.items, partial(_prefixed, prefix))
        targets = Derived(pairs.items, attrgetter("target"))
        sides = [
            Side("source", sources, tokenizer, max_source_length, "data.max_source_length", source_sampler),
            Side(
                "target",
                targets,
                target_tokenizer,
                max_target_length,
                "data.max_target_length",
                target_sampler,
                written=True,
            ),
        ]
        super().__init__(pairs, sides, too_long, seed)
        self.pairs = pairs.select(self.kept)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        source, target = self.segmentation(index)
        return {"input_ids": source, "labels": target}
