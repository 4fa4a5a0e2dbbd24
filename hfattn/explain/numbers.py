"""Attention in numbers: how spread, how diagonal, how complete, how close to an alignment or to a saliency.

What these numbers do not say is why a model answered as it did. A weight tells how much of a vector was read, not what
the vector held, nor what was made of it. Jain & Wallace (2019, "Attention is not Explanation") find weights of text
classifiers that agree little with gradients, and other weights that give the same answer; Wiegreffe & Pinter (2019,
"Attention is not not Explanation") answer that such weights have to come from a model that could have learned them, and
that an explanation need not be the only one. Serrano & Smith (2019) remove the words with the largest weights, and the
answer often stays. So: weights are one description of a run. Where the question is what an answer depends on, ask the
gradients (``saliency``) or change the input, and see with ``agreement`` whether the descriptions say the same.

Shapes: T target (query) tokens, S source (key) tokens. All functions take weights (..., T, S), such as
``record.matrix(layer, head)`` or ``record.weights``, and compute in float64.
"""

import math
from collections.abc import Collection
from typing import Any, NamedTuple

import torch

from ..models.alignment import AttentionRecord

Links = Collection[tuple[int, int]]  # (target, source) places that belong together


def _distributions(weights: torch.Tensor) -> torch.Tensor:
    """Rows divided by their sum; those without any weight become NaN."""
    if weights.ndim < 2:
        raise ValueError(f"weights has the shape {tuple(weights.shape)}; pass rows of weights, (..., T, S).")
    weights = weights.double()
    if not weights.isfinite().all():
        raise ValueError("These weights hold what is no finite number; look for its cause in the model.")
    if (weights < 0).any():
        raise ValueError(
            "These weights are below zero in places, as a compositional attention's are, so they are no distribution "
            "to measure; pass their absolute values if their size is what you ask for."
        )
    return weights / weights.sum(-1, keepdim=True)


def entropy(weights: torch.Tensor, *, normalized: bool = False) -> torch.Tensor:
    """How spread the weights of each row are: H_i = -Σ_j a_ij log a_ij, in nats (Shannon 1948).

    It is 0 where one token has all weight, and log S where all have the same.

    Args:
        weights: (..., T, S), at least 0; a row is divided by its sum.
        normalized: divide by log S, so that it is between 0 and 1 for any length (0 where S is 1).

    Returns:
        (..., T) in float64; NaN where a row has no weight at all.

    Raises:
        ValueError: a weight is negative or no finite number.
    """
    weights = _distributions(weights)
    nats = torch.special.entr(weights).sum(-1)
    return nats / math.log(max(weights.shape[-1], 2)) if normalized else nats


def effective_tokens(weights: torch.Tensor) -> torch.Tensor:
    """How many tokens each row reads: exp(H_i), the number that equal weights of the same entropy would be spread over
    (the Hill number of order 1; the perplexity of the weights).

    Args, returns and raises as ``entropy``; from 1 to S.
    """
    return entropy(weights).exp()


def mean_distance(weights: torch.Tensor) -> torch.Tensor:
    """How far away a self-attention looks: D_i = Σ_j a_ij |i - j|, in tokens (Vig & Belinkov 2019, who average it
    over texts).

    Args:
        weights: (..., T, T), at least 0; a row is divided by its sum.

    Returns:
        (..., T) in float64; NaN where a row has no weight at all.

    Raises:
        ValueError: there are not as many rows as tokens, or as for ``entropy``.
    """
    weights = _distributions(weights)
    if weights.shape[-2] != weights.shape[-1]:
        raise ValueError(
            f"weights has {weights.shape[-2]} rows for {weights.shape[-1]} tokens; a distance within a text needs as "
            "many of both, as a self-attention has."
        )
    places = torch.arange(weights.shape[-1], dtype=torch.float64)
    return (weights * (places[:, None] - places).abs()).sum(-1)


def diagonality(weights: torch.Tensor) -> torch.Tensor:
    """How much the places that are read go forward with those that read: Pearson's correlation of i and j, drawn with
    the probability a_ij / T.

    ρ = Σ (i - ī)(j - j̄) a_ij / √(Σ (i - ī)² a_ij · Σ (j - j̄)² a_ij). It is 1 on a straight line from the first tokens
    to the last, 0 where all rows read alike, and -1 where the order is turned round; it needs no scale, whatever T and
    S are.

    Args:
        weights: (..., T, S), at least 0; a row is divided by its sum, and left out where it has none.

    Returns:
        (...) in float64; NaN where i or j has but one value, as with one token on a side.

    Raises:
        ValueError: as for ``entropy``.
    """
    joint = _distributions(weights).nan_to_num()
    joint = joint / joint.sum((-2, -1), keepdim=True)
    rows, columns = (torch.arange(size, dtype=torch.float64) for size in joint.shape[-2:])
    rows = rows - (joint.sum(-1) * rows).sum(-1, keepdim=True)  # (..., T)
    columns = columns - (joint.sum(-2) * columns).sum(-1, keepdim=True)  # (..., S)
    covariance = torch.einsum("...ts,...t,...s->...", joint, rows, columns)
    variances = [(joint.sum(-1) * rows**2).sum(-1), (joint.sum(-2) * columns**2).sum(-1)]
    tiny = 1e-12  # what rounding leaves of a variance of 0
    defined = (variances[0] > tiny) & (variances[1] > tiny)
    return torch.where(defined, covariance / (variances[0] * variances[1]).sqrt(), torch.nan)


def coverage(weights: torch.Tensor) -> torch.Tensor:
    """How much each source token was read in all: C_j = Σ_i a_ij (Tu et al. 2016, section 3.1.1, with a fertility of 1
    at the end of a translation).

    1 is a token that was read once, 0 one that was forgotten, 2 one that was read twice over.

    Args:
        weights: (..., T, S), as they are.

    Returns:
        (..., S) in float64.
    """
    return weights.double().sum(-2)


def coverage_deviation(weights: torch.Tensor) -> torch.Tensor:
    """How far from once the source tokens were read: the mean over j of |1 - C_j|, with C_j from ``coverage``.

    Args:
        weights: (..., T, S), as they are.

    Returns:
        (...) in float64; 0 where each source token was read once.
    """
    return (1 - coverage(weights)).abs().mean(-1)


def links(weights: torch.Tensor, threshold: float | None = None) -> set[tuple[int, int]]:
    """Attention as an alignment: (target, source) places.

    Args:
        weights: (T, S).
        threshold: link all source tokens with at least this weight; None links each target token to the one with the
            largest.
    """
    if threshold is not None:
        return {(i, j) for i, j in (weights >= threshold).nonzero().tolist()}
    return set(enumerate(weights.argmax(-1).tolist()))


def alignment_error_rate(
    record: AttentionRecord | torch.Tensor,
    sure: Links,
    possible: Links | None = None,
    *,
    threshold: float | None = None,
) -> float:
    """How far an attention is from a known alignment: AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|) (Och & Ney 2003,
    section 5).

    A are the links of the attention, S those that have to be there, P, which contains S, those that may be.

    Args:
        record: or weights (T, S). Of a record it is the mean over layers and heads.
        sure: (target, source) places S.
        possible: P, or those of it that are not sure; None is S.
        threshold: as for ``links``.

    Returns:
        From 0 to 1; 0 where all sure links are there and all that are there are possible.

    Raises:
        ValueError: there is no link to compare, or one lies outside of the record.
    """
    weights = record.matrix() if isinstance(record, AttentionRecord) else record
    found, needed = links(weights, threshold), set(sure)
    allowed = needed | set(possible or ())
    for i, j in allowed:
        if not (0 <= i < weights.shape[0] and 0 <= j < weights.shape[1]):
            raise ValueError(
                f"The link ({i}, {j}) is outside of {weights.shape[0]} target and {weights.shape[1]} source tokens; "
                "count tokens from 0, the target's first."
            )
    if not found and not needed:
        raise ValueError("Neither the attention nor the alignment has a link; lower threshold, or pass sure links.")
    return 1 - (len(found & needed) + len(found & allowed)) / (len(found) + len(needed))


class Agreement(NamedTuple):
    """How alike two descriptions of one text rank its tokens.

    Args:
        kendall: τ_b, from -1 (the order turned round) to 1 (the same); NaN where all values of one are equal.
        spearman: ρ, likewise.
        top_k: share of the k most important tokens of the one that are among those of the other.
        k: how many these are.
    """

    kendall: float
    spearman: float
    top_k: float
    k: int


def agreement(weights: torch.Tensor, scores: torch.Tensor, k: int = 3) -> Agreement:
    """Do attention and saliency call the same tokens important (Jain & Wallace 2019, section 4.1; Wiegreffe & Pinter
    2019)?

    Kendall's τ_b = Σ_{i<j} s_ij t_ij / √(Σ s_ij² Σ t_ij²) with the signs s_ij, t_ij of the differences of both;
    Spearman's ρ is Pearson's correlation of the ranks, those of equal values being their mean.

    Args:
        weights: (S,), such as a row of ``record.matrix()``.
        scores: (S,), such as ``saliency(...).scores``; both are compared by their size, without their sign.
        k: how many tokens to compare at the top; fewer where the text is shorter.

    Raises:
        ValueError: they are not of one text, or it has fewer than two tokens, or k is below 1.
    """
    if weights.ndim != 1 or weights.shape != scores.shape:
        raise ValueError(
            f"The two have the shapes {tuple(weights.shape)} and {tuple(scores.shape)}; pass one number for each token "
            "of the same text."
        )
    if len(weights) < 2 or k < 1:
        raise ValueError(f"{len(weights)} tokens and k = {k} leave nothing to rank; take two tokens or more, and k 1.")
    pair = [values.detach().double().abs() for values in (weights, scores)]
    signs = [(values[:, None] - values).sign() for values in pair]
    ranks = [sign.sum(-1) for sign in signs]  # twice the mean rank, around 0
    k = min(k, len(weights))
    first, second = (set(values.argsort(descending=True, stable=True)[:k].tolist()) for values in pair)
    return Agreement(_correlation(*signs), _correlation(*ranks), len(first & second) / k, k)


def _correlation(one: torch.Tensor, other: torch.Tensor) -> float:
    """Σ xy / √(Σ x² Σ y²), of numbers around 0."""
    norm = ((one * one).sum() * (other * other).sum()).sqrt()
    return float((one * other).sum() / norm) if norm > 0 else math.nan


def summary(record: AttentionRecord) -> dict[str, Any]:
    """The numbers of each layer and head, for a table or JSON.

    Returns:
        ``kind``, ``tokens`` (S), ``target_tokens`` (T) and ``heads``: for each ``layer`` and ``head`` the means over
        rows of ``entropy`` (nats), ``normalized_entropy`` and ``effective_tokens``; ``diagonality``; and
        ``coverage_deviation`` of a cross-attention, ``mean_distance`` of a self-attention with a row for each token.
        What is not defined is None.

    Raises:
        ValueError: as for ``entropy``.
    """
    weights = record.weights
    numbers = {
        "entropy": entropy(weights).nanmean(-1),
        "normalized_entropy": entropy(weights, normalized=True).nanmean(-1),
        "effective_tokens": effective_tokens(weights).nanmean(-1),
        "diagonality": diagonality(weights),
    }
    if record.kind == "cross":
        numbers["coverage_deviation"] = coverage_deviation(weights)
    elif weights.shape[-2] == weights.shape[-1]:
        numbers["mean_distance"] = mean_distance(weights).nanmean(-1)
    values = {name: value.tolist() for name, value in numbers.items()}
    heads = [
        {
            "layer": layer,
            "head": head,
            **{name: None if math.isnan(each[layer][head]) else each[layer][head] for name, each in values.items()},
        }
        for layer in range(weights.shape[0])
        for head in range(weights.shape[1])
    ]
    return {
        "kind": record.kind,
        "tokens": len(record.tokens),
        "target_tokens": len(record.target_tokens),
        "heads": heads,
    }


__all__ = [
    "Agreement",
    "agreement",
    "alignment_error_rate",
    "coverage",
    "coverage_deviation",
    "diagonality",
    "effective_tokens",
    "entropy",
    "links",
    "mean_distance",
    "summary",
]
