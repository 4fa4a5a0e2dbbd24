"""Single steps of recurrent cells and decoders, for generation.

Shapes: B sources, k hypotheses of each, N = B k rows, S source length, D embedding width, H hidden width, G number of
gates, V vocabulary size.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from .cache_recurrent import RecurrentCache
from .fast_generation import LeanLinear, Steps, unhooked
from .recurrent_cells import GRU, RecurrentCell, State


def lean_step(cell: RecurrentCell) -> Callable[[torch.Tensor, State], State]:
    """Return ``cell.step``, or a function with the same values in fewer operations, for inference."""
    if type(cell) is not GRU:
        return cell.step
    project_state = LeanLinear(linear_of(cell.weight_hh_l0, cell.bias_hh_l0))

    def step(projected: torch.Tensor, state: State) -> State:
        (h,) = state
        x_r, x_z, x_n = projected.chunk(3, dim=-1)  # (N, H)
        h_r, h_z, h_n = project_state(h).chunk(3, dim=-1)
        r, z = (x_r + h_r).sigmoid_(), (x_z + h_z).sigmoid_()
        candidate = torch.addcmul(x_n, r, h_n).tanh_()
        return (torch.lerp(candidate, h, z),)

    return step


def lean_project(cell: RecurrentCell) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return ``cell.project`` of whole inputs (N, D), for inference."""
    if type(cell).project is not RecurrentCell.project:
        return cell.project
    return LeanLinear(linear_of(cell.weight_ih_l0, cell.bias_ih_l0))


def cells_of(layers: Iterable[nn.Module]) -> list[Any]:
    """Return the cells of recurrent layers."""
    return [layer.rnn for layer in layers]


def are_plain(layers: Iterable[nn.Module]) -> bool:
    """Return whether recurrent layers are called without hooks, and their cells have no adapters."""
    layers = list(layers)
    cells = cells_of(layers)
    parametrized = any(is_parametrized(cell) for cell in cells)
    return unhooked(*layers, *cells) and not parametrized and all(isinstance(cell, RecurrentCell) for cell in cells)


def linear_of(weight: torch.Tensor, bias: torch.Tensor) -> nn.Linear:
    """Return a linear layer with these parameters, without a copy."""
    layer = nn.Linear(1, 1, device="meta")
    layer.weight, layer.bias = weight, bias  # type: ignore[assignment]
    return layer


class RecurrentSteps(Steps):
    """Steps whose state is that of a recurrent cache.

    Args:
        cache: the cache after the prompt.
        cells: the cells of the layers.
    """

    def __init__(self, cache: RecurrentCache, cells: Sequence[RecurrentCell]) -> None:
        self.cache, self.num_steps = cache, 0
        self.states: list[State] = [layer.state for layer in cache.layers]
        self.projects, self.steps = [lean_project(cell) for cell in cells], [lean_step(cell) for cell in cells]

    def advance(self, gates: torch.Tensor) -> torch.Tensor:
        """Take one step of all layers, given the input (N, G H) of the first, and return the output (N, H)."""
        self.num_steps += 1
        for layer_idx, step in enumerate(self.steps):
            if layer_idx > 0:
                gates = self.projects[layer_idx](self.states[layer_idx - 1][0])
            self.states[layer_idx] = step(gates, self.states[layer_idx])
        return self.states[len(self.steps) - 1][0]

    def reorder_cache(self, rows: torch.Tensor) -> None:
        self.states = [tuple(part.index_select(0, rows) for part in state) for state in self.states]

    def store(self) -> None:
        for layer_idx, state in enumerate(self.states):
            self.cache.update_state(state, layer_idx, self.num_steps)


__all__ = ["RecurrentSteps", "are_plain", "cells_of", "lean_project", "lean_step"]
