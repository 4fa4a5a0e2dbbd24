"""The generated datasets by name: how each is drawn, the recipe that trains on it, and what its card says."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from statistics import median_low
from typing import Any

from ..data.demonstrations import ASSISTANT, Demonstration, Demonstrations
from ..data.examples import Examples
from ..data.labeled import Labeled, LabeledTexts, guess_accuracy
from ..data.pairs import Pair, Pairs
from ..models.strict_config import unknown_message
from . import opinions, reber
from .dates import FIRST_YEAR, LAST_YEAR, date_pairs
from .facts import fact_questions
from .long_range import DIGITS, duplicates, listops_texts, recalls
from .names import name_sentences
from .phrases import phrase_pairs

Row = dict[str, Any]  # texts, the number of a class in the column "label", and a list in the column "messages"


@dataclass(frozen=True)
class CardInfo:
    """What is needed to publish a generated dataset.

    Attributes:
        row: function from an example to its columns, from which the recipe reads the same example.
        facts: function from the examples of each part to the variables of the card's template.
        fingerprinted: columns that the fingerprint covers.
        classes: names of the classes of the column ``label``, if there is one.
    """

    row: Callable[[Any], Row]
    facts: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    fingerprinted: str
    classes: Sequence[str] = ()


@dataclass(frozen=True)
class GeneratedData:
    """A generated dataset.

    Attributes:
        parts: names of the parts, "train" first.
        draw: function of a part, a number of examples and a seed.
        recipe: the recipe that trains on it; its configuration has the name of the dataset.
        examples, evaluation_examples: size of the training part and of each other part in that configuration.
        card: what publishing needs; None if the dataset is not published.
    """

    parts: Sequence[str]
    draw: Callable[..., Examples[Any]]
    recipe: str
    examples: int
    evaluation_examples: int
    card: CardInfo | None = None

    def draw_parts(self, examples: int, evaluation_examples: int, seed: int, **options: Any) -> dict[str, Any]:
        """Draw every part.

        Args:
            examples: size of the training part.
            evaluation_examples: size of each other part.
            seed: seed of the draws.
            options: further arguments of ``draw``.

        Raises:
            UserError: there are not that many examples, or an option has a value that ``draw`` refuses.
        """
        numbers = {part: examples if part == "train" else evaluation_examples for part in self.parts}
        return {part: self.draw(part, number, seed, **options) for part, number in numbers.items()}


def generated_for(recipe: str) -> dict[str, GeneratedData]:
    """Return the generated datasets of a recipe, by name."""
    return {name: data for name, data in GENERATED.items() if data.recipe == recipe}


def check_generated(name: str, options: Mapping[str, Any], names: Collection[str]) -> None:
    """Check the options of a dataset: the further arguments of ``draw`` of a generated one.

    Args:
        name: name of the dataset.
        options: the options.
        names: the generated datasets that a recipe supports.

    Raises:
        ValueError: the dataset has no such option, or an option is of another type than its default.
    """
    if name not in names:  # the options are unused then, as examples is
        return
    arguments = signature(GENERATED[name].draw).parameters
    known = {argument: each.default for argument, each in arguments.items() if each.default is not each.empty}
    for option, value in options.items():
        if option not in known:
            raise ValueError(unknown_message(option, sorted(known), f"an option of {name}"))
        if type(value) is not type(known[option]):
            raise ValueError(f"options.{option} is {value!r}; write a value like the default, {known[option]!r}.")


def _row_of_pair(pair: Pair) -> Row:
    return {"source": pair.source, "target": pair.target, "form": pair.kind}


def _row_of_text(text: Labeled) -> Row:
    return {"text": text.text, "label": text.label, **text.fields}


def _count_forms(drawn: Mapping[str, Iterable[Any]], form_of: Callable[[Any], str]) -> Mapping[str, Any]:
    """Return for each form its number of examples in each part."""
    counts = [Counter(map(form_of, examples)) for examples in drawn.values()]
    forms = sorted({form for each in counts for form in each}, key=lambda form: (form.lower(), form))
    return {"forms": {form: [each[form] for each in counts] for form in forms}}


def _facts_of_pairs(drawn: Mapping[str, Pairs]) -> Mapping[str, Any]:
    return _count_forms(drawn, lambda pair: pair.kind)


def _facts_of_dates(drawn: Mapping[str, Pairs]) -> Mapping[str, Any]:
    return {**_facts_of_pairs(drawn), "first_year": FIRST_YEAR, "last_year": LAST_YEAR}


def _facts_of_opinions(drawn: Mapping[str, LabeledTexts]) -> Mapping[str, Any]:
    def form(item: Labeled) -> str:
        return f"{item.fields['form']} | {item.fields['language']} | {opinions.LABELS[item.label]}"

    return _count_forms(drawn, form)


def _facts_of_reber(drawn: Mapping[str, LabeledTexts]) -> Mapping[str, Any]:
    lengths = {}
    for part, texts in drawn.items():
        broken, sizes = Counter(item.fields["broken"] for item in texts), [len(item.text) for item in texts]
        numbers = [broken[place] for place in ("nowhere", "middle", "end")]
        lengths[part] = [*numbers, min(sizes), median_low(sizes), max(sizes)]
    return {"lengths": lengths}


def _row_of_messages(item: Demonstration) -> Row:
    return {"messages": [*item.prompt, *item.completion]}


def _facts_of_listops(drawn: Mapping[str, LabeledTexts]) -> Mapping[str, Any]:
    facts = {}
    for part, texts in drawn.items():
        lengths = [item.text.count(" ") + 1 for item in texts]
        guesses = [guess_accuracy(drawn["train"], texts, column) for column in (None, "root")]
        facts[part] = [min(lengths), median_low(lengths), max(lengths), *(f"{each:.3f}" for each in guesses)]
    return {"facts": facts}


def _facts_of_messages(drawn: Mapping[str, Demonstrations]) -> Mapping[str, Any]:
    first = drawn["train"].items[0]  # all have as many symbols
    assert not isinstance(first.completion, str)
    numbers = [(len(message["content"].split()), message["role"] == ASSISTANT) for message in first.completion]
    return {"symbols": sum(number for number, _ in numbers), "learned": sum(number for number, told in numbers if told)}


_THREE = ("train", "validation", "test")

GENERATED: Mapping[str, GeneratedData] = {
    "dates": GeneratedData(
        parts=(*_THREE, "unseen_forms"),
        draw=date_pairs,
        recipe="translation",
        examples=30_000,
        evaluation_examples=1_000,
        card=CardInfo(_row_of_pair, _facts_of_dates, "source and target"),
    ),
    "phrases": GeneratedData(
        parts=(*_THREE, "unseen_pairs"),
        draw=phrase_pairs,
        recipe="translation",
        examples=30_000,
        evaluation_examples=500,
        card=CardInfo(_row_of_pair, _facts_of_pairs, "source and target"),
    ),
    "opinions": GeneratedData(
        parts=_THREE,
        draw=opinions.opinion_texts,
        recipe="classification",
        examples=8_000,
        evaluation_examples=500,
        card=CardInfo(_row_of_text, _facts_of_opinions, "label and text", opinions.LABELS),
    ),
    "reber": GeneratedData(
        parts=_THREE,
        draw=reber.reber_texts,
        recipe="classification",
        examples=40_000,
        evaluation_examples=2_000,
        card=CardInfo(_row_of_text, _facts_of_reber, "label and text", reber.LABELS),
    ),
    "names": GeneratedData(
        parts=(*_THREE, "unseen_forms"),
        draw=name_sentences,
        recipe="token_classification",
        examples=8_000,
        evaluation_examples=1_000,
    ),
    "facts": GeneratedData(
        parts=(*_THREE, "unseen_forms"),
        draw=fact_questions,
        recipe="question_answering",
        examples=8_000,
        evaluation_examples=1_000,
    ),
    "listops": GeneratedData(
        parts=_THREE,
        draw=listops_texts,
        recipe="classification",
        examples=30_000,
        evaluation_examples=2_000,
        card=CardInfo(_row_of_text, _facts_of_listops, "label and text", DIGITS),
    ),
    "duplicate": GeneratedData(
        parts=_THREE,
        draw=duplicates,
        recipe="causal_lm",
        examples=20_000,
        evaluation_examples=500,
        card=CardInfo(_row_of_messages, _facts_of_messages, "an empty column and the messages as JSON"),
    ),
    "recall": GeneratedData(
        parts=_THREE,
        draw=recalls,
        recipe="causal_lm",
        examples=20_000,
        evaluation_examples=500,
        card=CardInfo(_row_of_messages, _facts_of_messages, "an empty column and the messages as JSON"),
    ),
}
