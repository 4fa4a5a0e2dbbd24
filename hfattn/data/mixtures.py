"""Mixtures of tasks: how often each is read, and which of its examples an epoch has (Raffel et al. 2020)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .batches import TrainingExamples, order_by_length

_STEP = (5**0.5 - 1) / 2  # of the golden ratio: the offsets of several epochs are spread evenly


def mixing_rates(sizes: Sequence[int], maximum: int | None = None, temperature: float = 1.0) -> list[float]:
    """Return the rate of each task (Raffel et al. 2020, section 3.5.2).

        r_m = min(e_m, K) / Σ_n min(e_n, K),  then  r_m^(1/T) / Σ_n r_n^(1/T)

    Args:
        sizes: numbers of examples e_m.
        maximum: K; None: there is none.
        temperature: T. With 1, rates are proportional to the sizes; the larger it is, the more equal they are.
    """
    limited = np.minimum(sizes, np.inf if maximum is None else maximum)
    powers = (limited / limited.sum()) ** (1 / temperature)
    return (powers / powers.sum()).tolist()


def epoch_sizes(sizes: Sequence[int], maximum: int | None = None, temperature: float = 1.0) -> list[int]:
    """Return how many examples of each task an epoch has, at least one.

    An epoch has Σ_n min(e_n, K) examples, and task m has r_m of them. With T = 1 it is min(e_m, K).
    """
    number = sum(min(size, maximum or size) for size in sizes)
    return [max(1, round(rate * number)) for rate in mixing_rates(sizes, maximum, temperature)]


class MixedExamples(TrainingExamples[dict[str, Any]]):
    """The training examples of several tasks.

    Of a task with e examples, n are read in an epoch: example ⌊(j + u) e / n⌋ of those sorted by length, for j from 0
    to n - 1, where the offset u changes with the epoch. So all examples of a task are read equally often, the numbers
    of an epoch differ by at most one, and place j always has a similar length.

    Args:
        tasks: the encoded training examples of each task, with ``lengths`` (e, 2).
        numbers: how many examples of each task an epoch has.
        seed: random seed, of the first offset.

    Attributes:
        lengths: (n, 2) largest numbers of tokens that an example at each place has.
    """

    def __init__(
        self, tasks: Mapping[str, TrainingExamples[dict[str, Any]]], numbers: Sequence[int], seed: int
    ) -> None:
        self.tasks, self.numbers, self.seed = list(tasks.values()), list(numbers), seed
        self.starts = np.cumsum([0, *numbers])
        self.orders = [order_by_length(task.lengths) for task in self.tasks]  # type: ignore[attr-defined]
        self.lengths = np.concatenate([self._longest(task) for task in range(len(self.tasks))])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        for task in self.tasks:
            task.set_epoch(epoch)

    def place(self, index: int) -> tuple[int, int]:
        """Return the number of the task and that of its example which the index has in this epoch."""
        task = int(np.searchsorted(self.starts, index, side="right")) - 1
        size, number = len(self.orders[task]), self.numbers[task]
        offset = (np.random.default_rng(self.seed).random() + self.epoch * _STEP) % 1
        return task, int(self.orders[task][int((index - self.starts[task] + offset) * size / number)])

    def __getitem__(self, index: int) -> dict[str, Any]:
        task, example = self.place(index)
        return self.tasks[task][example]

    def _longest(self, task: int) -> np.ndarray:
        """Return the largest lengths (n, 2) among the examples that each place can have."""
        ordered = self.tasks[task].lengths[self.orders[task]]  # type: ignore[attr-defined]
        size, number = len(ordered), self.numbers[task]
        first = np.arange(number) * size // number
        last = np.minimum(-(-np.arange(1, number + 1) * size // number), size)
        return np.stack([ordered[start:end].max(axis=0) for start, end in zip(first, last, strict=True)])
