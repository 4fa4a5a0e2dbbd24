"""The pipeline task "image-captioning": a caption, its log-probability, and where each word looked."""

import os
from typing import Any

import torch
from transformers import AutoModelForImageTextToText, Pipeline
from transformers.pipelines import PIPELINE_REGISTRY

from .alignment import GenerationPath, alignment
from .encoder_decoder import PaddedBeams

TASK = "image-captioning"


class ImageCaptioningPipeline(Pipeline):
    """Caption images, and return the attention weights of each word.

    ``pipeline("image-captioning", model=folder, trust_remote_code=True)("picture.png")`` returns a dict:

    - ``caption_text``: the caption;
    - ``score``: its log-probability log p(y | a) under the model, the sum over its tokens including the end token, in
      nats. It does not depend on the decoding method;
    - ``alignment``: an ``AttentionRecord`` of the weights on the grid of annotations.

    An image is a path or a PIL image; transparent parts get the color of training (``background`` of
    preprocessor_config.json), or white. For a list of images, it returns a list.
    With ``num_return_sequences`` above 1, each image has a list of captions, the best first. ``batch_size`` captions
    several images at once; all other arguments are passed to ``generate()``.
    """

    _load_tokenizer = True
    _load_image_processor = True

    def _sanitize_parameters(self, **generate_kwargs: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        return {}, generate_kwargs, {}

    def preprocess(self, input_: Any, **preprocess_parameters: Any) -> dict[str, torch.Tensor]:
        """Return the pixels (1, channels, height, width).

        Raises:
            ValueError: the input is not an image.
        """
        from PIL import Image, ImageOps  # a model of texts is loaded without it

        if isinstance(input_, str | os.PathLike):
            input_ = Image.open(input_)
        if not isinstance(input_, Image.Image):
            raise ValueError(f"Cannot caption a {type(input_).__name__}; give a path or a PIL image.")
        image = ImageOps.exif_transpose(input_)
        if image.has_transparency_data:
            color = tuple(getattr(self.image_processor, "background", (255, 255, 255)))
            image = Image.alpha_composite(Image.new("RGBA", image.size, color), image.convert("RGBA"))
        return {"pixel_values": self.image_processor(image.convert("RGB"), return_tensors="pt")["pixel_values"]}

    def _forward(self, input_tensors: dict[str, torch.Tensor], **generate_kwargs: Any) -> dict[str, Any]:
        model = self.model
        pixels = input_tensors["pixel_values"].to(model.dtype)
        encoded = model.get_encoder()(pixels, return_dict=True)
        rows, columns = encoded.grid[0].tolist()
        outputs = model.generate(
            encoder_outputs=encoded,
            **generate_kwargs,
            return_dict_in_generate=True,
            output_attentions=True,
            output_logits=True,
        )
        config = generate_kwargs.get("generation_config") or model.generation_config
        given = {**model.generation_config.to_diff_dict(), **config.to_diff_dict(), **generate_kwargs}
        ends = [] if given.get("eos_token_id") is None else given["eos_token_id"]
        count = len(outputs.sequences) // len(pixels)
        return {
            "captions": [
                [
                    self._caption(outputs, index, hypothesis, pixels, (rows, columns), ends)
                    for hypothesis in range(count)
                ]
                for index in range(len(pixels))
            ]
        }

    def _caption(
        self,
        outputs: Any,
        index: int,
        hypothesis: int,
        pixels: torch.Tensor,
        grid: tuple[int, int],
        ends: int | list[int],
    ) -> dict[str, Any]:
        path = GenerationPath.of(outputs, len(outputs.logits), index, hypothesis, len(pixels), ends)
        record = alignment(
            outputs,
            index,
            hypothesis=hypothesis,
            target_tokenizer=self.tokenizer,
            eos_token_id=ends,
            grid=grid,
            pixel_values=pixels,
        )
        text = self.tokenizer.decode(path.sequence, skip_special_tokens=True)
        return {"caption_text": text, "score": path.log_probability(outputs.logits), "alignment": record}

    def postprocess(self, model_outputs: dict[str, Any], **postprocess_parameters: Any) -> Any:
        captions = model_outputs["captions"]
        if isinstance(captions[0], list):  # a batch of one image
            (captions,) = captions
        return captions[0] if len(captions) == 1 else captions


class CaptioningMixin(PaddedBeams):
    """A model that is saved with its pipeline, for ``pipeline("image-captioning", ...)`` without hfattn."""

    config: Any

    def save_pretrained(self, save_directory: str | os.PathLike[str], *args: Any, **kwargs: Any) -> Any:
        """Save the model as transformers does, with the name of its pipeline in the configuration."""
        implementation = f"{__name__.rpartition('.')[2]}.{ImageCaptioningPipeline.__name__}"
        entry = {"impl": implementation, "pt": [AutoModelForImageTextToText.__name__], "type": "multimodal"}
        self.config.custom_pipelines = {TASK: entry}
        return super().save_pretrained(save_directory, *args, **kwargs)  # type: ignore[misc]


if TASK not in PIPELINE_REGISTRY.get_supported_tasks():  # another copy of this module may have registered it
    PIPELINE_REGISTRY.register_pipeline(
        TASK, ImageCaptioningPipeline, pt_model=AutoModelForImageTextToText, type="multimodal"
    )
