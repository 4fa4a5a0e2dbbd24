"""What every recipe's configuration has in common: how its model is trained."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import TrainingArguments

from ..errors import UserError
from ..hub import CardConfig
from .arguments import training_arguments
from .averaging import AveragingConfig
from .optimizers import optimizer_class_and_arguments
from .schedules import ScheduleConfig


@strict
@dataclass
class TrainingConfig:
    """The sections on training; a recipe's own configuration inherits them and adds data, model and the rest."""

    optimizer: str = "adamw"  # adamw, nadam, radam, rmsprop
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    averaging: AveragingConfig = field(default_factory=AveragingConfig)
    # Positions of a batch of each process, padding included; None: per_device_train_batch_size examples.
    max_tokens: int | None = None
    early_stopping_patience: int | None = None  # evaluations without improvement of training.metric_for_best_model
    training: dict[str, Any] = field(default_factory=dict)  # fields of TrainingArguments
    card: CardConfig = field(default_factory=CardConfig)

    def validate_numbers(self) -> None:
        for name in ("max_tokens", "early_stopping_patience"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; write a whole number of at least 1, or null.")

    def arguments(
        self, run: Path, arguments_class: type[TrainingArguments] = TrainingArguments, **defaults: Any
    ) -> TrainingArguments:
        """The ``TrainingArguments`` of a run, everything on training checked.

        Args:
            run: folder of the run.
            arguments_class: of the arguments.
            defaults: fields of that class, for a recipe whose section ``training`` does not have them.

        Raises:
            UserError: a field is unknown, mistyped or out of range, or two ask for different things.
        """
        self.schedule.check(self.training, self.optimizer)
        if self.schedule.name == "noam":
            defaults = {"learning_rate": 1.0, **defaults}  # the paper's; it is only a factor
        if self.averaging.last is not None:
            if self.training.get("save_strategy") in ("no", "best"):
                raise UserError(
                    "averaging.last takes the mean of regular checkpoints; write training.save_strategy: steps or "
                    "epoch."
                )
            defaults = {"save_total_limit": self.averaging.last + 1, **defaults}
        if self.max_tokens is not None and "per_device_train_batch_size" in self.training:
            raise UserError(
                "max_tokens and training.per_device_train_batch_size both say how large a batch is; leave one out."
            )
        arguments = training_arguments(run, {**defaults, **self.training}, arguments_class)
        optimizer_class_and_arguments(self.optimizer, arguments)
        last, limit = self.averaging.last, arguments.save_total_limit
        if last is not None and limit is not None and limit <= last:
            raise UserError(
                f"averaging.last {last} needs that many checkpoints beside the best one; write "
                f"training.save_total_limit: {last + 1}, or leave it out."
            )
        if self.early_stopping_patience is not None and not arguments.load_best_model_at_end:
            raise UserError("early_stopping_patience needs training.load_best_model_at_end: true; write that, or null.")
        return arguments

    def trainer_options(self, arguments: TrainingArguments) -> dict[str, Any]:
        """The keyword arguments of ``ReliableTrainer`` and its kin that this configuration decides."""
        return {
            "optimizer_cls_and_kwargs": optimizer_class_and_arguments(self.optimizer, arguments),
            "schedule": self.schedule,
            "averaging": self.averaging,
            "max_tokens": self.max_tokens,
            "early_stopping_patience": self.early_stopping_patience,
        }


__all__ = ["TrainingConfig"]
