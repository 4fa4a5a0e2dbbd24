"""Opinions about films in English and Spanish, from templates: labeled texts in which "not" reverses a word.

A classification task that trains in a minute on a CPU and that a bag of words does not solve. The main clause decides
whether an opinion is positive ("although the plot is dull, i loved the film"); a clause is positive or negative by its
word and by whether that is negated ("the plot is not dull at all"). Names, nationalities and persons are drawn
independently of the label; some names are invented, so that a model also learns to read words that it does not know.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..data.labeled import Labeled, LabeledTexts
from .engine import Uniform, draw_distinct, load_words, part_of, pick

LABELS = ("negative", "positive")
_LIMITS = {"train": 100_000, "validation": 10_000, "test": 10_000}


@dataclass(frozen=True)
class Wording:
    """The words and templates of one language; ``words/opinions.yaml`` explains each field."""

    things: Mapping[str, Sequence[str]]
    words: Mapping[str, Sequence[str]]
    very: Sequence[str]
    said: Sequence[str]
    denied: Sequence[str]
    verbs: Mapping[str, Sequence[str]]
    denied_verbs: Mapping[str, Sequence[str]]
    agreeing: Sequence[str]
    contrasting: Sequence[str]
    frames: Sequence[str]
    people: Sequence[str]
    by: str


WORDINGS = {language: Wording(**fields) for language, fields in load_words("opinions").items()}


def opinion_texts(part: str, number: int, seed: int) -> LabeledTexts:
    """Draw opinions, English and Spanish in turn, positive with probability 1/2, each text at most once.

    The field ``form`` names what is difficult: "plain", "denied" (the main clause is negated), "and" (two clauses that
    agree) or "but" (a clause that contradicts the main clause). The field ``language`` is "en" or "es".

    Args:
        part: "train", "validation" or "test"; they share no text, whatever the seeds.
        number: number of texts.
        seed: seed of the draws; the same seed gives the same texts on every machine.

    Raises:
        UserError: there is no such part, or it would take too long to find that many texts.
    """

    def draw(uniform: Uniform, index: int) -> tuple[str, Labeled] | None:
        language = ("en", "es")[index % 2]
        positive = uniform() < 0.5
        text, form = _opinion(WORDINGS[language], positive, uniform)
        if part_of(text) != part:
            return None
        return text, Labeled(text, int(positive), None, {"form": form, "language": language})

    return LabeledTexts("opinions", draw_distinct("opinions", part, number, seed, _LIMITS, draw), list(LABELS))


def _invented_name(uniform: Uniform) -> str:
    """Draw a name of two or three syllables."""
    return "".join(pick(uniform, "bdfgklmnprstvz") + pick(uniform, "aeiou") for _ in range(2 + int(uniform() * 2)))


def _opinion(wording: Wording, positive: bool, uniform: Uniform) -> tuple[str, str]:
    """Draw a text, and return it with its form."""
    main, denied = _clause(wording, positive, uniform)
    kind = uniform()
    form = "denied" if denied else "plain"
    if kind < 0.2:
        form = "and"
        main = pick(uniform, wording.agreeing).format(one=main, other=_clause(wording, positive, uniform)[0])
    elif kind < 0.5:
        form = "but"
        main = pick(uniform, wording.contrasting).format(main=main, aside=_clause(wording, not positive, uniform)[0])
    frame = pick(uniform, wording.frames)
    who = pick(uniform, wording.people) if uniform() < 0.7 else _invented_name(uniform)
    text = frame.format(opinion=main, who=who)
    return text + pick(uniform, (".", ".", "", "!")), form


def _clause(wording: Wording, positive: bool, uniform: Uniform) -> tuple[str, bool]:
    """Draw a positive or negative clause, and return it with whether it is so by negation."""
    feminine = bool(wording.things["feminine"]) and uniform() < 0.5
    thing = pick(uniform, wording.things["feminine" if feminine else "masculine"])
    if uniform() < 0.15:
        thing = f"{thing} {wording.by} {_invented_name(uniform)}"
    denied = uniform() < 0.4
    label = LABELS[positive != denied]  # a negated word has the opposite label
    if uniform() < 0.3:
        verbs = wording.denied_verbs if denied else wording.verbs
        return pick(uniform, verbs[label]).format(thing=thing), denied
    word = pick(uniform, wording.words[label])
    if word.endswith(")"):
        stem, _, endings = word[:-1].partition("(")
        word = stem + endings.split("/")[feminine]
    clause = pick(uniform, wording.denied if denied else wording.said)
    return clause.format(thing=thing, good=word, very=pick(uniform, wording.very)), denied
