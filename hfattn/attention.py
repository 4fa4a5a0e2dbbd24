"""Attention as a function (``attend``), and every score, distribution and module of attention.

Code that the models use is defined in ``hfattn.models``, so that it is saved with them.

Shapes: ``…`` any batch dimensions, T queries, S keys; queries (…, T, d_q), keys (…, S, d_k), values (…, S, d_v).
"""

from collections.abc import Mapping
from typing import Any

import torch

from . import attention_modules
from .attention_modules import *  # noqa: F403
from .models import (
    attention,
    attention_distances,
    attention_distributions,
    attention_local,
    attention_memory,
    attention_pooling,
    attention_scores,
    attention_sparse,
    attention_windows,
)
from .models.attention import *  # noqa: F403
from .models.attention import Attention, check_vectors, checked_mask, find_score
from .models.attention_distances import *  # noqa: F403
from .models.attention_distributions import *  # noqa: F403
from .models.attention_distributions import Distribution
from .models.attention_local import *  # noqa: F403
from .models.attention_memory import *  # noqa: F403
from .models.attention_memory import Segments
from .models.attention_pooling import *  # noqa: F403
from .models.attention_scores import *  # noqa: F403
from .models.attention_scores import Parametric, Score, options_of, required_options
from .models.attention_sparse import *  # noqa: F403
from .models.attention_windows import *  # noqa: F403
from .models.configuration_layers import PATTERNS
from .models.strict_config import unknown_message

# Every score and distribution by its name.
SCORES = {
    **attention_scores.SCORES,
    **{name: vars(attention_distances)[path.split(".")[1]] for name, path in attention_scores.MORE_SCORES.items()},
}
DISTRIBUTIONS = {
    **attention_distributions.DISTRIBUTIONS,
    "compositional": attention_distances.Compositional,
}
# The patterns that have no weights of their own.
LAYOUTS = {**attention_windows.LAYOUTS, **attention_sparse.LAYOUTS, "memory": Segments}


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score: str | Score = "scaled_dot",
    distribution: str | Distribution = "softmax",
    mask: torch.Tensor | None = None,
    *,
    need_weights: bool = True,
    score_options: Mapping[str, Any] | None = None,
    distribution_options: Mapping[str, Any] | None = None,
    parameters: Mapping[str, torch.Tensor] | None = None,
    multiplier: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    pattern: str = "full",
    pattern_options: Mapping[str, Any] | None = None,
    causal: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Attention as a function: context (…, T, d_v) and weights (…, T, S) of queries (…, T, d_q) over a dictionary.

    Args:
        key, value: (…, S, d_k) and (…, S, d_v).
        score, distribution: a name of ``SCORES`` and of ``DISTRIBUTIONS``, or a module. The name ``hard`` always
            samples; pass ``Hard().eval()`` to select the largest energy.
        mask: boolean, broadcastable to (…, T, S), True where a query may attend. Values at masked positions must be
            finite.
        need_weights: whether to return the weights (see ``Attention.forward``); if False, None is returned instead.
        score_options, distribution_options: options of a score or a distribution given by name.
        parameters: tensors for the parameters of a score or a distribution given by name. Other parameters get neutral
            values: an identity matrix, a zero bias, a vector v of ones. For example, ``general`` then equals ``dot``.
        multiplier: factor on the weights, after the distribution.
        bias: numbers that are added to the energies, before the distribution, broadcastable to (…, T, S).
        pattern: "full", or a name of ``LAYOUTS``: which keys a query sees. Without the weights, no (T, S) matrix is
            computed. The mask is then one of the keys, broadcastable to (…, 1, S), and there is neither a multiplier
            nor a bias.
        pattern_options: options of the pattern, such as ``{"window": 256}``.
        causal: hide the keys after a query. As with a pattern, T ≤ S, and the last query is at the position of the last
            key.

    Raises:
        ValueError: a name is unknown, shapes do not match, or a parameter has no neutral value.
    """
    parameters = parameters or {}
    for what, tensor in (("Queries", query), ("Keys", key), ("Values", value)):
        check_vectors(what, tensor)
    if isinstance(score, str):
        kind = find_score(score)
        score_options = {**kind.options_from(parameters), **(score_options or {})}
    with torch.device("meta"):  # so that no random number is drawn for values that are replaced below
        attention = Attention(query.shape[-1], key.shape[-1], score, distribution, score_options, distribution_options)
    own = {"score": isinstance(score, str), "distribution": isinstance(distribution, str)}
    for name in (name for name, made_here in own.items() if made_here):
        part = getattr(attention, name)
        part.to_empty(device=query.device).to(query.dtype)
        for module in part.modules():
            if isinstance(module, Parametric):
                module.neutral_(given=parameters)
    of_distribution = {name for name, _ in attention.distribution.named_parameters(recurse=False)}
    if isinstance(distribution, str):
        attention.distribution.substitute({name: parameters[name] for name in of_distribution & parameters.keys()})
        parameters = {name: tensor for name, tensor in parameters.items() if name not in of_distribution}
    if isinstance(score, str):
        attention.score.substitute(parameters)
    elif parameters:
        raise ValueError("parameters belong to the name of a score; a module already has its own.")
    prepared = attention.prepare(key)
    if pattern == "full" and pattern_options:
        raise ValueError('pattern_options belong to a pattern; the pattern is "full", which has none.')
    if pattern == "full" and not causal:
        return attention(query, prepared, value, mask, need_weights, multiplier, bias=bias)
    return _attend_with_pattern(
        attention, query, prepared, value, mask, need_weights, multiplier, bias, pattern, pattern_options or {}, causal
    )


def _attend_with_pattern(
    attention: Attention,
    query: torch.Tensor,
    prepared: tuple[torch.Tensor, ...],
    value: torch.Tensor,
    mask: torch.Tensor | None,
    need_weights: bool,
    multiplier: torch.Tensor | None,
    bias: torch.Tensor | None,
    pattern: str,
    options: Mapping[str, Any],
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    num_queries, num_keys = query.shape[-2], value.shape[-2]
    if num_queries > num_keys:
        raise ValueError(
            f"There are {num_queries} queries and {num_keys} keys; causal and pattern put the last query at the "
            "position of the last key, so pass at least as many keys as queries, or a mask."
        )
    if pattern == "full":
        keys = torch.arange(num_keys, device=query.device)
        earlier = keys <= keys[num_keys - num_queries :, None]
        mask = earlier if mask is None else mask & earlier
        return attention(query, prepared, value, mask, need_weights, multiplier, bias=bias)
    layout = LAYOUTS.get(pattern)
    if layout is None:
        known = [name for name in PATTERNS if name not in LAYOUTS]
        if pattern in known:
            raise ValueError(
                f"The pattern {pattern!r} has weights of its own or is not a mask; write it in the configuration of a "
                "VaswaniConfig, as encoder_pattern or decoder_pattern."
            )
        raise ValueError(unknown_message(pattern, ["full", *LAYOUTS], "a pattern"))
    for what, tensor in (("multiplier", multiplier), ("bias", bias)):
        if tensor is not None:
            raise ValueError(
                f"A {what} has a value for each query and key, and a pattern has no such matrix; remove it."
            )
    if mask is not None and mask.ndim > 1 and mask.shape[-2] != 1:
        raise ValueError(
            f"The mask has the shape {tuple(mask.shape)}; with a pattern, pass one of the keys, (…, 1, S), such as "
            "mask[:, None] for a padding mask (B, S)."
        )
    if mask is not None:
        mask = checked_mask(mask, query, value)
        mask = mask[(None,) * (max(query.ndim, value.ndim) - mask.ndim)]
    batch = torch.broadcast_shapes(query.shape[:-2], value.shape[:-2], *(tensor.shape[:-2] for tensor in prepared))
    query, value, *keys_of_parts = (tensor.expand(*batch, *tensor.shape[-2:]) for tensor in (query, value, *prepared))
    for option in options:
        if option not in options_of(layout):
            raise ValueError(unknown_message(option, options_of(layout), f"an option of the pattern {pattern!r}"))
    if missing := [name for name in required_options(layout) if name not in options]:
        raise ValueError(
            f"The pattern {pattern!r} needs the option {missing[0]!r}; pass "
            f"pattern_options={{{missing[0]!r}: a number}}."
        )
    made = layout(**options)
    return made(attention, query, tuple(keys_of_parts), value, mask, causal=causal, need_weights=need_weights)


__all__ = sorted(
    attention.__all__
    + attention_distances.__all__
    + attention_distributions.__all__
    + attention_local.__all__
    + attention_memory.__all__
    + attention_modules.__all__
    + attention_pooling.__all__
    + attention_scores.__all__
    + attention_sparse.__all__
    + attention_windows.__all__
    + ["attend"]
)
