"""Configuration of recipes, the training loop based on ``Trainer``, and the output files of a run."""

from ..files import write_json, writing
from .arguments import training_arguments
from .averaging import AveragingConfig
from .calibration import check_calibration, divide_logits
from .callbacks import SampleCallback, TranslationCallback
from .command import RecipeCommand, parse_command, restoring
from .config import family_config, first_changed, load_config, model_config
from .distillation import (
    DistillationConfig,
    DistillationTrainer,
    ImitatedTexts,
    Teacher,
    TeacherConfig,
    TeacherOutputs,
)
from .extractive import ExtractiveTrainer
from .fine_tuned_classifier import ClassifierTrainer, class_weights, loss_options, weighted_loss
from .fine_tuning import (
    FineTuningConfig,
    FineTuningTrainer,
    TuningConfig,
    check_averaging,
    tuned,
    tuning_facts,
)
from .from_scratch import PretrainedOrScratchConfig, scratch_config, scratch_model
from .multiple_choice import ChoiceTrainer, scores_by_question
from .optimizers import OPTIMIZERS, optimizer_class_and_arguments
from .own_classifier import (
    OwnClassifierConfig,
    OwnClassifierDataConfig,
    OwnClassifierEvaluationConfig,
    OwnClassifierSampleConfig,
    check_own_classifier,
    check_problem,
    has_one_sigmoid,
    initialize_embeddings,
    is_hierarchical,
    own_classifier_config,
    own_facts,
    sentence_end_ids,
)
from .publishing import finishing, publish_run
from .results import run_facts, scores_of_part
from .schedules import SCHEDULES, ScheduleConfig
from .seq2seq import FineTuningSeq2SeqTrainer, ReliableSeq2SeqTrainer, Seq2SeqArguments, check_padding
from .trainer import ReliableTrainer, StatefulTrainer, last_complete_checkpoint
from .training_config import TrainingConfig
from .translators import (
    Seq2SeqCollator,
    TranslatorConfig,
    TranslatorLocation,
    load_translator,
    scores_before,
    set_decoding,
)

__all__ = [
    "OPTIMIZERS",
    "SCHEDULES",
    "AveragingConfig",
    "ChoiceTrainer",
    "ClassifierTrainer",
    "DistillationConfig",
    "DistillationTrainer",
    "ExtractiveTrainer",
    "FineTuningConfig",
    "FineTuningSeq2SeqTrainer",
    "FineTuningTrainer",
    "ImitatedTexts",
    "OwnClassifierConfig",
    "OwnClassifierDataConfig",
    "OwnClassifierEvaluationConfig",
    "OwnClassifierSampleConfig",
    "PretrainedOrScratchConfig",
    "RecipeCommand",
    "ReliableSeq2SeqTrainer",
    "ReliableTrainer",
    "SampleCallback",
    "ScheduleConfig",
    "Seq2SeqArguments",
    "Seq2SeqCollator",
    "StatefulTrainer",
    "Teacher",
    "TeacherConfig",
    "TeacherOutputs",
    "TrainingConfig",
    "TranslationCallback",
    "TranslatorConfig",
    "TranslatorLocation",
    "TuningConfig",
    "check_averaging",
    "check_calibration",
    "check_own_classifier",
    "check_padding",
    "check_problem",
    "class_weights",
    "divide_logits",
    "family_config",
    "finishing",
    "first_changed",
    "has_one_sigmoid",
    "initialize_embeddings",
    "is_hierarchical",
    "last_complete_checkpoint",
    "load_config",
    "load_translator",
    "loss_options",
    "model_config",
    "optimizer_class_and_arguments",
    "own_classifier_config",
    "own_facts",
    "parse_command",
    "publish_run",
    "restoring",
    "run_facts",
    "scores_before",
    "scores_by_question",
    "scores_of_part",
    "scratch_config",
    "scratch_model",
    "sentence_end_ids",
    "set_decoding",
    "training_arguments",
    "tuned",
    "tuning_facts",
    "weighted_loss",
    "write_json",
    "writing",
]
