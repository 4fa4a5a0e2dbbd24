"""Latents: an encoder of N learned vectors that read a text (Perceiver, Jaegle et al. 2021, section 3).

The latents attend to the M tokens, and then, in the layers of the encoder, to each other: M N + L N² pairs are compared
instead of L M². They may read the text again in further rounds.

Shapes: B batch, M tokens, N latents, H hidden width.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from .configuration_layers import LayersConfig
from .modeling_vaswani import (
    AddAndNorm,
    Call,
    VaswaniAttention,
    VaswaniEncoderLayer,
    VaswaniFeedForward,
    VaswaniLayer,
    make_norm,
    make_residual,
)


class LatentAttention(VaswaniAttention):
    """Attention of the latents to the tokens; without weights, it keeps its place among those of the layers."""

    is_among_patterns = True


class LatentLayer(VaswaniLayer, GradientCheckpointingLayer):
    """Cross-attention of the latents to the tokens, then a feed-forward network."""

    def __init__(self, config: LayersConfig) -> None:
        super().__init__()
        is_normed = config.norm != "pre" or config.embedding_norm
        self.input_norm = nn.Identity() if is_normed else make_norm(config)
        self.cross_attn = LatentAttention(config, 0, "cross", is_causal=False, gain=1.0)
        self.cross_attn_residual = make_residual(config)
        self.feed_forward = VaswaniFeedForward(config, gain=1.0)
        self.feed_forward_residual = make_residual(config)

    def sublayers(
        self, inputs: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs: Any
    ) -> Sequence[tuple[AddAndNorm, Callable[[torch.Tensor], torch.Tensor]]]:
        def read(states: torch.Tensor) -> torch.Tensor:
            output: torch.Tensor = self.cross_attn(
                states, attention_mask, key_value_states=self.input_norm(inputs), **kwargs
            )[0]
            return output

        return (self.cross_attn_residual, read), (self.feed_forward_residual, self.feed_forward)


class Latents(nn.Module):
    """The latents of an encoder, and the layers that it has beside its own: those that read, and those of later rounds.

    The latents are scaled and initialized as embeddings. With ``share_rounds``, all rounds but the first are the same.
    """

    def __init__(self, config: LayersConfig) -> None:
        super().__init__()
        assert config.latents is not None
        self.vectors = nn.Embedding(config.latents, config.hidden_size)
        self.num_rounds = config.latent_rounds
        number = min(self.num_rounds, 2) if config.share_rounds else self.num_rounds
        self.readers = nn.ModuleList(LatentLayer(config) for _ in range(number))
        self.rounds = nn.ModuleList(  # after the first, whose layers are those of the encoder
            nn.ModuleList(VaswaniEncoderLayer(config, index) for index in range(config.encoder_layers))
            for _ in range(number - 1)
        )

    def start(self, inputs: torch.Tensor, scale: float) -> torch.Tensor:
        """Return the latents (B, N, H) of a pass over the tokens (B, M, H)."""
        for layers in self.rounds:
            for layer in layers:  # type: ignore[attr-defined]
                layer.self_attn.start_pass()
        return (self.vectors.weight * scale).to(inputs.dtype).expand(len(inputs), -1, -1)

    def calls(
        self, calls: Sequence[Call], inputs: torch.Tensor, attention_mask: torch.Tensor | None, **kwargs: Any
    ) -> list[Call]:
        """Return all layers with their arguments.

        Args:
            calls: the layers of the encoder, with their arguments.
            inputs: tokens (B, M, H).
            attention_mask: which of them a latent may read.
            kwargs: options of the pass.
        """
        result: list[Call] = []
        for index in range(self.num_rounds):
            own = min(index, len(self.readers) - 1)
            result.append((self.readers[own], (inputs, attention_mask), kwargs))
            layers = [layer for layer, _, _ in calls] if own == 0 else self.rounds[own - 1]
            result += [(layer, *call[1:]) for layer, call in zip(layers, calls, strict=True)]  # type: ignore[arg-type]
        return result


__all__: list[str] = []
