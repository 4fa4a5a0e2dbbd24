"""Dates as people write them, in English and in Spanish, and as ISO 8601 writes them: "April 22, 2019" → "2019-04-22".

A translation task for a minute on a CPU, in which the right alignment is known: the year looks at the year. A written
form is a template such as ``"{weekday}, {month} {day}, {year}"``. No text that they write may be read as another date,
which is why "04/05/2019" is not among them.
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from string import Formatter
from typing import NamedTuple

from ..errors import UserError
from .pairs import Pair, Pairs

DATES = "dates"
PARTS = ("train", "validation", "test", "unseen_forms")
# One whole cycle of the Gregorian calendar: 146,097 days, a whole number of weeks.
FIRST_YEAR, LAST_YEAR = 1700, 2099
# A year in seven is kept for validation and another for the test: neighbours of years that are trained on, so that each
# digit is seen in each place, but none of those years.
_HELD_OUT = {3: "validation", 6: "test"}


@dataclass(frozen=True)
class Language:
    """Names in a language, and the templates that training and the test of unseen forms write dates with."""

    months: tuple[str, ...]
    short_months: tuple[str, ...]
    weekdays: tuple[str, ...]
    short_weekdays: tuple[str, ...]
    training_forms: tuple[str, ...]
    unseen_forms: tuple[str, ...]


def _shortened(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name[:3] for name in names)


_ENGLISH_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_ENGLISH_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SPANISH_MONTHS = (
    "enero", "febrero", "marzo", "abril", "mayo", "junio",
    "julio", "agosto", "septiembre", "octubre", "noviembre", "diciembre",
)  # fmt: skip
_SPANISH_WEEKDAYS = ("lunes", "martes", "miércoles", "jueves", "viernes", "sábado", "domingo")

LANGUAGES = {
    "en": Language(
        _ENGLISH_MONTHS,
        _shortened(_ENGLISH_MONTHS),
        _ENGLISH_WEEKDAYS,
        _shortened(_ENGLISH_WEEKDAYS),
        training_forms=(
            "{month} {day}, {year}",
            "{mon} {day}, {year}",
            "{day} {month} {year}",
            "{day} {mon} {year}",
            "{weekday}, {month} {day}, {year}",
            "{wd}, {day} {mon} {year}",
            "{month} {ordinal}, {year}",
            "{ordinal} of {month} {year}",
            "the {ordinal} of {month}, {year}",
            "{dd}-{mon}-{year}",
            "{year} {month} {day}",
            "{year}/{mm}/{dd}",
        ),
        unseen_forms=(
            "{weekday}, {day} {month} {year}",
            "{weekday} the {ordinal} of {month}, {year}",
            "{ordinal} {month} {year}",
            "{mon} {ordinal} {year}",
            "{year}-{mon}-{dd}",
            "{dd}.{mm}.{year}",
        ),
    ),
    "es": Language(
        _SPANISH_MONTHS,
        _shortened(_SPANISH_MONTHS),
        _SPANISH_WEEKDAYS,
        _shortened(_SPANISH_WEEKDAYS),
        training_forms=(
            "{day} de {month} de {year}",
            "{day} de {month} del {year}",
            "el {day} de {month} de {year}",
            "{weekday}, {day} de {month} de {year}",
            "{weekday} {day} de {month} del {year}",
            "{wd}, {day} {mon} {year}",
            "{day} {month} {year}",
            "{day} {mon} {year}",
            "{day} {mon}. {year}",
            "{month} {day} de {year}",
            "{dd}-{mon}-{year}",
        ),
        unseen_forms=(
            "el {weekday}, {day} de {month} de {year}",
            "{wd} {day} de {month} de {year}",
            "{day} de {mon}. de {year}",
            "{month} {day} del {year}",
            "{day}/{mon}/{year}",
        ),
    ),
}


def _ordinal(number: int) -> str:
    ending = "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def write_date(date: datetime.date, form: str, language: str) -> str:
    """Write a date in a form and a language.

    Args:
        date: the day.
        form: template of ``{day}`` (4), ``{dd}`` (04), ``{ordinal}`` (4th), ``{mm}``, ``{month}``, ``{mon}``
            (shortened), ``{year}``, ``{weekday}`` and ``{wd}`` (shortened).
        language: a name of ``LANGUAGES``.
    """
    names = LANGUAGES[language]
    return form.format(
        day=date.day,
        dd=f"{date.day:02}",
        ordinal=_ordinal(date.day),
        mm=f"{date.month:02}",
        month=names.months[date.month - 1],
        mon=names.short_months[date.month - 1],
        year=date.year,
        weekday=names.weekdays[date.weekday()],
        wd=names.short_weekdays[date.weekday()],
    )


def part_of_year(year: int) -> str:
    """Which part a year belongs to: "train", "validation" or "test"."""
    return _HELD_OUT.get((year - FIRST_YEAR) % 7, "train")


_YEARS: Mapping[str, list[int]] = {
    part: [year for year in range(FIRST_YEAR, LAST_YEAR + 1) if part_of_year(year) == part]
    for part in ("train", "validation", "test")
}


def date_pairs(part: str, number: int, seed: int) -> Pairs:
    """Draw pairs of a written date and its ISO form, each written date at most once.

    "train", "validation" and "test" have years of their own and the same forms, each in the usual letters, in small
    letters only or in capitals only; "unseen_forms" has the years of the test, and forms that the others do not have.

    Args:
        part: one of ``PARTS``.
        number: of pairs.
        seed: of the draw: the same seed, the same pairs, on every machine.

    Raises:
        UserError: there are not that many.
    """
    unseen = part == "unseen_forms"
    years = _YEARS["test" if unseen else part]
    forms = [
        (form, language)
        for language, names in LANGUAGES.items()
        for form in (names.unseen_forms if unseen else names.training_forms)
    ]
    most = 365 * len(years) * len(forms) // 2  # further on, drawing what has not been drawn before takes long
    if number > most:
        raise UserError(f"{number} dates of the part {part} are more than there are; write at most {most}.")
    # random() is the one method whose sequence Python promises to keep.
    uniform = Random(f"{DATES} {part} {seed}").random
    drawn: dict[str, Pair] = {}
    while len(drawn) < number:
        form, language = forms[int(uniform() * len(forms))]
        first = datetime.date(years[int(uniform() * len(years))], 1, 1)
        length = (first.replace(year=first.year + 1) - first).days
        date = first + datetime.timedelta(days=int(uniform() * length))
        written = write_date(date, form, language)
        case = uniform()
        if not unseen and case < 0.3:
            written = written.lower() if case < 0.15 else written.upper()
        kind = write_date(datetime.date(2019, 4, 22), form, language)
        drawn.setdefault(written, Pair(written, date.isoformat(), kind))
    return Pairs(DATES, list(drawn.values()))


class DateLinks(NamedTuple):
    """Which characters of a written date each character of its ISO form comes from: (target, source) places.

    Args:
        sure: a digit that both have.
        possible: others that are right: what stands in one field, as "N" of "Nov" for a digit of "11"; and, for the
            characters that come from nowhere, the hyphens, all there are.
    """

    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]]


def date_links(written: str, iso: str) -> DateLinks:
    """The right alignment of a pair of ``date_pairs``, character by character, as an error rate asks for it
    (``hfattn.explain.alignment_error_rate``).

    Args:
        written: the date in a form of ``LANGUAGES``, in any case of its letters.
        iso: its ISO form, such as "2019-04-22".

    Raises:
        UserError: it is written in none of these forms.
    """
    date = datetime.date.fromisoformat(iso)
    for language, names in LANGUAGES.items():
        for form in (*names.training_forms, *names.unseen_forms):
            if write_date(date, form, language).lower() == written.lower():
                return _links(date, form, language)
    raise UserError(f"{written!r} is {iso} in no form that is known here; pass a pair of date_pairs.")


# The field of the ISO form that each field of a template says again, and where its characters are.
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
        # Digits stand at the end of an ISO field, after the zero of a day or month below 10, and begin the written one.
        sure |= {(targets[-digits + k], place + k) for k in range(digits if targets else 0)}
        place += len(value)
    possible |= {(i, j) for i, character in enumerate(iso) if character == "-" for j in range(place)}
    return DateLinks(frozenset(sure), frozenset(possible))
