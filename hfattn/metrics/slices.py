"""Scores of subsets of the examples (slices).

A slice is a name and a mask with one bool per example. The functions below create common slices. Join their results
with each other or with your own masks by ``|``:
``length_slices(texts) | {"with a digit": [any(c.isdigit() for c in text) for text in texts]}``.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import evaluate
import numpy as np

from ..errors import UserError
from .checks import check_examples

SENTENCE_EDGES = (1, 5, 9, 13, 17, 21, 31)  # in words, for sentences
TEXT_EDGES = (1, 11, 21, 51, 101, 201, 401)  # in words, from one sentence to a long review

_WORD = re.compile(r"\w+")


def length_groups(texts: Sequence[str], edges: Sequence[int]) -> list[tuple[int, int | None, np.ndarray]]:
    """Group texts by their number of words, which are separated by white space.

    Args:
        texts: (n,) texts.
        edges: smallest number of words of each group, ascending; the last group has no upper limit.

    Returns:
        The smallest and the largest length (None: no limit) and the mask (n,) of each group that is not empty.

    Raises:
        UserError: the edges do not ascend, or a text is shorter than the first edge.
    """
    if not edges or any(low >= high for low, high in pairwise(edges)):
        raise UserError(
            f"The edges {list(edges)} do not ascend; write the shortest length of each group, as in 1, 5, 9."
        )
    lengths = np.array([len(text.split()) for text in texts], dtype=np.int64)
    if len(lengths) and lengths.min() < edges[0]:
        raise UserError(
            f"Text {int(lengths.argmin()) + 1} has {lengths.min()} words, and the first group begins at {edges[0]}; "
            "begin at a lower edge, or leave the text out."
        )
    longest = [*(edge - 1 for edge in edges[1:]), None]
    groups = [
        (low, high, (lengths >= low) & (lengths <= (np.inf if high is None else high)))
        for low, high in zip(edges, longest, strict=True)
    ]
    return [group for group in groups if group[2].any()]


def length_slices(texts: Sequence[str], edges: Sequence[int] = TEXT_EDGES) -> dict[str, np.ndarray]:
    """Return a slice for each group of lengths: "1-10 words", "11-20 words", ..., "401+ words".

    Raises:
        UserError: see ``length_groups``.
    """
    return {
        f"{low}+ words" if high is None else f"{low}-{high} words": mask
        for low, high, mask in length_groups(texts, edges)
    }


def column_slices(name: str, values: Sequence[Any]) -> dict[str, np.ndarray]:
    """Return a slice for each value of a column (n,), such as "label: positive" or "rating: 9"."""
    return {
        f"{name}: {value}": np.array([one == value for one in values], dtype=bool) for value in dict.fromkeys(values)
    }


def word_slices(texts: Sequence[str], words: Iterable[str]) -> dict[str, np.ndarray]:
    """Return a slice for each word, such as "word: not": the texts that contain it as a whole word, in any case."""
    held = [{word.casefold() for word in _WORD.findall(text)} for text in texts]
    return {f"word: {word}": np.array([word.casefold() in each for each in held], dtype=bool) for word in words}


def scores_by_slice(
    metric: evaluate.Metric,
    predictions: Sequence[Any],
    references: Sequence[Any],
    slices: Mapping[str, Sequence[bool] | np.ndarray],
) -> dict[str, dict[str, Any]]:
    """Compute a metric on each slice.

    Args:
        metric: a metric, or several joined by ``evaluate.combine``.
        predictions, references: (n,) arguments of the metric.
        slices: masks (n,) by name.

    Returns:
        By name, the number of ``examples`` and, unless it is 0, the scores of the metric.

    Raises:
        UserError: the lengths differ, or a mask does not consist of bools.
    """
    check_examples(predictions=predictions, references=references)
    scores: dict[str, dict[str, Any]] = {}
    for name, mask in slices.items():
        chosen = np.asarray(mask)
        if chosen.dtype != bool or chosen.shape != (len(predictions),):
            raise UserError(
                f"The slice {name!r} holds {chosen.size} values of type {chosen.dtype} for {len(predictions)} "
                "examples; give one True or False for each."
            )
        scores[name] = {"examples": int(chosen.sum())}
        if chosen.any():
            kept = np.flatnonzero(chosen).tolist()
            scores[name] |= metric.compute(
                predictions=[predictions[i] for i in kept], references=[references[i] for i in kept]
            )
    return scores
