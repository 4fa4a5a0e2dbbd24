"""Recipes' configuration, the training loop on ``Trainer``, and what a run leaves behind."""

from .arguments import training_arguments
from .averaging import AveragingConfig
from .callbacks import SampleCallback, TranslationCallback
from .command import RecipeCommand, parse_command
from .config import load_config, model_config
from .optimizers import OPTIMIZERS, optimizer_class_and_arguments
from .results import plot_bleu_by_length, plot_curves, plot_table, run_facts, write_results
from .saving import writing
from .schedules import SCHEDULES, ScheduleConfig
from .trainer import ReliableSeq2SeqTrainer, ReliableTrainer, StatefulTrainer, last_complete_checkpoint
from .training_config import TrainingConfig

__all__ = [
    "OPTIMIZERS",
    "SCHEDULES",
    "AveragingConfig",
    "RecipeCommand",
    "ReliableSeq2SeqTrainer",
    "ReliableTrainer",
    "SampleCallback",
    "ScheduleConfig",
    "StatefulTrainer",
    "TrainingConfig",
    "TranslationCallback",
    "last_complete_checkpoint",
    "load_config",
    "model_config",
    "optimizer_class_and_arguments",
    "parse_command",
    "plot_bleu_by_length",
    "plot_curves",
    "plot_table",
    "run_facts",
    "training_arguments",
    "write_results",
    "writing",
]
