"""Optimizers by the names that recipes use."""

from typing import Any

import torch
from transformers import TrainingArguments

from ..errors import UserError

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "rmsprop": torch.optim.RMSprop,
}


def optimizer_class_and_arguments(
    name: str, arguments: TrainingArguments
) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    """Return the ``optimizer_cls_and_kwargs`` of ``Trainer``, with the rate and the moments of ``TrainingArguments``.

    Weight decay is decoupled from the gradient (Loshchilov & Hutter 2019); ``Trainer`` applies it to the weights, not
    to biases and norms. ``adam_beta2`` is the decay of the mean of squared gradients, for RMSprop too (where Keras
    calls it rho and torch alpha).

    Raises:
        UserError: weight decay is set for an optimizer that does not decouple it.
    """
    if name == "rmsprop" and arguments.weight_decay != 0:
        raise UserError("rmsprop has no decoupled weight decay; write training.weight_decay: 0, or optimizer: adamw.")
    kwargs: dict[str, Any] = {"lr": arguments.learning_rate, "eps": arguments.adam_epsilon}
    if name == "rmsprop":
        kwargs["alpha"] = arguments.adam_beta2
    else:
        kwargs["betas"] = (arguments.adam_beta1, arguments.adam_beta2)
    if name in {"nadam", "radam"}:
        kwargs["decoupled_weight_decay"] = True
    return OPTIMIZERS[name], kwargs
