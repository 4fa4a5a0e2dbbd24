"""Models of other projects made loadable here (``convert``), and ours made ready for other software (``export``)."""

from .checkpoint import Converted
from .convert import FORMATS, convert
from .export import TARGETS, export

__all__ = ["FORMATS", "TARGETS", "Converted", "convert", "export"]
