"""Initialize embeddings from pretrained word vectors."""

import math
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub.dataclasses import strict
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from .rows import read_lines


@strict
@dataclass
class WordVectorsConfig:
    """Fields of the section ``data`` for pretrained word vectors, which initialize the embeddings of a new model.

    Attributes:
        vectors: file of word vectors, as of ``word_vectors``.
        words: file of their words, if ``vectors`` is a ``.npy`` file.
        all_words: the vocabulary also has the words of the file that do not occur in the training texts. With frozen
            embeddings, the model then reads words that it was not trained on by vectors that it was trained on.
    """

    vectors: str | None = None
    words: str | None = None
    all_words: bool = False

    def validate_word_vectors(self) -> None:
        if self.words is not None and self.vectors is None:
            raise ValueError("words is the file of words for vectors; write vectors too, or remove words.")
        if self.all_words and self.vectors is None:
            raise ValueError("all_words adds the words of vectors to the vocabulary; write vectors too, or remove it.")

    def added_words(self) -> list[str]:
        """Return the words that the vocabulary also has: with ``all_words`` those of the file, or else none.

        Raises:
            UserError: a file is malformed.
        """
        if not self.all_words or self.vectors is None:
            return []
        return [word for word, _ in word_vectors(self.vectors, self.words)]

    def load(self, model: Any, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any] | None:
        """Fill the input embeddings of a model with the vectors, if given, by ``load_embeddings``.

        Returns:
            Facts for ``results.json``: the file, and its coverage of the vocabulary; None without vectors.
        """
        if self.vectors is None:
            return None
        coverage = load_embeddings(model, tokenizer, self.vectors, self.words)
        return {
            "name": Path(self.vectors).name,
            "found": coverage.found,
            "missing": len(coverage.missing),
            "share": coverage.share,
            "most_frequent_missing": list(coverage.missing[:10]),
        }


@dataclass(frozen=True)
class Coverage:
    """Coverage of a vocabulary by a file of word vectors.

    Attributes:
        found: number of tokens with a vector.
        missing: tokens without a vector, in the order of their ids; special tokens are not counted.
    """

    found: int
    missing: tuple[str, ...]

    @property
    def share(self) -> float:
        """Share of the counted tokens that have a vector, from 0 to 1."""
        return self.found / max(self.found + len(self.missing), 1)


def load_embeddings(
    model: Any, tokenizer: PreTrainedTokenizerBase, vectors: str | Path, words: str | Path | None = None
) -> Coverage:
    """Fill the input embeddings of a model from a file of word vectors.

    The embeddings of padding and of tokens that the file does not contain are set to zero. The file is streamed or
    memory-mapped, so only the vectors of the vocabulary are in memory. If the file contains a word twice, the first
    vector is used.

    Args:
        model: model whose ``get_input_embeddings()`` is (V, D).
        tokenizer: tokenizer of the model. Its tokens are compared with the words of the file exactly, including case.
        vectors, words: files as of ``word_vectors``.

    Raises:
        UserError: a file is malformed or has vectors of another dimension, or the vocabulary has more tokens than the
            model. The embeddings are then unchanged.
    """
    embedding = model.get_input_embeddings()
    vocab_size, width = embedding.weight.shape
    vocabulary = tokenizer.get_vocab()
    highest = max(vocabulary.values(), default=-1)
    if highest >= vocab_size:
        raise UserError(
            f"The tokenizer has the id {highest} and the model {vocab_size} embeddings; create the model with "
            f"vocab_size {highest + 1}, or call resize_token_embeddings."
        )
    pairs = word_vectors(vectors, words, vocabulary, width)
    rows = np.zeros((vocab_size, width), np.float32)
    paddings = {embedding.padding_idx, tokenizer.pad_token_id}
    found = set()
    for word, vector in pairs:
        if word not in found and vocabulary[word] not in paddings:
            rows[vocabulary[word]] = vector
            found.add(word)
    with torch.no_grad():
        embedding.weight.copy_(torch.from_numpy(rows))
    known = found | set(tokenizer.all_special_tokens)
    missing = tuple(token for token in sorted(vocabulary, key=vocabulary.__getitem__) if token not in known)
    return Coverage(len(found), missing)


def word_vectors(
    vectors: str | Path,
    words: str | Path | None = None,
    vocabulary: Container[str] | None = None,
    width: int | None = None,
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield words with their vectors (D,) from files, in the order of the files.

    Args:
        vectors: UTF-8 text file with a word and D numbers on each line, separated by single spaces (the format of
            GloVe); or a ``.npy`` file (number of words, D).
        words: for a ``.npy`` file, UTF-8 text file with the word of each row on its own line.
        vocabulary: the words to yield; default: all.
        width: D; default: that of the file.

    Raises:
        UserError: a file is malformed or has vectors of another width.
    """
    vectors = Path(vectors)
    if vectors.suffix == ".npy":
        if words is None:
            raise UserError(f"{vectors.name} has vectors without words; pass the file of the words too.")
        return _npy_vectors(vectors, Path(words), vocabulary, width)
    if words is not None:
        raise UserError(f"{vectors.name} is a text file with a word on each line; remove the file of words.")
    return _text_vectors(vectors, vocabulary, width)


def _text_vectors(path: Path, vocabulary: Container[str] | None, width: int | None) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the words of the vocabulary with their vectors; check the format of every line."""
    number = 0
    for number, line in read_lines(path):
        line = line.rstrip(" ")
        width = width or line.count(" ")
        if width == 0:
            raise UserError(f"{path.name} begins with no numbers; give a word and its numbers on each line.")
        if number == 1 and line.count(" ") != width:
            raise UserError(
                f"{path.name} begins with a word and {line.count(' ')} numbers, and the embeddings are {width} wide; "
                "give vectors of that width, or a model with their embedding_size."
            )
        word, *numbers = line.rsplit(" ", width)
        # A few published words contain a space; if a number follows it, the line has one number too many.
        if len(numbers) != width or _is_number(word.rpartition(" ")[2] if " " in word else ""):
            raise _malformed(path, number, width)
        if vocabulary is None or word in vocabulary:
            if not all(map(_is_number, numbers)):
                raise _malformed(path, number, width)
            yield word, np.array(numbers, np.float32)
    if number == 0:
        raise UserError(f"{path.name} is empty; give a file with a word and its numbers on each line.")


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _malformed(path: Path, number: int, width: int) -> UserError:
    return UserError(f"Line {number} of {path.name} is not a word and {width} numbers; correct or remove it.")


def _npy_vectors(
    path: Path, words: Path, vocabulary: Container[str] | None, width: int | None
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the words of the vocabulary with their vectors from a memory-mapped array; other rows are not read."""
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except ValueError as error:
        raise UserError(f"{path.name} is not an array of numbers that numpy can map ({error}).") from error
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.floating):
        raise UserError(
            f"{path.name} has type {array.dtype} and shape {array.shape}; give floating-point vectors, one in each row."
        )
    if width is not None and array.shape[1] != width:
        raise UserError(
            f"{path.name} has vectors of width {array.shape[1]}, and the embeddings are {width} wide; give vectors "
            f"of that width, or a model with embedding_size {array.shape[1]}."
        )
    number = 0
    for number, word in read_lines(words):
        if number <= len(array) and (vocabulary is None or word in vocabulary):
            if not np.isfinite(array[number - 1]).all():
                raise UserError(f"Row {number - 1} of {path.name} has a value that is not finite.")
            yield word, array[number - 1]
    if number != len(array):
        raise UserError(
            f"{path.name} has {len(array)} rows and {words.name} has {number} words; give a word for each row."
        )
