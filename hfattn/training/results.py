"""What a run leaves behind: ``results.json`` and its curves."""

import os
import platform
import shlex
import sys
import textwrap
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from ..explain.plot import installed_fonts
from .arguments import trains_on_cuda

PACKAGES = ("hfattn", "torch", "transformers", "tokenizers", "datasets", "evaluate", "accelerate")


def run_facts(recipe: str, path: Path, configuration: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Which command made a run, from which configuration, with which versions, on which hardware.

    Folders of this machine are left out.

    Args:
        recipe: name of the recipe.
        path: its YAML file.
        configuration: what was read from it and from the command line.
        seed: of the run.
    """
    return {
        "recipe": recipe,
        "config": path.stem,
        "command": _command(),
        "seed": seed,
        "configuration": _without_folders(configuration),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
        "hardware": _hardware(),
    }


def scores_of_part(metrics: Mapping[str, Any], part: str) -> dict[str, Any]:
    """What ``Trainer`` measured of a part, named without it: ``test_bleu`` becomes ``bleu``."""
    return {name.removeprefix(f"{part}_"): value for name, value in metrics.items() if name != "epoch"}


def _without_folders(value: Any) -> Any:
    """A configuration in which an absolute path is that from the working directory, or only its last part."""
    if isinstance(value, Mapping):
        return {name: _without_folders(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_folders(each) for each in value]
    if isinstance(value, str | Path):
        name, equals, rest = str(value).partition("=")
        if equals and name.startswith("--"):  # of a command line
            return f"{name}={_without_folders(rest)}"
        path = Path(value)
        if not path.is_absolute():
            return str(value)
        return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else path.name
    return value


def _command() -> str:
    # Resuming changes nothing in what comes out.
    words = [_without_folders(word) for word in sys.argv if word != "--resume"]
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    launcher = "accelerate launch" + (f" --multi_gpu --num_processes {processes}" if processes > 1 else "")
    if processes > 1 and not trains_on_cuda():
        launcher = f"ACCELERATE_USE_CPU=true {launcher}"
    return f"{launcher} {shlex.join(words)}"


def _hardware() -> dict[str, Any]:
    hardware: dict[str, Any] = {"cpu": _cpu_name(), "threads": torch.get_num_threads()}
    if trains_on_cuda():
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


def length_label(row: Mapping[str, Any]) -> str:
    """The lengths of a row of ``bleu_by_length``: "11-20", and "51+" for the last."""
    return f"{row['from']}+" if row["to"] is None else f"{row['from']}-{row['to']}"


def plot_bleu_by_length(path: Path, runs: Mapping[str, Sequence[Mapping[str, Any]]], title: str) -> None:
    """Draw BLEU by the length of the source: a group of bars for each range of lengths, in it a bar for each run.

    Args:
        path: the file; its ending decides between PNG, SVG and PDF.
        runs: by their names the rows of ``bleu_by_length``, of the same pairs.
        title: of the figure.
    """
    from matplotlib.figure import Figure

    groups = next(iter(runs.values()))
    figure = Figure(figsize=(max(7.0, 0.3 * len(groups) * (len(runs) + 1)), 4.2), layout="constrained")
    axes = figure.add_subplot()
    width = 0.8 / len(runs)
    for i, (name, rows) in enumerate(runs.items()):
        places = [group + (i - (len(runs) - 1) / 2) * width for group in range(len(groups))]
        bars = axes.bar(places, [row["bleu"] for row in rows], 0.92 * width, label=name)
        if len(runs) <= 2:  # more would not fit
            axes.bar_label(bars, fmt="%.1f", fontsize=8, padding=1)
    labels = [f"{length_label(row)}\n{row['pairs']:,} {'pair' if row['pairs'] == 1 else 'pairs'}" for row in groups]
    axes.set_xticks(range(len(groups)), labels, fontsize=8)
    axes.set_ylim(bottom=0)
    axes.margins(y=0.1)
    axes.set(title=title, xlabel="words of the source", ylabel="BLEU")
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)
    if len(runs) > 1:
        figure.legend(loc="outside lower center", ncols=min(4, len(runs)), frameon=False)
    figure.savefig(path, dpi=150)


_COLUMN_CHARACTERS = 44  # of a table's cell before it goes on in the next line
_GAP, _LEADING, _MARGIN = 0.3, 0.14, 0.15  # inches between columns, between rows, around


def plot_table(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> None:
    """Draw a table of texts, such as sample translations; long cells go on in the next line.

    Args:
        path: the file; its ending decides between PNG, SVG and PDF.
        header: names of the columns.
        rows: the cells of each row, as many as there are columns.
        title: a line above.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure()
    style: dict[str, Any] = {"fontfamily": installed_fonts(), "fontsize": 9, "parse_math": False, "va": "top"}
    table = [
        [
            figure.text(0, 0, textwrap.fill(str(cell), _COLUMN_CHARACTERS), weight="bold" if i == 0 else None, **style)
            for cell in row
        ]
        for i, row in enumerate((header, *rows))
    ]
    heading = figure.text(0, 0, title or "", **{**style, "fontsize": 11})

    def size(text: Any) -> tuple[float, float]:
        extent = text.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
        return extent.width, extent.height

    # As much room as the texts turn out to need.
    sizes = [[size(text) for text in row] for row in table]
    widths = [max(row[column][0] for row in sizes) + _GAP for column in range(len(header))]
    heights = [max(height for _, height in row) + _LEADING for row in sizes]
    above = size(heading)[1] + 2 * _LEADING if title else 0.0
    whole = (
        2 * _MARGIN + max(sum(widths) - _GAP, size(heading)[0] if title else 0),
        2 * _MARGIN + above + sum(heights) - _LEADING / 2,
    )
    figure.set_size_inches(whole)
    heading.set_position((_MARGIN / whole[0], 1 - _MARGIN / whole[1]))
    top = _MARGIN + above
    for i, (row, height) in enumerate(zip(table, heights, strict=True)):
        left = _MARGIN
        for text, width in zip(row, widths, strict=True):
            text.set_position((left / whole[0], 1 - top / whole[1]))
            left += width
        if i < len(table) - 1:
            line = 1 - (top + height - _LEADING / 2) / whole[1]
            ends = (_MARGIN / whole[0], 1 - _MARGIN / whole[0])
            color, thickness = ("0.2", 1.0) if i == 0 else ("0.85", 0.6)
            figure.add_artist(Line2D(ends, (line, line), color=color, linewidth=thickness))
        top += height
    figure.savefig(path, dpi=150)
