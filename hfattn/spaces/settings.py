"""Read ``space.yaml``: the models of a Space, where they come from, and how toys that stand in for them are trained."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError

from ..errors import UserError
from ..fields import refusal
from ..yaml_values import read_yaml

SETTINGS = "space.yaml"
MODELS = "models"


@strict
@dataclass(frozen=True)
class SpaceModel:
    """A model of a Space.

    Attributes:
        variable: environment variable that selects another model by Hub id or folder.
        real: arguments of ``hfattn train`` that train a model for users of the Space: a configuration, and overrides.
        recipe, config: recipe and configuration that train a toy, a small model, if none is given.
        overrides: changes to that configuration, by dotted field names.
        hub_id: Hub id given when the Space was built, if any.
        toy: whether the build of the Space trained a toy with this recipe, configuration and overrides.
    """

    variable: str
    real: str
    recipe: str
    config: str
    overrides: dict[str, Any] = field(default_factory=dict)
    hub_id: str | None = None
    toy: bool = False


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
    settings = read_yaml(path)
    models = settings.get("models") or {} if isinstance(settings, dict) else None
    if not isinstance(models, dict) or not all(isinstance(fields, dict) for fields in models.values()):
        raise UserError(f"{path} has no mapping of models; write 'models:' and below it the name and fields of each.")
    return {str(name): _space_model(path, fields) for name, fields in models.items()}


def _space_model(path: Path, fields: dict[str, Any]) -> SpaceModel:
    try:
        return SpaceModel(**fields)
    except StrictDataclassError as error:
        reason = refusal(error)
    except TypeError as error:
        reason = str(error).removeprefix("SpaceModel.__init__() ")
    raise UserError(f"{path}: {reason}; a model has the fields variable, real, recipe, config, overrides, hub_id, toy.")


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
        f"The model {name} is missing: set {model.variable} to a Hub id or a folder, or build the Space with a toy: "
        f"hfattn space run {space.resolve().name}."
    )


def is_toy(name: str, space: Path) -> bool:
    """Return whether ``load_folder`` returns a toy: a small model that was trained when the Space was built.

    Args:
        name: name of the model in ``space.yaml``.
        space: folder of the Space.
    """
    model = read_space(space)[name]
    return model.toy and not os.environ.get(model.variable)
