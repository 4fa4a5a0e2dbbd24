"""What the demos in ``spaces/`` share: words in two languages, one look, and where their models are.

``hfattn space build | run | push`` makes a demo's folder, serves it, and pushes it (``building``, ``serving``).
"""

from .interface import LANGUAGES, Texts, language_of, launch, refuse
from .settings import load_folder

__all__ = ["LANGUAGES", "Texts", "language_of", "launch", "load_folder", "refuse"]
