"""Demonstrations for causal language models: prompts with their completions, and conversations.

The columns are those of the "prompt-completion" and "conversational" forms of TRL. The model learns the completion, or
what the assistant says, and reads the rest.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ..errors import UserError
from .examples import Examples
from .rows import Row, Rows, Source, open_rows

FORMS = ("text", "prompt_completion", "messages")
ASSISTANT = "assistant"  # the role whose messages are learned

Messages: TypeAlias = list[dict[str, Any]]


class Demonstration(NamedTuple):
    """What a model reads, and how it should go on.

    Attributes:
        prompt: a text, or the first messages of a conversation. Nothing of it is learned.
        completion: a text, or the other messages, of which those of the assistant are learned.
        line: line or row number in the dataset; None if it is not from one.
        fields: the other columns of its row.
    """

    prompt: str | Messages
    completion: str | Messages
    line: int | None = None
    fields: Mapping[str, Any] = {}

    @property
    def last_turn(self) -> tuple[str | Messages, str]:
        """The last answer, after what it answers: the prompt, or all messages before it."""
        if isinstance(self.prompt, str):
            return self.prompt, str(self.completion)
        messages: Messages = [*self.prompt, *self.completion]
        last = max(i for i, message in enumerate(messages) if message["role"] == ASSISTANT)
        return messages[:last], messages[last]["content"]


@dataclass(frozen=True)
class Demonstrations(Examples[Demonstration]):
    """Demonstrations in memory.

    Attributes:
        empty: number of rows that were left out because there is nothing to read or to learn in them.
        repeated: number of rows that were left out because they repeat another.
    """

    empty: int = 0
    repeated: int = 0

    noun = "Example"

    @property
    def form(self) -> str:
        """One of ``FORMS``, the name of the columns."""
        return "prompt_completion" if self.items[0].prompt else "messages"

    @property
    def are_conversations(self) -> bool:
        return not isinstance(self.items[0].completion, str)

    def columns(self, item: Demonstration) -> tuple[str, ...]:
        return as_text(item.prompt), as_text(item.completion)

    def texts(self, item: Demonstration) -> tuple[str, ...]:
        if isinstance(item.prompt, str):
            return self.columns(item)
        return tuple(message["content"] for message in [*item.prompt, *item.completion])


def as_text(value: str | Messages) -> str:
    """Return a text as it is, and messages as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def form_of(rows: Rows, messages_column: str, prompt_column: str, completion_column: str) -> str:
    """Return the form of data, one of ``FORMS``, by the columns of the first row."""
    first = next(iter(rows), None)
    known = set() if first is None else {name.partition(".")[0] for name in first.values}
    if {name.partition(".")[0] for name in (prompt_column, completion_column)} <= known:
        return "prompt_completion"
    return "messages" if messages_column.partition(".")[0] in known else "text"


def read_demonstrations(
    dataset: Source,
    *,
    form: str,
    messages_column: str = "messages",
    prompt_column: str = "prompt",
    completion_column: str = "completion",
    empty: str = "error",
    duplicates: str = "keep",
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
) -> Demonstrations:
    """Read demonstrations.

    Args:
        dataset: a source of rows, as in ``open_rows``.
        form: "prompt_completion" for two columns, both with texts or both with lists of messages; "messages" for a
            column with a conversation. A message has a ``role`` and a ``content``.
        messages_column, prompt_column, completion_column: names of the columns.
        empty: whether a row with an empty prompt or completion, or without an answer, is an ``"error"``, or ``"drop"``
            leaves it out.
        duplicates: ``"drop"`` reads equal rows once.
        config, split, revision: configuration, split and revision of a dataset on the Hub.

    Raises:
        UserError: the file, dataset or column does not exist or is empty, or a row is malformed; the message has its
            number.
    """
    rows = open_rows(dataset, config=config, split=split, revision=revision)
    columns = [(prompt_column, "prompt_column"), (completion_column, "completion_column")]
    columns = columns if form == "prompt_completion" else [(messages_column, "messages_column")]
    used = {column.partition(".")[0] for column, _ in columns}
    items: dict[tuple[str, str, int], Demonstration] = {}
    number = lacking = 0
    for row in rows:
        values = [_value(rows, row, column, field) for column, field in columns]
        prompt, completion = values if len(values) == 2 else ([], values[0])
        if isinstance(prompt, str) != isinstance(completion, str):
            raise UserError(
                f"{rows.place(row)} has a text and messages as prompt and completion; write texts or messages in both."
            )
        fields = {name: row.values[name] for name in row.values if name not in used}
        item = Demonstration(prompt, completion, row.number, fields)
        if (lack := _lack(item, form)) is not None:
            if empty == "error":
                raise UserError(
                    f"{rows.place(row)} has {lack}; correct it, or write data.empty: drop to leave such rows out."
                )
            lacking += 1
            continue
        number += 1
        key = (as_text(prompt), as_text(completion), 0 if duplicates == "drop" else number)
        items.setdefault(key, item)
    if not items:
        reason = "is empty" if not lacking else "has only rows with nothing to learn"
        raise UserError(f"{rows.name} {reason}; write a prompt and its completion, or messages, in each row.")
    return Demonstrations(rows.name, list(items.values()), lacking, number - len(items), unit=rows.unit)


def _value(rows: Rows, row: Row, column: str, field: str) -> str | Messages:
    value = rows.value(row, column, field)
    if field != "messages_column" and (value is None or isinstance(value, str)):
        return value or ""
    whole = isinstance(value, list) and all(isinstance(each, dict) for each in value)
    if not whole or not all(isinstance(each.get(key), str) for each in value for key in ("role", "content")):
        wanted = 'a list of messages such as {"role": "user", "content": "Hello"}'
        raise UserError(
            f"{rows.place(row)} holds {_shortened(value)} in {column!r}; write {wanted}"
            f"{'' if field == 'messages_column' else ', or a text'}."
        )
    # Arrow files have a value for each key that any message has.
    return [{key: each[key] for key in each if each[key] is not None} for each in value]


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _lack(item: Demonstration, form: str) -> str | None:
    """Return what a demonstration lacks, or None."""
    if form == "prompt_completion" and not _has_content(item.prompt):
        return "an empty prompt"
    if isinstance(item.completion, str) or not item.completion:
        return None if _has_content(item.completion) else "an empty completion"
    answers = [each["content"] for each in item.completion if each["role"] == ASSISTANT]
    if not answers:
        return f"no message with the role {ASSISTANT!r}"
    return None if all(answer.strip() for answer in answers) else "an empty message of the assistant"


def _has_content(value: str | Messages) -> bool:
    return bool(value.strip() if isinstance(value, str) else value)
