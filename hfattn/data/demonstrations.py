"""Demonstrations for causal language models: prompts with their completions, and conversations.

The columns are those of the "prompt-completion" and "conversational" forms of TRL, with calls of tools. The model
learns the completion, or what the assistant says and calls, and reads the rest.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ..errors import UserError
from .examples import Examples
from .rows import Row, Rows, Source, open_rows

FORMS = ("text", "prompt_completion", "messages")
ASSISTANT = "assistant"  # the role whose messages are learned
CALLS = "tool_calls"  # key of an assistant's message

Messages: TypeAlias = list[dict[str, Any]]
Tools: TypeAlias = list[dict[str, Any]]  # JSON schemas of functions, as chat templates read them


class Demonstration(NamedTuple):
    """What a model reads, and how it should go on.

    Attributes:
        prompt: a text, or the first messages of a conversation. Nothing of it is learned.
        completion: a text, or the other messages, of which those of the assistant are learned.
        line: line or row number in the dataset; None if it is not from one.
        fields: the other columns of its row.
        tools: the tools that the assistant may call.
    """

    prompt: str | Messages
    completion: str | Messages
    line: int | None = None
    fields: Mapping[str, Any] = {}
    tools: Tools = []

    @property
    def last_turn(self) -> tuple[str | Messages, str]:
        """The last answer, after what it answers: the prompt, or all messages before it. A call of a tool is empty."""
        if isinstance(self.prompt, str):
            return self.prompt, str(self.completion)
        messages: Messages = [*self.prompt, *self.completion]
        last = max(i for i, message in enumerate(messages) if message["role"] == ASSISTANT)
        return messages[:last], "" if messages[last].get(CALLS) else messages[last]["content"]


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
        messages: Messages = [*item.prompt, *item.completion]
        return tuple(text for each in messages for text in (each["content"], *map(json.dumps, each.get(CALLS, ()))))


def as_text(value: str | Messages) -> str:
    """Return a text as it is, and messages or tools as JSON."""
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
    tools_column: str = "tools",
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
            column with a conversation. A message has a ``role`` and a ``content``; one of the assistant may have
            ``tool_calls`` too, or instead.
        messages_column, prompt_column, completion_column: names of the columns.
        tools_column: name of a column with the tools of a conversation, a list of JSON schemas or its JSON; data
            without calls need not have it.
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
    used = {column.partition(".")[0] for column in (*(column for column, _ in columns), tools_column)}
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
        tools = [] if isinstance(completion, str) else _tools(rows, row, tools_column)
        item = Demonstration(prompt, completion, row.number, fields, tools)
        if (lack := _lack(item, form)) is not None:
            if empty == "error":
                raise UserError(
                    f"{rows.place(row)} has {lack}; correct it, or write data.empty: drop to leave such rows out."
                )
            lacking += 1
            continue
        number += 1
        key = (as_text(prompt), as_text(completion) + as_text(tools), 0 if duplicates == "drop" else number)
        items.setdefault(key, item)
    if not items:
        reason = "is empty" if not lacking else "has only rows with nothing to learn"
        raise UserError(f"{rows.name} {reason}; write a prompt and its completion, or messages, in each row.")
    return Demonstrations(rows.name, list(items.values()), lacking, number - len(items), unit=rows.unit)


def _value(rows: Rows, row: Row, column: str, field: str) -> str | Messages:
    value = rows.value(row, column, field)
    if field != "messages_column" and (value is None or isinstance(value, str)):
        return value or ""
    if not isinstance(value, list) or not all(_is_message(each) for each in value):
        wanted = 'a list of messages such as {"role": "user", "content": "Hello"}'
        raise UserError(
            f"{rows.place(row)} holds {_shortened(value)} in {column!r}; write {wanted}"
            f"{'' if field == 'messages_column' else ', or a text'}."
        )
    without_text = {"content": ""}  # of a message that only calls tools
    return [
        {**_without_nulls(each), **({} if isinstance(each.get("content"), str) else without_text), **_calls(each)}
        for each in value
    ]


def _is_message(value: Any) -> bool:
    """Return whether a value is a message with a text, with calls of tools, or with both."""
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        return False
    calls, content = value.get(CALLS), value.get("content")
    if not calls:
        return isinstance(content, str)
    known = isinstance(calls, list) and all(isinstance(each, dict) and _function(each) for each in calls)
    return known and value["role"] == ASSISTANT and isinstance(content, str | None)


def _function(call: dict[str, Any]) -> dict[str, Any] | None:
    """Return the name and the arguments of a call; None if it has no name."""
    function = call.get("function", call)
    return function if isinstance(function, dict) and isinstance(function.get("name"), str) else None


def _calls(message: dict[str, Any]) -> dict[str, Any]:
    """Return the calls of a message with their arguments as values; OpenAI writes them as JSON."""
    calls = []
    for call in _without_nulls(message.get(CALLS) or []):
        function = _function(call) or {}
        if isinstance(function.get("arguments"), str):
            with suppress(ValueError):
                function["arguments"] = json.loads(function["arguments"])
        calls.append({"type": "function", **call, "function": function} if "function" in call else call)
    return {CALLS: calls} if calls else {}


def _tools(rows: Rows, row: Row, column: str) -> Tools:
    """Return the tools of a row, which are in a list or written as JSON."""
    value = row.values.get(column)
    if isinstance(value, str):
        with suppress(ValueError):
            value = json.loads(value)
    if value is None or value == "":
        return []
    if not isinstance(value, list) or not all(isinstance(each, dict) and _function(each) for each in value):
        wanted = '{"type": "function", "function": {"name": …, "parameters": …}}'
        raise UserError(
            f"{rows.place(row)} holds {_shortened(value)} in {column!r}; write a list of tools such as {wanted}, or "
            "another data.tools_column."
        )
    return list(_without_nulls(value))


def _without_nulls(value: Any) -> Any:
    """Return a value without the keys that are null: Arrow files have one for each key of any message."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _lack(item: Demonstration, form: str) -> str | None:
    """Return what a demonstration lacks, or None."""
    if form == "prompt_completion" and not _has_content(item.prompt):
        return "an empty prompt"
    if isinstance(item.completion, str) or not item.completion:
        return None if _has_content(item.completion) else "an empty completion"
    answers = [each for each in item.completion if each["role"] == ASSISTANT]
    if not answers:
        return f"no message with the role {ASSISTANT!r}"
    empty = any(not each["content"].strip() and not each.get(CALLS) for each in answers)
    return "an empty message of the assistant" if empty else None


def _has_content(value: str | Messages) -> bool:
    return bool(value.strip() if isinstance(value, str) else value)
