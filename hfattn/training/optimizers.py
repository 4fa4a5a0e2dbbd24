"""Optimizers by the names that recipes use."""

from typing import TYPE_CHECKING, Any

import torch

from ..errors import UserError

if TYPE_CHECKING:
    from transformers import TrainingArguments

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "adafactor": torch.optim.Adafactor,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "rmsprop": torch.optim.RMSprop,
}


def check_weight_decay(name: str, weight_decay: float) -> None:
    """Check that an optimizer can decouple the weight decay from the gradient.

    Raises:
        UserError: it cannot, and there is weight decay.
    """
    if name == "rmsprop" and weight_decay != 0:
        raise UserError("rmsprop has no decoupled weight decay; write training.weight_decay: 0, or optimizer: adamw.")


def optimizer_class_and_arguments(
    name: str, arguments: "TrainingArguments"
) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    """Return the ``optimizer_cls_and_kwargs`` of ``Trainer``, with the rate and the moments of ``TrainingArguments``.

    Weight decay is decoupled from the gradient (Loshchilov & Hutter 2019); ``Trainer`` applies it to the weights, not
    to biases and norms. ``adam_beta2`` is the decay of the mean of squared gradients, for RMSprop too (where Keras
    calls it rho and torch alpha).

    Adafactor (Shazeer & Stern 2018, algorithms 4 and 5) does not use the ``adam_`` fields. Its rate is relative: the
    root mean square of a step is at most the rate times that of the weights, and the rate is at most 1 / sqrt(t) at
    update t.

    Raises:
        UserError: weight decay is set for an optimizer that does not decouple it.
    """
    check_weight_decay(name, arguments.weight_decay)
    if name == "adafactor":
        return OPTIMIZERS[name], {"lr": arguments.learning_rate}
    kwargs: dict[str, Any] = {"lr": arguments.learning_rate, "eps": arguments.adam_epsilon}
    if name == "rmsprop":
        kwargs["alpha"] = arguments.adam_beta2
    else:
        kwargs["betas"] = (arguments.adam_beta1, arguments.adam_beta2)
    if name in {"nadam", "radam"}:
        kwargs["decoupled_weight_decay"] = True
    return OPTIMIZERS[name], kwargs


def check_optim(arguments: "TrainingArguments", name: str) -> None:
    """Check that ``Trainer`` can make the optimizer that ``training.optim`` names, before anything is loaded.

    Args:
        arguments: the training arguments.
        name: the field ``optimizer``.

    Raises:
        UserError: ``optimizer`` names another one, or a package is missing.
    """
    from transformers import Trainer

    chosen = getattr(arguments.optim, "value", arguments.optim)
    if name != "adamw":
        raise UserError(f"optimizer {name} and training.optim {chosen} are two optimizers; remove one.")
    try:
        Trainer.get_optimizer_cls_and_kwargs(arguments)
    except (ImportError, RuntimeError) as error:
        raise UserError(f"training.optim {chosen} cannot be used here: {' '.join(str(error).split())}") from None
    except ValueError:
        return  # it needs the model, which Trainer has
