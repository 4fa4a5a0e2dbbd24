"""Strings of the embedded Reber grammar, and strings that are broken in one place.

A classification task for a minute on a CPU that needs a long memory: the second symbol and the last but one are the
same, with a string of any length between them (Hochreiter & Schmidhuber 1997, Long Short-Term Memory, section 5.1).
"""

import hashlib
from collections.abc import Callable
from random import Random

from ..errors import UserError
from .labelled import Labelled, LabelledTexts

REBER = "reber"
REBER_PARTS = ("train", "validation", "test")
SYMBOLS = "BTPSXVE"
# For each state of the Reber grammar, the symbols that may follow and the states that they lead to; the string ends in
# the state after the last.
_STATES = (
    {"B": 1},
    {"T": 2, "P": 3},
    {"S": 2, "X": 4},
    {"T": 3, "V": 5},
    {"X": 3, "S": 6},
    {"P": 4, "V": 6},
    {"E": 7},
)
_WAYS = tuple(tuple(state.items()) for state in _STATES)
_END = len(_STATES)
_PART_OF = ("train", "train", "validation", "test")
_MOST = {"train": 40_000, "validation": 20_000, "test": 20_000}


def is_embedded_reber(text: str) -> bool:
    """Whether a string is B, T or P, a string of the Reber grammar, the same T or P again, and E."""
    if len(text) < 4 or text[0] != "B" or text[-1] != "E" or text[1] not in "TP" or text[-2] != text[1]:
        return False
    state = 0
    for symbol in text[2:-2]:
        if state == _END or symbol not in _STATES[state]:
            return False
        state = _STATES[state][symbol]
    return state == _END


def part_of_string(text: str) -> str:
    """Which part a string belongs to, valid or not: of four strings, one is for validation and one for the test."""
    return _PART_OF[hashlib.sha256(text.encode()).digest()[0] % len(_PART_OF)]


def reber_texts(part: str, number: int, seed: int) -> LabelledTexts:
    """Draw strings of the embedded Reber grammar, and as many that are not of it, each string at most once.

    Valid strings take each way that the grammar leaves open with the same probability. A broken one is a valid one with
    another symbol in one place; its field ``broken`` is "end" where nothing is wrong but that the second symbol and the
    last but one differ, and "middle" otherwise ("nowhere" of valid strings). Both come in turn, a valid one first.

    Args:
        part: "train", "validation" or "test"; no string is in two of them, whatever the seeds.
        number: of strings.
        seed: of the draw: the same seed, the same strings, on every machine.

    Raises:
        UserError: there is no such part, or it would take long to find that many strings.
    """
    if part not in REBER_PARTS:
        raise UserError(f"{part!r} is no part of the Reber strings; write one of {', '.join(REBER_PARTS)}.")
    if number > _MOST[part]:
        raise UserError(f"{number} Reber strings for {part} take too long to find; write at most {_MOST[part]}.")
    # random() is the one method whose sequence Python promises to keep.
    uniform = Random(f"{REBER} {part} {seed}").random
    drawn: dict[str, Labelled] = {}
    while len(drawn) < number:
        text, broken = _valid_string(uniform), "nowhere"
        if len(drawn) % 2:
            position, symbol = int(uniform() * len(text)), SYMBOLS[int(uniform() * len(SYMBOLS))]
            text = text[:position] + symbol + text[position + 1 :]
            if is_embedded_reber(text):
                continue
            broken = "end" if position in (1, len(text) - 2) and symbol in "TP" else "middle"
        if text not in drawn and part_of_string(text) == part:
            drawn[text] = Labelled(text, int(broken == "nowhere"), None, {"broken": broken})
    return LabelledTexts(REBER, list(drawn.values()), ["broken", "valid"])


def _valid_string(uniform: Callable[[], float]) -> str:
    first, state = "TP"[int(uniform() * 2)], 0
    text = ["B", first]
    while state != _END:
        ways = _WAYS[state]
        symbol, state = ways[int(uniform() * len(ways))]
        text.append(symbol)
    return "".join([*text, first, "E"])
