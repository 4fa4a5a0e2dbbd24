"""Training batches: cut from the ids of a text without materialising them, or of examples of like length.

Shapes: B batch, T window. A batch of a text is ``input_ids`` (B, T) and the character after each of them, given twice:
as ``shift_labels``, which the loss of transformers uses unshifted, and as ``labels``, which ``Trainer`` looks for.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler, SequentialSampler

from ..errors import UserError

Batch = dict[str, torch.Tensor]


def _batch(ids: np.ndarray, starts: np.ndarray, window: int) -> Batch:
    windows = torch.from_numpy(ids[starts[:, None] + np.arange(window + 1)].astype(np.int64))  # (B, T + 1)
    labels = windows[:, 1:].clone()
    return {"input_ids": windows[:, :-1].clone(), "labels": labels, "shift_labels": labels}


class _Batches(Dataset[Batch]):
    """Data set whose ``__getitems__`` cuts a whole batch at once; ``collate`` then has nothing left to do."""

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        raise NotImplementedError

    def __getitem__(self, index: int) -> Batch:
        return {name: tensor[0] for name, tensor in self.__getitems__([index]).items()}

    def __len__(self) -> int:
        raise NotImplementedError

    def sampler(self, seed: int) -> Sampler[int]:
        """The order in which training reads the windows."""
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        """A text is the same at each pass."""

    @staticmethod
    def collate(batch: Any) -> Any:
        return batch


class Windows(_Batches):
    """Windows of T characters for stateless training and evaluation; they overlap if ``stride`` < ``window``.

    With a stride as long as the window, every character but the first is predicted exactly once: the last window is
    moved back to end with the text, and its targets that an earlier window has are -100.

    Args:
        ids: (n,) ids of the text.
        window: T.
        stride: distance between the starts of two windows.

    Raises:
        UserError: the text is shorter than one window and its last target, or the stride longer than the window.
    """

    def __init__(self, ids: np.ndarray, window: int, stride: int = 1) -> None:
        if stride > window:
            raise UserError(f"A stride of {stride} skips characters; write at most the window, {window}.")
        if len(ids) < window + 1:
            raise UserError(
                f"A part of the text has {len(ids)} characters, fewer than one window of {window} and its last target; "
                "give a longer text, a smaller window or another split."
            )
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
            batch["labels"][seen] = -100  # shift_labels is the same tensor
        return batch

    def sampler(self, seed: int) -> "PermutationSampler":
        return PermutationSampler(len(self), seed)


class Streams(_Batches):
    """The text as B parallel streams for stateful training: row b of a batch continues row b of the batch before.

    The text is cut into ``num_streams`` parts of equal length, and item ``step * num_streams + b`` is window ``step``
    of part b. Read in order with batches of ``num_streams`` rows, or in equal shares by several processes, each process
    keeps its own rows.

    Args:
        ids: (n,) ids of the text.
        window: T.
        num_streams: rows of all processes together.
        keep_tail: yield the last window of the parts although it is shorter (for evaluation).

    Raises:
        UserError: the parts are shorter than one window.
    """

    def __init__(self, ids: np.ndarray, window: int, num_streams: int, keep_tail: bool = False) -> None:
        self.ids, self.window, self.num_streams = ids, window, num_streams
        self.length = (len(ids) - 1) // num_streams
        self.num_steps = -(-self.length // window) if keep_tail else self.length // window
        if self.length < window:
            raise UserError(
                f"A part of the text has {len(ids)} characters, too few for {num_streams} streams of at least one "
                f"window of {window}; give a longer text, a smaller batch or a smaller window."
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
    """A new permutation of ``range(n)`` at each epoch, in constant memory.

    ``torch.randperm`` would hold n numbers: 8 GB for the windows of a text of 1 GB. A Feistel network (Luby & Rackoff
    1988) is a permutation of ``range(4**k)`` for any round function; reading it in order and leaving out what is not
    below n gives a permutation of ``range(n)``.

    Args:
        n: number of items.
        seed: together with the epoch, it decides the order.
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
                mixed = (right + key) * np.uint64(0x9E3779B97F4A7C15)  # wraps around, as meant
                mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
                left, right = right, left ^ ((mixed >> np.uint64(32)) & mask)
            block = (left << bits) | right
            yield from block[block < self.n].tolist()


def padding_share(lengths: np.ndarray, batches: Iterable[Sequence[int] | np.ndarray]) -> float:
    """Padded positions among all positions of batches whose rows are padded to the longest, all sides together.

    Args:
        lengths: (n, sides) tokens of each example.
        batches: the examples of each batch.
    """
    positions = tokens = 0
    for batch in batches:
        rows = lengths[batch]  # (B, sides)
        positions += len(rows) * int(rows.max(axis=0).sum())
        tokens += int(rows.sum())
    return 1 - tokens / positions


class TokenBatches(Sampler[list[int]]):
    """Batches of examples of like length, as many as fit into a number of positions.

    On every side, rows times the longest row is at most ``max_tokens``. Lengths (of the longest side) are told apart in
    steps of an eighth at most, and the examples within a step are shuffled anew at each epoch, as are the batches. As
    the steps do not depend on the order, each epoch has the same number of batches, and ``Trainer`` can count.

    Args:
        lengths: (n, sides) tokens of each example on each side: source and target, or the text alone.
        max_tokens: positions of a batch on one side, padding included.
        seed: together with the epoch, it decides the batches.
        multiple_of: of which the number of batches is a multiple, such as the number of processes that share them;
            the batches with the most rows are halved for that.

    Raises:
        UserError: an example is longer than ``max_tokens``, there are fewer examples than ``multiple_of``, or the
            batches have one example each and their number is no multiple.
    """

    STEPS_PER_OCTAVE = 8

    def __init__(self, lengths: np.ndarray, max_tokens: int, seed: int, multiple_of: int = 1) -> None:
        longest = lengths.max(axis=1)
        if longest.max() > max_tokens:
            index = int(longest.argmax())
            raise UserError(
                f"max_tokens is {max_tokens}, but example {index + 1} of the training data has {longest[index]} "
                f"tokens; write max_tokens: {longest[index]} or more, or allow shorter texts only."
            )
        if len(lengths) < multiple_of:
            raise UserError(f"{len(lengths)} training examples are too few for {multiple_of} processes; launch fewer.")
        self.lengths, self.max_tokens, self.seed, self.epoch = lengths, max_tokens, seed, 0
        octave = np.floor(np.log2(np.maximum(longest, 1)))
        step = np.maximum(1, 2**octave / self.STEPS_PER_OCTAVE).astype(np.int64)
        self._bounds = np.minimum(-(-longest // step) * step, max_tokens)  # (n,) at least as long as the example
        self._ends = self._cut(np.sort(self._bounds), multiple_of)

    def _cut(self, bounds: np.ndarray, multiple_of: int) -> np.ndarray:
        """Where batches end in the examples from the shortest to the longest."""
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
        """Padded positions among all positions of the epoch's batches."""
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
