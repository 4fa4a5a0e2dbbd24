"""Pooling: one vector of a text from the outputs of an encoder at its tokens."""

import torch

POOLINGS = ("first", "mean", "max", "mean_sqrt")


def pool(hidden_states: torch.Tensor, mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """Reduce the outputs of an encoder to one vector per text.

    Args:
        hidden_states: (B, T, D).
        mask: (B, T), 1 for a token and 0 for padding, which may be on either side.
        pooling: "first" (the first token, [CLS] of BERT), "mean", "max", or "mean_sqrt", the sum divided by the square
            root of the number of tokens (Cer et al. 2018, section 3.1).

    Returns:
        (B, D). The vector of a text without tokens is zero.
    """
    kept = mask[..., None].bool()  # (B, T, 1)
    if hidden_states.shape[1] == 0:
        return hidden_states.sum(1)
    if pooling == "first":
        first = mask.long().argmax(1)
        return hidden_states[torch.arange(len(mask), device=mask.device), first] * kept.any(1)
    if pooling == "max":
        return hidden_states.masked_fill(~kept, float("-inf")).amax(dim=1).masked_fill(~kept.any(1), 0.0)
    number = kept.sum(dim=1).clamp(min=1)
    total = hidden_states.masked_fill(~kept, 0.0).sum(dim=1)
    return total / (number if pooling == "mean" else number.to(total.dtype).sqrt())
