"""Paths of recipes, card templates and Spaces: next to the package in a checkout, inside it in an installation."""

import ast
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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
    _check_script(path)
    return import_file(f"recipe_{path.parent.name}", path)


def load_schema(path: Path) -> ModuleType:
    """Import the configuration of a recipe: its ``train.py`` without ``main``, and without what only ``main`` imports.

    The modules that train take seconds to import.

    Raises:
        UserError: the file does not exist.
    """
    _check_script(path)
    code = compile(without_main(ast.parse(path.read_bytes(), path)), path, "exec")
    module = ModuleType(f"schema_{path.parent.name}")
    module.__file__ = str(path)
    with _registered(module):
        exec(code, module.__dict__)
    return module


def without_main(tree: ast.Module) -> ast.Module:
    """Return the code of a script without ``main``, the functions that only ``main`` calls, and what only they import.

    Args:
        tree: the code of the script.
    """
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name != "validate"}
    calls = [node for node in tree.body if isinstance(node, ast.If) and "__name__" in _names([node.test])]
    used: set[str] = set()
    reading = [node for node in tree.body if node not in (*functions.values(), *calls)]
    while reading:
        new = _names(reading) - used
        used |= new
        reading = [functions[name] for name in new if name in functions]
    left_out = [*calls, *(function for name, function in functions.items() if name not in used)]
    unused = _names(left_out) - used
    body: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            node.names = [each for each in node.names if (each.asname or each.name) not in unused]
            body += [node] if node.names else []
        elif node not in left_out:
            body.append(node)
    return ast.Module(body, tree.type_ignores)


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    return {
        each.id
        for node in nodes
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
    }


def _check_script(path: Path) -> None:
    if not path.is_file():
        raise UserError(f"{path} is missing; a configuration must be beside the train.py that reads it.")


def import_file(name: str, path: Path) -> ModuleType:
    """Import a Python file as the module ``name``."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _registered(module):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _registered(module: ModuleType) -> Iterator[None]:
    """Let dataclasses look a module up while its code runs, and afterwards unless that fails."""
    sys.modules[module.__name__] = module
    try:
        yield
    except BaseException:
        del sys.modules[module.__name__]
        raise
