"""What a linear classifier reaches on the same texts: the least that a trained model has to beat."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import accuracy_score, f1_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from ..data import LabeledTexts

MOST = 100_000  # training texts that are read


def linear_baseline(parts: Mapping[str, LabeledTexts], seed: int) -> dict[str, Any] | None:
    """Fit a linear SVM on TF-IDF of words and pairs of words to the training part, and score it on the other parts.

    Nothing is chosen: the settings are those of scikit-learn. The two texts of a pair are joined.

    Args:
        parts: the texts of each part.
        seed: random seed, also of the sample if there are more than ``MOST`` training texts.

    Returns:
        The number of training ``texts``, the ``seconds`` of the fit, and by part ``accuracy`` and ``f1`` (mean over the
        classes); with several labels per text, of one SVM for each, ``f1`` is over all labels (micro), and ``macro_f1``
        the mean over the labels. None if the texts have no words, or the training part has one class.
    """
    train = parts["train"] if len(parts["train"]) <= MOST else parts["train"].sample(MOST, seed)
    several = train.has_several
    svm = LinearSVC(random_state=seed)
    model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), OneVsRestClassifier(svm) if several else svm)
    start = time.perf_counter()
    try:
        model.fit(_texts(train), _targets(train))
    except ValueError:  # an empty vocabulary, or a single class
        return None
    facts: dict[str, Any] = {"texts": len(train), "seconds": round(time.perf_counter() - start, 2)}
    for part, texts in parts.items():
        if part != "train":
            right, predicted = _targets(texts), model.predict(_texts(texts))
            averages = {"f1": "micro", "macro_f1": "macro"} if several else {"f1": "macro"}
            facts[part] = {
                "accuracy": float(accuracy_score(right, predicted)),
                **{
                    name: float(f1_score(right, predicted, average=average, zero_division=0))
                    for name, average in averages.items()
                },
            }
    return facts


def _targets(texts: LabeledTexts) -> np.ndarray:
    return np.array([item.target for item in texts], dtype=int)


def _texts(texts: LabeledTexts) -> list[str]:
    return [" ".join(texts.texts(item)) for item in texts]
