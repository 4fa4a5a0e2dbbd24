"""Output and loss of the classifiers."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers.modeling_outputs import SequenceClassifierOutput


@dataclass
class PooledClassifierOutput(SequenceClassifierOutput):
    """A ``SequenceClassifierOutput`` with the vector of each text.

    Attributes:
        pooler_output: the classifier's input (B, W) before dropout, if requested.
    """

    pooler_output: torch.Tensor | None = None


def classification_loss(
    loss_function: Any,
    logits: torch.Tensor,
    labels: torch.Tensor,
    config: Any,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """Return the loss of a classifier or of a regression, whichever ``config.problem_type`` names.

    Args:
        loss_function: ``loss_function`` of the model.
        logits: (B, C).
        labels: (B,) class ids; for multi-label classification (B, C) zeros and ones, or (B,) if there is one label; for
            a regression (B,) or (B, C) numbers.
        config: configuration of the model.
        num_items_in_batch: number of labels in all batches of a training step; the loss is then the contribution of
            this batch to the mean of the step, instead of the mean of the batch.

    Raises:
        ValueError: the labels of a multi-label classification have another shape.
    """
    if config.problem_type == "multi_label_classification":
        if labels.shape not in (logits.shape, logits.squeeze(-1).shape):
            raise ValueError(
                f"labels has the shape {tuple(labels.shape)}; pass zeros and ones of shape {tuple(logits.shape)}."
            )
        labels = labels.to(logits.dtype).view_as(logits)
    loss = loss_function(labels=labels, pooled_logits=logits, config=config)
    if num_items_in_batch is not None:
        # Trainer adds up the losses of the batches of a step.
        loss = loss * labels.ne(-100).sum() / num_items_in_batch
    return loss
