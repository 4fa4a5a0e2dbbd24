"""Recipes, card templates and Spaces: folders beside the package in a checkout, and inside it in an installation."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from .errors import UserError

PACKAGE = Path(__file__).parent


def resource(*parts: str) -> Path:
    """Path of a file or folder such as ``resource("recipes", "char_lm")``."""
    installed = PACKAGE / "resources" / Path(*parts)
    return installed if installed.exists() else PACKAGE.parent / Path(*parts)


def recipe_folders() -> list[Path]:
    """The folders of all recipes."""
    return sorted(path.parent for path in resource("recipes").glob("*/train.py"))


def load_recipe(path: Path) -> ModuleType:
    """The module of a recipe's ``train.py``.

    Raises:
        UserError: there is no such file.
    """
    if not path.is_file():
        raise UserError(f"{path} is missing; a configuration stands beside the train.py that reads it.")
    spec = importlib.util.spec_from_file_location(f"recipe_{path.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
