"""Tokenizers built from a text and saved as a plain ``tokenizer.json``."""

from .character import build_character_tokenizer, check_options, uncovered_characters

__all__ = ["build_character_tokenizer", "check_options", "uncovered_characters"]
