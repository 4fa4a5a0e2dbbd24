"""Training batches: windows of a text, cut on demand, and examples of similar length.

Shapes: B batch, T window length. A batch of a text contains ``input_ids`` (B, T) and the next character at each
    position. The next characters are both ``shift_labels``, which the loss in transformers does not shift, and
    ``labels``, which ``Trainer`` requires.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler, SequentialSampler

from ..errors import UserError

IGNORED = -100  # label of a position without a target, as in torch and transformers

Batch = dict[str, torch.Tensor]
Example = TypeVar("Example", covariant=True)


class TrainingExamples(Dataset[Example]):
    """Base of the datasets that training reads, as ``ReliableTrainer`` needs them.

    Attributes:
        epoch: the epoch, counted from 0, on which examples that are drawn anew in each epoch depend.
        seed: seed of what is drawn.
    """

    epoch = 0
    seed = 0

    def __len__(self) -> int:
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        """Set ``epoch``."""
        self.epoch = epoch

    def generator(self, index: int) -> np.random.Generator:
        """Return the random generator of an example in this epoch.

        It depends on seed, epoch and index alone, so that a resumed run and a run of several processes read the same
        examples as an uninterrupted run of one process.
        """
        return np.random.default_rng([self.seed, self.epoch, index])

    def sampler(self, seed: int) -> Sampler[int]:
        """Return the sampler that orders the examples for training; here it shuffles them in each epoch."""
        return PermutationSampler(len(self), seed)


def check_stride(window: int, stride: int, unit: str) -> None:
    """Check that windows reach each other; the arguments are those of ``check_window``.

    Raises:
        UserError: the stride is longer than a window.
    """
    if not 1 <= stride <= window:
        raise UserError(
            f"A stride of {stride} skips {unit}; write a whole number from 1 to the length of a window, {window}."
        )


def check_window(ids: np.ndarray, window: int, stride: int, unit: str) -> None:
    """Check that a text has a window, and that windows reach each other.

    Args:
        ids: (n,) ids of the text.
        window: length of a window.
        stride: number of tokens between the starts of two windows.
        unit: plural name of the tokens, used in messages.

    Raises:
        UserError: the text has fewer than ``window`` + 1 tokens, or the stride is longer than a window.
    """
    check_stride(window, stride, unit)
    if len(ids) < window + 1:
        raise UserError(
            f"A part of the text has {len(ids)} {unit}, and one window of {window} needs {window + 1}; use a longer "
            "text, another split, or shorter windows (data.max_length in a recipe)."
        )


def _batch(ids: np.ndarray, starts: np.ndarray, window: int) -> Batch:
    positions = starts[:, None] + np.arange(window + 1)  # (B, T + 1)
    windows = torch.from_numpy(ids[np.minimum(positions, len(ids) - 1)].astype(np.int64))
    labels = windows[:, 1:].clone()
    labels[torch.from_numpy(positions[:, 1:] >= len(ids))] = IGNORED
    return {"input_ids": windows[:, :-1].clone(), "labels": labels, "shift_labels": labels}


class _Batches(TrainingExamples[Batch]):
    """Dataset whose ``__getitems__`` returns a whole batch at once, so that ``collate`` returns it unchanged."""

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        raise NotImplementedError

    def __getitem__(self, index: int) -> Batch:
        return {name: tensor[0] for name, tensor in self.__getitems__([index]).items()}

    @staticmethod
    def collate(batch: Any) -> Any:
        return batch


class Windows(_Batches):
    """Windows of T characters for stateless training and evaluation; they overlap if ``stride`` < ``window``.

    With a stride equal to the window, every character but the first is predicted exactly once: the last window is moved
    back so that it ends with the text, and targets that an earlier window has predicted are -100.

    Args:
        ids: (n,) ids of the text.
        window: the length T.
        stride: number of characters between the starts of two windows.

    Raises:
        UserError: the text has fewer than T + 1 characters, or the stride is longer than the window.
    """

    def __init__(self, ids: np.ndarray, window: int, stride: int = 1) -> None:
        check_window(ids, window, stride, "characters")
        self.ids, self.window, self.stride = ids, window, stride

    def __len__(self) -> int:
        last_start = len(self.ids) - self.window - 1
        return 1 + (-(-last_start // self.stride) if self.stride == self.window else last_start // self.stride)

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        wanted = np.asarray(indices, dtype=np.int64) * self.stride
        starts = np.minimum(wanted, len(self.ids) - self.window - 1)
        batch = _batch(self.ids, starts, self.window)
        moved = torch.from_numpy(wanted - starts)
        if moved.any():
            seen = torch.arange(self.window) < moved[:, None]
            batch["labels"][seen] = IGNORED  # shift_labels is the same tensor
        return batch


class Streams(_Batches):
    """The text as B parallel streams for stateful training: row b of a batch continues row b of the previous batch.

    The text is cut into ``num_streams`` parts of equal length, and item ``step * num_streams + b`` is window ``step``
    of part b. If the items are read in order, in batches of ``num_streams`` rows that several processes may share
    equally, each process always reads the same parts.

    Args:
        ids: (n,) ids of the text.
        window: the length T.
        num_streams: number of rows of a batch, over all processes.
        keep_tail: whether to predict every token of the text except the first once (for evaluation): the last window
            of each part may be shorter, and the targets after the end of the text are -100. Otherwise what does not
            fill a window of each part is left out, and each part has at least one window.

    Raises:
        UserError: the text is too short.
    """

    def __init__(self, ids: np.ndarray, window: int, num_streams: int, keep_tail: bool = False) -> None:
        self.ids, self.window, self.num_streams = ids, window, num_streams
        self.length = -(-(len(ids) - 1) // num_streams) if keep_tail else (len(ids) - 1) // num_streams
        self.num_steps = -(-self.length // window) if keep_tail else self.length // window
        if self.length < (1 if keep_tail else window):
            raise UserError(
                f"The text has {len(ids)} tokens, too few for {num_streams} streams of at least one window of "
                f"{window}; use a longer text, a smaller batch or shorter windows."
            )

    def __len__(self) -> int:
        return self.num_steps * self.num_streams

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        steps, rows = np.divmod(np.asarray(indices, dtype=np.int64), self.num_streams)
        window = min(self.window, self.length - int(steps[0]) * self.window)
        return _batch(self.ids, rows * self.length + steps * self.window, window)

    def sampler(self, seed: int) -> SequentialSampler:
        return SequentialSampler(self)


class PermutationSampler(Sampler[int]):
    """A new permutation of ``range(n)`` in each epoch, in constant memory.

    ``torch.randperm`` would need 8 GB for the windows of a text of 1 GB. A Feistel network (Luby & Rackoff 1988) is a
    permutation of ``range(4**k)`` for any round function; its values below n are a permutation of ``range(n)``.

    Args:
        n: number of items.
        seed: random seed; seed and epoch determine the order.
    """

    ROUNDS = 6
    BLOCK = 1 << 14

    def __init__(self, n: int, seed: int) -> None:
        self.n, self.seed, self.epoch = n, seed, 0
        self.half_bits = max(1, -(-(n - 1).bit_length() // 2))

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[int]:
        keys = np.random.default_rng([self.seed, self.epoch]).integers(0, 1 << 63, size=self.ROUNDS, dtype=np.uint64)
        bits, mask = np.uint64(self.half_bits), np.uint64((1 << self.half_bits) - 1)
        for start in range(0, 4**self.half_bits, self.BLOCK):
            block = np.arange(start, min(start + self.BLOCK, 4**self.half_bits), dtype=np.uint64)
            left, right = block >> bits, block & mask
            for key in keys:
                mixed = (right + key) * np.uint64(0x9E3779B97F4A7C15)  # the overflow is intended
                mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
                left, right = right, left ^ ((mixed >> np.uint64(32)) & mask)
            block = (left << bits) | right
            yield from block[block < self.n].tolist()


def order_by_length(lengths: np.ndarray) -> np.ndarray:
    """Return the order (n,) of examples from the shortest to the longest first side; ties by the next side.

    Args:
        lengths: (n, sides) numbers of tokens of each example.
    """
    return np.lexsort(lengths.T[::-1])


def padding_share(lengths: np.ndarray, batches: Iterable[Sequence[int] | np.ndarray]) -> float:
    """Return the share of padding among the positions of all batches, whose rows are padded to the longest.

    Args:
        lengths: (n, sides) numbers of tokens of each example.
        batches: indices of the examples in each batch.
    """
    positions = tokens = 0
    for batch in batches:
        rows = lengths[batch]  # (B, sides)
        positions += len(rows) * int(rows.max(axis=0).sum())
        tokens += int(rows.sum())
    return 1 - tokens / positions


class TokenBatches(Sampler[list[int]]):
    """Batches of examples of similar length, with a limit on their size in tokens.

    The number of rows times the longest row is at most ``max_tokens`` on every side. Examples are sorted by the length
    of their longest side, rounded in steps of at most an eighth; examples with the same rounded length are shuffled in
    each epoch, and so are the batches. Every epoch has the same number of batches, which ``Trainer`` needs.

    Args:
        lengths: (n, sides) numbers of tokens of each example: source and target, or the text alone.
        max_tokens: maximum number of positions of a batch on one side, padding included.
        seed: random seed; seed and epoch determine the batches.
        multiple_of: the number of batches is a multiple of this, such as the number of processes. To achieve this, the
            batches with the most rows are halved.

    Raises:
        UserError: an example is longer than ``max_tokens``, there are fewer examples than ``multiple_of``, or the
            number of batches of one example each is not a multiple of it.
    """

    STEPS_PER_OCTAVE = 8

    def __init__(self, lengths: np.ndarray, max_tokens: int, seed: int, multiple_of: int = 1) -> None:
        longest = lengths.max(axis=1)
        if longest.max() > max_tokens:
            index = int(longest.argmax())
            raise UserError(
                f"max_tokens is {max_tokens}, but example {index + 1} of the training data has {longest[index]} "
                f"tokens; write max_tokens: {longest[index]} or more, or set a smaller maximum length."
            )
        if len(lengths) < multiple_of:
            raise UserError(f"{len(lengths)} training examples are too few for {multiple_of} processes; launch fewer.")
        self.lengths, self.max_tokens, self.seed, self.epoch = lengths, max_tokens, seed, 0
        octave = np.floor(np.log2(np.maximum(longest, 1)))
        step = np.maximum(1, 2**octave / self.STEPS_PER_OCTAVE).astype(np.int64)
        # (n,) rounded lengths, at least the true ones
        self._bounds = np.minimum(-(-longest // step) * step, max_tokens)
        self._ends = self._cut(np.sort(self._bounds), multiple_of)

    def _cut(self, bounds: np.ndarray, multiple_of: int) -> np.ndarray:
        """Return the ends of the batches among the sorted examples."""
        sizes, start = [], 0
        while start < len(bounds):
            rows = bounds[start : start + self.max_tokens // max(1, int(bounds[start]))]
            sizes.append(int((np.arange(1, len(rows) + 1) * rows <= self.max_tokens).sum()))
            start += sizes[-1]
        while len(sizes) % multiple_of:
            largest = int(np.argmax(sizes))
            if sizes[largest] == 1:
                raise UserError(
                    f"max_tokens {self.max_tokens} makes {len(sizes)} batches of one example, which {multiple_of} "
                    "processes cannot share evenly; write a larger max_tokens."
                )
            sizes[largest : largest + 1] = [-(-sizes[largest] // 2), sizes[largest] // 2]
        return np.cumsum(sizes)

    @property
    def padding_share(self) -> float:
        """Share of padding among the positions of the epoch's batches."""
        return padding_share(self.lengths, self)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[list[int]]:
        generator = np.random.default_rng([self.seed, self.epoch])
        order = np.lexsort((generator.random(len(self._bounds)), self._bounds))
        batches = np.split(order, self._ends[:-1])
        for index in generator.permutation(len(batches)):
            yield batches[index].tolist()
