"""Demonstrations as batches for causal language models, each in a row of its own or several packed into one.

Shapes: B batch, T longest row. As of ``PackedBlocks``, ``labels`` (B, T + 1) start one token before the targets, and
are -100 at tokens that are not learned. A row of one example comes with an ``attention_mask``; packed rows come with
``position_ids`` that begin at 0 for each example instead, by which models of transformers keep them apart.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from transformers import DataCollatorWithFlattening, PreTrainedTokenizerBase

from ..errors import UserError
from ..tokenizers import uncovered_characters
from .batches import IGNORED, Batch, _Batches
from .chat import check_chat_template, encode_conversation, encode_question
from .demonstrations import Demonstration, Demonstrations, Messages, Tools
from .packing import TextSize


def encode_demonstration(
    item: Demonstration, tokenizer: PreTrainedTokenizerBase, place: str
) -> tuple[list[int], list[bool]]:
    """Return the token ids of a demonstration, and whether each is learned.

    A prompt and its completion that are texts are tokenized apart, because the model reads the prompt alone when it is
    used; the end token follows. Messages are encoded by ``encode_conversation``.

    Raises:
        UserError: the tokenizer has no end token or no chat template, or the template does not fit.
    """
    if not isinstance(item.completion, str):
        messages = [*item.prompt, *item.completion]
        return encode_conversation(tokenizer, messages, len(item.prompt), place, item.tools)
    prompt = prompt_ids(item.prompt, tokenizer, place)
    completion = [*tokenizer(item.completion, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
    return prompt + completion, [False] * len(prompt) + [True] * len(completion)


def prompt_ids(
    prompt: str | Messages, tokenizer: PreTrainedTokenizerBase, place: str, tools: Tools | None = None
) -> list[int]:
    """Return the token ids that a model reads before it writes a completion, or the next message.

    Raises:
        UserError: messages do not fit the chat template.
    """
    if isinstance(prompt, str):
        return list(tokenizer(prompt).input_ids)
    return encode_question(tokenizer, prompt, place, tools)


class EncodedDemonstrations(_Batches):
    """Token ids of demonstrations. Of a longer one, the first tokens are kept.

    Args:
        examples: the demonstrations.
        tokenizer: the model's tokenizer.
        max_length: maximum number of tokens of a row.

    Attributes:
        form: form of the examples, one of ``FORMS``.
        examples: those of which something is learned, in their order.
        cut: number of examples that were longer.
        left_out: number of examples of which nothing is learned, because the prompt fills the row.
        sizes: (n, 2) numbers of tokens that are read and that are learned, of all examples and before they are cut.
        ends: special tokens with which the learned parts end.

    Raises:
        UserError: nothing of any example would be learned, or ``encode_demonstration`` raises it.
    """

    def __init__(self, examples: Demonstrations, tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
        _check_tokenizer(examples, tokenizer)
        self.tokenizer, self.max_length, self.packing = tokenizer, max_length, False
        self.rows: list[dict[str, list[int]]] = []
        self.ends: set[int] = set()
        self.cut, kept, sizes = 0, [], []
        special = set(tokenizer.all_special_ids)
        for i, item in enumerate(examples):
            ids, learned = encode_demonstration(item, tokenizer, examples.place(i))
            sizes.append((len(ids) - sum(learned), sum(learned)))
            self.cut += len(ids) > max_length
            labels = [token if each else IGNORED for token, each in zip(ids, learned, strict=True)][:max_length]
            if any(label != IGNORED for label in labels[1:]):
                self.rows.append({"input_ids": ids[:max_length], "labels": labels})
                kept.append(item)
                self.ends.update([token for token in ids if token in special and token in labels][-1:])
        if not self.rows:
            raise UserError(
                f"The prompts of all examples of {examples.name} have {max_length} tokens or more, so no completion is "
                "left to learn; raise data.max_length."
            )
        self.form, self.examples = examples.form, kept
        self.left_out, self.sizes = len(examples) - len(kept), np.array(sizes)
        self.packs = [[i] for i in range(len(self.rows))]
        self.lengths = np.array([[len(row["input_ids"])] for row in self.rows])

    def packed(self) -> Self:
        """Return the same examples, several in each row: the longest first, each where it leaves the least room."""
        found, lengths = copy(self), self.lengths[:, 0]
        found.packing, found.packs = True, best_fit(lengths.tolist(), self.max_length)
        found.lengths = np.array([[lengths[pack].sum()] for pack in found.packs])
        return found

    def __len__(self) -> int:
        return len(self.packs)

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        flatten = DataCollatorWithFlattening()
        rows = [flatten([self.rows[j] for j in self.packs[i]]) for i in indices]
        fill = {"input_ids": self.tokenizer.pad_token_id, "labels": IGNORED, "position_ids": 0}
        batch = {
            name: pad_sequence([row[name][0] for row in rows], batch_first=True, padding_value=value)
            for name, value in fill.items()
        }
        batch["labels"] = pad(batch["labels"], (0, 1), value=IGNORED)
        if not self.packing:
            lengths = torch.from_numpy(self.lengths[list(indices)])
            batch["attention_mask"] = (torch.arange(int(lengths.max())) < lengths).long()
            del batch["position_ids"]
        return batch

    @property
    def tokens(self) -> int:
        """Number of tokens of all rows, without padding."""
        return int(self.lengths.sum())

    @property
    def learned(self) -> int:
        """Number of tokens that are learned."""
        return sum(label != IGNORED for row in self.rows for label in row["labels"][1:])

    @property
    def unknown(self) -> int:
        """Number of unknown tokens."""
        unknown = self.tokenizer.unk_token_id
        if unknown in self.tokenizer.all_special_ids and unknown in self.ends:  # of GPT-2, which knows every byte
            return 0
        return sum(row["input_ids"].count(unknown) for row in self.rows)

    @cached_property
    def size(self) -> TextSize:
        """Length of the learned text, as the tokenizer writes it, without special tokens and the first token of a row,
        which nothing predicts."""
        learned = [[token for token in row["labels"][1:] if token != IGNORED] for row in self.rows]
        texts = self.tokenizer.batch_decode(learned, skip_special_tokens=True)
        return TextSize(
            characters=sum(map(len, texts)),
            bytes=sum(len(text.encode()) for text in texts),
            words=sum(len(text.split()) for text in texts),
        )


def _check_tokenizer(examples: Demonstrations, tokenizer: PreTrainedTokenizerBase) -> None:
    if examples.are_conversations:
        check_chat_template(tokenizer)
    elif tokenizer.eos_token_id is None:
        raise UserError("The tokenizer has no end token, so no model learns where a completion ends; use another.")
    if missing := uncovered_characters(tokenizer, examples.counts):
        raise UserError(
            f"The data have {missing[0]!r} (U+{ord(missing[0]):04X}), which is not in the tokenizer's vocabulary; "
            "remove it, or use a tokenizer that was learned with tokenizer.unknown: true."
        )


def best_fit(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Distribute items over bins by best-fit decreasing (Johnson 1973).

    Args:
        lengths: length of each item, at most ``capacity``.
        capacity: what a bin holds.

    Returns:
        The indices of the items in each bin.
    """
    bins: list[list[int]] = []
    with_room: dict[int, list[int]] = defaultdict(list)  # bins by the room that they have left
    rooms: list[int] = []  # sorted keys of with_room
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        place = bisect_left(rooms, lengths[i])
        if place == len(rooms):
            room, number = capacity, len(bins)
            bins.append([])
        else:
            room = rooms[place]
            number = with_room[room].pop()
            if not with_room[room]:
                del with_room[room], rooms[place]
        bins[number].append(i)
        room -= lengths[i]
        if room not in with_room:
            insort(rooms, room)
        with_room[room].append(number)
    return bins
