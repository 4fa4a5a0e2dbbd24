"""Sentences whose words have entity tags: read them, split them, and encode them for a token classifier.

A tag is "O", or a prefix and a type, such as ``B-PLACE``. In BIO, the first word of an entity has B- and the others I-;
in BIOES, the last of several words has E-, and a single word S-.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from .batches import IGNORED, TrainingExamples
from .encoding import lengths_of
from .examples import Examples
from .model_limits import prepare_positions
from .rows import Rows, Source, is_table, local_file, open_rows, read_lines

OUTSIDE = "O"
_DOCUMENT = "-DOCSTART-"  # separates the documents of a CoNLL file
_ADMIT = "data.admit_broken_tags: true to read it as conlleval does"


class Tagged(NamedTuple):
    """The words of a sentence, their tags, its line or row in the dataset, and the other columns of that row."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    line: int | None = None
    fields: Mapping[str, Any] = {}


@dataclass(frozen=True)
class TaggedSentences(Examples[Tagged]):
    """Tagged sentences in memory, with the names of the tags from tag 0 on."""

    labels: list[str] = field(repr=False)

    noun = "Sentence"

    def columns(self, item: Tagged) -> tuple[str, ...]:
        return " ".join(item.tags), " ".join(item.words)

    def texts(self, item: Tagged) -> tuple[str, ...]:
        return item.words

    def inputs(self, item: Tagged) -> dict[str, str]:
        return {"max_length": " ".join(item.words)}


def read_tagged(
    dataset: Source,
    *,
    tokens_column: str = "tokens",
    tags_column: str | None = None,
    labels: Sequence[str] | None = None,
    admit_broken_tags: bool = False,
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
) -> TaggedSentences:
    """Read tagged sentences.

    Args:
        dataset: a source of rows, as in ``open_rows``, with a list of words and a list of tags in each row; or path of
            any other file in the format of the CoNLL shared tasks: on each line a word in the first column and its tag
            in the last, separated by tabs or spaces, and an empty line after each sentence. -DOCSTART- lines are
            ignored.
        tokens_column, tags_column: columns of the words and the tags; None for the tags: ``ner_tags`` if it exists,
            otherwise ``tags``. Tags are names or numbers.
        labels: names of the tags, from tag 0 on. None: the names of the dataset on the Hub, or else O and, for each
            type that occurs, all tags of the scheme.
        admit_broken_tags: whether an I- may follow a tag that it does not continue; it then begins an entity, as is
            regular in the scheme IOB1.
        config, split, revision: which part of a dataset on the Hub to read.

    Raises:
        UserError: the file, dataset or column does not exist or is empty, or a line is malformed; the message has the
            line number.
    """
    path = local_file(dataset)
    known: Sequence[str] | None = None
    conll = None if path is None or is_table(path) else path
    if conll is not None:
        name, unit, read = conll.name, "Line", list(_conll_sentences(conll))
    else:
        rows = open_rows(dataset, config=config, split=split, revision=revision)
        first = next(iter(rows), None)
        column = tags_column or ("ner_tags" if first is not None and "ner_tags" in first.values else "tags")
        known = rows.classes.get(column)
        if labels is not None and known is not None and len(labels) != len(known):
            raise UserError(
                f"The labels are {', '.join(labels)}, and {rows.name} has {', '.join(known)}; write one for each."
            )
        name, unit, read = rows.name, rows.unit, list(_sentences_in_rows(rows, tokens_column, column, labels or known))

    def place(sentence: Tagged, word: int) -> str:
        if conll is not None and sentence.line is not None:
            return f"Line {sentence.line + word} of {name}"
        return f"{unit} {sentence.line} of {name}, word {word + 1},"

    if not read:
        raise UserError(f"{name} is empty; write words and their tags, sentence by sentence.")
    names = list(labels or known or _labels(read, place))
    bioes = _check_labels(names)
    for sentence in read:
        for i, tag in enumerate(sentence.tags):
            if tag not in names:
                raise UserError(
                    f"{place(sentence, i)} has the tag {tag!r}, which is not one of {', '.join(names)}; correct it, or "
                    "change data.labels."
                )
        if not admit_broken_tags:
            _check_scheme(sentence, bioes, place)
    return TaggedSentences(name, read, names, unit=unit)


_Place = Callable[[Tagged, int], str]


def _conll_sentences(path: Path) -> Iterator[Tagged]:
    lines: list[tuple[str, str]] = []
    number = 0
    for number, line in read_lines(path):
        columns = line.split("\t") if "\t" in line else line.split()
        if columns and columns[0] != _DOCUMENT:
            if len(columns) == 1 or not columns[0] or not columns[-1]:
                raise UserError(
                    f"Line {number} of {path.name} is {line!r}; write a word and its tag, separated by a tab or "
                    "a space, and an empty line between two sentences."
                )
            lines.append((columns[0], columns[-1]))
        elif lines:
            yield _conll_sentence(lines, number)
            lines = []
    if lines:
        yield _conll_sentence(lines, number + 1)


def _conll_sentence(lines: list[tuple[str, str]], end: int) -> Tagged:
    words, tags = zip(*lines, strict=True)
    return Tagged(words, tags, end - len(lines))


def _sentences_in_rows(
    rows: Rows, tokens_column: str, tags_column: str, names: Sequence[str] | None
) -> Iterator[Tagged]:
    for row in rows:
        words, tags = rows.value(row, tokens_column, "tokens_column"), rows.value(row, tags_column, "tags_column")
        if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
            raise UserError(f"{rows.place(row)} holds {words!r} in {tokens_column!r}; write a list of words.")
        if not isinstance(tags, list) or not all(type(tag) in (int, str) for tag in tags):
            raise UserError(
                f"{rows.place(row)} holds {tags!r} in {tags_column!r}; write a list of tags, or of their numbers."
            )
        if len(words) != len(tags):
            raise UserError(
                f"{rows.place(row)} has {len(words)} words and {len(tags)} tags; write a tag for each word."
            )
        if words != [_DOCUMENT]:
            named = [_named(tag, names, f"{rows.place(row)}, word {i},") for i, tag in enumerate(tags, start=1)]
            fields = {name: row.values[name] for name in row.values if name not in (tokens_column, tags_column)}
            yield Tagged(tuple(words), tuple(named), row.number, fields)


def _named(tag: str | int, names: Sequence[str] | None, place: str) -> str:
    if isinstance(tag, str):
        return tag
    if names is None:
        raise UserError(
            f"{place} has the tag {tag}, a number; write the names of the tags, in their order, in data.labels."
        )
    if not 0 <= tag < len(names):
        raise UserError(f"{place} has the tag {tag}; write a number from 0 to {len(names) - 1}.")
    return names[tag]


def _labels(read: Sequence[Tagged], place: _Place) -> list[str]:
    """Return O and, for each type that occurs, all tags of the scheme, including tags that do not occur."""
    for sentence in read:
        for i, tag in enumerate(sentence.tags):
            if not _is_tag(tag):
                raise UserError(
                    f"{place(sentence, i)} has the tag {tag!r}; write O, or B- or I- and a type, such as B-PLACE."
                )
    used = {tag for sentence in read for tag in sentence.tags} - {OUTSIDE}
    prefixes = "BIES" if any(tag[0] in "ES" for tag in used) else "BI"
    types = sorted({tag.partition("-")[2] for tag in used})
    return tag_labels(types, prefixes)


def tag_labels(types: Iterable[str], prefixes: str = "BI") -> list[str]:
    """Return O followed by the tags of each type: ``["O", "B-DATE", "I-DATE", ...]``."""
    return [OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in prefixes)]


def _is_tag(tag: str) -> bool:
    prefix, dash, kind = tag.partition("-")
    return tag == OUTSIDE or bool(prefix in ("B", "I", "E", "S") and dash and kind)


def _check_labels(names: Sequence[str]) -> bool:
    """Return whether the scheme of the tags is BIOES; otherwise it is BIO."""
    wrong = [name for name in names if not _is_tag(name)]
    if wrong or len(set(names)) < len(names) or OUTSIDE not in names or len(names) < 2:
        raise UserError(
            f"The tags are {', '.join(map(repr, names))}; write O, and for each type of entity B- and I- with the "
            "type, each once."
        )
    return any(name[0] in "ES" for name in names)


def _check_scheme(sentence: Tagged, bioes: bool, place: _Place) -> None:
    before = OUTSIDE
    for i, tag in enumerate([*sentence.tags, OUTSIDE]):
        prefix, _, kind = tag.partition("-")
        going_on = prefix in ("I", "E")
        unfinished = before[0] in "BI" and before.partition("-")[2]  # type of an entity that may continue
        if going_on and unfinished != kind:
            raise UserError(
                f"{place(sentence, i)} has the tag {tag}, and the tag before it is {before}: no B-{kind} begins that "
                f"entity; write B-{kind}, or {_ADMIT}."
            )
        if bioes and unfinished and not going_on:
            raise UserError(
                f"{place(sentence, i - 1)} has the tag {before}, and no E-{unfinished} ends that entity; write "
                f"{'S' if before[0] == 'B' else 'E'}-{unfinished}, or {_ADMIT}."
            )
        before = tag


class EncodedSentences(TrainingExamples[dict[str, Any]]):
    """Token ids of tagged sentences, for ``DataCollatorForTokenClassification``: ``input_ids`` and ``labels``.

    The words of a sentence are joined with spaces, which also suits tokenizers whose pieces start with a space. The
    first piece of a word is labeled with its tag; the other pieces have label -100.

    Args:
        sentences: the sentences.
        tokenizer: a fast tokenizer, whose padding is set to the right.
        max_length: maximum number of tokens, special tokens included.
        too_long: treatment of longer sentences. ``"cut"`` removes the last words. ``"windows"`` reads overlapping
            windows, and the tag of a word comes from the window with the most context on both sides of it.
        overlap: tokens that two windows share.
        label_all_pieces: label the other pieces of a word too: with I- if the word has B- or S-, otherwise with its
            tag.

    Attributes:
        sentences: the sentences.
        windows: for each row, the index of its sentence, and a mapping from each position whose prediction counts to
            the index of its word.
        undecided: number of words without a prediction, because they are cut off or have no piece.
        lengths: (n, 1) number of tokens of each row.

    Raises:
        UserError: the tokenizer does not return offsets, or a length is impossible.
    """

    def __init__(
        self,
        sentences: TaggedSentences,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        *,
        too_long: str = "cut",
        overlap: int = 0,
        label_all_pieces: bool = False,
    ) -> None:
        prepare_positions(tokenizer, max_length)
        room = max_length - tokenizer.num_special_tokens_to_add()
        windows = too_long == "windows"
        if room < 1 or (windows and overlap >= room):
            raise UserError(
                f"data.overlap is {overlap}, and data.max_length {max_length} leaves {room} tokens for words; write a "
                "smaller overlap, or a larger max_length."
            )
        self.max_length, self.too_long, self.overlap = max_length, too_long, overlap if windows else None
        self.label_all_pieces = label_all_pieces
        self.sentences = sentences
        self.number_of = {label: i for i, label in enumerate(sentences.labels)}
        self.ids: list[list[int]] = []
        self.labels: list[list[int]] = []
        self.windows: list[tuple[int, dict[int, int]]] = []
        self.undecided = 0
        encoded = tokenizer(
            [" ".join(item.words) for item in sentences],
            truncation=True,
            max_length=max_length,
            stride=overlap if windows else 0,
            return_overflowing_tokens=windows,
            return_offsets_mapping=True,
        )
        rows_of: list[list[int]] = [[] for _ in sentences.items]
        for row, sentence in enumerate(encoded.get("overflow_to_sample_mapping", range(len(sentences)))):
            rows_of[sentence].append(row)
        for sentence, (item, rows) in enumerate(zip(sentences, rows_of, strict=True)):
            spans = _word_spans(item.words)
            best: dict[int, tuple[int, int, int]] = {}  # for each word: tokens of context, row, position
            for row in rows:
                ids, offsets = encoded.input_ids[row], encoded.offset_mapping[row]
                if not ids:
                    raise UserError(f"{sentences.place(sentence)} has no tokens; remove it.")
                pieces = list(_pieces(offsets, spans))
                labels = [IGNORED] * len(ids)
                for position, word, first in pieces:
                    if first or label_all_pieces:
                        labels[position] = self.number_of[item.tags[word] if first else self._inside(item.tags[word])]
                    around = min(position, len(ids) - 1 - position)
                    if first and (word not in best or around > best[word][0]):
                        best[word] = (around, len(self.ids), position)
                self.ids.append(ids)
                self.labels.append(labels)
                self.windows.append((sentence, {}))
            for word, (_, row, position) in best.items():
                self.windows[row][1][position] = word
            self.undecided += len(item.words) - len(best)
        self.lengths = lengths_of(self.ids)

    def _inside(self, tag: str) -> str:
        prefix, _, kind = tag.partition("-")
        inside = f"I-{kind}"
        return inside if prefix in ("B", "S") and inside in self.number_of else tag

    @property
    def references(self) -> list[tuple[str, ...]]:
        """The correct tags of each sentence."""
        return [item.tags for item in self.sentences]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": self.ids[index], "labels": self.labels[index]}


def _word_spans(words: Sequence[str]) -> list[tuple[int, int]]:
    """Return the start and end of each word in the words joined with spaces."""
    spans, start = [], 0
    for word in words:
        spans.append((start, start + len(word)))
        start += len(word) + 1
    return spans


def _pieces(offsets: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, bool]]:
    """Yield each position of a piece of a word, the index of the word, and whether the piece is its first."""
    word, before = 0, -1
    for position, (start, end) in enumerate(offsets):
        if start == end:  # a special token
            continue
        while word < len(spans) - 1 and end > spans[word][1]:
            word += 1
        # A piece may start with the space before its word; a piece that is only a space belongs to no word.
        if end > spans[word][0]:
            yield position, word, start <= spans[word][0] and word != before
            before = word
