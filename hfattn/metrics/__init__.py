"""Metrics as ``evaluate.Metric`` classes that need no network."""

from .language_model import BitsPerCharacter, LanguageModelScores, NextCharacterAccuracy, Perplexity, token_statistics
from .sequences import ExactMatch, TokenAccuracy, TranslationScores, decode_generated

__all__ = [
    "BitsPerCharacter",
    "ExactMatch",
    "LanguageModelScores",
    "NextCharacterAccuracy",
    "Perplexity",
    "TokenAccuracy",
    "TranslationScores",
    "decode_generated",
    "token_statistics",
]
