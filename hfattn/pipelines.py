"""The pipeline tasks "attn-translation" and "text-to-text", for any encoder-decoder model of transformers, and
"image-captioning".

Saved models of this package include theirs; for other models, importing this module registers the tasks.
"""

from collections.abc import Sequence
from typing import Any

from transformers import BaseImageProcessor, PreTrainedModel, PreTrainedTokenizerBase

from .errors import UserError
from .models.pipeline_attn_translation import AttnTranslationPipeline, TextToTextPipeline
from .models.pipeline_image_captioning import ImageCaptioningPipeline


def translations(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase | None,
    texts: Sequence[str],
    num_beams: int | None = None,
    max_new_tokens: int | None = None,
    num_return_sequences: int | None = None,
) -> list[Any]:
    """Return what the pipeline returns for each text. None selects the default of the model.

    Raises:
        UserError: a text cannot be translated.
    """
    options = {
        "num_beams": num_beams,
        "max_new_tokens": max_new_tokens,
        "num_return_sequences": num_return_sequences,
    }
    pipeline = AttnTranslationPipeline(
        model=model, tokenizer=tokenizer, target_tokenizer=target_tokenizer, device=model.device
    )
    try:
        return pipeline(list(texts), **{name: value for name, value in options.items() if value is not None})
    except ValueError as error:
        raise UserError(str(error)) from error


def captions(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    processor: BaseImageProcessor,
    images: Sequence[Any],
    num_beams: int | None = None,
) -> list[Any]:
    """Return what the pipeline returns for each image. None selects the default of the model.

    Raises:
        UserError: an image cannot be captioned.
    """
    options = {} if num_beams is None else {"num_beams": num_beams}
    pipeline = ImageCaptioningPipeline(model=model, tokenizer=tokenizer, image_processor=processor, device=model.device)
    try:
        return pipeline(list(images), **options)
    except ValueError as error:
        raise UserError(str(error)) from error


__all__ = [
    "AttnTranslationPipeline",
    "ImageCaptioningPipeline",
    "TextToTextPipeline",
    "captions",
    "translations",
]
