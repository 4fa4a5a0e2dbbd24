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
from typing import Any, ClassVar, NamedTuple

import torch
from torch import nn
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from .attention import Attention
from .attention_scores import Location
from .configuration_layers import POSITION_BIASES, LayersConfig
from .modeling_vaswani import VaswaniAttention, check_whole, copied_projection, rotate
from .score_kernels import can_read

Bias = Callable[..., torch.Tensor]


class Inputs(NamedTuple):
    """The arguments of ``Layout.__call__``, with the position of the first key."""

    attention: Attention
    query: torch.Tensor
    prepared: tuple[torch.Tensor, ...]
    value: torch.Tensor
    real: torch.Tensor | None
    start: int | torch.Tensor
    causal: bool
    need_weights: bool
    dropout: float
    bias: Bias | None


class Layout:
    """Which keys a query sees, and blocks that contain these pairs of queries and keys.

    Attributes:
        alignment: blocks of queries begin at multiples of this position. Positions are counted from the first token
            that is not padding.
        block: b.
        before: number of keys before a block that its queries may see.
        global_tokens: number of keys at the start of a text that all queries see.
        takes_bias: whether a bias can be added to its energies.
    """

    alignment = 1
    global_tokens = 0
    takes_bias = True
    block: int
    before: int

    def sees(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Return whether the query at a position sees the key at a position, earlier or later.

        Args:
            queries, keys: positions, in shapes that broadcast.
        """
        raise NotImplementedError

    def near(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Return ``sees`` without global tokens; only the distances matter to it, and the places in a block."""
        return self.sees(queries, keys)

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
        check_score(attention.score)
        if start is None:
            start = first_position(real)
        if bias is not None and not self.takes_bias:
            raise ValueError(
                "A bias of distances is given, and this pattern also compares positions far from each other; leave the "
                "bias out, or write the pattern 'full' or 'window'."
            )
        attend = self._attend_in_blocks
        if num_queries <= self.block or num_keys <= self.span(causal):  # blocks would compare more pairs
            attend = self._attend_at_once
        return attend(Inputs(attention, query, prepared, value, real, start, causal, need_weights, dropout, bias))

    def attend_at(
        self,
        attention: Attention,
        query: torch.Tensor,
        prepared: tuple[torch.Tensor, ...],
        value: torch.Tensor,
        *,
        queries: torch.Tensor,
        keys: torch.Tensor,
        real: torch.Tensor | None,
        causal: bool,
        need_weights: bool,
        dropout: float,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend at positions ``queries`` (…, T, 1) to keys at positions ``keys`` (…, 1, K), of which ``real`` are."""
        mask = self.sees(queries, keys) & (keys >= 0)
        if causal:
            mask = mask & (keys <= queries)
        if real is not None:
            mask = mask & real
        return attention(query, prepared, value, mask, need_weights, dropout=dropout)

    def _attend_at_once(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend with few queries, under a mask of the last keys."""
        attention, query, prepared, value, real, start, causal, need_weights, dropout, bias = inputs
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

    def _attend_in_blocks(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend with each block of b queries to the s keys around it."""
        attention, query, prepared, value, real, start, causal, need_weights, dropout, bias = inputs
        num_queries, num_keys = query.shape[-2], value.shape[-2]
        ahead = num_keys - num_queries
        lead = (start + ahead) % self.alignment
        has_heads = query.ndim > 3
        dim = -4 if has_heads else -3  # that of the blocks
        column = real_column(real, query, num_keys)
        if self.global_tokens:
            positions = torch.arange(num_keys, device=query.device)[:, None] + start
            column = column & (positions >= self.global_tokens)  # the others are compared with every block
            everywhere, global_mask = self._global_keys((value, *prepared), real, start, num_queries, dim, causal)
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
        seen = self.near(positions, keys)
        if causal:
            seen = seen & (keys <= positions)
        parts = []
        is_plain = real is None and (self.global_tokens == 0 or (isinstance(start, int) and start == 0))
        whole = self._whole_blocks(num_queries, ahead, lead, span) if is_plain else None
        bounds = sorted({0, num_blocks} | ({whole.start, whole.stop} if whole else set()))
        for blocks in itertools.starmap(range, itertools.pairwise(bounds)):
            rows = _rows(query, blocks.start * self.block, blocks.stop * self.block)
            # One mask for all blocks that lack no key needs no memory for each block.
            mask = seen if blocks == whole else seen & spans(column, blocks).transpose(-1, -2)
            values, *keys_of_part = (spans(tensor, blocks) for tensor in (value, *prepared_keys))
            if self.global_tokens:
                values, *keys_of_part = (
                    torch.cat([own, tensor.expand(*own.shape[:-2], -1, -1)], -2)
                    for own, tensor in zip((values, *keys_of_part), everywhere, strict=True)
                )
                of_blocks = global_mask.narrow(dim, blocks.start, len(blocks))
                of_blocks = seen.new_ones(1) if blocks == whole else of_blocks
                mask = torch.cat([mask, of_blocks.expand(*mask.shape[:-1], self.global_tokens)], -1)
            queries = blocks_first(rows.unflatten(-2, (len(blocks), self.block)))
            part = attention(
                queries,
                tuple(keys_of_part),
                values,
                mask,
                need_weights,
                dropout=dropout,
                bias=None if bias is None else bias(queries, span, self.before),
            )
            parts.append(part)
        weights = torch.cat([part for _, part in parts if part is not None], dim=dim) if need_weights else None
        # The heads are last but one, as in the fused kernels and in the output of the layer, so that there is one copy.
        contexts = [part.transpose(-2, -3) if has_heads else part for part, _ in parts]
        context = torch.cat(contexts, dim=dim).flatten(dim, dim + 1)
        context = without_delay(context.transpose(-2, -3) if has_heads else context, lead, num_queries, -2)
        if weights is not None:
            weights, of_global = blocks_first(weights).split([span, self.global_tokens], -1)  # (…, h, n, b, s or g)
            columns = torch.arange(num_blocks, device=query.device)[:, None, None] * self.block + keys + self.before
            width = num_blocks * self.block + span - self.block
            dense = weights.new_zeros(*weights.shape[:-1], width).scatter(-1, columns.expand_as(weights), weights)
            dense = nn.functional.pad(dense.flatten(-3, -2), (-start_padding, -end_padding))
            weights = without_delay(without_delay(dense, lead, num_queries, -2), lead, num_keys, -1)
            if self.global_tokens:
                places = global_places(self.global_tokens, start, value)
                weights = weights + scattered(of_global.flatten(-3, -2)[..., :num_queries, :], places, num_keys)
        return context, weights

    def _global_keys(
        self,
        tensors: tuple[torch.Tensor, ...],
        real: torch.Tensor | None,
        start: int | torch.Tensor,
        num_queries: int,
        dim: int,
        causal: bool,
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Return the first g rows of (…, h, S, width), with a dimension for the blocks, and a mask (…, n, 1, b, g)."""
        num_keys = tensors[0].shape[-2]
        places = global_places(self.global_tokens, start, tensors[0])
        numbers = torch.arange(self.global_tokens, device=places.device)
        there = places == numbers - start  # a shorter text has fewer
        if real is not None:
            there = there & at(real.transpose(-1, -2), places).transpose(-1, -2)
        num_blocks = -(-num_queries // self.block)
        queries = torch.arange(num_blocks * self.block, device=places.device) + num_keys - num_queries
        queries = queries.view(num_blocks, *[1] * (-3 - dim), self.block, 1)
        of_blocks, there = (each[(None,) * (-dim - 1 - each.ndim)].unsqueeze(dim) for each in (places, there))
        behind = of_blocks <= queries
        mask = there & (behind if causal else torch.ones_like(behind))
        return [at(tensor, places).unsqueeze(dim) for tensor in tensors], mask

    def _whole_blocks(self, num_queries: int, ahead: int, lead: int | torch.Tensor, span: int) -> range | None:
        """Return the blocks whose s keys all exist and are not global, if no key is padding; None if there are none."""
        if not isinstance(lead, int):
            return None
        first = -(-max(lead + self.before + self.global_tokens - ahead, 0) // self.block)
        stop = (lead + num_queries - (span - self.before - self.block)) // self.block
        return range(first, stop) if first < stop else None


class KeepingLayout(Layout):
    """A layout in which later queries see some of the earlier keys, not the last ones only."""

    takes_bias = False

    def num_kept(self, count: int) -> int:
        """Return how many keys among ``count`` or fewer later queries may see, at most."""
        raise NotImplementedError

    def kept(self, count: int | torch.Tensor, number: int, device: torch.device) -> torch.Tensor:
        """Return the positions of ``number`` keys, in their order, among which are those that a query after ``count``
        keys may see; negative if there are fewer.

        Args:
            count: a number, or (…, 1).
        """
        raise NotImplementedError

    def _attend_at_once(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor | None]:
        attention, query, prepared, value, real, start, causal, need_weights, dropout, _ = inputs
        num_queries, num_keys = query.shape[-2], value.shape[-2]
        earlier = num_keys - num_queries
        steps = torch.arange(earlier, num_keys, device=value.device)[None] + start  # (…, 1, T)
        kept = self.kept(earlier + start, self.num_kept(earlier), value.device)
        keys = torch.cat([kept.expand(*steps.shape[:-1], -1), steps], -1)  # (…, 1, K)
        places = (keys - start).clamp(min=0)
        context, weights = self.attend_at(
            attention,
            query,
            tuple(at(tensor, places) for tensor in prepared),
            at(value, places),
            queries=steps.transpose(-1, -2),
            keys=keys,
            real=None if real is None else at(real.transpose(-1, -2), places).transpose(-1, -2),
            causal=causal,
            need_weights=need_weights,
            dropout=dropout,
        )
        return context, None if weights is None else scattered(weights, places, num_keys)


def at(tensor: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the rows of (…, S, width) at (…, 1, K) places."""
    places = places[(None,) * (tensor.ndim - places.ndim)]
    return torch.take_along_dim(tensor, places.transpose(-1, -2), dim=-2)


def scattered(weights: torch.Tensor, places: torch.Tensor, num_keys: int) -> torch.Tensor:
    """Return weights (…, T, K) of keys at (…, 1, K) places as (…, T, S); keys that are not seen may share a place."""
    dense = weights.new_zeros(*weights.shape[:-1], num_keys)
    return dense.scatter_add(-1, places.expand_as(weights), weights)


def real_keys(attention_mask: torch.Tensor | None) -> tuple[torch.Tensor | None, int | torch.Tensor]:
    """Return which keys are tokens, (B, 1, 1, S), and the position of the first key, (B, 1, 1, 1).

    If no key is padding, they are None and 0.
    """
    if attention_mask is None or (can_read(attention_mask) and bool(attention_mask.all())):
        return None, 0
    real = attention_mask.bool()[:, None, None]
    return real, first_position(real)


def check_score(score: nn.Module) -> None:
    """Check that a score does not depend on the index of a key.

    Raises:
        ValueError: it does.
    """
    if isinstance(score, Location):
        raise ValueError(
            "The score 'location' needs the index of each key, and this pattern compares a query with some keys only; "
            "write another score, or the pattern 'full'."
        )


def first_position(real: torch.Tensor | None) -> int | torch.Tensor:
    """Return the position of the first key, such that the first token is at position 0.

    Args:
        real: (…, 1, S), True at tokens.

    Returns:
        (…, 1, 1); 0 if there is no padding.
    """
    return 0 if real is None else -real.int().argmax(-1, keepdim=True)


def global_places(number: int, first: int | torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return which rows of (…, T, width) have the positions 0, 1, …, as (…, 1, number).

    Args:
        first: position of the first row.
    """
    return (torch.arange(number, device=tensor.device)[None] - first).clamp(0, tensor.shape[-2] - 1)


def with_global_rows(
    outputs: tuple[torch.Tensor, torch.Tensor | None],
    rows: tuple[torch.Tensor, torch.Tensor | None],
    first: int | torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Replace the context (…, T, d) and the weights (…, T, S) of positions 0, 1, … by ``rows``.

    Args:
        first: position of the first query.
    """
    (context, weights), (of_rows, weights_of_rows) = outputs, rows
    positions = torch.arange(context.shape[-2], device=context.device)[None] + first  # (…, 1, T)
    number = of_rows.shape[-2]
    places = positions.clamp(0, number - 1)
    replaced = ((positions >= 0) & (positions < number)).transpose(-1, -2)
    context = torch.where(replaced, at(of_rows, places).to(context.dtype), context)
    if weights is not None and weights_of_rows is not None:
        weights = torch.where(replaced, at(weights_of_rows, places), weights)
    return context, weights


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


class Window(KeepingLayout):
    """Query i sees the keys j with |i - j| < w; causal: 0 ≤ i - j < w (Beltagy et al. 2020, section 3.1).

    Args:
        window: w, which includes the key at the position of the query.
        dilation: δ: of the keys with |i - j| < δ w, the query sees those for which δ divides i - j.
        global_tokens: g: every query also sees the first g keys, and the first g queries see every key.
    """

    block = 128

    def __init__(self, *, window: int, dilation: int = 1, global_tokens: int = 0) -> None:
        check_whole(1, window=window, dilation=dilation)
        if global_tokens != 0:
            check_whole(1, global_tokens=global_tokens)
            if dilation > 1:
                raise ValueError(
                    f"dilation is {dilation} and global_tokens {global_tokens}, which a window cannot have together; "
                    "leave one of them out."
                )
        self.window, self.dilation, self.global_tokens = window, dilation, global_tokens
        self.takes_bias = global_tokens == 0
        self.before = dilation * (window - 1)

    def span(self, causal: bool) -> int:
        # Dilated, a block is compared with the keys of its remainder only, and there are no blocks here.
        return super().span(causal) if self.dilation == 1 else 0

    def sees(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        is_global = (keys < self.global_tokens) | (queries < self.global_tokens)
        return self.near(queries, keys) | is_global

    def near(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        distance = queries - keys
        return (distance.abs() <= self.before) & (distance % self.dilation == 0)

    def num_kept(self, count: int) -> int:
        return min(count, self.global_tokens + self.before)

    def kept(self, count: int | torch.Tensor, number: int, device: torch.device) -> torch.Tensor:
        # The first g, and the last ones; or all, if there are no more.
        places = torch.arange(number, device=device)
        last = places + count - number
        return torch.where((places < self.global_tokens) & (places < last), places, last)

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
        """Attend as in ``Layout``, which computes the rows of global tokens as those of others."""
        if start is None:
            start = first_position(real)
        context, weights = super().__call__(
            attention,
            query,
            prepared,
            value,
            real,
            start=start,
            causal=causal,
            need_weights=need_weights,
            dropout=dropout,
            bias=bias,
        )
        if causal or self.global_tokens == 0 or query.shape[-2] == 0:
            return context, weights
        first = start + value.shape[-2] - query.shape[-2]  # position of the first query
        places = global_places(self.global_tokens, first, query)
        rows = attention(at(query, places), prepared, value, real, need_weights, dropout=dropout)
        return with_global_rows((context, weights), rows, first)

    def _attend_at_once(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor | None]:
        kind = KeepingLayout if self.global_tokens else Layout
        return kind._attend_at_once(self, inputs)

    def _attend_in_blocks(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self.dilation == 1:
            return super()._attend_in_blocks(inputs)
        attention, query, prepared, value, real, _, causal, need_weights, dropout, bias = inputs
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
        check_whole(1, block=block)
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
        if self.sliding_window == 1 and not self.record_past:  # transformers would keep all of them
            self.keys, self.values = keys[..., :0, :], values[..., :0, :]
        return keys, values

    def crop(self, tokens_to_remove: int) -> None:
        super().crop(tokens_to_remove)
        if self.sliding_window == 1:
            self.keys, self.values = self.keys[..., :0, :], self.values[..., :0, :]

    @property
    def state(self) -> tuple[torch.Tensor, ...]:
        """The keys and values; no tensors before the first step."""
        return (self.keys, self.values) if self.is_initialized else ()

    def restore(self, state: tuple[torch.Tensor, ...], num_steps: int) -> None:
        """Set the ``state`` of an empty cache, after a number of steps."""
        if state:
            self.update(*state)
        self.cumulative_length = num_steps

    def detach(self) -> None:
        """Detach keys and values from the graph."""
        if self.is_initialized:
            self.keys, self.values = self.keys.detach(), self.values.detach()


class KeptLayer(DynamicLayer):
    """Cache of the keys and values that later queries may see."""

    is_sliding = True  # the mask of all pairs, for other layers of the model, is not made from the length of this one
    is_croppable = False
    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.seq_length = 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.seq_length += key_states.shape[-2]
        return super().update(key_states, value_states, *args, **kwargs)

    def keep(self, places: torch.Tensor) -> None:
        """Drop all keys but those at (B or 1, 1, 1, K) places."""
        self.keys, self.values = at(self.keys, places), at(self.values, places)

    def get_seq_length(self) -> int:
        return self.seq_length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.seq_length + query_length, 0

    def reset(self) -> None:
        super().reset()
        self.seq_length = 0

    def crop(self, tokens_to_remove: int) -> None:
        """Raise an error: keys that earlier queries saw are not stored."""
        raise ValueError(
            "The cache of this pattern cannot be cropped because it has dropped keys; run the model on the shorter "
            "text, and leave assistant_model and prompt_lookup_num_tokens out of generate()."
        )


class BlockwiseAttention(VaswaniAttention):
    """Self-attention of a layer with layouts; base of the patterns that compute it in blocks.

    Args:
        config, layer_idx, kind, is_causal, gain: see ``VaswaniAttention``.

    Raises:
        ValueError: the score needs the index of a key.
    """

    takes_padding_mask = True
    takes_bias = True
    keeping: KeepingLayout | None = None  # a layout whose kept keys contain those of all heads

    def __init__(self, config: LayersConfig, layer_idx: int, kind: str, is_causal: bool, gain: float) -> None:
        super().__init__(config, layer_idx, kind, is_causal, gain)
        check_score(self.attention.score)

    @property
    def layouts(self) -> list[tuple[Layout, list[int]]]:
        """Each layout, and the heads that have it."""
        raise NotImplementedError

    def cache_layer(self) -> CacheLayerMixin:
        if self.keeping is not None:
            return KeptLayer()
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
        key, value = self.repeated(key, value)
        num_steps, num_keys = query.shape[-2], key.shape[-2]
        layer = self.cache_of(past_key_values)
        total = num_keys if layer is None else layer.get_seq_length()
        real, start = real_keys(attention_mask)
        options: dict[str, Any] = {"need_weights": self.needs_weights(**kwargs), "dropout": self.weight_dropout}
        if self.keeping is not None and num_steps < total:
            context, weights = self._attend_to_kept(query, key, value, real, start, total, **options)
        else:
            context, weights = self.by_layout(
                query,
                key,
                value,
                real=None if real is None else real[..., total - num_keys :],
                start=total - num_keys + start,
                causal=self.is_causal,
                bias=bias,
                **options,
            )
            if weights is not None:
                # The keys that the cache has dropped are outside of the pattern.
                weights = nn.functional.pad(weights, (total - num_keys, 0))
        if isinstance(layer, KeptLayer):
            layer.keep(self._places(total - num_steps + start, num_keys - num_steps, num_steps, total, key.device))
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

    def _attend_to_kept(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        real: torch.Tensor | None,
        start: int | torch.Tensor,
        total: int,
        need_weights: bool,
        dropout: float,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend to the kept ones of ``total`` keys and those of these steps, at most a block of queries at a time."""
        assert self.keeping is not None
        num_steps = query.shape[-2]
        (kept_key, key), (kept_value, value) = (
            tensor.split([tensor.shape[-2] - num_steps, num_steps], -2) for tensor in (key, value)
        )
        contexts, all_weights = [], []
        seen = total - num_steps
        parts = (tensor.split(self.keeping.block, -2) for tensor in (query, key, value))
        for queries, new_key, new_value in zip(*parts, strict=True):
            number = queries.shape[-2]
            keys = self._positions(seen + start, kept_key.shape[-2], number, query.device)  # (B or 1, 1, 1, K)
            places = (keys - start).clamp(min=0)
            kept_key, kept_value = torch.cat([kept_key, new_key], -2), torch.cat([kept_value, new_value], -2)
            context, weights = self.by_layout(
                queries,
                kept_key,
                kept_value,
                Layout.attend_at,
                queries=keys[..., -number:].transpose(-1, -2),
                keys=keys,
                real=None if real is None else at(real.transpose(-1, -2), places).transpose(-1, -2),
                causal=True,
                need_weights=need_weights,
                dropout=dropout,
            )
            contexts.append(context)
            if weights is not None:
                all_weights.append(scattered(weights, places, total))
            kept = self._places(seen + start, kept_key.shape[-2] - number, number, seen + number, query.device)
            kept_key, kept_value = at(kept_key, kept), at(kept_value, kept)
            seen += number
        return torch.cat(contexts, -2), torch.cat(all_weights, -2) if need_weights else None

    def _positions(
        self, before: int | torch.Tensor, num_kept: int, num_steps: int, device: torch.device
    ) -> torch.Tensor:
        """Return the positions of the kept keys and of the next steps, (B or 1, 1, 1, K + T)."""
        assert self.keeping is not None
        steps = torch.arange(num_steps, device=device) + before
        kept = self.keeping.kept(before, num_kept, device)
        return torch.cat([kept, steps], -1).view(-1, 1, 1, num_kept + num_steps)

    def _places(
        self, before: int | torch.Tensor, num_kept: int, num_steps: int, total: int, device: torch.device
    ) -> torch.Tensor:
        """Return the places of the keys to keep after ``total`` steps among the kept keys and the last steps."""
        assert self.keeping is not None
        positions = self._positions(before, num_kept, num_steps, device)
        wanted = self._positions(before + num_steps, self.keeping.num_kept(total), 0, device)
        return torch.searchsorted(positions, wanted).clamp(max=num_kept + num_steps - 1)


class LayoutAttention(BlockwiseAttention):
    """Self-attention with a ``Layout`` whose options are numbers.

    Args:
        config, layer_idx, kind, is_causal, gain: see ``VaswaniAttention``.
        options: those of the layout; a list has one value for each head.
    """

    layout: ClassVar[type[Layout]]

    def __init__(
        self, config: LayersConfig, layer_idx: int, kind: str, is_causal: bool, gain: float, **options: Any
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
        self._layouts = [
            (self.layout(**dict(zip(options, own, strict=True))), indices) for own, indices in heads.items()
        ]

    @property
    def layouts(self) -> list[tuple[Layout, list[int]]]:
        return self._layouts


class WindowAttention(LayoutAttention):
    """The pattern "window"; for its options, see ``Window``.

    In an encoder, the rows of the global tokens have projections W^Q, W^K and W^V of their own, which start as copies
    (Beltagy et al. 2020, section 3.1). Other queries see the global keys through the ordinary ones.

    Raises:
        ValueError: the heads of a layer have several numbers of global tokens, or positions are a bias and there are
            global tokens; in a pass, other global tokens are given.
    """

    layout = Window

    def __init__(
        self,
        config: LayersConfig,
        layer_idx: int,
        kind: str,
        is_causal: bool,
        gain: float,
        *,
        window: int | list[int],
        dilation: int | list[int] = 1,
        global_tokens: int = 0,
    ) -> None:
        if isinstance(global_tokens, list):
            raise ValueError(
                f"global_tokens is {global_tokens!r}, but the heads of a layer have the same ones; write a number."
            )
        if global_tokens and config.positions in POSITION_BIASES:
            raise ValueError(
                f"positions is {config.positions!r}, a bias that depends on distances, and global tokens are at any "
                "distance; write other positions, or leave global_tokens out."
            )
        options = {"window": window, "dilation": dilation, "global_tokens": global_tokens}
        super().__init__(config, layer_idx, kind, is_causal, gain, **options)
        self.global_tokens = global_tokens
        if global_tokens and is_causal:
            widest = max(layout.before for layout, _ in self.layouts) + 1
            self.keeping = Window(window=widest, global_tokens=global_tokens)
        elif global_tokens:
            self.global_q_proj, self.global_k_proj, self.global_v_proj = map(
                copied_projection, (self.q_proj, self.k_proj, self.v_proj)
            )

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        key_value_states: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        rotation: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend as in ``VaswaniAttention``."""
        if kwargs.get("global_attention_mask") is not None:
            raise ValueError(
                "global_attention_mask marks the global tokens of a Longformer of transformers, and here the first "
                "tokens are global; leave it out, and write their number as global_tokens of the pattern."
            )
        if self.global_tokens and not self.is_causal and hidden_states.shape[1] > 0:
            kwargs["global_rows"] = self._global_rows(hidden_states, attention_mask, rotation, **kwargs)
        return super().forward(
            hidden_states, attention_mask, key_value_states, past_key_values, rotation=rotation, **kwargs
        )

    def _global_rows(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        rotation: torch.Tensor | None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the context (B, h, g, d) of the global tokens, and their weights (B, h, g, S) or None."""
        real, start = real_keys(attention_mask)
        places = global_places(self.global_tokens, start, hidden_states)  # (1, g) or (B, 1, 1, g)
        query = self._heads(self.global_q_proj(at(hidden_states, places.view(-1, 1, self.global_tokens))))
        key, value = self._heads(self.global_k_proj(hidden_states)), self._heads(self.global_v_proj(hidden_states))
        if rotation is not None:
            query, key = rotate(query, at(rotation, places)), rotate(key, rotation)
        key, value = self.repeated(key, value)
        return self.attention(
            query,
            self.attention.prepare(key),
            value,
            real,
            self.needs_weights(**kwargs),
            dropout=self.weight_dropout,
        )

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        past_key_values: Cache | None = None,
        global_rows: tuple[torch.Tensor, torch.Tensor | None] | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        # The layouts compute the rows of global tokens as those of others, because ``Layout`` does.
        context, weights = super().attend(query, key, value, attention_mask, past_key_values, **kwargs)
        if global_rows is None:
            return context, weights
        outputs = context.transpose(1, 2), weights
        context, weights = with_global_rows(outputs, global_rows, real_keys(attention_mask)[1])
        return context.transpose(1, 2), weights


class BlockLocalAttention(LayoutAttention):
    """The pattern "block_local"; for its option, see ``BlockLocal``."""

    layout = BlockLocal

    def __init__(
        self, config: LayersConfig, layer_idx: int, kind: str, is_causal: bool, gain: float, *, block: int | list[int]
    ) -> None:
        super().__init__(config, layer_idx, kind, is_causal, gain, block=block)


LAYOUTS: dict[str, type[Layout]] = {"window": Window, "block_local": BlockLocal}

__all__ = ["LAYOUTS", "BlockLocal", "Layout", "Window"]
