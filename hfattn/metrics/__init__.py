"""Metrics as ``evaluate.Metric`` classes that need no network; scores of an evaluation in constant memory; slices and
counterfactual tests."""

from .answers import (
    AnswerScore,
    AnswerScores,
    answer_f1,
    best_threshold,
    normalize_answer,
    span_logits,
)
from .classification import (
    F1,
    Accuracy,
    ClassificationScores,
    ConfusionMatrix,
    class_probabilities,
    class_statistics,
)
from .counterfactual import counterfactual, read_swaps, swap_words
from .entities import Entity, EntityScore, EntityScores, find_entities, tag_loss
from .language_model import (
    BitsPerCharacter,
    LanguageModelScores,
    NextCharacterAccuracy,
    Perplexity,
    next_token_loss,
    next_token_statistics,
    text_scores,
    token_statistics,
)
from .overlap import Bleu, ChrF, CorpusScore, bleu_by_length, translation_report
from .report import (
    ClassifierEvaluationConfig,
    ClassResults,
    check_columns,
    class_results,
    classification_report,
    classification_summary,
    confident_mistakes,
)
from .sequences import ExactMatch, TokenAccuracy, TranslationScores, decode_generated
from .slices import column_slices, length_slices, scores_by_slice, word_slices

__all__ = [
    "F1",
    "Accuracy",
    "AnswerScore",
    "AnswerScores",
    "BitsPerCharacter",
    "Bleu",
    "ChrF",
    "ClassResults",
    "ClassificationScores",
    "ClassifierEvaluationConfig",
    "ConfusionMatrix",
    "CorpusScore",
    "Entity",
    "EntityScore",
    "EntityScores",
    "ExactMatch",
    "LanguageModelScores",
    "NextCharacterAccuracy",
    "Perplexity",
    "TokenAccuracy",
    "TranslationScores",
    "answer_f1",
    "best_threshold",
    "bleu_by_length",
    "check_columns",
    "class_probabilities",
    "class_results",
    "class_statistics",
    "classification_report",
    "classification_summary",
    "column_slices",
    "confident_mistakes",
    "counterfactual",
    "decode_generated",
    "find_entities",
    "length_slices",
    "next_token_loss",
    "next_token_statistics",
    "normalize_answer",
    "read_swaps",
    "scores_by_slice",
    "span_logits",
    "swap_words",
    "tag_loss",
    "text_scores",
    "token_statistics",
    "translation_report",
    "word_slices",
]
