"""Which neighboring layers attend alike, and so may share their attention (Xiao et al. 2019, section 3.3)."""

import itertools
import math
from collections.abc import Iterable

import torch

from ..models.alignment import AttentionRecord
from .numbers import entropy


def layer_similarity(records: Iterable[AttentionRecord]) -> torch.Tensor:
    """Return how alike the layers of a model attend: 1 - JS, with the Jensen-Shannon divergence in bits.

        JS(p, q) = H((p + q) / 2) - (H(p) + H(q)) / 2

    p and q are the weights of two layers for the same query, as the mean over their heads: the order of the heads of a
    layer means nothing. The similarity is the mean over all queries, 1 if they are equal and 0 if no key has a weight
    in both layers.

    Args:
        records: attention of texts, all of one kind and one model; weights (layers, heads, T, S).

    Returns:
        (layers, layers) in float64.

    Raises:
        ValueError: there is no record with a query, or the records differ in their layers or their kind.
    """
    records = list(records)
    if len({(record.kind, record.weights.shape[0]) for record in records}) > 1:
        raise ValueError(
            "The records have different kinds or numbers of layers; pass those of one attention of a model."
        )
    totals, number = torch.zeros(()), 0
    for record in records:
        weights = record.weights.double().mean(1)  # (L, T, S)
        weights = weights[:, (weights.sum(-1) > 0).all(0)]  # a query without any key has no distribution
        weights = weights / weights.sum(-1, keepdim=True)
        own = entropy(weights)  # (L, T)
        both = entropy((weights[:, None] + weights) / 2)  # (L, L, T)
        totals = totals + (both - (own[:, None] + own) / 2).sum(-1)
        number += weights.shape[1]
    if number == 0:
        raise ValueError("There is no query in the records; pass the attention of at least one text.")
    return 1 - totals / (number * math.log(2))


def attention_groups(records: Iterable[AttentionRecord], threshold: float) -> list[int]:
    """Return the sizes of groups of layers that attend alike, as fields such as ``decoder_attention_groups`` take them.

    From the first layer on, a group has as many layers as possible: the mean of ``layer_similarity`` over the pairs of
    its layers is above the threshold. The paper trains a model with these groups, and repeats both steps until the
    groups stay the same.

    Args:
        records: see ``layer_similarity``.
        threshold: θ, from 0 (one group) to 1 (groups of one layer).

    Raises:
        ValueError: the threshold is out of range, or see ``layer_similarity``.
    """
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold is {threshold}; write a similarity from 0 to 1, such as 0.9.")
    similarity = layer_similarity(records)
    num_layers, groups = len(similarity), list[int]()
    while (start := sum(groups)) < num_layers:
        for size in range(num_layers - start, 0, -1):
            pairs = [similarity[pair].item() for pair in itertools.combinations(range(start, start + size), 2)]
            if not pairs or sum(pairs) / len(pairs) > threshold:
                groups.append(size)
                break
    return groups
