"""Checks of the arguments that all metrics share."""

import inspect
from collections.abc import Sized
from typing import Any

import datasets
import evaluate

from ..errors import UserError


def check_examples(**columns: Sized) -> None:
    """Check that there are examples, and that all columns have the same length.

    Raises:
        UserError: there are no examples, or the columns differ in length.
    """
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        counted = ", ".join(f"{length} {name}" for name, length in lengths.items())
        raise UserError(f"There are {counted}; give one of each for every example.")
    if not any(lengths.values()):
        raise UserError(f"There is nothing to score; give at least one example ({', '.join(lengths)}).")


class PairedMetric(evaluate.Metric):
    """A metric of predictions and references, which rejects empty input and different lengths.

    Attributes:
        prediction, reference: types of a prediction and of its reference; by default, a class index.
    """

    prediction: Any = datasets.Value("int64")
    reference: Any = datasets.Value("int64")

    def _info(self) -> evaluate.MetricInfo:
        features = datasets.Features({"predictions": self.prediction, "references": self.reference})
        return evaluate.MetricInfo(
            description=inspect.getdoc(self), citation="", inputs_description="", features=features
        )

    def add_batch(self, *, predictions: Any = None, references: Any = None, **kwargs: Any) -> None:
        """Add predictions and their references."""
        # Not in _compute: an error there would leave the files of evaluate locked.
        check_examples(predictions=predictions, references=references)
        super().add_batch(predictions=predictions, references=references, **kwargs)
