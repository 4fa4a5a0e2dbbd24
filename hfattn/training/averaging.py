"""Averages of the weights of a training run, which often generalize better than the last weights.

- ``ema``: exponential moving average of the weights after each update (Polyak & Juditsky 1992). As in tensor2tensor,
  the decay at update t is min(ema, (1 + t) / (10 + t)), so that the initial weights are soon forgotten.
- ``last``: mean of the weights in the last checkpoints (Vaswani et al. 2017, section 6.1).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import SAFE_WEIGHTS_NAME

RAW_WEIGHTS = "raw_weights.safetensors"


class MovingAverage(TrainerCallback):
    """Exponential moving average of the trained parameters of a model.

    ``torch.optim.swa_utils.AveragedModel`` would copy the frozen parameters too, nearly the whole model with LoRA.

    Args:
        model: model whose parameters are averaged.
        decay: decay of the average after the first updates.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.parameters = {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}
        self.restart()

    def restart(self) -> None:
        """Start from the current weights."""
        self.average = [tensor.detach().clone() for tensor in self.parameters.values()]
        self.raw: list[torch.Tensor] = []

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        step = state.global_step + 1
        decay = min(self.decay, (1 + step) / (10 + step))
        get_ema_multi_avg_fn(decay)(self.average, self._tensors(), step)

    def _tensors(self) -> list[torch.Tensor]:
        return [tensor.detach() for tensor in self.parameters.values()]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Load the averaged weights into the model inside a ``with`` block, and restore its own weights afterwards."""
        self.raw = [tensor.clone() for tensor in self._tensors()]
        self.apply()
        try:
            yield
        finally:
            torch._foreach_copy_(self._tensors(), self.raw)
            self.raw = []

    def apply(self) -> None:
        """Load the averaged weights into the model permanently."""
        torch._foreach_copy_(self._tensors(), self.average)

    def save_raw(self, checkpoint: str) -> None:
        """Save the weights with which training continues, in the folder of a checkpoint with averaged weights."""
        tensors = {name: raw.contiguous() for name, raw in zip(self.parameters, self.raw, strict=True)}
        save_file(tensors, Path(checkpoint) / RAW_WEIGHTS)

    def resume(self, checkpoint: str) -> None:
        """Take the average from a model loaded from a checkpoint, then load its own weights from the same folder."""
        self.restart()
        raw = load_file(Path(checkpoint) / RAW_WEIGHTS)
        for name, tensor in self.parameters.items():
            tensor.data.copy_(raw[name])


def mean_weights(checkpoints: Sequence[Path]) -> dict[str, torch.Tensor]:
    """Return the mean of the weights in checkpoints, summed in float64 and rounded once."""
    sums: dict[str, torch.Tensor] = {}
    dtypes = {}
    for checkpoint in checkpoints:
        for name, tensor in load_file(checkpoint / SAFE_WEIGHTS_NAME).items():
            dtypes[name] = tensor.dtype
            sums[name] = sums.get(name, 0) + tensor.double()
    return {name: (total / len(checkpoints)).to(dtypes[name]) for name, total in sums.items()}
