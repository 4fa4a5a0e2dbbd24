"""The sections of a captioner."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..loading import ModelLocation, load_model_config
from ..models.configuration_show_attend_tell import ShowAttendTellConfig
from .config import build_section, model_config
from .training_config import TrainingConfig

if TYPE_CHECKING:
    from .seq2seq import Seq2SeqArguments


@strict
@dataclass
class EncoderLocation(ModelLocation):
    """The section ``vision`` of a pretrained encoder."""

    section: ClassVar[str] = "vision"


@strict
@dataclass
class CaptionerConfig(TrainingConfig):
    """The sections of a captioner.

    Attributes:
        model: fields of ``ShowAttendTellConfig``.
        vision: the name of a pretrained image model (and revision, trust_remote_code, options); empty for the CNN of
            ``ShowAttendTellConfig``, which is trained from scratch.
        features: folder for what a frozen encoder has computed, outside of the run, so that other runs read it; null:
            it is not kept.
    """

    added_fields = {"predict_with_generate": True}

    model: dict[str, Any] = field(default_factory=dict)
    vision: dict[str, Any] = field(default_factory=dict)
    features: str | None = "runs/features"

    @property
    def pretrained(self) -> EncoderLocation | None:
        """The pretrained encoder; None for the CNN."""
        return build_section(EncoderLocation, self.vision, "vision.") if self.vision else None

    def arguments(self, run: Path, *args: Any, **defaults: Any) -> "Seq2SeqArguments":
        from .seq2seq import Seq2SeqArguments

        return super().arguments(run, Seq2SeqArguments, predict_with_generate=True, **defaults)

    def check_captioner(self) -> None:
        """Check what the model cannot be trained with.

        Raises:
            UserError: the section ``model`` describes no model, or a setting of the training does not go with it.
        """
        own_captioner_config(self, None)
        if self.model.get("freeze_vision") and self.pretrained is None:
            raise UserError("model.freeze_vision keeps a pretrained encoder as it is; write vision.name.")
        for name in ("label_smoothing_factor", "scheduled_sampling", "sampled_softmax"):
            if self.training.get(name):
                raise UserError(f"training.{name} would leave out the terms of the attention in the loss; remove it.")


def own_captioner_config(config: CaptionerConfig, tokenizer: PreTrainedTokenizerBase | None) -> ShowAttendTellConfig:
    """Return the configuration of the model, with the vocabulary of its tokenizer.

    Args:
        config: configuration of the recipe.
        tokenizer: tokenizer of the captions; None to check the section before there is one.

    Raises:
        UserError: the section ``model`` describes no valid model, or there is no such encoder.
    """
    fields = dict(config.model)
    if (family := fields.pop("model_type", None)) != ShowAttendTellConfig.model_type:
        raise UserError(f"model.model_type is {family!r}; write {ShowAttendTellConfig.model_type}.")
    if "vision_config" in fields:
        raise UserError("model.vision_config follows from the section vision; write vision.name.")
    if tokenizer is None:
        ids = {"vocab_size": 1 << 20}
        fields.pop("freeze_vision", None)  # is for the encoder, which is not loaded here
    else:
        start = tokenizer.bos_token_id
        ids = {
            "vocab_size": len(tokenizer),
            "pad_token_id": tokenizer.pad_token_id,
            "bos_token_id": start,
            "decoder_start_token_id": start,
            "eos_token_id": tokenizer.eos_token_id,
        }
        if config.pretrained is not None:
            ids["vision_config"] = load_model_config(config.pretrained).to_dict()
    settings = model_config(ShowAttendTellConfig, fields, **ids)
    assert isinstance(settings, ShowAttendTellConfig)
    return settings
