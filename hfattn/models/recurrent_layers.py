"""Layers that run recurrent cells over time, with padding anywhere, and the dropouts around them.

Shapes: B batch, T time steps, D input width, H hidden width, V vocabulary size.
"""

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from transformers.modeling_layers import GradientCheckpointingLayer

from .recurrent_cells import State, find_cell

RECURRENT = "weight_hh_l0"  # the matrix from the state to the gates, in every cell
Weights = dict[str, torch.Tensor]  # parameters of a cell, by name


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


class SequenceDropout(nn.Dropout):
    """Dropout on the features of a sequence (B, T, D).

    Args:
        p: probability.
        variational: draw one mask for all steps of a row (Gal & Ghahramani 2016; Merity et al. 2018, section 4.1),
            instead of one for each step.
    """

    def __init__(self, p: float, variational: bool = False) -> None:
        super().__init__(p)
        self.variational = variational

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if not self.variational or not self.training or self.p == 0:
            return super().forward(inputs)
        return inputs * super().forward(torch.ones_like(inputs[:, :1]))


class RowDropout(nn.Dropout):
    """Dropout on the rows of an embedding: a dropped token is zero wherever it occurs in the batch, and the others are
    divided by 1 - p (Gal & Ghahramani 2016; Merity et al. 2018, section 4.3)."""

    def forward(self, embeddings: torch.Tensor, input_ids: torch.Tensor, vocab_size: int) -> torch.Tensor:  # type: ignore[override]
        """Return the embeddings (B, T, D) of ``input_ids`` (B, T) with one mask (V,) for the batch."""
        if not self.training or self.p == 0:
            return embeddings
        kept = super().forward(embeddings.new_ones(vocab_size))
        return embeddings * kept[input_ids][..., None]


class RecurrentLayer(GradientCheckpointingLayer):
    """One recurrent layer over a batch in which any step of any row may be padding.

    A padding step is skipped: it leaves the state unchanged, and its output is that state. The layer is a pure function
    of its inputs and its state, so gradient checkpointing can run it twice. Tensors are passed one by one, never in
    tuples, because reentrant checkpointing passes no gradient through tuples.

    Args:
        cell: name of the cell.
        input_size, hidden_size: D and H.
        weight_dropout: in training, probability with which a weight from the state to the gates is zero (DropConnect,
            Wan et al. 2013; Merity et al. 2018, section 2). One mask serves all rows and steps of a call.
        bptt_steps: in training, number of steps after which the gradient of the state ends, which is carried on
            unchanged (Howard & Ruder 2018, section 3.3, BPT3C); None for no limit. A gradient that enters through the
            outputs, such as that of a maximum over time, reaches every piece.
    """

    def __init__(
        self,
        cell: str,
        input_size: int,
        hidden_size: int,
        *,
        weight_dropout: float = 0.0,
        bptt_steps: int | None = None,
    ) -> None:
        super().__init__()
        self.rnn = find_cell(cell)(input_size, hidden_size)
        self.weight_dropout, self.bptt_steps = weight_dropout, bptt_steps

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
        weights: Weights = {}
        if self.training and self.weight_dropout > 0:
            weights = {RECURRENT: nn.functional.dropout(self.rnn.get_parameter(RECURRENT), self.weight_dropout)}
        if not self.training or self.bptt_steps is None:
            return self._read(inputs, mask, state, weights)
        outputs = []
        for start in range(0, inputs.shape[1], self.bptt_steps):
            piece = slice(start, start + self.bptt_steps)
            before = tuple(tensor.detach() for tensor in state) if start else state
            output, *state = self._read(inputs[:, piece], None if mask is None else mask[:, piece], before, weights)  # type: ignore[assignment]
            outputs.append(output)
        return torch.cat(outputs, dim=1), *state

    def _read(
        self, inputs: torch.Tensor, mask: torch.Tensor | None, state: State, weights: Weights
    ) -> tuple[torch.Tensor, ...]:
        """Run the cell over all steps of ``inputs``, with ``weights`` in place of its own."""
        if mask is None:
            outputs, new = self._run(inputs, state, weights)
            return outputs, *new
        if inputs.shape[1] == 1:
            # In a step of generate(), selecting by the mask needs no synchronization with the device.
            _, new = self._run(inputs, state, weights)
            new = where_moved(mask, new, _or_zeros(state, new))
            return new[0][:, None], *new
        if torch.compiler.is_exporting():
            return self._run_by_step(inputs, state, mask)
        return self._run_masked(inputs, state, mask, weights)

    def _run(self, inputs: torch.Tensor | PackedSequence, state: State, weights: Weights) -> tuple[Any, State]:
        """Call the cell, whose states have the form of torch's: (1, B, H), in a tuple if there are several."""
        hx: Any = None
        if state:
            hx = tuple(tensor[None].contiguous() for tensor in state)
            hx = hx if len(hx) > 1 else hx[0]
        outputs, new = functional_call(self.rnn, weights, (inputs, hx)) if weights else self.rnn(inputs, hx)
        return outputs, tuple(tensor[0] for tensor in (new if isinstance(new, tuple) else (new,)))

    @torch.compiler.disable  # packing reads the lengths on the host, which a graph cannot capture
    def _run_masked(
        self, inputs: torch.Tensor, state: State, mask: torch.Tensor, weights: Weights
    ) -> tuple[torch.Tensor, ...]:
        seen = mask.cumsum(1)  # (B, T): real steps up to and including t
        lengths = seen[:, -1]
        # A stable sort moves the real steps of each row to the front and keeps their order.
        order = (~mask).long().argsort(dim=1, stable=True)
        compact = inputs.gather(1, order[..., None].expand_as(inputs))
        run = self._run_by_length if inputs.device.type == "cpu" else self._run_packed
        # A row without real steps is run for one step, which is undone below.
        outputs, new = run(compact, state, lengths.clamp(min=1).cpu(), weights)  # (B, max length, H)
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
        self, inputs: torch.Tensor, state: State, lengths: torch.Tensor, weights: Weights
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Run the first ``lengths`` (B,) steps of each row of inputs (B, T, D) in one call."""
        packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
        outputs, new = self._run(packed, state, weights)
        return pad_packed_sequence(outputs, batch_first=True)[0], new

    def _run_by_length(
        self, inputs: torch.Tensor, state: State, lengths: torch.Tensor, weights: Weights
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
            output, state = self._run(piece[:running], state, weights)
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
        cell, input_size, hidden_size, weight_dropout, bptt_steps: of each direction, see ``RecurrentLayer``.
    """

    def __init__(
        self,
        cell: str,
        input_size: int,
        hidden_size: int,
        direction: str,
        *,
        weight_dropout: float = 0.0,
        bptt_steps: int | None = None,
    ) -> None:
        super().__init__()
        make = partial(
            RecurrentLayer, cell, input_size, hidden_size, weight_dropout=weight_dropout, bptt_steps=bptt_steps
        )
        reads = [name for name in ("forward", "backward") if direction in (name, "bidirectional")]
        self.forward_rnn = make() if "forward" in reads else None
        self.backward_rnn = make() if "backward" in reads else None

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
