"""Metrics as ``evaluate.Metric`` classes that need no network."""

from .language_model import BitsPerCharacter, LanguageModelScores, NextCharacterAccuracy, Perplexity, token_statistics

__all__ = ["BitsPerCharacter", "LanguageModelScores", "NextCharacterAccuracy", "Perplexity", "token_statistics"]
