"""Pooling of the outputs of recurrent layers to one vector, and the classifier over it.

Shapes: B batch, S steps, W width of an output, P width of the pooled vector, C outputs of the classifier.
"""

import torch
from torch import nn


def pool_steps(pooling: str, outputs: torch.Tensor, last: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Pool outputs (B, S, W) over the real steps to (B, P).

    Args:
        pooling: "last", the state after the last step read; "mean"; "max"; or "concat", [h_T; max_t h_t; mean_t h_t]
            (Howard & Ruder 2018, section 3.3).
        outputs: (B, S, W).
        last: (B, W), the state after the last step read, which is also the vector of texts without a step.
        mask: boolean (B, S), True where a step is real; None if all are.
    """
    if pooling == "last" or (outputs.shape[1] == 0 and pooling != "concat"):
        return last
    if pooling == "concat":
        others = [pool_steps(name, outputs, last, mask) for name in ("max", "mean")]
        return torch.cat([last, *others], dim=-1)
    if mask is None:
        return outputs.mean(1) if pooling == "mean" else outputs.amax(1)
    padding, lengths = ~mask[..., None], mask.sum(1, keepdim=True)
    if pooling == "mean":
        return outputs.masked_fill(padding, 0).sum(1) / lengths.clamp(min=1)
    highest = outputs.masked_fill(padding, float("-inf")).amax(1)
    return highest.masked_fill(lengths == 0, 0)


class RowNorm(nn.BatchNorm1d):
    """Batch norm that uses its running statistics for a single row, which has no variance, also in training."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if not self.training or len(inputs) > 1:
            return super().forward(inputs)
        return nn.functional.batch_norm(
            inputs, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
        )


class HiddenClassifier(nn.Module):
    """A classifier with one hidden layer of ReLU units; batch norm and dropout precede each of its two linear layers
    (Howard & Ruder 2018, section 3.3).

    Args:
        in_features: P.
        hidden_size: units of the hidden layer; 50 in the paper.
        out_features: C.
        dropout: dropout probability before each linear layer.
    """

    def __init__(self, in_features: int, hidden_size: int, out_features: int, dropout: float) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.input_norm, self.hidden_norm = RowNorm(in_features), RowNorm(hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.Linear(in_features, hidden_size)
        self.output = nn.Linear(hidden_size, out_features)

    def forward(self, pooled: torch.Tensor) -> torch.Tensor:
        """Return logits (B, C) for pooled vectors (B, P)."""
        hidden = torch.relu(self.hidden(self.dropout(self.input_norm(pooled))))
        return self.output(self.dropout(self.hidden_norm(hidden)))


def make_classifier(in_features: int, hidden_size: int | None, out_features: int, dropout: float) -> nn.Module:
    """Return a ``HiddenClassifier``, or one linear layer if ``hidden_size`` is None (dropout is then elsewhere)."""
    if hidden_size is None:
        return nn.Linear(in_features, out_features)
    return HiddenClassifier(in_features, hidden_size, out_features, dropout)


__all__ = ["HiddenClassifier", "RowNorm", "make_classifier", "pool_steps"]
