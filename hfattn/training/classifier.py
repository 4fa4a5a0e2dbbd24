"""Fine-tuning a classifier: weights of the classes, and texts that are read in several windows."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional
from transformers.modeling_outputs import SequenceClassifierOutput

from ..data import LabelledTexts, mean_of_windows
from ..errors import UserError
from .fine_tuning import FineTuningTrainer

BALANCED = "balanced"


def class_weights(wanted: str | Sequence[float] | None, texts: LabelledTexts) -> torch.Tensor | None:
    """Weights (C,) of the classes in the loss.

    Args:
        wanted: "balanced" gives class c, which n_c of n texts have, the weight n / (C n_c), so that all classes weigh
            the same; or a weight for each class; or None.
        texts: to train on.

    Raises:
        UserError: these are no weights of the classes, or a class has no text.
    """
    if wanted is None:
        return None
    classes = len(texts.labels)
    if wanted == BALANCED:
        counts = torch.bincount(torch.tensor([item.label for item in texts]), minlength=classes)
        if not counts.all():
            absent = texts.labels[int(counts.argmin())]
            raise UserError(f"No text to train on has the class {absent!r}, so classes cannot be balanced; add some.")
        return len(texts) / (classes * counts.float())
    if isinstance(wanted, str) or len(wanted) != classes or min(wanted) < 0 or max(wanted) <= 0:
        raise UserError(
            f"class_weights is {wanted!r}; write balanced, null, or {classes} numbers of at least 0, of "
            f"{', '.join(texts.labels)}."
        )
    return torch.tensor(wanted, dtype=torch.float)


class ClassifierTrainer(FineTuningTrainer):
    """A ``FineTuningTrainer`` on batches of ``WindowCollator``.

    The loss is the cross-entropy of the mean of the logits of a text's windows, with weights of the classes and label
    smoothing.

    Args:
        class_weights: (C,), as ``class_weights`` makes them; None weighs each class alike.
    """

    def __init__(self, *args: Any, class_weights: torch.Tensor | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.class_weights = None if class_weights is None else class_weights.to(self.args.device)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        read = {name: tensor for name, tensor in inputs.items() if name not in ("labels", "windows")}
        logits = mean_of_windows(model(**read).logits.float(), inputs["windows"])
        losses = functional.cross_entropy(
            logits,
            inputs["labels"],
            weight=self.class_weights,
            reduction="sum",
            label_smoothing=self.args.label_smoothing_factor,
        )
        if num_items_in_batch is None:
            loss = losses / len(logits)
        else:  # texts in all the batches of a step, on all devices, whose gradients are averaged
            loss = losses / num_items_in_batch
            if self.args.average_tokens_across_devices:
                loss = loss * self.accelerator.num_processes
        outputs = SequenceClassifierOutput(logits=logits)
        return (loss, outputs) if return_outputs else loss


__all__ = ["BALANCED", "ClassifierTrainer", "class_weights"]
