"""From a finished run to a repository on the Hub that is proven to load: card, verification, push."""

from .card import CardConfig, write_card
from .finishing import finish_folder, write_again
from .manifest import write_manifest
from .probes import store_probes
from .push import PushPlan, check_may_push, push
from .verify import Report, verify

__all__ = [
    "CardConfig",
    "PushPlan",
    "Report",
    "check_may_push",
    "finish_folder",
    "push",
    "store_probes",
    "verify",
    "write_again",
    "write_card",
    "write_manifest",
]
