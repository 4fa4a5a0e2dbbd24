"""Synthetic English paragraphs of facts about persons and towns, with questions, from templates.

A question answering task that trains in minutes on a CPU. It is easy and does not measure how well a model reads real
text. Each paragraph states the same kinds of facts about two persons or two towns, so that answering needs both the
words of the question and the name in it. The names, towns and years of the test do not occur in training.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..data.questions import Answer, Question, Questions
from .engine import Item, Uniform, draw_distinct, load_words, pick
from .names import VOCABULARIES, firm, share

_WORDS = load_words("facts")
_LIMITS = dict.fromkeys(("train", "validation", "test", "unseen_forms"), 100_000)
_KINDS_TOLD = 3  # kinds of facts that a paragraph states about each of its two subjects
_UNANSWERABLE = 1 / 3  # share of questions without an answer, where there are such questions


@dataclass(frozen=True)
class Fact:
    """A kind of fact: what is drawn as its value, how it is stated, and how each group of parts asks for it."""

    value: str
    statements: Sequence[str]
    questions: Sequence[str]
    unseen_questions: Sequence[str]


_PERSONS, _TOWNS = (
    {kind: Fact(**fields) for kind, fields in _WORDS[subject].items()} for subject in ("persons", "towns")
)


def fact_questions(part: str, number: int, seed: int, unanswerable: bool = False) -> Questions:
    """Draw questions about paragraphs of facts, each with a paragraph of its own.

    "train", "validation" and "test" share their wording but no name, town or year; "unseen_forms" has the names of the
    test, and questions in a wording of its own. The field ``fact`` names the kind of fact that is asked for.

    Args:
        part: "train", "validation", "test" or "unseen_forms".
        number: number of questions.
        seed: seed of the draws; the same seed gives the same questions on every machine.
        unanswerable: whether one question in three asks for a fact that the paragraph states only about the other
            subject.

    Raises:
        UserError: there is no such part, or it would take too long to find that many questions.
    """

    def draw(uniform: Uniform, index: int) -> tuple[tuple[str, str], Question]:
        question = _question(uniform, part, unanswerable, f"{part}-{index + 1}")
        return (question.question, question.context), question

    return Questions("facts", draw_distinct("facts", part, number, seed, _LIMITS, draw))


def _question(uniform: Uniform, part: str, unanswerable: bool, id: str) -> Question:
    unseen = part == "unseen_forms"
    value_part = "test" if unseen else part
    facts: Mapping[str, Fact]
    facts, subject = pick(uniform, ((_PERSONS, "name"), (_TOWNS, "town")))
    kinds = _shuffled(uniform, list(facts))[:_KINDS_TOLD]
    first, second = _value(subject, uniform, value_part), _value(subject, uniform, value_part)
    while second == first:
        second = _value(subject, uniform, value_part)
    told = _shuffled(uniform, [(name, kind) for name in (first, second) for kind in kinds])
    asked = pick(uniform, told)
    if unanswerable and uniform() < _UNANSWERABLE:
        told.remove(asked)  # the fact about the other subject remains
    context = ""
    answers: tuple[Answer, ...] = ()
    for name, kind in told:
        statement, value = pick(uniform, facts[kind].statements), _value(facts[kind].value, uniform, value_part)
        if (name, kind) == asked:
            start = len(context) + len(statement.partition("{value}")[0].format(name=name))
            answers = (Answer(value, start),)
        context += statement.format(name=name, value=value) + " "
    name, kind = asked
    question = pick(uniform, facts[kind].unseen_questions if unseen else facts[kind].questions)
    return Question(id, question.format(name=name), context.rstrip(), answers, None, {"fact": kind})


def _value(kind: str, uniform: Uniform, part: str) -> str:
    """Draw a value of the kind that a ``value`` of words/facts.yaml names."""
    names = VOCABULARIES[part]
    match kind:
        case "name":
            return f"{pick(uniform, names.first)} {pick(uniform, names.last)}"
        case "town":
            return pick(uniform, names.cities)
        case "year":
            return str(pick(uniform, names.years))
        case "month":
            return pick(uniform, _WORDS["fair_months"])
        case "number":
            return f"{int(uniform() * 900) + 20},{int(uniform() * 10)}00"
        case "trade":
            return pick(uniform, share(_WORDS["trades"], part))
        case "thing":
            return pick(uniform, share(_WORDS["things"], part))
        case "firm":
            return firm(uniform, names)
    raise ValueError(f"{kind!r} is not a kind of value; see words/facts.yaml.")


def _shuffled(uniform: Uniform, items: Sequence[Item]) -> list[Item]:
    return [item for _, _, item in sorted((uniform(), i, item) for i, item in enumerate(items))]
