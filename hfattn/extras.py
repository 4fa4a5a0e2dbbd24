"""Optional dependencies: the modules of each extra, and a one-sentence error if one is missing."""

import importlib
import importlib.util
import sys
from typing import Any

from .errors import UserError

# Names of the imported modules of each extra in pyproject.toml, including those of the extras that it includes.
_RECIPES = (
    "PIL",
    "accelerate",
    "datasets",
    "detect_secrets",
    "evaluate",
    "filelock",
    "matplotlib",
    "peft",
    "sacrebleu",
    "sklearn",
    "tensorboard",
)
_EXPLAIN = ("captum", "matplotlib")
EXTRAS = {
    "publish": ("detect_secrets",),
    "sign": ("detect_secrets", "model_signing", "OpenSSL", "sigstore"),
    "recipes": _RECIPES,
    "baselines": (*_RECIPES, "gensim", "simplemma", "snowballstemmer", "stop_words"),
    "data": (*_RECIPES, "py3langid"),
    "tune": (*_RECIPES, "optuna"),
    "rouge": (*_RECIPES, "rouge_score"),
    "trackio": (*_RECIPES, "trackio"),
    "explain": _EXPLAIN,
    "spaces": (*_RECIPES, *_EXPLAIN, "gradio"),
    "quantization": (*_RECIPES, "bitsandbytes"),
    "export": ("ctranslate2", "onnx", "onnxruntime", "onnxscript"),
}


def require(extra: str, *modules: str) -> None:
    """Check that an extra is installed.

    Args:
        extra: a name in ``EXTRAS``.
        modules: the required modules; by default, all that the extra installs.

    Raises:
        UserError: a module is missing; the message names it, and the command that installs the extra.
    """
    for name in modules or EXTRAS[extra]:
        if importlib.util.find_spec(name) is None:
            raise UserError(f"This needs {name}, which is not installed; run: {install_command(extra)}")


def install_command(extra: str) -> str:
    """Return the command that installs an extra for the Python that runs."""
    return f"{sys.executable} -m pip install 'hfattn[{extra}]'"


def optional(extra: str, module: str) -> Any:
    """Import a module that an extra installs.

    Raises:
        UserError: the module is not installed.
    """
    require(extra, module.partition(".")[0])
    return importlib.import_module(module)
