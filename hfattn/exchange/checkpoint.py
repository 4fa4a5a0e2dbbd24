"""The input of a conversion, and its result."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import BaseImageProcessor, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..errors import UserError
from ..models.strict_config import unknown_name_message
from .weights import Weights


@dataclass
class Checkpoint:
    """A model of another project.

    Attributes:
        weights: its weights.
        config: its own configuration, if there is a file.
        settings: fields of the new configuration that the user sets.
        vocabulary, target_vocabulary: vocabulary files; the second one only if the target side has its own.
    """

    weights: Weights
    config: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    vocabulary: Path | None = None
    target_vocabulary: Path | None = None


@dataclass
class Converted:
    """A converted model.

    Attributes:
        model: a model of hfattn or of transformers, with the weights.
        tokenizer: its tokenizer; None if no vocabulary was given.
        target_tokenizer: the target side's tokenizer, if it has its own vocabulary.
        assumed: fields of the configuration that the checkpoint does not store, with the assumed values.
        processor: the image processor of a model of images, if there is one.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None = None
    target_tokenizer: PreTrainedTokenizerBase | None = None
    assumed: dict[str, Any] = field(default_factory=dict)
    processor: BaseImageProcessor | None = None


def make_config(
    config_class: type[PreTrainedConfig], told: Mapping[str, Any], settings: Mapping[str, Any]
) -> PreTrainedConfig:
    """Return a configuration.

    Args:
        told: fields that the weights and files determine.
        settings: fields that the user sets.

    Raises:
        UserError: a setting is not a field, has an invalid value, or contradicts ``told``.
    """
    known = {*config_class().to_dict(), *config_class.attribute_map}
    for name, value in settings.items():
        if name not in known:
            raise UserError(f"--set {unknown_name_message(name, known, config_class.__name__)}")
        if name in told and told[name] != value:
            raise UserError(f"--set {name}={value} contradicts the model, which has {told[name]}; remove it.")
    try:
        return config_class(**{**told, **settings})
    except (StrictDataclassError, ValueError, TypeError) as error:
        raise UserError(" ".join(str(error.__cause__ or error).split())) from error
