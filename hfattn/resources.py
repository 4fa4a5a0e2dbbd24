"""Recipes, card templates and Spaces: folders beside the package in a checkout, and inside it in an installation."""

from pathlib import Path

PACKAGE = Path(__file__).parent


def resource(*parts: str) -> Path:
    """Path of a file or folder such as ``resource("recipes", "char_lm")``."""
    installed = PACKAGE / "resources" / Path(*parts)
    return installed if installed.exists() else PACKAGE.parent / Path(*parts)
