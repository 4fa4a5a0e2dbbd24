"""N-gram counts of texts as features, plain or weighted."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from huggingface_hub.dataclasses import strict

from ..errors import UserError
from ..extras import optional
from ..fields import at_least
from ..models.strict_config import unknown_message

KINDS = ("one_hot", "bag_of_words", "tfidf_textbook", "tfidf_relative", "tfidf_sklearn", "vectors", "encoder")

Words = Sequence[str]


@strict
@dataclass
class FeaturesConfig:
    """The section ``features`` of the recipe: how a text is represented.

    With tf(t, d) the number of occurrences of the n-gram t in the text d, and df(t) the number of the N training texts
    that contain t, the feature t of d is

    - one_hot: 1 where tf(t, d) > 0, else 0;
    - bag_of_words: tf(t, d);
    - tfidf_textbook: tf(t, d) · ln(N / df(t)), neither smoothed nor normalized (Salton & Buckley 1988, "tfx"); an
      n-gram that all training texts contain has weight 0;
    - tfidf_relative: tf(t, d) / |d| · ln(N / df(t)), with |d| the number of all n-grams of the text, so that long
      texts have no larger features than short ones;
    - tfidf_sklearn: tf(t, d) · (ln((1 + N) / (1 + df(t))) + 1), then each text is divided by its Euclidean norm
      (scikit-learn's default).

    ``vectors`` are learned, see ``VectorsConfig``. ``encoder`` takes frozen features of a pretrained encoder, see
    ``EncoderConfig``.

    Attributes:
        kind: one of these representations.
        ngrams: smallest and largest number of words of an n-gram.
        min_texts: leave out n-grams that fewer training texts contain.
        max_features: number of most frequent n-grams to keep; None keeps all.
    """

    kind: str = "tfidf_sklearn"
    ngrams: list[int] = field(default_factory=lambda: [1, 1])
    min_texts: int = at_least(1, 1)
    max_features: int | None = at_least(1, None)

    def validate_features(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(unknown_message(self.kind, KINDS, "a kind of features"))
        if len(self.ngrams) != 2 or not 1 <= self.ngrams[0] <= self.ngrams[1]:
            raise ValueError(f"ngrams is {self.ngrams}; write the shortest and the longest, such as [1, 2].")
        counts_only = (self.ngrams, self.min_texts, self.max_features)
        if self.kind in ("vectors", "encoder") and counts_only != ([1, 1], 1, None):
            raise ValueError(
                f"ngrams, min_texts and max_features do not apply to kind {self.kind}; remove them from features."
            )


class Counts:
    """Features from counts of the n-grams of the training texts, computed by scikit-learn.

    Attributes:
        names: (F,) n-grams, with spaces between their words.
        idf: (F,) weights of the n-grams, in float64.
    """

    def __init__(self, config: FeaturesConfig, names: Sequence[str] = (), idf: np.ndarray | None = None) -> None:
        self.config, self.names = config, list(names)
        self.idf = np.ones(len(names)) if idf is None else idf

    def fit_transform(self, texts: Sequence[Words], seed: int = 0) -> Any:
        """Learn the n-grams and their weights from the words of texts, and return their sparse features (n, F).

        Raises:
            UserError: no n-gram remains.
        """
        del seed  # counting is deterministic
        vectorizer = self._vectorizer(min_df=self.config.min_texts, max_features=self.config.max_features)
        try:
            counts = vectorizer.fit_transform(texts)
        except ValueError:  # for texts that are split into words, it can only mean that no n-gram remains
            raise UserError(
                f"No n-gram of {self.config.ngrams[0]} to {self.config.ngrams[1]} words occurs in "
                f"{self.config.min_texts} training texts; lower features.min_texts, or remove fewer stop words."
            ) from None
        self.names = vectorizer.get_feature_names_out().tolist()
        texts_with = np.bincount(counts.indices, minlength=len(self.names))  # a text has each column at most once
        if self.config.kind in ("tfidf_textbook", "tfidf_relative"):
            self.idf = np.log(len(texts) / texts_with)
        elif self.config.kind == "tfidf_sklearn":
            self.idf = optional("baselines", "sklearn.feature_extraction.text").TfidfTransformer().fit(counts).idf_
        else:
            self.idf = np.ones(len(self.names))
        return self._weighted(counts, texts)

    def transform(self, texts: Sequence[Words]) -> Any:
        """Return the sparse features (n, F) of the words of texts; n-grams unseen in training are left out."""
        return self._weighted(self._vectorizer(vocabulary=self.names).transform(texts), texts)

    def _vectorizer(self, **options: Any) -> Any:
        # The texts are already split into words.
        return optional("baselines", "sklearn.feature_extraction.text").CountVectorizer(
            preprocessor=_same,
            tokenizer=_same,
            token_pattern=None,
            ngram_range=tuple(self.config.ngrams),
            binary=self.config.kind == "one_hot",
            dtype=np.float64,
            **options,
        )

    def _weighted(self, counts: Any, texts: Sequence[Words]) -> Any:
        weighted = counts.multiply(self.idf).tocsr()
        if self.config.kind == "tfidf_relative":
            shortest, longest = self.config.ngrams
            sizes = [sum(max(len(text) - n + 1, 0) for n in range(shortest, longest + 1)) for text in texts]
            return weighted.multiply(1 / np.maximum(sizes, 1)[:, None]).tocsr()
        if self.config.kind == "tfidf_sklearn":
            return optional("baselines", "sklearn.preprocessing").normalize(weighted, copy=False)
        return weighted


def _same(words: Words) -> Words:
    return words
