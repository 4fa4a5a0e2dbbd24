"""Recurrent encoder-decoders with or without attention (Sutskever 2014, Bahdanau 2015, Luong 2015).

Shapes: B batch, S source length, T target length, D embedding width, C width of an annotation, O width of the output
layer's input, V vocabulary size.
"""

from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import Seq2SeqLMOutput, Seq2SeqModelOutput
from transformers.utils import can_return_tuple
from transformers.utils.output_capturing import capture_outputs

from .cache_recurrent import RecurrentCache, RecurrentGenerationMixin
from .configuration_bahdanau import BahdanauConfig
from .encoder_decoder import SourceAndTargetEmbeddings, shift_right
from .fast_generation import FastGenerationMixin, Steps, unhooked
from .pipeline_attn_translation import TranslationMixin
from .recurrent_decoder import (
    BahdanauDecoder,
    BahdanauEncoderOutput,
    RecurrentPreTrainedModel,
    as_encoder_output,
    embed,
)
from .recurrent_decoder_steps import DecoderSteps, lean_reason
from .recurrent_layers import DirectedLayer, real_steps


class BahdanauPreTrainedModel(SourceAndTargetEmbeddings, RecurrentPreTrainedModel):
    config: BahdanauConfig
    _no_split_modules = ["DirectedLayer", "BahdanauDecoder"]


class BahdanauEncoder(BahdanauPreTrainedModel):
    """Embeddings and recurrent layers, which return the annotations h_j = [h→_j; h←_j] (Bahdanau 2015, section 3.2)."""

    _can_record_outputs = {"hidden_states": DirectedLayer}

    def __init__(self, config: BahdanauConfig) -> None:
        super().__init__(config)
        vocab_size = config.vocab_size if config.source_vocab_size is None else config.source_vocab_size
        self.embed_tokens = nn.Embedding(vocab_size, config.embedding_size, config.pad_token_id)
        widths = [config.embedding_size] + [config.annotation_size] * config.encoder_layers
        self.layers = nn.ModuleList(
            DirectedLayer(config.cell, width, config.encoder_hidden_size, config.encoder_direction)
            for width in widths[: config.encoder_layers]
        )
        self.embedding_dropout = nn.Dropout(config.embedding_dropout)
        self.dropout = nn.Dropout(config.dropout)
        self.gradient_checkpointing = False
        self.post_init()

    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> BahdanauEncoderOutput:
        """Encode a batch of sources.

        Args:
            input_ids: (B, S).
            attention_mask: (B, S), 0 at padding, which is skipped wherever it is.
            inputs_embeds: (B, S, D), instead of ``input_ids``.

        Raises:
            ValueError: ``input_ids`` and ``inputs_embeds`` are both given or both missing, or the mask has another
                shape.
        """
        hidden_states = embed(self.embed_tokens, input_ids, inputs_embeds, "")
        mask = real_steps(attention_mask, hidden_states, "attention_mask")
        hidden_states = self.embedding_dropout(hidden_states)
        final_states = []
        for layer_idx, layer in enumerate(self.layers):
            if layer_idx > 0:
                hidden_states = self.dropout(hidden_states)
            hidden_states, state = layer(hidden_states, mask)  # (B, S, C)
            final_states.append(torch.stack(state, dim=1))
        return BahdanauEncoderOutput(last_hidden_state=hidden_states, final_state=torch.stack(final_states, dim=1))


class BahdanauModel(BahdanauPreTrainedModel):
    """Encoder and decoder, without the output layer."""

    def __init__(self, config: BahdanauConfig) -> None:
        super().__init__(config)
        if config.share_embeddings:
            self._tied_weights_keys = {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"}
        self.encoder = BahdanauEncoder(config)
        self.decoder = BahdanauDecoder(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.encoder.embed_tokens = value
        if self.config.share_embeddings:
            self.decoder.embed_tokens = value

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: RecurrentCache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> Seq2SeqModelOutput:
        """Encode the sources, unless ``encoder_outputs`` is given, and run the decoder over the targets.

        Args:
            input_ids, attention_mask, inputs_embeds: see ``BahdanauEncoder``.
            decoder_input_ids, decoder_attention_mask, decoder_inputs_embeds, past_key_values: see ``BahdanauDecoder``.

        Returns:
            ``last_hidden_state`` (B, T, O), ``past_key_values``, and if requested ``cross_attentions`` (one tensor
            (B, 1, T, S), if the model has attention) and the hidden states of encoder and decoder.
        """
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids,
                attention_mask=attention_mask,
                inputs_embeds=inputs_embeds,
                output_hidden_states=output_hidden_states,
                return_dict=True,
            )
        encoder_outputs = as_encoder_output(encoder_outputs)
        outputs = self.decoder(
            decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=outputs.last_hidden_state,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.hidden_states,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
        )


class BahdanauForConditionalGeneration(
    TranslationMixin, BahdanauPreTrainedModel, FastGenerationMixin, RecurrentGenerationMixin
):
    """Translation model: p(y_i | y_1, ..., y_{i-1}, x) from the decoder's output by a linear layer and a softmax."""

    def __init__(self, config: BahdanauConfig) -> None:
        super().__init__(config)
        self._tied_weights_keys = {}
        if config.share_embeddings:
            self._tied_weights_keys["model.decoder.embed_tokens.weight"] = "model.encoder.embed_tokens.weight"
        if config.tie_word_embeddings:
            source = "encoder" if config.share_embeddings else "decoder"
            self._tied_weights_keys["lm_head.weight"] = f"model.{source}.embed_tokens.weight"
        self.model = BahdanauModel(config)
        self.output_dropout = nn.Dropout(config.output_dropout)
        self.lm_head = nn.Linear(config.output_width, config.vocab_size)
        self.num_cache_layers = self.model.decoder.num_cache_layers
        self.post_init()

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Shift the labels (B, T) to obtain the decoder's inputs; see ``shift_right``."""
        return shift_right(labels, self.config)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: RecurrentCache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Predict each token of the target from the source and the tokens before it.

        Args:
            labels: (B, T) ids of the target with its end token, -100 at positions without a loss. Without decoder
                inputs, the decoder reads the labels shifted by one.
            other arguments: see ``BahdanauModel``.

        Returns:
            ``loss`` in nats per token, ``logits`` (B, T, V), and the outputs of ``BahdanauModel``.
        """
        if labels is not None:
            if use_cache is None and past_key_values is None:
                use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        outputs = self.model(
            input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )
        logits = self.lm_head(self.output_dropout(outputs.last_hidden_state))  # (B, T, V)
        loss = None
        if labels is not None:
            vocab_size = self.config.vocab_size
            loss = self.loss_function(
                logits=logits, labels=labels, vocab_size=vocab_size, shift_labels=labels, **kwargs
            )
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.decoder_hidden_states,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
        )

    def lean_reason(self) -> str | None:
        return lean_reason(self.model.decoder) if unhooked(self, self.model) else "the model has hooks"

    def lean_steps(self, outputs: Any, attention_mask: torch.Tensor | None, num_beams: int) -> Steps:
        annotations, decoder = outputs.encoder_last_hidden_state, self.model.decoder
        return DecoderSteps(decoder, self.lm_head, outputs.past_key_values, annotations, attention_mask, num_beams)


BahdanauModel.register_for_auto_class("AutoModel")
BahdanauForConditionalGeneration.register_for_auto_class("AutoModelForSeq2SeqLM")

__all__ = ["BahdanauForConditionalGeneration", "BahdanauModel", "BahdanauPreTrainedModel"]
