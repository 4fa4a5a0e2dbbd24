"""The sections of a distillation."""

from dataclasses import dataclass
from typing import ClassVar

from huggingface_hub.dataclasses import strict

from ..data.truncation import LONG_TEXTS
from ..fields import at_least, number, one_of, share
from ..loading import ModelLocation


@strict
@dataclass
class DistillationConfig:
    """The section ``distillation``: how the student learns from the teacher."""

    alpha: float | int = share(0.5)  # weight of the teacher's term in the loss; that of the labels is 1 - alpha
    temperature: float | int = number(2.0, above=0)  # T, by which both models' logits are divided
    hidden_weight: float | int = number(0.0, least=0)  # weight of the distance between the text vectors

    @property
    def imitates(self) -> bool:
        """Whether the teacher contributes to the loss."""
        return self.alpha > 0 or self.hidden_weight > 0


@strict
@dataclass
class TeacherConfig(ModelLocation):
    """The section ``teacher``: a trained classifier, and how it reads long texts."""

    section: ClassVar[str] = "teacher"

    max_length: int = at_least(1, 128)  # tokens of an input, special ones included
    too_long: str = one_of(LONG_TEXTS, "cut")  # see data.too_long in the classification recipe
    overlap: int = at_least(0, 64)  # tokens that two windows share
