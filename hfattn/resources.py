"""Paths of recipes, card templates and Spaces: next to the package in a checkout, inside it in an installation."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from .errors import UserError
from .yaml_values import read_yaml

PACKAGE = Path(__file__).parent


def resource(*parts: str) -> Path:
    """Return the path of a file or folder such as ``resource("recipes", "char_lm")``."""
    installed = PACKAGE / "resources" / Path(*parts)
    return installed if installed.exists() else PACKAGE.parent / Path(*parts)


def recipe_folders() -> list[Path]:
    """Return the folders of all recipes."""
    return sorted(path.parent for path in resource("recipes").glob("*/train.py"))


class Configuration(NamedTuple):
    """A YAML file, and the ``train.py`` of the recipe that reads it."""

    path: Path
    script: Path


def find_configuration(name: str | Path) -> Configuration:
    """Find a configuration, by its path or as ``hfattn recipes list`` shows it: ``translation/dates``.

    The recipe of a file is the one that its key ``recipe`` names: a recipe of the package, or the path of a folder,
    relative to that of the file. Without the key, it is the ``train.py`` beside the file.

    Raises:
        UserError: the file or the recipe was not found, or the file is not YAML.
    """
    path = Path(name) if Path(name).suffix in (".yaml", ".yml") else resource("recipes") / f"{name}.yaml"
    if not path.is_file():
        raise UserError(f"The configuration {name} was not found; hfattn recipes list shows those that exist.")
    values = read_yaml(path)
    recipe = values.get("recipe") if isinstance(values, dict) else None
    if recipe is None:
        script = path.parent / "train.py"
        if not script.is_file():
            raise UserError(
                f"{path} names no recipe; write a line such as 'recipe: classification', or keep the file beside the "
                "train.py of a recipe."
            )
        return Configuration(path, script)
    for folder in (path.parent / str(recipe), resource("recipes") / str(recipe)):
        if isinstance(recipe, str) and (folder / "train.py").is_file():
            return Configuration(path, folder / "train.py")
    known = ", ".join(folder.name for folder in recipe_folders())
    raise UserError(f"{path} has the recipe {recipe!r}; write one of {known}, or a folder with a train.py.")


def load_recipe(path: Path) -> ModuleType:
    """Import a recipe's ``train.py``.

    Raises:
        UserError: the file does not exist.
    """
    if not path.is_file():
        raise UserError(f"{path} is missing; a configuration must be beside the train.py that reads it.")
    return import_file(f"recipe_{path.parent.name}", path)


def import_file(name: str, path: Path) -> ModuleType:
    """Import a Python file as the module ``name``."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
