"""Fine-tuning of classifiers, with class weights and texts that are read in several windows."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional
from transformers.modeling_outputs import SequenceClassifierOutput

from ..data import LabeledTexts, mean_of_windows
from ..errors import UserError
from .auxiliary import AuxiliaryTrainer

BALANCED = "balanced"


def class_weights(wanted: str | Sequence[float] | None, texts: LabeledTexts) -> torch.Tensor | None:
    """Return the weights (C,) of the classes in the loss, or None for equal weights.

    Args:
        wanted: "balanced" gives each class the same total weight: class c with n_c of the n texts gets n / (C n_c). Of
            texts with several labels, those that have label c get the weight (n - n_c) / n_c in its decision, and the
            others 1, so that both have the same total weight. Or one weight per class, or None.
        texts: training texts.

    Raises:
        UserError: ``wanted`` is not one of these, or a class to balance has no text.
    """
    if wanted is None:
        return None
    classes = len(texts.labels)
    if wanted == BALANCED:
        counts = torch.bincount(torch.tensor([each for item in texts for each in item.classes]), minlength=classes)
        if not counts.all():
            absent = texts.labels[int(counts.argmin())]
            raise UserError(f"No training text has the class {absent!r}, so classes cannot be balanced; add some.")
        if texts.has_several:
            others = len(texts) - counts
            return torch.where(others > 0, others / counts, 1.0)
        return len(texts) / (classes * counts.float())
    if isinstance(wanted, str) or len(wanted) != classes or min(wanted) < 0 or max(wanted) <= 0:
        raise UserError(
            f"class_weights is {wanted!r}; write balanced, null, or {classes} numbers of at least 0, for "
            f"{', '.join(texts.labels)}."
        )
    return torch.tensor(wanted, dtype=torch.float)


def weighted_loss(
    outputs: Any,
    labels: torch.Tensor,
    num_items_in_batch: torch.Tensor | int | None = None,
    *,
    weights: torch.Tensor,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """Return the cross-entropy of a classifier with class weights, a ``compute_loss_func`` of the Trainer.

    Args:
        outputs: of the model, with ``logits`` (B, C), or (B, 1) of a single sigmoid.
        labels: (B,) classes; or (B, C) of 1 for each label of a text and 0 for the others.
        num_items_in_batch: number of labels in all batches of the step; None: those of this batch.
        weights: (C,), or for a single sigmoid (2,), from ``class_weights``.
        label_smoothing: share of the probability that all classes get.
    """
    logits, weights = outputs.logits.float(), weights.to(outputs.logits.device)
    number = labels.numel()
    several = labels.ndim == 2 and labels.shape[-1] > 1
    if not several:
        labels = labels.reshape(-1)
    if several:
        total = functional.binary_cross_entropy_with_logits(
            logits, labels.to(logits.dtype), pos_weight=weights, reduction="sum"
        )
    elif logits.shape[-1] == 1:
        total = functional.binary_cross_entropy_with_logits(
            logits[:, 0], labels.to(logits.dtype), weight=weights[labels.long()], reduction="sum"
        )
    else:
        total = functional.cross_entropy(
            logits, labels, weight=weights, reduction="sum", label_smoothing=label_smoothing
        )
    return total / (number if num_items_in_batch is None else num_items_in_batch)


def loss_options(wanted: str | Sequence[float] | None, texts: LabeledTexts, label_smoothing: float) -> dict[str, Any]:
    """Return the arguments of a Trainer for class weights; none if ``wanted`` is None. See ``class_weights``."""
    weights = class_weights(wanted, texts)
    if weights is None:
        return {}
    return {"compute_loss_func": partial(weighted_loss, weights=weights, label_smoothing=label_smoothing)}


class ClassifierTrainer(AuxiliaryTrainer):
    """A trainer for batches of ``WindowCollator``.

    The logits of a text are the mean over its windows. The loss is their cross-entropy with the label, with class
    weights and label smoothing; for a regression, it is the squared error, and for several labels per text the mean
    of their binary cross-entropies.

    Args:
        class_weights: (C,), from ``class_weights``; None weights all classes equally.
    """

    def __init__(self, *args: Any, class_weights: torch.Tensor | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.class_weights = None if class_weights is None else class_weights.to(self.args.device)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        read, auxiliary = self.read(model, inputs)
        logits = mean_of_windows(read.logits.float(), inputs["windows"])
        if self.model.config.problem_type == "regression":
            losses = functional.mse_loss(logits[:, 0], inputs["labels"], reduction="sum")
        elif self.model.config.problem_type == "multi_label_classification":
            losses = functional.binary_cross_entropy_with_logits(
                logits, inputs["labels"], pos_weight=self.class_weights, reduction="sum"
            )
        else:
            losses = functional.cross_entropy(
                logits,
                inputs["labels"],
                weight=self.class_weights,
                reduction="sum",
                label_smoothing=self.args.label_smoothing_factor,
            )
        losses = losses + auxiliary * (inputs["labels"].numel() / len(inputs["windows"]))  # labels of a text
        loss = self.mean_over_step(losses, inputs["labels"].numel(), num_items_in_batch)
        outputs = SequenceClassifierOutput(logits=logits)
        return (loss, outputs) if return_outputs else loss
