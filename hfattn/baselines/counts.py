"""Texts as counts of their n-grams, as they are or weighted."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from huggingface_hub.dataclasses import strict

from ..errors import UserError
from ..extras import optional
from ..models.strict_config import unknown_message

KINDS = ("one_hot", "bag_of_words", "tfidf_textbook", "tfidf_sklearn", "vectors")

Words = Sequence[str]


@strict
@dataclass
class FeaturesConfig:
    """The section ``features`` of the recipe: what a text is to the classifier.

    With tf(t, d) the number of times that the n-gram t stands in the text d, and df(t) the number of the N training
    texts that have it, the feature t of d is

    - one_hot: 1 where tf(t, d) > 0, else 0;
    - bag_of_words: tf(t, d);
    - tfidf_textbook: tf(t, d) · ln(N / df(t)), neither smoothed nor normalised (Salton & Buckley 1988, "tfx"): an
      n-gram that every training text has weighs nothing;
    - tfidf_sklearn: tf(t, d) · (ln((1 + N) / (1 + df(t))) + 1), and then each text divided by its Euclidean length;
      scikit-learn's default.

    And ``vectors`` are learned, see ``VectorsConfig``.

    Attributes:
        kind: one of these.
        ngrams: of words, the shortest and the longest.
        min_texts: leave out n-grams that fewer training texts have.
        max_features: keep the most frequent; None: all.
    """

    kind: str = "tfidf_sklearn"
    ngrams: list[int] = field(default_factory=lambda: [1, 1])
    min_texts: int = 1
    max_features: int | None = None

    def validate_features(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(unknown_message(self.kind, KINDS, "a kind of features"))
        if len(self.ngrams) != 2 or not 1 <= self.ngrams[0] <= self.ngrams[1]:
            raise ValueError(f"ngrams is {self.ngrams}; write the shortest and the longest, such as [1, 2].")
        for name in ("min_texts", "max_features"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; write a whole number of at least 1.")
        if self.kind == "vectors" and (self.ngrams, self.min_texts, self.max_features) != ([1, 1], 1, None):
            raise ValueError(
                "ngrams, min_texts and max_features are of counts; leave them out of kind vectors, which has a section "
                "vectors of its own."
            )


class Counts:
    """Counts of the n-grams that the training texts have, over scikit-learn.

    Attributes:
        names: (F,) n-grams, their words apart by a space.
        idf: (F,) weights of the n-grams, in float64.
    """

    def __init__(self, config: FeaturesConfig, names: Sequence[str] = (), idf: np.ndarray | None = None) -> None:
        self.config, self.names = config, list(names)
        self.idf = np.ones(len(names)) if idf is None else idf

    def fit_transform(self, texts: Sequence[Words], seed: int = 0) -> Any:
        """Learn the n-grams and their weights from the words of texts, and return their features (n, F), sparse.

        Raises:
            UserError: no n-gram is left.
        """
        del seed  # nothing is drawn
        vectorizer = self._vectorizer(min_df=self.config.min_texts, max_features=self.config.max_features)
        try:
            counts = vectorizer.fit_transform(texts)
        except ValueError:  # all that it says of words is that none is left
            raise UserError(
                f"No n-gram of {self.config.ngrams[0]} to {self.config.ngrams[1]} words is in {self.config.min_texts} "
                "training texts; lower features.min_texts, or leave fewer stop words out."
            ) from None
        self.names = vectorizer.get_feature_names_out().tolist()
        texts_with = np.bincount(counts.indices, minlength=len(self.names))  # each text has a column at most once
        if self.config.kind == "tfidf_textbook":
            self.idf = np.log(len(texts) / texts_with)
        elif self.config.kind == "tfidf_sklearn":
            self.idf = optional("baselines", "sklearn.feature_extraction.text").TfidfTransformer().fit(counts).idf_
        else:
            self.idf = np.ones(len(self.names))
        return self._weighted(counts)

    def transform(self, texts: Sequence[Words]) -> Any:
        """The features (n, F) of the words of texts, sparse; n-grams that the training texts lack are left out."""
        return self._weighted(self._vectorizer(vocabulary=self.names).transform(texts))

    def _vectorizer(self, **options: Any) -> Any:
        # The texts are words already.
        return optional("baselines", "sklearn.feature_extraction.text").CountVectorizer(
            preprocessor=_same,
            tokenizer=_same,
            token_pattern=None,
            ngram_range=tuple(self.config.ngrams),
            binary=self.config.kind == "one_hot",
            dtype=np.float64,
            **options,
        )

    def _weighted(self, counts: Any) -> Any:
        weighted = counts.multiply(self.idf).tocsr()
        if self.config.kind == "tfidf_sklearn":
            return optional("baselines", "sklearn.preprocessing").normalize(weighted, copy=False)
        return weighted


def _same(words: Words) -> Words:
    return words
