"""Penalties of modules on their own parameters, which are added to the loss in training."""

import torch
from torch import nn


class Penalized(nn.Module):
    """Base class of modules with a penalty."""

    def penalty(self) -> torch.Tensor | None:
        """Return what is added to the loss in training, if anything is."""
        return None


def penalized(model: nn.Module, loss: torch.Tensor, share: torch.Tensor | float = 1.0) -> torch.Tensor:
    """Add the penalties of all modules to the loss, if the model is in training mode.

    Args:
        model: the model, which may be wrapped.
        loss: loss of a batch.
        share: share of the batch in a training step of several batches.
    """
    if model.training:
        for module in model.modules():
            penalty = module.penalty() if isinstance(module, Penalized) else None
            if penalty is not None and penalty.requires_grad:  # that of a frozen module is a constant
                loss = loss + share * penalty
    return loss


def share_of_batch(targets: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None) -> torch.Tensor | float:
    """Return the share of the targets of a batch, which are not -100, in those of a training step."""
    return 1.0 if num_items_in_batch is None else targets.ne(-100).sum() / num_items_in_batch


__all__ = ["Penalized", "penalized", "share_of_batch"]
