"""Optimizers by the names that recipes use."""

from typing import Any

import torch
from transformers import Trainer, TrainingArguments
from transformers.training_args import OptimizerNames

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


def check_optim(arguments: TrainingArguments, name: str) -> None:
    """Check that ``Trainer`` can make the optimizer that ``training.optim`` names, before anything is loaded.

    Args:
        arguments: the training arguments.
        name: the field ``optimizer``.

    Raises:
        UserError: ``optimizer`` names another one, or a package is missing.
    """
    chosen = OptimizerNames(arguments.optim).value
    if name != "adamw":
        raise UserError(f"optimizer {name} and training.optim {chosen} are two optimizers; remove one.")
    try:
        Trainer.get_optimizer_cls_and_kwargs(arguments)
    except (ImportError, RuntimeError) as error:
        raise UserError(f"training.optim {chosen} cannot be used here: {' '.join(str(error).split())}") from None
    except ValueError:
        return  # it needs the model, which Trainer has
