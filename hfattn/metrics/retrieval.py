"""Retrieval: how high the right candidates of a query, such as the texts of an image, are among all of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import EvalPrediction

CUTOFFS = (1, 5, 10)
_ROWS = 1024  # similarities of so many queries are in memory at once


def ranks(queries: np.ndarray, candidates: np.ndarray, right: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Return the rank of the best right candidate of each query, from 1 on.

    A wrong candidate that is as similar as the best right one is counted before it.

    Args:
        queries: (N, D) vectors.
        candidates: (M, D) vectors, compared by the inner product.
        right: (N,) number of the right text of each query.
        of: (M,) number of the text of each candidate; all that have the query's are right.

    Returns:
        (N,) ranks. Other right candidates do not count, so the best possible rank is 1.
    """
    return ranks_of(queries, candidates, lambda rows: right[rows, None] == of[None])


def ranks_of(
    queries: np.ndarray,
    candidates: np.ndarray,
    right: Callable[[slice], np.ndarray],
    digits: int | None = None,
    left_out: np.ndarray | None = None,
) -> np.ndarray:
    """Return the ranks of ``ranks``, where any candidates may be right.

    Args:
        queries, candidates: as in ``ranks``.
        right: function from a slice of the queries to booleans (n, M): which candidates are right.
        digits: digits after the point to which similarities are rounded; None: they are not.
        left_out: (N,) place of a candidate that does not count as wrong for each query, such as the query itself; -1:
            none.
    """
    found = np.empty(len(queries), np.int64)
    for start in range(0, len(queries), _ROWS):
        rows = slice(start, start + _ROWS)
        similarities = queries[rows] @ candidates.T
        if digits is not None:
            similarities = similarities.round(digits)
        is_right = right(rows)
        best = np.where(is_right, similarities, -np.inf).max(1, keepdims=True)
        before = (similarities >= best) & ~is_right
        if left_out is not None:
            of_rows = left_out[rows]
            before[np.arange(len(before)), of_rows] &= of_rows < 0
        found[rows] = 1 + before.sum(1)
    return found


def rank_scores(found: np.ndarray) -> dict[str, float]:
    """Return R@1, R@5 and R@10 (shares of queries with such a rank or a better one), median rank, and MRR."""
    scores = {f"recall_at_{cutoff}": float((found <= cutoff).mean()) for cutoff in CUTOFFS}
    return {**scores, "median_rank": float(np.median(found)), "mrr": float((1 / found).mean())}


def retrieval_scores(
    image_embeds: np.ndarray, text_embeds: np.ndarray, images: np.ndarray, texts: np.ndarray
) -> dict[str, Any]:
    """Return the scores of retrieval in both directions.

    Args:
        image_embeds: (N, D) embeddings of images, of length 1.
        text_embeds: (M, D) embeddings of different texts, of length 1.
        images: (N,) group of each image.
        texts: (M,) group of each text; the texts of a group are right for its images.

    Returns:
        The scores of ``rank_scores`` for the text of an image among all texts, and, with the prefix ``text_to_image_``,
        for the images of a text among all images, of which the most similar right one counts; ``examples`` (N) and
        ``texts`` (M).
    """
    to_text = rank_scores(ranks(image_embeds, text_embeds, images, texts))
    to_image = rank_scores(ranks(text_embeds, image_embeds, texts, images))
    backward = {f"text_to_image_{name}": score for name, score in to_image.items()}
    return {**to_text, **backward, "examples": len(image_embeds), "texts": len(text_embeds)}


class RetrievalScores:
    """A ``compute_metrics`` for ``ContrastiveTrainer``, with the scores of ``retrieval_scores``.

    For ``TrainingArguments(batch_eval_metrics=True)``: collects the embeddings of the batches, for ranks are those
    among all images and texts, and returns the scores at the last one. Afterwards, ``image_embeds`` (N, D),
    ``text_embeds`` (M, D) are what they were computed from.
    """

    def __init__(self) -> None:
        self._batches: list[tuple[np.ndarray, ...]] = []

    def __call__(self, prediction: EvalPrediction, compute_result: bool = False) -> dict[str, Any]:
        arrays = (*prediction.predictions, prediction.label_ids)
        self._batches.append(tuple(torch.as_tensor(each).float().cpu().numpy() for each in arrays))
        if not compute_result:
            return {}
        self.image_embeds, texts, labels = (np.concatenate(each) for each in zip(*self._batches, strict=True))
        self._batches = []
        numbers, groups = labels.astype(np.int64).T
        _, first = np.unique(numbers, return_index=True)
        self.text_embeds = texts[first]
        return retrieval_scores(self.image_embeds, self.text_embeds, groups, groups[first])
