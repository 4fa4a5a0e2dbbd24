"""Configuration of recipes, the training loop based on ``Trainer``, and the output files of a run."""

from typing import TYPE_CHECKING

from ..first_use import on_first_use

if TYPE_CHECKING:
    from .arguments import *  # noqa: F403
    from .auxiliary import *  # noqa: F403
    from .calibration import *  # noqa: F403
    from .callbacks import *  # noqa: F403
    from .captioner_config import *  # noqa: F403
    from .captioning import *  # noqa: F403
    from .chunked_loss import *  # noqa: F403
    from .command import *  # noqa: F403
    from .config import *  # noqa: F403
    from .contextual import *  # noqa: F403
    from .contrastive import *  # noqa: F403
    from .dino import *  # noqa: F403
    from .dino_config import *  # noqa: F403
    from .distillation import *  # noqa: F403
    from .distillation_config import *  # noqa: F403
    from .dual_encoder import *  # noqa: F403
    from .extractive import *  # noqa: F403
    from .fine_tuned_classifier import *  # noqa: F403
    from .fine_tuning import *  # noqa: F403
    from .from_scratch import *  # noqa: F403
    from .image_classification import *  # noqa: F403
    from .image_distillation_config import *  # noqa: F403
    from .matrix_products import *  # noqa: F403
    from .multiple_choice import *  # noqa: F403
    from .optimizers import *  # noqa: F403
    from .own_classifier import *  # noqa: F403
    from .publishing import *  # noqa: F403
    from .results import *  # noqa: F403
    from .schedules import *  # noqa: F403
    from .sentence_encoder import *  # noqa: F403
    from .sentence_encoder_config import *  # noqa: F403
    from .seq2seq import *  # noqa: F403
    from .tasks_config import *  # noqa: F403
    from .trainer import ReliableTrainer, StatefulTrainer, last_complete_checkpoint  # noqa: F401
    from .training_config import *  # noqa: F403
    from .translator_config import *  # noqa: F403
    from .translators import *  # noqa: F403
    from .tuning_config import *  # noqa: F403

_MODULES = {
    "arguments": ("training_arguments",),
    "auxiliary": ("add_embeddings", "language_model_nats"),
    "calibration": ("check_calibration", "divide_logits"),
    "callbacks": ("SampleCallback", "TranslationCallback"),
    "captioner_config": ("CaptionerConfig", "own_captioner_config"),
    "captioning": ("CaptionTrainer", "build_captioner", "captioner_processor", "features_of_images"),
    "chunked_loss": ("nats_for_logits", "summed_nats"),
    "command": ("RecipeCommand", "parse_command", "restoring"),
    "config": ("family_config", "first_changed", "load_config", "model_config"),
    "dino": (
        "CollapseError",
        "DinoHead",
        "DinoLosses",
        "DinoModel",
        "DinoOutput",
        "DinoTrainer",
        "cosine_schedule",
        "dino_losses",
        "image_features",
    ),
    "dino_config": ("DinoConfig",),
    "contextual": (
        "ContextualConfig",
        "check_contextual",
        "contextual_facts",
        "contextual_model",
        "mixture_lines",
        "subword_tokenizer",
    ),
    "contrastive": ("ContrastiveTrainer", "clip_loss", "sigmoid_loss"),
    "distillation": ("DistillationTrainer", "ImitatedTexts", "Teacher", "TeacherOutputs"),
    "distillation_config": ("DistillationConfig", "TeacherConfig"),
    "dual_encoder": (
        "DualEncoderTrainingConfig",
        "build_dual_encoder",
        "load_processor",
        "locked_image_features",
        "locked_text_features",
        "tower_facts",
        "tower_tokenizer",
        "whiten_images",
    ),
    "extractive": ("ExtractiveTrainer",),
    "fine_tuned_classifier": ("ClassifierTrainer", "class_weights", "loss_options", "weighted_loss"),
    "fine_tuning": ("FineTuningTrainer", "StatefulFineTuningTrainer", "tuned", "tuning_facts"),
    "from_scratch": ("PretrainedOrScratchConfig", "check_all_words", "scratch_config", "scratch_model"),
    "image_classification": (
        "FrozenFeatures",
        "ImageClassifierTrainer",
        "ImageTeacher",
        "check_reading",
        "distilled_losses",
        "features_of_parts",
        "head_inputs",
        "head_of",
    ),
    "image_distillation_config": ("ImageDistillationConfig", "ImageTeacherConfig"),
    "matrix_products": ("Comparison", "compare_products", "onednn_products", "uses_onednn"),
    "multiple_choice": ("ChoiceTrainer", "scores_by_question"),
    "optimizers": ("OPTIMIZERS", "optimizer_class_and_arguments"),
    "own_classifier": (
        "OwnClassifierConfig",
        "OwnClassifierDataConfig",
        "OwnClassifierEvaluationConfig",
        "OwnClassifierSampleConfig",
        "check_own_classifier",
        "check_problem",
        "has_one_sigmoid",
        "initialize_embeddings",
        "is_hierarchical",
        "own_classifier_config",
        "own_facts",
        "sentence_end_ids",
    ),
    "publishing": ("finishing", "publish_run"),
    "results": ("run_facts", "scores_of_part"),
    "schedules": ("SCHEDULES", "ScheduleConfig"),
    "sentence_encoder": (
        "SentenceTrainer",
        "TrainedSentenceEncoder",
        "build_sentence_encoder",
        "encoder_facts",
        "mined_negatives",
        "pair_targets",
        "score_span",
        "teacher_vectors",
    ),
    "sentence_encoder_config": ("SentenceTrainingConfig",),
    "seq2seq": ("FineTuningSeq2SeqTrainer", "ReliableSeq2SeqTrainer", "Seq2SeqArguments", "check_padding"),
    "tasks_config": (
        "MixtureConfig",
        "TasksConfig",
        "TasksEvaluationConfig",
        "TasksSampleConfig",
        "TasksTokenizerConfig",
    ),
    "trainer": ("ReliableTrainer", "StatefulTrainer", "last_complete_checkpoint"),
    "training_config": ("AveragingConfig", "TrainingConfig"),
    "translator_config": ("TranslatorConfig", "TranslatorLocation"),
    "translators": ("Seq2SeqCollator", "load_translator", "scores_before", "set_decoding"),
    "tuning_config": ("FineTuningConfig", "TuningConfig", "check_averaging"),
}

__getattr__ = on_first_use(__name__, _MODULES)

if not TYPE_CHECKING:  # a type checker reads no computed list, and sees what is imported above
    __all__ = sorted(name for names in _MODULES.values() for name in names)
