"""What a classifier of texts returns."""

from dataclasses import dataclass

import torch
from transformers.modeling_outputs import SequenceClassifierOutput


@dataclass
class PooledClassifierOutput(SequenceClassifierOutput):
    """A ``SequenceClassifierOutput`` with, where it was asked for, the vector of each text that the classifier reads.

    Attributes:
        pooler_output: (B, W), before dropout.
    """

    pooler_output: torch.Tensor | None = None


__all__ = ["PooledClassifierOutput"]
