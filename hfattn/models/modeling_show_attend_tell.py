"""An image captioner with visual attention (Xu et al. 2015, "Show, attend and tell").

Shapes: B batch, L annotations, one for each cell of a grid of rows x columns, D width of an annotation, T caption
length, H width of the decoder's state, O width of the output layer's input, V vocabulary size.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import Seq2SeqLMOutput, Seq2SeqModelOutput
from transformers.utils import can_return_tuple

from .attention_distributions import score_function
from .cache_recurrent import RecurrentCache, RecurrentGenerationMixin
from .configuration_show_attend_tell import ShowAttendTellConfig
from .encoder_decoder import shift_right
from .parts import make_part
from .penalties import penalized, share_of_batch
from .pipeline_image_captioning import CaptioningMixin
from .recurrent_decoder import (
    BahdanauDecoder,
    BahdanauEncoderOutput,
    RecurrentPreTrainedModel,
    Source,
    as_encoder_output,
)
from .score_kernels import widen


@dataclass
class ShowAttendTellEncoderOutput(BahdanauEncoderOutput):
    """Output of the encoder.

    Args:
        last_hidden_state: the annotations a_i, (B, L, D), row by row.
        final_state: the mean annotation, (B, 1, 1, D), from which the decoder's s_0 is projected.
        grid: (B, 2), the number of rows and columns of the annotations of each image.
    """

    grid: torch.Tensor | None = None


@dataclass
class ShowAttendTellModelOutput(Seq2SeqModelOutput):
    """As ``Seq2SeqModelOutput``.

    Args:
        grid: (B, 2), the number of rows and columns of the annotations of each image; None if ``encoder_outputs`` were
            given without.
        log_attention: (B, T, L), log α, in the training of hard attention, where ``cross_attentions`` are samples.
    """

    grid: torch.Tensor | None = None
    log_attention: torch.Tensor | None = None


@dataclass
class ShowAttendTellOutput(Seq2SeqLMOutput):
    """As ``Seq2SeqLMOutput``.

    Args:
        grid: as in ``ShowAttendTellModelOutput``.
        doubly_stochastic: (B,), Σ_i (1 - Σ_t α_ti)² of each caption, without its weight λ (eq. 14).
        doubly_stochastic_floor: (B,), the least value that this term can have, L (1 - T/L)².
    """

    grid: torch.Tensor | None = None
    doubly_stochastic: torch.Tensor | None = None
    doubly_stochastic_floor: torch.Tensor | None = None


def grid_positions(rows: int, columns: int, size: int, like: torch.Tensor) -> torch.Tensor:
    """Return the positions (rows * columns, size): sines and cosines of the row, then those of the column.

    Each half is the encoding of Vaswani et al. 2017, section 3.5. Without positions, a weighted sum of annotations
    would not tell what is left of what.
    """
    quarter = torch.arange(size // 4, device=like.device, dtype=torch.float32)
    frequencies = 10_000 ** (-quarter / (size // 4))

    def encode(length: int) -> torch.Tensor:
        angles = torch.arange(length, device=like.device)[:, None] * frequencies
        return torch.cat([angles.sin(), angles.cos()], dim=-1)  # (length, size / 2)

    row = encode(rows)[:, None].expand(-1, columns, -1)
    column = encode(columns)[None].expand(rows, -1, -1)
    return torch.cat([row, column], dim=-1).flatten(0, 1).to(like.dtype)


class ShowAttendTellPreTrainedModel(RecurrentPreTrainedModel):
    config: ShowAttendTellConfig
    main_input_name = "pixel_values"
    input_modalities = ("image", "text")
    _no_split_modules = ["Convolution", "LaterConvolution", "ShowAttendTellDecoder"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.Conv2d):
            init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, WordDetector):
            init.constant_(module.bias, -5.0)  # few of all words are in a caption
        elif isinstance(module, ShowAttendTellForConditionalGeneration) and module.baseline is not None:
            init.zeros_(module.baseline)


class Convolution(nn.Module):
    """A convolution of 6 x 6 that halves height and width, group normalization (Wu & He 2018), and ReLU.

    With three of them, an annotation sees 36 x 36 pixels, whose center is that of its cell. Statistics of a batch are
    not needed, so an image is encoded in the same way in training and in evaluation.
    """

    def __init__(self, channels: int, next_channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, next_channels, kernel_size=6, stride=2, padding=2)
        self.norm = nn.GroupNorm(math.gcd(8, next_channels), next_channels)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Map (B, channels, height, width) to (B, next_channels, ⌊height / 2⌋, ⌊width / 2⌋)."""
        return self.norm(self.convolution(hidden)).relu()


class LaterConvolution(Convolution, GradientCheckpointingLayer):
    """A convolution that gradient checkpointing can run again.

    The first one cannot be: it reads pixels, which need no gradient, and reentrant checkpointing would give it none.
    """


class ShowAttendTellEncoder(ShowAttendTellPreTrainedModel):
    """A CNN or an image model of transformers, with the position of each annotation (Xu 2015, section 3.1.1)."""

    def __init__(self, config: ShowAttendTellConfig) -> None:
        super().__init__(config)
        self.vision_model: PreTrainedModel | None = None
        if config.vision_config is None:
            widths = [config.num_channels, *config.channels, config.annotation_size]
            kinds = (Convolution, LaterConvolution, LaterConvolution)
            self.convolutions = nn.ModuleList(kind(*pair) for kind, pair in zip(kinds, pairwise(widths), strict=True))
        else:
            self.vision_model = make_part(config.vision_config)
            width = config.vision_size
            assert width is not None
            self.projection = nn.Linear(width, config.annotation_size)
        self.post_init()
        self.train()

    def train(self, mode: bool = True) -> Self:
        """Set the mode; a frozen image model stays in evaluation mode, without dropout and without gradients."""
        super().train(mode)
        if self.vision_model is not None and self.config.freeze_vision:
            # from_pretrained makes new parameters, which have gradients, and then sets the mode.
            self.vision_model.eval().requires_grad_(False)
        return self

    @property
    def _annotation_dtype(self) -> torch.dtype:
        """Data type of the layer that gives the annotations; that of a frozen image model may be another."""
        layer = self.convolutions if self.vision_model is None else self.projection
        return next(layer.parameters()).dtype

    def features(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Return the features (B, rows, columns, width) of the CNN or the image model, before projection and positions.

        Args:
            pixel_values: (B, channels, height, width).

        Raises:
            ValueError: the images have another number of channels, or the model returns neither a feature map nor a
                vector for each patch.
        """
        if pixel_values.ndim != 4 or pixel_values.shape[1] != self.config.num_channels:
            raise ValueError(
                f"pixel_values has the shape {tuple(pixel_values.shape)}; pass (batch, {self.config.num_channels}, "
                "height, width)."
            )
        if self.vision_model is None and min(pixel_values.shape[2:]) < 8:
            raise ValueError(
                f"The images have {pixel_values.shape[2]} x {pixel_values.shape[3]} pixels, and an annotation has 8 x "
                "8; make them larger."
            )
        if self.vision_model is None:
            hidden = pixel_values.to(self._annotation_dtype)
            for convolution in self.convolutions:
                hidden = convolution(hidden)
            return hidden.permute(0, 2, 3, 1)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.config.freeze_vision):
            hidden = self.vision_model(pixel_values=pixel_values.to(self.vision_model.dtype)).last_hidden_state
        if hidden.ndim == 4:
            return hidden.permute(0, 2, 3, 1)
        size = self.vision_model.config.to_dict().get("patch_size")
        sides = (size, size) if isinstance(size, int) else size or (None, None)
        rows, columns = (
            total // side if side else 0 for total, side in zip(pixel_values.shape[2:], sides, strict=True)
        )
        prefix = hidden.shape[1] - rows * columns  # the class token, registers
        if not rows or not 0 <= prefix < 8:
            raise ValueError(
                f"The image model returns {hidden.shape[1]} vectors, not one for each of {rows} x {columns} patches; "
                "use a model that does, such as 'vit' or 'dinov2', or one with a feature map, such as 'resnet'."
            )
        return hidden[:, prefix:].unflatten(1, (rows, columns))

    @can_return_tuple
    def forward(
        self, pixel_values: torch.Tensor | None = None, image_features: torch.Tensor | None = None, **kwargs: Any
    ) -> ShowAttendTellEncoderOutput:
        """Encode a batch of images.

        Args:
            pixel_values: (B, channels, height, width).
            image_features: (B, rows, columns, width), the return value of ``features``, instead of ``pixel_values``;
                those of a frozen image model are computed once for all epochs.

        Raises:
            ValueError: both or neither is given, or their shape does not fit.
        """
        if (pixel_values is None) == (image_features is None):
            raise ValueError("Pass either pixel_values or image_features.")
        features = image_features if pixel_values is None else self.features(pixel_values)
        assert features is not None
        if features.ndim != 4:
            raise ValueError(
                f"image_features has the shape {tuple(features.shape)}; pass (batch, rows, columns, width), as "
                "features() of the encoder returns."
            )
        rows, columns = features.shape[1:3]
        annotations = features.flatten(1, 2).to(self._annotation_dtype)  # (B, L, width)
        if self.vision_model is not None:
            annotations = self.projection(annotations)
        annotations = annotations + grid_positions(rows, columns, annotations.shape[-1], annotations)
        return ShowAttendTellEncoderOutput(
            last_hidden_state=annotations,
            final_state=annotations.mean(1)[:, None, None],
            grid=torch.tensor([[rows, columns]], device=annotations.device).expand(len(annotations), -1),
        )


class ShowAttendTellDecoder(BahdanauDecoder):
    """The recurrent decoder; in the training of hard attention, it also returns log α.

    The weights of a step are then (B, T, 2, L): those that the context was read with, and log α.
    """

    config: ShowAttendTellConfig

    @property
    def _samples(self) -> bool:
        return self.training and self.config.estimator is not None

    def _start(self, cache: RecurrentCache, encoder_outputs: BahdanauEncoderOutput) -> None:
        super()._start(cache, encoder_outputs)
        if self._samples and self.config.estimator == "score_function":
            # Drawn once for each image (section 4.1), and kept with its keys for all steps.
            draws = torch.rand(len(cache.source[0]), 1, 1, device=cache.source[0].device)
            cache.source = (*cache.source, draws < self.config.expected_attention)

    def _attend(
        self, query: torch.Tensor, source: Source, start: int | torch.Tensor, need_weights: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if not self._samples:
            return super()._attend(query, source, start, need_weights)
        energies = self.attention.score(query, source.keys[0], None, method="compare")  # (B, T, L)
        log_alpha = widen(energies).log_softmax(-1)
        weights = self.attention.distribution(energies)
        if self.config.estimator == "score_function":
            weights = torch.where(source.keys[-1], log_alpha.exp().to(weights.dtype), weights)
        context = self._gated(weights.to(source.values.dtype) @ source.values, query)
        return context, torch.stack([weights.to(log_alpha.dtype), log_alpha], dim=2)

    def _contexts(self, weights: torch.Tensor, annotations: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        used = weights[:, :, 0].to(annotations.dtype) if weights.ndim == 4 else weights
        return super()._contexts(used, annotations, query)


class ShowAttendTellModel(ShowAttendTellPreTrainedModel):
    """Encoder and decoder, without the output layer."""

    def __init__(self, config: ShowAttendTellConfig) -> None:
        super().__init__(config)
        self.encoder = ShowAttendTellEncoder(config)
        self.decoder = ShowAttendTellDecoder(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.decoder.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.decoder.embed_tokens = value

    @can_return_tuple
    def forward(
        self,
        pixel_values: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: RecurrentCache | None = None,
        image_features: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> ShowAttendTellModelOutput:
        """Encode the images, unless ``encoder_outputs`` is given, and run the decoder over the captions.

        Args:
            pixel_values, image_features: see ``ShowAttendTellEncoder``.
            decoder_input_ids, decoder_attention_mask, decoder_inputs_embeds, past_key_values: see ``BahdanauDecoder``.

        Returns:
            ``last_hidden_state`` (B, T, O), ``past_key_values``, and if requested ``cross_attentions`` (one tensor
            (B, 1, T, L)) and the hidden states of the decoder.
        """
        if encoder_outputs is None:
            encoder_outputs = self.encoder(pixel_values, image_features, return_dict=True)
        encoder_outputs = as_encoder_output(encoder_outputs)
        outputs = self.decoder(
            decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )
        attentions, log_attention = outputs.cross_attentions, None
        if attentions is not None and attentions[0].ndim == 5:
            weights, log_attention = attentions[0].unbind(3)  # (B, 1, T, L)
            attentions, log_attention = (weights,), log_attention[:, 0]
        return ShowAttendTellModelOutput(
            last_hidden_state=outputs.last_hidden_state,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.hidden_states,
            cross_attentions=attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            grid=encoder_outputs.get("grid"),
            log_attention=log_attention,
        )


class WordDetector(nn.Linear):
    """Logits of the words that are in the caption, from the annotations alone (Oquab et al. 2015, section 3)."""

    def forward(self, annotations: torch.Tensor) -> torch.Tensor:
        """Map annotations (B, L, D) to the largest logit of each word, (B, V)."""
        return super().forward(annotations).amax(1)


class ShowAttendTellForConditionalGeneration(CaptioningMixin, ShowAttendTellPreTrainedModel, RecurrentGenerationMixin):
    """Captioner: p(y_t | y_1, ..., y_{t-1}, a) from the decoder's output by a linear layer and a softmax (eq. 7).

    Attributes:
        word_detector: None with ``word_detection=0``.
        baseline: b_k, the moving mean of log p(y | s, a) that REINFORCE subtracts, or None with another estimator. It
            is a buffer, which a checkpoint contains.
    """

    baseline: torch.Tensor | None

    def __init__(self, config: ShowAttendTellConfig) -> None:
        super().__init__(config)
        self._tied_weights_keys = {}
        if config.tie_word_embeddings:
            self._tied_weights_keys["lm_head.weight"] = "model.decoder.embed_tokens.weight"
        self.model = ShowAttendTellModel(config)
        self.output_dropout = nn.Dropout(config.output_dropout)
        self.lm_head = nn.Linear(config.output_width, config.vocab_size)
        self.word_detector = WordDetector(config.annotation_size, config.vocab_size) if config.word_detection else None
        self.register_buffer("baseline", torch.zeros(()) if config.estimator == "score_function" else None)
        self.num_cache_layers = self.model.decoder.num_cache_layers
        self.post_init()

    def _resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        embedding = super()._resize_token_embeddings(*args, **kwargs)
        if self.word_detector is not None:
            size = embedding.num_embeddings
            resized = self._get_resized_lm_head(self.word_detector, size)
            self.word_detector.weight, self.word_detector.bias = resized.weight, resized.bias
            self.word_detector.out_features = size
        return embedding

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Shift the labels (B, T) to obtain the decoder's inputs; see ``shift_right``."""
        return shift_right(labels, self.config)

    @can_return_tuple
    def forward(
        self,
        pixel_values: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: RecurrentCache | None = None,
        image_features: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs: Any,
    ) -> ShowAttendTellOutput:
        """Predict each word of a caption from the image and the words before it.

        Args:
            labels: (B, T) ids of the captions with their end token, -100 at positions without a loss. Without decoder
                inputs, the decoder reads the labels shifted by one.
            num_items_in_batch: number of labels by which the loss is divided; default those of this batch.
            other arguments: see ``ShowAttendTellModel``.

        Returns:
            ``loss`` in nats per word, with the terms of the attention; ``logits`` (B, T, V); with labels the terms of
            ``ShowAttendTellOutput``; and the outputs of ``ShowAttendTellModel``.
        """
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        if labels is not None:
            if use_cache is None and past_key_values is None:
                use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        outputs = self.model(
            pixel_values,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            image_features=image_features,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            output_attentions=output_attentions or labels is not None,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )
        logits = self.lm_head(self.output_dropout(outputs.last_hidden_state))  # (B, T, V)
        terms = {} if labels is None else self._loss(logits, labels, outputs, num_items_in_batch)
        return ShowAttendTellOutput(
            **terms,
            logits=logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.decoder_hidden_states,
            cross_attentions=outputs.cross_attentions if output_attentions else None,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            grid=outputs.grid,
        )

    def _loss(
        self,
        logits: torch.Tensor,
        labels: torch.Tensor,
        outputs: ShowAttendTellModelOutput,
        num_items: int | torch.Tensor | None,
    ) -> dict[str, torch.Tensor]:
        """Return the loss and its terms: those of each caption, summed over the batch and divided by its words.

        Equation 14 for soft attention. For hard attention, a loss with the gradient of equation 12, of one sample.
        """
        config, real = self.config, (labels != -100).to(logits.device)  # (B, T)
        words = nn.functional.cross_entropy(widen(logits).transpose(1, 2), labels.to(logits.device), reduction="none")
        loss = words.sum(1)  # (B,), -log p(y | a), or -log p(y | s, a)
        weights, log_alpha = outputs.cross_attentions[0][:, 0], outputs.log_attention  # (B, T, L)
        alpha = widen(weights) if log_alpha is None else log_alpha.exp()
        size, steps = alpha.shape[-1], real.sum(1)
        # A caption of which no word counts has no attention to regulate.
        penalty = (1 - (alpha * real[..., None]).sum(1)).square().sum(-1) * real.any(1)
        if self.training and self.baseline is not None:
            assert log_alpha is not None
            # For an image that was read with α, Σ_i α_i ∂ log α_i = 0: it adds nothing to the gradient.
            sampled = (weights.detach() * log_alpha).sum(-1)  # (B, T), log p(s_t | a)
            entropy = -(alpha * log_alpha).sum(-1)
            reward = -loss.detach()
            loss = score_function(loss, config.reinforce_weight * (sampled * real).sum(1), baseline=-self.baseline)
            loss = loss - config.entropy_weight * (entropy * real).sum(1)
            self.baseline.lerp_(reward.mean().to(self.baseline.dtype), 1 - config.baseline_decay)
        if self.word_detector is not None:
            loss = loss + config.word_detection * self._detection_loss(outputs.encoder_last_hidden_state, labels)
        loss = (loss + config.doubly_stochastic * penalty).sum()
        share = share_of_batch(labels, num_items)
        return {
            "loss": penalized(self, loss / (steps.sum() if num_items is None else num_items), share),
            "doubly_stochastic": penalty.detach(),
            "doubly_stochastic_floor": size * (1 - steps / size) ** 2 * real.any(1),
        }

    def _detection_loss(self, annotations: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the binary cross-entropies (B,), summed over words, of annotations (B, L, D) and labels (B, T)."""
        assert self.word_detector is not None
        found = widen(self.word_detector(annotations))  # (B, V)
        # A position without a label counts as padding, which is not a word.
        words = labels.to(found.device).masked_fill(labels == -100, self.config.pad_token_id)
        present = torch.zeros_like(found).scatter_(1, words, 1.0)
        present[:, self.config.pad_token_id] = 0.0
        return nn.functional.binary_cross_entropy_with_logits(found, present, reduction="none").sum(1)


ShowAttendTellModel.register_for_auto_class("AutoModel")
ShowAttendTellForConditionalGeneration.register_for_auto_class("AutoModelForImageTextToText")

__all__ = ["ShowAttendTellForConditionalGeneration", "ShowAttendTellModel", "ShowAttendTellPreTrainedModel"]
