"""The Transformer as a translator: encoder, decoder and output layer (Vaswani et al. 2017).

Shapes: B batch, S steps of the source, T steps of the target, H hidden width, V vocabulary.
"""

import copy
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple

from .configuration_vaswani import VaswaniConfig
from .encoder_decoder import shift_right
from .fast_generation import FastGenerationMixin, Steps, unhooked
from .modeling_vaswani import PatternGenerationMixin, VaswaniModel, VaswaniPreTrainedModel
from .penalties import penalized, share_of_batch
from .pipeline_attn_translation import TranslationMixin
from .vaswani_steps import VaswaniSteps, lean_reason


class VaswaniForConditionalGeneration(
    TranslationMixin, VaswaniPreTrainedModel, PatternGenerationMixin, FastGenerationMixin
):
    """Encoder-decoder: P(y_t | y_<t, x) through a linear layer and a softmax (section 3.4)."""

    def __init__(self, config: VaswaniConfig) -> None:
        if not config.is_encoder_decoder:  # the configuration of a single stack
            config = copy.deepcopy(config)
            config.is_encoder_decoder, config.is_decoder = True, False
        super().__init__(config)
        self.model = VaswaniModel(config)
        self.output_dropout = nn.Dropout(config.output_dropout)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.lm_head_bias)
        if config.tie_word_embeddings:
            self._tied_weights_keys = {"lm_head.weight": "model.decoder.embed_tokens.weight"}
        self.post_init()

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Return the target (B, T), shifted right for the decoder; see ``shift_right``."""
        return shift_right(labels, self.config)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[torch.Tensor, ...] | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqLMOutput:
        """Predict each token of the target from those before it and from the source.

        Args:
            labels: (B, T) ids of the target, -100 at positions without a loss, not shifted: ``logits[:, t]`` predict
                ``labels[:, t]``. If ``decoder_input_ids`` are not given, they are derived from the labels.
            other arguments: see ``VaswaniModel``.

        Returns:
            ``loss`` in nats per token, ``logits`` (B, T, V), and the outputs of ``VaswaniModel``.
        """
        if labels is not None and decoder_input_ids is None and decoder_inputs_embeds is None:
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
            return_dict=True,
            **kwargs,
        )
        states = outputs.last_hidden_state * self.output_scale
        logits = self.lm_head(self.output_dropout(states))  # (B, T, V)
        loss = None
        if labels is not None:
            # Passed as shift_labels, because the loss of language models shifts ``labels``.
            loss = self.loss_function(logits, labels, self.config.vocab_size, shift_labels=labels, **kwargs)
            loss = penalized(self, loss, share_of_batch(labels, kwargs.get("num_items_in_batch")))
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
        )

    continues_caches = False  # which may be of another kind than the one that generate() makes

    def lean_reason(self) -> str | None:
        return lean_reason(self.model.decoder) if unhooked(self, self.model) else "the model has hooks"

    def lean_steps(self, outputs: Any, attention_mask: torch.Tensor | None, num_beams: int) -> Steps:
        mask = self.model.encoder.output_mask(attention_mask)
        decoder, cache = self.model.decoder, outputs.past_key_values
        return VaswaniSteps(decoder, self.lm_head, self.output_scale, cache, mask, num_beams)


VaswaniForConditionalGeneration.register_for_auto_class("AutoModelForSeq2SeqLM")

__all__ = ["VaswaniForConditionalGeneration"]
