"""Metrics of regressions, computed by SciPy and scikit-learn."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import torch
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import mean_squared_error
from transformers import EvalPrediction

from .checks import PairedMetric
from .slices import column_slices, length_slices, scores_by_slice, word_slices

if TYPE_CHECKING:
    from ..data import LabeledTexts


class RegressionMetric(PairedMetric):
    """Correlations of predicted and right numbers, and the mean squared error.

    ``compute(predictions=numbers, references=numbers)`` returns ``{"pearson": ..., "spearman": ...,
    "mean_squared_error": ...}``. Pearson's r measures a linear relation, and Spearman's rho that of the ranks, where
    equal numbers have their mean rank; both are from -1 to 1, and 0 if all predictions or all references are equal. The
    unit of the error is the square of that of the numbers.
    """

    prediction = datasets.Value("float64")
    reference = datasets.Value("float64")

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        return _scores(predictions, references)


def _scores(predictions: Sequence[float], references: Sequence[float]) -> dict[str, float]:
    error = float(mean_squared_error(references, predictions))
    return {**correlations(predictions, references), "mean_squared_error": error}


def correlations(predictions: Sequence[float], references: Sequence[float]) -> dict[str, float]:
    """Return ``pearson`` and ``spearman``, which are 0 if all predictions or all references are equal."""
    # SciPy has no correlation of equal numbers, and of a single pair an error.
    varied = min(len(set(predictions)), len(set(references))) > 1
    return {
        name: float(correlation(predictions, references).statistic) if varied else 0.0
        for name, correlation in (("pearson", pearsonr), ("spearman", spearmanr))
    }


def predicted_numbers(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the predictions (B,) from the logits (B, 1); a ``preprocess_logits_for_metrics`` for regressions."""
    return logits.float()[:, 0]


class RegressionScores:
    """A ``compute_metrics`` for a regression evaluated with ``predicted_numbers``.

    For ``TrainingArguments(batch_eval_metrics=True)``: collects the numbers of the batches, for ranks are those among
    all examples, and returns, at the last one, the scores of ``RegressionMetric`` and the number of ``examples``.
    """

    def __init__(self) -> None:
        self.predicted: list[float] = []
        self.right: list[float] = []

    def __call__(self, prediction: EvalPrediction, compute_result: bool) -> dict[str, float]:
        self.predicted += np.asarray(prediction.predictions, dtype=np.float64).tolist()
        self.right += np.asarray(prediction.label_ids, dtype=np.float64).reshape(-1).tolist()
        if not compute_result:
            return {}
        scores = {**_scores(self.predicted, self.right), "examples": len(self.right)}
        self.predicted, self.right = [], []
        return scores


def regression_report(
    texts: "LabeledTexts", predicted: np.ndarray, columns: Sequence[str] = (), words: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the ``pearson_interval`` and the scores ``by_slice``: by length, column values and words.

    The interval is the 95% confidence interval of Pearson's r by Fisher's transformation, for independent texts.

    Args:
        texts: n texts with numbers.
        predicted: (n,) predictions for these texts.
        columns, words: columns of the data and words that define slices.
    """
    right = [item.target for item in texts]
    joined = [" ".join(texts.texts(item)) for item in texts]
    slices = length_slices(joined) | word_slices(joined, words)
    for column in columns:
        slices |= column_slices(column, [item.fields[column] for item in texts])
    report: dict[str, Any] = {"by_slice": scores_by_slice(RegressionMetric(), predicted.tolist(), right, slices)}
    interval = pearsonr(predicted, right).confidence_interval(0.95) if len(right) > 3 else (np.nan, np.nan)
    if np.isfinite(interval).all():  # not with equal numbers, or r = 1
        report["pearson_interval"] = [float(edge) for edge in interval]
    return report
