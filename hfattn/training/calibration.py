"""Division of a classifier's logits by a temperature, in its weights."""

from collections.abc import Mapping

import torch
from torch import nn
from transformers import PreTrainedModel

from ..errors import UserError


def output_layer(model: nn.Module, classes: int) -> nn.Linear:
    """Return the last linear layer of a classifier with an output per class, such as ``classifier`` or ``score``.

    Raises:
        UserError: there is none.
    """
    layers = [each for each in model.modules() if isinstance(each, nn.Linear) and each.out_features == classes]
    if not layers:
        raise UserError(
            f"evaluation.calibration divides the last linear layer, and {type(model).__name__} has none; write false."
        )
    return layers[-1]


@torch.no_grad()
def divide_logits(model: PreTrainedModel, temperature: float) -> None:
    """Divide the weights and biases of the output layer, and so the logits of the model, by a temperature.

    A copy of the weights is then calibrated in every program that reads it.
    """
    for parameter in output_layer(model, model.config.num_labels).parameters():
        parameter.div_(temperature)


@torch.no_grad()
def check_calibration(model: PreTrainedModel, batch: Mapping[str, torch.Tensor]) -> None:
    """Check, before a training, that ``divide_logits`` does what it says.

    Args:
        model: a classifier; it is left as it was, in evaluation mode.
        batch: some inputs, as a data collator returns them.

    Raises:
        UserError: the logits are not a linear function of the last linear layer.
    """
    inputs = {name: tensor.to(model.device) for name, tensor in batch.items() if name not in ("labels", "windows")}
    model.eval()
    before = model(**inputs).logits.float()
    divide_logits(model, 2.0)
    halved = model(**inputs).logits.float()
    divide_logits(model, 0.5)
    if not torch.allclose(before, 2 * halved, rtol=1e-2, atol=1e-4):
        raise UserError(
            f"evaluation.calibration divides the last linear layer, and the logits of {type(model).__name__} do not "
            "follow; write false."
        )


__all__ = ["check_calibration", "divide_logits", "output_layer"]
