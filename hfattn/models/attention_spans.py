"""The pattern "adaptive_span": each head learns how far back it attends (Sukhbaatar et al. 2019, section 2.2).

Shapes: see ``attention_windows.py``.
"""

import math
from typing import Any

import torch

from .attention_scores import Parametric
from .attention_windows import Bias, BlockwiseAttention, Inputs, Layout, Window
from .configuration_layers import LayersConfig
from .modeling_vaswani import check_whole


class _Clamped(torch.autograd.Function):
    """clamp(x, 0, 1). At a bound and beyond it, a gradient passes if a step against it leads back between the bounds.

    The derivative of the clamp is zero there, so that x would stay forever; passing every gradient, x would move ever
    further away.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.clamp(0, 1)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        leaves = (x <= 0) & (gradient > 0) | (x >= 1) & (gradient < 0)
        return gradient.masked_fill(leaves, 0)


class Spans(Layout):
    """Weights are multiplied by m_z(x) = clamp((R + z - x) / R, 0, 1), x = |i - j|, and normalized again.

    This is softmax(s + log m_z), and any other distribution of s + log m_z, over the keys with m_z > 0.

    Args:
        spans: z of each head, (h).
        ramp: R.
        longest: a bound of z, or None to read it from ``spans``.
    """

    block = Window.block

    def __init__(self, spans: torch.Tensor, ramp: int, longest: int | None = None) -> None:
        self.spans, self.ramp = spans, ramp
        self.before = (math.ceil(spans.detach().max()) if longest is None else longest) + ramp - 1

    def shares(self, distances: torch.Tensor) -> torch.Tensor:
        """Return m_z of distances (…, T, S), for each head, (…, h, T, S)."""
        return ((self.ramp + self.spans[:, None, None] - distances.abs()) / self.ramp).clamp(0, 1)

    def sees(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        return self.shares((queries - keys).detach()).detach() > 0

    def log_shares(self, query: torch.Tensor, num_keys: int, ahead: int) -> torch.Tensor:
        """Return log m_z of queries (…, h, T, d), of which the first has ``ahead`` keys before it, as (h, T, S)."""
        queries = torch.arange(query.shape[-2], device=query.device)[:, None] + ahead
        shares = self.shares(queries - torch.arange(num_keys, device=query.device))
        return shares.clamp(min=torch.finfo(shares.dtype).tiny).log()  # masked where m_z is 0

    def with_shares(self, bias: Bias | None) -> Bias:
        """Return log m_z plus a bias."""

        def added(*block: Any) -> torch.Tensor:
            shares = self.log_shares(*block)
            return shares if bias is None else shares + bias(*block)

        return added

    def _attend_at_once(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor | None]:
        return super()._attend_at_once(inputs._replace(bias=self.with_shares(inputs.bias)))

    def _attend_in_blocks(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor | None]:
        return super()._attend_in_blocks(inputs._replace(bias=self.with_shares(inputs.bias)))


class AdaptiveSpanAttention(BlockwiseAttention, Parametric):
    """The pattern "adaptive_span"; for the weights, see ``Spans``.

    The parameter ``spans`` (h) is z / S of each head, initially 0. The training loss gets (λ / h) Σ z of each layer.

    Args:
        config, layer_idx, kind, is_causal, gain: see ``VaswaniAttention``.
        span: S, the largest z.
        ramp: R, the number of keys over which the weights fall to zero.
        penalty: λ, in nats for each key.

    Raises:
        ValueError: an option is out of range.
    """

    spans: torch.Tensor

    def __init__(
        self,
        config: LayersConfig,
        layer_idx: int,
        kind: str,
        is_causal: bool,
        gain: float,
        *,
        span: int,
        ramp: int = 32,
        penalty: float = 2e-6,
    ) -> None:
        super().__init__(config, layer_idx, kind, is_causal, gain)
        check_whole(1, span=span, ramp=ramp)
        if not isinstance(penalty, int | float) or isinstance(penalty, bool) or not 0 <= penalty < math.inf:
            raise ValueError(f"penalty is {penalty!r}; write a number of at least 0, such as 2e-6.")
        self._parameter("spans", config.num_attention_heads)
        self.span, self.ramp, self.weight_of_penalty = span, ramp, penalty

    @property
    def lengths(self) -> torch.Tensor:
        """z of each head, (h), in float32 at least."""
        wide = torch.promote_types(self.spans.dtype, torch.float32)
        return self.span * _Clamped.apply(self.spans.to(wide))

    @property
    def layouts(self) -> list[tuple[Layout, list[int]]]:
        # A compiled graph has the shapes of the longest spans, which do not change with the parameters.
        longest = self.span if torch.compiler.is_compiling() else None
        return [(Spans(self.lengths, self.ramp, longest), list(range(self.config.num_attention_heads)))]

    def penalty(self) -> torch.Tensor:
        return self.weight_of_penalty * self.lengths.mean()


__all__: list[str] = []
