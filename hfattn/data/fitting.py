"""Texts as pretrained models read them: special tokens around them, pairs of texts, texts that are too long."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from .batches import PermutationSampler
from .encoding import check_choice
from .labelled import LabelledTexts

LONG_TEXTS = ("head", "head_tail", "windows")
HEAD_SHARE = 0.25  # of what is kept of a long text by its head and its tail (Sun et al. 2019 take 128 of 510 tokens)


class FittedTexts(Dataset[dict[str, Any]]):
    """Labelled texts as a pretrained model reads them: ``windows``, a list of one or more inputs, and ``labels``.

    Args:
        texts: the texts, or pairs of them.
        tokenizer: of the model, whose special tokens go around each text.
        max_length: in tokens, special ones included.
        long: of a text that does not fit, its first tokens ("head"), a quarter of them from its start and the others
            from its end ("head_tail"), or all of it in several overlapping inputs ("windows"). Of a pair, the longer
            text loses its last tokens.
        overlap: tokens that a window repeats of the one before.
        section: of the recipe that has these options, for the messages.

    Attributes:
        lengths: (n, 1) tokens of each text, all its windows together.
        cut: number of texts that lost tokens.

    Raises:
        UserError: pairs are to be read by head and tail or in windows, or the lengths do not go together.
    """

    def __init__(
        self,
        texts: LabelledTexts,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        *,
        long: str = "head",
        overlap: int = 64,
        section: str = "data",
    ) -> None:
        check_choice(f"{section}.long", long, LONG_TEXTS)
        if texts.has_pairs and long != "head":
            raise UserError(f"{section}.long {long} is for single texts, and {texts.name} has pairs; write head.")
        special = tokenizer.num_special_tokens_to_add(pair=texts.has_pairs)
        if max_length <= special or (long == "windows" and not 0 <= overlap < max_length - special):
            raise UserError(
                f"Of {section}.max_length {max_length}, {special} are special tokens and {section}.overlap is "
                f"{overlap}, so nothing is left for the text; raise max_length or lower overlap."
            )
        self.texts, self.long, self.max_length, self.overlap = texts, long, max_length, overlap
        pairs = [item.pair for item in texts] if texts.has_pairs else None
        plain = tokenizer([item.text for item in texts], pairs, add_special_tokens=True, verbose=False)
        lengths = [len(ids) for ids in plain["input_ids"]]
        self.cut = 0 if long == "windows" else sum(length > max_length for length in lengths)
        self.windows: list[list[dict[str, list[int]]]] = []
        for i, length in enumerate(lengths):
            if length <= max_length:
                self.windows.append([{name: plain[name][i] for name in plain}])
            else:
                self.windows.append(self._fit(tokenizer, i))
        self.lengths = np.array(
            [[sum(len(window["input_ids"]) for window in windows)] for windows in self.windows], dtype=np.int64
        )

    def _fit(self, tokenizer: PreTrainedTokenizerBase, index: int) -> list[dict[str, list[int]]]:
        item = self.texts.items[index]
        if self.long == "head_tail":
            return [self._head_and_tail(tokenizer, item.text)]
        options: dict[str, Any] = {"truncation": True, "max_length": self.max_length}
        if self.long == "windows":
            options |= {"stride": self.overlap, "return_overflowing_tokens": True}
        encoded = tokenizer([item.text], None if item.pair is None else [item.pair], **options)
        inputs = [name for name in encoded if name != "overflow_to_sample_mapping"]
        return [{name: encoded[name][i] for name in inputs} for i in range(len(encoded["input_ids"]))]

    def _head_and_tail(self, tokenizer: PreTrainedTokenizerBase, text: str) -> dict[str, list[int]]:
        """What the tokenizer makes of a text that is long enough, its middle left out."""
        whole = tokenizer(text, verbose=False)
        ids = whole["input_ids"]
        special = tokenizer.get_special_tokens_mask(ids, already_has_special_tokens=True)
        before = special.index(0)
        after = special[::-1].index(0)
        room = self.max_length - before - after
        head = before + round(room * HEAD_SHARE)
        tail = len(ids) - after - (room - round(room * HEAD_SHARE))
        return {name: values[:head] + values[tail:] for name, values in whole.items()}

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"windows": self.windows[index], "labels": self.texts.items[index].label}

    def set_epoch(self, epoch: int) -> None:
        """A text is the same in each epoch."""

    def sampler(self, seed: int) -> PermutationSampler:
        """The order in which training reads the texts."""
        return PermutationSampler(len(self), seed)


@dataclass
class WindowCollator:
    """Batches of ``FittedTexts``: the windows of all texts below each other, padded to the longest.

    A batch has the model's inputs (W, S), ``labels`` (B,) and ``windows`` (B,), the number of windows of each text.
    """

    tokenizer: PreTrainedTokenizerBase

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        windows = [window for example in examples for window in example["windows"]]
        batch = dict(self.tokenizer.pad(windows, return_tensors="pt"))
        batch["labels"] = torch.tensor([example["labels"] for example in examples])
        batch["windows"] = torch.tensor([len(example["windows"]) for example in examples])
        return batch


def mean_of_windows(logits: torch.Tensor, windows: torch.Tensor) -> torch.Tensor:
    """What a classifier says of each text: the mean (B, C) of the logits (W, C) of its windows (B,)."""
    text = torch.arange(len(windows), device=logits.device).repeat_interleave(windows)
    sums = logits.new_zeros(len(windows), logits.shape[-1]).index_add(0, text, logits)
    return sums / windows[:, None]


__all__ = ["FittedTexts", "WindowCollator", "mean_of_windows"]
