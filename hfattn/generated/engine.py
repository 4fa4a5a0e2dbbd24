"""What the generators share: seeded draws, their word lists, and the checks of a request."""

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from ..errors import UserError
from ..yaml_values import load_yaml

Item = TypeVar("Item")
Uniform = Callable[[], float]  # returns a number from 0 to below 1


def load_words(name: str) -> Any:
    """Load the word lists and templates of a generator from ``words/{name}.yaml``."""
    return load_yaml((Path(__file__).parent / "words" / f"{name}.yaml").read_text(encoding="utf-8"))


def hash_byte(text: str) -> int:
    """Return the first byte of the SHA-256 of a text, which assigns a text to the same part whatever the seed."""
    return hashlib.sha256(text.encode()).digest()[0]


def part_of(text: str, train: int = 8) -> str:
    """Return the part of a text: ``train`` in ``train`` + 2 are for training, one for validation and one for the test.

    The part is the same for every seed.
    """
    parts = [*["train"] * train, "validation", "test"]
    return parts[hash_byte(text) % len(parts)]


def pick(uniform: Uniform, choices: Sequence[Item]) -> Item:
    """Draw one of several choices, each with the same probability."""
    return choices[int(uniform() * len(choices))]


def draw_distinct(
    name: str,
    part: str,
    number: int,
    seed: int,
    limits: Mapping[str, int],
    draw: Callable[[Uniform, int], tuple[Hashable, Item] | None],
) -> list[Item]:
    """Draw examples until there are ``number`` with different keys.

    Args:
        name: name of the dataset.
        part: one of ``limits``.
        number: number of examples.
        seed: seed of the draws; the same seed gives the same examples on every machine.
        limits: the largest number of examples of each part; beyond it, finding a new one takes too long.
        draw: function of a random source and of the number of examples so far that returns the key of an example and
            the example, or None if what it drew is not an example of this part.

    Raises:
        UserError: there is no such part, or ``number`` exceeds its limit.
    """
    if part not in limits:
        raise UserError(f"{name} has no part {part!r}; write one of {', '.join(limits)}.")
    if number > limits[part]:
        raise UserError(f"{name} cannot give {number} examples of its part {part}; write at most {limits[part]}.")
    # Python guarantees the sequence of random() for a seed, but not that of the other methods.
    uniform = Random(f"{name} {part} {seed}").random
    drawn: dict[Hashable, Item] = {}
    while len(drawn) < number:
        if (found := draw(uniform, len(drawn))) is not None:
            drawn.setdefault(*found)
    return list(drawn.values())
