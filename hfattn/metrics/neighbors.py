"""Classification of feature vectors by their nearest neighbors, the evaluation of models trained without labels.

Shapes: N vectors of the bank, Q queries, D width, C classes.
"""

import torch
from torch.nn import functional

from ..errors import UserError

NEIGHBORS = 20
TEMPERATURE = 0.07
CHUNK = 1024  # queries compared at once


def neighbor_votes(
    queries: torch.Tensor,
    bank: torch.Tensor,
    labels: torch.Tensor,
    num_classes: int | None = None,
    *,
    neighbors: int = NEIGHBORS,
    temperature: float = TEMPERATURE,
) -> torch.Tensor:
    """Return the share of each class in the weighted vote of the nearest vectors of a bank.

    The k vectors with the highest cosine vote for their classes, each with the weight exp(cosine / temperature) (Wu et
    al. 2018, section 3.4; Caron et al. 2021, section 4.1). No matrix of all queries and vectors is made.

    Args:
        queries: (Q, D).
        bank: (N, D).
        labels: (N,) class of each vector of the bank.
        num_classes: C; None: the highest class of the bank, plus 1.
        neighbors: k; a smaller bank votes as a whole.
        temperature: temperature of the weights.

    Returns:
        (Q, C) in float32, whose rows add up to 1.

    Raises:
        UserError: the bank is empty, or its vectors and labels differ in number.
    """
    if len(bank) != len(labels):
        raise UserError(f"The bank has {len(bank)} vectors and {len(labels)} labels; give one label for each vector.")
    if not len(bank):
        raise UserError("The bank has no vectors; give at least one vector with its label.")
    num_classes = int(labels.max()) + 1 if num_classes is None else num_classes
    bank = functional.normalize(bank.float(), dim=-1)
    labels = labels.to(bank.device).long()
    votes = []
    for chunk in queries.split(CHUNK):
        cosines = functional.normalize(chunk.float(), dim=-1) @ bank.T  # (chunk, N)
        nearest = cosines.topk(min(neighbors, len(bank)), dim=-1)
        weights = (nearest.values / temperature).softmax(-1)
        votes.append(weights.new_zeros(len(chunk), num_classes).scatter_add_(-1, labels[nearest.indices], weights))
    return torch.cat(votes)


def neighbor_accuracy(
    queries: torch.Tensor,
    query_labels: torch.Tensor,
    bank: torch.Tensor,
    labels: torch.Tensor,
    *,
    neighbors: int = NEIGHBORS,
    temperature: float = TEMPERATURE,
) -> float:
    """Return the share of queries, from 0 to 1, whose class wins the vote (``neighbor_votes``).

    Args:
        queries: (Q, D).
        query_labels: (Q,) right class of each query.
        bank, labels, neighbors, temperature: as in ``neighbor_votes``.

    Raises:
        UserError: there are no queries, the bank is empty, or vectors and labels differ in number.
    """
    if not len(queries) or len(queries) != len(query_labels):
        raise UserError(
            f"There are {len(queries)} queries and {len(query_labels)} labels; give at least one query, and "
            "a label for each."
        )
    votes = neighbor_votes(queries, bank, labels, neighbors=neighbors, temperature=temperature)
    return float((votes.argmax(-1) == query_labels.to(votes.device)).double().mean())
