"""Scores of image classifiers: those of other classifiers, and the accuracy of the five most probable classes."""

from collections.abc import Sequence

import numpy as np
import torch
from transformers import EvalPrediction
from transformers.trainer_utils import PredictionOutput

from .classification import ClassificationScores, class_statistics

TOP = 5


def image_class_statistics(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return what ``class_statistics`` returns, and whether the right class is among the five most probable ones (B,).

    The function is a ``preprocess_logits_for_metrics``.

    Args:
        logits: (B, C).
        labels: (B,) correct classes.
    """
    best = logits.topk(min(TOP, logits.shape[-1]), dim=-1).indices
    return *class_statistics(logits, labels), (best == labels[:, None]).any(-1)


class ImageClassScores(ClassificationScores):
    """A ``compute_metrics`` for ``image_class_statistics``, which adds ``top5_accuracy`` to ``ClassificationScores``.

    With at most five classes, ``top5_accuracy`` is 1.
    """

    def _reset(self) -> None:
        super()._reset()
        self.among_best = 0

    def __call__(self, prediction: EvalPrediction, compute_result: bool) -> dict[str, float]:
        self.among_best += int(torch.as_tensor(prediction.predictions[3]).sum())
        among_best = self.among_best
        scores = super().__call__(prediction, compute_result)
        return scores and {**scores, "top5_accuracy": among_best / scores["examples"]}


def class_predictions_of_images(logits: np.ndarray, right: Sequence[int]) -> PredictionOutput:
    """Return the output of ``Trainer.predict`` with these scores, from logits.

    Args:
        logits: (n, C).
        right: the n correct classes.
    """
    labels = np.array(right)
    statistics = image_class_statistics(torch.from_numpy(logits), torch.from_numpy(labels))
    predictions = tuple(tensor.numpy() for tensor in statistics)
    scores = ImageClassScores()(EvalPrediction(predictions=predictions, label_ids=labels), compute_result=True)
    return PredictionOutput(predictions=predictions, label_ids=labels, metrics=dict(scores))
