"""Metrics as ``evaluate.Metric`` classes that need no network."""

from .language_model import BitsPerCharacter, NextCharacterAccuracy, Perplexity, language_model_metrics

__all__ = ["BitsPerCharacter", "NextCharacterAccuracy", "Perplexity", "language_model_metrics"]
