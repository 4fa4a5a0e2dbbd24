"""Optimisers by the names that recipes use."""

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
    """The ``optimizer_cls_and_kwargs`` of ``Trainer``, with the rate and the moments of ``TrainingArguments``.

    Weight decay, which ``Trainer`` gives to the weights but not to biases and norms, is decoupled from the gradient
    (Loshchilov & Hutter 2019). ``adam_beta2`` is how slowly the mean of the squared gradients changes, in RMSprop too
    (rho in Keras, alpha in torch).

    Raises:
        UserError: no optimiser has that name, or it has no decoupled weight decay and is asked for one.
    """
    if name not in OPTIMIZERS:
        raise UserError(f"optimizer is {name!r}; write one of {', '.join(OPTIMIZERS)}.")
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
