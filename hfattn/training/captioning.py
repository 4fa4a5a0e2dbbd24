"""Build a captioner, compute what its frozen encoder makes of images, and train it."""

from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoModel, BaseImageProcessor, PreTrainedTokenizerBase

from ..data import CaptionedImages, frozen_features, make_processor
from ..loading import load_image_processor, load_model
from ..models.modeling_show_attend_tell import ShowAttendTellForConditionalGeneration
from .captioner_config import CaptionerConfig, own_captioner_config
from .seq2seq import ReliableSeq2SeqTrainer


def build_captioner(
    config: CaptionerConfig, tokenizer: PreTrainedTokenizerBase
) -> ShowAttendTellForConditionalGeneration:
    """Return a captioner from scratch, with the weights of its pretrained encoder.

    Raises:
        UserError: the section ``model`` describes no valid model, or the encoder cannot be loaded.
    """
    model = ShowAttendTellForConditionalGeneration(own_captioner_config(config, tokenizer))
    if config.pretrained is not None:
        encoder = load_model(AutoModel, config.pretrained).model
        model.get_encoder().vision_model.load_state_dict(encoder.state_dict())
        model.config.vision_config._name_or_path = ""  # the path of a local folder is not published
    return model


def captioner_processor(config: CaptionerConfig, size: int) -> BaseImageProcessor:
    """Return the processor of the pretrained encoder, or one that maps pixels to -1 … 1 for the CNN.

    Args:
        config: configuration of the recipe.
        size: height and width of the images, in pixels.

    Raises:
        UserError: there is no such model, or it has no processor.
    """
    if config.pretrained is None:
        return make_processor((size, size), mean=[0.5] * 3, std=[0.5] * 3)
    return load_image_processor(config.pretrained, size)


def features_of_images(
    model: ShowAttendTellForConditionalGeneration,
    processor: BaseImageProcessor,
    images: CaptionedImages,
    *,
    background: list[int],
    rows: int,
    cache: Path | None,
    progress: str | None = None,
) -> np.ndarray:
    """Return what a frozen encoder makes of images, (n, rows, columns, width), computed once.

    Args:
        rows: number of images that the encoder reads at once.
        background, cache, progress: see ``frozen_features``.
    """
    encoder = model.get_encoder()
    pixels = [item.image for item in images]
    features = frozen_features(
        encoder.vision_model, processor, pixels, pooling="patches", background=background, batch_size=rows, cache=cache,
        progress=progress,
    )  # fmt: skip
    side = round(features.shape[1] ** 0.5)
    return features.reshape(len(features), side, side, -1)


class CaptionTrainer(ReliableSeq2SeqTrainer):
    """A ``ReliableSeq2SeqTrainer`` for captioners, which read images or their features."""

    def generation_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        if "pixel_values" in inputs:
            return {"pixel_values": inputs["pixel_values"]}
        model: Any = self.accelerator.unwrap_model(self.model)
        return {"encoder_outputs": model.get_encoder()(image_features=inputs["image_features"], return_dict=True)}
