"""Models of other projects made loadable here (``convert``), and ours made ready for other software (``export``)."""

from .convert import SOURCES, convert
from .export import TARGETS, export
from .source import Converted

__all__ = ["SOURCES", "TARGETS", "Converted", "convert", "export"]
