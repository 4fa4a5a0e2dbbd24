"""Render the modules of a model as a text tree for its card."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook
from transformers import PreTrainedModel

from .. import models  # noqa: F401  (registers the classes)
from ..clean_process import auto_class
from ..errors import UserError
from ..files import read_json_object
from ..loading import ModelLocation, load_model_config, loading_errors

DEPTH = 3  # levels of the tree; deeper modules are counted in their parent
_MOST, _MOST_LAYERS = 100_000, 10_000  # modules and labels; layers


def architecture(folder: Path) -> str:
    """Return the module tree of the model in a folder, from its configuration only, without weights or code of the
    folder.

    Returns:
        One line per module: name, class, sizes and number of parameters. Equal layers share a line.

    Raises:
        UserError: the configuration is invalid, for example because the file of a custom class is not on ``sys.path``;
            no Auto class loads its architecture; or it has far more modules or labels than a model has.
    """
    location = ModelLocation(name=str(folder))
    for name, value in read_json_object(folder / "config.json").items():
        # Configurations make a list with an entry for each label and each layer.
        most = _MOST if name == "num_labels" else _MOST_LAYERS if "layers" in name else None
        if most is not None and isinstance(value, int | float) and value > most:
            raise UserError(f"{folder}/config.json has {value} as {name!r}, more than {most:,}; correct it.")
    config = load_model_config(location)
    with loading_errors(location), torch.device("meta"), _counted(folder):
        return draw(getattr(transformers, auto_class(config)).from_config(config))


@contextmanager
def _counted(folder: Path) -> Iterator[None]:
    """Stop where a model gets too many modules: a configuration may ask for a billion layers."""
    number = 0

    def count(*_: object) -> None:
        nonlocal number
        number += 1
        if number > _MOST:
            raise UserError(f"{folder}/config.json describes more than {_MOST:,} modules; correct its sizes.")

    handle = register_module_module_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()


def draw(model: PreTrainedModel) -> str:
    """Return the module tree of a model."""
    rows = [("", type(model).__name__, model.num_parameters()), *_rows(model, "", set())]
    left = max(len(lead) + len(what) for lead, what, _ in rows) + 2
    return "\n".join(f"{lead + what:{left}}{count:>13,}" for lead, what, count in rows)


def _rows(module: nn.Module, lead: str, seen: set[int], depth: int = 1) -> Iterator[tuple[str, str, int]]:
    parts = list(_parts(module, seen))
    for i, (name, part, times) in enumerate(parts):
        last = i == len(parts) - 1
        count = times * sum(p.numel() for p in part.parameters() if id(p) not in seen)
        what = f"{name}: {f'{times} × ' if times > 1 else ''}{_what(part)}"
        yield lead + ("└─ " if last else "├─ "), what, count
        if depth < DEPTH and not isinstance(part, nn.Linear | nn.Embedding):
            yield from _rows(part, lead + ("   " if last else "│  "), seen, depth + 1)
        seen |= {id(p) for p in part.parameters()}


def _parts(module: nn.Module, seen: set[int]) -> Iterator[tuple[str, nn.Module, int]]:
    """Return the submodules with parameters: name, module, and number of equal ones."""
    for name, child in module.named_children():
        if not any(True for _ in child.parameters()):
            continue
        layers = list(child) if isinstance(child, nn.ModuleList) else []
        if layers and len({repr(layer) for layer in layers}) == 1:
            yield name, layers[0], len(layers)
        else:
            yield name, child, 1


def _what(part: nn.Module) -> str:
    sizes: Any = part.extra_repr()
    if isinstance(part, nn.Linear):
        sizes = f"{part.in_features} → {part.out_features}{'' if part.bias is not None else ', no bias'}"
    elif isinstance(part, nn.LayerNorm):
        sizes = f"{part.normalized_shape[0]}"
    elif isinstance(part, nn.Embedding):
        sizes = f"{part.num_embeddings} × {part.embedding_dim}"
    return f"{type(part).__name__}{f' ({sizes})' if sizes else ''}"
