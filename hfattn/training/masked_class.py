"""The Auto class of a masked language model."""

from typing import Any

from transformers import AutoModelForMaskedLM, AutoModelForPreTraining, PreTrainedConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING,
)

from ..errors import UserError


def masked_lm_class(settings: PreTrainedConfig, next_sentence: bool) -> Any:
    """Return the Auto class of the model with the heads that are trained.

    Raises:
        UserError: transformers has no masked language model of that type, or no model of that type that predicts next
            sentences.
    """
    has_own_code = "AutoModelForMaskedLM" in settings.to_dict().get("auto_map", {})
    if type(settings) not in MODEL_FOR_MASKED_LM_MAPPING and not has_own_code:
        raise UserError(
            f"There is no masked language model of the type {settings.model_type}; write the model.name of an encoder "
            "such as BERT or DistilBERT."
        )
    if not next_sentence:
        return AutoModelForMaskedLM
    if type(settings) not in MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING:
        raise UserError(
            f"data.next_sentence needs segment embeddings and a head, and models of the type {settings.model_type} "
            "do not have them; write false, or use another model such as BERT."
        )
    return AutoModelForPreTraining
