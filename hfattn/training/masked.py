"""The loss of masked language modeling and next sentence prediction over all batches of a step."""

from typing import Any

import torch
from torch.nn.functional import cross_entropy

from ..models.penalties import penalized
from .chunked_loss import nats_for_logits
from .trainer import ReliableTrainer


class MaskedTrainer(ReliableTrainer):
    """A ``ReliableTrainer`` for masked language models, with or without next sentence prediction.

    The loss of a step is the mean over all of its masked tokens plus the mean over all of its pairs of sentences
    (Devlin et al. 2019, appendix A.2), across all processes and accumulated batches. The models themselves average the
    loss over a single batch, which gives more weight to the tokens of a batch with few masked tokens.
    """

    loss_is_scaled_for_ga = True

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> torch.Tensor:
        """Return the numbers of masked tokens and of rows of a step, as a tensor (2,), summed over all processes."""
        masked = sum(int(batch["labels"].ne(-100).sum()) for batch in batch_samples)
        rows = sum(len(batch["labels"]) for batch in batch_samples)
        return self.accelerator.reduce(torch.tensor([masked, rows], device=device), "sum")

    def _smoothing(self) -> float:
        return float(self.args.label_smoothing_factor)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | None = None,
    ) -> Any:
        assert num_items_in_batch is not None
        masked, rows = num_items_in_batch.clamp(min=1)
        inputs = dict(inputs)
        labels, relations = inputs.pop("labels"), inputs.pop("next_sentence_label", None)
        chosen, smoothing = labels.ne(-100), self._smoothing()
        if model.training and self.why_not_chunked() is None:
            with nats_for_logits(self.model.get_output_embeddings(), labels, label_smoothing=smoothing):
                outputs = model(**inputs)
            nats = outputs[0]
        else:
            outputs = model(**inputs)
            logits = outputs[0][chosen].float()
            nats = cross_entropy(logits, labels[chosen], reduction="sum", label_smoothing=smoothing)
        loss = penalized(model, nats / masked, chosen.sum() / masked)
        if relations is not None:
            loss = loss + cross_entropy(outputs[1].float(), relations, reduction="sum") / rows
        loss = loss * self.accelerator.num_processes  # gradients are averaged over processes
        return (loss, outputs) if return_outputs else loss
