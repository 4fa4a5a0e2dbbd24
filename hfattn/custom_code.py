"""Custom classes in models: a configuration names a class as ``file.Class``, and its file is saved with the model.

``attention_score: my_scores.LowRank`` is the class ``LowRank`` of ``my_scores.py``, a file on ``sys.path``. It is
imported as a sibling of the files in ``hfattn.models``, as in the folder of a saved model. It imports these files as
``.attention_scores``, for example, and therefore runs unchanged without hfattn.
"""

import importlib
import re
import sys
from collections.abc import Iterable, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from . import models
from .models.strict_config import CustomClasses
from .resources import import_file

_MODELS = Path(models.__path__[0])
_WRITTEN = "custom_classes.py"


class CustomCode(CustomClasses):
    """Custom classes if hfattn is installed: they are found on ``sys.path`` and saved with a model."""

    @classmethod
    def find(cls, name: str) -> type:
        """Import the class of a name like ``my_scores.LowRank``.

        Raises:
            ValueError: the name is malformed, the file or class does not exist, or the file imports hfattn.
        """
        if not re.fullmatch(r"[^\W\d]\w*\.[^\W\d]\w*", name):
            raise ValueError(
                f"{name!r} is not the name of a class in a file; write my_scores.LowRank for the class LowRank of the "
                "file my_scores.py."
            )
        file, class_name = name.split(".")
        kind = vars(_import(file)).get(class_name)
        if not isinstance(kind, type):
            advice = "give your file another name" if (_MODELS / f"{file}.py").exists() else "check its spelling"
            raise ValueError(f"{file}.py does not define a class {class_name}; {advice}.")
        return kind

    @classmethod
    def check(cls, names: Iterable[str]) -> None:
        """Reject a class that was added to a registry, because it has no file that can be saved with a model.

        Raises:
            ValueError: a name is that of such a class.
        """
        from .models.attention_distributions import DISTRIBUTIONS  # they import torch
        from .models.attention_scores import SCORES
        from .models.recurrent_cells import CELLS

        names = list(names)
        registries: tuple[Mapping[str, type], ...] = (SCORES, DISTRIBUTIONS, CELLS)
        for name in names:
            for kind in (registry[name] for registry in registries if name in registry):
                if kind.__module__.rpartition(".")[0] != models.__name__:
                    raise ValueError(
                        f"{name!r} cannot be saved: {kind.__name__} is defined in {kind.__module__}; move it to a file "
                        f"that can be saved with the model, such as my_classes.py, and write "
                        f"my_classes.{kind.__name__} in place of {name}."
                    )

    @classmethod
    def copy_files(cls, names: Iterable[str], folder: Path) -> None:
        """Copy the files of custom classes, with the files of hfattn that they import, and write their imports."""
        from .models.attention_distributions import MORE_DISTRIBUTIONS  # they import torch
        from .models.attention_scores import MORE_SCORES
        from .models.configuration_layers import PATTERNS, POSITION_BIASES

        elsewhere = {**MORE_SCORES, **MORE_DISTRIBUTIONS, **PATTERNS, **POSITION_BIASES}
        names = [name for name in (elsewhere.get(name, name) for name in names) if "." in name]
        text = (_MODELS / _WRITTEN).read_text(encoding="utf-8")
        if names:
            imported = {name: name.replace(".", "_") for name in names}
            imports = ["from .{} import {} as {}\n".format(*name.split("."), imported[name]) for name in names]
            classes = ", ".join(f'"{name}": {each}' for name, each in imported.items())
            text = f"{text}\n{''.join(imports)}CLASSES = {{{classes}}}\n"
        (folder / _WRITTEN).write_text(text, encoding="utf-8")
        for file in {name.partition(".")[0] for name in names}:
            _copy(Path(str(_import(file).__file__)), folder)


def _import(file: str) -> ModuleType:
    """Import a file of ``sys.path`` as a module of ``hfattn.models``, whose files it may import as siblings."""
    name = f"{models.__name__}.{file}"
    if name in sys.modules or (_MODELS / f"{file}.py").exists():
        return importlib.import_module(name)
    found = PathFinder.find_spec(file)
    path = Path(found.origin) if found is not None and found.origin else None
    if path is None or path.name != f"{file}.py":
        raise ValueError(
            f"{file}.py was not found on sys.path; add its folder, such as that of a saved model, to PYTHONPATH."
        )
    from transformers.dynamic_module_utils import get_imports  # slow to import, and only needed here

    if "hfattn" in get_imports(path):
        raise ValueError(
            f"{file}.py imports hfattn, which need not be installed where a saved model is loaded; import the files "
            "that are saved with the model, such as: from .attention_scores import Score."
        )
    return import_file(name, path)


def _copy(path: Path, folder: Path) -> None:
    from transformers.dynamic_module_utils import get_relative_imports

    (folder / path.name).write_bytes(path.read_bytes())  # copyfile would raise for an existing file
    for sibling in get_relative_imports(path):
        if not (folder / f"{sibling}.py").exists():
            _copy(_MODELS / f"{sibling}.py", folder)
