"""Reversible layers (Kitaev et al. 2020, section 3): training stores the output of the last layer only.

A stack has two halves x_1 and x_2, which both begin as the embeddings. A layer is

    y_1 = x_1 + Attn(x_2),   y_2 = x_2 + FFN(y_1).

In general, a sub-layer f turns (x_1, x_2) into (x_2, x_1 + f(x_2)); in a decoder, f is self-attention, cross-attention
and the feed-forward network in turn. The backward pass computes x_1 = y - f(x_2) from the last layer to the first, with
the random numbers of the forward pass. The output is the mean of both halves, where the paper concatenates them.

Shapes: B batch, T steps, H hidden width.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import get_device_states, set_device_states

from .modeling_vaswani import AddAndNorm, Call
from .score_kernels import widen


class Halves(NamedTuple):
    """Both halves (B, T, H), and their mean.

    In half precision, the halves are float32: their rounding errors would grow from layer to layer when they are
    computed back.
    """

    mean: torch.Tensor
    first: torch.Tensor
    second: torch.Tensor


class ReversibleResidual(AddAndNorm):
    """Residual connection of a sub-layer f of a reversible layer: (x_1, x_2) becomes (x_2, x_1 + f(LN(x_2)))."""

    def before(self, hidden_states: Halves | torch.Tensor) -> torch.Tensor:
        if isinstance(hidden_states, Halves):
            hidden_states = hidden_states.second.to(hidden_states.mean.dtype)
        return super().before(hidden_states)

    def after(self, hidden_states: Halves | torch.Tensor, output: torch.Tensor) -> Any:
        if isinstance(hidden_states, Halves):
            dtype, first, second = hidden_states.mean.dtype, hidden_states.first, hidden_states.second
        else:
            dtype, first, second = hidden_states.dtype, widen(hidden_states), widen(hidden_states)
        first, second = second, first + self.dropout(output)
        return Halves(((first + second) / 2).to(dtype), first, second)

    @staticmethod
    def run(hidden_states: torch.Tensor, calls: Sequence[Call]) -> torch.Tensor:
        """Return the output (B, T, H) of layers, of which only the last one's is stored for the backward pass.

        Args:
            hidden_states: (B, T, H).
            calls: layers and their further arguments.
        """
        steps = []
        for layer, args, kwargs in calls:
            # A module among the arguments, such as a bias of positions, has parameters that all layers share.
            modules = [each for each in (layer, *kwargs.values()) if isinstance(each, nn.Module)]
            tensors = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor)]
            tensors += [parameter for module in modules for parameter in module.parameters()]
            inputs = [tensor for tensor in tensors if tensor.requires_grad]
            steps += [Step(residual, function, inputs) for residual, function in layer.sublayers(*args, **kwargs)]
        inputs = list({id(tensor): tensor for step in steps for tensor in step.inputs}.values())
        output: torch.Tensor = _Recomputation.apply(steps, hidden_states, *inputs)
        return output


class Step(NamedTuple):
    """A sub-layer, and the tensors that its layer computes with and that need gradients."""

    residual: AddAndNorm
    function: Callable[[torch.Tensor], torch.Tensor]
    inputs: list[torch.Tensor]

    def __call__(self, half: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return self.residual.dropout(self.function(self.residual.before(half.to(dtype))))


class _Recomputation(torch.autograd.Function):
    """The steps of a stack, whose inputs are computed from their outputs in the backward pass."""

    @staticmethod
    def forward(ctx: Any, steps: list[Step], hidden_states: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        device, ctx.dtype, ctx.steps, ctx.random_states = hidden_states.device.type, hidden_states.dtype, steps, []
        ctx.inputs = [id(tensor) for tensor in inputs]
        ctx.autocast = {
            "device_type": device,
            "dtype": torch.get_autocast_dtype(device),
            "enabled": torch.is_autocast_enabled(device),
            "cache_enabled": False,  # a weight that was converted without gradients would be used again
        }
        first = second = widen(hidden_states)
        with torch.autocast(**ctx.autocast):
            for step in steps:
                ctx.random_states.append((torch.get_rng_state(), *get_device_states(hidden_states)))
                first, second = second, first + step(second, ctx.dtype)
        ctx.save_for_backward(first, second)
        return ((first + second) / 2).to(ctx.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        first, second = ctx.saved_tensors
        of_first = of_second = widen(gradient) / 2
        gradients: dict[int, torch.Tensor] = {}
        device = ctx.autocast["device_type"]
        for step, (random_state, devices, states) in zip(reversed(ctx.steps), reversed(ctx.random_states), strict=True):
            half = first.detach().requires_grad_()
            with (
                torch.random.fork_rng(devices, device_type=device),
                torch.enable_grad(),
                torch.autocast(**ctx.autocast),
            ):
                torch.set_rng_state(random_state)
                set_device_states(devices, states, device_type=device)
                output = step(half, ctx.dtype)
            found = torch.autograd.grad(output, [half, *step.inputs], of_second.to(output.dtype), allow_unused=True)
            first, second = second - output.detach(), first
            of_first, of_second = of_second, of_first if found[0] is None else of_first + found[0]
            for tensor, own in zip(step.inputs, found[1:], strict=True):
                if own is not None:
                    gradients[id(tensor)] = gradients[id(tensor)] + own if id(tensor) in gradients else own
        of_states = (of_first + of_second).to(ctx.dtype)
        return None, of_states, *(gradients.get(number) for number in ctx.inputs)


__all__: list[str] = []
