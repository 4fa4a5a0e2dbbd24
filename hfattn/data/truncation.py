"""Labeled texts as inputs of pretrained models: special tokens, pairs, and texts longer than the input."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from .batches import TrainingExamples
from .encoding import check_choice
from .labeled import LabeledTexts

LONG_TEXTS = ("cut", "cut_start", "head_tail", "windows")
# Fraction of the kept tokens that come from the start of the text. Sun et al. 2019 use 128 of 510.
_HEAD_SHARE = {"cut_start": 0.0, "head_tail": 0.25}


class WindowedTexts(TrainingExamples[dict[str, Any]]):
    """Labeled texts as inputs of a pretrained model: ``windows``, a list of one or more inputs, and ``labels``.

    Args:
        texts: texts, or pairs of texts.
        tokenizer: tokenizer of the model; it adds the special tokens.
        max_length: maximum length of an input in tokens, special tokens included.
        too_long: treatment of a longer text. "cut" keeps its first tokens, and "cut_start" its last tokens. "head_tail"
            keeps a quarter from the start and the rest from the end (Sun et al. 2019). "windows" reads all of it in
            overlapping inputs. Pairs support only "cut", which shortens the longer text.
        overlap: tokens that two consecutive windows share.
        both_orders: read each pair also in the other order; the mean of both logits is their sum (Radford et al. 2018,
            section 3.3) up to a factor, which the linear layer of a classifier learns.
        section: section of the recipe with these options, used in messages.

    Attributes:
        lengths: (n, 1) numbers of tokens of each text, summed over its windows.
        cut: number of texts that lost tokens.

    Raises:
        UserError: ``too_long`` is not "cut" for pairs, or ``max_length`` or ``overlap`` leaves no room for the text.
    """

    def __init__(
        self,
        texts: LabeledTexts,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        *,
        too_long: str = "cut",
        overlap: int = 64,
        both_orders: bool = False,
        section: str = "data",
    ) -> None:
        check_choice(f"{section}.too_long", too_long, LONG_TEXTS)
        if texts.has_pairs and too_long != "cut":
            raise UserError(
                f"{section}.too_long {too_long} is for single texts, and {texts.name} has pairs; write cut."
            )
        if both_orders and not texts.has_pairs:
            raise UserError(f"{section}.both_orders is for pairs, and {texts.name} has single texts; write false.")
        special = tokenizer.num_special_tokens_to_add(pair=texts.has_pairs)
        if max_length <= special or (too_long == "windows" and not 0 <= overlap < max_length - special):
            raise UserError(
                f"{section}.max_length is {max_length} with {special} special tokens and {section}.overlap {overlap}, "
                "which leaves no room for the text; raise max_length or lower overlap."
            )
        self.texts, self.too_long, self.max_length, self.overlap = texts, too_long, max_length, overlap
        pairs = [item.pair for item in texts] if texts.has_pairs else None
        plain = tokenizer([item.text for item in texts], pairs, add_special_tokens=True, verbose=False)
        lengths = [len(ids) for ids in plain["input_ids"]]
        self.cut = 0 if too_long == "windows" else sum(length > max_length for length in lengths)
        self.windows: list[list[dict[str, list[int]]]] = []
        for i, length in enumerate(lengths):
            if length <= max_length:
                self.windows.append([{name: plain[name][i] for name in plain}])
            else:
                self.windows.append(self._shorten(tokenizer, i))
        if both_orders:
            items = [item._replace(text=item.pair, pair=item.text) for item in texts if item.pair is not None]
            turned = replace(texts, items=items)
            others = WindowedTexts(turned, tokenizer, max_length, section=section).windows
            self.windows = [[*one, *other] for one, other in zip(self.windows, others, strict=True)]
        self.lengths = np.array(
            [[sum(len(window["input_ids"]) for window in windows)] for windows in self.windows], dtype=np.int64
        )

    def _shorten(self, tokenizer: PreTrainedTokenizerBase, index: int) -> list[dict[str, list[int]]]:
        item = self.texts.items[index]
        if self.too_long in _HEAD_SHARE:
            return [self._without_middle(tokenizer, item.text, _HEAD_SHARE[self.too_long])]
        options: dict[str, Any] = {"truncation": True, "max_length": self.max_length}
        if self.too_long == "windows":
            options |= {"stride": self.overlap, "return_overflowing_tokens": True}
        encoded = tokenizer([item.text], None if item.pair is None else [item.pair], **options)
        inputs = [name for name in encoded if name != "overflow_to_sample_mapping"]
        return [{name: encoded[name][i] for name in inputs} for i in range(len(encoded["input_ids"]))]

    def _without_middle(self, tokenizer: PreTrainedTokenizerBase, text: str, head_share: float) -> dict[str, list[int]]:
        """Return the inputs of a long text with ``head_share`` of the kept tokens from its start, the rest from its
        end."""
        whole = tokenizer(text, verbose=False)
        ids = whole["input_ids"]
        special = tokenizer.get_special_tokens_mask(ids, already_has_special_tokens=True)
        before = special.index(0)
        after = special[::-1].index(0)
        room = self.max_length - before - after
        head = before + round(room * head_share)
        tail = len(ids) - after - (room - round(room * head_share))
        return {name: values[:head] + values[tail:] for name, values in whole.items()}

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"windows": self.windows[index], "labels": self.texts.items[index].target}


@dataclass
class WindowCollator:
    """Collator for ``WindowedTexts``: stacks the windows of all texts, padded to the longest.

    A batch has the model's inputs (W, S), ``labels`` (B,) and ``windows`` (B,), the number of windows of each text.
    The tokenizer is changed to pad on the right, where padding moves no position, or on the left if the token that
    stands for the text is its last one (XLNet).
    """

    tokenizer: PreTrainedTokenizerBase

    def __post_init__(self) -> None:
        last = self.tokenizer("a", verbose=False)["input_ids"][-1:]
        self.tokenizer.padding_side = "left" if last == [self.tokenizer.cls_token_id] else "right"

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        windows = [window for example in examples for window in example["windows"]]
        batch = dict(self.tokenizer.pad(windows, return_tensors="pt"))
        batch["labels"] = torch.tensor([example["labels"] for example in examples])
        batch["windows"] = torch.tensor([len(example["windows"]) for example in examples])
        return batch


def mean_of_windows(logits: torch.Tensor, windows: torch.Tensor) -> torch.Tensor:
    """Return the mean (B, C) of the logits (W, C) of the windows of each text; ``windows`` (B,) counts them."""
    text = torch.arange(len(windows), device=logits.device).repeat_interleave(windows)
    sums = logits.new_zeros(len(windows), logits.shape[-1]).index_add(0, text, logits)
    return sums / windows[:, None]
