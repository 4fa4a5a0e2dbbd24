"""Training of models that predict the start and the end of an answer."""

from typing import Any

import torch
from torch.nn import functional

from .fine_tuning import FineTuningTrainer

POSITIONS = ("start_positions", "end_positions")


class ExtractiveTrainer(FineTuningTrainer):
    """A ``FineTuningTrainer`` whose loss ignores padding: the mean negative log-likelihood of start and end.

    The losses of the models themselves treat padding as a possible start. A step would then depend on which rows share
    a batch, and training on several processes would differ from training on one.
    """

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        outputs = model(**{name: tensor for name, tensor in inputs.items() if name not in POSITIONS})
        padding = inputs["attention_mask"] == 0
        start, end = (
            functional.cross_entropy(logits.float().masked_fill(padding, -torch.inf), inputs[name])
            for logits, name in zip((outputs.start_logits, outputs.end_logits), POSITIONS, strict=True)
        )
        loss = (start + end) / 2
        return (loss, outputs) if return_outputs else loss
