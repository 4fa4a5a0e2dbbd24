"""hfattn: attention and recurrent models for the Hugging Face ecosystem.

Importing it registers every model with the Auto classes of transformers. It requires only torch and transformers; a
function that needs more says what to install.
"""

from typing import TYPE_CHECKING, Any

from . import api, models
from .api import Run, evaluate, explain, predict, push, train, verify  # noqa: F401  (in __all__ by api.__all__)
from .custom_code import CustomCode
from .models.alignment import AttentionRecord
from .models.strict_config import StrictConfig

if TYPE_CHECKING:
    from .models import *  # noqa: F403

__version__ = "0.1.0"


def _interactive_page(record: AttentionRecord, title: str | None) -> str:
    from .explaining.page import render_html

    return render_html(record, title)


def _show_in_notebook(record: AttentionRecord, title: str | None) -> None:
    from .explaining.notebook import show_in_notebook

    show_in_notebook(record, title)


# Features that saved models lack without hfattn: the interactive page, and custom classes on sys.path.
AttentionRecord.renderer = _interactive_page
AttentionRecord.viewer = _show_in_notebook
StrictConfig.custom_classes = CustomCode


def __getattr__(name: str) -> Any:
    if name in models.__all__:
        return getattr(models, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *models.__all__})


if not TYPE_CHECKING:
    __all__ = api.__all__ + models.__all__
