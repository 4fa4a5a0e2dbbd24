"""Shared code of the Spaces: texts in two languages, a common style, and the location of their models.

``hfattn space build | run | push`` builds, serves and pushes a Space (``building``, ``serving``).
"""

from .interface import BADGE, LANGUAGES, MOST_UNKNOWN, Texts, knows, language_of, launch, number, own_language_first
from .settings import is_toy, load_folder

__all__ = [
    "BADGE",
    "LANGUAGES",
    "MOST_UNKNOWN",
    "Texts",
    "is_toy",
    "knows",
    "language_of",
    "launch",
    "load_folder",
    "number",
    "own_language_first",
]
