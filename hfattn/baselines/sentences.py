"""Vectors of sentences without training: means of word vectors, and smooth inverse frequency (Arora et al. 2017)."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from ..data.vectors import word_vectors
from ..errors import UserError

_WORD = re.compile(r"[^\W_]+|[^\w\s]")


def sentence_words(text: str) -> list[str]:
    """Return the words and punctuation marks of a text, in lowercase, as the words of GloVe are."""
    return _WORD.findall(text.lower())


class WordMeans:
    """Means of word vectors, plain or by smooth inverse frequency (Arora et al. 2017, algorithm 1).

    The vector of a sentence s is v = 1/|s| Σ_{w in s} a / (a + p(w)) v_w, without its projection on the first singular
    vector u of the training sentences: v - u uᵀ v. The plain mean has weights of 1, and nothing is removed. Words
    without a vector are left out, also of |s|; a sentence of such words alone has the vector zero.

    Args:
        vectors, words: files as of ``hfattn.data.word_vectors``.
        a: the parameter a; None: the plain mean.
    """

    def __init__(self, vectors: str | Path, words: str | Path | None = None, a: float | None = None) -> None:
        self.files = (vectors, words)
        self.a = a
        self.probability: dict[str, float] = {}
        self.component = np.zeros(0)

    def fit(self, texts: Sequence[str], corpus: Iterable[str] | None = None) -> "WordMeans":
        """Estimate p(w) and u from training sentences; a plain mean has nothing to estimate.

        Args:
            texts: the sentences.
            corpus: texts to estimate p(w) from instead. In few sentences of one kind, the words of their topic are as
                frequent as function words; the authors count the words of Wikipedia.
        """
        if self.a is not None:
            counts = Counter(word for text in corpus or texts for word in sentence_words(text))
            total = counts.total()
            self.probability = {word: number / total for word, number in counts.items()}
            self.component = np.zeros(0)
            self.component = np.linalg.svd(self.transform(texts), full_matrices=False)[2][0]
        return self

    def transform(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors (N, D) of sentences, in float64.

        Raises:
            UserError: no word of the sentences has a vector, or a file cannot be read.
        """
        split = [sentence_words(text) for text in texts]
        found: dict[str, np.ndarray] = {}
        for word, vector in word_vectors(*self.files, vocabulary={word for each in split for word in each}):
            found.setdefault(word, np.asarray(vector, np.float64))
        if not found:
            raise UserError(f"{Path(self.files[0]).name} has no word of the sentences; give vectors of their language.")
        made = np.zeros((len(texts), len(next(iter(found.values())))))
        for row, each in zip(made, split, strict=True):
            known = [word for word in each if word in found]
            for word in known:
                weight = 1.0 if self.a is None else self.a / (self.a + self.probability.get(word, 0.0))
                row += weight / len(known) * found[word]
        if len(self.component):
            made -= np.outer(made @ self.component, self.component)
        return made
