"""What every score needs of what it is given."""

from collections.abc import Sized
from typing import Any

import evaluate

from ..errors import UserError


def check_examples(**columns: Sized) -> None:
    """Whether there are examples at all, and in each of the named columns as many.

    Raises:
        UserError: there are none, or the columns differ in length.
    """
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        counted = ", ".join(f"{length} {name}" for name, length in lengths.items())
        raise UserError(f"There are {counted}; give one of each for every example.")
    if not any(lengths.values()):
        raise UserError(f"There is nothing to score; give at least one example ({', '.join(lengths)}).")


class PairedMetric(evaluate.Metric):
    """A metric of predictions and as many references, at least one of either."""

    def add_batch(self, *, predictions: Any = None, references: Any = None, **kwargs: Any) -> None:
        """Add predictions and their references."""
        # Here, and not in _compute: an error there would leave the files of evaluate locked.
        check_examples(predictions=predictions, references=references)
        super().add_batch(predictions=predictions, references=references, **kwargs)
