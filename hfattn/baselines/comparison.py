"""What a linear classifier reaches on the same texts: the least that a trained model has to beat."""

import time
from collections.abc import Mapping
from typing import Any

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import accuracy_score, f1_score
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
        classes); None if the texts have no words, or the training part has one class.
    """
    train = parts["train"] if len(parts["train"]) <= MOST else parts["train"].sample(MOST, seed)
    model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LinearSVC(random_state=seed))
    start = time.perf_counter()
    try:
        model.fit(_texts(train), [item.label for item in train])
    except ValueError:  # an empty vocabulary, or a single class
        return None
    facts: dict[str, Any] = {"texts": len(train), "seconds": round(time.perf_counter() - start, 2)}
    for part, texts in parts.items():
        if part != "train":
            right, predicted = [item.label for item in texts], model.predict(_texts(texts))
            facts[part] = {
                "accuracy": float(accuracy_score(right, predicted)),
                "f1": float(f1_score(right, predicted, average="macro", zero_division=0)),
            }
    return facts


def _texts(texts: LabeledTexts) -> list[str]:
    return [" ".join(texts.texts(item)) for item in texts]
