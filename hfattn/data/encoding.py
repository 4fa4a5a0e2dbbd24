"""Texts to token ids: texts that are too long, unknown characters, and segmentations sampled anew in each epoch."""

from collections.abc import Callable, Sequence
from random import Random

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..tokenizers import uncovered_characters

# Samples the ids of a text in one of its segmentations, the end token included; a ``SubwordSampler`` is one.
Segmenter = Callable[[str, Random], list[int]]

TOO_LONG = ("error", "drop", "cut", "cut_start")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Check an option that takes one of a few words.

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
        tokenizer: the tokens with which it closes an empty text, such as the end token, also close a text that is cut.
        max_length: maximum number of tokens, the end token included.
        too_long: what happens to longer texts: "error"; "drop"; "cut" keeps their first tokens, "cut_start" their last.
        place: function from the index of a text to the words for its place, for messages.
        what: what the text is, such as "a source", for messages.
        option: name of the configuration field that sets ``max_length``, for messages.

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
