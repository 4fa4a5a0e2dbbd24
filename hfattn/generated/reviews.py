"""Fourteen short film reviews in Spanish: labeled texts to try a classifier on without a download.

Seven are positive and seven negative; ten are for training. A test set of four reviews measures nothing: the data show
the way from texts to a table of results.
"""

from ..data.labeled import Labeled, LabeledTexts
from .engine import load_words

TEST_SHARE = 0.25
LABELS = ("negativa", "positiva")


def reviews_es(seed: int = 0) -> dict[str, LabeledTexts]:
    """Return ten reviews for training and four for the test, split by scikit-learn's ``train_test_split``.

    Args:
        seed: ``random_state`` of the split.
    """
    from sklearn.model_selection import train_test_split

    reviews = enumerate(load_words("reviews_es"), start=1)
    items = [Labeled(review["text"], LABELS.index(review["label"]), line) for line, review in reviews]
    parts = train_test_split(items, test_size=TEST_SHARE, random_state=seed)
    return {
        part: LabeledTexts("reviews_es", chosen, list(LABELS), unit="Review")
        for part, chosen in zip(("train", "test"), parts, strict=True)
    }
