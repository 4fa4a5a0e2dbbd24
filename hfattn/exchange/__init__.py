"""Models of other projects made loadable here (``convert``), and ours made ready for others (``export``)."""

from .convert import SOURCES, convert
from .source import Converted, Source

__all__ = ["SOURCES", "Converted", "Source", "convert"]
