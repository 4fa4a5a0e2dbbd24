"""The bidirectional language model of ELMo (Peters et al. 2018, section 3.1).

Shapes: B batch, T time steps, L layers, W width of a token's representation, of which each direction has W / 2, V
vocabulary size.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutputWithPast
from transformers.utils import can_return_tuple
from transformers.utils.output_capturing import capture_outputs

from .cache_recurrent import RecurrentCache, RecurrentGenerationMixin, check_recurrent
from .configuration_bilm import BiLMConfig
from .recurrent_cells import RecurrentCell
from .recurrent_layers import RecurrentLayer, RowDropout, SequenceDropout, real_steps


@dataclass
class BiLMOutput(CausalLMOutputWithPast):
    """As ``CausalLMOutputWithPast``, whose logits are those of the next token.

    Args:
        backward_logits: (B, T, V), of the previous token; None for the continuation of a text.
    """

    backward_logits: torch.Tensor | None = None


class BiLMLayer(nn.Module):
    """One layer of both language models: h→_j reads h→_(j-1) from the left, and h←_j reads h←_(j-1) from the right.

    Unlike in a bidirectional layer, no direction reads the other one, so that no token is predicted from itself.
    """

    def __init__(self, config: BiLMConfig, layer_idx: int) -> None:
        super().__init__()
        width = config.direction_size
        self.forward_rnn, self.backward_rnn = (
            RecurrentLayer(config.cell, width, width, weight_dropout=config.weight_dropout) for _ in range(2)
        )
        self.residual = config.residual and layer_idx > 0

    def forward(self, hidden_states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Map h_(j-1) (B, T, W) to h_j = [h→_j; h←_j] (B, T, W)."""
        ahead, back = hidden_states.chunk(2, dim=-1)
        ahead, *_ = self.forward_rnn(ahead, mask)
        back, *_ = self.backward_rnn(back.flip(1), None if mask is None else mask.flip(1))
        outputs = torch.cat([ahead, back.flip(1)], dim=-1)
        return hidden_states + outputs if self.residual else outputs

    def go_on(
        self, hidden_states: torch.Tensor, mask: torch.Tensor | None, *state: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Map h→_(j-1) (B, T, W / 2) to h→_j after a state of the forward direction; return it with its new state."""
        outputs, *state = self.forward_rnn(hidden_states, mask, *state)
        return hidden_states + outputs if self.residual else outputs, *state


class BiLMPreTrainedModel(PreTrainedModel):
    config: BiLMConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["BiLMLayer"]
    _can_record_outputs = {"hidden_states": BiLMLayer}
    _is_stateful = True  # generate() cannot rewind the state

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, RecurrentCell):
            module.initialize_()
        elif isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)


class BiLMModel(BiLMPreTrainedModel):
    """The embedding and the layers of both directions, whose hidden states are R_k of Peters et al. (2018)."""

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.direction_size, config.pad_token_id)
        layers = (BiLMLayer(config, layer_idx) for layer_idx in range(config.num_hidden_layers))
        self.layers: Any = nn.ModuleList(layers)
        self.embedding_row_dropout = RowDropout(config.embedding_row_dropout)
        self.embedding_dropout = SequenceDropout(config.embedding_dropout, config.variational_dropout)
        self.dropout = SequenceDropout(config.dropout, config.variational_dropout)
        self.gradient_checkpointing = False
        self.post_init()

    @capture_outputs
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """Read a batch of texts in both directions.

        Args:
            input_ids: (B, T).
            attention_mask: (B, T), 0 at padding, which is skipped.
            inputs_embeds: (B, T, W / 2), instead of ``input_ids``.

        Returns:
            ``last_hidden_state`` (B, T, W), and if requested ``hidden_states``, L + 1 tensors (B, T, W): h_0 = [x; x]
            and h_j = [h→_j; h←_j].

        Raises:
            ValueError: ``input_ids`` and ``inputs_embeds`` are both given or both missing, or the mask has another
                shape.
        """
        embeddings = self.embed(input_ids, inputs_embeds)  # (B, T, W / 2)
        mask = real_steps(attention_mask, embeddings, "attention_mask")
        hidden_states = torch.cat([embeddings, embeddings], dim=-1)
        for layer_idx, layer in enumerate(self.layers):
            if layer_idx > 0:
                hidden_states = self.dropout(hidden_states)
            hidden_states = layer(hidden_states, mask)  # (B, T, W)
        return BaseModelOutput(last_hidden_state=hidden_states)

    def go_on(
        self,
        input_ids: torch.LongTensor | None,
        attention_mask: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        cache: RecurrentCache,
    ) -> torch.Tensor:
        """Read the continuation of texts in the forward direction alone, and update the cache in place.

        Returns:
            The last layer's h→ (B, T, W / 2).
        """
        check_recurrent(cache)
        hidden_states = self.embed(input_ids, inputs_embeds)
        mask = real_steps(attention_mask, hidden_states, "attention_mask")
        num_steps = hidden_states.shape[1]
        for layer_idx, layer in enumerate(self.layers):
            if layer_idx > 0:
                hidden_states = self.dropout(hidden_states)
            hidden_states, *new = layer.go_on(hidden_states, mask, *(cache.get_state(layer_idx) or ()))
            cache.update_state(tuple(new), layer_idx, num_steps)
        return hidden_states

    def embed(self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> torch.Tensor:
        """Return the embeddings x (B, T, W / 2), with dropout in training."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Pass exactly one of input_ids and inputs_embeds.")
        if input_ids is not None:  # the ids of texts without a token are floats
            inputs_embeds = self.embed_tokens(input_ids.long())
            inputs_embeds = self.embedding_row_dropout(inputs_embeds, input_ids.long(), self.config.vocab_size)
        return self.embedding_dropout(inputs_embeds)


class BiLMForCausalLM(BiLMPreTrainedModel, RecurrentGenerationMixin):
    """Both language models, with one output layer; ``generate()`` uses the forward one."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__(config)
        self.model = BiLMModel(config)
        self.output_dropout = SequenceDropout(config.output_dropout, config.variational_dropout)
        self.lm_head = nn.Linear(config.direction_size, config.vocab_size)
        self.num_cache_layers = config.num_hidden_layers
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: RecurrentCache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        **kwargs: Any,
    ) -> BiLMOutput:
        """Predict the next and the previous token at every step, L = Σ_k log p(t_k | t_<k) + log p(t_k | t_>k).

        With a cache, which may be empty, the texts are to be continued, and only the forward direction reads them.

        Args:
            past_key_values: state of the forward direction, updated in place.
            use_cache: begin with an empty cache if none is given.
            labels: (B, T) ids, equal to ``input_ids`` (the loss shifts them by one in both directions), -100 at tokens
                without a loss. If the target of the last step is known too, also pass ``shift_labels`` (B, T), the
                following tokens, which are not shifted; the backward direction then does not predict the first token.
            logits_to_keep: number of last steps, or indices of the steps, for which logits are computed; 0 is all
                steps.
            input_ids, attention_mask, inputs_embeds: see ``BiLMModel``.

        Returns:
            ``loss`` in nats per token, the sum of both directions, ``logits`` and ``backward_logits`` (B, T, V), and
            ``hidden_states`` if requested; or, with a cache, that of the forward direction, ``logits`` and
            ``past_key_values``.
        """
        hidden_states, back = None, None
        if use_cache and past_key_values is None:
            past_key_values = self.empty_cache()
        if past_key_values is not None:
            ahead = self.model.go_on(input_ids, attention_mask, inputs_embeds, past_key_values)
        else:
            outputs = self.model(input_ids, attention_mask, inputs_embeds, return_dict=True, **kwargs)
            hidden_states = outputs.hidden_states
            ahead, back = outputs.last_hidden_state.chunk(2, dim=-1)
        steps = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits, backward_logits = (
            None if each is None else self.lm_head(self.output_dropout(each[:, steps])) for each in (ahead, back)
        )
        loss = None
        if labels is not None:
            following = kwargs.pop("shift_labels", None)
            if following is None:
                following = nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]
                preceding = nn.functional.pad(labels, (1, 0), value=-100)[:, :-1]
            else:  # the first token is not among them
                preceding = nn.functional.pad(following, (2, 0), value=-100)[:, :-2]
            real = None if attention_mask is None else attention_mask[:, -labels.shape[1] :].bool()
            assert logits is not None
            loss = self._loss(logits, following, real, **kwargs)
            if backward_logits is not None:
                loss = loss + self._loss(backward_logits, preceding, real, **kwargs)
        return BiLMOutput(
            loss=loss,
            logits=logits,
            backward_logits=backward_logits,
            past_key_values=past_key_values,
            hidden_states=hidden_states,
        )

    def _loss(
        self, logits: torch.Tensor, targets: torch.Tensor, real: torch.Tensor | None, **kwargs: Any
    ) -> torch.Tensor:
        """Return the loss of one direction; padding beside the text does not predict its first or last token."""
        if real is not None:
            targets = targets.masked_fill(~real, -100)
        vocab_size = self.config.vocab_size
        return self.loss_function(logits, None, vocab_size=vocab_size, shift_labels=targets.contiguous(), **kwargs)


BiLMModel.register_for_auto_class("AutoModel")
BiLMForCausalLM.register_for_auto_class("AutoModelForCausalLM")

__all__ = ["BiLMForCausalLM", "BiLMModel", "BiLMOutput", "BiLMPreTrainedModel"]
