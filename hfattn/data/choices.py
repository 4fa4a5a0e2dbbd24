"""Questions with several choices, one of which is right: read them, draw wrong choices, and encode them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from .batches import TrainingExamples
from .examples import Examples
from .rows import Row, Rows, Source, open_rows

NEIGHBOURS = 100  # texts of similar length among which a wrong choice is drawn


class Choice(NamedTuple):
    """A context, its choices, the index of the right one, the line or row, and the other columns of that row."""

    context: str
    choices: tuple[str, ...]
    label: int
    line: int | None = None
    fields: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Choices(Examples[Choice]):
    """Questions with several choices, in memory. The number of choices may differ between them."""

    noun = "Question"
    shared_name = "context"

    def columns(self, item: Choice) -> tuple[str, ...]:
        return str(item.label), *self.texts(item)

    def texts(self, item: Choice) -> tuple[str, ...]:
        return item.context, *item.choices

    def shared_key(self, item: Choice) -> str:
        return item.context

    def inputs(self, item: Choice) -> dict[str, str]:
        return {"max_length": f"{item.context} {max(item.choices, key=len)}"}

    @property
    def chance(self) -> float:
        """Expected accuracy of guessing."""
        return float(np.mean([1 / len(item.choices) for item in self.items]))


def read_choices(
    dataset: Source,
    *,
    context_column: str,
    choice_columns: Sequence[str],
    label_column: str | None,
    columns: Sequence[str] | None = None,
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
) -> Choices:
    """Read questions with several choices.

    Args:
        dataset: a source of rows, as in ``open_rows``.
        context_column: column of the context, such as a question or the beginning of a sentence.
        choice_columns: one column that holds a list of choices, or one column for each choice. A text in a single
            column is a single choice, for ``with_distractors``.
        label_column: column of the index of the right choice, from 0 on; None if the single choice is right.
        columns: names of the columns of a tab-separated file; by default, they are in its first line.
        config, split, revision: configuration, split and revision of a dataset on the Hub.

    Raises:
        UserError: the file, dataset or column does not exist or is empty, or a line is malformed; the message has the
            line number.
    """
    rows = open_rows(dataset, columns=columns, config=config, split=split, revision=revision)
    used, items = {context_column, *choice_columns, label_column}, []
    for row in rows:
        choices = _choices(rows, row, choice_columns)
        label = 0 if label_column is None else rows.value(row, label_column, "label_column")
        index = int(label) if isinstance(label, str) and label.isdecimal() else label
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(choices):
            raise UserError(
                f"{rows.place(row)} has the label {label!r} and {len(choices)} choices; write the index of the right "
                "one, counted from 0."
            )
        fields = {name: row.values[name] for name in row.values if name not in used}
        context = rows.text(row, context_column, "context", "context_column")
        items.append(Choice(context, choices, index, row.number, fields))
    if not items:
        raise UserError(f"{rows.name} is empty; write a context, its choices and a label on each line.")
    return Choices(rows.name, items, unit=rows.unit)


def _choices(rows: Rows, row: Row, columns: Sequence[str]) -> tuple[str, ...]:
    held = rows.value(row, columns[0], "choice_columns")
    if len(columns) > 1 or not isinstance(held, list):
        return tuple(rows.text(row, column, "choice") for column in columns)
    if len(held) < 2 or not all(isinstance(choice, str) and choice.strip() for choice in held):
        raise UserError(f"{rows.place(row)} has the choices {held!r}; write at least two texts.")
    return tuple(held)


def with_distractors(questions: Choices, number: int, seed: int) -> Choices:
    """Add wrong choices to questions that have only their right one.

    The wrong choices are right choices of other questions, drawn among the ``NEIGHBOURS`` whose number of characters is
    nearest, so that their length does not tell them. No wrong choice is right for another question with the same
    context. The right one is put to a random place.

    Args:
        questions: questions with one choice each.
        number: number of wrong choices.
        seed: random seed.

    Raises:
        UserError: there are too few different choices.
    """
    random, right = Random(seed), defaultdict(set)
    for item in questions:
        right[item.context].add(item.choices[0])
    texts = sorted({item.choices[0] for item in questions})
    random.shuffle(texts)
    texts.sort(key=len)  # in random order where the length is the same
    place, items = {text: i for i, text in enumerate(texts)}, []
    for item in questions:
        middle = place[item.choices[0]]
        start = max(0, min(middle - NEIGHBOURS // 2, len(texts) - NEIGHBOURS))
        near = [text for text in texts[start : start + NEIGHBOURS] if text not in right[item.context]]
        if len(near) < number:
            raise UserError(
                f"{questions.name} has too few choices for data.distractors {number}; write fewer, or add rows."
            )
        choices, label = random.sample(near, number), random.randrange(number + 1)
        choices.insert(label, item.choices[0])
        items.append(item._replace(choices=tuple(choices), label=label))
    return replace(questions, items=items)


class EncodedChoices(TrainingExamples[dict[str, Any]]):
    """Questions as inputs of a sequence classifier: ``windows``, an input for each choice, and ``labels``.

    An input is the pair of the context and a choice. ``WindowCollator`` makes batches of them.

    Args:
        questions: the questions.
        tokenizer: tokenizer of the model; it joins the pairs.
        max_length: maximum length of an input in tokens; of a longer pair, the longer text is cut.

    Attributes:
        lengths: (n, 1) numbers of tokens of each question, with its context once for each choice.
    """

    def __init__(self, questions: Choices, tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
        alone = next((i for i, item in enumerate(questions) if len(item.choices) < 2), None)
        if alone is not None:
            raise UserError(f"{questions.place(alone)} has one choice; write at least two, or data.distractors.")
        self.questions, self.max_length = questions, max_length
        contexts = [item.context for item in questions for _ in item.choices]
        choices = [choice for item in questions for choice in item.choices]
        encoded = tokenizer(contexts, choices, truncation=True, max_length=max_length)
        inputs = iter({name: encoded[name][i] for name in encoded} for i in range(len(choices)))
        self.inputs = [[next(inputs) for _ in item.choices] for item in questions]
        self.lengths = np.array([[sum(len(each["input_ids"]) for each in rows)] for rows in self.inputs])

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"windows": self.inputs[index], "labels": self.questions.items[index].label}
