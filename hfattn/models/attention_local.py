"""Local attention (Luong et al. 2015, section 3.2): a window of the source around one position.

Shapes: B batch, T queries, S keys, d_q width of a query. Masks are boolean, True at real steps.
"""

import torch
from torch import nn

from .attention import check_boolean
from .attention_scores import Parametric
from .score_kernels import full_precision, widen


def _positions(source_mask: torch.Tensor) -> torch.Tensor:
    """Return the number of real tokens before each token, (B, 1, S) in float32; padding is not counted."""
    check_boolean(source_mask)
    return (source_mask.cumsum(-1) - 1)[:, None].float()


class LocalMonotonic(nn.Module):
    """Local-m (Luong et al. 2015, section 3.2): query t attends to the keys from t - D to t + D.

    Args:
        half_width: D, at least 0.
    """

    def __init__(self, half_width: int) -> None:
        super().__init__()
        if half_width < 0:
            raise ValueError(f"half_width is {half_width}; write the number of keys to see on each side, 0 or more.")
        self.half_width = half_width

    def forward(
        self, query: torch.Tensor, source_mask: torch.Tensor, start: int | torch.Tensor = 0
    ) -> tuple[torch.Tensor, None]:
        """Return the window of each query.

        Args:
            query: (B, T, d_q); only the number of steps matters.
            source_mask: boolean (B, S), True at real keys; positions are counted over real keys only.
            start: position of the first query, a number or (B,). If there is padding between queries, the position of
                each query, (B, T).

        Returns:
            Window, boolean (B, T, S), True where a query may attend; and None, because the weights have no multiplier.
        """
        center = torch.as_tensor(start, device=source_mask.device)
        if center.ndim < 2:
            center = center.reshape(-1, 1) + torch.arange(query.shape[1], device=source_mask.device)  # (1 or B, T)
        near = (_positions(source_mask) - center[..., None]).abs() <= self.half_width
        return near & source_mask[:, None], None


class LocalPredictive(Parametric):
    """Local-p (Luong et al. 2015, eq. 9-10): the window is centered at p_t = S · sigmoid(v_p · tanh(W_p h_t)).

    The weights of query t are multiplied by exp(-(s - p_t)² / (2 (D/2)²)); the first position is s = 0, and S is the
    number of real keys. Parameters: W_p (d_q, d_q), v_p (d_q).

    Args:
        query_size: d_q.
        half_width: D, at least 1.
    """

    W_p: torch.Tensor
    v_p: torch.Tensor

    def __init__(self, query_size: int, half_width: int) -> None:
        super().__init__()
        if half_width < 1:
            raise ValueError(f"half_width is {half_width}; write the number of keys to see on each side, 1 or more.")
        self.half_width = half_width
        self._parameter("W_p", query_size, query_size)
        self._parameter("v_p", query_size)
        self.initialize_()

    def forward(
        self, query: torch.Tensor, source_mask: torch.Tensor, start: int | torch.Tensor = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return window and factor of each query. Arguments: see ``LocalMonotonic``; ``start`` is ignored.

        Returns:
            Window, boolean (B, T, S), and multiplier (B, T, S) for the weights, which carries the gradient of p_t.
        """
        hidden = nn.functional.linear(query, self.W_p).tanh()
        with full_precision(query):  # in half precision, neighboring positions of a long source are equal
            share = (widen(hidden) @ widen(self.v_p)).sigmoid()  # (B, T)
            center = source_mask.sum(-1, keepdim=True) * share
            distance = _positions(source_mask) - center[..., None]  # (B, T, S)
            multiplier = torch.exp(-distance.square() / (2 * (self.half_width / 2) ** 2)).to(query.dtype)
        return (distance.abs() <= self.half_width) & source_mask[:, None], multiplier


__all__ = ["LocalMonotonic", "LocalPredictive"]
