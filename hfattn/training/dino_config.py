"""The section of self-distillation without labels."""

from dataclasses import dataclass, field
from typing import ClassVar

from huggingface_hub.dataclasses import strict

from ..fields import at_least, number, one_of, share

FEATURES = ("class", "mean")


@strict
@dataclass
class DinoConfig:
    """The section ``dino`` (Caron et al. 2021). Defaults are those of the authors' code, unless a comment says so."""

    section: ClassVar[str] = "dino"

    prototypes: int = at_least(2, 65536)  # K, outputs of the head
    head_size: int = at_least(1, 2048)  # width of the two hidden layers of the head
    bottleneck_size: int = at_least(1, 256)  # width of the normalized vector before the last layer
    feature: str = one_of(FEATURES, "class")  # what the head reads: the class token, or the mean over all positions
    student_temperature: float | int = number(0.1, above=0)
    teacher_temperature: float | int = number(0.04, above=0)
    # Temperature of the teacher at the start, and the epochs after which it is teacher_temperature.
    start_temperature: float | int = number(0.04, above=0)
    temperature_epochs: float | int = number(0.0, least=0)
    momentum: float | int = share(0.996)  # λ of the teacher at the start; it grows to 1 at the end, by a cosine
    center_momentum: float | int = share(0.9)  # of the center; 1: no center
    frozen_epochs: float | int = number(1.0, least=0)  # in which the last layer of the head is not trained
    final_weight_decay: float | int = number(0.4, least=0)  # grows from training.weight_decay, by a cosine
    local_crops: int = at_least(0, 8)  # small views of an image, beside the two global ones
    local_size: int = at_least(1, 96)  # pixels of a side of a local view
    global_scale: list[float] = field(default_factory=lambda: [0.4, 1.0])  # share of the area of the image
    local_scale: list[float] = field(default_factory=lambda: [0.05, 0.4])
    # A run stops if the mean entropy of the teacher is within this share of ln K of either bound, 0 or ln K. It is
    # compared from collapse_epochs on: while the center is found at the start, the entropy is near ln K.
    collapse_tolerance: float | int = number(0.01, above=0, below=0.5)
    collapse_epochs: float | int = number(1.0, least=0)

    def validate_scales(self) -> None:
        for name in ("global_scale", "local_scale"):
            scale = getattr(self, name)
            if len(scale) != 2 or not 0 < scale[0] <= scale[1] <= 1:
                raise ValueError(f"{name} is {scale}; write the smallest and the largest share, such as [0.4, 1.0].")
