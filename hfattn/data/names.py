"""Synthetic sentences with tagged persons, places and dates, made from templates of our own.

A token classification task for a minute on a CPU. It is easy, and no measure of how well a model reads real text; but
it has what makes the task one: names that training never saw, names that are both persons and places, months and words
that are persons, and names within those of firms, which are neither, so that the words around decide.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple, TypeVar

from ..errors import UserError
from .dates import FIRST_YEAR, LAST_YEAR, part_of_year
from .tagged import OUTSIDE, Tagged, TaggedSentences, tag_labels

NAMES = "names"
NAMES_PARTS = ("train", "validation", "test", "unseen_forms")
_TYPES = ("DATE", "PERSON", "PLACE")
_MOST = 100_000

Item = TypeVar("Item")


def listed(text: str, separator: str | None = None) -> list[str]:
    """Words, or what a separator parts: lists as long as these are read more easily so."""
    return text.split(separator)


_FIRST = listed(
    "Ada Agnes Albert Alice Amara Amir Anders Andrea Anita Anton Arjun Astrid Aurora Beatriz Benedict Bianca Boris "
    "Brigid Bruno Camille Carlos Cecilia Chidi Clara Conrad Dalia Daniel Deepa Dmitri Dora Edgar Elena Elias Emilia "
    "Enzo Esther Ewan Fatima Felix Fiona Frida Gareth Gemma Gilbert Greta Gustav Hamid Hanna Harald Hector Helga "
    "Henrietta Hiroshi Hugo Ibrahim Ida Igor Ines Ingrid Isidora Ivan Jacinta Jamal Jasper Joachim Josefa Julian Kai "
    "Karin Keiko Kofi Kwame Lars Laszlo Leila Leonard Linnea Lorenzo Lucia Magnus Malik Marcela Margit Mateo Matilda "
    "Milena Mirek Nadia Naomi Nikolai Nils Noor Olga Omar Oscar Otto Paloma Pavel Petra Philippa Priya Quentin Rafael "
    "Ravi Renata Rosalind Rupert Sabine Samir Selma Sigrid Simone Soren Stella Sunita Tamar Tariq Thea Tobias Ulrich "
    "Ursula Valentin Vera Viktor Wanda Wilhelm Xenia Yara Yusuf Zelda Zoltan"
)
_LAST = listed(
    "Abara Ackerley Adeyemi Aldous Amundsen Andrade Arkwright Bakshi Baumann Bellamy Bergström Bianchi Blackwood "
    "Bogdanov Bosworth Brandt Calloway Carrasco Castellan Chaudhry Cole Cordero Dahl Danvers Delacroix Demir Dietrich "
    "Dufour Eastman Ekström Elsworth Escobar Fairbanks Falk Fernandes Fischer Fonseca Galloway Garrick Gibbons Goswami "
    "Granger Grundy Hadley Halloran Hargreaves Haugen Hollis Horvat Ibarra Imhof Ishikawa Jansen Jarvis Joshi Kaplan "
    "Kariuki Keller Kimura Kowalski Kruger Langley Larkin Lindqvist Lombardi Lovell Macready Mancini Marchetti Mbeki "
    "Mercer Moreau Nakamura Ndiaye Nielsen Novak Oakes Obi Okafor Olsen Orsini Palmer Pereira Petrov Pickering "
    "Quigley Ramirez Rasmussen Reyes Rossi Rutherford Sadler Salazar Sandoval Schreiber Sethi Sinclair Sokolov "
    "Stanhope Sutherland Takeda Thorne Torres Tremblay Underhill Vance Varga Vasquez Vogel Wakefield Weaver Whitlock "
    "Winslow Wójcik Yamada Yates Zeller Zielinski"
)
_CITIES = listed(
    "Aberdeen|Accra|Adelaide|Ankara|Antwerp|Athens|Bamako|Basel|Beirut|Belgrade|Bergen|Bogotá|Bologna|Boston|Brighton|"
    "Brisbane|Bruges|Cairo|Cape Town|Cardiff|Casablanca|Chicago|Cologne|Cork|Cuenca|Dakar|Delhi|Denver|Dresden|Dublin|"
    "Durban|Dundee|Esbjerg|Faro|Fez|Galway|Geneva|Ghent|Glasgow|Granada|Graz|Halifax|Hamburg|Hanoi|Havana|Helsinki|"
    "Hobart|Jaipur|Kraków|Kyoto|La Paz|Lagos|Leeds|Leipzig|Lima|Lisbon|Ljubljana|Lyon|Manila|Marseille|Melbourne|"
    "Monterrey|Montreal|Mumbai|Nairobi|Nantes|Naples|New Orleans|Nice|Odense|Oporto|Oslo|Ottawa|Palermo|Perth|Plymouth|"
    "Porto Alegre|Prague|Quito|Rabat|Reykjavik|Riga|Rotterdam|Salt Lake City|San Diego|Santiago|Seoul|Seville|"
    "Stavanger|Stuttgart|Tallinn|Tampere|Toulouse|Trieste|Tunis|Turin|Uppsala|Utrecht|Valletta|Vancouver|Vilnius|"
    "Warsaw|Wellington|York|Zagreb|Zurich",
    "|",
)
# Both a person's first name and a place; and words and months that are first names.
_BOTH = listed(
    "Adelina Augusta Austin Carolina Charlotte Chelsea Dallas Devon Florence Georgia Houston Jackson Jordan Kingston "
    "Lincoln Lorraine Madison Paris Phoenix Savannah Sydney Victoria Virginia"
)
_WORDS = listed("April August Autumn Dawn Faith Grace Hope Iris Ivy June Lily Mark May Olive Pearl Rose Ruby Summer")

_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_DATE_FORMS = (
    "{month} {day} , {year}", "{day} {month} {year}", "{month} {year}", "{year}", "{day} {month}", "{weekday}",
    "{weekday} , {day} {month}", "the {day} of {month}", "the spring of {year}", "{month}",
)  # fmt: skip

# {firm} is no entity here, though the name of a person or a place is in it.
_FORMS = (
    "{person} was born in {place} on {date} .",
    "On {date} , {person} moved from {place} to {place} .",
    "{person} and {person} met in {place} .",
    "The bridge in {place} was opened by {person} in {date} .",
    "A letter from {person} reached {place} on {date} .",
    "In {place} , {person} taught mathematics until {date} .",
    "{firm} closed its factory in {place} in {date} .",
    "The chair of {firm} is {person} .",
    "Nobody at {firm} would say when the strike began .",
    "Trains from {place} to {place} were late again .",
    "According to {person} , the winter in {place} is mild .",
    "{person} sold the house in {place} to {firm} .",
    "The archive holds two photographs of {person} , taken in {place} .",
    "Rain is expected in {place} , {place} and {place} .",
    "\" I have never been to {place} , \" said {person} .",
    "The concert on {date} was conducted by {person} .",
    "{person} wrote to {firm} about the broken clock .",
    "May the train to {place} be late , the guests will wait .",
    "The work will be finished before {date} .",
    "{person} , a baker from {place} , won the race .",
    "The museum of {place} bought a painting by {person} .",
    "They waited at the harbour of {place} until {date} .",
    "It was {date} when {person} came back to {place} .",
    "Hope is not a plan , {person} told the council of {place} .",
    "{place} has two rivers and a cathedral .",
    "We asked {person} , who had worked for {firm} since {date} .",
    "The march through {place} began at noon .",
    "Grace and patience were needed , wrote {person} in {date} .",
    "Dr {person} will speak in {place} on {date} .",
    "The mayor thanked {person} and {firm} .",
    "Some of the rose gardens in {place} are older than the town .",
    "He read all of the letters twice and answered none .",
)  # fmt: skip
_UNSEEN_FORMS = (
    "Born in {date} , {person} grew up near {place} .",
    "{firm} has offices in {place} and {place} .",
    "The road between {place} and {place} is closed until {date} .",
    "Who was {person} , and why did she leave {place} ?",
    "{person} succeeded {person} as director of {firm} on {date} .",
    "The weather in {place} surprised {person} .",
    "From {date} on , ferries to {place} run twice a day .",
    "My neighbour , {person} , bakes bread for {firm} .",
    "Minutes of the meeting in {place} , {date} : {person} was absent .",
    "Neither {person} nor {person} had seen the flood of {date} .",
)
_FIRMS = ("{last} & Sons", "{last} Motors", "{city} Steel", "{city} Mutual", "{first} Foods", "the {city} Line")


class Vocabulary(NamedTuple):
    """The names that a part has to itself."""

    first: Sequence[str]
    last: Sequence[str]
    cities: Sequence[str]
    both: Sequence[str]
    words: Sequence[str]
    years: Sequence[int]


def share(names: Sequence[str], part: str) -> list[str]:
    """Of five names in alphabetical order, the third is for validation and the fifth for the test."""
    held_out = {2: "validation", 4: "test"}
    return [name for i, name in enumerate(names) if held_out.get(i % 5, "train") == part]


def vocabulary(part: str) -> Vocabulary:
    """The names of "train", "validation" or "test": no two of them share a name or a year."""
    years = [year for year in range(FIRST_YEAR, LAST_YEAR + 1) if part_of_year(year) == part]
    first, last, cities, both, words = (share(names, part) for names in (_FIRST, _LAST, _CITIES, _BOTH, _WORDS))
    return Vocabulary(first, last, cities, both, words, years)


_VOCABULARIES: Mapping[str, Vocabulary] = {part: vocabulary(part) for part in NAMES_PARTS[:3]}


def name_sentences(part: str, number: int, seed: int) -> TaggedSentences:
    """Draw sentences with tagged persons, places and dates, each sentence at most once.

    "train", "validation" and "test" have names and years of their own and the same templates; "unseen_forms" has the
    names of the test, and templates that the others do not have. The field ``ambiguous`` is "yes" where a sentence has
    a name that is a person's and also a place's or another word, such as Florence, Hope or May.

    Args:
        part: one of ``NAMES_PARTS``.
        number: of sentences.
        seed: of the draw: the same seed, the same sentences, on every machine.

    Raises:
        UserError: there is no such part, or it would take long to find that many sentences.
    """
    if part not in NAMES_PARTS:
        raise UserError(f"{part!r} is no part of the sentences with names; write one of {', '.join(NAMES_PARTS)}.")
    if number > _MOST:
        raise UserError(f"{number} sentences with names take too long to find; write at most {_MOST}.")
    unseen = part == "unseen_forms"
    forms, names = _UNSEEN_FORMS if unseen else _FORMS, _VOCABULARIES["test" if unseen else part]
    # random() is the one method whose sequence Python promises to keep.
    uniform = Random(f"{NAMES} {part} {seed}").random
    drawn: dict[tuple[str, ...], Tagged] = {}
    both = {*names.both, *names.words}
    while len(drawn) < number:
        words, tags = _fill(uniform, pick(uniform, forms), names)
        ambiguous = "no" if both.isdisjoint(words) else "yes"
        drawn.setdefault(words, Tagged(words, tags, None, {"ambiguous": ambiguous}))
    return TaggedSentences(NAMES, list(drawn.values()), tag_labels(_TYPES))


def pick(uniform: Callable[[], float], choices: Sequence[Item]) -> Item:
    """One of several, each with the same probability, by a number from 0 to below 1."""
    return choices[int(uniform() * len(choices))]


def _fill(uniform: Callable[[], float], form: str, names: Vocabulary) -> tuple[tuple[str, ...], tuple[str, ...]]:
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


def person(uniform: Callable[[], float], names: Vocabulary) -> str:
    """A first name, a last name, or both."""
    kind = uniform()
    first = pick(uniform, names.both if kind < 0.15 else names.words if kind < 0.25 else names.first)
    last, form = pick(uniform, names.last), uniform()
    if form < 0.2:
        return first
    if form < 0.3:
        return last
    return f"{first} {chr(65 + int(uniform() * 26))}. {last}" if form < 0.4 else f"{first} {last}"


def place(uniform: Callable[[], float], names: Vocabulary) -> str:
    """A town, some of which are first names too."""
    return pick(uniform, names.both if uniform() < 0.15 else names.cities)


def date(uniform: Callable[[], float], names: Vocabulary) -> str:
    """A day, a month or a year, as it is written."""
    return pick(uniform, _DATE_FORMS).format(
        day=1 + int(uniform() * 28),
        month=pick(uniform, _MONTHS),
        weekday=pick(uniform, _WEEKDAYS),
        year=names.years[int(uniform() * len(names.years))],
    )


def firm(uniform: Callable[[], float], names: Vocabulary) -> str:
    """A firm called after a person or a town."""
    return pick(uniform, _FIRMS).format(
        first=pick(uniform, names.first), last=pick(uniform, names.last), city=pick(uniform, names.cities)
    )


_FILLINGS = {
    "{person}": (person, "PERSON"),
    "{place}": (place, "PLACE"),
    "{date}": (date, "DATE"),
    "{firm}": (firm, None),
}

__all__ = ["NAMES", "NAMES_PARTS", "Vocabulary", "firm", "listed", "name_sentences", "pick", "share", "vocabulary"]
