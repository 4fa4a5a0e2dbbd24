"""The sections on training that all recipes share."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from huggingface_hub.dataclasses import strict

from ..errors import UserError
from ..fields import at_least, number, one_of
from ..publish_sections import CardConfig, PublishConfig
from .arguments import checks_alone, training_arguments
from .matrix_products import MATMUL
from .optimizers import OPTIMIZERS, check_optim, check_weight_decay, optimizer_class_and_arguments
from .schedules import ScheduleConfig

if TYPE_CHECKING:
    from transformers import TrainingArguments


@strict
@dataclass
class AveragingConfig:
    """The section ``averaging`` of a recipe: at most one of its fields."""

    ema: float | None = number(None, above=0, below=1)  # decay of an exponential moving average, such as 0.999
    last: int | None = at_least(2, None)  # number of last checkpoints to average; all of them if a run has fewer

    def validate_choice(self) -> None:
        if self.ema is not None and self.last is not None:
            raise ValueError("ema and last are two ways to average; write one of them.")


@strict
@dataclass
class TrainingConfig:
    """The sections on training. The configuration of a recipe inherits them and adds data, model and the rest."""

    optimizer: str = one_of(OPTIMIZERS, "adamw")
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    averaging: AveragingConfig = field(default_factory=AveragingConfig)
    # Tokens in a batch of one process, padding included; null: per_device_train_batch_size examples.
    max_tokens: int | None = at_least(1, None)
    # Products of float32 matrices on a CPU by oneDNN; auto: where it is faster and as exact as the default library.
    matmul: str = one_of(MATMUL, "off")
    # Evaluations without improvement of training.metric_for_best_model before training stops; null: never.
    early_stopping_patience: int | None = at_least(1, None)
    training: dict[str, Any] = field(default_factory=dict)  # fields of TrainingArguments
    card: CardConfig = field(default_factory=CardConfig)
    publish: PublishConfig = field(default_factory=PublishConfig)

    # Default values of the fields of ``training`` that the class of the training arguments adds, if they are common.
    added_fields: ClassVar[dict[str, Any]] = {}

    def check_agreement(self) -> None:
        """Check that the sections on training agree.

        Raises:
            UserError: two of them contradict each other.
        """
        self.schedule.check(self.training, self.optimizer)
        if self.averaging.last is not None and self.training.get("save_strategy") in ("no", "best"):
            raise UserError(
                "averaging.last averages regular checkpoints; write training.save_strategy: steps or epoch."
            )
        if self.max_tokens is not None and "per_device_train_batch_size" in self.training:
            raise UserError(
                "max_tokens and training.per_device_train_batch_size both set the size of a batch; remove one."
            )

    def check_training(self) -> None:
        """Check all sections on training, as ``arguments`` does; in a fraction of its time if their fields are common.

        Raises:
            UserError: a field is unknown, mistyped or out of range, or two fields contradict each other.
        """
        self.check_agreement()
        if checks_alone(self.training, self.added_fields):
            check_weight_decay(self.optimizer, self.training.get("weight_decay", 0))
        else:
            self.arguments(Path("runs"))

    def arguments(
        self, run: Path, arguments_class: "type[TrainingArguments] | None" = None, **defaults: Any
    ) -> "TrainingArguments":
        """Check all sections on training and return the training arguments.

        Args:
            run: the run folder.
            arguments_class: a subclass of ``TrainingArguments``; None: that class itself.
            defaults: values of fields that the section ``training`` does not set.

        Raises:
            UserError: a field is unknown, mistyped or out of range, or two fields contradict each other.
        """
        self.check_agreement()
        if self.schedule.name in ("noam", "inverse_square_root"):
            defaults = {"learning_rate": 1.0, **defaults}  # as in the papers; the rate is only a factor here
        if self.averaging.last is not None:
            defaults = {"save_total_limit": self.averaging.last + 1, **defaults}
        arguments = training_arguments(run, {**defaults, **self.training}, arguments_class)
        self._optimizer(arguments)
        last, limit = self.averaging.last, arguments.save_total_limit
        if last is not None and limit is not None and limit <= last:
            raise UserError(
                f"averaging.last {last} needs that many checkpoints beside the best one; write "
                f"training.save_total_limit: {last + 1}, or remove it."
            )
        if self.early_stopping_patience is not None and not arguments.load_best_model_at_end:
            raise UserError("early_stopping_patience needs training.load_best_model_at_end: true; write that, or null.")
        return arguments

    def _optimizer(self, arguments: "TrainingArguments") -> "tuple[Any, dict[str, Any]] | None":
        """Return ``optimizer_cls_and_kwargs`` of ``Trainer``; None if ``training.optim`` chooses the optimizer."""
        if "optim" not in self.training:
            return optimizer_class_and_arguments(self.optimizer, arguments)
        check_optim(arguments, self.optimizer)
        return None

    def trainer_options(self, arguments: "TrainingArguments") -> dict[str, Any]:
        """Return the keyword arguments of ``ReliableTrainer`` that follow from the configuration."""
        return {
            "optimizer_cls_and_kwargs": self._optimizer(arguments),
            "schedule": self.schedule,
            "averaging": self.averaging,
            "max_tokens": self.max_tokens,
            "matmul": self.matmul,
            "early_stopping_patience": self.early_stopping_patience,
        }
