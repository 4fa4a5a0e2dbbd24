"""hfattn: attention and recurrent models as first-class citizens of the Hugging Face ecosystem.

Importing it registers every model with the Auto classes of transformers; it needs torch and transformers, nothing else.
"""

from typing import TYPE_CHECKING, Any

from . import models
from .models.alignment import AttentionRecord

if TYPE_CHECKING:
    from .models import (
        BahdanauConfig,
        BahdanauForConditionalGeneration,
        BahdanauModel,
        BahdanauPreTrainedModel,
        CharRNNConfig,
        CharRNNForCausalLM,
        CharRNNModel,
        CharRNNPreTrainedModel,
        RecurrentCache,
        RNNEncoderConfig,
        RNNEncoderForSequenceClassification,
        RNNEncoderModel,
        RNNEncoderPreTrainedModel,
        VaswaniConfig,
        VaswaniForCausalLM,
        VaswaniForConditionalGeneration,
        VaswaniForMaskedLM,
        VaswaniForSequenceClassification,
        VaswaniModel,
        VaswaniPreTrainedModel,
    )

__version__ = "0.1.0"


def _interactive_page(record: AttentionRecord, title: str | None) -> str:
    from .explain.page import render_html

    return render_html(record, title)


AttentionRecord.renderer = _interactive_page


def __getattr__(name: str) -> Any:
    if name in models.__all__:
        return getattr(models, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))


__all__ = [
    "BahdanauConfig",
    "BahdanauForConditionalGeneration",
    "BahdanauModel",
    "BahdanauPreTrainedModel",
    "CharRNNConfig",
    "CharRNNForCausalLM",
    "CharRNNModel",
    "CharRNNPreTrainedModel",
    "RNNEncoderConfig",
    "RNNEncoderForSequenceClassification",
    "RNNEncoderModel",
    "RNNEncoderPreTrainedModel",
    "RecurrentCache",
    "VaswaniConfig",
    "VaswaniForCausalLM",
    "VaswaniForConditionalGeneration",
    "VaswaniForMaskedLM",
    "VaswaniForSequenceClassification",
    "VaswaniModel",
    "VaswaniPreTrainedModel",
]
