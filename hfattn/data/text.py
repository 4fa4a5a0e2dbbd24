"""Open texts of any length by name, count and encode their characters, and split them."""

import codecs
import hashlib
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..tokenizers import uncovered_characters
from .rows import Source, is_table, local_file, open_rows
from .stored import mapped

EMBEDDED = "embedded"
PARTS = ("train", "validation", "test")
PIECE_BYTES = 1 << 20
# Characters per call of the tokenizer, whose time per character grows with the length of its input.
PIECE_CHARACTERS = 4096


@dataclass(frozen=True)
class Text:
    """A text that is read in pieces and never held in memory as a whole.

    Attributes:
        name: name of the file, without its folder, or of the dataset.
        pieces: function that returns an iterator over the pieces, from the beginning.
    """

    name: str
    pieces: Callable[[], Iterator[str]] = field(repr=False)

    @cached_property
    def _scan(self) -> tuple[str, Counter[str]]:
        digest, counts = hashlib.sha256(), Counter[str]()
        for piece in self.pieces():
            digest.update(piece.encode())
            counts.update(piece)
        if not counts:
            raise UserError(f"The text {self.name} is empty; it must have more characters than one window.")
        return digest.hexdigest(), counts

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the text in UTF-8."""
        return self._scan[0]

    @property
    def counts(self) -> Counter[str]:
        """Number of occurrences of each character."""
        return self._scan[1]

    def __len__(self) -> int:
        """Number of characters (Unicode code points)."""
        return self.counts.total()

    def part(self, where: slice) -> "Text":
        """Return the characters at a range of positions as a text."""

        def pieces() -> Iterator[str]:
            start = 0
            for piece in self.pieces():
                yield piece[max(where.start - start, 0) : max(where.stop - start, 0)]
                start += len(piece)
                if start >= where.stop:
                    return

        return Text(self.name, pieces)


def open_text(
    dataset: Source,
    *,
    text_column: str = "text",
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
) -> Text:
    """Open a text by name.

    Args:
        dataset: ``"embedded"``, the Python language reference that CPython contains; the path of a UTF-8 file; or a
            source of rows, as in ``open_rows``, with a column of texts, which are joined by newlines.
        text_column: name of the column with the text.
        config, split, revision: configuration, split and revision of a dataset on the Hub.

    Raises:
        UserError: the file, dataset or column does not exist; or, during reading, the file is not UTF-8.
    """
    if dataset == EMBEDDED:
        return Text("python-language-reference", _embedded_pieces)
    path = local_file(dataset)
    if path is not None and not is_table(path):
        return Text(path.name, lambda: _file_pieces(path))
    rows = open_rows(dataset, config=config, split=split, revision=revision)

    def pieces() -> Iterator[str]:
        for i, row in enumerate(rows):
            yield "\n" * bool(i) + rows.text(row, text_column, None, "text_column")

    return Text(rows.name, pieces)


def _embedded_pieces() -> Iterator[str]:
    from pydoc_data.topics import topics

    for i, topic in enumerate(sorted(topics)):
        yield "\n\n" * bool(i) + topics[topic]


def _file_pieces(path: Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:  # it marks the encoding and is not part of the text
            file.seek(0)
        while data := file.read(PIECE_BYTES):
            try:
                yield decoder.decode(data)
            except UnicodeDecodeError as error:
                position = file.tell() - len(data) - len(decoder.getstate()[0]) + error.start
                raise UserError(
                    f"{path.name} is not UTF-8 (byte {position}); convert it first, for example with iconv -t UTF-8."
                ) from None
        try:
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            raise UserError(
                f"{path.name} is not UTF-8 (it ends inside a character); convert it first, for example with iconv."
            ) from None


@dataclass(frozen=True)
class EncodedText:
    """Token ids of a text, stored on disk.

    Attributes:
        ids: (n,) read-only array of the smallest unsigned integer type for the vocabulary. Its temporary file has no
            name, so that the operating system removes it when the process ends.
        vocabulary_size: number of tokens of the tokenizer.
    """

    ids: np.ndarray
    vocabulary_size: int

    def __len__(self) -> int:
        return len(self.ids)

    def unigram_entropy(self) -> float:
        """Return H(x_t) in nats per character, the loss of a model that uses only the characters' frequencies."""
        counts = np.zeros(self.vocabulary_size, np.int64)
        for block in self._blocks(0):
            counts += np.bincount(block, minlength=self.vocabulary_size)
        return _entropy(counts)

    def bigram_entropy(self) -> float:
        """Return H(x_t | x_{t-1}) in nats per character, the loss of the best model that uses only the previous
        character."""
        pairs: Counter[int] = Counter()  # a full table would grow with the square of the vocabulary
        for block in self._blocks(1):
            codes = block[:-1].astype(np.int64) * self.vocabulary_size + block[1:]
            pairs.update(dict(zip(*(array.tolist() for array in np.unique(codes, return_counts=True)), strict=True)))
        counts = np.fromiter(pairs.values(), np.int64)
        firsts = np.bincount(np.fromiter(pairs, np.int64) // self.vocabulary_size, weights=counts)
        return _entropy(counts) - _entropy(firsts)

    def _blocks(self, overlap: int) -> Iterator[np.ndarray]:
        for start in range(0, len(self.ids) - overlap, PIECE_BYTES):
            yield self.ids[start : start + PIECE_BYTES + overlap]


def _entropy(counts: np.ndarray) -> float:
    counts = counts[counts > 0]
    return float(math.log(counts.sum()) - (counts * np.log(counts)).sum() / counts.sum())


def encode_text(text: Text, tokenizer: PreTrainedTokenizerBase, directory: str | Path | None = None) -> EncodedText:
    """Encode a text into an array on disk, with one piece at a time in memory.

    Args:
        text: the text.
        tokenizer: a character tokenizer.
        directory: folder for the temporary file with the ids; default: the system's temporary folder.

    Raises:
        UserError: the text has a character outside the vocabulary and the tokenizer has no unknown token, or the tokens
            are not single characters.
    """
    if missing := uncovered_characters(tokenizer, text.counts):
        raise UserError(
            f"{text.name} has {missing[0]!r} (U+{ord(missing[0]):04X}), which is not in the tokenizer's vocabulary; "
            "remove it, or train with tokenizer.unknown: true."
        )
    vocabulary_size = len(tokenizer)
    dtype = np.uint8 if vocabulary_size <= 1 << 8 else np.uint16 if vocabulary_size <= 1 << 16 else np.uint32
    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = True
    backend.no_padding()
    backend.no_truncation()
    with tempfile.TemporaryFile(dir=directory) as file:
        for piece in text.pieces():
            parts = [piece[i : i + PIECE_CHARACTERS] for i in range(0, len(piece), PIECE_CHARACTERS)]
            for encoding in backend.encode_batch_fast(parts, add_special_tokens=False):
                file.write(np.asarray(encoding.ids, dtype=dtype).tobytes())
        ids = mapped(file, dtype)
        if len(ids) < len(text):
            raise UserError(
                f"The tokenizer makes fewer tokens of {text.name} than it has characters; use one of single characters."
            )
        return EncodedText(ids, vocabulary_size)


def check_split(split: Sequence[float | int | str], unit: str = "characters") -> None:
    """Check a split as far as possible without the text.

    Args:
        split: see ``split_positions``.
        unit: plural name of the items that are split, used in messages.

    Raises:
        UserError: the parts are neither fractions that add up to 1 nor counts with a last part ``"rest"``.
    """
    example = f"write shares such as [0.9, 0.05, 0.05], or {unit} such as [1000000, 60000, rest]"
    if len(split) not in (2, 3):
        raise UserError(f"split has {len(split)} parts, not two or three; {example}.")
    if split[-1] == "rest":
        if not all(isinstance(size, int) and size > 0 for size in split[:-1]):
            raise UserError(f"split {list(split)} has a part that is not a number of {unit}; {example}.")
    elif not all(isinstance(share, float) and 0 < share < 1 for share in split) or not math.isclose(
        math.fsum(map(float, split)), 1
    ):
        raise UserError(f"split {list(split)} does not consist of shares that add up to 1; {example}.")


def split_positions(length: int, split: Sequence[float | int | str], unit: str = "characters") -> list[slice]:
    """Cut a text of ``length`` characters by position into train, validation and, if three parts are given, test.

    Args:
        length: number of characters, or of other units.
        split: fractions that add up to 1, such as ``[0.9, 0.05, 0.05]``, or counts with a last part ``"rest"``, such as
            ``[1000000, 60000, "rest"]``.
        unit: plural name of the items that are split, used in messages.

    Raises:
        UserError: the split is malformed or does not fit the length.
    """
    check_split(split, unit)
    ends = np.cumsum([float(part) for part in split[:-1]])
    if split[-1] == "rest":
        if ends[-1] >= length:
            raise UserError(f"split needs more than {ends[-1]:.0f} {unit} and there are {length}; write smaller parts.")
    else:
        ends = ends * length
    bounds = [0, *(int(end) for end in ends), length]
    return [slice(start, end) for start, end in pairwise(bounds)]
