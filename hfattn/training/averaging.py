"""Averages of a run's weights, which often generalise better than the last ones.

- ``ema``: the exponential moving average of the weights after each update (Polyak & Juditsky 1992; as in Vaswani's
  tensor2tensor, the decay is min(ema, (1 + t) / (10 + t)) at update t, so that the first weights are soon forgotten).
- ``last``: the mean of the weights in the last checkpoints (Vaswani et al. 2017, section 6.1).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import SAFE_WEIGHTS_NAME

RAW_WEIGHTS = "raw_weights.safetensors"


@strict
@dataclass
class AveragingConfig:
    """The section ``averaging`` of a recipe: one of the two, or none."""

    ema: float | None = None  # decay of an exponential moving average, such as 0.999
    last: int | None = None  # number of last checkpoints to take the mean of; of all, where a run has fewer

    def validate_choice(self) -> None:
        if self.ema is not None and self.last is not None:
            raise ValueError("ema and last are two ways to average; write one of them.")
        if self.ema is not None and not 0 < self.ema < 1:
            raise ValueError(f"ema is {self.ema}; write a decay between 0 and 1, such as 0.999.")
        if self.last is not None and self.last < 2:
            raise ValueError(f"last is {self.last}; write a number of checkpoints of at least 2.")


class MovingAverage(TrainerCallback):
    """The exponential moving average of a model's trained parameters, kept beside them.

    Args:
        model: whose parameters are averaged.
        decay: of the average, once the run is long enough for it.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.parameters = {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}
        self.restart()

    def restart(self) -> None:
        """Begin with the weights as they are."""
        self.average = [tensor.detach().clone() for tensor in self.parameters.values()]
        self.raw: list[torch.Tensor] = []

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        step = state.global_step + 1
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.average, self._tensors(), 1 - decay)

    def _tensors(self) -> list[torch.Tensor]:
        return [tensor.detach() for tensor in self.parameters.values()]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The model has the averaged weights, and its own again afterwards."""
        self.raw = [tensor.clone() for tensor in self._tensors()]
        self.apply()
        try:
            yield
        finally:
            torch._foreach_copy_(self._tensors(), self.raw)
            self.raw = []

    def apply(self) -> None:
        """Give the model the averaged weights for good."""
        torch._foreach_copy_(self._tensors(), self.average)

    def save_raw(self, checkpoint: str) -> None:
        """Write the weights that training goes on with beside the averaged ones, which the checkpoint has."""
        tensors = {name: raw.contiguous() for name, raw in zip(self.parameters, self.raw, strict=True)}
        save_file(tensors, Path(checkpoint) / RAW_WEIGHTS)

    def resume(self, checkpoint: str) -> None:
        """Take the average from the model, which was loaded from a checkpoint, and its own weights from beside it."""
        self.restart()
        raw = load_file(Path(checkpoint) / RAW_WEIGHTS)
        for name, tensor in self.parameters.items():
            tensor.data.copy_(raw[name])


def mean_weights(checkpoints: Sequence[Path]) -> dict[str, torch.Tensor]:
    """The mean of the weights in checkpoints, added up in float64 and rounded once."""
    sums: dict[str, torch.Tensor] = {}
    dtypes = {}
    for checkpoint in checkpoints:
        for name, tensor in load_file(checkpoint / SAFE_WEIGHTS_NAME).items():
            dtypes[name] = tensor.dtype
            sums[name] = sums.get(name, 0) + tensor.double()
    return {name: (total / len(checkpoints)).to(dtypes[name]) for name, total in sums.items()}


__all__ = ["AveragingConfig", "MovingAverage", "mean_weights"]
