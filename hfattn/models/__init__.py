"""The models: flat and self-contained, because a Hub repository is.

A module here imports torch, transformers and its siblings (``from .name import ...``), and nothing else of hfattn: what
``save_pretrained`` copies into a repository is all that the model needs. This file is the one exception; it is not
copied, and registers the classes with the Auto classes.
"""

import copyreg
import importlib
from typing import TYPE_CHECKING, Any

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
)

from .configuration_bahdanau import BahdanauConfig
from .configuration_char_rnn import CharRNNConfig
from .configuration_rnn_encoder import RNNEncoderConfig
from .configuration_vaswani import VaswaniConfig

if TYPE_CHECKING:
    from .cache_recurrent import RecurrentCache
    from .modeling_bahdanau import BahdanauForConditionalGeneration, BahdanauModel, BahdanauPreTrainedModel
    from .modeling_char_rnn import CharRNNForCausalLM, CharRNNModel, CharRNNPreTrainedModel
    from .modeling_rnn_encoder import (
        RNNEncoderForSequenceClassification,
        RNNEncoderModel,
        RNNEncoderPreTrainedModel,
    )
    from .modeling_vaswani import (
        VaswaniForCausalLM,
        VaswaniForConditionalGeneration,
        VaswaniForMaskedLM,
        VaswaniForSequenceClassification,
        VaswaniModel,
        VaswaniPreTrainedModel,
    )

# Modelling code imports most of transformers, which takes seconds; it is loaded when a class is first used.
_LAZY = {
    "BahdanauForConditionalGeneration": "modeling_bahdanau",
    "BahdanauModel": "modeling_bahdanau",
    "BahdanauPreTrainedModel": "modeling_bahdanau",
    "CharRNNForCausalLM": "modeling_char_rnn",
    "CharRNNModel": "modeling_char_rnn",
    "CharRNNPreTrainedModel": "modeling_char_rnn",
    "RNNEncoderForSequenceClassification": "modeling_rnn_encoder",
    "RNNEncoderModel": "modeling_rnn_encoder",
    "RNNEncoderPreTrainedModel": "modeling_rnn_encoder",
    "RecurrentCache": "cache_recurrent",
    "VaswaniForCausalLM": "modeling_vaswani",
    "VaswaniForConditionalGeneration": "modeling_vaswani",
    "VaswaniForMaskedLM": "modeling_vaswani",
    "VaswaniForSequenceClassification": "modeling_vaswani",
    "VaswaniModel": "modeling_vaswani",
    "VaswaniPreTrainedModel": "modeling_vaswani",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)


class _Deferred(type):
    """Metaclass of a stand-in for a model class: what is done with it is done with the class, imported then."""

    def __getattr__(cls, attribute: str) -> Any:
        if attribute.startswith("__"):  # inspection (pickle, typing, doctest) is no use
            raise AttributeError(attribute)
        return getattr(cls._resolve(), attribute)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls._resolve()(*args, **kwargs)

    def _resolve(cls) -> type:
        """Import the class, and let it take the place of its stand-in."""
        real = __getattr__(cls.__name__)
        cls.auto_class.register(cls.config_class, real, exist_ok=True)
        return real


# A mapping of the Auto classes may be pickled with stand-ins in it: the class takes their place then too.
copyreg.pickle(_Deferred, lambda cls: (__getattr__, (cls.__name__,)))


def _register(config: type, models: dict[Any, str]) -> None:
    AutoConfig.register(config.model_type, config)  # type: ignore[attr-defined]
    for auto_class, name in models.items():
        attributes = {"__module__": f"{__name__}.{_LAZY[name]}", "config_class": config, "auto_class": auto_class}
        stand_in = _Deferred(name, (), attributes)
        auto_class.register(config, stand_in)


_register(BahdanauConfig, {AutoModel: "BahdanauModel", AutoModelForSeq2SeqLM: "BahdanauForConditionalGeneration"})
_register(CharRNNConfig, {AutoModel: "CharRNNModel", AutoModelForCausalLM: "CharRNNForCausalLM"})
_register(
    RNNEncoderConfig,
    {AutoModel: "RNNEncoderModel", AutoModelForSequenceClassification: "RNNEncoderForSequenceClassification"},
)
_register(
    VaswaniConfig,
    {
        AutoModel: "VaswaniModel",
        AutoModelForSeq2SeqLM: "VaswaniForConditionalGeneration",
        AutoModelForCausalLM: "VaswaniForCausalLM",
        AutoModelForMaskedLM: "VaswaniForMaskedLM",
        AutoModelForSequenceClassification: "VaswaniForSequenceClassification",
    },
)

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
