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
    attention_pooling,
    attention_scores,
    attention_windows,
)
from .models.attention import *  # noqa: F403
from .models.attention import Attention, check_vectors, find_score
from .models.attention_distances import *  # noqa: F403
from .models.attention_distributions import *  # noqa: F403
from .models.attention_distributions import Distribution
from .models.attention_local import *  # noqa: F403
from .models.attention_pooling import *  # noqa: F403
from .models.attention_scores import *  # noqa: F403
from .models.attention_scores import Parametric, Score
from .models.attention_windows import *  # noqa: F403

# Every score and distribution by its name.
SCORES = {
    **attention_scores.SCORES,
    **{name: vars(attention_distances)[path.split(".")[1]] for name, path in attention_scores.MORE_SCORES.items()},
}
DISTRIBUTIONS = {
    **attention_distributions.DISTRIBUTIONS,
    "compositional": attention_distances.Compositional,
}


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
    return attention(query, attention.prepare(key), value, mask, need_weights, multiplier)


__all__ = sorted(
    attention.__all__
    + attention_distances.__all__
    + attention_distributions.__all__
    + attention_local.__all__
    + attention_modules.__all__
    + attention_pooling.__all__
    + attention_scores.__all__
    + attention_windows.__all__
    + ["attend"]
)
