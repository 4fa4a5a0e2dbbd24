"""Learning-rate schedules that transformers does not have, by name.

t is the number of the update, counted from 1; lr is ``training.learning_rate``.

- ``noam`` (Vaswani et al. 2017, section 5.3, equation 3): lr · d^-0.5 · min(t^-0.5, t · warmup^-1.5), where d is the
  model's ``hidden_size``. In the paper lr = 1.
- ``inverse_square_root`` (Raffel et al. 2020, section 3.1.2): lr / sqrt(max(t, k)), where k is ``warmup_steps``: the
  rate is constant for k updates. In the paper lr = 1 and k = 10,000, with Adafactor. ``inverse_sqrt`` of transformers
  rises from 0 to lr in k updates instead, and then falls as lr · sqrt(k / t).
- ``slanted_triangular`` (Howard & Ruder 2018, section 3.2, equation 3): lr · (1 + p (ratio - 1)) / ratio, where
  p = t / cut for t < cut = floor(T · cut_fraction), else 1 - (t - cut) / (cut · (1 / cut_fraction - 1)); T is the
  number of updates.
- ``tfixup`` (Huang et al. 2020, section 5): lr · sqrt(P / (P + t - 1)), so that the first update has the full rate.
- Warm-up factors (Ma & Yarats 2019) that multiply the rate of ``training.lr_scheduler_type``: ``linear_warmup``
  min(1, t / tau) and ``exponential_warmup`` 1 - exp(-t / tau); ``untuned_linear`` takes tau = 2 / (1 - beta2), and
  ``untuned_exponential`` tau = 1 / (1 - beta2).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub.dataclasses import strict
from torch.optim.lr_scheduler import LambdaLR

from ..errors import UserError
from ..fields import at_least, number, one_of

if TYPE_CHECKING:
    from transformers import TrainingArguments

SLANTED = "slanted_triangular"
WHOLE = ("noam", "inverse_square_root", "tfixup", SLANTED)  # schedules that set the rate of every update
TUNED = ("linear_warmup", "exponential_warmup")
UNTUNED = ("untuned_linear", "untuned_exponential")
SCHEDULES = (*WHOLE, *TUNED, *UNTUNED)


@strict
@dataclass
class ScheduleConfig:
    """The section ``schedule`` of a recipe; without a name, ``TrainingArguments`` define the learning rate."""

    name: str | None = one_of(SCHEDULES, None)
    # As in the papers, null is 4000 for noam, and 10,000 for inverse_square_root; of other warm-ups, this is tau.
    warmup_steps: int | None = at_least(1, None)
    decay_steps: int | None = at_least(1, None)  # P of tfixup; null is 4000
    cut_fraction: float | None = number(None, above=0, below=1)  # of slanted_triangular; null is 0.1, as in the paper
    ratio: float | int | None = number(None, above=1)  # highest by lowest rate of slanted_triangular; null is 32

    def validate_steps(self) -> None:
        for field, names in (
            ("warmup_steps", ("noam", "inverse_square_root", *TUNED)),
            ("decay_steps", ("tfixup",)),
            ("cut_fraction", (SLANTED,)),
            ("ratio", (SLANTED,)),
        ):
            if getattr(self, field) is not None and self.name not in names:
                raise ValueError(f"{field} is for {', '.join(names)}, and name is {self.name}; remove it.")
        if self.name in TUNED and self.warmup_steps is None:
            raise ValueError(f"{self.name} needs warmup_steps; write tau in updates, such as 1000.")

    def check(self, training: Mapping[str, Any], optimizer: str) -> None:
        """Check that the sections ``training`` and ``optimizer`` agree with the schedule.

        Raises:
            UserError: they set another schedule.
        """
        if self.name is None:
            return
        for field in ("warmup_steps", "warmup_ratio"):
            if training.get(field):
                raise UserError(f"schedule.name {self.name} has its own warm-up or none; remove training.{field}.")
        if self.name in WHOLE and "lr_scheduler_type" in training:
            raise UserError(f"schedule.name {self.name} is a complete schedule; remove training.lr_scheduler_type.")
        if training.get("lr_scheduler_type") in ("reduce_lr_on_plateau", "greedy"):
            raise UserError(
                f"schedule.name {self.name} multiplies a rate that must be known in advance; write another "
                "training.lr_scheduler_type, such as constant."
            )
        if self.name in UNTUNED and optimizer in ("rmsprop", "adafactor"):
            raise UserError(f"schedule.name {self.name} derives its warm-up from Adam's beta2; write optimizer: adamw.")


def noam(step: int, hidden_size: int, warmup_steps: int) -> float:
    """Return the factor of the learning rate at update ``step`` (Vaswani et al. 2017, equation 3)."""
    return hidden_size**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def inverse_square_root(step: int, warmup_steps: int) -> float:
    """Return the factor of the learning rate at update ``step`` (Raffel et al. 2020, section 3.1.2)."""
    return float(max(step, warmup_steps) ** -0.5)


def tfixup(step: int, decay_steps: int) -> float:
    """Return the factor of the learning rate at update ``step`` (Huang et al. 2020, section 5)."""
    return math.sqrt(decay_steps / (decay_steps + step - 1))


def slanted_triangular(step: int, num_steps: int, cut_fraction: float = 0.1, ratio: float = 32) -> float:
    """Return the factor of the learning rate at update ``step`` of ``num_steps`` (Howard & Ruder 2018, equation 3).

    Two cases that the paper leaves open: the cut is at least one update, and since it is rounded down, p would end
    below 0, where it is 0 here.
    """
    cut = max(1, math.floor(num_steps * cut_fraction))
    p = step / cut if step < cut else 1 - (step - cut) / (cut * (1 / cut_fraction - 1))
    return (1 + max(p, 0.0) * (ratio - 1)) / ratio


def linear_warmup(step: int, tau: float) -> float:
    """Return the linear warm-up factor at update ``step``."""
    return min(1.0, step / tau)


def exponential_warmup(step: int, tau: float) -> float:
    """Return the exponential warm-up factor at update ``step`` (Ma & Yarats 2019)."""
    return -math.expm1(-step / tau)


def make_scheduler(
    schedule: ScheduleConfig,
    optimizer: torch.optim.Optimizer,
    arguments: "TrainingArguments",
    num_training_steps: int,
    hidden_size: int,
) -> LambdaLR:
    """Return the scheduler for a named schedule.

    Args:
        schedule: the section ``schedule``, with a name.
        optimizer: the optimizer whose learning rate is set.
        arguments: the training arguments, with the schedule that a warm-up factor multiplies, and beta2.
        num_training_steps: number of updates of the whole run.
        hidden_size: width d of the model, used by noam.
    """
    from transformers import get_scheduler

    if schedule.name == "noam":
        warmup_steps = schedule.warmup_steps or 4000
        return LambdaLR(optimizer, lambda done: noam(done + 1, hidden_size, warmup_steps))
    if schedule.name == "inverse_square_root":
        constant_steps = schedule.warmup_steps or 10_000
        return LambdaLR(optimizer, lambda done: inverse_square_root(done + 1, constant_steps))
    if schedule.name == "tfixup":
        decay_steps = schedule.decay_steps or 4000
        return LambdaLR(optimizer, lambda done: tfixup(done + 1, decay_steps))
    if schedule.name == SLANTED:
        shape = {"cut_fraction": schedule.cut_fraction or 0.1, "ratio": schedule.ratio or 32}
        return LambdaLR(optimizer, lambda done: slanted_triangular(done + 1, num_training_steps, **shape))
    if schedule.warmup_steps is not None:
        tau: float = schedule.warmup_steps
    else:
        tau = (2 if schedule.name == "untuned_linear" else 1) / (1 - arguments.adam_beta2)
    factor: Callable[[int, float], float]
    factor = linear_warmup if schedule.name in ("linear_warmup", "untuned_linear") else exponential_warmup
    # transformers gives the factors of its schedules only together with an optimizer; this one is never stepped.
    idle = torch.optim.SGD([torch.zeros(1)], lr=arguments.learning_rate)
    multiplied = get_scheduler(
        arguments.lr_scheduler_type,
        idle,
        num_warmup_steps=0,
        num_training_steps=num_training_steps,
        scheduler_specific_kwargs=arguments.lr_scheduler_kwargs,
    ).lr_lambdas[0]
    return LambdaLR(optimizer, lambda done: factor(done + 1, tau) * multiplied(done))
