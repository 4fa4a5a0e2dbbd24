"""The folder of a demo as it is pushed: its own files, this package beside them, and its models."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from ..errors import UserError
from ..files import new_folder
from ..hub.manifest import published_files
from ..hub_access import model_folder
from ..models.strict_config import unknown_message
from ..resources import PACKAGE, resource
from .settings import MODELS, SETTINGS, SpaceModel, read_space

# What a demo does not need of the package: what lies beside it in a checkout, and what builds demos.
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "resources", "cli", "__main__.py", "*.pyc")


def space_names() -> list[str]:
    """The demos that there are."""
    return sorted(path.parent.name for path in resource("spaces").glob(f"*/{SETTINGS}"))


def build_space(
    name: str, output: Path, models: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None
) -> None:
    """Make the folder of a demo.

    Each model is one that was given, or a small one that is trained here. The folder holds the package as well: a demo
    needs only what its requirements.txt names.

    Args:
        name: of ``space_names``.
        output: folder to make.
        models: by their names in ``space.yaml``, a folder, which is copied, or an id on the Hub, which is noted.
        overrides: of what is trained here, as MODEL.FIELD.

    Raises:
        UserError: there is no such demo, model or folder, or a training ends without a model; nothing is left.
    """
    if name not in space_names():
        raise UserError(unknown_message(name, space_names(), "a Space"))
    source, models, overrides = resource("spaces", name), dict(models or {}), dict(overrides or {})
    wanted = read_space(source)
    for given in (*models, *(path.split(".")[0] for path in overrides)):
        if given not in wanted:
            raise UserError(unknown_message(given, wanted, f"a model of {name}") if wanted else f"{name} has no model.")
    for path, value in overrides.items():
        model, _, field = path.partition(".")
        wanted[model].overrides[field] = value
    given_folders = {model: model_folder(given) for model, given in models.items()}
    with new_folder(output) as folder:
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", MODELS))
        shutil.copytree(PACKAGE, folder / "hfattn", ignore=_LEFT_OUT)
        for model, settings in wanted.items():
            if model not in models:
                _train(folder / MODELS / model, settings)
            elif given_folder := given_folders[model]:
                _copy(given_folder, folder / MODELS / model)
            else:
                wanted[model] = replace(settings, hub_id=models[model])
        written = {"models": {model: asdict(settings) for model, settings in wanted.items()}}
        (folder / SETTINGS).write_text(yaml.safe_dump(written, sort_keys=False), encoding="utf-8")


def _copy(model: Path, folder: Path) -> None:
    for name in published_files(model):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(model / name, folder / name)


def _train(folder: Path, model: SpaceModel) -> None:
    words = [word for field, value in model.overrides.items() for word in (f"--{field}", _text(value))]
    with TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        words += ["--output_dir", str(run)]
        command = [sys.executable, "-m", "hfattn", "train", f"{model.recipe}/{model.config}", *words]
        if subprocess.run(command, cwd=scratch).returncode or not (run / "results.json").is_file():
            raise UserError(f"No model could be trained for {folder.name}; what it said is above.")
        _copy(run, folder)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


__all__ = ["build_space", "space_names"]
