"""Attention pooling: one vector for a sequence (Yang et al. 2016).

Shapes: ``…`` any batch dimensions, S steps, H width of a step. Masks are boolean, True at real steps.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from .attention import Attention
from .attention_distributions import Distribution
from .attention_scores import Parametric, Score


class AttentionPooling(Parametric):
    """Pooling to one vector: a learned query u attends to keys tanh(W h_i + b) (Yang et al. 2016, eq. 5-7).

    Parameters: W (A, H), b (A), u (A), and those of the score.

    Args:
        size: H.
        hidden_size: A; default H.
        score, distribution, score_options, distribution_options: see ``Attention``; "dot" and "softmax" in the paper.
    """

    W: torch.Tensor
    b: torch.Tensor
    u: torch.Tensor

    def __init__(
        self,
        size: int,
        hidden_size: int | None = None,
        score: str | Score = "dot",
        distribution: str | Distribution = "softmax",
        score_options: Mapping[str, Any] | None = None,
        distribution_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        hidden_size = size if hidden_size is None else hidden_size
        self._parameter("W", hidden_size, size)
        self._parameter("b", hidden_size)
        self._parameter("u", hidden_size)
        self.attention = Attention(hidden_size, hidden_size, score, distribution, score_options, distribution_options)
        self.initialize_()

    def forward(self, inputs: torch.Tensor, mask: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Pool (…, S, H), with a boolean mask (…, S), to (…, H); return it with the weights (…, S).

        The vector of a sequence without real steps is zero.
        """
        keys = nn.functional.linear(inputs, self.W, self.b).tanh()
        query = self.u.to(keys.dtype).expand(*inputs.shape[:-2], 1, -1)  # (…, 1, A)
        pooled, weights = self.attention(
            query, self.attention.prepare(keys), inputs, None if mask is None else mask[..., None, :]
        )
        return pooled.squeeze(-2), weights.squeeze(-2)


__all__ = ["AttentionPooling"]
