"""Scores of extractive answers as in SQuAD (Rajpurkar et al. 2016, section 6.1; 2018 for unanswerable questions)."""

import operator
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import torch
from transformers import EvalPrediction

from .checks import PairedMetric, check_examples

if TYPE_CHECKING:
    from ..data import EncodedQuestions

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Return an answer in lowercase, without ASCII punctuation and the articles a, an and the, with single spaces."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def answer_f1(prediction: str, answers: Sequence[str]) -> float:
    """Return the largest F1 between the bags of words of the normalized prediction and of a normalized answer.

    Args:
        prediction: predicted text; empty for "no answer", which scores 1 or 0.
        answers: correct answers; empty if the question has none.
    """
    return _best(_word_f1, prediction, answers)


def _best(score: Callable[[str, str], float], prediction: str, answers: Sequence[str]) -> float:
    # As in SQuAD 2.0's script, an answer that is empty after normalization counts as no answer.
    right = [text for answer in answers if (text := normalize_answer(answer))] or [""]
    return float(max(score(normalize_answer(prediction), text) for text in right))


def _word_f1(one: str, other: str) -> float:
    if not one or not other:
        return float(one == other)
    words, right = one.split(), other.split()
    return 2 * (Counter(words) & Counter(right)).total() / (len(words) + len(right))


class AnswerMetric(PairedMetric):
    """Exact match and F1 of extracted answers as defined by SQuAD, from 0 to 1 (SQuAD's scripts print percentages).

    ``compute(predictions=texts, references=lists_of_texts)`` returns ``{"exact_match": ..., "f1": ...}``, means over
    the questions. A reference is the list of all correct answers; for an unanswerable question it is empty, and the
    correct prediction is an empty text.
    """

    prediction = datasets.Value("string")
    reference = datasets.Sequence(datasets.Value("string"))

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        return _means(predictions, references)


def _means(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    pairs = list(zip(predictions, references, strict=True))
    return {
        "exact_match": float(np.mean([_best(operator.eq, *pair) for pair in pairs])),
        "f1": float(np.mean([answer_f1(*pair) for pair in pairs])),
    }


def best_null_threshold(
    texts: Sequence[str], null_margins: Sequence[float], answers: Sequence[Sequence[str]]
) -> tuple[float, float]:
    """Find the null threshold with the best F1, as SQuAD 2.0's script does.

    Args:
        texts: (n,) best answer to each question that is not "no answer"; the empty string if there is none.
        null_margins: (n,) score of "no answer" minus the score of the text; an answer is given if this is at most the
            threshold.
        answers: (n,) correct answers to each question; empty if it is unanswerable.

    Returns:
        The threshold, and the F1 with it, which is optimistic, because the threshold is chosen on the same questions. A
        threshold below all margins answers no question.

    Raises:
        UserError: the arguments are empty or differ in length.
    """
    check_examples(texts=texts, null_margins=null_margins, answers=answers)
    gains = np.array(
        [answer_f1(text, right) - answer_f1("", right) for text, right in zip(texts, answers, strict=True)]
    )
    margins = np.asarray(null_margins, dtype=np.float64)
    unanswered = float(np.mean([answer_f1("", right) for right in answers]))
    order = np.argsort(margins, kind="stable")
    # One candidate per distinct margin: all questions up to it are answered.
    last_of_equals = np.append(np.diff(margins[order]) > 0, True)
    sums = np.cumsum(gains[order])[last_of_equals] / len(margins)
    best = int(sums.argmax())
    if sums[best] <= 0:
        return float(margins.min()) - 1, unanswered
    return float(margins[order][last_of_equals][best]), unanswered + float(sums[best])


def span_logits(logits: tuple[torch.Tensor, ...], labels: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the start and end logits (B, S) in float32: a ``preprocess_logits_for_metrics``.

    Args:
        logits: start logits and end logits (B, S), followed by any other outputs of the model.
        labels: ignored.
    """
    starts, ends = (each.float() for each in logits[:2])
    return starts, ends


class AnswerScores:
    """A ``compute_metrics`` for an extractive model whose rows are windows of contexts.

    For ``TrainingArguments(batch_eval_metrics=True)`` with ``span_logits``. Returns ``exact_match`` and ``f1`` as
    ``AnswerMetric`` does, ``nats_per_window``, the mean negative log-likelihood of the correct start and end, and the
    numbers of ``questions`` and ``windows``.

    Attributes:
        answers: after an evaluation, the predicted answer to each question; each has a ``text``.
    """

    def expect(self, dataset: "EncodedQuestions") -> None:
        """Set the dataset of the following evaluations, whose windows are evaluated in order."""
        self.dataset = dataset
        self._reset()

    def _reset(self) -> None:
        self.starts: list[np.ndarray] = []
        self.ends: list[np.ndarray] = []

    def __call__(self, prediction: EvalPrediction, compute_result: bool) -> dict[str, float]:
        starts, ends = (torch.as_tensor(tensor).cpu().numpy() for tensor in prediction.predictions)
        self.starts += list(starts)
        self.ends += list(ends)
        if not compute_result:
            return {}
        self.answers = self.dataset.answers(self.starts, self.ends)
        scores = {
            **_means([answer.text for answer in self.answers], self.dataset.references),
            "nats_per_window": self.dataset.nats(self.starts, self.ends),
            "questions": len(self.answers),
            "windows": len(self.starts),
        }
        self._reset()
        return scores
