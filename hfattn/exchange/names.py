"""Tables that map the tensor names of other projects to ours, in both directions.

In a table, ``#`` stands for the number of a layer and ``*`` for ``weight`` and ``bias``. One of their tensors may stack
several of ours along its first dimension.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import torch
from transformers import PreTrainedModel

from ..errors import UserError
from .weights import Weights, listed

Table = Mapping[str, str | tuple[str, ...]]


class Row(NamedTuple):
    """A tensor of another project and its counterpart here.

    Attributes:
        theirs: its name.
        ours: our names for it; several if it stacks several of our tensors along its first dimension.
        transposed: whether our matrix is its transpose.
    """

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False


def expand(table: Table, num_layers: int = 1, transposed: Collection[str] = ()) -> list[Row]:
    """Return the rows of a table: one for each layer, and one each for weight and bias.

    Args:
        num_layers: number of layers, which ``#`` counts from 0.
        transposed: their names, ending in ``weight`` as in the table, of the matrices that are transposed here.
    """
    rows = []
    for theirs, ours in table.items():
        names = (theirs, *((ours,) if isinstance(ours, str) else ours))
        for layer in range(num_layers) if "#" in theirs else [0]:
            for kind in ("weight", "bias") if "*" in theirs else [""]:
                first, *others = (name.replace("#", str(layer)).replace("*", kind) for name in names)
                rows.append(Row(first, tuple(others), theirs.replace("*", kind) in transposed))
    return rows


def count_layers(weights: Weights, table: Table) -> int:
    """Return the number of layers in the weights: one more than the highest layer number in their names."""
    patterns = [
        re.compile(re.escape(name).replace(r"\#", r"(\d+)").replace(r"\*", "(?:weight|bias)")) for name in table
    ]
    numbers = [int(found[1]) for name in weights.tensors for pattern in patterns if (found := pattern.fullmatch(name))]
    return max(numbers, default=-1) + 1


def width(weights: Weights, name: str, dimension: int) -> int:
    """Return the size of a dimension of a tensor.

    Raises:
        UserError: the tensor is missing, or has fewer dimensions.
    """
    tensor = weights.tensors.get(name)
    if tensor is None:
        raise UserError(
            f"{weights.path} has no {name}; it has {listed(weights.tensors)}; map other names with "
            "--rename THEIRS=OURS."
        )
    if tensor.ndim <= dimension:
        raise UserError(f"{name} of {weights.path} has the shape {tuple(tensor.shape)}, which is not a matrix.")
    return tensor.shape[dimension]


def without_absent(weights: Weights, rows: Sequence[Row], groups: Sequence[str]) -> tuple[list[Row], set[str]]:
    """Leave out the groups of biases that are entirely absent from the weights.

    Args:
        groups: regular expressions; each matches the names of biases that are present or absent together.

    Returns:
        The other rows, and our names of the biases that are left out and become zero.
    """
    absent = {
        row
        for group in groups
        if (members := [row for row in rows if re.search(group, row.theirs)])
        and not any(row.theirs in weights.tensors for row in members)
        for row in members
    }
    return [row for row in rows if row not in absent], {name for row in absent for name in row.ours}


def load_ours(model: PreTrainedModel, weights: Weights, rows: Sequence[Row], zeros: Collection[str] = ()) -> None:
    """Load weights into a model; each of its weights must have exactly one counterpart.

    Args:
        model: model with the sizes of the checkpoint. It is converted to the dtype that holds all weights exactly.
        rows: names of the weights.
        zeros: our names of weights that the checkpoint lacks and that become zero.

    Raises:
        UserError: a weight is missing or unexpected, has the wrong shape, or is not floating-point.
    """
    check_names(weights, [row.theirs for row in rows], type(model).__name__)
    state, ties = model.state_dict(), model.all_tied_weights_keys
    if lacking := state.keys() - {name for row in rows for name in row.ours} - set(zeros) - ties.keys():
        raise UserError(
            f"{weights.path} has no weights for {listed(lacking)} of {type(model).__name__}; remove the --set "
            "that asks for it, or give the whole model."
        )
    dtype = torch.float32
    for row in rows:
        tensor = weights.tensors[row.theirs]
        expected = _their_shape(state, row)
        if tuple(tensor.shape) != expected:
            raise UserError(
                f"{row.theirs} of {weights.path} has the shape {tuple(tensor.shape)}, but the other weights require "
                f"{expected}; the weights are from different models, or a --set is wrong."
            )
        if not tensor.is_floating_point():
            raise UserError(
                f"{row.theirs} of {weights.path} is {tensor.dtype}, but weights must be floating-point; give "
                "the model as it was before it was quantized."
            )
        dtype = torch.promote_types(dtype, tensor.dtype)
    model.to(dtype)
    new = {name: torch.zeros_like(state[name], dtype=dtype) for name in zeros}
    for row in rows:
        tensor = weights.tensors[row.theirs].to(dtype)
        tensor = tensor.T if row.transposed else tensor
        new.update(zip(row.ours, tensor.chunk(len(row.ours)), strict=True))
    model.load_state_dict({**new, **{name: new[source] for name, source in ties.items() if name not in new}})


def check_names(weights: Weights, names: Collection[str], target: str) -> None:
    """Check that a checkpoint has exactly these weights.

    Raises:
        UserError: a weight is missing or unexpected.
    """
    if missing := set(names) - weights.tensors.keys():
        raise UserError(
            f"{weights.path} has no {listed(missing)}, which {target} requires; map other names "
            "with --rename THEIRS=OURS, or give the whole model."
        )
    if surplus := weights.tensors.keys() - set(names):
        raise UserError(
            f"{weights.path} has {listed(surplus)}, which {target} does not have; map other names with "
            "--rename THEIRS=OURS, or do not convert this model: without them, it would be a different one."
        )


def to_theirs(model: PreTrainedModel, rows: Sequence[Row]) -> dict[str, torch.Tensor]:
    """Return the weights of a model under the names of another project: the inverse of ``load_ours``."""
    state = model.state_dict()
    theirs = {}
    for row in rows:
        tensor = torch.cat([state[name] for name in row.ours])
        theirs[row.theirs] = (tensor.T if row.transposed else tensor).contiguous()
    return theirs


def _their_shape(state: Mapping[str, torch.Tensor], row: Row) -> tuple[int, ...]:
    shape = list(state[row.ours[0]].shape)
    shape[0] *= len(row.ours)
    return tuple(reversed(shape)) if row.transposed else tuple(shape)
