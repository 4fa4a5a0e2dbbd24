"""Build the folder of a Space: its files, a copy of hfattn, and its models."""

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
from ..yaml_values import override_words
from .settings import MODELS, SETTINGS, SpaceModel, read_space

# Parts of the package that a Space does not need.
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "resources", "__main__.py", "*.pyc")


def space_names() -> list[str]:
    """Return the names of all Spaces."""
    return sorted(path.parent.name for path in resource("spaces").glob(f"*/{SETTINGS}"))


def build_space(
    name: str, output: Path, models: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None
) -> dict[str, SpaceModel]:
    """Build the folder of a Space.

    For models that are not given, toys are trained with the recipe in ``space.yaml``. The folder includes a copy of
    hfattn, so the Space needs only the packages in its requirements.txt.

    Args:
        name: a name of ``space_names``.
        output: folder to create.
        models: model names of ``space.yaml`` with a local folder (copied) or a Hub id (stored, loaded at start).
        overrides: changes to the training of toys, as MODEL.FIELD.

    Returns:
        The models by name, as the ``space.yaml`` of the folder lists them.

    Raises:
        UserError: if the Space, a model or a folder does not exist, or a training fails. No folder is left then.
    """
    if name not in space_names():
        raise UserError(unknown_message(name, space_names(), "a Space"))
    source, models, overrides = resource("spaces", name), dict(models or {}), dict(overrides or {})
    wanted = read_space(source)
    for given in (*models, *(path.split(".")[0] for path in overrides)):
        if given not in wanted:
            raise UserError(
                unknown_message(given, wanted, f"a model of {name}") if wanted else f"{name} has no models."
            )
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
                wanted[model] = replace(settings, toy=True)
            elif given_folder := given_folders[model]:
                _copy(given_folder, folder / MODELS / model)
            else:
                wanted[model] = replace(settings, hub_id=models[model])
        written = {"models": {model: asdict(settings) for model, settings in wanted.items()}}
        (folder / SETTINGS).write_text(yaml.safe_dump(written, sort_keys=False), encoding="utf-8")
    return wanted


def _copy(model: Path, folder: Path) -> None:
    for name in published_files(model):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(model / name, folder / name)


def _train(folder: Path, model: SpaceModel) -> None:
    with TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        words = [*override_words(model.overrides), "--output_dir", str(run)]
        command = [sys.executable, "-m", "hfattn", "train", f"{model.recipe}/{model.config}", *words]
        if subprocess.run(command, cwd=scratch).returncode or not (run / "results.json").is_file():
            raise UserError(f"The training of {folder.name} failed; see its output above.")
        _copy(run, folder)
