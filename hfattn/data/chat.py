"""Conversations as token ids, by the chat template of a tokenizer, and which of them the assistant has said."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from .demonstrations import ASSISTANT, CALLS, Messages, Tools

_START, _END = "<|im_start|>", "<|im_end|>"
# Marks what the assistant says, as transformers does when it looks for the marks.
_MARKED = re.compile(r"\{%-?\s*generation\s*-?%\}")
# Tools and calls are JSON objects, one a line; a call is between <tool_call> and </tool_call>, as in many models.
CHATML = (
    "{%- if tools -%}"
    "{{ '" + _START + "tools' }}{%- for tool in tools -%}{{ '\\n' + tool | tojson }}{%- endfor -%}"
    "{{ '" + _END + "\\n' }}"
    "{%- endif -%}"
    "{%- for message in messages -%}"
    "{{ '" + _START + "' + message['role'] + '\\n' }}"
    "{%- if message['role'] == '" + ASSISTANT + "' -%}"
    "{%- generation -%}{{ message['content'] }}"
    "{%- for call in message['tool_calls'] or [] -%}"
    "{{ '<tool_call>' + (call['function'] or call) | tojson + '</tool_call>' }}"
    "{%- endfor -%}{{ '" + _END + "' }}{%- endgeneration -%}"
    "{%- else -%}{{ message['content'] + '" + _END + "' }}{%- endif -%}"
    "{{ '\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '" + _START + ASSISTANT + "\\n' }}{%- endif -%}"
)
# The messages one after another, with a space between two: for data in which the order alone tells who speaks.
PLAIN = (
    "{%- for message in messages -%}"
    "{%- if message['role'] == '" + ASSISTANT + "' -%}"
    "{%- generation -%}{{ message['content'] }}{%- endgeneration -%}"
    "{%- else -%}{{ message['content'] }}{%- endif -%}"
    "{%- if add_generation_prompt or not loop.last -%}{{ ' ' }}{%- endif -%}"
    "{%- endfor -%}"
)
TEMPLATES = {"chatml": CHATML, "plain": PLAIN}


def set_chat_template(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """Give a tokenizer a chat template.

    Args:
        tokenizer: the tokenizer. For "chatml" it gets the two special tokens of that template if it lacks them, of
            which the second, the end of a message, becomes its end token.
        name: "chatml"; "plain", which puts only a space between two messages; or the path of a file with a Jinja
            template.

    Raises:
        UserError: the file does not exist or is not a template.
    """
    if name in TEMPLATES:
        if name == "chatml":
            tokenizer.add_special_tokens({"eos_token": _END, "extra_special_tokens": [_START]}, False)
        tokenizer.chat_template = TEMPLATES[name]
        return
    path = Path(name).expanduser()
    if not path.is_file():
        raise UserError(
            f"data.chat_template is {name!r}, and there is no such file; write the path of a Jinja template, or "
            f"{', '.join(TEMPLATES)}."
        )
    tokenizer.chat_template = path.read_text(encoding="utf-8")
    message = {"role": "user", "content": "Hello"}
    _render(tokenizer, [message], f"The template {path.name}", add_generation_prompt=True)


def check_chat_template(tokenizer: PreTrainedTokenizerBase) -> None:
    """Check that a tokenizer can read conversations.

    Raises:
        UserError: it has no chat template.
    """
    if tokenizer.chat_template is None:
        raise UserError(
            "The tokenizer has no chat template for the messages; write data.chat_template: chatml, or the path of a "
            "Jinja template."
        )


def encode_conversation(
    tokenizer: PreTrainedTokenizerBase, messages: Messages, first: int, place: str, tools: Tools | None = None
) -> tuple[list[int], list[bool]]:
    """Encode a conversation by the tokenizer's chat template.

    What the assistant says is between ``{% generation %}`` and ``{% endgeneration %}`` of the template. If the template
    has no such marks, it is what a message adds to the conversation before it, rendered with
    ``add_generation_prompt=True``.

    Args:
        tokenizer: a tokenizer with a chat template.
        messages: the conversation.
        first: number of messages that are not learned, although some may be the assistant's.
        place: where the conversation is, for messages.
        tools: the tools that the assistant may call.

    Returns:
        Token ids, and whether each is learned.

    Raises:
        UserError: the template cannot render the conversation, leaves out its tools or their calls, or renders its
            beginning otherwise without its end, so that what the model reads when it is used would differ from what it
            has read in training.
    """
    marked = bool(_MARKED.search(tokenizer.get_chat_template()))
    given = {"tools": tools} if tools else {}
    _check_tools(tokenizer, messages, place, given)
    encoded = _render(tokenizer, messages, place, return_dict=True, return_assistant_tokens_mask=marked, **given)
    ids = list(encoded["input_ids"])
    if marked:
        learned = [bool(each) for each in encoded["assistant_masks"]]
        if first:
            answers = messages[first]["role"] == ASSISTANT
            start = _prefix(tokenizer, messages[:first], ids, place, add_generation_prompt=answers, **given)
            learned[:start] = [False] * start
        return ids, learned
    learned = [False] * len(ids)
    for i in range(first, len(messages)):
        if messages[i]["role"] == ASSISTANT:
            start = _prefix(tokenizer, messages[:i], ids, place, add_generation_prompt=True, **given) if i else 0
            end = _prefix(tokenizer, messages[: i + 1], ids, place, **given)
            learned[start:end] = [True] * (end - start)
    return ids, learned


def encode_question(
    tokenizer: PreTrainedTokenizerBase, messages: Messages, place: str, tools: Tools | None = None
) -> list[int]:
    """Return the token ids of a conversation that the assistant is to continue.

    Raises:
        UserError: the template cannot render the conversation.
    """
    options: dict[str, Any] = {
        "add_generation_prompt": True,
        "return_dict": True,
        **({"tools": tools} if tools else {}),
    }
    return list(_render(tokenizer, messages, place, **options)["input_ids"])


def _check_tools(tokenizer: PreTrainedTokenizerBase, messages: Messages, place: str, given: Mapping[str, Any]) -> None:
    """Check that a template writes the names of all tools and of all calls."""
    used = [*given.get("tools", ()), *(call for message in messages for call in message.get(CALLS, ()))]
    if not used:
        return
    text = _render(tokenizer, messages, place, tokenize=False, **given)
    for each in used:
        name = each.get("function", each)["name"]
        if name not in text:
            raise UserError(
                f"{place} has the tool {name!r}, and the chat template leaves out tools or their calls; write "
                "data.chat_template: chatml, or the path of a Jinja template that has them."
            )


def _prefix(
    tokenizer: PreTrainedTokenizerBase, messages: Messages, ids: Sequence[int], place: str, **options: Any
) -> int:
    """Return the number of tokens with which some first messages begin the tokens of the whole conversation."""
    found = list(_render(tokenizer, messages, place, return_dict=True, **options)["input_ids"])
    if found != list(ids[: len(found)]):
        raise UserError(
            f"{place}: the chat template renders the first {len(messages)} messages in another way when others follow, "
            "so what the assistant says cannot be told apart; write data.chat_template with a template that marks it "
            "with {% generation %} and {% endgeneration %}."
        )
    return len(found)


def _render(tokenizer: PreTrainedTokenizerBase, messages: Messages, place: str, **options: Any) -> Any:
    try:
        return tokenizer.apply_chat_template(messages, **options)
    except (TemplateError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise UserError(
            f"{place} does not fit the chat template ({reason}); correct it, or write another data.chat_template."
        ) from error
