"""Attention(q, D) = Σ g(f(q, k_i)) v_i: a score f and a distribution g, chosen independently.

Shapes: ``…`` any batch dimensions, T queries, S keys; queries (…, T, d_q), keys (…, S, d_k), values (…, S, d_v), masks
(boolean, True = may be attended) and weights (…, T, S).
"""

import contextlib
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from .attention_distributions import DISTRIBUTIONS, MORE_DISTRIBUTIONS, Distribution, Softmax
from .attention_scores import MORE_SCORES, SCORES, InnerProduct, Parametric, Score, options_of
from .score_kernels import broadcast, can_read, full_precision
from .strict_config import class_by_name, unknown_message


def _make(kind: type, what: str, options: Mapping[str, Any], **widths: int) -> Any:
    known = [name for name in options_of(kind) if name not in widths]
    for name in (each for each in options if each not in known):
        raise ValueError(unknown_message(name, known, f"an option of {what}"))
    return kind(**widths, **options)


def find_score(name: str) -> type[Score]:
    """Return the class of a score by its name, or by the file and name of a custom class.

    Raises:
        ValueError: there is no such score.
    """
    return class_by_name(SCORES, name, Score, "a score", MORE_SCORES)


def make_score(score: str | Score, query_size: int, key_size: int, options: Mapping[str, Any] | None = None) -> Score:
    """Return a score by its name and options, or the given module.

    Raises:
        ValueError: the name or an option is unknown, the score does not support the widths, or options are given with a
            module.
    """
    if isinstance(score, str):
        kind = find_score(score)
        return _make(kind, f"the score {score!r}", options or {}, query_size=query_size, key_size=key_size)
    if options:
        raise ValueError("score_options belong to the name of a score; a module already has its own.")
    if not isinstance(score, nn.Module):
        raise ValueError(f"The score is {score!r}; pass a name, such as 'scaled_dot', or a module.")
    return score


def make_distribution(
    distribution: str | Distribution, query_size: int, key_size: int, options: Mapping[str, Any] | None = None
) -> Distribution:
    """Return a distribution by its name and options, or the given module; errors as in ``make_score``."""
    if isinstance(distribution, str):
        kind = class_by_name(DISTRIBUTIONS, distribution, Distribution, "a distribution", MORE_DISTRIBUTIONS)
        widths = {"query_size": query_size, "key_size": key_size} if kind.compares_vectors else {}
        return _make(kind, f"the distribution {distribution!r}", options or {}, **widths)
    if options:
        raise ValueError("distribution_options belong to the name of a distribution; a module already has its own.")
    if not isinstance(distribution, nn.Module):
        raise ValueError(f"The distribution is {distribution!r}; pass a name, such as 'softmax', or a module.")
    return distribution


def is_faster_unfused(query: torch.Tensor, keys: torch.Tensor, training: bool, dropout: float = 0.0) -> bool:
    """Return whether fused kernels are slow, on a CPU: bfloat16 with dropout or training to 181 keys; oneDNN to 362."""
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else query.dtype
    by_onednn = not torch.compiler.is_compiling() and torch.backends.mkldnn.matmul.fp32_precision == "bf16"  # type: ignore[attr-defined]
    of_bfloat16 = math.inf if dropout else 2**15 * training
    most = {torch.bfloat16: of_bfloat16, torch.float32: 2**17 * by_onednn}.get(dtype, 0)
    return query.device.type == "cpu" and 0 < query.shape[-2] * keys.shape[-2] <= most


class Attention(nn.Module):
    """One attention: a score, a distribution, and the weighted sum of the values.

    Args:
        query_size, key_size: widths d_q and d_k.
        score, distribution: a name of ``SCORES`` and of ``DISTRIBUTIONS``, a custom class such as
            "my_scores.LowRank", or a module.
        score_options, distribution_options: their options by name, if they are given by name.

    Raises:
        ValueError: a name is unknown, or the score does not support the widths; the message suggests a correction.
    """

    def __init__(
        self,
        query_size: int,
        key_size: int,
        score: str | Score = "scaled_dot",
        distribution: str | Distribution = "softmax",
        score_options: Mapping[str, Any] | None = None,
        distribution_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.query_size, self.key_size = query_size, key_size
        self.score = make_score(score, query_size, key_size, score_options)
        self.distribution = make_distribution(distribution, query_size, key_size, distribution_options)

    def initialize_(self) -> None:
        """Initialize all parameters that were not loaded from a checkpoint."""
        for module in (*self.score.modules(), *self.distribution.modules()):
            if isinstance(module, Parametric):
                module.initialize_()

    def prepare(self, key: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return tensors (…, S, some width) that depend only on the keys (…, S, d_k), computed once per source.

        Raises:
            ValueError: the keys have another width.
        """
        check_vectors("Keys", key, "key_size", self.key_size)
        return self.score(key, method="prepare"), *self.distribution.prepare(key)

    def forward(
        self,
        query: torch.Tensor,
        prepared: tuple[torch.Tensor, ...],
        value: torch.Tensor,
        mask: torch.Tensor | None = None,
        need_weights: bool = True,
        multiplier: torch.Tensor | None = None,
        dropout: float = 0.0,
        bias: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend with queries (…, T, d_q) to values (…, S, d_v) through prepared keys.

        Args:
            prepared: return value of ``prepare``.
            mask: boolean, broadcastable to (…, T, S), True where a query may attend.
            need_weights: return the weights. If False, the score is an inner product, and the distribution is softmax,
                fused kernels compute the context of several queries without a (T, S) matrix, unless they are slower.
            multiplier: factor on the weights, broadcastable to (…, T, S), after the distribution.
            dropout: probability of dropping a weight from the sum.
            bias: finite numbers, broadcastable to (…, T, S), that are added to the energies before the distribution.

        Returns:
            Context (…, T, d_v), and weights (…, T, S) or None. A query without any key has weights and context zero.

        Raises:
            ValueError: shapes do not match, the mask is not boolean, or the bias has no floating-point numbers.
        """
        if isinstance(prepared, torch.Tensor):
            raise ValueError("prepared is a tensor; pass the tuple that prepare(key) returns.")
        self._check(query, prepared[0], value)
        if mask is not None:
            mask = checked_mask(mask, query, prepared[0])
        if bias is not None:
            bias = _checked_bias(bias, query, prepared[0])
        # For one query, the matrix is one row, and fused kernels cost more than they save.
        fused = not need_weights and multiplier is None and query.shape[-2] > 1
        fused = fused and not is_faster_unfused(query, prepared[0], self.training, dropout)
        if fused and isinstance(self.distribution, Softmax) and isinstance(self.score, InnerProduct):
            with full_precision(query) if self.score.precise else contextlib.nullcontext():
                left, right = self.score(query, prepared[0], method="factors")
                return _fused(left, right, value, mask, dropout, bias), None
        energies = self.score(query, prepared[0], mask, method="compare")
        if bias is not None:
            energies = energies + bias
        weights = self.distribution(energies, mask, query, prepared[1:])
        if multiplier is not None:
            weights = weights * multiplier
        weights = weights.to(value.dtype)
        context = nn.functional.dropout(weights, dropout) @ value if dropout else weights @ value
        return context, weights if need_weights else None

    def _check(self, query: torch.Tensor, keys: torch.Tensor, value: torch.Tensor) -> None:
        check_vectors("Queries", query, "query_size", self.query_size)
        check_vectors("Values", value)
        if keys.shape[-2] != value.shape[-2]:
            raise ValueError(f"There are {keys.shape[-2]} keys and {value.shape[-2]} values; pass one for each key.")
        if not query.shape[:-2] == keys.shape[:-2] == value.shape[:-2]:
            try:
                torch.broadcast_shapes(query.shape[:-2], keys.shape[:-2], value.shape[:-2])
            except RuntimeError:
                raise ValueError(
                    f"The batch dimensions of query {tuple(query.shape)}, key {(*keys.shape[:-1], self.key_size)} and "
                    f"value {tuple(value.shape)} do not broadcast; give them the same ones."
                ) from None


def check_vectors(what: str, tensor: torch.Tensor, option: str = "", width: int | None = None) -> None:
    """Check that a tensor has the shape (…, positions, width); broadcasting would take a batch for positions."""
    if tensor.ndim < 2:
        raise ValueError(
            f"{what} have the shape {tuple(tensor.shape)}; pass (…, positions, features), such as vector[None]."
        )
    if width is not None and tensor.shape[-1] != width:
        raise ValueError(f"{what} have {tensor.shape[-1]} features; this attention was made for {option}={width}.")


def check_boolean(mask: torch.Tensor) -> None:
    if mask.dtype != torch.bool:
        raise ValueError(
            f"The mask is {mask.dtype}; pass a boolean one, True where a query may attend, such as mask.bool()."
        )


def checked_mask(mask: torch.Tensor, query: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Return the mask with at least the two dimensions (T, S), each of which may be 1."""
    check_boolean(mask)
    return _checked_pairs("mask", mask, query, keys, "; a padding mask (B, S) is passed as mask[:, None]")


def _checked_bias(bias: torch.Tensor, query: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Return the bias with at least the two dimensions (T, S), each of which may be 1."""
    if not bias.is_floating_point():
        raise ValueError(
            f"The bias is {bias.dtype}; pass numbers that are added to the energies, such as bias.float(); a "
            "mask is another argument."
        )
    return _checked_pairs("bias", bias, query, keys)


def _checked_pairs(
    what: str, tensor: torch.Tensor, query: torch.Tensor, keys: torch.Tensor, advice: str = ""
) -> torch.Tensor:
    full = (*broadcast(query.shape[:-2], keys.shape[:-2]), query.shape[-2], keys.shape[-2])
    sizes = zip(reversed(tensor.shape), reversed(full), strict=False)
    if tensor.ndim > len(full) or any(size not in (1, whole) for size, whole in sizes):
        raise ValueError(
            f"The {what} has the shape {tuple(tensor.shape)}, which does not broadcast to (…, T, S) = {full}{advice}."
        )
    return tensor if tensor.ndim > 1 else tensor[(None,) * (2 - tensor.ndim)]


def _four_dimensions(tensor: torch.Tensor, batch: torch.Size) -> torch.Tensor:
    """Reshape (…, L, d) to (B, heads, L, d), the shape that fused kernels require."""
    tensor = tensor.expand(*batch, *tensor.shape[-2:])
    if len(batch) < 2:
        return tensor.reshape(math.prod(batch), 1, *tensor.shape[-2:])
    return tensor.flatten(0, -4)


def _fused(
    left: torch.Tensor,
    right: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """Return the context of softmax(left · right + bias) without a (T, S) matrix of energies or weights."""
    batch = broadcast(left.shape[:-2], right.shape[:-2], value.shape[:-2])
    dtype = torch.promote_types(torch.promote_types(left.dtype, right.dtype), value.dtype)
    width = left.shape[-1]
    if width != value.shape[-1]:
        # The kernels need one width for all three: pad with zeros, to a multiple of 8, which aligns the rows.
        width = math.ceil(max(width, value.shape[-1]) / 8) * 8
    q, k, v = (
        # Without the check, pad copies: the keys of overlapping windows are a view of less memory.
        _four_dimensions(
            nn.functional.pad(tensor, (0, missing)) if (missing := width - tensor.shape[-1]) else tensor, batch
        )
        for tensor in (left.to(dtype), right.to(dtype), value.to(dtype))
    )
    attended = None
    added = None if bias is None else bias.to(dtype)
    if mask is not None:
        attended = mask.any(-1, keepdim=True)
        whole = can_read(attended) and bool(attended.all())
        if added is None:
            added = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
        # A softmax over no key is NaN: a row without any key attends to all of them here, and is set to zero below.
        # As numbers, before it is repeated for heads and blocks: the kernel would convert all the copies.
        added = added.masked_fill(~mask & attended, -math.inf)
        attended = None if whole else attended
    if added is not None:
        added = _four_dimensions(added.expand(*added.shape[:-1], right.shape[-2]), batch)
    context = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=added, dropout_p=dropout, scale=1.0)
    context = context[..., : value.shape[-1]].reshape(*batch, left.shape[-2], value.shape[-1]).to(value.dtype)
    return context if attended is None else context.masked_fill(~attended, 0)


__all__ = ["Attention", "is_faster_unfused"]
