"""Groups of neighboring layers that share an attention (Xiao et al. 2019, "Sharing Attention Weights for Fast
Transformer", section 3).

In self-attention, the layers of a group take the weights S of the first one, and only the values are their own: S V.
In cross-attention, where the values of all layers come from the same source, they take the heads' output A = S V. Each
layer has its own W^O.

Shapes: B batch, T queries, S keys, H hidden width, h heads, d width of a head.
"""

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, EncoderDecoderCache

from .configuration_layers import LayersConfig
from .modeling_vaswani import TokenMixer, VaswaniAttention, projection


class AttentionGroups:
    """What the first layer of a group leaves for the others, in one forward pass of a stack.

    Attributes:
        outputs: for "self" and "cross", the heads' output (B, T, h, d), and the weights (B, h, T, S) or None.
    """

    def __init__(self) -> None:
        self.outputs: dict[str, tuple[torch.Tensor, torch.Tensor | None]] = {}
        self.with_gradients = torch.is_grad_enabled()

    @staticmethod
    def attention(config: LayersConfig, layer_idx: int, kind: str, is_causal: bool, gain: float) -> TokenMixer:
        """Return the attention of a layer in its group; for the arguments, see ``VaswaniAttention``."""
        start = 0
        for size in config.attention_groups(kind, is_causal) or []:
            if start <= layer_idx < start + size:
                break
            start += size
        if layer_idx > start:
            other = SharedWeights if kind == "self" else SharedOutput
            return other(config, layer_idx, kind, is_causal, gain)
        return (FirstAttention if size > 1 else VaswaniAttention)(config, layer_idx, kind, is_causal, gain)


class FirstAttention(VaswaniAttention):
    """Attention of the first layer of a group."""

    def needs_weights(self, **kwargs: Any) -> bool:
        return self.kind == "self" or super().needs_weights(**kwargs)

    def attend(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend, and leave output and weights in the argument ``shared``.

        Raises:
            ValueError: the pass is one of reentrant gradient checkpointing, in which they have no gradients.
        """
        shared: AttentionGroups = kwargs.pop("shared")
        if shared.with_gradients and not torch.is_grad_enabled():
            raise ValueError(
                "Reentrant gradient checkpointing loses the gradients of attention that layers share; pass "
                "{'use_reentrant': False} as gradient_checkpointing_kwargs."
            )
        shared.outputs[self.kind] = super().attend(*args, **kwargs)
        return shared.outputs[self.kind]


class SharedWeights(TokenMixer):
    """Self-attention of a later layer of a group: the first one's weights, and values of its own."""

    def __init__(self, config: LayersConfig, layer_idx: int, kind: str, is_causal: bool, gain: float) -> None:
        super().__init__(config, layer_idx, kind, is_causal, gain)
        self.head_dim = config.head_width
        self.v_proj = projection(config.hidden_size, config.key_value_heads * self.head_dim, config.bias, gain)
        self.out_proj = projection(config.num_attention_heads * self.head_dim, config.hidden_size, config.bias, gain)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        *,
        shared: AttentionGroups,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the weighted sums of (B, T, H), as (B, T, H), and the first layer's weights (B, h, T, S)."""
        weights = shared.outputs["self"][1]
        assert weights is not None  # FirstAttention computes them
        value = self.v_proj(hidden_states).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # (B, h, T, d)
        if isinstance(past_key_values, EncoderDecoderCache):
            past_key_values = past_key_values.self_attention_cache
        if past_key_values is not None:
            # A cache counts keys, so the values are in their place, and no number is in that of the values.
            value, _ = past_key_values.update(value, value[..., :0], self.layer_idx)
        (value,) = self.repeated(value)
        dropout = float(self.config.attention_dropout)
        context = nn.functional.dropout(weights, dropout, self.training).to(value.dtype) @ value
        return self.out_proj(context.transpose(1, 2).flatten(-2)), weights


class SharedOutput(TokenMixer):
    """Cross-attention of a later layer of a group: the first one's output, through a W^O of its own."""

    reads_states = False

    def __init__(self, config: LayersConfig, layer_idx: int, kind: str, is_causal: bool, gain: float) -> None:
        super().__init__(config, layer_idx, kind, is_causal, gain)
        width = config.num_attention_heads * config.head_width
        self.out_proj = projection(width, config.hidden_size, config.bias, gain)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        *,
        shared: AttentionGroups,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the first layer's output, as (B, T, H), and its weights (B, h, T, S) or None."""
        context, weights = shared.outputs["cross"]
        return self.out_proj(context.flatten(-2)), weights


__all__: list[str] = []
