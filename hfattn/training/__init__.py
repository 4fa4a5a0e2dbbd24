"""Recipes' configuration, the training loop on ``Trainer``, and what a run leaves behind."""

from ..files import write_results, writing
from .arguments import training_arguments
from .averaging import AveragingConfig
from .callbacks import SampleCallback, TranslationCallback
from .classifier import ClassifierTrainer, class_weights
from .classifier_models import (
    ClassifierConfig,
    ClassifierDataConfig,
    ClassifierSampleConfig,
    classifier_config,
    has_one_sigmoid,
    is_hierarchical,
    read_short_texts,
    sentence_end_ids,
    vector_facts,
)
from .command import RecipeCommand, parse_command
from .config import family_config, load_config, model_config
from .distillation import (
    DistillationConfig,
    DistillationTrainer,
    ImitatedTexts,
    Teacher,
    TeacherConfig,
    TeacherOutputs,
)
from .extractive import ExtractiveTrainer
from .fine_tuning import FineTuningConfig, FineTuningTrainer, TuningConfig, tuned, tuning_facts
from .from_scratch import scratch_config, scratch_model
from .optimizers import OPTIMIZERS, optimizer_class_and_arguments
from .publishing import publish_run
from .results import run_facts, scores_of_part
from .schedules import SCHEDULES, ScheduleConfig
from .seq2seq import ReliableSeq2SeqTrainer, Seq2SeqArguments
from .trainer import ReliableTrainer, StatefulTrainer, last_complete_checkpoint
from .training_config import TrainingConfig

__all__ = [
    "OPTIMIZERS",
    "SCHEDULES",
    "AveragingConfig",
    "ClassifierConfig",
    "ClassifierDataConfig",
    "ClassifierSampleConfig",
    "ClassifierTrainer",
    "DistillationConfig",
    "DistillationTrainer",
    "ExtractiveTrainer",
    "FineTuningConfig",
    "FineTuningTrainer",
    "ImitatedTexts",
    "RecipeCommand",
    "ReliableSeq2SeqTrainer",
    "ReliableTrainer",
    "SampleCallback",
    "ScheduleConfig",
    "Seq2SeqArguments",
    "StatefulTrainer",
    "Teacher",
    "TeacherConfig",
    "TeacherOutputs",
    "TrainingConfig",
    "TranslationCallback",
    "TuningConfig",
    "class_weights",
    "classifier_config",
    "family_config",
    "has_one_sigmoid",
    "is_hierarchical",
    "last_complete_checkpoint",
    "load_config",
    "model_config",
    "optimizer_class_and_arguments",
    "parse_command",
    "publish_run",
    "read_short_texts",
    "run_facts",
    "scores_of_part",
    "scratch_config",
    "scratch_model",
    "sentence_end_ids",
    "training_arguments",
    "tuned",
    "tuning_facts",
    "vector_facts",
    "write_results",
    "writing",
]
