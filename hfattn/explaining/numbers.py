"""Measures of attention: entropy, distance, diagonality, coverage, alignment error rate, agreement with saliency.

These measures do not explain the answer of a model. A weight shows how much of a vector was read, not its content or
how it was used. Jain & Wallace (2019, "Attention is not Explanation") find that the weights of text classifiers agree
little with gradients, and that other weights can give the same answer. Wiegreffe & Pinter (2019, "Attention is not not
Explanation") reply that the other weights must come from a model that could have learned them, and that there can be
more than one explanation. Serrano & Smith (2019) remove the words with the largest weights, and the answer often stays
the same. To find what an answer depends on, use gradients (``saliency``) or change the input, and compare with
``agreement``.

Shapes: T target (query) tokens, S source (key) tokens. All functions take weights (..., T, S), such as
``record.matrix(layer, head)`` or ``record.weights``, and compute in float64.
"""

import math
from collections.abc import Collection
from typing import Any, NamedTuple

import torch

from ..models.alignment import AttentionRecord

Links = Collection[tuple[int, int]]  # pairs (target index, source index)


def _distributions(weights: torch.Tensor) -> torch.Tensor:
    """Return rows divided by their sum; rows of zeros become NaN."""
    if weights.ndim < 2:
        raise ValueError(f"weights has shape {tuple(weights.shape)}; pass rows of weights, (..., T, S).")
    weights = weights.double()
    if not weights.isfinite().all():
        raise ValueError("The weights contain NaN or infinity; check the model that produced them.")
    if (weights < 0).any():
        raise ValueError(
            "Some weights are negative, as in compositional attention, so they are not a distribution; pass their "
            "absolute values to measure their size."
        )
    return weights / weights.sum(-1, keepdim=True)


def entropy(weights: torch.Tensor, *, normalized: bool = False) -> torch.Tensor:
    """Return the entropy of each row, H_i = -Σ_j a_ij log a_ij, in nats (Shannon 1948).

    It is 0 if one token has all the weight, and log S if all weights are equal.

    Args:
        weights: (..., T, S), at least 0; each row is divided by its sum.
        normalized: divide by log S, for values between 0 and 1 at any length (0 if S is 1).

    Returns:
        (..., T) in float64; NaN for rows of zeros.

    Raises:
        ValueError: if a weight is negative, NaN or infinite.
    """
    weights = _distributions(weights)
    nats = torch.special.entr(weights).sum(-1)
    return nats / math.log(max(weights.shape[-1], 2)) if normalized else nats


def effective_tokens(weights: torch.Tensor) -> torch.Tensor:
    """Return the effective number of tokens that each row attends to: exp(H_i), from 1 to S.

    Args:
        weights: as for ``entropy``.

    Returns:
        (..., T) in float64; NaN for rows of zeros.

    Raises:
        ValueError: as for ``entropy``.
    """
    return entropy(weights).exp()


def mean_distance(weights: torch.Tensor) -> torch.Tensor:
    """Return the mean distance of self-attention, D_i = Σ_j a_ij |i - j|, in tokens (Vig & Belinkov 2019).

    Args:
        weights: (..., T, T), at least 0; each row is divided by its sum.

    Returns:
        (..., T) in float64; NaN for rows of zeros.

    Raises:
        ValueError: if T and S differ, or in the cases of ``entropy``.
    """
    weights = _distributions(weights)
    if weights.shape[-2] != weights.shape[-1]:
        raise ValueError(
            f"weights has {weights.shape[-2]} rows for {weights.shape[-1]} tokens; the distance within a text needs a "
            "row for each token, as in self-attention."
        )
    places = torch.arange(weights.shape[-1], dtype=torch.float64)
    return (weights * (places[:, None] - places).abs()).sum(-1)


def diagonality(weights: torch.Tensor) -> torch.Tensor:
    """Return the diagonality of an alignment: Pearson's correlation of i and j under the probability a_ij / T.

    ρ = Σ (i - ī)(j - j̄) a_ij / √(Σ (i - ī)² a_ij · Σ (j - j̄)² a_ij). It is 1 if the weights lie on a straight line from
    the first tokens to the last, 0 if all rows are equal, and -1 if the order is reversed; it does not depend on the
    scale of T and S.

    Args:
        weights: (..., T, S), at least 0; each row is divided by its sum, and rows of zeros are left out.

    Returns:
        (...) in float64; NaN if i or j has a single value, for example with one token on a side.

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
    tiny = 1e-12  # rounding error of a variance of 0
    defined = (variances[0] > tiny) & (variances[1] > tiny)
    return torch.where(defined, covariance / (variances[0] * variances[1]).sqrt(), torch.nan)


def coverage(weights: torch.Tensor) -> torch.Tensor:
    """Return the total weight of each source token, C_j = Σ_i a_ij (Tu et al. 2016, section 3.1.1, fertility 1).

    0 means that a token was skipped, 1 that it was attended to once, 2 that it was attended to twice.

    Args:
        weights: (..., T, S), used unchanged.

    Returns:
        (..., S) in float64.
    """
    return weights.double().sum(-2)


def coverage_deviation(weights: torch.Tensor) -> torch.Tensor:
    """Return the mean over j of |1 - C_j|, with C_j from ``coverage``.

    Args:
        weights: (..., T, S), used unchanged.

    Returns:
        (...) in float64; 0 if each source token was attended to once.
    """
    return (1 - coverage(weights)).abs().mean(-1)


def links(weights: torch.Tensor, threshold: float | None = None) -> set[tuple[int, int]]:
    """Return attention as an alignment: a set of pairs (target index, source index).

    Args:
        weights: (T, S).
        threshold: link each target token to all source tokens with at least this weight; None links it to the source
            token with the largest weight.
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
    """Return the alignment error rate, AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|) (Och & Ney 2003, section 5).

    A are the links of the attention, S the links that must exist, and P, which contains S, the links that may exist.

    Args:
        record: a record, whose mean over layers and heads is used, or weights (T, S).
        sure: S, as pairs (target index, source index).
        possible: P, with or without the links of S; default S.
        threshold: as for ``links``.

    Returns:
        From 0 to 1; 0 if all sure links exist and all existing links are possible.

    Raises:
        ValueError: if there is no link to compare, or a link is out of range.
    """
    weights = record.matrix() if isinstance(record, AttentionRecord) else record
    found, needed = links(weights, threshold), set(sure)
    allowed = needed | set(possible or ())
    for i, j in allowed:
        if not (0 <= i < weights.shape[0] and 0 <= j < weights.shape[1]):
            raise ValueError(
                f"The link ({i}, {j}) is out of range: there are {weights.shape[0]} target and {weights.shape[1]} "
                "source tokens; write (target, source), counted from 0."
            )
    if not found and not needed:
        raise ValueError("Neither the attention nor the alignment has a link; lower the threshold, or pass sure links.")
    return 1 - (len(found & needed) + len(found & allowed)) / (len(found) + len(needed))


class Agreement(NamedTuple):
    """Agreement of two rankings of the tokens of a text.

    Args:
        kendall: τ_b, from -1 (reversed order) to 1 (same order); NaN if all values of one ranking are equal.
        spearman: ρ, with the same range.
        top_k: fraction of the k most important tokens of one ranking that are among the top k of the other.
        k: number of tokens at the top.
    """

    kendall: float
    spearman: float
    top_k: float
    k: int


def agreement(weights: torch.Tensor, scores: torch.Tensor, k: int = 3) -> Agreement:
    """Return the agreement of attention and saliency (Jain & Wallace 2019, section 4.1; Wiegreffe & Pinter 2019).

    Kendall's τ_b = Σ_{i<j} s_ij t_ij / √(Σ s_ij² Σ t_ij²), with the signs s_ij and t_ij of the differences. Spearman's
    ρ is Pearson's correlation of the ranks; equal values have their mean rank.

    Args:
        weights: (S,), such as a row of ``record.matrix()``.
        scores: (S,), such as ``saliency(...).scores``; absolute values are compared.
        k: number of tokens at the top; fewer if the text is shorter.

    Raises:
        ValueError: if the shapes differ, there are fewer than two tokens, or k is below 1.
    """
    if weights.ndim != 1 or weights.shape != scores.shape:
        raise ValueError(
            f"weights has shape {tuple(weights.shape)} and scores {tuple(scores.shape)}; pass one number for each "
            "token of the same text."
        )
    if len(weights) < 2 or k < 1:
        raise ValueError(f"There are {len(weights)} tokens and k is {k}; pass at least 2 tokens and a k of at least 1.")
    pair = [values.detach().double().abs() for values in (weights, scores)]
    signs = [(values[:, None] - values).sign() for values in pair]
    ranks = [sign.sum(-1) for sign in signs]  # twice the mean rank, around 0
    k = min(k, len(weights))
    first, second = (set(values.argsort(descending=True, stable=True)[:k].tolist()) for values in pair)
    return Agreement(_correlation(*signs), _correlation(*ranks), len(first & second) / k, k)


def _correlation(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return Σ xy / √(Σ x² Σ y²) for numbers with mean 0."""
    norm = ((one * one).sum() * (other * other).sum()).sqrt()
    return float((one * other).sum() / norm) if norm > 0 else math.nan


def summary(record: AttentionRecord) -> dict[str, Any]:
    """Return the measures of each layer and head, for a table or JSON.

    Returns:
        ``kind``, ``tokens`` (S), ``target_tokens`` (T) and ``heads``: for each ``layer`` and ``head`` the means over
        rows of ``entropy`` (nats), ``normalized_entropy`` and ``effective_tokens``; ``diagonality``; and
        ``coverage_deviation`` for cross-attention, ``mean_distance`` for self-attention with a row for each token.
        Undefined values are None.

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
