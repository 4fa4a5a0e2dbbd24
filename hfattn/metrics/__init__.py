"""Metrics as ``evaluate.Metric`` classes that need no network, ``compute_metrics`` functions that add up batches,
scores by slice, and counterfactual tests."""

from typing import TYPE_CHECKING

from ..first_use import on_first_use
from .counterfactual import counterfactual as counterfactual
from .counterfactual import read_swaps as read_swaps
from .counterfactual import read_templates as read_templates
from .counterfactual import swap_words as swap_words
from .counterfactual import template_test as template_test

if TYPE_CHECKING:
    from .answers import *  # noqa: F403
    from .calibration import *  # noqa: F403
    from .class_report import *  # noqa: F403
    from .classification import *  # noqa: F403
    from .entities import *  # noqa: F403
    from .evaluation_config import *  # noqa: F403
    from .image_classes import *  # noqa: F403
    from .language_model import *  # noqa: F403
    from .multi_label import *  # noqa: F403
    from .neighbors import *  # noqa: F403
    from .pointing import *  # noqa: F403
    from .regression import *  # noqa: F403
    from .retrieval import *  # noqa: F403
    from .sentences import *  # noqa: F403
    from .slices import *  # noqa: F403
    from .tasks import *  # noqa: F403
    from .translation import *  # noqa: F403

_MODULES = {
    "answers": ("AnswerMetric", "AnswerScores", "answer_f1", "best_null_threshold", "normalize_answer", "span_logits"),
    "calibration": ("calibration_scores", "fitted_temperature"),
    "classification": (
        "Accuracy",
        "ClassificationScores",
        "ConfusionMatrix",
        "F1",
        "class_probabilities",
        "class_statistics",
    ),
    "class_report": (
        "ClassResults",
        "abstaining_scores",
        "class_predictions",
        "class_results",
        "classification_report",
        "confidence_threshold",
    ),
    "entities": ("Entity", "EntityMetric", "EntityScores", "find_entities"),
    "evaluation_config": ("ClassifierEvaluationConfig",),
    "image_classes": ("ImageClassScores", "class_predictions_of_images", "image_class_statistics"),
    "language_model": ("LanguageModelScores", "text_scores", "token_loss", "token_statistics"),
    "multi_label": (
        "MultiLabelScores",
        "best_thresholds",
        "label_logits",
        "label_probabilities",
        "multi_label_report",
        "multi_label_scores",
    ),
    "neighbors": ("neighbor_accuracy", "neighbor_votes"),
    "pointing": ("Deletion", "deletion", "heaviest", "jaccard", "mask_on_grid", "mass_on", "points_at"),
    "regression": ("RegressionMetric", "RegressionScores", "correlations", "predicted_numbers", "regression_report"),
    "retrieval": ("RetrievalScores", "rank_scores", "ranks", "ranks_of", "retrieval_scores"),
    "sentences": ("SentenceScores", "cosines", "pair_retrieval_scores", "sentence_scores"),
    "slices": ("column_slices", "length_slices", "scores_by_slice", "word_slices"),
    "tasks": ("TaskScores", "check_answers", "main_score", "task_scores"),
    "translation": ("ExactMatch", "TranslationScores", "bleu_by_length", "decode_generated", "translation_report"),
}

__getattr__ = on_first_use(__name__, _MODULES)

if not TYPE_CHECKING:  # a type checker reads no computed list, and sees what is imported above
    __all__ = sorted(
        [
            "counterfactual",
            "read_swaps",
            "read_templates",
            "swap_words",
            "template_test",
            *(name for names in _MODULES.values() for name in names),
        ]
    )
