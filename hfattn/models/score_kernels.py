"""Kernels of the scores: functions of all pairs of queries and keys that hold only a chunk of the pairs in memory.

Shapes: ``…`` any batch dimensions, which broadcast; T queries, S keys, H hidden width.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

# Numbers in one chunk of pairs (query, key). On a CPU a chunk should fit into the second-level cache; on an accelerator
# it should keep the device busy.
CHUNK_ELEMENTS = {"cpu": 2**18}
CHUNK_ELEMENTS_ELSEWHERE = 2**24


def widen(tensor: torch.Tensor) -> torch.Tensor:
    """Convert a half-precision tensor to float32; return any other tensor unchanged."""
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def full_precision(tensor: torch.Tensor) -> contextlib.AbstractContextManager:
    """Return a context in which autocast does not round the operands of a product."""
    if tensor.device.type == "meta":  # this device has no autocast
        return contextlib.nullcontext()
    return torch.autocast(tensor.device.type, enabled=False)


def can_read(tensor: torch.Tensor) -> bool:
    """Return whether the values of a tensor may decide what is computed, without waiting for an accelerator."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def broadcast(*shapes: torch.Size) -> torch.Size:
    """Return ``torch.broadcast_shapes``, faster for equal shapes, because a decoder needs it at every step."""
    return shapes[0] if all(shape == shapes[0] for shape in shapes[1:]) else torch.broadcast_shapes(*shapes)


def _row_chunks(query: torch.Tensor, key: torch.Tensor) -> Iterator[slice]:
    """Return ranges of queries such that a chunk of pairs (…, t, S, H) has about ``CHUNK_ELEMENTS`` elements."""
    batch = broadcast(query.shape[:-2], key.shape[:-2])
    row = max(1, math.prod(batch) * key.shape[-2] * key.shape[-1])
    rows = max(1, CHUNK_ELEMENTS.get(query.device.type, CHUNK_ELEMENTS_ELSEWHERE) // row)
    return (slice(start, start + rows) for start in range(0, query.shape[-2], rows))


def _sums(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return query[..., :, None, :] + key[..., None, :, :]  # (…, T, S, H)


class _Pairwise(torch.autograd.Function):
    """``function(q + k, *parameters)`` chunk by chunk; the backward pass computes each chunk again.

    ``torch.utils.checkpoint`` would need more memory on a CPU: the tensors that it keeps for each chunk lie between
    large blocks, which the allocator then cannot reuse.
    """

    @staticmethod
    def forward(
        ctx: Any,
        function: Callable[..., torch.Tensor],
        query: torch.Tensor,
        key: torch.Tensor,
        *parameters: torch.Tensor,
    ) -> torch.Tensor:
        ctx.save_for_backward(query, key, *parameters)
        ctx.function = function
        batch = broadcast(query.shape[:-2], key.shape[:-2])
        energies = query.new_empty(*batch, query.shape[-2], key.shape[-2])
        with full_precision(query):
            for rows in _row_chunks(query, key):
                energies[..., rows, :] = function(_sums(query[..., rows, :], key), *parameters)
        return energies

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, key, *parameters = ctx.saved_tensors
        shared = [tensor.detach().requires_grad_() for tensor in (key, *parameters)]
        totals = [torch.zeros_like(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32)) for tensor in shared]
        d_query = torch.empty_like(query)
        with full_precision(query):
            for rows in _row_chunks(query, key):
                queries = query[..., rows, :].detach().requires_grad_()
                with torch.enable_grad():
                    energies = ctx.function(_sums(queries, shared[0]), *shared[1:])
                d_query[..., rows, :], *parts = torch.autograd.grad(
                    energies, [queries, *shared], gradient[..., rows, :]
                )
                for total, part in zip(totals, parts, strict=True):
                    total += part
        return None, d_query, *(total.to(tensor.dtype) for total, tensor in zip(totals, shared, strict=True))


def pairwise(
    function: Callable[..., torch.Tensor], query: torch.Tensor, key: torch.Tensor, *parameters: torch.Tensor
) -> torch.Tensor:
    """Return ``function(q + k, *parameters)`` for all pairs of (…, T, H) and (…, S, H), as (…, T, S).

    ``function`` maps (…, t, S, H) to (…, t, S) for any t. Only one chunk of the sums exists at a time, so memory is
    O(T S + (T + S) H), forward and backward. Not differentiable twice.
    """
    dtype = torch.promote_types(query.dtype, key.dtype)
    query, key, *parameters = (tensor.to(dtype) for tensor in (query, key, *parameters))  # type: ignore[assignment]
    # One step of a decoder needs no chunks, and a compiler fuses the sum with the function.
    if query.shape[-2] == 1 or torch.compiler.is_compiling():
        return function(_sums(query, key), *parameters)
    return _Pairwise.apply(function, query, key, *parameters)


class _Additive(torch.autograd.Function):
    """v·tanh(q + k) for (N, T, H), (N, S, H) and v (H), chunk by chunk; the backward pass computes each tanh again.

    With h = tanh(q + k) and g the gradient of an energy: dv = Σ g h, dq = v ⊙ Σ_s g (1 - h²), dk = v ⊙ Σ_t g (1 - h²).
    Half precision is computed in float32, one chunk at a time.
    """

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(query, key, v)
        energies = query.new_empty(*query.shape[:2], key.shape[1])
        wide_key, wide_v = widen(key), widen(v)
        with full_precision(query):
            for rows in _row_chunks(query, key):
                h = (widen(query[:, rows, None]) + wide_key[:, None]).tanh_()  # (N, t, S, H)
                energies[:, rows] = h @ wide_v
        return energies

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        query, key, v = ctx.saved_tensors
        wide_key, wide_v = widen(key), widen(v)
        d_query, d_key, d_v = torch.empty_like(query), torch.zeros_like(wide_key), torch.zeros_like(wide_v)
        with full_precision(query):
            for rows in _row_chunks(query, key):
                h = (widen(query[:, rows, None]) + wide_key[:, None]).tanh_()  # (N, t, S, H)
                g = widen(gradient[:, rows])
                d_v += g.flatten() @ h.flatten(0, 2)
                slope = h.square_().neg_().add_(1).mul_(g[..., None])
                d_query[:, rows] = slope.sum(2) * wide_v
                d_key += slope.sum(1)
            d_key *= wide_v
        return d_query, d_key.to(key.dtype), d_v.to(v.dtype)


def additive_energies(query: torch.Tensor, key: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return v·tanh(q + k), (…, T, S), for projected queries (…, T, H) and keys (…, S, H), and v (H).

    Memory, forward and backward: O(T S + (T + S) H), never T S H. Not differentiable twice.
    """
    dtype = torch.promote_types(query.dtype, key.dtype)
    v = v.to(dtype)
    if query.shape[-2] == 1:  # one step of a decoder: it is twice as fast to keep the tanh
        return (torch.tanh(query + key) @ v)[..., None, :]
    if torch.compiler.is_compiling():  # a compiler fuses the sum, the tanh and the product
        return torch.tanh(_sums(query, key)) @ v
    batch = broadcast(query.shape[:-2], key.shape[:-2])
    query, key = (
        tensor.expand(*batch, -1, -1).reshape(math.prod(batch), *tensor.shape[-2:]).to(dtype) for tensor in (query, key)
    )
    return _Additive.apply(query, key, v).reshape(*batch, query.shape[1], key.shape[1])
