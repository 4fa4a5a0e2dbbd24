"""Packages whose names are imported when they are first used, because what they need takes seconds to import."""

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def on_first_use(package: str, modules: Mapping[str, Iterable[str]]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package (PEP 562).

    Args:
        package: name of the package.
        modules: the names that it exports, by the module that defines them.
    """
    places = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f".{places[name]}", package), name)

    return find
