"""Attention rollout (Abnar & Zuidema 2020): attention to the input tokens through all layers."""

from dataclasses import replace

import torch

from ..models.alignment import AttentionRecord


def rollout(record: AttentionRecord) -> AttentionRecord:
    """Trace self-attention through all layers, back to the input tokens.

    Layer l is Ã_l = ½ A_l + ½ I: A_l is the mean over its heads, and the identity stands for the residual connection.
    The attention of the last layer to the input tokens is the product Ã_L … Ã_1 (section 3 and equation 1).

    Rollout ignores the value vectors, the feed-forward layers and the actual size of the residual. Of a vision
    Transformer, the row of the class token answers for the image. Its weights on the prefix belong to the product, so
    they are left out afterwards only, by ``AttentionRecord.maps``.

    Args:
        record: self-attention in which every token attends, T = S.

    Returns:
        A record of the same tokens and kind, with weights (1, 1, T, T) whose rows sum to 1.

    Raises:
        ValueError: if the record is of cross-attention, or there is not a row for each token.
    """
    if record.kind == "cross":
        raise ValueError(
            "Rollout needs self-attention, and this record is of cross-attention; use the self-attention of one side, "
            'alignment(outputs, kind="encoder") or "decoder".'
        )
    if record.tokens != record.target_tokens:
        raise ValueError(
            f"Rollout needs a row for each token, and this record has {len(record.target_tokens)} rows for "
            f"{len(record.tokens)} tokens; use the record of a forward pass over the whole text."
        )
    weights = record.weights if record.weights.dtype == torch.float64 else record.weights.float()
    identity = torch.eye(len(record.tokens), dtype=weights.dtype)
    product = identity
    for layer in weights.mean(dim=1):  # (T, T)
        mixed = (layer + identity) / 2
        product = mixed / mixed.sum(-1, keepdim=True) @ product
    return replace(record, weights=product[None, None])
