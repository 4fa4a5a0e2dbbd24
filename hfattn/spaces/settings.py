"""``space.yaml``: which models a demo shows, where they come from, and how a small one of each is trained."""

import inspect
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ..errors import UserError

SETTINGS = "space.yaml"
MODELS = "models"


@dataclass(frozen=True)
class SpaceModel:
    """A model of a demo.

    Attributes:
        variable: environment variable that names another: its id on the Hub, or its folder.
        recipe, config: what trains a small one when the demo is built without any.
        overrides: fields of the configuration, by their dotted names.
        hub_id: what the demo was built with instead.
    """

    variable: str
    recipe: str
    config: str
    overrides: dict[str, Any] = field(default_factory=dict)
    hub_id: str | None = None


def read_space(folder: Path) -> dict[str, SpaceModel]:
    """The models of a demo by their names, in the order of ``space.yaml``.

    Raises:
        UserError: the folder has no such file, or a field of it is unknown or missing.
    """
    path = folder / SETTINGS
    if not path.is_file():
        raise UserError(
            f"{folder} is no Space of hfattn, for it has no {SETTINGS}; hfattn space list shows those there are."
        )
    models = yaml.safe_load(path.read_text(encoding="utf-8"))["models"] or {}
    try:
        return {name: SpaceModel(**fields) for name, fields in models.items()}
    except TypeError as error:
        raise UserError(
            f"{path}: {str(error).removeprefix('SpaceModel.__init__() ')}; a model has variable, recipe, "
            "config, overrides, hub_id."
        ) from error


def load_folder(name: str, space: Path | None = None) -> str:
    """The Hub id or the local folder of a demo's model.

    First its environment variable, then the Hub id that the demo was built with, then the folder it was built with.

    Args:
        name: of the model in ``space.yaml``.
        space: folder of the demo; default: that of the file which calls.

    Raises:
        UserError: there is none of them.
    """
    folder = Path(inspect.stack()[1].filename).parent if space is None else space
    model = read_space(folder)[name]
    built = folder / MODELS / name
    if found := os.environ.get(model.variable) or model.hub_id:
        return found
    if built.is_dir():
        return str(built)
    raise UserError(
        f"There is no model {name}: set {model.variable} to a model's id on the Hub or to its folder, or make a small "
        f"one with: hfattn space run {folder.resolve().name}."
    )


__all__ = ["MODELS", "SETTINGS", "SpaceModel", "load_folder", "read_space"]
