"""Patterns in which a query sees only some keys: exact, that is, equal to dense attention under a mask.

Queries and keys are cut into blocks, and the blocks are a batch dimension of ``Attention``. Every distribution and
every score (except "location", which needs the index of a key) therefore works as in dense attention, and no (T, S)
matrix is computed unless the weights are requested.

Shapes: ``…`` any batch dimensions, T queries, S keys, T ≤ S: the last query is at the position of the last key. h
heads, d width of a head, n number of blocks, b queries of a block, s keys that a block is compared with.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import nn
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicSlidingWindowLayer

from .attention import Attention
from .attention_scores import Location
from .configuration_vaswani import VaswaniConfig
from .modeling_vaswani import VaswaniAttention
from .score_kernels import can_read

Bias = Callable[..., torch.Tensor]


class Layout:
    """Which keys a query sees, and blocks that contain these pairs of queries and keys.

    Attributes:
        alignment: blocks of queries begin at multiples of this position. Positions are counted from the first token
            that is not padding.
        block: b.
        before: number of keys before a block that its queries may see.
    """

    alignment = 1
    block: int
    before: int

    def sees(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Return whether the query at a position sees the key at a position, earlier or later.

        Args:
            queries, keys: positions, in shapes that broadcast.
        """
        raise NotImplementedError

    def span(self, causal: bool) -> int:
        """Return s, the number of keys around a block that it is compared with; 0 if it is compared with others."""
        return self.before + self.block + (0 if causal else self.before)

    def __call__(
        self,
        attention: Attention,
        query: torch.Tensor,
        prepared: tuple[torch.Tensor, ...],
        value: torch.Tensor,
        real: torch.Tensor | None = None,
        *,
        start: int | torch.Tensor | None = None,
        causal: bool = False,
        need_weights: bool = True,
        dropout: float = 0.0,
        bias: Bias | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend with queries (…, T, d) to values (…, S, d_v) through prepared keys.

        Args:
            attention: score and distribution.
            real: boolean, broadcastable to (…, 1, S), False at padding.
            start: position of the first key, a number or (…, 1, 1), negative if padding is before the first token. By
                default, the first token that is not padding is at position 0.
            causal: hide the keys after a query.
            need_weights, dropout: as in ``Attention``.
            bias: a function of queries (…, h, T, d), the number S of keys and the number of keys before the position of
                the first query, which returns the bias of their energies, broadcastable to (…, h, T, S). It is called
                for the queries and the keys of a block.

        Returns:
            Context (…, T, d_v), and weights (…, T, S), zero outside of the pattern, or None.

        Raises:
            ValueError: there are more queries than keys, or the score needs the index of a key.
        """
        num_queries, num_keys = query.shape[-2], value.shape[-2]
        if num_queries > num_keys:
            raise ValueError(
                f"There are {num_queries} queries and {num_keys} keys; a pattern puts the last query at the position "
                "of the last key, so pass at least as many keys as queries."
            )
        if isinstance(attention.score, Location):
            raise ValueError(
                "The score 'location' needs the index of each key, and this pattern compares a query with some keys "
                "only; write another score, or the pattern 'full'."
            )
        if start is None:
            start = 0 if real is None else -real.int().argmax(-1, keepdim=True)
        given = {} if bias is None else {"bias": bias}  # which not every layout takes
        attend = self._attend_in_blocks
        if num_queries <= self.block or num_keys <= self.span(causal):  # blocks would compare more pairs
            attend = self._attend_at_once
        return attend(attention, query, prepared, value, real, start, causal, need_weights, dropout, **given)

    def _attend_at_once(
        self,
        attention: Attention,
        query: torch.Tensor,
        prepared: tuple[torch.Tensor, ...],
        value: torch.Tensor,
        real: torch.Tensor | None,
        start: int | torch.Tensor,
        causal: bool,
        need_weights: bool,
        dropout: float,
        bias: Bias | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend with few queries, under a mask of the last keys."""
        num_queries, num_keys = query.shape[-2], value.shape[-2]
        unseen = max(num_keys - num_queries - self.before - (self.alignment - 1), 0)
        keys = torch.arange(unseen, num_keys, device=value.device)[None] + start  # (…, 1, S)
        queries = keys[..., keys.shape[-1] - num_queries :].transpose(-1, -2)  # (…, T, 1)
        mask = self.sees(queries, keys)
        if causal:
            mask = mask & (keys <= queries)
        if real is not None:
            mask = mask & real[..., unseen:]
        context, weights = attention(
            query,
            tuple(tensor[..., unseen:, :] for tensor in prepared),
            value[..., unseen:, :],
            mask,
            need_weights,
            dropout=dropout,
            bias=None if bias is None else bias(query, keys.shape[-1], keys.shape[-1] - num_queries),
        )
        return context, None if weights is None else nn.functional.pad(weights, (unseen, 0))

    def _attend_in_blocks(
        self,
        attention: Attention,
        query: torch.Tensor,
        prepared: tuple[torch.Tensor, ...],
        value: torch.Tensor,
        real: torch.Tensor | None,
        start: int | torch.Tensor,
        causal: bool,
        need_weights: bool,
        dropout: float,
        bias: Bias | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend with each block of b queries to the s keys around it."""
        num_queries, num_keys = query.shape[-2], value.shape[-2]
        ahead = num_keys - num_queries
        lead = (start + ahead) % self.alignment
        column = real_column(real, query, num_keys)
        tensors = [query, *prepared, value, column]
        if self.alignment > 1:
            tensors = [delayed(tensor, lead, self.alignment - 1) for tensor in tensors]
        query, *prepared_keys, value, column = tensors

        num_blocks = -(-query.shape[-2] // self.block)
        end = num_blocks * self.block - query.shape[-2]
        start_padding, end_padding = self.before - ahead, end + (0 if causal else self.before)
        span = self.span(causal)

        def spans(tensor: torch.Tensor, blocks: range) -> torch.Tensor:  # (…, h, S, width) -> (…, n, h, s, width)
            first = blocks.start * self.block - start_padding
            rows = _rows(tensor, first, first + (len(blocks) - 1) * self.block + span)
            return blocks_first(rows.unfold(-2, span, self.block).transpose(-1, -2))

        positions = torch.arange(self.block, device=query.device)[:, None]
        keys = torch.arange(-self.before, span - self.before, device=query.device)
        seen = self.sees(positions, keys)
        if causal:
            seen = seen & (keys <= positions)
        parts = []
        whole = self._whole_blocks(num_queries, ahead, lead, span) if real is None else None
        bounds = sorted({0, num_blocks} | ({whole.start, whole.stop} if whole else set()))
        for blocks in itertools.starmap(range, itertools.pairwise(bounds)):
            rows = _rows(query, blocks.start * self.block, blocks.stop * self.block)
            # One mask for all blocks that lack no key needs no memory for each block.
            mask = seen if blocks == whole else seen & spans(column, blocks).transpose(-1, -2)
            queries = blocks_first(rows.unflatten(-2, (len(blocks), self.block)))
            part = attention(
                queries,
                tuple(spans(tensor, blocks) for tensor in prepared_keys),
                spans(value, blocks),
                mask,
                need_weights,
                dropout=dropout,
                bias=None if bias is None else bias(queries, span, self.before),
            )
            parts.append(part)
        has_heads = query.ndim > 3
        dim = -4 if has_heads else -3
        weights = torch.cat([part for _, part in parts if part is not None], dim=dim) if need_weights else None
        # The heads are last but one, as in the fused kernels and in the output of the layer, so that there is one copy.
        contexts = [part.transpose(-2, -3) if has_heads else part for part, _ in parts]
        context = torch.cat(contexts, dim=dim).flatten(dim, dim + 1)
        context = without_delay(context.transpose(-2, -3) if has_heads else context, lead, num_queries, -2)
        if weights is not None:
            weights = blocks_first(weights)  # (…, h, n, b, s)
            columns = torch.arange(num_blocks, device=query.device)[:, None, None] * self.block + keys + self.before
            width = num_blocks * self.block + span - self.block
            dense = weights.new_zeros(*weights.shape[:-1], width).scatter(-1, columns.expand_as(weights), weights)
            dense = nn.functional.pad(dense.flatten(-3, -2), (-start_padding, -end_padding))
            weights = without_delay(without_delay(dense, lead, num_queries, -2), lead, num_keys, -1)
        return context, weights

    def _whole_blocks(self, num_queries: int, ahead: int, lead: int | torch.Tensor, span: int) -> range | None:
        """Return the blocks whose s keys all exist, if no key is padding; None if there are none."""
        if not isinstance(lead, int):
            return None
        first = -(-max(lead + self.before - ahead, 0) // self.block)
        stop = (lead + num_queries - (span - self.before - self.block)) // self.block
        return range(first, stop) if first < stop else None


def real_keys(attention_mask: torch.Tensor | None) -> tuple[torch.Tensor | None, int | torch.Tensor]:
    """Return which keys are tokens, (B, 1, 1, S), and the position of the first key, (B, 1, 1, 1).

    If no key is padding, they are None and 0.
    """
    if attention_mask is None or (can_read(attention_mask) and bool(attention_mask.all())):
        return None, 0
    real = attention_mask.bool()[:, None, None]
    return real, -real.int().argmax(-1, keepdim=True)


def real_column(real: torch.Tensor | None, query: torch.Tensor, num_keys: int) -> torch.Tensor:
    """Return ``real`` as (…, 1, S, 1), with the batch dimensions of (…, h, T, d), so that it is cut as keys are."""
    if real is None:
        real = torch.ones(1, num_keys, dtype=torch.bool, device=query.device)
    real = real[(None,) * (query.ndim - real.ndim)]
    rows = query.shape[:-3] if query.ndim > 3 else query.shape[:-2]
    return real.expand(*rows, *real.shape[len(rows) : -1], num_keys).transpose(-1, -2)


def _rows(tensor: torch.Tensor, first: int, end: int) -> torch.Tensor:
    """Return the rows (…, first:end, width) of (…, S, width), zeros where there are none."""
    length = tensor.shape[-2]
    rows = tensor[..., max(first, 0) : min(end, length), :]
    missing = max(-first, 0), max(end - length, 0)
    return nn.functional.pad(rows, (0, 0, *missing)) if any(missing) else rows


def blocks_first(tensor: torch.Tensor) -> torch.Tensor:
    """(…, h, n, b, width) -> (…, n, h, b, width), and back: one mask is then broadcast to all heads."""
    return tensor.transpose(-3, -4) if tensor.ndim > 4 else tensor


def delayed(tensor: torch.Tensor, lead: int | torch.Tensor, most: int) -> torch.Tensor:
    """(…, S, width) -> (…, S + most, width): the first row moves to row ``lead``, at most ``most``; others are zero."""
    if isinstance(lead, int):
        return nn.functional.pad(tensor, (0, 0, lead, most - lead))
    padded = nn.functional.pad(tensor, (0, 0, most, most))
    rows = torch.arange(tensor.shape[-2] + most, device=tensor.device)[:, None] + most
    return torch.take_along_dim(padded, rows - lead, dim=-2)


def without_delay(tensor: torch.Tensor, lead: int | torch.Tensor, number: int, dim: int) -> torch.Tensor:
    """Return the ``number`` rows or columns from ``lead`` on."""
    if isinstance(lead, int):
        return tensor.narrow(dim, lead, number)
    index = torch.arange(number, device=tensor.device)
    return torch.take_along_dim(tensor, lead + (index[:, None] if dim == -2 else index), dim=dim)


def check_positive(**options: int) -> None:
    for name, number in options.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ValueError(f"{name} is {number!r}; write a whole number of at least 1.")


class Window(Layout):
    """Query i sees the keys j with |i - j| < w; causal: 0 ≤ i - j < w (Beltagy et al. 2020, section 3.1).

    Args:
        window: w, which includes the key at the position of the query.
        dilation: δ: of the keys with |i - j| < δ w, the query sees those for which δ divides i - j.
    """

    block = 128

    def __init__(self, *, window: int, dilation: int = 1) -> None:
        check_positive(window=window, dilation=dilation)
        self.window, self.dilation = window, dilation
        self.before = dilation * (window - 1)

    def span(self, causal: bool) -> int:
        # Dilated, a block is compared with the keys of its remainder only, and there are no blocks here.
        return super().span(causal) if self.dilation == 1 else 0

    def sees(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        distance = queries - keys
        return (distance.abs() <= self.before) & (distance % self.dilation == 0)

    def _attend_in_blocks(
        self,
        attention: Attention,
        query: torch.Tensor,
        prepared: tuple[torch.Tensor, ...],
        value: torch.Tensor,
        real: torch.Tensor | None,
        start: int | torch.Tensor,
        causal: bool,
        need_weights: bool,
        dropout: float,
        bias: Bias | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self.dilation == 1:
            return super()._attend_in_blocks(
                attention, query, prepared, value, real, start, causal, need_weights, dropout, bias
            )
        # Positions with the same remainder modulo δ are a sequence of their own, in which the window has no gaps.
        num_queries, num_keys = query.shape[-2], value.shape[-2]
        column = real_column(real, query, num_keys)
        query, *prepared_keys, value, column = map(self._remainders, (query, *prepared, value, column))
        context, weights = Window(window=self.window)(
            attention,
            query,
            tuple(prepared_keys),
            value,
            column.transpose(-1, -2),
            causal=causal,
            need_weights=need_weights,
            dropout=dropout,
            bias=None if bias is None else functools.partial(bias, step=self.dilation),
        )
        context = context.movedim(0, -2).flatten(-3, -2)[..., -num_queries:, :]
        if weights is not None:
            dense = weights.new_zeros(*weights.shape, self.dilation)
            for remainder in range(self.dilation):
                dense[remainder, ..., remainder] = weights[remainder]
            weights = dense.flatten(-2).movedim(0, -2).flatten(-3, -2)[..., -num_queries:, -num_keys:]
        return context, weights

    def _remainders(self, tensor: torch.Tensor) -> torch.Tensor:
        """(…, S, width) -> (δ, …, S / δ, width), after zeros at the start."""
        padded = nn.functional.pad(tensor, (0, 0, -tensor.shape[-2] % self.dilation, 0))
        return padded.unflatten(-2, (-1, self.dilation)).movedim(-2, 0)


class BlockLocal(Layout):
    """A query sees the keys of its block of b positions and of the block before; if it is not causal, also those of the
    block after (Parmar et al. 2018, section 3.3).

    Args:
        block: b.
    """

    def __init__(self, *, block: int) -> None:
        check_positive(block=block)
        self.block = self.before = self.alignment = block

    def sees(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        return (queries.div(self.block, rounding_mode="floor") - keys.div(self.block, rounding_mode="floor")).abs() <= 1


class RingLayer(DynamicSlidingWindowLayer):
    """Cache of the last keys and values.

    Args:
        number: how many; with the current one, a query sees at most one more.
    """

    def __init__(self, number: int) -> None:
        super().__init__(sliding_window=number + 1)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = super().update(key_states, value_states, *args, **kwargs)
        if self.sliding_window == 1:  # transformers would keep all of them
            self.keys, self.values = keys[..., :0, :], values[..., :0, :]
        return keys, values


class LayoutAttention(VaswaniAttention):
    """Self-attention of a layer with a ``Layout``; base of the patterns of this file.

    Args:
        config, layer_idx, kind, is_causal, gain: see ``VaswaniAttention``.
        options: those of the layout; a list has one value for each head.
    """

    takes_padding_mask = True
    takes_bias = True
    layout: ClassVar[type[Layout]]

    def __init__(
        self, config: VaswaniConfig, layer_idx: int, kind: str, is_causal: bool, gain: float, **options: Any
    ) -> None:
        super().__init__(config, layer_idx, kind, is_causal, gain)
        num_heads = config.num_attention_heads
        for name, value in options.items():
            if isinstance(value, list) and len(value) != num_heads:
                raise ValueError(
                    f"{name} has {len(value)} values for the heads of layer {layer_idx}, which has {num_heads} heads; "
                    "write one value, or one for each head."
                )
        heads: dict[tuple[Any, ...], list[int]] = {}  # of each combination of options
        for head in range(num_heads):
            own = tuple(value[head] if isinstance(value, list) else value for value in options.values())
            heads.setdefault(own, []).append(head)
        self.layouts = [
            (self.layout(**dict(zip(options, own, strict=True))), indices) for own, indices in heads.items()
        ]

    def cache_layer(self) -> CacheLayerMixin:
        return RingLayer(max(layout.before + layout.alignment - 1 for layout, _ in self.layouts))

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        past_key_values: Cache | None = None,
        *,
        bias: nn.Module | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        num_keys = key.shape[-2]
        total = self.num_so_far(num_keys, past_key_values)
        real, start = real_keys(attention_mask)
        context, weights = self.by_layout(
            query,
            key,
            value,
            real=None if real is None else real[..., total - num_keys :],
            start=total - num_keys + start,
            causal=self.is_causal,
            need_weights=self.needs_weights(**kwargs),
            dropout=self.weight_dropout,
            bias=bias,
        )
        if weights is not None:
            # The keys that the cache has dropped are outside of the pattern.
            weights = nn.functional.pad(weights, (total - num_keys, 0))
        return context.transpose(1, 2), weights

    def by_layout(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attend: Callable[..., tuple[torch.Tensor, torch.Tensor | None]] = Layout.__call__,
        bias: Bias | None = None,
        **arguments: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend with the queries (B, h, T, d) of all heads, each with a method of its layout.

        Returns:
            (B, h, T, d), and the weights (B, h, T, S) or None.
        """
        contexts, weights = [], None
        for layout, heads in self.layouts:
            every = slice(None) if len(self.layouts) == 1 else heads
            if bias is not None:
                arguments["bias"] = functools.partial(bias, heads=every)
            of_heads, own = attend(
                layout, self.attention, query[:, every], self.split(key[:, every]), value[:, every], **arguments
            )
            contexts.append(of_heads.to(query.dtype))
            if own is not None:
                weights = own.new_empty(*query.shape[:-1], own.shape[-1]) if weights is None else weights
                weights[:, every] = own
        context = contexts[0]
        if len(contexts) > 1:
            order = torch.tensor([head for _, heads in self.layouts for head in heads]).argsort()
            context = torch.cat(contexts, dim=1)[:, order.to(query.device)]
        return context, weights


class WindowAttention(LayoutAttention):
    """The pattern "window"; for its options, see ``Window``."""

    layout = Window

    def __init__(
        self,
        config: VaswaniConfig,
        layer_idx: int,
        kind: str,
        is_causal: bool,
        gain: float,
        *,
        window: int | list[int],
        dilation: int | list[int] = 1,
    ) -> None:
        super().__init__(config, layer_idx, kind, is_causal, gain, window=window, dilation=dilation)


class BlockLocalAttention(LayoutAttention):
    """The pattern "block_local"; for its option, see ``BlockLocal``."""

    layout = BlockLocal

    def __init__(
        self, config: VaswaniConfig, layer_idx: int, kind: str, is_causal: bool, gain: float, *, block: int | list[int]
    ) -> None:
        super().__init__(config, layer_idx, kind, is_causal, gain, block=block)


LAYOUTS: dict[str, type[Layout]] = {"window": Window, "block_local": BlockLocal}

__all__ = ["LAYOUTS", "BlockLocal", "Layout", "Window"]
