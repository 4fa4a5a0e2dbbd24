"""Publish a finished run: write its card, verify that its folder loads elsewhere, push it to the Hub."""

from .card import CardConfig, write_card
from .fingerprints import store_fingerprints
from .finishing import finish_folder, write_again
from .manifest import write_manifest
from .push import PushOptions, PushPlan, check_may_push, push
from .verify import Report, verify

__all__ = [
    "CardConfig",
    "PushOptions",
    "PushPlan",
    "Report",
    "check_may_push",
    "finish_folder",
    "push",
    "store_fingerprints",
    "verify",
    "write_again",
    "write_card",
    "write_manifest",
]
