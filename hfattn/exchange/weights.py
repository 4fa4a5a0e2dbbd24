"""Read the weights of other projects without running code they may contain, and rename them."""

import argparse
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from ..errors import UserError
from ..yaml_values import read_yaml

# Keys under which training scripts save the weights.
_WEIGHTS = ("state_dict", "model_state_dict", "model_state", "model")
_WRAPPERS = ("_orig_mod.", "module.")  # torch.compile; data-parallel training


@dataclass
class Weights:
    """The content of a file of weights.

    Attributes:
        path: path of the file.
        tensors: weights and buffers by name.
        extras: the rest of the file, such as training settings.
    """

    path: Path
    tensors: dict[str, torch.Tensor]
    extras: dict[str, Any] = field(default_factory=dict)

    def rename(self, renames: Mapping[str, str]) -> None:
        """Replace prefixes of names that end at a dot or at the end; an empty replacement removes the dot too.

        Raises:
            UserError: no name has such a prefix, or two names become equal.
        """
        for theirs, ours in renames.items():
            beginning = re.compile(rf"{re.escape(theirs.removesuffix('.'))}(\.|$)")
            if not any(map(beginning.match, self.tensors)):
                raise UserError(
                    f"{self.path} has no {theirs}, which --rename should replace; it has {listed(self.tensors)}."
                )
            new = {name: beginning.sub(rf"{ours}\1" if ours else "", name, count=1) for name in self.tensors}
            if len(set(new.values())) < len(new):
                raise UserError(f"--rename {theirs}={ours} gives two weights of {self.path} one name; choose another.")
            self.tensors = {new[name]: tensor for name, tensor in self.tensors.items()}


def listed(names: Any, most: int = 4) -> str:
    """Return the first names, sorted, and how many more there are."""
    names = sorted(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def read_weights(path: Path, allow_pt: bool = False) -> Weights:
    """Read weights from a safetensors file, or from a PyTorch pickle that holds only weights and plain settings.

    Args:
        path: the file, or a folder with safetensors files that hold parts of the weights.
        allow_pt: also read a pickle.

    Raises:
        UserError: the file does not exist, is damaged, is a pickle although ``allow_pt`` is False, or holds objects
            that only code could load.
    """
    if path.is_dir():
        if not (parts := weight_files(path)):
            raise UserError(f"{path} has no safetensors file; give the folder or the file of a checkpoint.")
        return Weights(path, {name: tensor for part in parts for name, tensor in read_weights(part).tensors.items()})
    if not path.is_file():
        raise UserError(f"{path} was not found; give the path of a checkpoint.")
    if path.suffix == ".safetensors":
        try:
            with safe_open(path, "pt") as file:
                shared = file.metadata() or {}
            tensors = load_file(path)
        except SafetensorError as error:
            raise UserError(
                f"{path} is not a complete safetensors file ({error}); download or save it again."
            ) from error
        # save_model of safetensors writes shared weights once, and their other names among the metadata.
        tensors |= {name: tensors[kept] for name, kept in shared.items() if kept in tensors and name not in tensors}
        return Weights(path, _without_wrappers(tensors))
    if not allow_pt:
        raise UserError(
            f"{path} is not safetensors; add --allow-pt to read it as a PyTorch pickle, from which only weights and "
            "plain values are loaded."
        )
    content = _load_pickle(path)
    weights, extras = _find_weights(content, path)
    return Weights(path, _without_wrappers(weights), extras)


def weight_files(path: Path) -> list[Path]:
    """Return the safetensors files of a folder, or the file itself."""
    return sorted(path.glob("*.safetensors")) if path.is_dir() else [path]


def read_settings(path: Path | None) -> dict[str, Any]:
    """Read the configuration file (YAML or JSON) of a checkpoint; without a file, return an empty dictionary.

    Raises:
        UserError: the file does not exist or is not a mapping.
    """
    if path is None:
        return {}
    if not path.is_file():
        raise UserError(f"{path} was not found; give the training configuration with --config.")
    settings = read_yaml(path)
    if not isinstance(settings, dict):
        raise UserError(f"{path} is not a mapping; give the training configuration.")
    return settings


def _load_pickle(path: Path) -> Any:
    try:
        # OpenNMT-py and many scripts keep their command line, an argparse.Namespace, with the weights.
        with torch.serialization.safe_globals([argparse.Namespace]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL (\S+)", str(error))
        what = f"{found[1]}, which is not a tensor" if found else "something that is not a tensor"
        raise UserError(
            f"{path} contains {what}, and loading it could run any code; where it was saved, run "
            "torch.save(model.state_dict(), 'weights.pt') and give that file."
        ) from error
    except (RuntimeError, EOFError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not a complete PyTorch checkpoint; save it again.") from error


def _find_weights(content: Any, path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    if _is_state(content):
        return dict(content), {}
    if isinstance(content, dict):
        for name in _WEIGHTS:
            if _is_state(content.get(name)):
                return dict(content[name]), {key: value for key, value in content.items() if key != name}
    found = f"contains {listed(map(str, content))}" if isinstance(content, dict) else f"is a {type(content).__name__}"
    raise UserError(
        f"{path} {found}, but no weights by name; give what torch.save(model.state_dict(), 'weights.pt') writes."
    )


def _is_state(content: Any) -> bool:
    return (
        isinstance(content, dict)
        and bool(content)
        and all(isinstance(value, torch.Tensor) for value in content.values())
    )


def _without_wrappers(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    for wrapper in _WRAPPERS:
        if tensors and all(name.startswith(wrapper) for name in tensors):
            return _without_wrappers({name.removeprefix(wrapper): tensor for name, tensor in tensors.items()})
    return tensors
