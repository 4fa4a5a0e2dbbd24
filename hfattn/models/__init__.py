"""The models: flat and self-contained, because a Hub repository is.

A module here imports torch, transformers and its siblings (``from .name import ...``), and nothing else of hfattn, so
that ``save_pretrained`` copies all that a model needs. This file is the exception: it is not copied, and registers the
models with the Auto classes of transformers.
"""

import copyreg
import importlib
from typing import TYPE_CHECKING, Any

import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from .configuration_bahdanau import BahdanauConfig as BahdanauConfig
from .configuration_bilm import BiLMConfig as BiLMConfig
from .configuration_char_rnn import CharRNNConfig as CharRNNConfig
from .configuration_dual_encoder import DualEncoderConfig as DualEncoderConfig
from .configuration_rnn_encoder import RNNEncoderConfig as RNNEncoderConfig
from .configuration_show_attend_tell import ShowAttendTellConfig as ShowAttendTellConfig
from .configuration_vaswani import VaswaniConfig as VaswaniConfig
from .configuration_vaswani_vision import VaswaniVisionConfig as VaswaniVisionConfig

if TYPE_CHECKING:
    from .cache_recurrent import *  # noqa: F403
    from .modeling_bahdanau import *  # noqa: F403
    from .modeling_bilm import *  # noqa: F403
    from .modeling_char_rnn import *  # noqa: F403
    from .modeling_dual_encoder import *  # noqa: F403
    from .modeling_rnn_encoder import *  # noqa: F403
    from .modeling_show_attend_tell import *  # noqa: F403
    from .modeling_vaswani import *  # noqa: F403
    from .modeling_vaswani_translation import *  # noqa: F403
    from .modeling_vaswani_vision import *  # noqa: F403

_CONFIGS = (
    BahdanauConfig,
    BiLMConfig,
    CharRNNConfig,
    DualEncoderConfig,
    RNNEncoderConfig,
    ShowAttendTellConfig,
    VaswaniConfig,
    VaswaniVisionConfig,
)

# Modeling code imports most of transformers, which takes seconds, so a class is imported when it is first used. This
# is the module of each public class; ``_register`` adds those that a configuration's ``auto_map`` names.
_MODULES = {
    "BahdanauPreTrainedModel": "modeling_bahdanau",
    "BiLMPreTrainedModel": "modeling_bilm",
    "CharRNNPreTrainedModel": "modeling_char_rnn",
    "RNNEncoderPreTrainedModel": "modeling_rnn_encoder",
    "RecurrentCache": "cache_recurrent",
    "ShowAttendTellPreTrainedModel": "modeling_show_attend_tell",
    "VaswaniPreTrainedModel": "modeling_vaswani",
    "VaswaniVisionPreTrainedModel": "modeling_vaswani_vision",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)


class _Deferred(type):
    """Metaclass of a stand-in for a model class, which imports that class when an attribute is read or it is called."""

    def __getattr__(cls, attribute: str) -> Any:
        if attribute.startswith("__"):  # read by inspection (pickle, typing, doctest), which needs no model
            raise AttributeError(attribute)
        return getattr(cls._resolve(), attribute)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls._resolve()(*args, **kwargs)

    def _resolve(cls) -> type:
        """Import the class, and register it in place of its stand-in."""
        real = __getattr__(cls.__name__)
        cls.auto_class.register(cls.config_class, real, exist_ok=True)
        return real


# If a mapping of the Auto classes is pickled, its stand-ins are replaced by the classes.
copyreg.pickle(_Deferred, lambda cls: (__getattr__, (cls.__name__,)))


def _register(config: Any) -> None:
    """Register a configuration, and a stand-in for each model class that its ``auto_map`` names."""
    transformers.AutoConfig.register(config.model_type, config)
    for auto_name, reference in config.__dataclass_fields__["auto_map"].default_factory().items():
        if auto_name == "AutoConfig":
            continue
        module, name = reference.split(".")
        _MODULES[name] = module
        auto_class = getattr(transformers, auto_name)
        attributes = {"__module__": f"{__name__}.{module}", "config_class": config, "auto_class": auto_class}
        auto_class.register(config, _Deferred(name, (), attributes))
        if auto_name == "AutoModelForCausalLM":
            # With label smoothing, Trainer shifts the labels only for the classes in this table.
            MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type] = name


for _config in _CONFIGS:
    _register(_config)

if not TYPE_CHECKING:  # a type checker reads no computed list, and sees what is imported above
    __all__ = sorted([*_MODULES, *(config.__name__ for config in _CONFIGS)])
