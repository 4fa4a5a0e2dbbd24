"""Checks of single configuration fields, declared with the field.

Each function returns a field of a ``huggingface_hub`` strict dataclass. Its check runs on every assignment and skips
``None``, which is checked by the type of the field. A check receives only the value, not the name of the field. Its
message therefore begins with "is", and ``refusal`` adds the name.
"""

import re
from collections.abc import Callable, Collection
from typing import Any

from huggingface_hub.dataclasses import validated_field
from huggingface_hub.errors import StrictDataclassError

LARGEST = 2**32 - 1  # limit of every number in a configuration; seeds must be below 2**32


def at_least(minimum: int, default: int | None) -> Any:
    """Return a field for a whole number of at least ``minimum``; a default of None makes it optional."""
    return _field(lambda value: value >= minimum, f"a whole number of at least {minimum}", default)


def number(
    default: float | None,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> Any:
    """Return a field for a finite number within bounds.

    Args:
        default: value of the field if it is not in the YAML file; None makes it optional.
        least, most: inclusive bounds.
        above, below: exclusive bounds.
    """
    bounds = [
        f"{word} {bound:g}"
        for word, bound in (("of at least", least), ("above", above), ("at most", most), ("below", below))
        if bound is not None
    ]

    def fits(value: float) -> bool:
        return (
            abs(value) < float("inf")
            and (least is None or value >= least)
            and (above is None or value > above)
            and (most is None or value <= most)
            and (below is None or value < below)
        )

    return _field(fits, f"a number {', '.join(bounds)}", default)


def share(default: float | None) -> Any:
    """Return a field for a number from 0 to 1."""
    return _field(lambda value: 0 <= value <= 1, "a number from 0 to 1", default)


def one_of(choices: Collection[str], default: str | None) -> Any:
    """Return a field for one of these values."""
    return _field(lambda value: value in choices, f"one of {', '.join(choices)}", default)


def _field(fits: Callable[[Any], bool], wanted: str, default: Any) -> Any:
    advice = f"{wanted}, or null" if default is None else wanted

    def check(value: Any) -> None:
        if value is not None and not fits(value):
            raise ValueError(f"is {value!r}; write {advice}.")
        if isinstance(value, int | float) and abs(value) > LARGEST:
            raise ValueError(f"is {value!r}, which is too large; write a number of at most {LARGEST}.")

    return validated_field(check, default=default)


def refusal(error: StrictDataclassError) -> str:
    """Convert an error of a strict dataclass to a sentence that names the field."""
    reason = str(error.__cause__ or error)
    field = re.match(r"Validation error for field '(\w+)'", str(error))
    if isinstance(error.__cause__, TypeError):
        return f"{reason.removeprefix('Field ')}; write a value of that type."
    return f"{field[1]} {reason}" if field else reason
