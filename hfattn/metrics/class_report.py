"""Detailed scores of classifiers: confusion matrix and slices."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from transformers import EvalPrediction
from transformers.trainer_utils import PredictionOutput

from .classification import Accuracy, ClassificationScores, ConfusionMatrix, class_statistics
from .evaluation_config import ClassifierEvaluationConfig
from .slices import column_slices, length_slices, scores_by_slice, word_slices

if TYPE_CHECKING:
    from ..data import LabeledTexts


class ClassResults(NamedTuple):
    """Predictions for n texts, each field of shape (n,).

    Attributes:
        predicted, right: predicted and correct class.
        nats: negative log-likelihood of the correct class.
        confidence: probability of the predicted class.
    """

    predicted: np.ndarray
    right: np.ndarray
    nats: np.ndarray
    confidence: np.ndarray


def class_results(output: PredictionOutput) -> ClassResults:
    """Unpack the output of ``Trainer.predict`` with ``class_statistics``, or of ``class_predictions``."""
    predicted, nats, confidence = (np.asarray(each) for each in output.predictions[:3])
    right = np.asarray(output.label_ids).reshape(-1).astype(int)
    return ClassResults(predicted.astype(int), right, nats, confidence)


def class_predictions(logits: np.ndarray, right: Sequence[int]) -> PredictionOutput:
    """Return the output of ``Trainer.predict`` with ``class_statistics`` and ``ClassificationScores``, from logits.

    Args:
        logits: (n, C) logits or log-probabilities of the classes.
        right: the n correct classes.
    """
    labels = np.array(right)
    statistics = class_statistics(torch.from_numpy(logits), torch.from_numpy(labels))
    predictions = tuple(tensor.numpy() for tensor in statistics)
    scores = ClassificationScores()(EvalPrediction(predictions=predictions, label_ids=labels), compute_result=True)
    return PredictionOutput(predictions=predictions, label_ids=labels, metrics=dict(scores))


def classification_report(
    texts: "LabeledTexts", results: ClassResults, evaluation: ClassifierEvaluationConfig
) -> dict[str, Any]:
    """Return the ``confusion`` matrix and the accuracy ``by_slice``: by length, class, column values and words.

    Args:
        texts: n texts.
        results: the predictions for these texts.
        evaluation: the columns and words that define slices.
    """
    predicted, right = results.predicted.tolist(), results.right.tolist()
    joined = [" ".join(texts.texts(item)) for item in texts]
    slices = length_slices(joined) | column_slices("class", [texts.labels[label] for label in right])
    for column in evaluation.columns:
        slices |= column_slices(column, [item.fields[column] for item in texts])
    slices |= word_slices(joined, evaluation.words)
    confusion = ConfusionMatrix().compute(predictions=predicted, references=right, num_classes=len(texts.labels))
    return {
        "confusion": confusion["confusion_matrix"],
        "by_slice": scores_by_slice(Accuracy(), predicted, right, slices),
    }


def confidence_threshold(confidence: np.ndarray, coverage: float) -> float:
    """Return the highest threshold that at least a share ``coverage`` of the texts reaches.

    Selective classification: a classifier abstains, or answers "neutral", if its confidence is below the threshold
    (Geifman & El-Yaniv 2017). Choose it on texts that are not reported.

    Args:
        confidence: (n,) probabilities of the predicted classes.
        coverage: share of the texts to answer, above 0 and up to 1.
    """
    return float(np.sort(confidence)[::-1][math.ceil(coverage * len(confidence)) - 1])


def abstaining_scores(results: ClassResults, threshold: float) -> dict[str, float | int | None]:
    """Return the scores of a classifier that abstains below a confidence.

    Returns:
        ``threshold``; ``answered``, the number of texts whose confidence reaches it; ``coverage``, their share; and
        ``accuracy``, the share of them that are classified correctly (None if there are none).
    """
    answered = results.confidence >= threshold
    right = (results.predicted == results.right)[answered]
    return {
        "threshold": threshold,
        "answered": int(answered.sum()),
        "coverage": float(answered.mean()),
        "accuracy": float(right.mean()) if len(right) else None,
    }
