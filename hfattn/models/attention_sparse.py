"""The patterns of Sparse Transformers (Child et al. 2019, section 4.3): exact, in a time of n √n.

A query sees a *local* part, the keys around it, and a *distant* part, some keys of the whole text, so that with blocks
of about √n positions any two positions are linked in two layers. A head sees both parts or one of them.

Shapes: ``…`` any batch dimensions, T queries, S keys, h heads, d width of a head, l length of a block.
"""

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import CacheLayerMixin, DynamicLayer

from .attention_windows import (
    Inputs,
    KeepingLayout,
    Layout,
    LayoutAttention,
    Window,
    blocks_first,
    delayed,
    real_column,
    scattered,
    without_delay,
)
from .configuration_layers import LayersConfig
from .modeling_vaswani import check_whole
from .strict_config import unknown_message

PARTS = ("both", "local", "distant")


def _check_part(part: str) -> None:
    if part not in PARTS:
        raise ValueError(unknown_message(str(part), PARTS, "a part of the pattern (part)"))


class Strided(Layout):
    """Query i sees the keys j with |i - j| < l (local) and those for which l divides i - j (distant); if it is causal,
    only those with j ≤ i (Child et al. 2019, section 4.3, with the local part of the authors' code).

    Args:
        stride: l.
        part: "both", "local" or "distant".
    """

    takes_bias = False
    block = 16  # for so few queries, it is faster to gather the keys of each

    def __init__(self, *, stride: int, part: str = "both") -> None:
        check_whole(1, stride=stride)
        _check_part(part)
        self.stride, self.part = stride, part

    def span(self, causal: bool) -> int:
        return 0

    def sees(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        distance = queries - keys
        local, distant = distance.abs() < self.stride, distance % self.stride == 0
        return {"both": local | distant, "local": local, "distant": distant}[self.part]

    def _attend_at_once(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend with each query to its own keys, of which there are about l + S / l (causal), or twice as many."""
        attention, query, prepared, value, real, _, causal, need_weights, dropout, _ = inputs
        num_queries, num_keys = query.shape[-2], value.shape[-2]
        offsets = self._offsets(num_keys, causal, value.device)
        places = torch.arange(num_keys - num_queries, num_keys, device=value.device)[:, None] + offsets  # (T, s)
        mask = (places >= 0) & (places < num_keys)
        places = places.clamp(0, num_keys - 1)
        if real is not None:
            mask = mask & real[..., 0, places]
        context, weights = attention(
            query[..., None, :],
            tuple(tensor[..., places, :] for tensor in prepared),
            value[..., places, :],
            mask[..., None, :],
            need_weights,
            dropout=dropout,
        )
        if weights is not None:
            weights = scattered(weights[..., 0, :], places, num_keys)
        return context[..., 0, :], weights

    def _offsets(self, num_keys: int, causal: bool, device: torch.device) -> torch.Tensor:
        """Return j - i of the keys that a query may see, in their order."""
        most, stride = num_keys - 1, self.stride
        local = range(1 - stride, 1 if causal else stride)
        distant = range(-(most // stride) * stride, 1 if causal else most + 1, stride)
        seen = {"both": {*local, *distant}, "local": local, "distant": distant}[self.part]
        return torch.tensor(sorted(seen), device=device)

    def _attend_in_blocks(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self.part == "local":
            return Window(window=self.stride)._attend_in_blocks(inputs)
        if self.part == "distant":
            window = Window(window=-(-inputs.value.shape[-2] // self.stride), dilation=self.stride)
            return window._attend_in_blocks(inputs)
        if inputs.attention.score.uses_mask or inputs.attention.distribution.compares_vectors:
            return self._attend_at_once(inputs)
        return self._attend_to_both(inputs)

    def _attend_to_both(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Compute energies by blocks (local) and by remainders modulo l (distant), and one distribution over both.

        The positions are written in rows of l: a row is a block, and a column the positions with the same remainder.
        """
        attention, query, (key, *_), value, real, _, causal, need_weights, dropout, _ = inputs
        num_queries, num_keys, stride = query.shape[-2], value.shape[-2], self.stride
        column = query.new_ones(num_keys, 1, dtype=torch.bool) if real is None else real_column(real, query, num_keys)
        query, key, value, there = map(self._rows, (query, key, value, column))  # (…, rows, l, width)
        num_rows, num_key_rows = query.shape[-3], key.shape[-3]
        earlier = num_key_rows - num_rows
        span = 2 * stride if causal else 3 * stride

        def around(rows: torch.Tensor) -> torch.Tensor:  # -> (…, rows of queries, span, width)
            padded = nn.functional.pad(rows.flatten(-3, -2), (0, 0, stride, span - 2 * stride))
            return padded.unfold(-2, span, stride).transpose(-1, -2)[..., earlier:, :, :]

        def columns(rows: torch.Tensor) -> torch.Tensor:  # and back
            return rows.transpose(-3, -2)

        steps = torch.arange(span, device=query.device)
        queries, keys = steps[:stride, None], steps - stride
        local = (queries - keys).abs() < stride
        key_rows = torch.arange(num_key_rows, device=query.device)
        rows = key_rows[earlier:, None, None]
        distant = key_rows != rows  # the key at the position of the query is in the local part
        if causal:
            local, distant = local & (keys <= queries), key_rows < rows
        masks = local & around(there).transpose(-1, -2), distant & columns(there).squeeze(-1)[..., None, :, :]
        energies = (
            attention.score(query, around(key), method="compare"),
            columns(attention.score(columns(query), columns(key), method="compare")),
        )
        weights = attention.distribution(torch.cat(energies, -1), torch.cat(masks, -1)).to(value.dtype)
        local_weights, distant_weights = nn.functional.dropout(weights, dropout).split([span, num_key_rows], -1)
        context = local_weights @ around(value) + columns(columns(distant_weights) @ columns(value))
        context = context.flatten(-3, -2)[..., -num_queries:, :]
        if not need_weights:
            return context, None
        local_weights, distant_weights = weights.split([span, num_key_rows], -1)
        width = (num_key_rows - 1) * stride + span
        dense = scattered(local_weights, rows * stride + steps, width)[..., stride : (num_key_rows + 1) * stride]
        of_columns = distant_weights.transpose(-1, -2).diag_embed()  # (…, rows of queries, rows of keys, l, l)
        dense = dense + of_columns.transpose(-3, -2).flatten(-2)
        return context, dense.flatten(-3, -2)[..., -num_queries:, -num_keys:]

    def _rows(self, tensor: torch.Tensor) -> torch.Tensor:
        """(…, S, width) -> (…, S / l, l, width), after zeros at the start."""
        return nn.functional.pad(tensor, (0, 0, -tensor.shape[-2] % self.stride, 0)).unflatten(-2, (-1, self.stride))


class Fixed(KeepingLayout):
    """A query sees the keys of its block of l positions (local), and the last c of each block (distant); if it is
    causal, only those up to its position (Child et al. 2019, section 4.3).

    Args:
        block: l. Blocks are counted from the first token that is not padding.
        last: c.
        part: "both", "local" or "distant".
    """

    def __init__(self, *, block: int, last: int = 1, part: str = "both") -> None:
        check_whole(1, block=block, last=last)
        _check_part(part)
        if last > block:
            raise ValueError(f"last is {last} and block is {block}; write at most {block}.")
        self.block = self.alignment = block
        self.last, self.part = last, part

    def span(self, causal: bool) -> int:
        return 0

    def sees(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        local = queries.div(self.block, rounding_mode="floor") == keys.div(self.block, rounding_mode="floor")
        distant = (keys % self.block >= self.block - self.last).expand_as(local)
        return {"both": local | distant, "local": local, "distant": distant}[self.part]

    def num_kept(self, count: int) -> int:
        return min(count, count // self.block * self.last + self.block - 1)

    def kept(self, count: int | torch.Tensor, number: int, device: torch.device) -> torch.Tensor:
        # Those of the block of the query, and the last c of each block before.
        newest_first = torch.arange(number - 1, -1, -1, device=device)
        before = newest_first - count % self.block  # in the blocks before
        block = count // self.block - 1 - before.div(self.last, rounding_mode="floor")
        distant = (block + 1) * self.block - 1 - before % self.last
        return torch.where(before < 0, count - 1 - newest_first, distant)

    def _attend_in_blocks(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend with each block of queries to the keys of its block, then to the last c of each other block."""
        attention, query, prepared, value, real, start, causal, need_weights, dropout, _ = inputs
        num_queries, num_keys, block = query.shape[-2], value.shape[-2], self.block
        ahead, lead = num_keys - num_queries, start % block
        num_blocks = -(-(num_keys + block - 1) // block)
        first = ahead // block  # earlier blocks have no query
        dim = -4 if query.ndim > 3 else -3

        def blocks(tensor: torch.Tensor) -> torch.Tensor:  # (…, h, S, width) -> (…, blocks, h, l, width)
            tensor = delayed(tensor, lead, num_blocks * block - num_keys)
            return blocks_first(tensor.unflatten(-2, (num_blocks, block)))

        def seen(tensor: torch.Tensor) -> torch.Tensor:  # -> (…, blocks of queries, h, l + c · blocks, width)
            every = blocks(tensor)
            own = every.narrow(dim, first, num_blocks - first)
            if self.part == "local":
                return own
            last = blocks_first(every[..., -self.last :, :]).flatten(-3, -2).unsqueeze(dim)
            return torch.cat([own, last.expand(*own.shape[:-2], -1, -1)], -2)

        queries = blocks(nn.functional.pad(query, (0, 0, ahead, 0))).narrow(dim, first, num_blocks - first)
        numbers, steps = torch.arange(num_blocks, device=query.device), torch.arange(block, device=query.device)
        rows = numbers[first:, None, None]
        places = rows * block + steps  # of the keys, (blocks of queries, 1, l + c · blocks)
        own = self.sees(steps[:, None], steps).expand(len(rows), -1, -1)
        if causal:
            own = own.tril()
        if self.part == "local":
            mask = own
        else:
            distant = (numbers[:, None] * block + steps[-self.last :]).flatten()
            places = torch.cat([places, distant.expand(len(rows), 1, -1)], -1)
            other = distant // block < rows if causal else distant // block != rows
            mask = torch.cat([own, other.expand(-1, block, -1)], -1)
        there = seen(real_column(real, query, num_keys)).transpose(-1, -2)
        context, weights = attention(
            queries,
            tuple(seen(tensor) for tensor in prepared),
            seen(value),
            (mask[:, None] if query.ndim > 3 else mask) & there,
            need_weights,
            dropout=dropout,
        )
        lead_of_queries = lead + ahead - first * block
        context = without_delay(blocks_first(context).flatten(-3, -2), lead_of_queries, num_queries, -2)
        if weights is not None:
            dense = scattered(blocks_first(weights), places, num_blocks * block).flatten(-3, -2)
            weights = without_delay(without_delay(dense, lead_of_queries, num_queries, -2), lead, num_keys, -1)
        return context, weights


class SparseAttention(LayoutAttention):
    """Base of the patterns of this file.

    Args:
        config, layer_idx, kind, is_causal, gain: see ``VaswaniAttention``.
        part: that of the layout, or "alternate": the local part for the first head, the distant part for the second,
            and so on.
        options: the other options of the layout; a list has one value for each head.
    """

    takes_bias = False

    def __init__(
        self,
        config: LayersConfig,
        layer_idx: int,
        kind: str,
        is_causal: bool,
        gain: float,
        *,
        part: str | list[str] = "both",
        **options: Any,
    ) -> None:
        if part == "alternate":
            part = [PARTS[1 + head % 2] for head in range(config.num_attention_heads)]
        super().__init__(config, layer_idx, kind, is_causal, gain, **options, part=part)


class StridedAttention(SparseAttention):
    """The pattern "strided"; for its options, see ``Strided`` and ``SparseAttention``."""

    layout = Strided

    def __init__(
        self,
        config: LayersConfig,
        layer_idx: int,
        kind: str,
        is_causal: bool,
        gain: float,
        *,
        stride: int | list[int],
        part: str | list[str] = "both",
    ) -> None:
        super().__init__(config, layer_idx, kind, is_causal, gain, stride=stride, part=part)

    def cache_layer(self) -> CacheLayerMixin:
        return DynamicLayer()


class FixedAttention(SparseAttention):
    """The pattern "fixed"; for its options, see ``Fixed`` and ``SparseAttention``.

    Raises:
        ValueError: the heads of a layer have blocks of several lengths, and the cache drops the keys of all of them.
    """

    layout = Fixed

    def __init__(
        self,
        config: LayersConfig,
        layer_idx: int,
        kind: str,
        is_causal: bool,
        gain: float,
        *,
        block: int,
        last: int | list[int] = 1,
        part: str | list[str] = "both",
    ) -> None:
        if isinstance(block, list):
            raise ValueError(f"block is {block!r}, but the heads of a layer have blocks of one length; write a number.")
        super().__init__(config, layer_idx, kind, is_causal, gain, block=block, last=last, part=part)
        self.keeping = Fixed(block=block, last=max(last) if isinstance(last, list) else last)


LAYOUTS: dict[str, type[Layout]] = {"strided": Strided, "fixed": Fixed}

__all__ = ["Fixed", "Strided"]
