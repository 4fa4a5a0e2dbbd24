"""The models: flat and self-contained, because a Hub repository is.

A module here imports torch, transformers and its siblings (``from .name import ...``), and nothing else of hfattn: what
``save_pretrained`` copies into a repository is all that the model needs. This file is the one exception; it is not
copied, and registers the classes with the Auto classes.
"""

import importlib
from typing import TYPE_CHECKING, Any

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from .configuration_char_rnn import CharRNNConfig

if TYPE_CHECKING:
    from .cache_recurrent import RecurrentCache
    from .modeling_char_rnn import CharRNNForCausalLM, CharRNNModel, CharRNNPreTrainedModel

# Modelling code imports most of transformers, which takes seconds; it is loaded when a class is first used.
_LAZY = {
    "CharRNNForCausalLM": "modeling_char_rnn",
    "CharRNNModel": "modeling_char_rnn",
    "CharRNNPreTrainedModel": "modeling_char_rnn",
    "RecurrentCache": "cache_recurrent",
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


def _register(config: type, models: dict[Any, str]) -> None:
    AutoConfig.register(config.model_type, config)  # type: ignore[attr-defined]
    for auto_class, name in models.items():
        attributes = {"__module__": f"{__name__}.{_LAZY[name]}", "config_class": config, "auto_class": auto_class}
        stand_in = _Deferred(name, (), attributes)
        auto_class.register(config, stand_in)


_register(CharRNNConfig, {AutoModel: "CharRNNModel", AutoModelForCausalLM: "CharRNNForCausalLM"})

__all__ = ["CharRNNConfig", "CharRNNForCausalLM", "CharRNNModel", "CharRNNPreTrainedModel", "RecurrentCache"]
