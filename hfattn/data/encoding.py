"""Encode texts as token ids, with checks of length and characters, and with segmentations sampled in each epoch."""

from collections.abc import Callable, Sequence
from random import Random

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..tokenizers import uncovered_characters

# Function that samples a segmentation of a text as token ids, end token included, such as ``SubwordSampler``.
Segmenter = Callable[[str, Random], list[int]]

TOO_LONG = ("error", "drop", "cut", "cut_start")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Check that an option has one of its possible values.

    Raises:
        UserError: ``value`` is not in ``choices``.
    """
    if value not in choices:
        raise UserError(f"{name} is {value!r}; write one of {', '.join(choices)}.")


def encode_texts(
    texts: Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    *,
    too_long: str,
    place: Callable[[int], str],
    what: str,
    option: str,
) -> list[list[int] | None]:
    """Encode texts. A text that is dropped becomes None.

    Args:
        texts: the texts.
        tokenizer: the tokenizer. The tokens that it adds to an empty text, such as the end token, also end a text that
            is cut.
        max_length: maximum number of tokens, the end token included.
        too_long: treatment of longer texts. "error" raises an error, "drop" leaves the text out, "cut" keeps its first
            tokens, and "cut_start" keeps its last tokens.
        place: function from the index of a text to a description of its position, used in messages.
        what: name of the kind of text, such as "a source", used in messages.
        option: name of the configuration field that sets ``max_length``, used in messages.

    Raises:
        UserError: a text is too long, or has a character that the tokenizer can neither encode nor replace.
    """
    check_choice("too_long", too_long, TOO_LONG)
    if missing := uncovered_characters(tokenizer, set().union(*texts)):
        index = next(i for i, text in enumerate(texts) if missing[0] in text)
        raise UserError(
            f"{place(index)} has {missing[0]!r} (U+{ord(missing[0]):04X}), which does not occur in the training "
            "data; write tokenizer.unknown: true to encode such characters as [UNK]."
        )
    encoded: list[list[int] | None] = list(tokenizer(list(texts)).input_ids)
    end = tokenizer("").input_ids
    for i, ids in enumerate(encoded):
        if ids is None or len(ids) <= max_length:
            continue
        if too_long == "error":
            raise UserError(
                f"{place(i)} has {what} of {len(ids)} tokens{', its end token included' if end else ''}; raise "
                f"{option}, which is {max_length}, shorten the text, or write data.too_long: cut or drop."
            )
        inner, room = ids[: len(ids) - len(end)], max_length - len(end)
        cut = inner[len(inner) - room :] if too_long == "cut_start" else inner[:room]
        encoded[i] = None if too_long == "drop" else cut + end
    return encoded


def lengths_of(*sides: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the numbers of tokens, (n, sides)."""
    return np.array([[len(ids) for ids in side] for side in sides], dtype=np.int64).T


def draw(sampler: Segmenter | None, text: str, ids: list[int], max_length: int, generator: Random) -> list[int]:
    """Return a sampled segmentation of a text, or ``ids`` if there is no sampler or the sample is too long."""
    if sampler is None:
        return ids
    drawn = sampler(text, generator)
    return drawn if 0 < len(drawn) <= max_length else ids
