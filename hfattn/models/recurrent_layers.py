"""Layers that run recurrent cells over time, with padding anywhere.

Shapes: B batch, T time steps, D input width, H hidden width.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from transformers.modeling_layers import GradientCheckpointingLayer

from .recurrent_cells import State, find_cell


def real_steps(
    mask: torch.Tensor | None, inputs: torch.Tensor, name: str, simplify: bool = True
) -> torch.Tensor | None:
    """Return the mask of the steps of ``inputs`` (B, T, ...) as booleans (B, T), or None if it hides nothing.

    Args:
        mask: (B, T) or, with a cache, (B, past + T): 0 at padding.
        name: name of the mask in the error message.
        simplify: check that the mask hides anything, which synchronizes with the device; not for single steps.

    Raises:
        ValueError: the mask has another shape.
    """
    if mask is None:
        return None
    batch_size, num_steps = inputs.shape[:2]
    if mask.ndim != 2 or mask.shape[0] != batch_size or mask.shape[1] < num_steps:
        raise ValueError(
            f"{name} has the shape {tuple(mask.shape)}; pass one of shape {(batch_size, num_steps)}, or a longer one "
            "that starts with the steps in the cache."
        )
    mask = mask[:, mask.shape[1] - num_steps :].bool()  # the state includes earlier steps
    if torch.compiler.is_compiling():
        return mask  # a graph cannot depend on the values of this mask
    return None if simplify and num_steps > 1 and bool(mask.all()) else mask


class RecurrentLayer(GradientCheckpointingLayer):
    """One recurrent layer over a batch in which any step of any row may be padding.

    A padding step is skipped: it leaves the state unchanged, and its output is that state. The layer is a pure function
    of its inputs and its state, so gradient checkpointing can run it twice. Tensors are passed one by one, never in
    tuples, because reentrant checkpointing passes no gradient through tuples.
    """

    def __init__(self, cell: str, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.rnn = find_cell(cell)(input_size, hidden_size)

    def forward(
        self, inputs: torch.Tensor, mask: torch.Tensor | None = None, *state: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Run the cell over time.

        Args:
            inputs: (B, T, D).
            mask: boolean (B, T), True where a step is real; None if all are.
            state: initial state, tensors (B, H) (h, and c for an LSTM); if they are omitted, the state is zero.

        Returns:
            Outputs (B, T, H), and the tensors (B, H) of the state after the last step.
        """
        if inputs.shape[1] == 0:  # texts without a token
            new = state or (inputs.new_zeros(len(inputs), self.rnn.hidden_size),) * self.rnn.num_states
            return new[0][:, None][:, :0], *new
        if mask is None:
            outputs, new = self._run(inputs, state)
            return outputs, *new
        if inputs.shape[1] == 1:
            # In a step of generate(), selecting by the mask needs no synchronization with the device.
            _, new = self._run(inputs, state)
            new = where_moved(mask, new, _or_zeros(state, new))
            return new[0][:, None], *new
        if torch.compiler.is_exporting():
            return self._run_by_step(inputs, state, mask)
        return self._run_masked(inputs, state, mask)

    def _run(self, inputs: torch.Tensor | PackedSequence, state: State) -> tuple[Any, State]:
        """Call the cell, whose states have the form of torch's: (1, B, H), in a tuple if there are several."""
        hx: Any = None
        if state:
            hx = tuple(tensor[None].contiguous() for tensor in state)
            hx = hx if len(hx) > 1 else hx[0]
        outputs, new = self.rnn(inputs, hx)
        return outputs, tuple(tensor[0] for tensor in (new if isinstance(new, tuple) else (new,)))

    @torch.compiler.disable  # packing reads the lengths on the host, which a graph cannot capture
    def _run_masked(self, inputs: torch.Tensor, state: State, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        seen = mask.cumsum(1)  # (B, T): real steps up to and including t
        lengths = seen[:, -1]
        # A stable sort moves the real steps of each row to the front and keeps their order.
        order = (~mask).long().argsort(dim=1, stable=True)
        compact = inputs.gather(1, order[..., None].expand_as(inputs))
        run = self._run_by_length if inputs.device.type == "cpu" else self._run_packed
        # A row without real steps is run for one step, which is undone below.
        outputs, new = run(compact, state, lengths.clamp(min=1).cpu())  # (B, max length, H)
        old = _or_zeros(state, new)
        new = where_moved(lengths[:, None] > 0, new, old)
        history = torch.cat([old[0][:, None].to(outputs.dtype), outputs], dim=1)
        outputs = history.gather(1, seen[..., None].expand(-1, -1, history.shape[-1]))
        return outputs, *new

    def _run_by_step(self, inputs: torch.Tensor, state: State, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run step by step, without lengths on the host: the graph that is exported has the steps of its example."""
        projected = self.rnn(inputs, method="project")
        state = state or (projected.new_zeros(inputs.shape[0], self.rnn.hidden_size),) * self.rnn.num_states
        outputs = []
        for t in range(inputs.shape[1]):
            state = where_moved(mask[:, t : t + 1], self.rnn(projected[:, t], state, method="step"), state)
            outputs.append(state[0])
        return torch.stack(outputs, dim=1), *state

    def _run_packed(
        self, inputs: torch.Tensor, state: State, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Run the first ``lengths`` (B,) steps of each row of inputs (B, T, D) in one call."""
        packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
        outputs, new = self._run(packed, state)
        return pad_packed_sequence(outputs, batch_first=True)[0], new

    def _run_by_length(
        self, inputs: torch.Tensor, state: State, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Run the first ``lengths`` steps of each row, with one call for each distinct length.

        Each call runs on the rows that are at least that long, so it needs no packing. On a CPU, the backward pass of
        torch's packed kernels allocates, at every step, a tensor as large as the whole sequence, so its time grows
        quadratically with the length.
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
    """A recurrent layer that reads forward, backward, or in both directions (Schuster & Paliwal 1997).

    In both directions, h_t = [h→_t; h←_t]. Padding is skipped wherever it is, as in ``RecurrentLayer``.

    Args:
        direction: "forward", "backward" or "bidirectional".
    """

    def __init__(self, cell: str, input_size: int, hidden_size: int, direction: str) -> None:
        super().__init__()
        reads = [name for name in ("forward", "backward") if direction in (name, "bidirectional")]
        self.forward_rnn = RecurrentLayer(cell, input_size, hidden_size) if "forward" in reads else None
        self.backward_rnn = RecurrentLayer(cell, input_size, hidden_size) if "backward" in reads else None

    def forward(self, inputs: torch.Tensor, mask: torch.Tensor | None = None) -> tuple[torch.Tensor, State]:
        """Run over inputs (B, T, D), with ``mask`` as in ``RecurrentLayer``.

        Returns:
            Outputs (B, T, n H) for n directions, and the last state of each direction, tensors (B, n H): after the last
            step for the forward direction, after the first step for the backward one.
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
    """Return the new state in the rows that took a real step (``moved``, (B, 1)), and the old one elsewhere."""
    return tuple(torch.where(moved, after, before) for after, before in zip(new, old, strict=True))
