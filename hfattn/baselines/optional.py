"""Packages of the extra ``baselines``."""

import importlib
from typing import Any

from ..errors import UserError


def optional(module: str) -> Any:
    """Import a module of the extra ``baselines``.

    Raises:
        UserError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name != package:
            raise
        raise UserError(f"This needs {package}, which is not installed; run: pip install 'hfattn[baselines]'") from None
