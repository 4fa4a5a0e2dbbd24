"""Single steps of the Transformer decoder, for generation.

Keys and values stay where they were written, in tensors that are allocated ahead. The k hypotheses of a source attend
to the keys of all of them, and a mask says which of these each hypothesis has inherited; so beam search moves the mask,
which is small, and not the keys. The source has one set of keys for all its hypotheses.

Shapes: B sources, k hypotheses of each, N = B k rows, h heads, d width of a head, H hidden width, S steps of the
source, M slots of keys (k for each step of the target), V vocabulary size.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.cache_utils import DynamicLayer, EncoderDecoderCache

from .attention import is_faster_unfused
from .configuration_layers import STANDARD_ATTENTION
from .fast_generation import LeanLinear, Steps, unhooked
from .modeling_vaswani import (
    VaswaniAttention,
    VaswaniDecoder,
    VaswaniDecoderLayer,
    VaswaniFeedForward,
    sinusoidal_positions,
)

_BLOCK = 64  # steps for which slots are allocated at once
_BYPASSED = (VaswaniDecoderLayer, VaswaniAttention, VaswaniFeedForward)


def lean_reason(decoder: VaswaniDecoder) -> str | None:
    """Return why a decoder cannot take lean steps, in a few words, or None if it can."""
    config = decoder.config
    if config.decoder_pattern != "full" or any(config.attention_groups(kind, True) for kind in ("self", "cross")):
        return "the attention of the decoder has a pattern, or is shared by layers"
    if any(config.attention_parts(kind) != STANDARD_ATTENTION for kind in ("self", "cross")):
        return "an attention of the decoder is not softmax of scaled_dot"
    if config.key_value_heads != config.num_attention_heads:
        return "heads share keys and values"
    if config.positions not in ("sinusoidal", "learned", "none"):
        return f"the positions are {config.positions}"
    if config.reversible:
        return "the layers are reversible"
    bypassed = [decoder, *(module for module in decoder.modules() if type(module) in _BYPASSED)]
    if len(bypassed) != 1 + len(_BYPASSED) * len(decoder.layers) + len(decoder.layers):  # two attentions in a layer
        return "a module of the decoder was replaced"
    return None if unhooked(*bypassed) else "a module of the decoder has hooks"


class VaswaniSteps(Steps):
    """One step of all layers.

    Args:
        decoder: the decoder.
        output: the output layer.
        output_scale: factor of its input.
        cache: its cache after the prompt.
        source_mask: (N, S), 0 at padding, or None.
        num_beams: k.
    """

    def __init__(
        self,
        decoder: VaswaniDecoder,
        output: nn.Module,
        output_scale: float,
        cache: EncoderDecoderCache,
        source_mask: torch.Tensor | None,
        num_beams: int,
    ) -> None:
        self.decoder, self.output, self.cache = decoder, LeanLinear(output), cache
        self.output_scale = output_scale
        self.num_beams, self.num_steps = num_beams, cache.get_seq_length()
        own, source = cache.self_attention_cache.layers, cache.cross_attention_cache.layers
        self.layers = [
            LayerSteps(layer, *read, source_mask, num_beams)
            for layer, read in zip(decoder.layers, zip(own, source, strict=True), strict=True)
        ]
        # (B, 1, k, M): which keys each hypothesis has inherited; None if there is one hypothesis of each source.
        self.inherited: torch.Tensor | None = None
        if num_beams > 1:
            hypotheses = torch.eye(num_beams, dtype=torch.bool, device=decoder.device)
            self.inherited = hypotheses.repeat(len(own[0].keys) // num_beams, 1, 1, self.num_steps)
            self.hypotheses = hypotheses.expand(len(self.inherited), 1, -1, -1)
        self.positions = self._positions(0)

    def _positions(self, end: int) -> torch.Tensor:
        """Return the vectors that are added to the embeddings at the positions before ``end``, (positions, H).

        Raises:
            ValueError: as ``add_positions``.
        """
        decoder = self.decoder
        if decoder.config.positions == "learned":
            vectors = decoder.embed_positions.weight
            if self.num_steps >= len(vectors):
                decoder.add_positions(vectors[None, :1], torch.tensor([[self.num_steps]], device=decoder.device))
            return vectors
        if decoder.config.positions == "sinusoidal":
            positions = torch.arange(end, device=decoder.device)
            return sinusoidal_positions(positions, decoder.config.hidden_size, decoder.dtype)
        return torch.zeros(end, 1, dtype=decoder.dtype, device=decoder.device)

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        decoder, position = self.decoder, self.num_steps
        hidden_states = decoder.embed_tokens(tokens[:, None])[:, 0] * decoder.embed_scale  # (N, H)
        if position >= len(self.positions):
            self.positions = self._positions(position + _BLOCK)
        hidden_states = decoder.embedding_norm(hidden_states + self.positions[position])
        if self.inherited is not None:
            self.inherited = torch.cat([self.inherited, self.hypotheses], dim=-1)
        for layer in self.layers:
            hidden_states = layer(hidden_states, position, self.inherited)
        self.num_steps += 1
        return self.output(decoder.norm(hidden_states) * self.output_scale)

    def reorder_cache(self, rows: torch.Tensor) -> None:
        if self.inherited is not None:
            self.inherited = self.inherited.flatten(0, 2)[rows].view_as(self.inherited)

    def store(self) -> None:
        for read, layer in zip(self.cache.self_attention_cache.layers, self.layers, strict=True):
            read.keys, read.values = layer.memory[:, :, :, : self.num_steps].unbind()


class LayerSteps:
    """One step of a layer.

    Args:
        layer: a ``VaswaniDecoderLayer``.
        own, source: its caches of self-attention and cross-attention after the prompt.
        source_mask, num_beams: as in ``VaswaniSteps``.
    """

    def __init__(
        self,
        layer: Any,
        own: DynamicLayer,
        source: DynamicLayer,
        source_mask: torch.Tensor | None,
        num_beams: int,
    ) -> None:
        self.layer, self.num_beams, self.width = layer, num_beams, layer.self_attn.head_dim
        self.own_inputs = LeanLinear(layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj)
        self.own_output = LeanLinear(layer.self_attn.out_proj)
        self.query, self.output = LeanLinear(layer.cross_attn.q_proj), LeanLinear(layer.cross_attn.out_proj)
        inner = layer.feed_forward
        self.fc1, self.fc2 = LeanLinear(inner.fc1, *([inner.fc3] if inner.is_gated else [])), LeanLinear(inner.fc2)
        # Keys and values (2, B, h, M, d): those of one step side by side for the hypotheses, with room for later steps.
        memory = torch.stack([own.keys, own.values]).unflatten(1, (-1, num_beams))  # (2, B, k, h, P, d)
        self.memory = memory.permute(0, 1, 3, 4, 2, 5).flatten(3, 4)
        self.keys, self.values = (tensor[::num_beams].contiguous() for tensor in (source.keys, source.values))
        self.mask: torch.Tensor | None = None
        if source_mask is not None and not source_mask.all():
            self.mask = source_mask[::num_beams, None, None].bool()  # (B, 1, 1, S)
            # Where all keys are padding, the context is zero.
            self.values = self.values * self.mask.any(-1, keepdim=True)

    def __call__(self, states: torch.Tensor, position: int, inherited: torch.Tensor | None) -> torch.Tensor:
        """Return the output (N, H) at a position; ``inherited`` as in ``VaswaniSteps``."""
        layer = self.layer
        residual = layer.self_attn_residual
        states = residual.after(states, self._attend(residual.before(states), position, inherited))
        residual = layer.cross_attn_residual
        query = self._heads(self.query(residual.before(states)), 1)[0]
        context = _attended(query, self.keys, self.values, self.mask)
        states = residual.after(states, self.output(self._join(context)))
        residual = layer.feed_forward_residual
        output: torch.Tensor = residual.after(states, self._feed_forward(residual.before(states)))
        return output

    def _attend(self, states: torch.Tensor, position: int, inherited: torch.Tensor | None) -> torch.Tensor:
        """Attend to the positions until this one, whose keys and values are added to the memory."""
        start, end = position * self.num_beams, (position + 1) * self.num_beams
        if end > self.memory.shape[3]:
            self.memory = nn.functional.pad(self.memory, (0, 0, 0, self.num_beams * _BLOCK))
        heads = self._heads(self.own_inputs(states), 3)
        self.memory[:, :, :, start:end] = heads[1:]
        keys, values = self.memory[:, :, :, :end].unbind()
        return self.own_output(self._join(_attended(heads[0], keys, values, inherited)))

    def _feed_forward(self, states: torch.Tensor) -> torch.Tensor:
        feed_forward, inner = self.layer.feed_forward, self.fc1(states)
        if not feed_forward.is_gated:
            return self.fc2(feed_forward.activation(inner))
        inner, gate = inner.chunk(2, dim=-1)
        return self.fc2(feed_forward.activation(inner) * gate)

    def _heads(self, vectors: torch.Tensor, parts: int) -> torch.Tensor:
        """(N, parts h d) -> (parts, B, h, k, d)."""
        return vectors.view(-1, self.num_beams, parts, vectors.shape[1] // parts // self.width, self.width).permute(
            2, 0, 3, 1, 4
        )

    def _join(self, heads: torch.Tensor) -> torch.Tensor:
        """(B, h, k, d) -> (N, h d)."""
        return heads.transpose(1, 2).reshape(-1, heads.shape[1] * self.width)


def _attended(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return the context (B, h, k, d) of hypotheses."""
    if query.shape[2] == 1 or not is_faster_unfused(query, keys, training=False):
        return scaled_dot_product_attention(query, keys, values, mask)
    energies = query * query.shape[-1] ** -0.5 @ keys.transpose(-2, -1)
    # Where all keys are padding, their values are zero, and infinite energies would give NaN.
    energies = energies if mask is None else energies.masked_fill(~mask, torch.finfo(energies.dtype).min)
    return energies.softmax(-1) @ values


__all__ = ["VaswaniSteps", "lean_reason"]
