"""Texts to token ids: what is too long, what cannot be encoded, and segmentations drawn anew at each pass."""

from collections.abc import Callable, Sequence
from random import Random

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..tokenizers import uncovered_characters

# The ids of a text in a segmentation that is drawn, its end symbol included: ``SubwordSampler``.
Segmenter = Callable[[str, Random], list[int]]

OVERLONG = ("error", "drop", "truncate")
KEEP = ("first", "last")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Check an option that is one of a few words.

    Raises:
        UserError: it is none of them.
    """
    if value not in choices:
        raise UserError(f"{name} is {value!r}; write one of {', '.join(choices)}.")


def encode_texts(
    texts: Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    *,
    overlong: str,
    place: Callable[[int], str],
    what: str,
    option: str,
    keep: str = "first",
) -> list[list[int] | None]:
    """Encode texts; None is in the place of each that is too long and to be dropped.

    Args:
        texts: the texts.
        tokenizer: what closes an empty text, such as its end symbol, closes a text that is cut.
        max_length: in tokens, that end included.
        overlong: what to do with longer texts: "error", "drop" or "truncate".
        place: of a text by its index, for the message.
        what: a text is, for the message.
        option: that says ``max_length``, for the message.
        keep: of texts that are cut, the "first" or the "last" tokens.

    Raises:
        UserError: a text is longer, or holds a character that the tokenizer can neither encode nor replace.
    """
    check_choice("overlong", overlong, OVERLONG)
    check_choice("keep", keep, KEEP)
    if missing := uncovered_characters(tokenizer, set().union(*texts)):
        index = next(i for i, text in enumerate(texts) if missing[0] in text)
        raise UserError(
            f"{place(index)} holds {missing[0]!r} (U+{ord(missing[0]):04X}), which does not occur in the training "
            "data; write tokenizer.unknown: true to admit it."
        )
    encoded: list[list[int] | None] = list(tokenizer(list(texts)).input_ids)
    end = tokenizer("").input_ids
    for i, ids in enumerate(encoded):
        if ids is None or len(ids) <= max_length:
            continue
        if overlong == "error":
            raise UserError(
                f"{place(i)} has {what} of {len(ids)} tokens{', its end included' if end else ''}; raise {option}, "
                f"which is {max_length}, or shorten it, or write data.overlong: truncate or drop."
            )
        inner, room = ids[: len(ids) - len(end)], max_length - len(end)
        cut = inner[:room] if keep == "first" else inner[len(inner) - room :]
        encoded[i] = None if overlong == "drop" else cut + end
    return encoded


def lengths_of(*sides: Sequence[Sequence[int]]) -> np.ndarray:
    """(n, sides) numbers of tokens."""
    return np.array([[len(ids) for ids in side] for side in sides], dtype=np.int64).T


def draw(sampler: Segmenter | None, text: str, ids: list[int], max_length: int, generator: Random) -> list[int]:
    """A segmentation of a text that is drawn, or ``ids`` where there is no sampler or the draw is too long."""
    if sampler is None:
        return ids
    drawn = sampler(text, generator)
    return drawn if 0 < len(drawn) <= max_length else ids
