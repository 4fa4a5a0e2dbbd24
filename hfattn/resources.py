"""Paths of recipes, card templates and Spaces: next to the package in a checkout, inside it in an installation."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from .errors import UserError

PACKAGE = Path(__file__).parent


def resource(*parts: str) -> Path:
    """Return the path of a file or folder such as ``resource("recipes", "char_lm")``."""
    installed = PACKAGE / "resources" / Path(*parts)
    return installed if installed.exists() else PACKAGE.parent / Path(*parts)


def recipe_folders() -> list[Path]:
    """Return the folders of all recipes."""
    return sorted(path.parent for path in resource("recipes").glob("*/train.py"))


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
