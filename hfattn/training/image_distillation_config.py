"""The sections of a recipe whose image classifier learns from a teacher (DeiT, Touvron et al. 2021)."""

from dataclasses import dataclass
from typing import ClassVar

from huggingface_hub.dataclasses import strict

from ..fields import number, one_of, share
from ..loading import ModelLocation

PAPER_ALPHA = {"hard": 0.5, "soft": 0.1}  # weights of the teacher's term in DeiT


@strict
@dataclass
class ImageTeacherConfig(ModelLocation):
    """The section ``teacher``: a trained classifier of images."""

    section: ClassVar[str] = "teacher"


@strict
@dataclass
class ImageDistillationConfig:
    """The section ``distillation``: how the student learns from the section ``teacher``."""

    # The teacher's most probable class is a second label (hard), or its probabilities are targets (soft).
    kind: str = one_of(("hard", "soft"), "hard")
    alpha: float | int | None = share(None)  # weight of the teacher's term; null: 0.5 (hard) or 0.1 (soft)
    temperature: float | int = number(3.0, above=0)  # τ of soft distillation

    @property
    def weight(self) -> float:
        """Weight of the teacher's term in the loss."""
        return PAPER_ALPHA[self.kind] if self.alpha is None else float(self.alpha)
