"""Training batches cut from the ids of a text, without materialising them.

Shapes: B batch, T window. A batch is ``input_ids`` (B, T) and the character after each of them, given twice: as
``shift_labels``, which the loss of transformers uses unshifted, and as ``labels``, which ``Trainer`` looks for.
"""

from collections.abc import Iterator, Sequence
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
