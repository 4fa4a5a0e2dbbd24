"""Tokenizers that are built from texts and saved as a plain ``tokenizer.json``."""

from .character import build_character_tokenizer, check_options, is_character_tokenizer, uncovered_characters
from .learned import TokenizerConfig, build_sampler, build_tokenizer
from .sampling import SubwordSampler

__all__ = [
    "SubwordSampler",
    "TokenizerConfig",
    "build_character_tokenizer",
    "build_sampler",
    "build_tokenizer",
    "check_options",
    "is_character_tokenizer",
    "uncovered_characters",
]
