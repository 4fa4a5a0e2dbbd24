"""Read ``space.yaml``: the models of a Space, where they come from, and how small ones are trained."""

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
    """A model of a Space.

    Attributes:
        variable: environment variable that selects another model by Hub id or folder.
        recipe, config: recipe and configuration that train a small model if none is given.
        overrides: changes to that configuration, by dotted field names.
        hub_id: Hub id given when the Space was built, if any.
    """

    variable: str
    recipe: str
    config: str
    overrides: dict[str, Any] = field(default_factory=dict)
    hub_id: str | None = None


def read_space(folder: Path) -> dict[str, SpaceModel]:
    """Return the models of a Space by name, in the order of ``space.yaml``.

    Raises:
        UserError: if the file is missing, or a field is unknown or missing.
    """
    path = folder / SETTINGS
    if not path.is_file():
        raise UserError(
            f"{folder} is not a Space of hfattn: {SETTINGS} is missing; hfattn space list shows the Spaces."
        )
    models = yaml.safe_load(path.read_text(encoding="utf-8"))["models"] or {}
    try:
        return {name: SpaceModel(**fields) for name, fields in models.items()}
    except TypeError as error:
        raise UserError(
            f"{path}: {str(error).removeprefix('SpaceModel.__init__() ')}; a model has the fields variable, recipe, "
            "config, overrides, hub_id."
        ) from error


def load_folder(name: str, space: Path) -> str:
    """Return the Hub id or the local folder of a model.

    Looks at its environment variable first, then at the Hub id and the folder given when the Space was built.

    Args:
        name: name of the model in ``space.yaml``.
        space: folder of the Space.

    Raises:
        UserError: if no model was given.
    """
    model = read_space(space)[name]
    built = space / MODELS / name
    if found := os.environ.get(model.variable) or model.hub_id:
        return found
    if built.is_dir():
        return str(built)
    raise UserError(
        f"The model {name} is missing: set {model.variable} to a Hub id or a folder, or build the Space with a small "
        f"model: hfattn space run {space.resolve().name}."
    )
