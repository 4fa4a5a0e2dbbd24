"""Checks of single fields of a configuration."""

from dataclasses import dataclass
from typing import Any

import pytest
from huggingface_hub.dataclasses import strict

from hfattn.errors import UserError
from hfattn.fields import at_least, number, one_of, share
from hfattn.training.config import checked


@strict
@dataclass
class Section:
    size: int = at_least(1, 8)
    patience: int | None = at_least(2, None)
    alpha: float | int = share(0.5)
    decay: float = number(1.0, above=0, most=1)
    dropout: float | int = number(0, least=0, below=1)
    kind: str = one_of(("char", "word"), "char")


def test_values_within_the_bounds_and_defaults() -> None:
    assert Section() == Section(8, None, 0.5, 1.0, 0, "char")
    assert Section(1, 2, 1, 0.1, 0.99, "word").patience == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": 0}, "size is 0; write a whole number of at least 1."),
        ({"size": 1.5}, "'size' expected int, got float (value: 1.5); write a value of that type."),
        ({"size": None}, "'size' expected int, got NoneType (value: None); write a value of that type."),
        ({"patience": 1}, "patience is 1; write a whole number of at least 2, or null."),
        ({"alpha": 1.1}, "alpha is 1.1; write a number from 0 to 1."),
        ({"alpha": float("nan")}, "alpha is nan; write a number from 0 to 1."),
        ({"decay": 0.0}, "decay is 0.0; write a number above 0, at most 1."),
        ({"decay": float("nan")}, "decay is nan; write a number above 0, at most 1."),
        ({"dropout": 1}, "dropout is 1; write a number of at least 0, below 1."),
        ({"kind": "bpe"}, "kind is 'bpe'; write one of char, word."),
    ],
)
def test_refusals_name_the_field_the_value_and_what_to_write(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as raised:
        checked(Section, fields)
    assert str(raised.value) == message
