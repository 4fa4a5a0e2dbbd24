"""What a run leaves behind: ``results.json`` and its curves."""

import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("hfattn", "torch", "transformers", "tokenizers", "datasets", "evaluate", "accelerate")


def run_facts(recipe: str, config: Path, seed: int) -> dict[str, Any]:
    """Which command made a run, with which versions, on which hardware. Folders of this machine are left out."""
    return {
        "recipe": recipe,
        "config": config.stem,
        "command": _command(),
        "seed": seed,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
        "hardware": _hardware(),
    }


def _command() -> str:
    words = []
    for word in sys.argv:
        if word == "--resume":  # it changes nothing in what comes out
            continue
        path = Path(word)
        if path.is_absolute():
            word = os.path.relpath(path) if path.is_relative_to(Path.cwd()) else path.name
        words.append(word)
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    launcher = "accelerate launch" + (f" --multi_gpu --num_processes {processes}" if processes > 1 else "")
    return f"{launcher} {shlex.join(words)}"


def _hardware() -> dict[str, Any]:
    hardware: dict[str, Any] = {"cpu": _cpu_name(), "threads": torch.get_num_threads()}
    if torch.cuda.is_available():
        hardware["gpu"] = torch.cuda.get_device_name()
    hardware["processes"] = int(os.environ.get("WORLD_SIZE", "1"))
    return hardware


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write_at_once(path: Path, text: str) -> None:
    """Write a file that a reader, or the next run, finds whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def write_results(path: Path, results: Mapping[str, Any]) -> None:
    """Write ``results.json``, the sign that a run has finished."""
    write_at_once(path, json.dumps(results, indent=2, ensure_ascii=False) + "\n")


def plot_curves(
    path: Path,
    log_history: Sequence[Mapping[str, Any]],
    levels: Mapping[str, float],
    title: str,
    unit: str,
    validation: str = "eval_nats_per_character",
) -> None:
    """Draw training and validation loss against the step as PNG.

    Args:
        path: the PNG file.
        log_history: ``trainer.state.log_history``.
        levels: named horizontal lines to compare with.
        title, unit: of the figure and of its vertical axis.
        validation: name of the validation loss in the history.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for key, label, style in (("loss", "training", "-"), (validation, "validation", "o-")):
        points = [(entry["step"], entry[key]) for entry in log_history if key in entry]
        if points:
            axes.plot(*zip(*points, strict=True), style, label=label, markersize=3)
    for (name, level), color in zip(levels.items(), ("0.35", "0.6"), strict=False):
        axes.axhline(level, color=color, linestyle="--", linewidth=1)
        axes.annotate(
            name, (1, level), (-3, 2), ("axes fraction", "data"), "offset points", color=color, fontsize=8, ha="right"
        )
    axes.set(title=title, xlabel="step", ylabel=unit)
    axes.grid(alpha=0.25)
    axes.legend()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
