"""The char-RNN language model (Mikolov et al. 2010; Karpathy 2015), and a classifier (Howard & Ruder 2018).

Shapes: B batch, T time steps, D embedding width, H hidden width, K width of the conditioning vector, P width of the
vector of a text, V vocabulary size.
"""

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.utils import can_return_tuple
from transformers.utils.output_capturing import capture_outputs

from .cache_recurrent import RecurrentCache, RecurrentGenerationMixin, check_recurrent
from .classifier_output import PooledClassifierOutput, classification_loss
from .configuration_char_rnn import CharRNNConfig
from .fast_generation import FastGenerationMixin, LeanLinear, Steps, unhooked
from .pooled_classifier import make_classifier, pool_steps
from .recurrent_cells import RecurrentCell, State, find_cell
from .recurrent_layers import RecurrentLayer, RowDropout, SequenceDropout, real_steps
from .recurrent_steps import RecurrentSteps, are_plain, cells_of

_LARGEST_TABLE = 1024  # symbols; with more, the table takes longer to make than a short text


class CharRNNPreTrainedModel(PreTrainedModel):
    config: CharRNNConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["RecurrentLayer"]
    _can_record_outputs = {"hidden_states": RecurrentLayer}
    # A recurrent state cannot be rewound, as assisted decoding requires; generate() refuses it for stateful models.
    _is_stateful = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, RecurrentCell):
            module.initialize_()
        elif isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)


class CharRNNModel(CharRNNPreTrainedModel):
    """Embedding and recurrent layers, without the output layer."""

    def __init__(self, config: CharRNNConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size, config.pad_token_id)
        sizes = config.layer_sizes
        self.layers = nn.ModuleList(
            RecurrentLayer(config.cell, width, size, weight_dropout=config.weight_dropout, bptt_steps=config.bptt_steps)
            for width, size in zip([config.embedding_size, *sizes], sizes, strict=False)
        )
        self.num_states = find_cell(config.cell).num_states
        self.initial_state: nn.Linear | None = None
        if config.conditioning_size is not None:
            self.initial_state = nn.Linear(config.conditioning_size, self.num_states * sum(sizes))
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
        past_key_values: RecurrentCache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        conditioning: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """Run the recurrent layers over a batch of texts.

        Args:
            input_ids: (B, T).
            attention_mask: (B, T) or, with a cache, (B, past + T): 0 at padding, which is skipped.
            past_key_values: initial state, updated in place; by default, zeros, or the projection of ``conditioning``.
            inputs_embeds: (B, T, D), instead of ``input_ids``.
            conditioning: (B, K), the vector that conditions each text, required if ``config.conditioning_size`` is set
                and the cache is empty; the states in a cache depend on it already.
            use_cache: return the state after the last step; default ``config.use_cache``.

        Returns:
            ``last_hidden_state`` (B, T, H), ``past_key_values``, and ``hidden_states`` if requested: the embeddings and
            the output of each layer.

        Raises:
            ValueError: ``input_ids`` and ``inputs_embeds`` are both given or both missing, ``past_key_values`` is not a
                recurrent cache, or ``conditioning`` is missing, has another shape, or is given to a model without
                ``config.conditioning_size``.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Pass exactly one of input_ids and inputs_embeds.")
        use_cache = self.config.use_cache if use_cache is None else use_cache
        if use_cache and past_key_values is None:
            past_key_values = RecurrentCache(self.config.num_hidden_layers)
        if past_key_values is not None:
            check_recurrent(past_key_values)

        if input_ids is not None:  # the ids of texts without a token are floats
            inputs_embeds = self.embed_tokens(input_ids.long())
            inputs_embeds = self.embedding_row_dropout(inputs_embeds, input_ids.long(), self.config.vocab_size)
        assert inputs_embeds is not None
        hidden_states = inputs_embeds  # (B, T, D)
        num_steps = hidden_states.shape[1]
        mask = real_steps(attention_mask, hidden_states, "attention_mask")
        states = self._states_before(conditioning, past_key_values, hidden_states.shape[0])
        hidden_states = self.embedding_dropout(hidden_states)
        for layer_idx, (layer, state) in enumerate(zip(self.layers, states, strict=True)):
            if layer_idx > 0:
                hidden_states = self.dropout(hidden_states)
            hidden_states, *new = layer(hidden_states, mask, *state)  # (B, T, H)
            if past_key_values is not None:
                past_key_values.update_state(tuple(new), layer_idx, num_steps)

        return BaseModelOutputWithPast(
            last_hidden_state=hidden_states, past_key_values=past_key_values if use_cache else None
        )

    def _states_before(
        self, conditioning: torch.Tensor | None, cache: RecurrentCache | None, batch_size: int
    ) -> list[State]:
        """Return the state of each layer before the first step; an empty tuple stands for zeros."""
        if self.initial_state is None and conditioning is not None:
            raise ValueError("conditioning is for a model with conditioning_size in its configuration; leave it out.")
        num_layers = len(self.layers)
        if cache is not None and cache.get_state(0) is not None:
            return [cache.get_state(layer_idx) or () for layer_idx in range(num_layers)]
        if self.initial_state is None:
            return [()] * num_layers
        shape = (batch_size, self.config.conditioning_size)
        if conditioning is None or conditioning.shape != shape:
            given = "is missing" if conditioning is None else f"has the shape {tuple(conditioning.shape)}"
            raise ValueError(f"conditioning {given}; pass one vector for each text, of shape {shape}.")
        states = torch.tanh(self.initial_state(conditioning.to(self.initial_state.weight.dtype)))
        layers = states.split([self.num_states * size for size in self.config.layer_sizes], dim=-1)
        return [layer.chunk(self.num_states, dim=-1) for layer in layers]


class CharRNNForCausalLM(CharRNNPreTrainedModel, FastGenerationMixin, RecurrentGenerationMixin):
    """Language model: logits of the next character by a linear layer over h_t (o_t = h_t W_o + b_o)."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: CharRNNConfig) -> None:
        super().__init__(config)
        self.model = CharRNNModel(config)
        self.output_dropout = SequenceDropout(config.output_dropout, config.variational_dropout)
        self.lm_head = nn.Linear(config.layer_sizes[-1], config.vocab_size)
        self.num_cache_layers = config.num_hidden_layers
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: RecurrentCache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        conditioning: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Predict the next character at every step.

        Args:
            labels: (B, T) ids, equal to ``input_ids`` (the loss shifts them by one), -100 at positions without a loss.
                If the target of the last step is known, as in a window of a longer text, also pass ``shift_labels``
                (B, T), which are not shifted.
            logits_to_keep: number of last steps, or indices of the steps, for which logits are computed; 0 is all
                steps.
            input_ids, attention_mask, past_key_values, inputs_embeds, conditioning, use_cache: see ``CharRNNModel``.

        Returns:
            ``loss`` in nats per character, ``logits`` (B, T, V), ``past_key_values``, ``hidden_states`` if requested.
        """
        outputs = self.model(
            input_ids,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            conditioning=conditioning,
            use_cache=use_cache,
            return_dict=True,
            **kwargs,
        )
        steps = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(self.output_dropout(outputs.last_hidden_state[:, steps]))  # (B, T, V)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(
            loss=loss, logits=logits, past_key_values=outputs.past_key_values, hidden_states=outputs.hidden_states
        )

    def lean_reason(self) -> str | None:
        model = self.model
        plain = unhooked(self, model, model.embed_tokens) and are_plain(model.layers)
        if plain and type(model.embed_tokens) is nn.Embedding:
            return None
        return "a module of the model has hooks or adapters"

    def lean_steps(self, outputs: Any, attention_mask: torch.Tensor | None, num_beams: int) -> Steps:
        return CharRNNSteps(self, outputs.past_key_values)


class CharRNNSteps(RecurrentSteps):
    """One step of all layers, from a table of x_t W_x + b for each symbol if the vocabulary is small.

    Args:
        model: the model.
        cache: its cache after the prompt.
    """

    def __init__(self, model: CharRNNForCausalLM, cache: RecurrentCache) -> None:
        cells = cells_of(model.model.layers)
        super().__init__(cache, cells)
        self.output, self.embed_tokens = LeanLinear(model.lm_head), model.model.embed_tokens
        self.table: torch.Tensor | None = None
        if self.embed_tokens.num_embeddings <= _LARGEST_TABLE:
            self.table = cells[0].project(self.embed_tokens.weight)  # (V, G H)

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        if self.table is None:
            gates = self.projects[0](self.embed_tokens(tokens))
        else:
            gates = self.table.index_select(0, tokens)
        return self.output(self.advance(gates))


class CharRNNForSequenceClassification(CharRNNPreTrainedModel):
    """Text classifier over the layers of a language model (Howard & Ruder 2018, section 3.3).

    It loads the embedding and the layers of a ``CharRNNForCausalLM``, and the classifier is new. If
    ``config.direction`` is "backward", it reads each text from its last token to its first.
    """

    # Of the language model from which it is loaded.
    _keys_to_ignore_on_load_unexpected = [r"^lm_head\."]

    def __init__(self, config: CharRNNConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = CharRNNModel(config)
        # With a hidden layer, the classifier has its own dropout, after its norms.
        self.classifier_dropout = nn.Dropout(0 if config.classifier_hidden_size else config.classifier_dropout)
        self.classifier = make_classifier(
            config.pooled_size, config.classifier_hidden_size, config.num_labels, config.classifier_dropout
        )
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        conditioning: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        output_pooled: bool = False,
        **kwargs: Any,
    ) -> PooledClassifierOutput:
        """Classify a batch of texts.

        Args:
            attention_mask: (B, T), 0 at padding, which may be at any position; None if there is no padding.
            labels: (B,) class ids; for multi-label classification (B, num_labels) zeros and ones, or (B,) if there is
                one label; for a regression (B,) or (B, num_labels) numbers.
            num_items_in_batch: number of labels in all batches of a training step; ``loss`` is then the contribution of
                this batch to the mean of the step, instead of the mean of the batch.
            output_pooled: return the classifier's inputs.
            input_ids, inputs_embeds, conditioning: see ``CharRNNModel``.

        Returns:
            ``loss``, ``logits`` (B, num_labels), and if requested ``hidden_states``, in the order in which the tokens
            are read, and ``pooler_output`` (B, P; zeros are pooled if a text has no tokens).

        Raises:
            ValueError: the labels of a multi-label classification have another shape, or as in ``CharRNNModel``.
        """
        texts = [input_ids, attention_mask, inputs_embeds]
        if self.config.direction == "backward":
            texts = [None if tensor is None else tensor.flip(1) for tensor in texts]
        ids, mask, embeddings = texts
        kwargs["use_cache"] = True  # the cache has the last state also of texts without a token
        outputs = self.model(
            ids, attention_mask=mask, inputs_embeds=embeddings, conditioning=conditioning, return_dict=True, **kwargs
        )
        (last, *_) = outputs.past_key_values.get_state(len(self.model.layers) - 1)
        mask = real_steps(mask, outputs.last_hidden_state, "attention_mask")
        pooled = pool_steps(self.config.pooling, outputs.last_hidden_state, last, mask)
        logits = self.classifier(self.classifier_dropout(pooled))  # (B, num_labels)
        loss = None
        if labels is not None:
            loss = classification_loss(self.loss_function, logits, labels, self.config, num_items_in_batch)
        return PooledClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            pooler_output=pooled if output_pooled else None,
        )


CharRNNModel.register_for_auto_class("AutoModel")
CharRNNForCausalLM.register_for_auto_class("AutoModelForCausalLM")
CharRNNForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")

__all__ = ["CharRNNForCausalLM", "CharRNNForSequenceClassification", "CharRNNModel", "CharRNNPreTrainedModel"]
