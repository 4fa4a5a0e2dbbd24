"""Tasks whose answer depends on symbols that are far away: nested lists, a copy, and recall of pairs.

They show how far a model reads, so each comes with what a model reaches that does not:

- ``listops_texts``: the guess of the most frequent class, and that of the most frequent class of the first operator
  (``hfattn.baselines.comparison.guesses``). A score shows that a model reads further only if it is above both.
- ``duplicates`` and ``recalls``: one over the number of symbols.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from ..data.demonstrations import ASSISTANT, Demonstration, Demonstrations, Messages
from ..data.labeled import Labeled, LabeledTexts
from ..errors import UserError
from .engine import Uniform, draw_distinct, part_of, pick

_LIMITS = {"train": 200_000, "validation": 20_000, "test": 20_000}

# The numbers of the Long Range Arena.
MOST_DEPTH = 10
OPERATOR_PROBABILITY = 0.25
FEWEST_ARGUMENTS, MOST_ARGUMENTS = 2, 10
OPERATORS: Mapping[str, Callable[[Sequence[int]], int]] = {
    "MIN": min,
    "MAX": max,
    "MED": lambda values: int(median(values)),
    "SM": lambda values: sum(values) % 10,
}
_NAMES = tuple(OPERATORS)
DIGITS = "0123456789"

COPIED_SYMBOLS = 127  # Kitaev et al. 2020, section 2: "symbols in the range 1 to 127"


def listops_texts(part: str, number: int, seed: int, *, shortest: int = 32, longest: int = 128) -> LabeledTexts:
    """Draw nested lists of operations on digits, such as "[MAX 2 9 [MIN 4 7 ] 0 ]"; the class is the value, here 9.

    A tree is an operator with probability 0.25 and otherwise a digit; at depth 10 (the root has depth 1), always a
    digit. The operators are the minimum, the maximum, the median (rounded down) and the sum modulo 10 (SM), with 2 to
    10 arguments, each of which is a tree. Trees with too few or too many symbols are drawn again. A symbol is an
    operator with its bracket, a closing bracket or a digit: one word of the text. The field ``root`` is the first
    operator.

    Source: Nangia & Bowman 2018, ListOps; depth and arguments of the Long Range Arena (Tay et al. 2021), whose lists
    have ``shortest`` = 500 and ``longest`` = 2000, with 96,000 / 2,000 / 2,000 examples.

    Args:
        part: "train", "validation" or "test"; they share no list, whatever the seeds.
        number: number of lists, all different.
        seed: seed of the draws; the same seed gives the same lists on every machine.
        shortest, longest: the number of symbols is larger than ``shortest`` and smaller than ``longest``.

    Raises:
        UserError: there is no such part, it would take too long to find that many lists, or the bounds are not
            0 <= shortest, shortest + 8 <= longest.
    """
    if shortest < 0 or longest < shortest + 8:
        raise UserError(
            f"listops has lists of more than shortest and fewer than longest symbols, and these are {shortest} and "
            f"{longest}; write 0 or more, and at least 8 more than that."
        )

    def draw(uniform: Uniform, index: int) -> tuple[str, Labeled] | None:
        symbols: list[str] = []
        value = _tree(uniform, symbols, longest)
        if value is None or not shortest < len(symbols) or len(symbols) == 1:
            return None
        text = " ".join(symbols)
        if part_of(text) != part:
            return None
        return text, Labeled(text, value, None, {"root": symbols[0].removeprefix("[")})

    return LabeledTexts("listops", draw_distinct("listops", part, number, seed, _LIMITS, draw), list(DIGITS))


def _tree(uniform: Uniform, symbols: list[str], longest: int, depth: int = 1) -> int | None:
    """Append a tree to the symbols, and return its value; None as soon as there are ``longest`` symbols or more."""
    if depth == MOST_DEPTH or uniform() > OPERATOR_PROBABILITY:
        symbols.append(pick(uniform, DIGITS))
        return int(symbols[-1]) if len(symbols) < longest else None
    operator, values = pick(uniform, _NAMES), []
    symbols.append(f"[{operator}")
    for _ in range(FEWEST_ARGUMENTS + int(uniform() * (MOST_ARGUMENTS - FEWEST_ARGUMENTS + 1))):
        value = _tree(uniform, symbols, longest, depth + 1)
        if value is None:
            return None
        values.append(value)
    symbols.append("]")
    return OPERATORS[operator](values) if len(symbols) < longest else None


def duplicates(part: str, number: int, seed: int, *, length: int = 64, symbols: int = COPIED_SYMBOLS) -> Demonstrations:
    """Draw sequences 0 w 0 w, of which the second w is learned; a guess is right with probability 1 / ``symbols``.

    A symbol is predicted from the one before it, which is ``length`` / 2 - 1 positions after the symbol to copy. A
    causal model of L layers in which each position sees the last w positions, itself included, reads L (w - 1)
    positions back: with L (w - 1) < ``length`` / 2 - 1 it can only guess.

    Source: Kitaev et al. 2020, Reformer, section 2; there, ``length`` is 1024.

    Args:
        part: "train", "validation" or "test"; they share no sequence, whatever the seeds.
        number: number of sequences, all different.
        seed: seed of the draws; the same seed gives the same sequences on every machine.
        length: number of symbols of a sequence; even. w has ``length`` / 2 - 1 symbols.
        symbols: w is drawn from 1 to this number.

    Returns:
        Conversations of one message of the user, "0 w 0", and one of the assistant, "w".

    Raises:
        UserError: there is no such part, it would take too long to find that many sequences, or the sequences are too
            short.
    """
    if length % 2 or length < 16 or symbols < 10:
        raise UserError(
            f"duplicate has sequences of length {length} from {symbols} symbols; write an even length of at least 16, "
            "and at least 10 symbols."
        )
    alphabet = range(1, symbols + 1)

    def draw(uniform: Uniform, index: int) -> tuple[str, Demonstration] | None:
        copied = " ".join(str(pick(uniform, alphabet)) for _ in range(length // 2 - 1))
        if part_of(copied) != part:
            return None
        return copied, Demonstration([], [_message("user", f"0 {copied} 0"), _message(ASSISTANT, copied)])

    return Demonstrations("duplicate", draw_distinct("duplicate", part, number, seed, _LIMITS, draw))


def recalls(
    part: str, number: int, seed: int, *, pairs: int = 8, queries: int = 4, gap: int = 0, symbols: int = 32
) -> Demonstrations:
    """Draw sequences of pairs of a key and a value, followed by some of the keys, each of which asks for its value.

    Only the values after these keys are learned; a guess is right with probability 1 / ``symbols``. Between the pairs
    and the first question are ``gap`` dots, which have no meaning. The value of a key is at least ``gap`` + 1 and at
    most ``gap`` + 2 (``pairs`` + ``queries``) - 3 positions before the question.

    Source: associative recall (Ba et al. 2016, Using fast weights to attend to the recent past), with several questions
    in each sequence as in Arora et al. 2023, Zoology.

    Args:
        part: "train", "validation" or "test"; they share no sequence, whatever the seeds.
        number: number of sequences, all different.
        seed: seed of the draws; the same seed gives the same sequences on every machine.
        pairs: number of pairs, whose keys are distinct.
        queries: number of questions, which are about distinct keys.
        gap: number of dots.
        symbols: number of keys and number of values to draw from.

    Returns:
        Conversations: the user says the pairs, the dots and a key, the assistant its value, the user another key, …

    Raises:
        UserError: there is no such part, it would take too long to find that many sequences, or the numbers do not fit.
    """
    if not (4 <= pairs <= symbols and 1 <= queries <= pairs and gap >= 0):
        raise UserError(
            f"recall has {pairs} pairs of {symbols} keys, {queries} questions and a gap of {gap}; write 4 to {symbols} "
            "pairs, 1 question or more but no more than pairs, and a gap of 0 or more."
        )

    def draw(uniform: Uniform, index: int) -> tuple[str, Demonstration] | None:
        known = {f"k{key}": f"v{int(uniform() * symbols)}" for key in _sample(uniform, symbols, pairs)}
        keys = list(known)
        first, *others = (keys[i] for i in _sample(uniform, pairs, queries))
        told = " ".join([*(f"{key} {value}" for key, value in known.items()), *["."] * gap, first])
        if part_of(told) != part:
            return None
        messages: Messages = [_message("user", told), _message(ASSISTANT, known[first])]
        for key in others:
            messages += [_message("user", key), _message(ASSISTANT, known[key])]
        return told, Demonstration([], messages)

    return Demonstrations("recall", draw_distinct("recall", part, number, seed, _LIMITS, draw))


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _sample(uniform: Uniform, population: int, number: int) -> list[int]:
    """Draw distinct numbers below ``population``, in random order (the first steps of a Fisher-Yates shuffle)."""
    numbers = list(range(population))
    for i in range(number):
        j = i + int(uniform() * (population - i))
        numbers[i], numbers[j] = numbers[j], numbers[i]
    return numbers[:number]
