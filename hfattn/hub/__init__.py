"""Publish a finished run: write its card, verify that its folder loads elsewhere, push it to the Hub."""

from ..publish_sections import CardConfig, PublishConfig, check_language_model
from .card import write_card
from .fingerprints import store_fingerprints
from .finishing import finish_folder, write_again
from .manifest import write_manifest
from .private_texts import has_public_data, texts_to_publish, vocabulary_texts
from .push import PushOptions, PushPlan, check_may_push, push
from .verify import Report, verify

__all__ = [
    "CardConfig",
    "PublishConfig",
    "PushOptions",
    "PushPlan",
    "Report",
    "check_language_model",
    "check_may_push",
    "finish_folder",
    "has_public_data",
    "push",
    "store_fingerprints",
    "texts_to_publish",
    "verify",
    "vocabulary_texts",
    "write_again",
    "write_card",
    "write_manifest",
]
