"""A dual encoder: images and texts as unit vectors of one space (CLIP, Radford et al. 2021; SigLIP, Zhai et al. 2023).

Shapes: N images, M texts, S length of a text, D width of the embeddings.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import ModelOutput, can_return_tuple

from .configuration_dual_encoder import DualEncoderConfig
from .parts import make_part


@dataclass
class DualEncoderOutput(ModelOutput):
    """The outputs of a dual encoder; those without an input are None.

    Attributes:
        text_embeds: (M, D) embeddings of the texts, of length 1.
        image_embeds: (N, D) embeddings of the images, of length 1.
        logits_per_image: (N, M) similarities exp(t) I · T + b.
        logits_per_text: (M, N), the same transposed.
        text_model_output: outputs of the text tower.
        vision_model_output: outputs of the image tower.
    """

    text_embeds: torch.Tensor | None = None
    image_embeds: torch.Tensor | None = None
    logits_per_image: torch.Tensor | None = None
    logits_per_text: torch.Tensor | None = None
    text_model_output: BaseModelOutputWithPooling | None = None
    vision_model_output: BaseModelOutputWithPooling | None = None

    def to_tuple(self) -> tuple[Any, ...]:
        return tuple(each.to_tuple() if isinstance(each, ModelOutput) else each for each in self.values())


def text_projection(config: DualEncoderConfig) -> nn.Module:
    """Return the projection of texts: linear, or normalized and with a hidden layer."""
    width, hidden, bias = config.text_size, config.text_hidden_size, config.projection_bias
    if hidden is None:
        return nn.Linear(width, config.projection_dim, bias=bias)
    first, last = nn.Linear(width, hidden, bias=bias), nn.Linear(hidden, config.projection_dim, bias=bias)
    return nn.Sequential(nn.LayerNorm(width), first, nn.GELU(), last)


class DualEncoderModel(PreTrainedModel):
    """Two towers with a projection each; the weights have the names of ``VisionTextDualEncoderModel``.

    Beyond that model it has mean pooling of texts, biases and a hidden layer, and reads images or texts alone. It
    computes no loss, because the loss of a batch on several devices needs the embeddings of all of them; see
    ``hfattn.training.ContrastiveTrainer``.

    Args:
        config: the configuration.
        vision_model, text_model: the towers; by default, new ones with random weights.
    """

    config: DualEncoderConfig
    base_model_prefix = "dual_encoder"
    input_modalities = ("image", "text")
    _supports_flash_attn = True
    _supports_sdpa = True

    def __init__(
        self,
        config: DualEncoderConfig,
        vision_model: PreTrainedModel | None = None,
        text_model: PreTrainedModel | None = None,
    ) -> None:
        super().__init__(config)
        self.vision_model = make_part(config.vision_config) if vision_model is None else vision_model
        self.text_model = make_part(config.text_config) if text_model is None else text_model
        self.visual_projection = nn.Linear(
            config.vision_config.hidden_size, config.projection_dim, bias=config.projection_bias
        )
        self.text_projection = text_projection(config)
        self.logit_scale = nn.Parameter(torch.tensor(float(config.logit_scale_init_value)))
        bias = config.logit_bias_init_value
        self.logit_bias = None if bias is None else nn.Parameter(torch.tensor(float(bias)))
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if module is self:
            starts = {
                "logit_scale": self.config.logit_scale_init_value,
                "logit_bias": self.config.logit_bias_init_value,
            }
            for name, parameter in self.named_parameters(recurse=False):
                init.constant_(parameter, starts[name])

    def pool_text(self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        """Return the mean (M, D) of hidden states (M, S, D) over the tokens that ``attention_mask`` (M, S) keeps."""
        if attention_mask is None:
            return hidden_states.mean(1)
        kept = attention_mask[..., None].to(hidden_states.dtype)
        return (hidden_states * kept).sum(1) / kept.sum(1).clamp(min=1)

    def get_input_embeddings(self) -> nn.Module:
        """Return the embeddings of the text tower."""
        return self.text_model.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.text_model.set_input_embeddings(value)

    def read_texts(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs: Any
    ) -> BaseModelOutputWithPooling:
        """Return the outputs of the text tower for texts (M, S), pooled as ``config.text_pooling`` says."""
        outputs = self.text_model(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **kwargs)
        if self.config.text_pooling == "pooler":
            return outputs
        return BaseModelOutputWithPooling(
            last_hidden_state=outputs.last_hidden_state,
            pooler_output=self.pool_text(outputs.last_hidden_state, self._output_mask(attention_mask)),
            hidden_states=outputs.get("hidden_states"),
            attentions=outputs.get("attentions"),
        )

    def _output_mask(self, attention_mask: torch.Tensor | None) -> torch.Tensor | None:
        """Return which outputs of the text tower are not padding: its latents or blocks are no tokens."""
        if self.config.text_config.model_type != "vaswani":
            return attention_mask
        mask: torch.Tensor | None = self.text_model.encoder.output_mask(attention_mask)
        return mask

    def read_images(self, pixel_values: torch.Tensor, **kwargs: Any) -> BaseModelOutputWithPooling:
        """Return the outputs of the image tower."""
        outputs = self.vision_model(pixel_values=pixel_values, return_dict=True, **kwargs)
        outputs.pooler_output = outputs.pooler_output.flatten(1)
        return outputs

    def text_features(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return what the projection of texts (M, S) reads: the pooled outputs of the text tower."""
        return self.read_texts(*args, **kwargs).pooler_output

    def image_features(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Return what the projection of images reads: the pooled outputs of the image tower."""
        return self.read_images(pixel_values).pooler_output

    @can_return_tuple
    def get_text_features(self, *args: Any, **kwargs: Any) -> BaseModelOutputWithPooling:
        """Return the outputs of the text tower, with projected embeddings (M, D) as ``pooler_output``.

        Their length is not 1.
        """
        outputs = self.read_texts(*args, **kwargs)
        outputs.pooler_output = self.text_projection(outputs.pooler_output)
        return outputs

    @can_return_tuple
    def get_image_features(self, pixel_values: torch.Tensor, **kwargs: Any) -> BaseModelOutputWithPooling:
        """Return the outputs of the image tower, with projected embeddings (N, D) as ``pooler_output``.

        Their length is not 1.
        """
        outputs = self.read_images(pixel_values, **kwargs)
        outputs.pooler_output = self.visual_projection(outputs.pooler_output)
        return outputs

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        pixel_values: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        text_features: torch.Tensor | None = None,
        image_features: torch.Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> DualEncoderOutput:
        """Embed images, texts, or both, and compare all images with all texts.

        Args:
            input_ids: (M, S) ids of the texts.
            pixel_values: (N, C, height, width) images.
            attention_mask: (M, S), 1 for a token and 0 for padding.
            token_type_ids: (M, S), for a text tower that reads them.
            text_features: (M, width), instead of ``input_ids``: what ``text_features`` returned.
            image_features: (N, width), instead of ``pixel_values``: what ``image_features`` returned.
            output_attentions, output_hidden_states: return those of the towers, in ``text_model_output`` and
                ``vision_model_output``; default the fields of the configuration.
        """
        asked = {"output_attentions": output_attentions, "output_hidden_states": output_hidden_states}
        asked = {name: value for name, value in asked.items() if value is not None}
        texts = images = None
        if input_ids is not None:
            types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
            texts = self.read_texts(input_ids, attention_mask, **types, **asked)
            text_features = texts.pooler_output
        if pixel_values is not None:
            images = self.read_images(pixel_values, **asked)
            image_features = images.pooler_output
        text_embeds = image_embeds = logits = None
        if text_features is not None:
            text_embeds = functional.normalize(self.text_projection(text_features), dim=-1)
        if image_features is not None:
            image_embeds = functional.normalize(self.visual_projection(image_features), dim=-1)
        if text_embeds is not None and image_embeds is not None:
            logits = self.logit_scale.exp() * image_embeds @ text_embeds.T  # (N, M)
            logits = logits if self.logit_bias is None else logits + self.logit_bias
        return DualEncoderOutput(
            text_embeds=text_embeds,
            image_embeds=image_embeds,
            logits_per_image=logits,
            logits_per_text=None if logits is None else logits.T,
            text_model_output=texts,
            vision_model_output=images,
        )


DualEncoderModel.register_for_auto_class("AutoModel")

__all__ = ["DualEncoderModel", "DualEncoderOutput"]
