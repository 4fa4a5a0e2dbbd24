"""The sections of recipes that start from a pretrained model: which of its weights are trained, and their checks."""

from dataclasses import dataclass, field

from huggingface_hub.dataclasses import strict

from ..errors import UserError
from ..fields import at_least, number, one_of
from ..hub_access import model_folder
from ..loading import BaseModel
from .training_config import AveragingConfig, TrainingConfig


@strict
@dataclass
class TuningConfig:
    """The section ``tuning``: which weights are trained, and how fast."""

    # All weights, low-rank updates and the head, or the head alone.
    method: str = one_of(("full", "lora", "head_only"), "full")
    rank: int = at_least(1, 8)  # r of the low-rank updates
    alpha: int = at_least(1, 16)  # the updates are scaled by alpha / r
    lora_dropout: float = number(0.0, least=0, below=1)  # dropout on the input of the updates
    target_modules: list[str] | None = None  # last names of the updated layers; null: all linear layers of the body
    layer_decay: float = number(1.0, above=0, most=1)  # factor of the learning rate from each layer to the one below
    # Train the head alone in the first epoch, and one more layer from the top in each following epoch (Howard & Ruder
    # 2018, section 3.3).
    gradual_unfreezing: bool = False
    # Of method lora: true saves the whole model, with the updates merged; false saves the updates and a new head alone,
    # which need their base model from the Hub. null: false if model.name is on the Hub and programs can load the model
    # with its head, tokens and code in this way, and true otherwise.
    merge: bool | None = None

    def validate_together(self) -> None:
        if self.method != "lora" and self.target_modules is not None:
            raise ValueError("target_modules applies to method lora; write method: lora, or remove it.")
        if self.method != "lora" and self.merge is not None:
            raise ValueError("merge applies to method lora; write method: lora, or remove it.")
        if self.method == "head_only" and self.layer_decay != 1:
            raise ValueError("layer_decay has no effect with method head_only; write 1, or another method.")
        if self.method == "head_only" and self.gradual_unfreezing:
            raise ValueError("gradual_unfreezing has no effect with method head_only; write false, or another method.")


@strict
@dataclass
class FineTuningConfig(TrainingConfig):
    """The sections that recipes with a pretrained model share."""

    model: BaseModel = field(default_factory=lambda: BaseModel(name="distilbert/distilbert-base-cased"))
    tuning: TuningConfig = field(default_factory=TuningConfig)

    def validate_averaging(self) -> None:
        check_averaging(self.tuning, self.averaging)

    def check_agreement(self) -> None:
        check_tuning(self.model, self.tuning)
        super().check_agreement()


def check_averaging(tuning: TuningConfig, averaging: AveragingConfig) -> None:
    """Check that checkpoints can be averaged.

    Raises:
        ValueError: checkpoints are to be averaged, and LoRA checkpoints hold only updates.
    """
    if tuning.method == "lora" and averaging.last is not None:
        raise ValueError("averaging.last needs complete checkpoints, and lora saves updates only; write averaging.ema.")


def check_tuning(source: BaseModel | None, tuning: TuningConfig) -> None:
    """Check that the precision of a pretrained model suits the method of tuning.

    Args:
        source: the section ``model``; None for a model from scratch.
        tuning: the section ``tuning``.

    Raises:
        UserError: a model from scratch would be unfrozen layer by layer, frozen or imprecise weights would be trained,
            or an adapter would name a base model or be merged into one that nobody else has.
    """
    if source is None:
        if tuning.gradual_unfreezing:
            raise UserError(
                "tuning.gradual_unfreezing trains a pretrained model (model.name) from its head down; write false."
            )
        return
    if source.base_model is not None and model_folder(source.name) is None:
        raise UserError("model.base_model is for a local folder, and model.name is an id on the Hub; remove it.")
    if tuning.method != "lora":
        if source.quantization is not None:
            raise UserError("model.quantization freezes the weights; write tuning.method: lora, or remove it.")
        if source.dtype == "float16":
            raise UserError(
                "Weights in float16 cannot be trained; write model.dtype: bfloat16, or tuning.method: lora."
            )
    elif source.quantization is not None and tuning.merge:
        raise UserError(
            "Updates that were trained beside quantized weights are saved alone; remove tuning.merge, or "
            "model.quantization."
        )
    field = alone_field(source, tuning)
    if field is not None and model_folder(source.name) is not None:
        raise UserError(
            f"{field} saves updates alone, which name their base model by its id on the Hub, and model.name is a "
            "folder; write the id, or remove the field."
        )


def alone_field(source: BaseModel, tuning: TuningConfig) -> str | None:
    """Return the field that asks for low-rank updates without their base model; None if no field does."""
    if tuning.merge is False:
        return "tuning.merge: false"
    return None if source.quantization is None else "model.quantization"
