"""The sections of a translator, pretrained or from scratch."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub.dataclasses import strict

from ..errors import UserError
from ..loading import BaseModel
from .config import build_section
from .from_scratch import PretrainedOrScratchConfig
from .tuning_config import TuningConfig, alone_field

if TYPE_CHECKING:
    from .seq2seq import Seq2SeqArguments


@strict
@dataclass
class TranslatorLocation(BaseModel):
    """The section ``model`` of a pretrained encoder-decoder."""

    # Languages, as the tokenizer of a model of many languages calls them: eng_Latn (NLLB), en_XX (mBART), en (M2M100);
    # null: those that are stored with the model.
    source_language: str | None = None
    target_language: str | None = None
    # What is put before each source: the task of T5 ("translate English to German: ") or the target language of a
    # Marian model of many languages (">>spa<< "); null: the one that is stored with the model, or nothing.
    prefix: str | None = None


@strict
@dataclass
class TranslatorConfig(PretrainedOrScratchConfig):
    """The sections of a translator, pretrained or from scratch."""

    added_fields = {"predict_with_generate": True}

    @property
    def pretrained(self) -> TranslatorLocation | None:
        """Location of the pretrained model, with its languages and prefix; None for training from scratch."""
        return build_section(TranslatorLocation, self.model, "model.") if "name" in self.model else None

    def arguments(self, run: Path, *args: Any, **defaults: Any) -> "Seq2SeqArguments":
        from .seq2seq import Seq2SeqArguments

        return super().arguments(run, Seq2SeqArguments, predict_with_generate=True, **defaults)

    def check_sections(self, own_tokenizer: bool) -> None:
        """Check that the sections are those of a pretrained model, or those of a model from scratch.

        Args:
            own_tokenizer: whether the section ``tokenizer`` says something.

        Raises:
            UserError: a section or a field is for the other.
        """
        if self.pretrained is None:
            if self.tuning != TuningConfig():
                raise UserError("A model from scratch trains all weights; remove the section tuning.")
            if unused := sorted({each.name for each in fields(TranslatorLocation)} & self.model.keys()):
                raise UserError(f"model.{unused[0]} is for a pretrained model; write its model.name, or remove it.")
            return
        if own_tokenizer:
            raise UserError("A pretrained model comes with its own tokenizer; remove the section tokenizer.")
        if self.tuning.layer_decay != 1:
            raise UserError("tuning.layer_decay is for one stack of layers, and an encoder-decoder has two; write 1.")
        if self.tuning.gradual_unfreezing:
            raise UserError(
                "tuning.gradual_unfreezing is for one stack of layers, and an encoder-decoder has two; write false."
            )
        if (field := alone_field(self.pretrained, self.tuning)) is not None:
            raise UserError(
                f"{field} saves updates alone, which have no place for the language and the search of a translator; "
                "remove it."
            )
        for name in ("scheduled_sampling", "sampled_softmax"):
            if self.training.get(name):
                raise UserError(f"training.{name} is for models from scratch; remove it, or model.name.")
