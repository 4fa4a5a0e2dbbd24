"""Recurrent cells behind one interface: ``rnn(inputs, state) -> (outputs, state)``, batch first, one layer.

Elman (1990): h_t = tanh(x_t W_x + h_{t-1} W_h + b).
LSTM (Hochreiter & Schmidhuber 1997): i, f, o = sigmoid(x_t W + h_{t-1} W' + b), c~ = tanh(x_t W_xc + h_{t-1} W_hc
+ b_c), c_t = f * c_{t-1} + i * c~, h_t = o * tanh(c_t).
GRU (Cho et al. 2014): h_t = z * h_{t-1} + (1 - z) * h~, with the candidate h~ in two variants. *Reset after* (cuDNN,
torch): h~ = tanh(x_t W_xh + b + r * (h_{t-1} W_hh + b')). *Reset before* (the paper, eq. 8): h~ = tanh(x_t W_xh
+ (r * h_{t-1}) W_hh + b).

Shapes: B batch, T time steps, D input width, H hidden width.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer

from .cache_recurrent import State


class GRUResetBefore(nn.Module):
    """GRU whose reset gate acts on h_{t-1} before the recurrent product (Cho et al. 2014, eq. 8).

    A drop-in for a one-layer ``torch.nn.GRU(batch_first=True)``: same parameter names, same gate order (r, z,
    candidate), same inputs (padded or packed) and outputs. There is one bias: a second would only be added to it.
    """

    def __init__(self, input_size: int, hidden_size: int, batch_first: bool = True) -> None:
        super().__init__()
        if not batch_first:
            raise ValueError("GRUResetBefore reads batches (B, T, D) only; leave batch_first=True.")
        self.hidden_size = hidden_size
        self.weight_ih_l0 = nn.Parameter(torch.empty(3 * hidden_size, input_size))
        self.weight_hh_l0 = nn.Parameter(torch.empty(3 * hidden_size, hidden_size))
        self.bias_ih_l0 = nn.Parameter(torch.empty(3 * hidden_size))
        bound = 1 / math.sqrt(hidden_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(
        self, inputs: torch.Tensor | PackedSequence, h_0: torch.Tensor | None = None
    ) -> tuple[torch.Tensor | PackedSequence, torch.Tensor]:
        """Inputs (B, T, D) or packed, h_0 (1, B, H) or None; returns outputs (B, T, H) or packed, and h_T (1, B, H)."""
        if not isinstance(inputs, PackedSequence):
            outputs, h = self._run(self._project(inputs).unbind(1), h_0)
            return torch.stack(outputs, dim=1), h[None]
        if h_0 is not None and inputs.sorted_indices is not None:
            h_0 = h_0[:, inputs.sorted_indices]
        outputs, h = self._run(self._project(inputs.data).split(inputs.batch_sizes.tolist()), h_0)
        if inputs.unsorted_indices is not None:
            h = h[inputs.unsorted_indices]
        return inputs._replace(data=torch.cat(outputs)), h[None]

    def _project(self, inputs: torch.Tensor) -> torch.Tensor:
        """The input half of all the gates, one product outside the loop: only h_{t-1} has to wait for its turn."""
        return nn.functional.linear(inputs, self.weight_ih_l0, self.bias_ih_l0)

    def _run(self, steps: Sequence[torch.Tensor], h_0: torch.Tensor | None) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Outputs of each step and the last h (B, H), from projected inputs (rows still running, 3 H) for each step."""
        h = steps[0].new_zeros(len(steps[0]), self.hidden_size) if h_0 is None else h_0[0]
        outputs = []
        for step in steps:
            running = self.step(step, h[: len(step)])
            outputs.append(running)
            h = torch.cat([running, h[len(step) :]]) if len(step) < len(h) else running
        return outputs, h

    def step(self, projected: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        """One step from projected inputs (B, 3 H) and h_{t-1} (B, H) to h_t (B, H)."""
        gates_weight, candidate_weight = self.weight_hh_l0.split([2 * self.hidden_size, self.hidden_size])
        gates, candidate = projected.split([2 * self.hidden_size, self.hidden_size], dim=-1)
        r, z = torch.sigmoid(gates + nn.functional.linear(h, gates_weight)).chunk(2, dim=-1)
        candidate = torch.tanh(candidate + nn.functional.linear(r * h, candidate_weight))
        return z * h + (1 - z) * candidate


CELLS: dict[str, type[nn.Module]] = {
    "elman": nn.RNN,
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "gru_reset_before": GRUResetBefore,
}


def recurrent_step(rnn: Any, projected: torch.Tensor, state: State) -> State:
    """One step of a cell, for a decoder whose next input depends on its last output.

    Args:
        rnn: a module of ``CELLS``.
        projected: (B, gates H), the input half of the gates, W_x x_t + b: a caller computes what it can of it for all
            the steps at once.
        state: the state to start from, tensors (B, H).
    """
    if isinstance(rnn, GRUResetBefore):
        return (rnn.step(projected, state[0]),)
    recurrent = nn.functional.linear(state[0], rnn.weight_hh_l0, rnn.bias_hh_l0)
    if isinstance(rnn, nn.LSTM):
        i, f, candidate, o = (projected + recurrent).chunk(4, dim=-1)
        c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(candidate)
        return torch.sigmoid(o) * torch.tanh(c), c
    if isinstance(rnn, nn.GRU):
        split = [2 * rnn.hidden_size, rnn.hidden_size]
        (gates, candidate), (recurrent_gates, recurrent_candidate) = (
            projected.split(split, -1),
            recurrent.split(split, -1),
        )
        r, z = torch.sigmoid(gates + recurrent_gates).chunk(2, dim=-1)
        candidate = torch.tanh(candidate + r * recurrent_candidate)
        return (candidate + z * (state[0] - candidate),)
    return (torch.tanh(projected + recurrent),)


def initialize_recurrent_(rnn: nn.Module) -> None:
    """Glorot input weights, orthogonal recurrent weights (Saxe et al. 2014), zero biases, and a forget bias of one for
    the LSTM (Jozefowicz et al. 2015). Parameters that a checkpoint has filled are left as they are."""
    for name, parameter in rnn.named_parameters():
        if name.startswith("weight_ih"):
            init.xavier_uniform_(parameter)
        elif name.startswith("weight_hh"):
            init.orthogonal_(parameter)
        elif isinstance(rnn, nn.LSTM) and name.startswith("bias_ih"):
            bias = torch.zeros_like(parameter)
            bias[rnn.hidden_size : 2 * rnn.hidden_size] = 1  # gates stand in the order i, f, c~, o
            init.copy_(parameter, bias)
        else:
            init.zeros_(parameter)


def real_steps(
    mask: torch.Tensor | None, inputs: torch.Tensor, name: str, simplify: bool = True
) -> torch.Tensor | None:
    """The mask of the steps of ``inputs`` (B, T, ...) as booleans (B, T), or None where it hides nothing.

    Args:
        mask: (B, T) or, where a cache holds what came before, (B, past + T): 0 at padding.
        name: of the mask, for the message.
        simplify: ask whether it hides anything. The answer waits for the device; it is worth that once for all the
            layers of a text, and not for a single step.

    Raises:
        ValueError: the mask has another shape.
    """
    if mask is None:
        return None
    batch_size, num_steps = inputs.shape[:2]
    if mask.ndim != 2 or mask.shape[0] != batch_size or mask.shape[1] < num_steps:
        raise ValueError(
            f"{name} has the shape {tuple(mask.shape)}; pass a number for each step of each text, "
            f"{(batch_size, num_steps)}, after those of the past."
        )
    mask = mask[:, -num_steps:].bool()  # the past is in the state
    if torch.compiler.is_exporting():
        return mask  # a graph for any text cannot ask
    return None if simplify and num_steps > 1 and bool(mask.all()) else mask


class RecurrentLayer(GradientCheckpointingLayer):
    """One recurrent layer over a batch in which any step of any row may be padding.

    A padding step is invisible: it leaves the state as it was, and its output is that state. The layer is a pure
    function of its inputs and its state, so that gradient checkpointing can replay it; tensors come and go one by one,
    never in tuples, because reentrant checkpointing passes no gradient through those.
    """

    def __init__(self, cell: str, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.rnn = CELLS[cell](input_size, hidden_size, batch_first=True)

    def forward(
        self, inputs: torch.Tensor, mask: torch.Tensor | None = None, *state: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Run the cell over time.

        Args:
            inputs: (B, T, D).
            mask: boolean (B, T), True where a step is real; None if all are.
            state: tensors (B, H) to start from, h, and c for the LSTM; without them, the zero state.

        Returns:
            Outputs (B, T, H), and the tensors (B, H) of the state after the last step.
        """
        if mask is None:
            outputs, new = self._run(inputs, state)
            return outputs, *new
        if inputs.shape[1] == 1:
            # The step of generate(): selecting by the mask asks the device nothing, so the host never waits for it.
            _, new = self._run(inputs, state)
            new = where_moved(mask, new, _or_zeros(state, new))
            return new[0][:, None], *new
        return self._run_masked(inputs, state, mask)

    def _run(self, inputs: torch.Tensor | PackedSequence, state: State) -> tuple[Any, State]:
        """Between states as tuples of (B, H) and as torch's modules have them: (1, B, H), a tuple for the LSTM only."""
        hx: Any = None
        if state:
            hx = tuple(tensor[None].contiguous() for tensor in state)
            hx = hx if len(hx) == 2 else hx[0]
        outputs, new = self.rnn(inputs, hx)
        return outputs, tuple(tensor[0] for tensor in (new if isinstance(new, tuple) else (new,)))

    @torch.compiler.disable  # packing reads the lengths on the host, which no graph can hold
    def _run_masked(self, inputs: torch.Tensor, state: State, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        seen = mask.cumsum(1)  # (B, T): real steps up to and including t
        lengths = seen[:, -1]
        # A stable sort moves the real steps of each row to the front, in their order, wherever the padding stood.
        order = (~mask).long().argsort(dim=1, stable=True)
        compact = inputs.gather(1, order[..., None].expand_as(inputs))
        run = self._run_by_length if inputs.device.type == "cpu" else self._run_packed
        # A row without any real step is run on one and put back below.
        outputs, new = run(compact, state, lengths.clamp(min=1).cpu())  # (B, max length, H)
        old = _or_zeros(state, new)
        new = where_moved(lengths[:, None] > 0, new, old)
        history = torch.cat([old[0][:, None].to(outputs.dtype), outputs], dim=1)
        outputs = history.gather(1, seen[..., None].expand(-1, -1, history.shape[-1]))
        return outputs, *new

    def _run_packed(
        self, inputs: torch.Tensor, state: State, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Run the first ``lengths`` (B,) steps of each row of inputs (B, T, D) in one call, as a GPU can."""
        packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
        outputs, new = self._run(packed, state)
        return pad_packed_sequence(outputs, batch_first=True)[0], new

    def _run_by_length(
        self, inputs: torch.Tensor, state: State, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """The same in one call for each length that occurs, of the rows that are as long.

        torch's packed kernels on a CPU differentiate each step by a tensor of the size of all steps: a time that grows
        with the square of the length. These calls are of rows without padding.
        """
        rows = lengths.argsort(descending=True, stable=True)
        ends, counts = lengths.unique(return_counts=True)
        pieces = inputs[rows, : int(ends[-1])].split(ends.diff(prepend=ends.new_zeros(1)).tolist(), dim=1)
        running = len(rows)
        state = tuple(tensor[rows] for tensor in state)
        outputs, finished = [], []
        for piece, count in zip(pieces, counts.tolist(), strict=True):
            output, state = self._run(piece[:running], state)
            outputs.append(nn.functional.pad(output, (0, 0, 0, 0, 0, len(rows) - running)))
            running -= count
            finished.append(tuple(tensor[running:] for tensor in state))
            state = tuple(tensor[:running] for tensor in state)
        place = rows.argsort()
        ended = zip(*reversed(finished), strict=True)
        return torch.cat(outputs, dim=1)[place], tuple(torch.cat(tensors)[place] for tensors in ended)


class DirectedLayer(nn.Module):
    """A recurrent layer that reads forward, backward, or both ways (Schuster & Paliwal 1997): h_t = [h→_t; h←_t].

    Padding is invisible wherever it stands, as in ``RecurrentLayer``.

    Args:
        direction: "forward", "backward" or "bidirectional".
    """

    def __init__(self, cell: str, input_size: int, hidden_size: int, direction: str) -> None:
        super().__init__()
        reads = [name for name in ("forward", "backward") if direction in (name, "bidirectional")]
        self.forward_rnn = RecurrentLayer(cell, input_size, hidden_size) if "forward" in reads else None
        self.backward_rnn = RecurrentLayer(cell, input_size, hidden_size) if "backward" in reads else None

    def forward(self, inputs: torch.Tensor, mask: torch.Tensor | None = None) -> tuple[torch.Tensor, State]:
        """Read the inputs (B, T, D), with mask as in ``RecurrentLayer``.

        Returns:
            Outputs (B, T, n H) for n directions, and the state in which each direction ended, tensors (B, n H): after
            the last step for the forward one, after the first step for the backward one; h and c apart.
        """
        outputs: list[torch.Tensor] = []
        states: list[State] = []
        if self.forward_rnn is not None:
            output, *state = self.forward_rnn(inputs, mask)
            outputs.append(output)
            states.append(tuple(state))
        if self.backward_rnn is not None:
            output, *state = self.backward_rnn(inputs.flip(1), None if mask is None else mask.flip(1))
            outputs.append(output.flip(1))
            states.append(tuple(state))
        if len(outputs) == 1:
            return outputs[0], states[0]
        return torch.cat(outputs, dim=-1), tuple(torch.cat(tensors, dim=-1) for tensors in zip(*states, strict=True))


def _or_zeros(state: State, like: State) -> State:
    return state or tuple(torch.zeros_like(tensor) for tensor in like)


def where_moved(moved: torch.Tensor, new: State, old: State) -> State:
    """The new state in the rows (B, 1) that had a real step, the old one in the others."""
    return tuple(torch.where(moved, after, before) for after, before in zip(new, old, strict=True))


__all__ = [
    "CELLS",
    "DirectedLayer",
    "GRUResetBefore",
    "RecurrentLayer",
    "initialize_recurrent_",
    "real_steps",
    "recurrent_step",
    "where_moved",
]
