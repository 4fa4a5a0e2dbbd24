"""Metrics of classifiers, computed by scikit-learn."""

from collections import Counter
from typing import Any

import torch
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score
from torch.nn import functional
from transformers import EvalPrediction

from ..errors import UserError
from .checks import PairedMetric


class Accuracy(PairedMetric):
    """Fraction of examples whose predicted class is correct.

    ``compute(predictions=classes, references=classes)`` returns ``{"accuracy": ...}``, from 0 to 1.
    """

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        return {"accuracy": float(accuracy_score(references, predictions))}


class F1(PairedMetric):
    """Harmonic mean of precision and recall.

    ``compute(predictions=classes, references=classes, average="macro")`` returns ``{"f1": ...}``, from 0 to 1: the mean
    over the classes that occur in the predictions or references, or with ``average="binary"`` the F1 of class 1. A
    class without correct predictions has F1 0.
    """

    def _compute(self, predictions: Any, references: Any, average: str = "macro") -> dict[str, float]:
        if average not in ("macro", "binary"):
            raise UserError(f"F1 has no average {average!r}; write macro or binary.")
        highest = max(max(predictions), max(references))
        if average == "binary" and highest > 1:
            raise UserError(
                f"A binary F1 needs classes 0 and 1, and there is a class {highest}; write average='macro'."
            )
        return {"f1": float(f1_score(references, predictions, average=average, zero_division=0))}


class ConfusionMatrix(PairedMetric):
    """Number of examples for each pair of a correct and a predicted class.

    ``compute(predictions=classes, references=classes, num_classes=None)`` returns ``{"confusion_matrix": rows}`` with a
    row for each correct class and a column for each predicted class, from 0 to ``num_classes`` - 1, or to the highest
    class that occurs.
    """

    def _compute(self, predictions: Any, references: Any, num_classes: int | None = None) -> dict[str, list[list[int]]]:
        highest = max(max(predictions), max(references))
        if num_classes is not None and highest >= num_classes:
            raise UserError(
                f"There is a class {highest}, and num_classes is {num_classes}; write at least {highest + 1}."
            )
        classes = range(highest + 1 if num_classes is None else num_classes)
        return {"confusion_matrix": confusion_matrix(references, predictions, labels=list(classes)).tolist()}


def class_probabilities(logits: torch.Tensor) -> torch.Tensor:
    """Return class probabilities (B, C): the softmax of logits (B, C), or for logits (B, 1) the sigmoid, with C = 2."""
    if logits.shape[-1] == 1:
        return torch.cat([-logits, logits], dim=-1).sigmoid()
    return logits.softmax(-1)


def class_statistics(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return predicted classes, negative log-likelihoods of the correct classes in nats, and confidences.

    All have shape (B,); a confidence is the probability of the predicted class. The function is a
    ``preprocess_logits_for_metrics``.

    Args:
        logits: (B, C), or (B, 1) of a model with one sigmoid, which predicts class 1 for a probability above 0.5.
        labels: (B,) correct classes; (B, 1) and any numeric type are also accepted.

    Raises:
        ValueError: the examples have several labels.
    """
    logits = logits.float()
    confidence = class_probabilities(logits).amax(-1)
    if labels.numel() != len(logits):
        raise ValueError(f"These scores need one class per example, and the labels have shape {tuple(labels.shape)}.")
    if logits.shape[-1] == 1:
        logit = logits[:, 0]
        targets = labels.reshape(-1).to(logit.dtype)
        nats = functional.binary_cross_entropy_with_logits(logit, targets, reduction="none")
        return (logit > 0).long(), nats, confidence
    nats = functional.cross_entropy(logits, labels.reshape(-1), reduction="none")
    return logits.argmax(-1), nats, confidence


class ClassificationScores:
    """A ``compute_metrics`` for a classifier evaluated with ``class_statistics``, in constant memory.

    For ``TrainingArguments(batch_eval_metrics=True)``: adds up the contributions of the batches and returns, at the
    last one, ``accuracy``, ``f1`` (macro average, see ``F1``), ``nats_per_example``, the mean negative log-likelihood
    of the correct class, and the number of ``examples``.
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self.confusion: Counter[tuple[int, int]] = Counter()  # (correct class, predicted class)
        self.nats = 0.0

    def __call__(self, prediction: EvalPrediction, compute_result: bool) -> dict[str, float]:
        labels = torch.as_tensor(prediction.label_ids).reshape(-1).long()
        predicted, nats = (torch.as_tensor(tensor) for tensor in prediction.predictions[:2])
        self.confusion.update(zip(labels.tolist(), predicted.tolist(), strict=True))
        self.nats += float(nats.double().sum())
        if not compute_result:
            return {}
        right, guessed = zip(*self.confusion, strict=True)
        weights = list(self.confusion.values())
        examples = sum(weights)
        scores = {
            "accuracy": float(accuracy_score(right, guessed, sample_weight=weights)),
            "f1": float(f1_score(right, guessed, sample_weight=weights, average="macro", zero_division=0)),
            "nats_per_example": self.nats / examples,
            "examples": examples,
        }
        self._reset()
        return scores
