"""Extractive answers, scored as SQuAD does (Rajpurkar et al. 2016, section 6.1; 2018 for those without an answer)."""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import datasets
import evaluate
import numpy as np
import torch
from transformers import EvalPrediction

from .checks import PairedMetric, check_examples

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """An answer in small letters, without ASCII punctuation and the articles a, an and the, with single spaces."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """1 if the prediction equals one of the answers, both normalised, else 0.

    Args:
        prediction: text; empty for "there is no answer".
        answers: that are right; none if the question has no answer.
    """
    return _best(_same, prediction, answers)


def answer_f1(prediction: str, answers: Sequence[str]) -> float:
    """The greatest F1 between the words of the prediction and those of an answer, both normalised, counted as bags.

    Args:
        prediction: text; empty for "there is no answer", which is right (1) or wrong (0).
        answers: that are right; none if the question has no answer.
    """
    return _best(_word_f1, prediction, answers)


def _best(score: Callable[[str, str], float], prediction: str, answers: Sequence[str]) -> float:
    # As in SQuAD 2.0's script, an answer of which nothing is left is none.
    right = [text for answer in answers if (text := normalize_answer(answer))] or [""]
    return max(score(normalize_answer(prediction), text) for text in right)


def _same(one: str, other: str) -> float:
    return float(one == other)


def _word_f1(one: str, other: str) -> float:
    if not one or not other:
        return float(one == other)
    words, right = one.split(), other.split()
    return 2 * (Counter(words) & Counter(right)).total() / (len(words) + len(right))


class AnswerMetric(PairedMetric):
    """Exact match and F1 of extracted answers, as SQuAD defines them, from 0 to 1 (SQuAD's own scripts print percent).

    ``compute(predictions=texts, references=lists_of_texts)`` returns ``{"exact_match": ..., "f1": ...}``, means over
    the questions. A reference holds all right answers; it is empty for a question without an answer, which an empty
    prediction meets.
    """

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description="Exact match and F1 of extracted answers, as in SQuAD.",
            citation="",
            inputs_description="predictions: answers, empty for none; references: lists of right answers.",
            features=datasets.Features(
                {"predictions": datasets.Value("string"), "references": datasets.Sequence(datasets.Value("string"))}
            ),
        )

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        return _means(predictions, references)


def _means(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    pairs = list(zip(predictions, references, strict=True))
    return {
        "exact_match": float(np.mean([exact_match(*pair) for pair in pairs])),
        "f1": float(np.mean([answer_f1(*pair) for pair in pairs])),
    }


def best_null_threshold(
    texts: Sequence[str], null_margins: Sequence[float], answers: Sequence[Sequence[str]]
) -> tuple[float, float]:
    """The threshold of the null score with the best F1, as SQuAD 2.0's script looks for it.

    Args:
        texts: (n,) the best answers that are not empty; empty where a window has none.
        null_margins: (n,) score of "no answer" less that of the text; an answer is given where it is at most the
            threshold.
        answers: (n,) right ones of each question, none if it has no answer.

    Returns:
        The threshold, and the F1 with it. A threshold below all margins answers no question.

    Raises:
        UserError: there is nothing to score, or not as many of each.
    """
    check_examples(texts=texts, null_margins=null_margins, answers=answers)
    gains = np.array(
        [answer_f1(text, right) - answer_f1("", right) for text, right in zip(texts, answers, strict=True)]
    )
    margins = np.asarray(null_margins, dtype=np.float64)
    unanswered = float(np.mean([answer_f1("", right) for right in answers]))
    order = np.argsort(margins, kind="stable")
    # After each margin, equal ones together: all questions up to there are answered.
    last_of_equals = np.append(np.diff(margins[order]) > 0, True)
    sums = np.cumsum(gains[order])[last_of_equals] / len(margins)
    best = int(sums.argmax())
    if sums[best] <= 0:
        return float(margins.min()) - 1, unanswered
    return float(margins[order][last_of_equals][best]), unanswered + float(sums[best])


def span_logits(logits: tuple[torch.Tensor, ...], labels: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """What the metrics need of a model's outputs: the logits of starts and of ends (B, S), in float32.

    A ``preprocess_logits_for_metrics``.

    Args:
        logits: of starts and of ends (B, S), whatever else a model returns after them.
        labels: are not needed.
    """
    starts, ends = (each.float() for each in logits[:2])
    return starts, ends


class Extractor(Protocol):
    """What ``AnswerScores`` needs of a data set of windows: right answers, how one is read off, how likely they are."""

    @property
    def references(self) -> Sequence[Sequence[str]]: ...

    def answers(self, starts: Sequence[np.ndarray], ends: Sequence[np.ndarray]) -> Sequence[Any]: ...

    def nats(self, starts: Sequence[np.ndarray], ends: Sequence[np.ndarray]) -> float: ...


class AnswerScores:
    """A ``compute_metrics`` for an extractive model whose rows are windows of contexts.

    For ``TrainingArguments(batch_eval_metrics=True)``, with ``span_logits``. It returns ``exact_match`` and ``f1``
    as ``AnswerMetric``, ``nats_per_window``, the mean negative log-likelihood of the right start and end, and the
    numbers of ``questions`` and ``windows``.

    Attributes:
        answers: what the data set read off for each question, after an evaluation; each has a ``text``.
    """

    def expect(self, dataset: Extractor) -> None:
        """Say what is evaluated next, and until something else is: its windows, in their order."""
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
