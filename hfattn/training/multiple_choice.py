"""Multiple choice with a sequence classifier that has one output."""

from typing import Any

import torch
from torch.nn import functional
from transformers.modeling_outputs import SequenceClassifierOutput

from .auxiliary import AuxiliaryTrainer


def scores_by_question(scores: torch.Tensor, choices: torch.Tensor) -> torch.Tensor:
    """Return the scores (B, C) of the choices of each question; places beyond its last choice are -inf.

    Args:
        scores: (N, 1) scores of all choices, question after question.
        choices: (B,) number of choices of each question.
    """
    rows = scores[:, 0].split(choices.tolist())
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=-torch.inf)


class ChoiceTrainer(AuxiliaryTrainer):
    """A trainer for ``EncodedChoices`` in batches of ``WindowCollator``.

    The model scores each pair of context and choice by one number. The loss is the negative log-likelihood of the right
    choice under a softmax over the scores of the question's choices (Radford et al. 2018, section 3.3).
    The windows of an example are its choices.
    """

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        read, auxiliary = self.read(model, inputs)
        logits = scores_by_question(read.logits.float(), inputs["windows"])
        losses = functional.cross_entropy(logits, inputs["labels"], reduction="sum") + auxiliary
        loss = self.mean_over_step(losses, len(logits), num_items_in_batch)
        outputs = SequenceClassifierOutput(logits=logits)
        return (loss, outputs) if return_outputs else loss
