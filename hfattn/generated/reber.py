"""Strings of the embedded Reber grammar, and strings that break it in one place.

A classification task that trains in a minute on a CPU and needs a long memory: the second and the next-to-last symbol
are the same, with a string of any length between them (Hochreiter & Schmidhuber 1997, Long Short-Term Memory, section
5.1).
"""

from ..data.labeled import Labeled, LabeledTexts
from .engine import Uniform, draw_distinct, part_of, pick

LABELS = ("broken", "valid")
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
_TRANSITIONS = tuple(tuple(state.items()) for state in _STATES)
_END = len(_STATES)
_LIMITS = {"train": 40_000, "validation": 20_000, "test": 20_000}


def is_embedded_reber(text: str) -> bool:
    """Return whether a string is B, T or P, a string of the Reber grammar, the same T or P again, and E."""
    if len(text) < 4 or text[0] != "B" or text[-1] != "E" or text[1] not in "TP" or text[-2] != text[1]:
        return False
    state = 0
    for symbol in text[2:-2]:
        if state == _END or symbol not in _STATES[state]:
            return False
        state = _STATES[state][symbol]
    return state == _END


def reber_texts(part: str, number: int, seed: int) -> LabeledTexts:
    """Draw valid and broken strings of the embedded Reber grammar in turn, a valid one first, each string at most once.

    Where the grammar leaves a choice, each symbol has the same probability. A broken string is a valid one with another
    symbol in one place. Its field ``broken`` is "end" if only the agreement of the second and the next-to-last symbol
    is broken, otherwise "middle"; the field of a valid string is "nowhere".

    Args:
        part: "train", "validation" or "test"; they share no string, whatever the seeds.
        number: number of strings.
        seed: seed of the draws; the same seed gives the same strings on every machine.

    Raises:
        UserError: there is no such part, or it would take too long to find that many strings.
    """

    def draw(uniform: Uniform, index: int) -> tuple[str, Labeled] | None:
        text, broken = _valid_string(uniform), "nowhere"
        if index % 2:
            position, symbol = int(uniform() * len(text)), pick(uniform, SYMBOLS)
            text = text[:position] + symbol + text[position + 1 :]
            if is_embedded_reber(text):
                return None
            broken = "end" if position in (1, len(text) - 2) and symbol in "TP" else "middle"
        if part_of(text, train=2) != part:
            return None
        return text, Labeled(text, int(broken == "nowhere"), None, {"broken": broken})

    return LabeledTexts("reber", draw_distinct("reber", part, number, seed, _LIMITS, draw), list(LABELS))


def _valid_string(uniform: Uniform) -> str:
    first, state = pick(uniform, "TP"), 0
    text = ["B", first]
    while state != _END:
        symbol, state = pick(uniform, _TRANSITIONS[state])
        text.append(symbol)
    return "".join([*text, first, "E"])
