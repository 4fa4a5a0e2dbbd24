"""Multiple choice with a sequence classifier that has one output."""

from typing import Any

import torch
from torch.nn import functional
from transformers.modeling_outputs import SequenceClassifierOutput

from ..data import mean_of_windows
from .auxiliary import check_language_model_weight, language_model_losses
from .fine_tuning import FineTuningTrainer


def scores_by_question(scores: torch.Tensor, choices: torch.Tensor) -> torch.Tensor:
    """Return the scores (B, C) of the choices of each question; places beyond its last choice are -inf.

    Args:
        scores: (N, 1) scores of all choices, question after question.
        choices: (B,) number of choices of each question.
    """
    rows = scores[:, 0].split(choices.tolist())
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=-torch.inf)


class ChoiceTrainer(FineTuningTrainer):
    """A ``FineTuningTrainer`` for ``EncodedChoices`` in batches of ``WindowCollator``.

    The model scores each pair of context and choice by one number. The loss is the negative log-likelihood of the right
    choice under a softmax over the scores of the question's choices (Radford et al. 2018, section 3.3).

    Args:
        language_model_weight: as in ``ClassifierTrainer``, with the mean over the choices of a question.
    """

    def __init__(self, *args: Any, language_model_weight: float = 0.0, **kwargs: Any) -> None:
        check_language_model_weight(language_model_weight, kwargs["loaded"].model)
        super().__init__(*args, **kwargs)
        self.language_model_weight = language_model_weight

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        model_inputs = {name: tensor for name, tensor in inputs.items() if name not in ("labels", "windows")}
        auxiliary = self.language_model_weight if model.training else 0.0
        read = model(**model_inputs, output_hidden_states=True) if auxiliary else model(**model_inputs)
        logits = scores_by_question(read.logits.float(), inputs["windows"])
        losses = functional.cross_entropy(logits, inputs["labels"], reduction="sum")
        if auxiliary:
            nats = language_model_losses(self.accelerator.unwrap_model(model), read, model_inputs)
            losses = losses + auxiliary * mean_of_windows(nats[:, None], inputs["windows"]).sum()
        loss = self.mean_over_step(losses, len(logits), num_items_in_batch)
        outputs = SequenceClassifierOutput(logits=logits)
        return (loss, outputs) if return_outputs else loss
