"""Attention to keys of the same hash (Reformer, Kitaev et al. 2020, section 2), causal in a decoder.

Queries and keys are one projection, q_j, and keys have unit length: k_j = q_j / ‖q_j‖. Each round has a random matrix
R, and puts position j into the bucket h(q_j), where h(x) = argmax [x R; -x R]. In each round, a query sees the last c
keys of its bucket before it and, if the attention is not causal, the first c keys after it. It sees itself only if it
sees no other key in any round.

The paper cuts the positions, sorted by bucket, into chunks, and which chunk a position is in depends on the hashes of
later ones. Here, the keys that a query sees do not depend on later tokens.

Shapes: B batch, h heads, r rounds, T queries, S keys, T ≤ S: the last query is at the position of the last key; d width
of a head, c keys, b queries of a block, s keys that a block is compared with.
"""

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicIndexedLayer

from .attention_distributions import Softmax
from .attention_scores import Dot, unit
from .configuration_layers import LayersConfig
from .modeling_vaswani import VaswaniAttention, check_whole, rotate
from .random_directions import RandomDirections
from .score_kernels import full_precision, widen

BLOCK = 64  # queries of a block; as many are compared with all keys


def buckets_of(vectors: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
    """Return h(x) = argmax [x R; -x R] for each round (Kitaev et al. 2020, section 2, after Andoni et al. 2015).

    Args:
        vectors: x, (B, h, T, d).
        directions: the columns of R, (r, number of buckets / 2, d).

    Returns:
        (B, h, r, T).
    """
    with torch.no_grad(), full_precision(vectors):
        vectors = widen(vectors)[:, :, None]
        products = vectors @ directions.to(vectors.dtype).transpose(-1, -2)  # (B, h, r, T, number / 2)
        (largest, first), (smallest, second) = products.max(-1), products.min(-1)
        return torch.where(largest >= -smallest, first, second + directions.shape[1]).int()


def seen_keys(
    buckets: torch.Tensor, real: torch.Tensor | None, num_queries: int, number: int, causal: bool
) -> torch.Tensor:
    """Return which keys each of the last T positions sees, as a mask (B, h, T, S).

    Args:
        buckets: (B, h, r, S).
        real: boolean, (B, S), False at padding, which no position sees.
        num_queries: T.
        number: c.
        causal: hide the keys after a query.
    """
    num_keys = buckets.shape[-1]
    keys = torch.arange(num_keys, device=buckets.device)
    queries = keys[num_keys - num_queries :, None]
    there = torch.ones_like(keys, dtype=torch.bool) if real is None else real[:, None, None]
    seen = torch.zeros(1, dtype=torch.bool, device=buckets.device)
    for bucket in buckets.unbind(2):  # (B, h, S)
        same = (bucket[..., num_keys - num_queries :, None] == bucket[..., None, :]) & there
        before = same & (keys < queries)
        seen = seen | before & (before.flip(-1).cumsum(-1, dtype=torch.int32).flip(-1) <= number)
        if not causal:
            after = same & (keys > queries)
            seen = seen | after & (after.cumsum(-1, dtype=torch.int32) <= number)
    alone = ~seen.any(-1, keepdim=True)
    return seen | alone & (keys == queries) & there


def attend_in_blocks(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    buckets: torch.Tensor,
    real: torch.Tensor | None,
    number: int,
    causal: bool,
    dropout: float = 0.0,
) -> torch.Tensor:
    """Attend with softmax(q·k) over the keys that each position sees, in O(r S (log S + (c + b) d)).

    In each round, positions are sorted by bucket, and blocks of them are compared with the c keys before, and after. A
    key that is seen in t rounds counts 1 / t in each of them (Kitaev et al. 2020, appendix A). The numerators and the
    denominators of the rounds are added, so that the result is one softmax over all keys that a position sees.

    Args:
        query, key, value: (B, h, S, d).
        buckets, real, number, causal: as in ``seen_keys``.
        dropout: probability of dropping a weight.

    Returns:
        (B, h, S, d).
    """
    num_keys = value.shape[-2]
    number = min(number, num_keys)
    if real is not None:
        real = real[:, None, :, None]  # (B, 1, S, 1)
        buckets = buckets.masked_fill(~real.transpose(-1, -2), torch.iinfo(buckets.dtype).max)  # padding is the last
    order = buckets.argsort(dim=-1, stable=True)
    rank = torch.empty_like(order).scatter_(-1, order, torch.arange(num_keys, device=order.device).expand_as(order))
    # Two places differ by at most c if and only if the ranks do, and the buckets are the same.
    unseen = -number - 1
    changes = nn.functional.pad(buckets.gather(-1, order).diff(dim=-1) != 0, (1, 0)).cumsum(-1)
    places = (rank + (number + 1) * changes.gather(-1, rank)).int().transpose(-1, -2)  # (B, h, S, r)
    if real is not None:
        places = places.masked_fill(~real, unseen)
    after = 0 if causal else number

    def blocks(tensor: torch.Tensor, fill: float = 0) -> torch.Tensor:  # (B, h, S, width) -> (B, h, n, b, width)
        padded = nn.functional.pad(tensor, (0, 0, 0, -num_keys % BLOCK), value=fill)
        return padded.unflatten(-2, (-1, BLOCK))

    def spans(tensor: torch.Tensor, fill: float = 0) -> torch.Tensor:  # (B, h, S, width) -> (B, h, n, s, width)
        padded = nn.functional.pad(tensor, (0, 0, number, -num_keys % BLOCK + after), value=fill)
        return padded.unfold(-2, number + BLOCK + after, BLOCK).transpose(-1, -2)

    def within(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:  # (..., b, 1), (..., 1, s) -> (..., b, s)
        return (k >= q - number) & (k < q if causal else (k <= q + number) & (k != q))

    found: list[tuple[torch.Tensor, ...]] = []  # numerator, denominator and largest energy in each round
    for index in range(places.shape[-1]):
        at, back = (each[:, :, index, :, None] for each in (order, rank))  # (B, h, S, 1)
        q, k, v, p = (tensor.gather(-2, at.expand_as(tensor)) for tensor in (query, key, value, places))
        place, other = blocks(p, unseen)[..., None].unbind(-2), spans(p, unseen)[..., None, :, :].unbind(-1)
        seen = [within(*pair) for pair in zip(place, other, strict=True)]  # (B, h, n, b, s), in each round
        times = sum(seen[1:], seen[0].short()).clamp(min=1)
        energies = widen(blocks(q) @ spans(k).transpose(-1, -2))
        energies = energies.masked_fill(~seen[index], torch.finfo(energies.dtype).min)
        largest = energies.detach().amax(-1, keepdim=True)
        weights = (energies - largest).exp() * seen[index] / times
        context = nn.functional.dropout(weights, dropout).to(value.dtype) @ spans(v)
        sorted_parts = (part.flatten(2, 3) for part in (context, weights.sum(-1, keepdim=True), largest))
        found.append(tuple(part.gather(-2, back.expand(*back.shape[:-1], part.shape[-1])) for part in sorted_parts))
    numerators, denominators, scales = map(torch.stack, zip(*found, strict=True))  # (r, B, h, S, d or 1)
    scales = (scales - scales.amax(0)).exp()
    total = (scales * denominators).sum(0)
    context = ((scales * numerators).sum(0) / torch.where(total > 0, total, 1)).to(value.dtype)
    alone = total == 0 if real is None else (total == 0) & real
    return context + nn.functional.dropout(alone.to(value.dtype), dropout) * value


class LSHAttention(RandomDirections, VaswaniAttention):
    """The pattern "lsh": softmax over the keys of the same hash, with the scores "dot", "scaled_dot" and "cosine".

    The heads of a layer share the random matrices R, which are saved with the model.

    Args:
        config, layer_idx, kind, is_causal, gain: see ``VaswaniAttention``.
        buckets: number of buckets, even.
        keys: c, the number of keys of its bucket that a query sees on a side, in each round.
        rounds: r, the number of hashes.
        redraw: number of forward passes in training after which the matrices are drawn again; 0 keeps them.

    Raises:
        ValueError: an option is out of range, or the configuration names another score, another distribution, or a
            number of heads of keys.
    """

    takes_padding_mask = True

    def __init__(
        self,
        config: LayersConfig,
        layer_idx: int,
        kind: str,
        is_causal: bool,
        gain: float,
        *,
        buckets: int,
        keys: int,
        rounds: int = 4,
        redraw: int = 1,
    ) -> None:
        super().__init__(config, layer_idx, kind, is_causal, gain)
        if not isinstance(buckets, int) or isinstance(buckets, bool) or buckets < 2 or buckets % 2:
            raise ValueError(f"buckets is {buckets!r}; write an even number, because a direction has two sides.")
        self.hold_directions(redraw, rounds=rounds, buckets=buckets // 2)
        check_whole(1, keys=keys)
        if not isinstance(self.attention.score, Dot):
            raise ValueError(
                "The pattern 'lsh' hashes vectors by their directions, so that keys of one bucket have large inner "
                f"products, and {kind}_attention_score is {config.self_attention_score!r}; write dot, scaled_dot or "
                "cosine."
            )
        if not isinstance(self.attention.distribution, Softmax):
            raise ValueError(
                f"The pattern 'lsh' merges rounds by the denominators of softmax, and {kind}_attention_distribution is "
                f"{config.self_attention_distribution!r}; leave it out, or write another pattern."
            )
        if self.num_key_value_groups > 1:
            raise ValueError(
                "The pattern 'lsh' has one projection for queries and keys, so that there are as many heads of keys; "
                "leave num_key_value_heads out."
            )
        self.number = keys
        del self.k_proj

    def drawn(self) -> torch.Tensor:
        return torch.randn(self.directions.shape)

    def cache_layer(self) -> CacheLayerMixin:
        return DynamicIndexedLayer()  # what it calls keys of an indexer are the buckets

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        key_value_states: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        rotation: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend from (B, T, H) to itself and the keys in the cache, with an ``attention_mask`` (B, S) or None.

        Returns:
            (B, T, H), and the weights (B, h, T, S), or None if they were not requested.
        """
        query, value = (self._heads(project(hidden_states)) for project in (self.q_proj, self.v_proj))  # (B, h, T, d)
        if rotation is not None:
            query = rotate(query, rotation)
        buckets = buckets_of(query, self.directions)
        (key,) = self.attention.prepare(unit(widen(query)).to(query.dtype))
        if (layer := self.cache_of(past_key_values)) is not None:
            key, value = layer.update(key, value)
            stored = layer.update_indexer(buckets.flatten(1, 2).transpose(1, 2))
            buckets = stored.transpose(1, 2).unflatten(1, buckets.shape[1:3])
        num_queries, num_keys = query.shape[-2], key.shape[-2]
        real = None if attention_mask is None else attention_mask.bool()
        weights = None
        if self.needs_weights(**kwargs) or num_queries <= BLOCK:
            mask = seen_keys(buckets, real, num_queries, self.number, self.is_causal)
            context, weights = self.attention(
                query, (key,), value, mask, self.needs_weights(**kwargs), dropout=self.weight_dropout
            )
        else:
            query = nn.functional.pad(query, (0, 0, num_keys - num_queries, 0))
            left, right = self.attention.score(query, key, method="factors")
            context = attend_in_blocks(
                left, right, value, buckets, real, self.number, self.is_causal, self.weight_dropout
            )[..., num_keys - num_queries :, :]
        return self.out_proj(context.to(query.dtype).transpose(1, 2).flatten(-2)), weights


__all__: list[str] = []
