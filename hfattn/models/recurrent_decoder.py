"""The recurrent decoder of translators and captioners, with or without attention (Bahdanau, Luong and Xu 2015).

Shapes: B batch, S source length, T target length, D embedding width, H width of the decoder's state, C width of an
annotation, O width of the output layer's input.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions, ModelOutput
from transformers.utils import can_return_tuple

from .attention import Attention
from .attention_local import LocalMonotonic, LocalPredictive
from .attention_scores import Parametric
from .cache_recurrent import RecurrentCache, check_recurrent
from .configuration_recurrent_decoder import RecurrentDecoderConfig
from .recurrent_cells import RecurrentCell, State, find_cell
from .recurrent_layers import RecurrentLayer, real_steps, where_moved


@dataclass
class BahdanauEncoderOutput(ModelOutput):
    """Output of the encoder.

    Args:
        last_hidden_state: the annotations h_j, (B, S, C).
        final_state: the last states of the layers, (B, layers, 1 or 2, C): h, and c for an LSTM. The forward state
            after the last step is concatenated with the backward state after the first step.
        hidden_states: the embeddings (B, S, D) and the output of each layer (B, S, C), if requested.
    """

    last_hidden_state: torch.Tensor
    final_state: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None


def embed(embedding: nn.Embedding, ids: torch.Tensor | None, embeds: torch.Tensor | None, prefix: str) -> torch.Tensor:
    if ids is not None and embeds is not None:
        raise ValueError(f"Pass only one of {prefix}input_ids and {prefix}inputs_embeds.")
    if ids is None and embeds is None:
        source = " For features of the source alone, run model.get_encoder()." if prefix else ""
        raise ValueError(f"Pass {'labels, ' if prefix else ''}{prefix}input_ids or {prefix}inputs_embeds.{source}")
    if ids is not None:  # those of texts without a token are floats
        embeds = embedding(ids.long())
    assert embeds is not None
    if prefix and embeds.shape[1] == 0:
        raise ValueError(f"{prefix}input_ids is empty; pass at least one token, such as the start token.")
    return embeds


def as_encoder_output(outputs: Any) -> BahdanauEncoderOutput:
    """Convert ``encoder_outputs``, which may be the encoder's output, its tuple, or a mapping with the same names."""
    if isinstance(outputs, BahdanauEncoderOutput):
        return outputs
    if isinstance(outputs, Mapping):
        return BahdanauEncoderOutput(outputs["last_hidden_state"], outputs.get("final_state"))
    return BahdanauEncoderOutput(*outputs)


def _later(start: int | torch.Tensor, t: int) -> int | torch.Tensor:
    """Advance positions by t steps: add t to an integer, or drop the first t columns of a tensor (B, T)."""
    return start[:, t:] if isinstance(start, torch.Tensor) else start + t


class RecurrentPreTrainedModel(PreTrainedModel):
    config: RecurrentDecoderConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["BahdanauDecoder"]
    # Assisted decoding has to rewind the cache, which a recurrent state cannot do. With this flag, generate() rejects
    # it.
    _is_stateful = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, RecurrentCell | Parametric):
            module.initialize_()
        elif isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)


class Source(NamedTuple):
    """The source, prepared for the decoder's attention.

    Attributes:
        values: (B, S, ...), the vectors that attention sums: h_j, or W h_j with the gates' weights W of the context.
        keys: the annotations, prepared by the score.
        mask: boolean (B, S), False at padding, or None.
    """

    values: torch.Tensor
    keys: tuple[torch.Tensor, ...]
    mask: torch.Tensor | None


class BahdanauDecoder(RecurrentPreTrainedModel):
    """The decoder, which maps target tokens to the vectors that the output layer reads.

    Its recurrence is in ``step``. Over several steps, everything that does not depend on the previous step is computed
    outside the loop: the contribution of the embeddings to the gates, the projected keys, and the output layer. If a
    decoder attends after its cells and has no input feeding (Luong 2015, Sutskever 2014), it needs no loop: each layer
    processes the whole target in one fused call, and attention is computed for all queries at once.
    """

    def __init__(self, config: RecurrentDecoderConfig) -> None:
        super().__init__(config)
        self.attends = config.attention_score is not None
        self.attends_before = self.attends and config.attention_position == "before"
        self.input_feeding = config.input_feeding
        context_size = config.annotation_size if self.attends else 0
        # The first layer reads the embedding and c_i, or the attentional vector of the previous step.
        read_size = context_size if self.attends_before else config.output_width if config.input_feeding else 0
        self.num_cache_layers = config.decoder_layers + (1 if config.input_feeding else 0)

        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size, config.pad_token_id)
        widths = [config.embedding_size + read_size] + [config.hidden_size] * config.decoder_layers
        self.layers = nn.ModuleList(
            RecurrentLayer(config.cell, width, config.hidden_size) for width in widths[: config.decoder_layers]
        )
        self.state_shape = (config.decoder_layers, find_cell(config.cell).num_states, config.hidden_size)
        self.initial_state: nn.Linear | None = None
        if config.initial_state == "projection":
            self.initial_state = nn.Linear(config.final_state_size, math.prod(self.state_shape))
        if config.attention_score is not None:
            self.attention = Attention(
                config.hidden_size,
                config.annotation_size,
                score=config.attention_score,
                distribution=config.attention_distribution,
                score_options=config.attention_score_options,
                distribution_options=config.attention_distribution_options,
            )
        self.window: LocalMonotonic | LocalPredictive | None = None
        if config.attention_window == "local_m":
            self.window = LocalMonotonic(config.attention_window_size)
        elif config.attention_window == "local_p":
            self.window = LocalPredictive(config.hidden_size, config.attention_window_size)
        self.gate = nn.Linear(config.hidden_size, 1) if config.attention_gate == "scalar" else None
        if config.output_layer == "maxout":
            width = config.hidden_size + config.embedding_size + context_size
            self.maxout = nn.Linear(width, 2 * config.output_width)
        elif config.output_layer == "deep":
            self.deep = nn.Linear(config.hidden_size + context_size, config.output_width)
        elif config.output_layer != "state":
            width = context_size + (config.hidden_size if config.output_layer == "attentional" else 0)
            self.attentional = nn.Linear(width, config.output_width, bias=False)
        self.embedding_dropout = nn.Dropout(config.embedding_dropout)
        self.dropout = nn.Dropout(config.dropout)
        self.gradient_checkpointing = False
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        encoder_outputs: BahdanauEncoderOutput | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        past_key_values: RecurrentCache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Run the decoder over a batch of targets.

        Args:
            input_ids: (B, T), the target shifted by one: y_0, ..., y_{T-1}.
            attention_mask: (B, T) or, with a cache, (B, past + T): 0 at padding, which is skipped.
            encoder_outputs: output of the encoder.
            encoder_attention_mask: (B, S), 0 at the source's padding.
            past_key_values: initial state, updated in place; by default, the encoder's state.
            inputs_embeds: (B, T, D), instead of ``input_ids``.

        Returns:
            ``last_hidden_state`` (B, T, O), ``past_key_values``, and if requested ``hidden_states`` (the embeddings
            (B, T, D) and the output of each layer (B, T, H)) and ``cross_attentions`` (one tensor (B, 1, T, S)).

        Raises:
            ValueError: the inputs are missing or given twice, ``encoder_outputs`` is missing or incomplete, or
                ``past_key_values`` is not a cache of this source.
        """
        use_cache = self.config.use_cache if use_cache is None else use_cache
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if encoder_outputs is None:
            raise ValueError("encoder_outputs is missing; pass the output of the encoder.")
        embedded = self.embedding_dropout(embed(self.embed_tokens, input_ids, inputs_embeds, "decoder_"))  # (B, T, D)
        mask = real_steps(attention_mask, embedded, "decoder_attention_mask")
        cache = RecurrentCache(self.num_cache_layers) if past_key_values is None else past_key_values
        check_recurrent(cache)
        start = self._target_positions(attention_mask, embedded.shape[1], cache)
        if cache.get_state(0) is None:
            self._start(cache, encoder_outputs)
        annotations = encoder_outputs.last_hidden_state
        if cache.source and cache.source[0].shape[:2] != annotations.shape[:2]:
            raise ValueError(
                f"past_key_values was computed from a source of shape {tuple(cache.source[0].shape[:2])}, and "
                f"encoder_outputs from one of shape {tuple(annotations.shape[:2])}; pass both for the same source."
            )
        first = cache.get_seq_length() == 0  # checking whether a mask hides anything would synchronize with the device
        source_mask = real_steps(encoder_attention_mask, annotations, "attention_mask", simplify=first)
        if source_mask is None and self.window is not None:
            source_mask = annotations.new_ones(annotations.shape[:2], dtype=torch.bool)
        source = Source(annotations, cache.source, source_mask)
        if not self.attends_before and not self.input_feeding:
            run = self._run_fused
        elif embedded.shape[1] == 1:
            run = self._run_step
        else:
            run = self._run_unrolled
        output, weights, layer_outputs = run(embedded, mask, source, cache, start, output_attentions)
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=output,
            past_key_values=cache if use_cache else None,
            hidden_states=(embedded, *layer_outputs) if output_hidden_states else None,
            cross_attentions=(weights[:, None],) if output_attentions and weights is not None else None,
        )

    def _target_positions(self, mask: torch.Tensor | None, num_steps: int, cache: RecurrentCache) -> int | torch.Tensor:
        """Return the position of the first step or, if padding shifts positions, the position of each step (B, T)."""
        past = cache.get_seq_length()
        if mask is None or not isinstance(self.window, LocalMonotonic):
            return past
        real = mask.bool()
        if past and mask.shape[1] > num_steps:
            past = real[:, :-num_steps].sum(1, keepdim=True)
        return past + real[:, -num_steps:].cumsum(1) - 1

    def _start(self, cache: RecurrentCache, encoder_outputs: BahdanauEncoderOutput) -> None:
        """Write s_0, from the encoder's last states, and the prepared keys into the cache, once per source."""
        states = encoder_outputs.final_state  # (B, encoder layers, parts, C)
        if states is None:
            raise ValueError(
                "encoder_outputs lacks final_state, the encoder's last states; pass the encoder's complete output."
            )
        if self.initial_state is not None:
            last = states[:, -1, 0, -self.initial_state.in_features :]  # h←_1 if the encoder is bidirectional
            states = torch.tanh(self.initial_state(last)).unflatten(-1, self.state_shape)
        for layer_idx in range(len(self.layers)):
            cache.update_state(states[:, layer_idx].unbind(dim=1), layer_idx, num_steps=0)
        if self.input_feeding:
            cache.update_state((states.new_zeros(states.shape[0], self.attentional.out_features),), -1, num_steps=0)
        if self.attends:
            cache.source = self.attention.prepare(encoder_outputs.last_hidden_state)

    def _cells(self) -> list[Any]:
        return [layer.rnn for layer in self.layers]

    def _attend(
        self, query: torch.Tensor, source: Source, start: int | torch.Tensor, need_weights: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend with queries (B, T, H).

        Args:
            start: position of the first query in the target, or a tensor of positions whose first T columns are those
                of the queries.

        Returns:
            Weighted sums of the values (B, T, ...), times β if there is a gate, and the weights (B, T, S) or None.
        """
        mask, multiplier = (None if source.mask is None else source.mask[:, None]), None
        if self.window is not None:
            positions = start[:, : query.shape[1]] if isinstance(start, torch.Tensor) else start
            window, multiplier = self.window(query, source.mask, positions)
            mask = mask & window
        context, weights = self.attention(query, source.keys, source.values, mask, need_weights, multiplier)
        return self._gated(context, query), weights

    def _gated(self, context: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        """Return β c with β = sigmoid(f_β(query)), one number for each query (Xu 2015, section 4.2.1)."""
        return context if self.gate is None else torch.sigmoid(self.gate(query)) * context

    def _contexts(self, weights: torch.Tensor, annotations: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        """Return the contexts (B, T, C) of all steps, whose weights (B, T, S) are known, as ``_attend`` does."""
        return self._gated(weights @ annotations, query)

    def _output(self, state: torch.Tensor, embedded: torch.Tensor, context: torch.Tensor | None) -> torch.Tensor:
        """Return the output layer's input (..., O), from s_i, the embedding of y_{i-1}, and c_i.

        The maxout is that of Bahdanau 2015, A.2.2, with the new state s_i instead of the s_{i-1} printed in the
        appendix.
        """
        contexts = [] if context is None else [context]
        if self.config.output_layer == "maxout":
            pieces = self.maxout(torch.cat([state, embedded, *contexts], dim=-1))
            return pieces.unflatten(-1, (-1, 2)).amax(-1)
        if self.config.output_layer == "deep":  # Xu 2015, eq. 7, with the tanh of the authors' code
            return torch.tanh(embedded + self.deep(torch.cat([state, *contexts], dim=-1)))
        if self.config.output_layer == "state":
            return state
        read = contexts if self.config.output_layer == "context" else [*contexts, state]
        return torch.tanh(self.attentional(torch.cat(read, dim=-1)))

    def step(
        self, embedded: torch.Tensor, states: list[State], source: Source, position: int | torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None, list[State]]:
        """Take one step of the recurrence as the papers define it.

        Bahdanau 2015, A.2.2: c_i = Σ_j α_ij h_j for the query s_{i-1}; s_i = f(s_{i-1}, [y_{i-1}; c_i]).
        Xu 2015, eq. 1-7: the same with ẑ_t = β_t Σ_i α_ti a_i in place of c_i, for the query h_{t-1}.
        Luong 2015, section 3: s_t = f(s_{t-1}, [y_{t-1}; s~_{t-1}]), where s~_{t-1} is used only with input feeding;
        c_t = Σ_j α_tj h_j for the query s_t; s~_t = tanh(W_c [c_t; s_t]), or tanh(W_c c_t).

        Args:
            embedded: (B, D), the embedding of y_{i-1}.
            states: the state of each layer and, with input feeding, (s~_{t-1},).
            source: the annotations as values.
            position: position of the step in the target.

        Returns:
            The output layer's input (B, O); the weights (B, 1, S) or None; and the new states.
        """
        read, context, weights = embedded, None, None
        if self.attends_before:
            context, weights = self._attend(states[-1][0][:, None], source, position, need_weights=True)
            read = torch.cat([embedded, context[:, 0]], dim=-1)
        elif self.input_feeding:
            read = torch.cat([embedded, states[-1][0]], dim=-1)
        new: list[State] = []
        for cell, state in zip(self._cells(), states, strict=False):
            projected = cell(self.dropout(new[-1][0]) if new else read, method="project")
            new.append(cell(projected, state, method="step"))
        s = new[-1][0]
        if self.attends and not self.attends_before:
            context, weights = self._attend(s[:, None], source, position, need_weights=True)
        output = self._output(s, embedded, None if context is None else context[:, 0])
        if self.input_feeding:
            new.append((output,))
        return output, weights, new

    def _run_step(
        self,
        embedded: torch.Tensor,
        mask: torch.Tensor | None,
        source: Source,
        cache: RecurrentCache,
        start: int | torch.Tensor,
        need_weights: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None, list[torch.Tensor]]:
        """Run one step, as in generation."""
        states = [layer.state for layer in cache.layers]
        output, weights, new = self.step(embedded[:, 0], states, source, start)
        if mask is not None:
            new = [where_moved(mask, *pair) for pair in zip(new, states, strict=True)]
        for layer_idx, state in enumerate(new):
            cache.update_state(state, layer_idx, num_steps=1)
        return output[:, None], weights, [state[0][:, None] for state in new[: len(self.layers)]]

    def _run_fused(
        self,
        embedded: torch.Tensor,
        mask: torch.Tensor | None,
        source: Source,
        cache: RecurrentCache,
        start: int | torch.Tensor,
        need_weights: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None, list[torch.Tensor]]:
        """Run all steps at once: no step reads the attention of an earlier step."""
        hidden_states, layer_outputs = embedded, []
        for layer_idx, layer in enumerate(self.layers):
            if layer_idx > 0:
                hidden_states = self.dropout(hidden_states)
            hidden_states, *state = layer(hidden_states, mask, *(cache.get_state(layer_idx) or ()))  # (B, T, H)
            cache.update_state(tuple(state), layer_idx, embedded.shape[1])
            layer_outputs.append(hidden_states)
        context = weights = None
        if self.attends:
            context, weights = self._attend(hidden_states, source, start, need_weights)
        return self._output(hidden_states, embedded, context), weights, layer_outputs

    def _run_unrolled(
        self,
        embedded: torch.Tensor,
        mask: torch.Tensor | None,
        source: Source,
        cache: RecurrentCache,
        start: int | torch.Tensor,
        need_weights: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None, list[torch.Tensor]]:
        """Run step by step: each step reads an attention that depends on the previous step."""
        num_steps, embedding_size = embedded.shape[1:]
        first = self._cells()[0]
        # The gates of the first cell have two terms: one of the embedding, computed here for all steps, and one of c_i
        # or of the attentional vector.
        projected = first(embedded, method="project")
        need_weights = need_weights or self.attends_before
        annotations = values = source.values
        if self.attends_before:
            # W c_i = Σ_j α_ij W h_j: with W h_j computed once, the loop contains no product with W.
            values = first(annotations, embedding_size, method="project")
        state = [tensor for layer in cache.layers for tensor in layer.state]
        first_query = cache.layers[len(self.layers) - 1].state[0]  # (B, H), the state before the first step
        # With checkpointed blocks of √T steps, the backward pass stores √T states and the activations of one block.
        replayed = self.gradient_checkpointing and self.training
        block = math.ceil(math.sqrt(num_steps)) if replayed else num_steps
        blocks = []
        for t in range(0, num_steps, block):
            steps = slice(t, t + block)
            arguments = (
                _later(start, t),
                need_weights,
                projected[:, steps],
                embedded[:, steps],
                None if mask is None else mask[:, steps],
                source.mask,
                values,
                *source.keys,
                *state,
            )
            if replayed:
                outputs = self._gradient_checkpointing_func(self._run_block, *arguments)
            else:
                outputs = self._run_block(*arguments)
            num_outputs = len(self.layers) + 2
            blocks.append(outputs[:num_outputs])
            state = list(outputs[num_outputs:])

        for layer_idx, layer in enumerate(cache.layers):
            size = len(layer.state)
            cache.update_state(tuple(state[:size]), layer_idx, num_steps)
            state = state[size:]
        joined: list[Any] = [
            None if parts[0] is None else torch.cat(parts, dim=1) for parts in zip(*blocks, strict=True)
        ]
        weights, output, *layer_outputs = joined
        if output is None:
            previous = torch.cat([first_query[:, None], layer_outputs[-1][:, :-1]], dim=1)  # (B, T, H)
            output = self._output(layer_outputs[-1], embedded, self._contexts(weights, annotations, previous))
        return output, weights, layer_outputs

    def _run_block(
        self,
        start: int | torch.Tensor,
        need_weights: bool,
        projected: torch.Tensor,
        embedded: torch.Tensor,
        mask: torch.Tensor | None,
        source_mask: torch.Tensor | None,
        values: torch.Tensor,
        *keys_and_state: torch.Tensor,
    ) -> tuple[torch.Tensor | None, ...]:
        """Run a block of steps, as a function of tensors only, so that gradient checkpointing can run it again.

        Returns:
            Weights (B, t, S) or None; the output layer's input (B, t, O) with input feeding, else None; the output of
            each layer (B, t, H); and the tensors of the state.
        """
        cells, num_parts = self._cells(), self.state_shape[1]
        num_states = len(cells) * num_parts + self.input_feeding
        keys, flat = keys_and_state[:-num_states], keys_and_state[-num_states:]
        source = Source(values, keys, source_mask)
        states = [flat[i * num_parts : (i + 1) * num_parts] for i in range(len(cells))]
        fed = flat[-1]  # (B, O), with input feeding

        all_weights: list[Any] = []
        outputs: list[torch.Tensor] = []
        layer_outputs: list[list[torch.Tensor]] = [[] for _ in cells]
        for t, gates in enumerate(projected.unbind(1)):
            moved = None if mask is None else mask[:, t : t + 1]
            if self.attends_before:
                read, weights = self._attend(states[-1][0][:, None], source, _later(start, t), need_weights)
                gates = gates + read[:, 0]
            else:
                gates = gates + cells[0](fed, embedded.shape[-1], method="project")
            for layer_idx, cell in enumerate(cells):
                if layer_idx > 0:
                    below = self.dropout(states[layer_idx - 1][0])
                    gates = cell(below, method="project")
                state = cell(gates, states[layer_idx], method="step")
                states[layer_idx] = state if moved is None else where_moved(moved, state, states[layer_idx])
                layer_outputs[layer_idx].append(states[layer_idx][0])
            if self.input_feeding:
                top = states[-1][0][:, None]
                context, weights = self._attend(top, source, _later(start, t), need_weights)
                outputs.append(self._output(top, embedded[:, t : t + 1], context))
                new = outputs[-1][:, 0]
                fed = new if moved is None else torch.where(moved, new, fed)
            all_weights.append(weights)

        final = [tensor for state in states for tensor in state]
        return (
            torch.cat(all_weights, dim=1) if need_weights else None,
            torch.cat(outputs, dim=1) if self.input_feeding else None,
            *(torch.stack(steps, dim=1) for steps in layer_outputs),
            *([*final, fed] if self.input_feeding else final),
        )


__all__ = ["BahdanauDecoder", "BahdanauEncoderOutput", "RecurrentPreTrainedModel", "Source"]
