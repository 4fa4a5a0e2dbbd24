"""What a user gives of another project's model, and what becomes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..errors import UserError
from ..models.strict_config import unknown_name_message
from .checkpoint import Checkpoint


@dataclass
class Source:
    """A model of another project.

    Attributes:
        checkpoint: its weights.
        config: its own configuration, where that is a file beside them.
        settings: fields of our configuration that neither the weights nor ``config`` tell.
        vocabulary, target_vocabulary: files; the second of a target that has one of its own.
    """

    checkpoint: Checkpoint
    config: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    vocabulary: Path | None = None
    target_vocabulary: Path | None = None

    def refuse_target_vocabulary(self) -> None:
        """For a language model or a classifier, which has one.

        Raises:
            UserError: two are given.
        """
        if self.target_vocabulary is not None:
            raise UserError("--target-vocabulary is for translation; a model of one text has one --vocabulary.")


@dataclass
class Converted:
    """A model of ours, or of transformers.

    Attributes:
        model: with the weights.
        tokenizer: where a vocabulary was given.
        target_tokenizer: of a target that has one of its own.
        assumed: fields of the configuration that nothing told, and what was taken for granted.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None = None
    target_tokenizer: PreTrainedTokenizerBase | None = None
    assumed: dict[str, Any] = field(default_factory=dict)


def make_config(
    config_class: type[PreTrainedConfig], told: Mapping[str, Any], settings: Mapping[str, Any]
) -> PreTrainedConfig:
    """A configuration of what a source tells and of what the user says.

    Args:
        told: fields that follow from weights and files.
        settings: fields that the user sets.

    Raises:
        UserError: a setting is no field, has no such value, or contradicts what the source tells.
    """
    known = {*config_class().to_dict(), *config_class.attribute_map}
    for name, value in settings.items():
        if name not in known:
            raise UserError(f"--set {unknown_name_message(name, known, config_class.__name__)}")
        if name in told and told[name] != value:
            raise UserError(f"--set {name}={value} contradicts the model, which has {told[name]}; leave it out.")
    try:
        return config_class(**{**told, **settings})
    except (StrictDataclassError, ValueError, TypeError) as error:
        raise UserError(" ".join(str(error.__cause__ or error).split())) from error


__all__ = ["Converted", "Source", "make_config"]
