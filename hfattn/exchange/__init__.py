"""Convert checkpoints of other projects to model folders, and export model folders to other software."""

from .checkpoint import Converted
from .convert import FORMATS, convert
from .export import TARGETS, export

__all__ = ["FORMATS", "TARGETS", "Converted", "convert", "export"]
