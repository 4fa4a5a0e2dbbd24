"""Pairs of a source text and a target text: reading, splitting, and encoding as training examples."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from .encoding import EncodedExamples, Segmenter, Side
from .examples import Examples
from .rows import Row, Rows, open_rows, parallel_files, read_lines


class Pair(NamedTuple):
    """A source text and its target text.

    Attributes:
        source: the text to translate.
        target: its translation.
        kind: kind of pair, such as the written form of a date; empty if unknown.
        line: line number in the file; None if the pair is not from a file.
    """

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
    dataset: str | Path,
    *,
    source_column: str = "source",
    target_column: str = "target",
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
) -> Pairs:
    """Read pairs from a file, from two parallel files, or from a dataset on the Hub.

    Args:
        dataset: one of

            - the path of a tab-separated UTF-8 file without a header: a source, a tab and its target on each line;
            - the path of a ``.jsonl`` file: an object with both columns on each line;
            - two paths at once, such as ``"folder/train.{en,de}"``: the sources and their targets, line by line;
            - the id of a dataset on the Hub.

        source_column, target_column: names of the columns in JSON lines or on the Hub; ``translation.en`` is the field
            ``en`` nested in the column ``translation``.
        config, split, revision: configuration, split and revision of a dataset on the Hub.

    Raises:
        UserError: the file, dataset or column does not exist, is empty, or has a malformed line; the message has the
            line number.
    """
    dataset, columns = str(dataset), (source_column, target_column)
    if files := parallel_files(dataset):
        rows = _parallel_rows(dataset, files, columns)
    else:
        rows = open_rows(dataset, columns=columns, config=config, split=split, revision=revision)
    items = [
        Pair(rows.text(row, source_column, "source"), rows.text(row, target_column, "target"), line=row.number)
        for row in rows
    ]
    if not items:
        raise UserError(f"{rows.name} is empty; write a source and its target on each line.")
    return Pairs(rows.name, items, unit=rows.unit)


def _parallel_rows(dataset: str, files: tuple[str, str], columns: tuple[str, str]) -> Rows:
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
    return Rows(Path(dataset).name, lambda: iter(rows))


class EncodedPairs(EncodedExamples):
    """Token ids of pairs, for ``DataCollatorForSeq2Seq``: ``input_ids`` of the source and ``labels`` of the target.

    Args:
        pairs: the pairs.
        tokenizer, target_tokenizer: tokenizers of the two sides; both add an end token.
        max_source_length, max_target_length: maximum numbers of tokens, the end token included.
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
        too_long: str = "error",
        sampler: Segmenter | tuple[Segmenter | None, Segmenter | None] | None = None,
        seed: int = 0,
    ) -> None:
        source_sampler, target_sampler = sampler if isinstance(sampler, tuple) else (sampler, sampler)
        sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
        sides = [
            Side("source", sources, tokenizer, max_source_length, "data.max_source_length", source_sampler),
            Side("target", targets, target_tokenizer, max_target_length, "data.max_target_length", target_sampler),
        ]
        super().__init__(pairs, sides, too_long, seed)
        self.pairs = replace(pairs, items=[pairs.items[i] for i in self.kept])

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        source, target = self.segmentation(index)
        return {"input_ids": source, "labels": target}
