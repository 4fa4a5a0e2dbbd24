"""Synthetic paragraphs of facts about persons and places, with questions, made from templates of our own.

A question answering task for minutes on a CPU. It is easy, and no measure of how well a model reads real text. A
paragraph says the same kinds of things of two persons, or of two towns, so that the question's words and the name in it
are both needed; and names, towns and years of the test occur nowhere in the training.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from ..errors import UserError
from .names import Vocabulary, firm, listed, pick, share, vocabulary
from .questions import Answer, Question, Questions

FACTS = "facts"
FACTS_PARTS = ("train", "validation", "test", "unseen_forms")
_MOST = 100_000
_KINDS = 3  # of facts that are told of each of two
_UNANSWERABLE = 1 / 3  # of the questions, where there are such

_TRADES = listed(
    "architect baker barber beekeeper blacksmith bookbinder botanist carpenter cartographer chemist clockmaker cook "
    "dentist diplomat engraver farmer fisherman gardener geologist glassblower harpist judge lawyer librarian "
    "locksmith mathematician midwife miner notary nurse organist painter pharmacist photographer pilot potter printer "
    "sailor sculptor shepherd singer surgeon tailor teacher translator watchmaker weaver"
)
_THINGS = listed(
    "antique maps|beer glasses|brass bells|butterflies|chess sets|copper coins|dried ferns|fishing nets|fossils|"
    "glass bottles|kites|lace|leather gloves|maple syrup|marbles|masks|music boxes|old clocks|oranges|paper lanterns|"
    "pewter spoons|porcelain cups|postage stamps|puppets|rare beetles|river pearls|sea shells|silk scarves|"
    "silver thimbles|smoked trout|snow globes|straw hats|tin soldiers|toy trains|umbrellas|violins|walking sticks|"
    "walnut furniture|white wine|wool carpets",
    "|",
)

Item = TypeVar("Item")


@dataclass(frozen=True)
class _Values:
    """What a part has to itself."""

    names: Vocabulary
    trades: Sequence[str]
    things: Sequence[str]


@dataclass(frozen=True)
class Fact:
    """A kind of fact: how it is stated, how it is asked for in all parts but one, and in that one."""

    statements: tuple[str, ...]
    questions: tuple[str, ...]
    unseen_questions: tuple[str, ...]
    draw: Callable[[Callable[[], float], _Values], str]  # a value


def _name(uniform: Callable[[], float], values: _Values) -> str:
    return f"{pick(uniform, values.names.first)} {pick(uniform, values.names.last)}"


def _town(uniform: Callable[[], float], values: _Values) -> str:
    return pick(uniform, values.names.cities)


def _year(uniform: Callable[[], float], values: _Values) -> str:
    return str(values.names.years[int(uniform() * len(values.names.years))])


def _number(uniform: Callable[[], float], values: _Values) -> str:
    return f"{int(uniform() * 900) + 20},{int(uniform() * 10)}00"


def _trade(uniform: Callable[[], float], values: _Values) -> str:
    return pick(uniform, values.trades)


def _thing(uniform: Callable[[], float], values: _Values) -> str:
    return pick(uniform, values.things)


_OF_PERSONS: Mapping[str, Fact] = {
    "birthplace": Fact(
        ("{name} was born in {value}.", "{name} came from {value}."),
        ("Where was {name} born?", "In which town was {name} born?"),
        ("What was the birthplace of {name}?",),
        _town,
    ),
    "birth": Fact(
        ("The birth of {name} was in {value}.", "{value} was the year in which {name} was born."),
        ("When was {name} born?", "In which year was {name} born?"),
        ("What was the year of {name}'s birth?",),
        _year,
    ),
    "trade": Fact(
        ("{name} earned a living as {value}.", "The trade of {name} was that of {value}."),
        ("What did {name} do for a living?", "What was the trade of {name}?"),
        ("Which work did {name} do?",),
        _trade,
    ),
    "spouse": Fact(
        ("{name} married {value}.", "A happy marriage joined {name} and {value}."),
        ("Who did {name} marry?", "To whom was {name} married?"),
        ("Who was the spouse of {name}?",),
        _name,
    ),
    "collection": Fact(
        ("At home {name} had a room full of {value}.", "{name} collected {value}."),
        ("What did {name} collect?",),
        ("Which things could one see in the collection of {name}?",),
        _thing,
    ),
    "employer": Fact(
        ("For many years {name} worked for {value}.", "The employer of {name} was {value}."),
        ("Who did {name} work for?", "Which firm employed {name}?"),
        ("At which firm had {name} a post?",),
        lambda uniform, values: firm(uniform, values.names),
    ),
}
_OF_TOWNS: Mapping[str, Fact] = {
    "founding": Fact(
        ("{name} was founded in {value}.", "The charter of {name} dates from {value}."),
        ("When was {name} founded?", "In which year was {name} founded?"),
        ("From which year is the charter of {name}?",),
        _year,
    ),
    "population": Fact(
        ("{name} has {value} inhabitants.", "The last census counted {value} people in {name}."),
        ("How many people live in {name}?", "How many inhabitants has {name}?"),
        ("What is the population of {name}?",),
        _number,
    ),
    "product": Fact(
        ("{name} is known for its {value}.", "Traders go to {name} for {value}."),
        ("What is {name} known for?", "What do traders buy in {name}?"),
        ("Which goods made {name} famous?",),
        _thing,
    ),
    "mayor": Fact(
        ("The mayor of {name} is {value}.", "In {name}, {value} was elected mayor."),
        ("Who is the mayor of {name}?", "Who was elected mayor of {name}?"),
        ("Who governs {name}?",),
        _name,
    ),
    "fair": Fact(
        ("There is a fair in {name} each {value}.", "Each {value}, {name} has a fair."),
        ("When is the fair in {name}?", "In which month is there a fair in {name}?"),
        ("Which month brings a fair to {name}?",),
        lambda uniform, values: pick(uniform, ("January", "March", "May", "June", "August", "October", "November")),
    ),
}
_VALUES = {part: _Values(vocabulary(part), share(_TRADES, part), share(_THINGS, part)) for part in FACTS_PARTS[:3]}


def fact_questions(part: str, number: int, seed: int, unanswerable: bool = False) -> Questions:
    """Draw questions about paragraphs of facts, each with a paragraph of its own.

    "train", "validation" and "test" have names, towns and years of their own and the same wording; "unseen_forms" has
    the names of the test, and questions in words that the others do not have. The field ``fact`` says what is
    asked for.

    Args:
        part: one of ``FACTS_PARTS``.
        number: of questions.
        seed: of the draw: the same seed, the same questions, on every machine.
        unanswerable: whether one question in three asks for what the paragraph says only of another.

    Raises:
        UserError: there is no such part, or it would take long to find that many questions.
    """
    if part not in FACTS_PARTS:
        raise UserError(f"{part!r} is no part of the questions about facts; write one of {', '.join(FACTS_PARTS)}.")
    if number > _MOST:
        raise UserError(f"{number} questions about facts take too long to find; write at most {_MOST}.")
    unseen = part == "unseen_forms"
    values = _VALUES["test" if unseen else part]
    # random() is the one method whose sequence Python promises to keep.
    uniform = Random(f"{FACTS} {part} {seed}").random
    drawn: dict[tuple[str, str], Question] = {}
    while len(drawn) < number:
        question = _draw(uniform, values, unseen, unanswerable, f"{part}-{len(drawn) + 1}")
        drawn.setdefault((question.question, question.context), question)
    return Questions(FACTS, list(drawn.values()))


def _draw(uniform: Callable[[], float], values: _Values, unseen: bool, unanswerable: bool, id: str) -> Question:
    facts, draw_name = pick(uniform, ((_OF_PERSONS, _name), (_OF_TOWNS, _town)))
    kinds = _shuffled(uniform, list(facts))[:_KINDS]
    first, second = draw_name(uniform, values), draw_name(uniform, values)
    while second == first:
        second = draw_name(uniform, values)
    told = _shuffled(uniform, [(name, kind) for name in (first, second) for kind in kinds])
    asked = told[int(uniform() * len(told))]
    if unanswerable and uniform() < _UNANSWERABLE:
        told.remove(asked)  # the other one's is still told
    context = ""
    answers: tuple[Answer, ...] = ()
    for name, kind in told:
        statement, value = pick(uniform, facts[kind].statements), facts[kind].draw(uniform, values)
        if (name, kind) == asked:
            start = len(context) + len(statement.partition("{value}")[0].format(name=name))
            answers = (Answer(value, start),)
        context += statement.format(name=name, value=value) + " "
    name, kind = asked
    question = pick(uniform, facts[kind].unseen_questions if unseen else facts[kind].questions)
    return Question(id, question.format(name=name), context.rstrip(), answers, None, {"fact": kind})


def _shuffled(uniform: Callable[[], float], items: Sequence[Item]) -> list[Item]:
    return [item for _, _, item in sorted((uniform(), i, item) for i, item in enumerate(items))]


__all__ = ["FACTS", "FACTS_PARTS", "fact_questions"]
