"""Packages that only an export needs."""

import importlib.util

from ..errors import UserError


def require(*modules: str) -> None:
    """Make sure that packages of the extra ``export`` are installed.

    Raises:
        UserError: one is missing.
    """
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise UserError(f"This export needs {name}, which is not installed; run: pip install 'hfattn[export]'")


__all__ = ["require"]
