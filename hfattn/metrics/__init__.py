"""Metrics as ``evaluate.Metric`` classes that need no network, ``compute_metrics`` functions that add up batches,
scores by slice, and counterfactual tests."""

from .answers import (
    AnswerMetric,
    AnswerScores,
    answer_f1,
    best_null_threshold,
    normalize_answer,
    span_logits,
)
from .calibration import calibration_scores, fitted_temperature
from .classification import (
    F1,
    Accuracy,
    ClassificationScores,
    ConfusionMatrix,
    class_probabilities,
    class_statistics,
)
from .classification_report import (
    ClassifierEvaluationConfig,
    ClassResults,
    abstaining_scores,
    class_predictions,
    class_results,
    classification_report,
    confidence_threshold,
)
from .counterfactual import counterfactual, read_swaps, read_templates, swap_words, template_test
from .entities import Entity, EntityMetric, EntityScores, find_entities
from .language_model import (
    LanguageModelScores,
    text_scores,
    token_loss,
    token_statistics,
)
from .multi_label import (
    MultiLabelScores,
    best_thresholds,
    label_logits,
    label_probabilities,
    multi_label_report,
    multi_label_scores,
)
from .regression import RegressionMetric, RegressionScores, predicted_numbers, regression_report
from .slices import column_slices, length_slices, scores_by_slice, word_slices
from .translation import ExactMatch, TranslationScores, bleu_by_length, decode_generated, translation_report

__all__ = [
    "F1",
    "Accuracy",
    "AnswerMetric",
    "AnswerScores",
    "ClassResults",
    "ClassificationScores",
    "ClassifierEvaluationConfig",
    "ConfusionMatrix",
    "Entity",
    "EntityMetric",
    "EntityScores",
    "ExactMatch",
    "LanguageModelScores",
    "MultiLabelScores",
    "RegressionMetric",
    "RegressionScores",
    "TranslationScores",
    "abstaining_scores",
    "answer_f1",
    "best_null_threshold",
    "best_thresholds",
    "bleu_by_length",
    "calibration_scores",
    "class_predictions",
    "class_probabilities",
    "class_results",
    "class_statistics",
    "classification_report",
    "column_slices",
    "confidence_threshold",
    "counterfactual",
    "decode_generated",
    "find_entities",
    "fitted_temperature",
    "label_logits",
    "label_probabilities",
    "length_slices",
    "multi_label_report",
    "multi_label_scores",
    "normalize_answer",
    "predicted_numbers",
    "read_swaps",
    "read_templates",
    "regression_report",
    "scores_by_slice",
    "span_logits",
    "swap_words",
    "template_test",
    "text_scores",
    "token_loss",
    "token_statistics",
    "translation_report",
    "word_slices",
]
