"""Scores of sentence encoders: cosines against human scores and classes, and retrieval of the texts that belong."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.metrics import average_precision_score
from transformers import EvalPrediction

from ..data.text_pairs import PairNumbers
from .regression import correlations
from .retrieval import rank_scores, ranks_of

if TYPE_CHECKING:
    from ..data import TextPairs


_DIGITS = 5  # of a cosine: texts whose tokens are equal tie, although their batches were padded otherwise


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the cosines (N,) between the rows of vectors (N, D), to five digits; 0 with a vector of length 0."""
    return (_unit(first) * _unit(second)).sum(1).round(_DIGITS)


def _unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.maximum(lengths, 1e-12)).astype(np.float64)


def pair_retrieval_scores(vectors: np.ndarray, numbered: PairNumbers) -> dict[str, Any]:
    """Return the scores of retrieval in both directions, where every pair of the data is right.

    Args:
        vectors: (M, D) vectors of the different texts.
        numbered: these texts, and which belong together.

    Returns:
        The scores of ``rank_scores`` for the second texts of a first one, among all different second texts, and, with
        the prefix ``pair_to_text_``, in the other direction; ``examples``, the number of different first texts, and
        ``candidates``, that of the second ones. Of several right candidates, the nearest counts. A
        query that is also among the candidates does not count as wrong.
    """
    unit, sides = _unit(vectors), (numbered.first, numbered.second)
    places = [np.searchsorted(side, numbered.rows[:, i]) for i, side in enumerate(sides)]
    scores: dict[str, Any] = {}
    for prefix, query, candidate in (("", 0, 1), ("pair_to_text_", 1, 0)):
        order = np.argsort(places[query], kind="stable")
        queries, right = places[query][order], places[candidate][order]

        def is_right(
            rows: slice, queries: np.ndarray = queries, right: np.ndarray = right, width: int = len(sides[candidate])
        ) -> np.ndarray:
            start, end = np.searchsorted(queries, (rows.start, rows.stop))
            found = np.zeros((min(rows.stop, int(queries[-1]) + 1) - rows.start, width), bool)
            found[queries[start:end] - rows.start, right[start:end]] = True
            return found

        same = np.searchsorted(sides[candidate], sides[query]).clip(max=len(sides[candidate]) - 1)
        itself = np.where(sides[candidate][same] == sides[query], same, -1)
        ranks = ranks_of(unit[sides[query]], unit[sides[candidate]], is_right, _DIGITS, itself)
        scores |= {f"{prefix}{name}": score for name, score in rank_scores(ranks).items()}
    return {**scores, "examples": len(numbered.first), "candidates": len(numbered.second)}


def sentence_scores(pairs: "TextPairs", vectors: np.ndarray, positive_labels: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the scores of a part: those that its pairs allow.

    Args:
        pairs: pairs of texts. If they have scores, these are compared with the cosines. If they have classes, the
            cosines are a ranking of which ``positive_labels`` should be first. Otherwise the second texts are looked
            for among all of the part.
        vectors: (M, D) vectors of the texts of ``PairNumbers(pairs)``.
        positive_labels: classes of the pairs that belong together.

    Returns:
        ``pearson``, ``spearman`` and ``examples``; or ``average_precision`` and ``examples``; or the scores of
        ``pair_retrieval_scores``.
    """
    numbered = PairNumbers(pairs)
    first, second = (vectors[numbered.rows[:, side]] for side in (0, 1))
    if pairs.items[0].score is not None:
        scores = [item.score for item in pairs if item.score is not None]
        return {**correlations(cosines(first, second).tolist(), scores), "examples": len(pairs)}
    right = [item.label is not None and pairs.labels[item.label] in positive_labels for item in pairs]
    if pairs.items[0].label is not None and not all(right):
        precision = average_precision_score(right, cosines(first, second))
        return {"average_precision": float(precision), "examples": len(pairs)}
    return pair_retrieval_scores(vectors, numbered)


class SentenceScores:
    """A ``compute_metrics`` for ``SentenceTrainer``, with the scores of ``sentence_scores``.

    For ``TrainingArguments(batch_eval_metrics=True)``: collects the vectors of the batches, and returns the scores at
    the last one. Afterwards, ``vectors`` (M, D) are those of the texts.

    Args:
        positive_labels: as in ``sentence_scores``.
    """

    def __init__(self, positive_labels: tuple[str, ...] = ()) -> None:
        self.positive_labels = positive_labels
        self.pairs: TextPairs | None = None
        self.vectors = np.zeros((0, 0), np.float32)
        self._batches: list[tuple[np.ndarray, ...]] = []

    def expect(self, pairs: "TextPairs") -> None:
        """Set the pairs of the part that is evaluated next."""
        self.pairs = pairs

    def __call__(self, prediction: EvalPrediction, compute_result: bool = False) -> dict[str, Any]:
        _, numbers = prediction.label_ids
        arrays = (*prediction.predictions, numbers)
        self._batches.append(tuple(torch.as_tensor(each).float().cpu().numpy() for each in arrays))
        if not compute_result:
            return {}
        *sides, found = (np.concatenate(each) for each in zip(*self._batches, strict=True))
        self._batches = []
        assert self.pairs is not None
        of_texts = found.astype(np.int64)
        self.vectors = np.zeros((int(of_texts.max()) + 1, sides[0].shape[1]), np.float32)
        for side, vectors in enumerate(sides):
            self.vectors[of_texts[:, side]] = vectors
        return sentence_scores(self.pairs, self.vectors, self.positive_labels)
