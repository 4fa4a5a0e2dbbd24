"""Metrics as ``evaluate.Metric`` classes that need no network; scores of an evaluation in constant memory; slices and
counterfactual tests."""

from .classification import (
    F1,
    Accuracy,
    ClassificationScores,
    ConfusionMatrix,
    class_probabilities,
    class_statistics,
    plot_confusion,
)
from .counterfactual import SWAPS, counterfactual, swap_words
from .language_model import BitsPerCharacter, LanguageModelScores, NextCharacterAccuracy, Perplexity, token_statistics
from .overlap import Bleu, ChrF, CorpusScore, bleu_by_length, translation_report
from .sequences import ExactMatch, TokenAccuracy, TranslationScores, decode_generated
from .slices import column_slices, length_slices, scores_by_slice, word_slices

__all__ = [
    "F1",
    "SWAPS",
    "Accuracy",
    "BitsPerCharacter",
    "Bleu",
    "ChrF",
    "ClassificationScores",
    "ConfusionMatrix",
    "CorpusScore",
    "ExactMatch",
    "LanguageModelScores",
    "NextCharacterAccuracy",
    "Perplexity",
    "TokenAccuracy",
    "TranslationScores",
    "bleu_by_length",
    "class_probabilities",
    "class_statistics",
    "column_slices",
    "counterfactual",
    "decode_generated",
    "length_slices",
    "plot_confusion",
    "scores_by_slice",
    "swap_words",
    "token_statistics",
    "translation_report",
    "word_slices",
]
