"""Facts about a run for its ``results.json``."""

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any

import torch
import yaml

from ..data.rows import DATASETS_READ
from ..resources import PACKAGE
from ..yaml_values import load_yaml
from .arguments import trains_on_cuda

PACKAGES = ("hfattn", "torch", "transformers", "tokenizers", "datasets", "evaluate", "accelerate")


def run_facts(
    recipe: str, path: Path, configuration: Mapping[str, Any], seed: int, argv: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the command of a run, its configuration, the versions of libraries and the hardware.

    Absolute paths are shortened, so that no folder of the machine is recorded.

    Args:
        recipe: name of the recipe.
        path: the YAML file.
        configuration: the configuration after overrides.
        seed: random seed of the run.
        argv: the script and its arguments; default: those of this process.
    """
    return {
        "recipe": recipe,
        "config": path.stem,
        "command": _command(sys.argv if argv is None else argv),
        "seed": seed,
        "configuration": _without_folders(configuration),
        "commit": hfattn_commit(),
        "dataset": _hub_facts(configuration.get("data", {})),
        "versions": versions(),
        "hardware": hardware(),
    }


def scores_of_part(metrics: Mapping[str, Any], part: str) -> dict[str, Any]:
    """Return the metrics of a part without its prefix: ``test_bleu`` becomes ``bleu``."""
    return {name.removeprefix(f"{part}_"): value for name, value in metrics.items() if name != "epoch"}


def _without_folders(value: Any) -> Any:
    """Return a configuration whose absolute paths are relative to the working directory or only a file name."""
    if isinstance(value, Mapping):
        return {name: _without_folders(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_folders(each) for each in value]
    if isinstance(value, str | Path):
        path = Path(value)
        if not path.is_absolute():
            return str(value)
        return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else path.name
    return value


def _word_without_folders(word: str) -> str:
    """Return a word of a command line as ``_without_folders`` does, also if it is a mapping or a list."""
    name, equals, value = word.partition("=")
    if equals and name.startswith("--"):
        return f"{name}={_word_without_folders(value)}"
    if word.startswith(("{", "[")):
        with suppress(yaml.YAMLError):  # a text in brackets
            fields = load_yaml(word)
            if (shortened := _without_folders(fields)) != fields:
                return json.dumps(shortened)
    return str(_without_folders(word))


def _command(argv: Sequence[str]) -> str:
    # A resumed run has the same results as an uninterrupted one.
    words = [_word_without_folders(word) for word in argv if word != "--resume"]
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    launcher = "accelerate launch" + (f" --multi_gpu --num_processes {processes}" if processes > 1 else "")
    if processes > 1 and not trains_on_cuda():
        launcher = f"ACCELERATE_USE_CPU=true {launcher}"
    return f"{launcher} {shlex.join(words)}"


def hfattn_commit() -> str | None:
    """Return the commit of the installed hfattn, with "-dirty" if files differ from it; None if it is a release."""
    installed = json.loads(distribution("hfattn").read_text("direct_url.json") or "{}")
    if "vcs_info" in installed:
        return str(installed["vcs_info"]["commit_id"])
    if not (PACKAGE.parent / ".git").exists():
        return None
    words = ["git", "-C", str(PACKAGE.parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):  # git is not installed
        return None
    return done.stdout.strip() or None


def _hub_facts(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the id, the commit and the tasks of the dataset on the Hub that was read; None if it was another one."""
    name = data.get("dataset")
    found = DATASETS_READ.get((name, data.get("revision"))) if isinstance(name, str) else None
    return found and {"id": name, **found._asdict()}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that train."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


def hardware() -> dict[str, Any]:
    """Return the name of the CPU, the number of threads, the name of the GPU if that trains, and the processes."""
    found: dict[str, Any] = {"cpu": cpu_name(), "threads": torch.get_num_threads()}
    if trains_on_cuda():
        found["gpu"] = torch.cuda.get_device_name()
    found["processes"] = int(os.environ.get("WORLD_SIZE", "1"))
    return found


def cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
