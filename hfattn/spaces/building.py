"""Build the folder of a Space: its files, a copy of hfattn, and its models."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from huggingface_hub import ModelCard, cached_assets_path, metadata_load, metadata_save
from tqdm.auto import tqdm

from ..errors import UserError
from ..extras import require
from ..files import new_folder
from ..hub.manifest import published_files
from ..hub_access import model_folder
from ..models.strict_config import unknown_message
from ..resources import PACKAGE, resource
from ..yaml_values import override_words
from .settings import MODELS, SETTINGS, SpaceModel, read_space

# Parts of the package that a Space does not need.
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "resources", "__main__.py", "*.pyc")
_STEP = re.compile(r"^step (\d+)/(\d+) ", re.MULTILINE)  # in the output of a training
_LAST_LINES = 12  # of the output of a failed training


def space_names() -> list[str]:
    """Return the names of all Spaces."""
    return sorted(path.parent.name for path in resource("spaces").glob(f"*/{SETTINGS}"))


def build_space(
    name: str, output: Path, models: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None
) -> dict[str, SpaceModel]:
    """Build the folder of a Space.

    For models that are not given, toys are trained with the recipe in ``space.yaml``, and kept in the cache of Hugging
    Face libraries (``HF_ASSETS_CACHE``): an interrupted build continues with the first toy that is not complete. The
    folder includes a copy of hfattn, so the Space needs only the packages in its requirements.txt.

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
    toys = [model for model in wanted if model not in models]
    if toys:
        require("recipes")
    with new_folder(output) as folder:
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", MODELS))
        shutil.copytree(PACKAGE, folder / "hfattn", ignore=_LEFT_OUT)
        for model, settings in wanted.items():
            if model in toys:
                title = f"{toys.index(model) + 1}/{len(toys)} {model}"
                _copy(_toy(title, settings), folder / MODELS / model)
                wanted[model] = replace(settings, toy=True)
            elif given_folder := given_folders[model]:
                _copy(given_folder, folder / MODELS / model)
            else:
                wanted[model] = replace(settings, hub_id=models[model])
        written = {"models": {model: asdict(settings) for model, settings in wanted.items()}}
        _name_sources(folder / "README.md", wanted.values(), folder / MODELS)
        (folder / SETTINGS).write_text(yaml.safe_dump(written, sort_keys=False), encoding="utf-8")
    return wanted


def _copy(model: Path, folder: Path) -> None:
    for name in published_files(model):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(model / name, folder / name)


def _name_sources(readme: Path, models: Iterable[SpaceModel], folders: Path) -> None:
    """Name the models that a Space loads from the Hub, and the datasets of the models in its folder, in its card."""
    cards = [ModelCard.load(path, ignore_metadata_errors=True) for path in sorted(folders.glob("*/README.md"))]
    sources = {
        "models": [model.hub_id for model in models if model.hub_id is not None],
        "datasets": sorted({name for each in cards for name in each.data.to_dict().get("datasets") or []}),
    }
    named = {kind: names for kind, names in sources.items() if names}
    metadata_save(readme, {**(metadata_load(readme) or {}), **named})


def _toy(title: str, model: SpaceModel) -> Path:
    """Return the folder of a toy that was trained before, or train it."""
    toys = cached_assets_path("hfattn", "spaces", "toys")
    toy = toys / f"{model.recipe}-{model.config}-{_key(model)}"
    if toy.is_dir():
        print(f"{title}: trained before, in {toy}", flush=True)
        return toy
    with TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        _train(title, model, run)
        with new_folder(toy) as folder:
            _copy(run, folder)
    return toy


def _key(model: SpaceModel) -> str:
    """Return a hash of everything that a toy depends on: its configuration, and the code that trains it."""
    recipe = resource("recipes", model.recipe)
    code = [path for path in sorted(PACKAGE.rglob("*.py")) if path.parent != Path(__file__).parent]
    sources = [path.read_bytes() for path in (recipe / f"{model.config}.yaml", recipe / "train.py", *code)]
    return hashlib.sha256(b"\0".join([json.dumps(model.overrides).encode(), *sources])).hexdigest()[:16]


def _train(title: str, model: SpaceModel, run: Path) -> None:
    recipe = resource("recipes", model.recipe)
    words = [
        "--config",
        str(recipe / f"{model.config}.yaml"),
        *override_words(model.overrides),
        "--output_dir",
        str(run),
    ]
    started, log, terminal = time.perf_counter(), run.with_name("log"), sys.stderr.isatty()
    if not terminal:
        print(f"{title}: training a toy with {model.recipe}/{model.config}", flush=True)
    with log.open("wb") as output, tqdm(desc=title, leave=False, dynamic_ncols=True, disable=not terminal) as bar:
        command = [sys.executable, str(recipe / "train.py"), *words]
        process = subprocess.Popen(command, cwd=run.parent, stdout=output, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None:
                time.sleep(0.2)
                for step, steps in _STEP.findall(log.read_text(encoding="utf-8", errors="replace"))[-1:]:
                    bar.total = int(steps)
                    bar.update(int(step) - bar.n)
        finally:
            process.kill()
            process.wait()
    if process.returncode or not (run / "results.json").is_file():
        *before, last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:] or ["no output"]
        sys.stderr.writelines(f"{line}\n" for line in before)
        raise UserError(f"The training of {title.split()[-1]} failed: {last.removeprefix('error: ')}")
    print(f"{title}: trained in {time.perf_counter() - started:.0f} s", flush=True)
