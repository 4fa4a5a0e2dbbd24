"""Output of the text classifiers."""

from dataclasses import dataclass

import torch
from transformers.modeling_outputs import SequenceClassifierOutput


@dataclass
class PooledClassifierOutput(SequenceClassifierOutput):
    """A ``SequenceClassifierOutput`` with the vector of each text.

    Attributes:
        pooler_output: the classifier's input (B, W) before dropout, if requested.
    """

    pooler_output: torch.Tensor | None = None
