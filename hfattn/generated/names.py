"""Synthetic English sentences with tagged persons, places and dates, from templates.

A token classification task that trains in a minute on a CPU. It is easy and does not measure how well a model reads
real text, but it has the typical difficulties of the task: names that training does not contain, names of both persons
and places, months and words that are also first names, and names inside the names of firms, which are not entities; the
context decides.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ..data.tagged import OUTSIDE, Tagged, TaggedSentences, tag_labels
from .dates import LANGUAGES, YEARS
from .engine import Uniform, draw_distinct, load_words, pick

_WORDS = load_words("names")
_TYPES = ("DATE", "PERSON", "PLACE")
_LIMITS = dict.fromkeys(("train", "validation", "test", "unseen_forms"), 100_000)


class Vocabulary(NamedTuple):
    """The names and years that one part has for itself."""

    first: Sequence[str]
    last: Sequence[str]
    cities: Sequence[str]
    both: Sequence[str]
    words: Sequence[str]
    years: Sequence[int]


def share(names: Sequence[str], part: str) -> list[str]:
    """Return the names of a part: of every five, the third is for validation, the fifth for the test."""
    held_out = {2: "validation", 4: "test"}
    return [name for i, name in enumerate(names) if held_out.get(i % 5, "train") == part]


VOCABULARIES = {
    part: Vocabulary(
        **{field: share(_WORDS[field], part) for field in ("first", "last", "cities", "both", "words")}, years=years
    )
    for part, years in YEARS.items()
}


def name_sentences(part: str, number: int, seed: int) -> TaggedSentences:
    """Draw sentences with tagged persons, places and dates, each sentence at most once.

    "train", "validation" and "test" share their templates but no name and no year; "unseen_forms" has the names of the
    test, and templates of its own. The field ``ambiguous`` is "yes" if a sentence contains a name that can be a
    person's and also a place's or another word, such as Florence, Hope or May.

    Args:
        part: "train", "validation", "test" or "unseen_forms".
        number: number of sentences.
        seed: seed of the draws; the same seed gives the same sentences on every machine.

    Raises:
        UserError: there is no such part, or it would take too long to find that many sentences.
    """
    unseen = part == "unseen_forms"

    def draw(uniform: Uniform, index: int) -> tuple[tuple[str, ...], Tagged]:
        names = VOCABULARIES["test" if unseen else part]
        words, tags = _fill(uniform, pick(uniform, _WORDS["unseen_forms" if unseen else "forms"]), names)
        ambiguous = "no" if {*names.both, *names.words}.isdisjoint(words) else "yes"
        return words, Tagged(words, tags, None, {"ambiguous": ambiguous})

    return TaggedSentences("names", draw_distinct("names", part, number, seed, _LIMITS, draw), tag_labels(_TYPES))


def _fill(uniform: Uniform, form: str, names: Vocabulary) -> tuple[tuple[str, ...], tuple[str, ...]]:
    words: list[str] = []
    tags: list[str] = []
    for word in form.split():
        if word not in _FILLINGS:
            words.append(word)
            tags.append(OUTSIDE)
            continue
        fill, kind = _FILLINGS[word]
        filling = fill(uniform, names).split()
        words += filling
        tags += [OUTSIDE if kind is None else f"{'I' if i else 'B'}-{kind}" for i in range(len(filling))]
    words[0] = words[0][0].upper() + words[0][1:]
    return tuple(words), tuple(tags)


def _person(uniform: Uniform, names: Vocabulary) -> str:
    kind = uniform()
    first = pick(uniform, names.both if kind < 0.15 else names.words if kind < 0.25 else names.first)
    last, form = pick(uniform, names.last), uniform()
    if form < 0.2:
        return first
    if form < 0.3:
        return last
    return f"{first} {chr(65 + int(uniform() * 26))}. {last}" if form < 0.4 else f"{first} {last}"


def _place(uniform: Uniform, names: Vocabulary) -> str:
    return pick(uniform, names.both if uniform() < 0.15 else names.cities)


def _date(uniform: Uniform, names: Vocabulary) -> str:
    english = LANGUAGES["en"]
    return pick(uniform, _WORDS["date_forms"]).format(
        day=1 + int(uniform() * 28),
        month=pick(uniform, english.months),
        weekday=pick(uniform, english.weekdays),
        year=pick(uniform, names.years),
    )


def firm(uniform: Uniform, names: Vocabulary) -> str:
    """Draw a firm named after a person or a city."""
    return pick(uniform, _WORDS["firms"]).format(
        first=pick(uniform, names.first), last=pick(uniform, names.last), city=pick(uniform, names.cities)
    )


_FILLINGS = {
    "{person}": (_person, "PERSON"),
    "{place}": (_place, "PLACE"),
    "{date}": (_date, "DATE"),
    "{firm}": (firm, None),
}
