"""Exact match and F1 of answers on cases worked out by hand, and the best null threshold beside trying each."""

import random

import numpy as np
import pytest

from hfattn.errors import UserError
from hfattn.metrics import AnswerMetric, answer_f1, best_null_threshold, normalize_answer


def test_an_answer_is_compared_without_case_punctuation_and_articles() -> None:
    for text, expected in (
        ("The  Eiffel Tower!", "eiffel tower"),
        ("an apple a day", "apple day"),
        ("theatre", "theatre"),  # an article is a whole word
        ("U.S.", "us"),
        ("a.", ""),
        ("half-life", "halflife"),
        ("los años – veinte", "los años – veinte"),  # only ASCII punctuation goes, as in SQuAD's script
    ):
        assert normalize_answer(text) == expected


@pytest.mark.parametrize(
    ("prediction", "answers", "exact", "f1"),
    [
        ("the Eiffel tower", ["Eiffel Tower"], 1, 1),
        ("Eiffel", ["Eiffel Tower", "tower"], 0, 2 / 3),  # precision 1, recall 1/2
        ("in the old town of York", ["York", "old town"], 0, 4 / 7),  # in old town of york: 2 of 5, 2 of 2
        ("to be or not to be", ["to be"], 0, 2 * 2 / (6 + 2)),  # words are counted: two of six
        ("Paris", ["London"], 0, 0),
        ("", [], 1, 1),
        ("Paris", [], 0, 0),
        ("", ["Paris"], 0, 0),
        ("the", [], 1, 1),  # nothing is left of it
        ("Paris", ["the", "Paris"], 1, 1),
    ],
)
def test_scores_counted_by_hand(prediction: str, answers: list[str], exact: float, f1: float) -> None:
    scores = AnswerMetric().compute(predictions=[prediction], references=[answers])
    assert scores == pytest.approx({"exact_match": exact, "f1": f1})


def test_scores_are_means_over_the_questions() -> None:
    scores = AnswerMetric().compute(predictions=["a cat", "dog", ""], references=[["cat"], ["old dog"], []])
    assert scores == pytest.approx({"exact_match": 2 / 3, "f1": (1 + 2 / 3 + 1) / 3})
    with pytest.raises(UserError, match="There are 1 predictions, 2 references"):
        AnswerMetric().compute(predictions=["a"], references=[["a"], ["b"]])


def test_the_best_threshold_is_that_of_trying_each() -> None:
    generator = random.Random(0)
    words = ["cat", "dog", "cow", ""]
    for _ in range(200):
        number = generator.randrange(1, 8)
        texts = generator.choices(words[:3], k=number)
        margins = [float(generator.randrange(-3, 4)) for _ in range(number)]  # some of them equal
        answers = [[word] if word else [] for word in generator.choices(words, k=number)]

        def f1(threshold: float, given: list[tuple[str, float, list[str]]]) -> float:
            scores = [answer_f1(text if margin <= threshold else "", right) for text, margin, right in given]
            return float(np.mean(scores))

        given = list(zip(texts, margins, answers, strict=True))
        threshold, best = best_null_threshold(texts, margins, answers)
        assert best == pytest.approx(max(f1(each, given) for each in [-10.0, *margins]))
        assert f1(threshold, given) == pytest.approx(best)
