"""Positions as a bias: numbers that depend on the distance i - j of query i and key j, and are added to their energy.

Distances are those of slots. They equal those of tokens, because padding is before or after a text.

Shapes: ``…`` any batch dimensions, T queries, S keys, h heads, d width of a head, H hidden width, D distances.
"""

import math
from typing import Any

import torch
from torch import nn

from .attention_scores import Parametric
from .configuration_vaswani import VaswaniConfig
from .modeling_vaswani import sinusoidal_positions
from .score_kernels import widen


class PositionBias(nn.Module):
    """A bias of each head, b(i - j).

    Args:
        config: configuration of the model.
        is_causal: whether queries see only earlier keys.
    """

    def of_distances(self, distances: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return b of whole numbers (D), negative where the key is after the query, as (h, D)."""
        raise NotImplementedError

    def forward(
        self,
        query: torch.Tensor,
        num_keys: int,
        ahead: int | torch.Tensor,
        step: int = 1,
        heads: slice | list[int] = slice(None),
    ) -> torch.Tensor:
        """Return the bias of queries (…, h, T, d) and keys.

        Args:
            num_keys: S.
            ahead: number of keys before the position of the first query.
            step: number of positions between two neighboring queries or keys.
            heads: heads of the queries; by default, all of them.

        Returns:
            Broadcastable to (…, h, T, S).
        """
        num_queries = query.shape[-2]
        # All pairs together have fewer than T + S distances.
        distances = torch.arange(num_queries + num_keys, device=query.device) - num_keys
        biases = self.of_distances(step * (ahead + distances), widen(query).dtype)[heads]  # (h, T + S)
        rows, columns = (torch.arange(number, device=query.device) for number in (num_queries, num_keys))
        return biases[:, num_keys + rows[:, None] - columns]


class Alibi(PositionBias):
    """b(i - j) = -m |i - j| (ALiBi, Press et al. 2022, section 3).

    For a number of heads that is a power of two, the slopes m are 2^(-8/h), 2^(-16/h), ..., 2^-8. Otherwise they are
    those of the next smaller power of two, and then every second one of the next larger, as in the authors' code.
    """

    def __init__(self, config: VaswaniConfig, is_causal: bool) -> None:
        super().__init__()
        self.num_heads = config.num_attention_heads

    def of_distances(self, distances: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        smaller = 1 << (self.num_heads.bit_length() - 1)
        steps = [*range(2, 2 * smaller + 1, 2), *range(1, 2 * smaller, 2)][: self.num_heads]
        slopes = 2.0 ** (-4 / smaller * torch.tensor(steps, device=distances.device, dtype=dtype))
        return -slopes[:, None] * distances.abs()


class RelativeBuckets(PositionBias):
    """A learned number of each head for a bucket of distances (T5, Raffel et al. 2020, section 2.1).

    Of n buckets, the first n / 2 have one distance each; the others grow as its logarithm does, up to ``max_distance``,
    and the last one has all longer distances. If queries also see later keys, half of the buckets are for these.

    Args:
        config, is_causal: see ``PositionBias``.
    """

    def __init__(self, config: VaswaniConfig, is_causal: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(config.num_buckets, config.num_attention_heads)
        self.num_buckets, self.max_distance, self.is_causal = config.num_buckets, config.max_distance, is_causal

    def buckets(self, distances: torch.Tensor) -> torch.Tensor:
        """Return the bucket of each distance."""
        number, first = self.num_buckets, torch.zeros_like(distances)
        if self.is_causal:
            distances = distances.clamp(min=0)
        else:
            number //= 2
            first, distances = number * (distances < 0), distances.abs()
        exact = number // 2
        # In float32, as the authors compute it: some distances are on the edge of a bucket.
        share = (distances.clamp(min=exact).float() / exact).log() / math.log(self.max_distance / exact)
        far = (exact + (share * (number - exact)).long()).clamp(max=number - 1)
        return first + torch.where(distances < exact, distances, far)

    def of_distances(self, distances: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return self.table(self.buckets(distances)).T


class RelativeSinusoids(PositionBias, Parametric):
    """Positions of Transformer-XL (Dai et al. 2019, section 3.3), for each layer:

        e_ij = ((q_i + u)·k_j + (q_i + v)·W_R R_{i-j}) / √d

    R_x (H) is the sinusoid of the distance x. Parameters: u and v (h, d), W_R (h d, H). The first term is the score
    ``scaled_dot`` of the queries with u; with another score, only that term is another.

    Args:
        config, is_causal: see ``PositionBias``.
    """

    u: torch.Tensor
    v: torch.Tensor
    W_R: torch.Tensor

    def __init__(self, config: VaswaniConfig, is_causal: bool) -> None:
        super().__init__()
        num_heads, width = config.num_attention_heads, config.head_width
        self._parameter("u", num_heads, width)
        self._parameter("v", num_heads, width)
        self._parameter("W_R", num_heads * width, config.hidden_size)
        self.initialize_()

    def forward(self, *inputs: Any, method: str = "bias", **named: Any) -> torch.Tensor:
        """Call ``bias``, or another method by its name."""
        found: torch.Tensor = getattr(self, method)(*inputs, **named)
        return found

    def with_u(self, query: torch.Tensor) -> torch.Tensor:
        """Return q + u for queries (B, h, T, d)."""
        return query + self.u[:, None]

    def bias(
        self,
        query: torch.Tensor,
        num_keys: int,
        ahead: int | torch.Tensor,
        step: int = 1,
        heads: slice | list[int] = slice(None),
    ) -> torch.Tensor:
        """Return (q + v)·W_R R / √d, (…, h, T, S), for q + u (…, h, T, d); arguments as in ``PositionBias``."""
        num_queries, width = query.shape[-2:]
        if 0 in (num_queries, num_keys):  # texts without a token
            return query.new_zeros(num_queries, num_keys)
        query = query + (self.v - self.u)[heads][:, None]
        # In falling order: each row of the bias has S of them in turn, and begins one further left than the row before.
        distances = step * (ahead + num_queries - 1 - torch.arange(num_queries + num_keys, device=query.device))
        sinusoids = sinusoidal_positions(distances, self.W_R.shape[-1], self.W_R.dtype).T  # (H, D)
        matrix = self.W_R.unflatten(0, (-1, width))[heads]  # (h, d, H)
        # A decoder's step has one query, and must not project all sinusoids.
        energies = (query @ matrix) @ sinusoids if num_queries < width else query @ (matrix @ sinusoids)  # (…, h, T, D)
        row = num_queries + num_keys - 1
        shifted = energies.flatten(-2)[..., num_queries - 1 : num_queries - 1 + num_queries * row]
        return shifted.unflatten(-1, (num_queries, row))[..., :num_keys] / math.sqrt(width)


__all__: list[str] = []
