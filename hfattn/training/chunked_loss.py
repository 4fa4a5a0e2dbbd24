"""The cross-entropy of an output layer, computed in chunks of positions, so that all logits are never in memory.

Shapes: N positions, H width of the states, V size of the vocabulary.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear

from ..generation import evaluation_mode
from ..metrics.language_model import IGNORED
from ..models.score_kernels import full_precision, widen

CHUNK_ELEMENTS = 2**21  # logits of a chunk; 8 MB in float32
FEWEST_ROWS = 256  # with fewer rows, the gradient of the weight is read and written too often


class _SummedNats(torch.autograd.Function):
    """The sum of -w Σ_v q_v log p_v over positions, chunk by chunk; q is the label, smoothed, and w the importance.

    With p = softmax(z), the gradient of z is w (p - q), which the forward pass computes while a chunk is in memory, and
    with it the gradients of states, weight and bias. So there are three products in all, as without chunks.

    The products read w p, and the rows of the labels are subtracted afterwards: in half precision, p - 1 of an
    improbable label would be -1, an error with the same sign at all positions.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        labels: torch.Tensor,
        importance: torch.Tensor,
        smoothing: float,
    ) -> torch.Tensor:
        size = len(weight)
        nats = widen(states.new_zeros(()))
        d_states = torch.empty_like(states)
        # With adapters, the output layer is frozen and needs no gradient.
        d_weight = widen(torch.zeros_like(weight)) if ctx.needs_input_grad[1] else None
        d_bias = widen(torch.zeros_like(bias)) if bias is not None and ctx.needs_input_grad[2] else None
        rows = max(CHUNK_ELEMENTS // size, FEWEST_ROWS)
        parts = (each.split(rows) for each in (states, labels, importance[:, None], d_states))
        with full_precision(states):
            for read, right, share, d_read in zip(*parts, strict=True):
                logits = widen(linear(read, weight, bias))  # (n, V)
                expected = (1 - smoothing) * logits.gather(1, right[:, None])  # Σ_v q_v z_v
                if smoothing:
                    expected += smoothing * logits.mean(1, keepdim=True)
                largest = logits.amax(1, keepdim=True)
                probabilities = logits.sub_(largest).exp_()
                total = probabilities.sum(1, keepdim=True)
                nats += (share * (total.log() + largest - expected)).sum()
                slopes = probabilities.mul_(share / total)
                if smoothing:
                    slopes -= share * (smoothing / size)
                if d_bias is not None:
                    d_bias += slopes.sum(0)
                    d_bias.index_add_(0, right, share[:, 0], alpha=smoothing - 1)
                slopes = slopes.to(weight.dtype)
                torch.mm(slopes, weight, out=d_read)
                d_read.add_(weight[right] * share.to(weight.dtype), alpha=smoothing - 1)
                if d_weight is None:
                    continue
                if d_weight.dtype == read.dtype:
                    d_weight.addmm_(slopes.t(), read)
                else:
                    d_weight += slopes.t() @ read
                d_weight.index_add_(0, right, share * widen(read), alpha=smoothing - 1)
        ctx.save_for_backward(d_states, *(None if d is None else d.to(weight.dtype) for d in (d_weight, d_bias)))
        return nats

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return *(None if each is None else each * gradient for each in ctx.saved_tensors), None, None, None


def summed_nats(
    states: torch.Tensor,
    head: nn.Linear | nn.Embedding,
    labels: torch.Tensor,
    label_smoothing: float = 0.0,
    importance: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the cross-entropy of the labels, in nats, summed over all positions that have one.

    It is that of ``torch.nn.functional.cross_entropy(head(states), labels, reduction="sum")`` without the logits of all
    positions, and positions without a label cost nothing. Under autocast, the products are in its precision and the
    softmax in float32. Not differentiable twice.

    Args:
        states: (..., H), what the output layer reads.
        head: the output layer, or the embedding whose weights it shares.
        labels: (...), -100 at positions without a label.
        label_smoothing: part of the probability that is distributed evenly over all V classes.
        importance: (...), a factor of the cross-entropy of each position; by default 1. It has no gradient.

    Returns:
        A number, in float32 or float64.
    """
    kind, has_label = states.device.type, labels != IGNORED
    operands = (states[has_label], head.weight, getattr(head, "bias", None))
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        operands = tuple(None if each is None else each.to(dtype) for each in operands)  # type: ignore[assignment]
    factors = torch.ones_like(labels) if importance is None else importance
    factors = factors[has_label].to(torch.promote_types(operands[0].dtype, torch.float32))
    nats: torch.Tensor = _SummedNats.apply(*operands, labels[has_label], factors, label_smoothing)
    return nats


@torch.no_grad()
def has_plain_logits(model: nn.Module) -> bool:
    """Return whether the logits of a model are what its output layer returns, without a factor, a bound or an offset.

    The model reads two tokens to find out.

    Args:
        model: a model with an output layer.
    """
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    config: Any = model.config
    ids, read = torch.zeros(1, 2, dtype=torch.long, device=head.weight.device), []
    mark = torch.tensor(123.5)  # in any precision

    def forward(states: torch.Tensor) -> torch.Tensor:
        read.append(states.shape[:-1])
        return mark

    given = {"input_ids": ids} | ({"decoder_input_ids": ids} if config.is_encoder_decoder else {})
    head.forward = forward
    try:
        with evaluation_mode(model):
            logits = model(**given)[0]
    except Exception:  # whatever it does with logits, it needs more than one number
        return False
    finally:
        del head.forward
    return read == [ids.shape] and logits.shape == mark.shape and bool(logits == mark)


@contextmanager
def nats_for_logits(head: nn.Linear, *labels: torch.Tensor, label_smoothing: float = 0.0) -> Iterator[None]:
    """Make an output layer return ``summed_nats`` instead of logits.

    They are computed within the forward pass of the model, where DDP looks for the parameters that a loss depends on.

    Args:
        head: the output layer.
        labels: those of its first call, of its second one, and so on.
        label_smoothing: see ``summed_nats``.
    """
    rest = iter(labels)

    def forward(states: torch.Tensor) -> torch.Tensor:
        return summed_nats(states, head, next(rest), label_smoothing)

    head.forward = forward  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del head.forward
