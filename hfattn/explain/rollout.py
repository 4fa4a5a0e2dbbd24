"""Attention rollout (Abnar & Zuidema 2020): what a position sees of the text through all layers."""

import torch

from ..models.alignment import AttentionRecord


def rollout(record: AttentionRecord) -> AttentionRecord:
    """Follow a self-attention through its layers, back to the tokens.

    In each layer, the residual connection carries a position's own vector on beside what it attends to: Ã_l =
    ½ A_l + ½ I, with the mean over heads as A_l and rows that sum to one. What the last layer's positions see of the
    tokens is then the product Ã_L … Ã_1 (section 3 and equation 1).

    What it leaves out: the values that are carried, the feed-forward layers, and how large the residual really is. It
    follows the weights, and inherits what they do not say (see ``numbers``).

    Args:
        record: of the kind "self", "encoder" or "decoder", in which every token attends: T = S.

    Returns:
        A record of the same tokens and kind with weights (1, 1, T, T), whose rows sum to one.

    Raises:
        ValueError: the record is of a cross-attention, or some of its tokens did not attend.
    """
    if record.kind == "cross":
        raise ValueError(
            "Rollout multiplies layers that read one text, and this record is of a cross-attention; take the "
            'self-attention of a side, alignment(outputs, kind="encoder") or "decoder".'
        )
    if record.tokens != record.target_tokens:
        raise ValueError(
            f"Rollout needs a row for each token, and this record has {len(record.target_tokens)} rows for "
            f"{len(record.tokens)} tokens; take the record of a forward pass over the whole text."
        )
    weights = record.weights if record.weights.dtype == torch.float64 else record.weights.float()
    identity = torch.eye(len(record.tokens), dtype=weights.dtype)
    product = identity
    for layer in weights.mean(dim=1):  # (T, T)
        mixed = (layer + identity) / 2
        product = mixed / mixed.sum(-1, keepdim=True) @ product
    return AttentionRecord(record.tokens, record.target_tokens, product[None, None], record.kind)


__all__ = ["rollout"]
