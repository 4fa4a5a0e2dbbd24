"""Encode texts as token ids, with checks of length and characters, and with segmentations sampled in each epoch."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from random import Random
from typing import Any, NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..tokenizers import uncovered_characters
from .batches import TrainingExamples
from .examples import Examples
from .stored import StoredIds, selected

# Function that samples a segmentation of a text as token ids, end token included, such as ``SubwordSampler``.
Segmenter = Callable[[str, Random], list[int]]

TOO_LONG = ("error", "drop", "cut", "cut_start")
BATCH = 1024  # texts that are encoded at once


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Check that an option has one of its possible values.

    Raises:
        UserError: ``value`` is not in ``choices``.
    """
    if value not in choices:
        raise UserError(f"{name} is {value!r}; write one of {', '.join(choices)}.")


class Side(NamedTuple):
    """The texts on one side of the examples, and how they are encoded.

    Attributes:
        name: "text", "source" or "target", used in messages.
        texts: one text of each example.
        tokenizer: the tokenizer. The tokens that it adds to an empty text, such as the end token, also end a text that
            is cut.
        max_length: maximum number of tokens, the end token included.
        option: name of the configuration field that sets ``max_length``, used in messages.
        sampler: samples another segmentation of a text each time that it is read; None for the tokenizer's own.
        pairs: second texts, which the tokenizer joins to ``texts``; None for single texts.
        written: whether the texts are in the language that a model writes, as ``text_target`` of a tokenizer is.
    """

    name: str
    texts: Sequence[str]
    tokenizer: PreTrainedTokenizerBase
    max_length: int
    option: str
    sampler: Segmenter | None = None
    pairs: Sequence[str] | None = None
    written: bool = False

    def encode(self, texts: str | list[str], pairs: str | list[str] | None = None, **options: Any) -> Any:
        """Return the token ids of texts, or of one."""
        given = {"text_target": texts} if self.written else {"text": texts, "text_pair": pairs}
        return self.tokenizer(**given, **options).input_ids


class EncodedExamples(TrainingExamples[dict[str, Any]]):
    """Base of training examples that consist of the token ids of one or more texts.

    A text without any token becomes one unknown token.

    Args:
        examples: the examples.
        sides: their texts.
        too_long: treatment of an example with a longer text. "error" raises an error, "drop" leaves the example out,
            "cut" keeps the first tokens of that text, and "cut_start" keeps the last tokens; a pair is shortened by
            the ends of its longer text. It applies to the tokenizer's own segmentation, which also replaces a sample
            that is too long.
        seed: random seed. Seed, epoch and index determine each sample.

    Attributes:
        kept: indices of the examples that are kept, in their order.
        ids: the token ids of the examples that are kept, by side, in temporary files.
        dropped: number of examples that were left out.
        is_sampled: whether the segmentations of a side are sampled.
        lengths: (n, sides) numbers of tokens, the end token included; measured in the first epoch if segmentations are
            sampled.

    Raises:
        UserError: a text is too long or has no tokens, all examples are dropped, or a character can be neither encoded
            nor replaced.
    """

    def __init__(self, examples: Examples[Any], sides: Sequence[Side], too_long: str, seed: int) -> None:
        check_choice("too_long", too_long, TOO_LONG)
        encoded = [(side, _encode(side, too_long, examples.place)) for side in sides]
        fits = np.all([ids.lengths <= side.max_length for side, ids in encoded], axis=0)
        self.kept = range(len(examples)) if fits.all() else np.flatnonzero(fits)
        if not len(self.kept):
            limits = ", or ".join(f"{side.option}, {side.max_length}" for side in sides)
            raise UserError(f"Every {examples.noun.lower()} of {examples.name} is longer than {limits}; raise it.")
        self.dropped = len(examples) - len(self.kept)
        self.sides = [side._replace(texts=selected(side.texts, self.kept)) for side in sides]
        self.ids = [ids.select(self.kept) for _, ids in encoded]
        self.seed = seed
        self.is_sampled = any(side.sampler for side in sides)
        if self.is_sampled:
            drawn = (len(ids) for index in range(len(self)) for ids in self.segmentation(index))
            self.lengths = np.fromiter(drawn, np.int64, len(self) * len(sides)).reshape(-1, len(sides))
        else:
            self.lengths = np.stack([ids.lengths for ids in self.ids], axis=1)

    def __len__(self) -> int:
        return len(self.kept)

    def segmentation(self, index: int) -> list[list[int]]:
        """Return the token ids of the texts of an example in this epoch."""
        if not self.is_sampled:
            return [ids[index] for ids in self.ids]
        generator = Random(f"{self.seed} {self.epoch} {index}")
        segmented = []
        for side, ids in zip(self.sides, self.ids, strict=True):
            drawn = side.sampler(side.texts[index], generator) if side.sampler is not None else []
            segmented.append(drawn if 0 < len(drawn) <= side.max_length else ids[index])
        return segmented


def unknown_character(character: str, place: str) -> UserError:
    """Return the error for a character that a learned tokenizer can neither encode nor replace."""
    return UserError(
        f"{place} has {character!r} (U+{ord(character):04X}), which does not occur in the training data; write "
        "tokenizer.unknown: true to encode such characters as [UNK]."
    )


def _encode(side: Side, too_long: str, place: Callable[[int], str]) -> StoredIds:
    """Encode the texts of a side; those that are to be dropped remain too long."""
    tokenizer, pairs = side.tokenizer, side.pairs
    if missing := uncovered_characters(tokenizer, chain.from_iterable(chain(side.texts, pairs or []))):
        both = zip(side.texts, pairs or side.texts, strict=True)
        index = next(i for i, texts in enumerate(both) if any(missing[0] in text for text in texts))
        raise unknown_character(missing[0], place(index))
    return StoredIds(_encoded(side, too_long, place))


def _encoded(side: Side, too_long: str, place: Callable[[int], str]) -> Iterator[list[int]]:
    tokenizer, max_length, pairs = side.tokenizer, side.max_length, side.pairs
    end = side.encode("")
    for start in range(0, len(side.texts), BATCH):
        where = slice(start, start + BATCH)
        batch = side.encode(list(side.texts[where]), None if pairs is None else list(pairs[where]))
        for i, ids in enumerate(batch, start):
            if not ids and tokenizer.unk_token_id is None:
                raise UserError(f"{place(i)} has no tokens; remove that text.")
            if len(ids) <= max_length or too_long == "drop":
                yield ids or [tokenizer.unk_token_id]
                continue
            if too_long == "error":
                raise UserError(
                    f"{place(i)} has a {side.name} of {len(ids)} tokens{', its end token included' if end else ''}; "
                    f"raise {side.option}, which is {max_length}, shorten the text, or write data.too_long: cut or "
                    "drop."
                )
            begins = ids[len(ids) - len(end) :] != end  # some of the tokens of an empty text begin a text
            if pairs is not None or (begins and too_long == "cut"):
                pair = None if pairs is None else pairs[i]
                yield side.encode(side.texts[i], pair, truncation=True, max_length=max_length)
                continue
            inner, room = ids[: len(ids) - len(end)], max_length - len(end)
            yield (inner[len(inner) - room :] if too_long == "cut_start" else inner[:room]) + end


def lengths_of(*sides: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the numbers of tokens, (n, sides)."""
    return np.array([[len(ids) for ids in side] for side in sides], dtype=np.int64).T
