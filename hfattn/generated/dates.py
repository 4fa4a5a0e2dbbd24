"""Dates as people write them, in English and Spanish, with their ISO 8601 form: "April 22, 2019" → "2019-04-22".

A translation task that trains in a minute on a CPU and whose correct alignment is known: the year attends to the year.
A written form is a template such as ``"{weekday}, {month} {day}, {year}"``. Each written date has one reading only, so
forms such as "04/05/2019" are left out.
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from string import Formatter
from typing import NamedTuple

from ..data.pairs import Pair, Pairs
from ..errors import UserError
from .engine import Uniform, draw_distinct, load_words, pick

# One whole cycle of the Gregorian calendar: 146,097 days, a whole number of weeks.
FIRST_YEAR, LAST_YEAR = 1700, 2099
# One year in seven is held out for validation and one for the test. Their neighbors are trained on, so that training
# has each digit in each place, but none of these years.
_HELD_OUT = {3: "validation", 6: "test"}


@dataclass(frozen=True)
class Language:
    """The names of a language, and the templates of training and of the part "unseen_forms"."""

    months: Sequence[str]
    weekdays: Sequence[str]
    training_forms: Sequence[str]
    unseen_forms: Sequence[str]


LANGUAGES = {language: Language(**fields) for language, fields in load_words("dates").items()}


def _ordinal(number: int) -> str:
    ending = "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def write_date(date: datetime.date, form: str, language: str) -> str:
    """Write a date in a form and a language.

    Args:
        date: the day.
        form: template of ``{day}`` (4), ``{dd}`` (04), ``{ordinal}`` (4th), ``{mm}``, ``{month}``, ``{mon}`` (first
            three letters), ``{year}``, ``{weekday}`` and ``{wd}`` (first three letters).
        language: a key of ``LANGUAGES``.
    """
    names = LANGUAGES[language]
    return form.format(
        day=date.day,
        dd=f"{date.day:02}",
        ordinal=_ordinal(date.day),
        mm=f"{date.month:02}",
        month=names.months[date.month - 1],
        mon=names.months[date.month - 1][:3],
        year=date.year,
        weekday=names.weekdays[date.weekday()],
        wd=names.weekdays[date.weekday()][:3],
    )


def part_of_year(year: int) -> str:
    """Return the part of a year: "train", "validation" or "test"."""
    return _HELD_OUT.get((year - FIRST_YEAR) % 7, "train")


YEARS = {
    part: [year for year in range(FIRST_YEAR, LAST_YEAR + 1) if part_of_year(year) == part]
    for part in ("train", "validation", "test")
}


def _years_and_forms(part: str) -> tuple[list[int], list[tuple[str, str]]]:
    unseen = part == "unseen_forms"
    forms = [
        (form, language)
        for language, names in LANGUAGES.items()
        for form in (names.unseen_forms if unseen else names.training_forms)
    ]
    return YEARS["test" if unseen else part], forms


_SOURCES = {part: _years_and_forms(part) for part in (*YEARS, "unseen_forms")}
_LIMITS = {part: 365 * len(years) * len(forms) // 2 for part, (years, forms) in _SOURCES.items()}


def date_pairs(part: str, number: int, seed: int) -> Pairs:
    """Draw pairs of a written date and its ISO form, each written date at most once.

    "train", "validation" and "test" have years of their own and the same forms, in the usual case, in lowercase or in
    uppercase; "unseen_forms" has the years of the test, and forms of its own.

    Args:
        part: "train", "validation", "test" or "unseen_forms".
        number: number of pairs.
        seed: seed of the draws; the same seed gives the same pairs on every machine.

    Raises:
        UserError: there is no such part, or it would take too long to find that many dates.
    """

    def draw(uniform: Uniform, index: int) -> tuple[str, Pair]:
        years, forms = _SOURCES[part]
        form, language = pick(uniform, forms)
        first = datetime.date(pick(uniform, years), 1, 1)
        length = (first.replace(year=first.year + 1) - first).days
        date = first + datetime.timedelta(days=int(uniform() * length))
        written = write_date(date, form, language)
        case = uniform()
        if part != "unseen_forms" and case < 0.3:
            written = written.lower() if case < 0.15 else written.upper()
        kind = write_date(datetime.date(2019, 4, 22), form, language)
        return written, Pair(written, date.isoformat(), kind)

    return Pairs("dates", draw_distinct("dates", part, number, seed, _LIMITS, draw))


class DateLinks(NamedTuple):
    """The characters of a written date that each character of its ISO form comes from, as (target, source) positions.

    Attributes:
        sure: digits that both have.
        possible: all correct links: those within one field, such as "N" of "Nov" for a digit of "11", and every link of
            a hyphen, which comes from no character.
    """

    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]]


def date_links(written: str, iso: str) -> DateLinks:
    """Return the right character alignment of a pair of ``date_pairs``, for ``hfattn.explaining.alignment_error_rate``.

    Args:
        written: the date in a form of ``LANGUAGES``, in any case.
        iso: its ISO form, such as "2019-04-22".

    Raises:
        UserError: ``written`` is not ``iso`` in any of these forms.
    """
    date = datetime.date.fromisoformat(iso)
    for language, names in LANGUAGES.items():
        for form in (*names.training_forms, *names.unseen_forms):
            if write_date(date, form, language).lower() == written.lower():
                return _links(date, form, language)
    raise UserError(f"{written!r} is not {iso} in a known form; pass a pair of date_pairs.")


# The characters of the ISO form that each field of a template corresponds to.
_ISO_FIELDS = {
    "year": range(4),
    **dict.fromkeys(("mm", "month", "mon"), range(5, 7)),
    **dict.fromkeys(("day", "dd", "ordinal"), range(8, 10)),
}


def _links(date: datetime.date, form: str, language: str) -> DateLinks:
    sure, possible = set(), set()
    iso, place = date.isoformat(), 0
    for words, field, *_ in Formatter().parse(form):
        place += len(words)
        if field is None:
            continue
        value = write_date(date, f"{{{field}}}", language)
        targets = _ISO_FIELDS.get(field, range(0))
        possible |= {(i, j) for i in targets for j in range(place, place + len(value))}
        digits = sum(character.isdigit() for character in value)
        # The written field starts with its digits; the ISO field ends with them, after the zero of a number below 10.
        sure |= {(targets[-digits + k], place + k) for k in range(digits if targets else 0)}
        place += len(value)
    possible |= {(i, j) for i, character in enumerate(iso) if character == "-" for j in range(place)}
    return DateLinks(frozenset(sure), frozenset(possible))
