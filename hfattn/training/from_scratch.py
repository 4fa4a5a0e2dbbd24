"""Models from scratch, of any type in transformers, from the section ``model`` of a recipe."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig

from ..errors import UserError
from ..loading import BaseModel
from ..models.strict_config import StrictConfig, unknown_name_message
from ..tokenizers.learned import WORDS
from .config import build_section, checked, model_config
from .training_config import TrainingConfig
from .tuning_config import TuningConfig, check_averaging, check_tuning

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@strict
@dataclass
class PretrainedOrScratchConfig(TrainingConfig):
    """The sections that recipes share whose model is pretrained or from scratch.

    Attributes:
        model: the name of a pretrained model (and revision, trust_remote_code, options), or the model_type of a model
            from scratch (and fields of that type's configuration).
        tuning: for a pretrained model, which of its weights are trained.
    """

    model: dict[str, Any] = field(default_factory=dict)
    tuning: TuningConfig = field(default_factory=TuningConfig)

    @property
    def pretrained(self) -> BaseModel | None:
        """The pretrained model; None for training from scratch."""
        return build_section(BaseModel, self.model, "model.") if "name" in self.model else None

    def validate_averaging(self) -> None:
        check_averaging(self.tuning, self.averaging)

    def check_agreement(self) -> None:
        check_tuning(self.pretrained, self.tuning)
        super().check_agreement()


def check_all_words(config: Any) -> None:
    """Check that a learned vocabulary has a place for all words of ``data.vectors`` if they are added.

    Args:
        config: configuration of a recipe, with the sections ``data`` (a ``WordVectorsConfig``) and ``tokenizer``.

    Raises:
        UserError: it has none.
    """
    tokenizer = config.tokenizer
    if not config.data.all_words:
        return
    if tokenizer.kind not in WORDS:
        raise UserError(
            f"data.all_words is for a vocabulary of words, and tokenizer.kind is {tokenizer.kind}; write word, or "
            "remove it."
        )
    if (tokenizer.vocab_size, tokenizer.min_count) != (None, 1):
        raise UserError(
            "data.all_words adds words that are rare in the training texts, and tokenizer.vocab_size and "
            "tokenizer.min_count leave those out; remove these."
        )


def scratch_config(
    section: Mapping[str, Any],
    from_data: Mapping[str, Any],
    families: Collection[str] | None = None,
    place: str = "model",
) -> PreTrainedConfig:
    """Return the configuration of a model from scratch.

    Args:
        section: ``model_type``, fields of its configuration, and optionally a ``preset`` for a model of hfattn.
        from_data: the fields that follow from the tokenizer, such as ``vocab_size``.
        families: the model types that the recipe trains; by default, all types in transformers.
        place: name of the section.

    Raises:
        UserError: the model type or a field is unknown, the section sets a field that follows from the tokenizer, or
            the fields contradict each other.
    """
    fields = dict(section)
    model_type = fields.pop("model_type", None)
    if families is not None and model_type not in families:
        known = ", ".join(families)
        raise UserError(f"{place}.model_type is {model_type!r}; write one of {known}, or a {place}.name to start from.")
    try:
        config_class = type(AutoConfig.for_model(model_type))
    except ValueError:
        raise UserError(
            f"{place}.model_type is {model_type!r}; write a model type of transformers, such as gpt2, or a "
            f"{place}.name to start from."
        ) from None
    if issubclass(config_class, StrictConfig):
        return model_config(config_class, fields, **from_data)
    default = config_class()
    names = {*default.to_dict(), *default.attribute_map}
    for name in fields:
        if name in from_data:
            raise UserError(f"{place}.{name} follows from the data; leave it out.")
        if name not in names:
            raise UserError(unknown_name_message(f"{place}.{name}", {f"{place}.{each}" for each in names}, model_type))
    return _consistent(config_class, {**fields, **from_data}, place)


def text_encoder_config(
    section: Mapping[str, Any],
    from_data: Mapping[str, Any],
    families: Collection[str] | None = None,
    place: str = "model",
    *,
    pooled_by: str,
) -> PreTrainedConfig:
    """Return the configuration of an encoder of texts from scratch, whose outputs are pooled outside of it.

    Args:
        section, from_data, families, place: as for ``scratch_config``.
        pooled_by: the field of the recipe that names the pooling.

    Raises:
        UserError: as for ``scratch_config``, or the section names a pooling.
    """
    fields, kind = dict(section), section.get("model_type")
    if kind == "rnn_encoder":
        if "pooling" in fields:
            raise UserError(f"{place}.pooling is that of a classifier; write {pooled_by}.")
        fields["pooling"] = "last"  # it has no weights, and is not read
    elif kind == "vaswani":
        alone = {"bos_token_id": None, "eos_token_id": None, "decoder_start_token_id": None}
        from_data = {**from_data, **alone, "is_encoder_decoder": False, "is_decoder": False}
    return scratch_config(fields, from_data, families, place)


def scratch_model(auto_class: Any, config: PreTrainedConfig) -> "PreTrainedModel":
    """Return a model with random weights.

    Args:
        auto_class: Auto class of transformers, such as ``AutoModelForCausalLM``.
        config: its configuration.

    Raises:
        UserError: the class has no model of that type, or the fields of the configuration contradict each other.
    """
    try:
        return _consistent(auto_class.from_config, {"config": config})
    except UserError as error:
        if "Unrecognized configuration class" not in str(error):
            raise
        raise UserError(
            f"{auto_class.__name__} has no model of the type {config.model_type}; write another model.model_type."
        ) from error


def _consistent(make: Callable[..., Any], fields: dict[str, Any], place: str = "model") -> Any:
    try:
        return checked(make, fields, prefix=f"{place}.")
    except UserError as error:
        reason = str(error)
        raise UserError(reason if reason.endswith(".") else f"{reason}; change the section {place}.") from error
