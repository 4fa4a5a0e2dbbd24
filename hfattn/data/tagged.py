"""Sentences whose words have tags of entities: where they come from, how they become examples for a token classifier.

A tag is "O" or a prefix and a type, such as ``B-PLACE``. In BIO, the first word of an entity has B- and the others I-;
in BIOES, the last of several has E-, and one that is alone S-.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from .batches import PermutationSampler
from .encoding import lengths_of
from .examples import Examples
from .model_limits import check_tokenizer
from .rows import JSON_LINES, Rows, local_file, open_rows, read_lines

OUTSIDE = "O"
IGNORED = -100  # label of a position without a target, as in torch and transformers
_DOCUMENT = "-DOCSTART-"  # stands between two documents of a CoNLL file
_ADMIT = "data.admit_broken_tags: true to read it as conlleval does"


class Tagged(NamedTuple):
    """The words of a sentence and their tags, its line in the file it comes from, and what else is written there."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    line: int | None = None
    fields: Mapping[str, Any] = {}


@dataclass(frozen=True)
class TaggedSentences(Examples[Tagged]):
    """Tagged sentences in memory, and the names of the tags, from tag 0 on."""

    labels: list[str] = field(repr=False)

    noun = "Sentence"

    def columns(self, item: Tagged) -> tuple[str, ...]:
        return " ".join(item.tags), " ".join(item.words)

    def texts(self, item: Tagged) -> tuple[str, ...]:
        return item.words


def read_tagged(
    source: str | Path,
    *,
    tokens_column: str = "tokens",
    tags_column: str | None = None,
    labels: Sequence[str] | None = None,
    admit_broken_tags: bool = False,
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
) -> TaggedSentences:
    """Read tagged sentences from a file or from a data set on the Hub.

    Args:
        source: the path of a ``.jsonl`` file or the id of a data set on the Hub, with a list of words and a list of
            tags in each row; or the path of any other file, as in the shared tasks of CoNLL: on each line a word in
            the first column and its tag in the last, with tabs or spaces between, an empty line after each sentence,
            and lines with -DOCSTART- that do not count.
        tokens_column, tags_column: of rows; None is ``ner_tags``, or ``tags`` where there is none. Tags are names, or
            numbers of tags.
        labels: names of the tags, from tag 0 on. None: as a data set on the Hub has them, else O and, for each type
            that occurs, all that the scheme has.
        admit_broken_tags: whether an I- may go on with nothing of its type; it then begins an entity. In the scheme
            IOB1 it always does.
        config, split, revision: the part of a Hub data set to read.

    Raises:
        UserError: there is no such file, data set or column, it is empty, or a line is not as it should be; the message
            has the line's number.
    """
    path = local_file(str(source))
    if path is not None and path.suffix not in (JSON_LINES, ".json", ".csv"):
        name, unit, known = path.name, "Line", None
        read = list(_conll_sentences(path))

        def place(sentence: _Read, word: int) -> str:
            return f"Line {sentence.line + word} of {name}"

    else:
        rows = open_rows(str(source), config=config, split=split, revision=revision)
        name, unit, read = rows.name, rows.unit, []
        for sentence, column in _sentences_in_rows(rows, tokens_column, tags_column):
            read.append(sentence)
            known = rows.classes.get(column)

        def place(sentence: _Read, word: int) -> str:
            return f"{rows.unit} {sentence.line} of {name}, word {word + 1},"

    if not read:
        raise UserError(f"{name} is empty; write words and their tags, one sentence after the other.")
    if labels is not None and known is not None and len(labels) != len(known):
        raise UserError(f"The labels are {', '.join(labels)}, and {name} has {', '.join(known)}; write one for each.")
    numbered = labels or known
    written = [_names(sentence, numbered, place) for sentence in read]
    names = list(numbered) if numbered else _labels(written, read, place)
    bioes = _check_labels(names)
    items = []
    for sentence, tags in zip(read, written, strict=True):
        for i, tag in enumerate(tags):
            if tag not in names:
                raise UserError(
                    f"{place(sentence, i)} has the tag {tag!r}, which is none of {', '.join(names)}; correct it, or "
                    "write other labels."
                )
        if not admit_broken_tags:
            _check_scheme(sentence, tags, bioes, place)
        items.append(Tagged(sentence.words, tags, sentence.line, sentence.fields))
    return TaggedSentences(name, items, names, unit=unit)


def split_tagged(sentences: TaggedSentences, split: Sequence[float | int | str], seed: int) -> list[TaggedSentences]:
    """Shuffle tagged sentences and cut them into train, validation and, if three parts are given, test.

    Equal sentences stay together: no sentence that is evaluated was trained on.

    Args:
        sentences: all of them.
        split: shares or numbers of distinct sentences, as in ``split_positions``.
        seed: of the shuffling.

    Raises:
        UserError: the split does not fit, or leaves a part empty.
    """
    return sentences.split(split, seed, key=lambda item: item.words, unit="sentences")


class _Read(NamedTuple):
    """A sentence as it is written: tags are names or numbers."""

    words: tuple[str, ...]
    tags: tuple[str | int, ...]
    line: int
    fields: Mapping[str, Any] = {}


_Place = Callable[[_Read, int], str]


def _conll_sentences(path: Path) -> Iterator[_Read]:
    lines: list[tuple[str, str]] = []
    number = 0
    for number, line in read_lines(path):
        columns = line.split("\t") if "\t" in line else line.split()
        if columns and columns[0] != _DOCUMENT:
            if len(columns) == 1 or not columns[0] or not columns[-1]:
                raise UserError(
                    f"Line {number} of {path.name} is {line!r}; write a word and its tag, with a tab or a space "
                    "between, and nothing between two sentences."
                )
            lines.append((columns[0], columns[-1]))
        elif lines:
            yield _conll_sentence(lines, number)
            lines = []
    if lines:
        yield _conll_sentence(lines, number + 1)


def _conll_sentence(lines: list[tuple[str, str]], end: int) -> _Read:
    words, tags = zip(*lines, strict=True)
    return _Read(words, tags, end - len(lines))


def _sentences_in_rows(rows: Rows, tokens_column: str, tags_column: str | None) -> Iterator[tuple[_Read, str]]:
    for row in rows:
        column = tags_column or ("ner_tags" if "ner_tags" in row.values else "tags")
        words, tags = rows.value(row, tokens_column), rows.value(row, column)
        if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
            raise UserError(f"{rows.place(row)} holds {words!r} in {tokens_column!r}; write a list of words.")
        if not isinstance(tags, list) or not all(type(tag) in (int, str) for tag in tags):
            raise UserError(
                f"{rows.place(row)} holds {tags!r} in {column!r}; write a list of tags, or of their numbers."
            )
        if len(words) != len(tags):
            raise UserError(
                f"{rows.place(row)} has {len(words)} words and {len(tags)} tags; write a tag for each word."
            )
        if words != [_DOCUMENT]:
            fields = {name: row.values[name] for name in row.values if name not in (tokens_column, column)}
            yield _Read(tuple(words), tuple(tags), row.number, fields), column


def _names(sentence: _Read, names: Sequence[str] | None, place: _Place) -> tuple[str, ...]:
    """The tags by their names."""
    found = []
    for i, tag in enumerate(sentence.tags):
        if isinstance(tag, str):
            found.append(tag)
        elif names is None:
            raise UserError(
                f"{place(sentence, i)} has the tag {tag}, a number; write the names of the tags, in their order, as "
                "data.labels."
            )
        elif not 0 <= tag < len(names):
            raise UserError(f"{place(sentence, i)} has the tag {tag}; write a number from 0 to {len(names) - 1}.")
        else:
            found.append(names[tag])
    return tuple(found)


def _labels(written: Sequence[Sequence[str]], read: Sequence[_Read], place: _Place) -> list[str]:
    """O, and of each type that occurs all the tags of the scheme: also those that do not occur."""
    for sentence, tags in zip(read, written, strict=True):
        for i, tag in enumerate(tags):
            if not _is_tag(tag):
                raise UserError(
                    f"{place(sentence, i)} has the tag {tag!r}; write O, or B- or I- and a type, such as B-PLACE."
                )
    used = {tag for sentence in written for tag in sentence} - {OUTSIDE}
    prefixes = "BIES" if any(tag[0] in "ES" for tag in used) else "BI"
    types = sorted({tag.partition("-")[2] for tag in used})
    return tag_labels(types, prefixes)


def tag_labels(types: Iterable[str], prefixes: str = "BI") -> list[str]:
    """O, and then the tags of each type: ``["O", "B-DATE", "I-DATE", ...]``."""
    return [OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in prefixes)]


def _is_tag(tag: str) -> bool:
    prefix, dash, kind = tag.partition("-")
    return tag == OUTSIDE or bool(prefix in ("B", "I", "E", "S") and dash and kind)


def _check_labels(names: Sequence[str]) -> bool:
    """Whether the names are those of BIOES; else of BIO."""
    wrong = [name for name in names if not _is_tag(name)]
    if wrong or len(set(names)) < len(names) or OUTSIDE not in names or len(names) < 2:
        raise UserError(
            f"The tags are {', '.join(map(repr, names))}; write O, and B- and I- and a type for each type of entity, "
            "each of them once."
        )
    return any(name[0] in "ES" for name in names)


def _check_scheme(sentence: _Read, tags: Sequence[str], bioes: bool, place: _Place) -> None:
    before = OUTSIDE
    for i, tag in enumerate([*tags, OUTSIDE]):
        prefix, _, kind = tag.partition("-")
        going_on = prefix in ("I", "E")
        unfinished = before[0] in "BI" and before.partition("-")[2]  # type of an entity that may go on
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


class EncodedSentences(Dataset[dict[str, Any]]):
    """Token ids of tagged sentences, for ``DataCollatorForTokenClassification``: ``input_ids`` and ``labels``.

    A sentence is its words with a space between each two, so that any tokenizer reads it, one with pieces that begin
    with a space included. The first piece of a word has the label of its tag, the others -100.

    Args:
        sentences: the sentences.
        tokenizer: a fast one.
        max_length: in tokens, special ones included.
        too_long: ``"cut"``: a longer sentence loses its last words; ``"windows"``: it is read in overlapping windows,
            and the tag of a word comes from the window with the most context on both sides of it.
        overlap: tokens that two windows share.
        label_all_pieces: the other pieces of a word have labels too: I- where the word has B- or S-, else the word's.

    Attributes:
        sentences: the sentences.
        windows: of each row, the index of its sentence, and for each position that decides about a word, the word's.
        undecided: the number of words that no row has: cut off, or without any piece.
        lengths: (n, 1) tokens of each row.

    Raises:
        UserError: the tokenizer cannot say which piece is of which word, or a length does not fit.
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
        check_tokenizer(tokenizer, max_length)
        room = max_length - tokenizer.num_special_tokens_to_add()
        windows = too_long == "windows"
        if room < 1 or (windows and overlap >= room):
            raise UserError(
                f"data.overlap is {overlap}, and data.max_length {max_length} leaves {room} tokens for words; write a "
                "smaller overlap, or a greater max_length."
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
            best: dict[int, tuple[int, int, int]] = {}  # of each word: tokens around it, row, position
            for row in rows:
                ids, offsets = encoded.input_ids[row], encoded.offset_mapping[row]
                if not ids:
                    raise UserError(f"The tokenizer leaves nothing of {sentences.place(sentence)}; remove it.")
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
        """The right tags of each sentence."""
        return [item.tags for item in self.sentences]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": self.ids[index], "labels": self.labels[index]}

    def set_epoch(self, epoch: int) -> None:
        """Sentences are the same at each pass."""

    def sampler(self, seed: int) -> PermutationSampler:
        """The order in which training reads the rows."""
        return PermutationSampler(len(self), seed)


def _word_spans(words: Sequence[str]) -> list[tuple[int, int]]:
    """Where each word stands among all of them with a space between each two."""
    spans, start = [], 0
    for word in words:
        spans.append((start, start + len(word)))
        start += len(word) + 1
    return spans


def _pieces(offsets: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, bool]]:
    """The positions with pieces of words, their words, and whether each is the first piece of its word."""
    word, before = 0, -1
    for position, (start, end) in enumerate(offsets):
        if start == end:  # a special token
            continue
        while word < len(spans) - 1 and end > spans[word][1]:
            word += 1
        # A piece may begin with the space before its word, and one of a space alone is of none.
        if end > spans[word][0]:
            yield position, word, start <= spans[word][0] and word != before
            before = word


__all__ = [
    "OUTSIDE",
    "EncodedSentences",
    "Tagged",
    "TaggedSentences",
    "read_tagged",
    "split_tagged",
    "tag_labels",
]
