"""Recurrent cells.

A cell is one recurrent layer: ``cell(inputs, state)`` runs it over time, and ``cell(projected, state, method="step")``
takes one step, for a decoder whose next input depends on its last output.

Elman (1990): h_t = tanh(x_t W_x + h_{t-1} W_h + b).
LSTM (Hochreiter & Schmidhuber 1997): i, f, o = sigmoid(x_t W + h_{t-1} W' + b), c~ = tanh(x_t W_xc + h_{t-1} W_hc
+ b_c), c_t = f * c_{t-1} + i * c~, h_t = o * tanh(c_t).
GRU (Cho et al. 2014): h_t = z * h_{t-1} + (1 - z) * h~, with the candidate h~ in two variants. *Reset after* (cuDNN,
torch): h~ = tanh(x_t W_xh + b + r * (h_{t-1} W_hh + b')). *Reset before* (the paper, eq. 8): h~ = tanh(x_t W_xh
+ (r * h_{t-1}) W_hh + b).
Jordan (1986): h_t = tanh(x_t W_x + y_{t-1} W_h + b), y_t = tanh(h_t W_y + b_y).

Shapes: B batch, T time steps, D input width, H hidden width, G number of gates.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn.functional import linear
from torch.nn.utils.rnn import PackedSequence
from transformers import initialization as init

from .strict_config import class_by_name

State = tuple[torch.Tensor, ...]


class RecurrentCell(nn.Module):
    """Base class of the cells.

    A cell reads batches (B, T, D) and has the parameters of a one-layer ``torch.nn.GRU``: ``weight_ih_l0`` (G H, D),
    ``weight_hh_l0`` (G H, H), ``bias_ih_l0`` (G H). To add a cell, inherit from ``LoopedCell`` or a fused cell. Add it
    to ``CELLS``, or give its name in the configuration, such as ``my_cells.MyCell``.

    Attributes:
        num_states: number of tensors (B, H) in the state; the first is the output h.
    """

    num_states: ClassVar[int] = 1
    hidden_size: int
    weight_ih_l0: torch.Tensor
    weight_hh_l0: torch.Tensor
    bias_ih_l0: torch.Tensor
    bias_hh_l0: torch.Tensor

    def forward(self, *inputs: Any, method: str = "run") -> Any:
        """Call ``run``, or another method by its name, as in ``cell(projected, state, method="step")``.

        Offloaded weights are loaded, and adapters are applied, only around a call of the module.
        """
        return getattr(self, method)(*inputs)

    def run(self, inputs: Any, state: Any = None) -> Any:
        """Run over inputs (B, T, D) or packed ones, from a state (1, B, H), a tuple of such tensors, or None for zeros.

        Returns:
            Outputs (B, T, H) or packed outputs, and the last state in the form of ``state``.
        """
        raise NotImplementedError

    def project(self, inputs: torch.Tensor, start: int = 0) -> torch.Tensor:
        """Return the input contribution x_t W_x + b to the gate pre-activations (..., G H), for one or many steps.

        The inputs can be a part of x_t, the features from ``start`` on; b is added to the part that starts at 0.
        """
        weight = self.weight_ih_l0[:, start : start + inputs.shape[-1]]
        return linear(inputs, weight, None if start else self.bias_ih_l0)

    def step(self, projected: torch.Tensor, state: State) -> State:
        """Take one step.

        Args:
            projected: (B, G H), the input contribution to the gates, as returned by ``project``.
            state: the state before the step, ``num_states`` tensors (B, H).

        Returns:
            The state after the step.
        """
        raise NotImplementedError

    def initialize_(self) -> None:
        """Initialize input weights by Glorot & Bengio (2010), recurrent weights as orthogonal matrices (Saxe et al.
        2014), and biases as zeros. Parameters that were loaded from a checkpoint are kept."""
        for name, parameter in self.named_parameters():
            if name.startswith("weight_ih"):
                init.xavier_uniform_(parameter)
            elif name.startswith(("weight_hh", "weight_hy")):
                init.orthogonal_(parameter)
            else:
                init.zeros_(parameter)


class FusedCell(RecurrentCell):
    """Base class of the cells for which torch has a fused kernel that runs all time steps in one call."""

    def __init__(self, input_size: int, hidden_size: int, **options: Any) -> None:
        super().__init__(input_size, hidden_size, batch_first=True, **options)

    def run(self, inputs: Any, state: Any = None) -> Any:
        return super(RecurrentCell, self).forward(inputs, state)

    def project_state(self, state: State) -> torch.Tensor:
        """Return the state contribution h_{t-1} W_h + b' to the gate pre-activations (B, G H)."""
        return linear(state[0], self.weight_hh_l0, self.bias_hh_l0)


class Elman(FusedCell, nn.RNN):
    """Elman network with tanh, or with ReLU if the option ``nonlinearity`` is "relu"."""

    def step(self, projected: torch.Tensor, state: State) -> State:
        activation = torch.relu if self.nonlinearity == "relu" else torch.tanh
        return (activation(projected + self.project_state(state)),)


class LSTM(FusedCell, nn.LSTM):
    num_states = 2

    def run(self, inputs: Any, state: Any = None) -> Any:
        """Run as ``torch.nn.LSTM``.

        oneDNN has no bfloat16 LSTM for a CPU without bfloat16 instructions, but autocast requests it anyway. On such a
        CPU, the layer is therefore computed in the precision of its weights.
        """
        autocast = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
        if not autocast or cpu_has_bfloat16():
            return super().run(inputs, state)
        dtype = self.weight_ih_l0.dtype
        if state is not None:
            state = tuple(tensor.to(dtype) for tensor in state)
        with torch.autocast("cpu", enabled=False):
            return super().run(inputs.to(dtype), state)

    def step(self, projected: torch.Tensor, state: State) -> State:
        i, f, candidate, o = (projected + self.project_state(state)).chunk(4, dim=-1)
        c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(candidate)
        return torch.sigmoid(o) * torch.tanh(c), c

    def initialize_(self) -> None:
        """Initialize as in ``RecurrentCell``, with a forget bias of one (Jozefowicz et al. 2015)."""
        super().initialize_()
        bias = torch.zeros_like(self.bias_ih_l0)
        bias[self.hidden_size : 2 * self.hidden_size] = 1  # the gates are stacked as i, f, c~, o
        init.copy_(self.bias_ih_l0, bias)


class GRU(FusedCell, nn.GRU):
    """GRU whose reset gate acts after the recurrent product, as in cuDNN and torch."""

    def step(self, projected: torch.Tensor, state: State) -> State:
        split = [2 * self.hidden_size, self.hidden_size]
        gates, candidate = projected.split(split, dim=-1)
        state_gates, state_candidate = self.project_state(state).split(split, dim=-1)
        r, z = torch.sigmoid(gates + state_gates).chunk(2, dim=-1)
        candidate = torch.tanh(candidate + r * state_candidate)
        return (candidate + z * (state[0] - candidate),)


class LoopedCell(RecurrentCell):
    """Base class of the cells that torch does not implement: ``step`` defines the cell, ``run`` calls it in a loop.

    Inputs, padded or packed, and outputs are those of a one-layer ``torch.nn.GRU(batch_first=True)``, or of
    ``torch.nn.LSTM`` if the state has several tensors. There is only one bias vector, because a second one would be
    redundant.

    Attributes:
        num_gates: G, the number of blocks of H rows in the weights.
    """

    num_gates: ClassVar[int]

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        size = self.num_gates * hidden_size
        self.weight_ih_l0 = nn.Parameter(torch.empty(size, input_size))
        self.weight_hh_l0 = nn.Parameter(torch.empty(size, hidden_size))
        self.bias_ih_l0 = nn.Parameter(torch.empty(size))
        bound = 1 / math.sqrt(hidden_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def run(self, inputs: Any, state: Any = None) -> Any:
        packed = isinstance(inputs, PackedSequence)
        # The input contribution is one product outside the loop; only the state contribution depends on earlier steps.
        projected = self.project(inputs.data if packed else inputs)
        steps = projected.split(inputs.batch_sizes.tolist()) if packed else projected.unbind(1)
        if state is None:
            parts = (steps[0].new_zeros(steps[0].shape[0], self.hidden_size),) * self.num_states
        else:
            parts = tuple(tensor[0] for tensor in (state if isinstance(state, tuple) else (state,)))
            if packed and inputs.sorted_indices is not None:
                parts = tuple(tensor[inputs.sorted_indices] for tensor in parts)
        outputs, parts = self._run(steps, parts)
        if packed and inputs.unsorted_indices is not None:
            parts = tuple(tensor[inputs.unsorted_indices] for tensor in parts)
        last = tuple(tensor[None] for tensor in parts)
        joined = inputs._replace(data=torch.cat(outputs)) if packed else torch.stack(outputs, dim=1)
        return joined, last if self.num_states > 1 else last[0]

    def _run(self, steps: Sequence[torch.Tensor], state: State) -> tuple[list[torch.Tensor], State]:
        """Return the outputs of all steps and the last state, from a tensor of projected inputs for each step."""
        outputs = []
        for projected in steps:
            running = projected.shape[0]
            new = self.step(projected, tuple(tensor[:running] for tensor in state))
            outputs.append(new[0])
            ended = running < state[0].shape[0]
            state = tuple(torch.cat([a, b[running:]]) for a, b in zip(new, state, strict=True)) if ended else new
        return outputs, state


class GRUResetBefore(LoopedCell):
    """GRU whose reset gate acts on h_{t-1} before the recurrent product (Cho et al. 2014, eq. 8).

    The gates are stacked as in ``torch.nn.GRU``: r, z, candidate.
    """

    num_gates = 3

    def step(self, projected: torch.Tensor, state: State) -> State:
        (h,), split = state, [2 * self.hidden_size, self.hidden_size]
        gates_weight, candidate_weight = self.weight_hh_l0.split(split)
        gates, candidate = projected.split(split, dim=-1)
        r, z = torch.sigmoid(gates + linear(h, gates_weight)).chunk(2, dim=-1)
        candidate = torch.tanh(candidate + linear(r * h, candidate_weight))
        return (z * h + (1 - z) * candidate,)


class Jordan(LoopedCell):
    """Network whose recurrent connections lead from the output to the hidden units (Jordan 1986).

    h_t = tanh(W_x x_t + W_h y_{t-1} + b) and y_t = tanh(W_y h_t + b_y). The output y_t, of width H, is the state; h_t
    carries nothing from one step to the next. Unlike in the paper, the units are tanh instead of logistic, and the
    state is the last output alone, without the decaying sum of the outputs before it.
    """

    num_gates = 1

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        bound = 1 / math.sqrt(hidden_size)
        self.weight_hy_l0 = nn.Parameter(torch.empty(hidden_size, hidden_size).uniform_(-bound, bound))
        self.bias_hy_l0 = nn.Parameter(torch.empty(hidden_size).uniform_(-bound, bound))

    def step(self, projected: torch.Tensor, state: State) -> State:
        h = torch.tanh(projected + linear(state[0], self.weight_hh_l0))
        return (torch.tanh(linear(h, self.weight_hy_l0, self.bias_hy_l0)),)


CELLS: dict[str, type[RecurrentCell]] = {
    "elman": Elman,
    "jordan": Jordan,
    "lstm": LSTM,
    "gru": GRU,
    "gru_reset_before": GRUResetBefore,
}


def find_cell(name: str) -> type[RecurrentCell]:
    """Return the class of a cell: a name of ``CELLS``, or a custom class such as "my_cells.ReLU".

    Raises:
        ValueError: the name is unknown, or the class overrides ``run`` or ``forward`` but not ``step``.
    """
    cell = class_by_name(CELLS, name, RecurrentCell, "a cell")
    # If a class overrides ``run`` but inherits ``step``, the two do not compute the same cell.
    defining = next(base for base in cell.__mro__ if vars(base).keys() & {"step", "run", "forward"})
    if not issubclass(cell, RecurrentCell) or "step" not in vars(defining):
        raise ValueError(
            f"The cell {name!r} is {cell.__name__}, which has no step of its own; inherit from LoopedCell and write "
            "step(projected, state)."
        )
    return cell


def cpu_has_bfloat16() -> bool:
    """Return whether the CPU has instructions for bfloat16; without them, float32 is faster."""
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
