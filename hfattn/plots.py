"""Pictures of a run: curves, BLEU by length, confusion matrices, predictions, reliability, images and attention."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .errors import UserError

if TYPE_CHECKING:
    from matplotlib.colors import LinearSegmentedColormap


class Palette(NamedTuple):
    """The colors of weights.

    Attributes:
        ramp: colors of increasing weight. Zero has about the color of the background. Lightness changes evenly, so
            that the order of the colors is visible with any color vision.
        thread: color of lines between tokens.
    """

    ramp: tuple[str, ...]
    thread: str


# A larger weight stands out more from the background: darker on a light one, brighter on a dark one. The page of an
# attention record has the same colors.
PALETTES = {
    "light": Palette(("#faf8f3", "#cbdde9", "#7eb3d6", "#2f79b0", "#11477c", "#082146"), "#1b6ca8"),
    "dark": Palette(("#181c24", "#1c3a5c", "#1f658e", "#3493c4", "#84c4e9", "#ebf6fd"), "#58b6d8"),
}


def palette() -> Palette:
    """Return the colors for matplotlib's current style: the dark ones if its text is light."""
    from matplotlib import rcParams
    from matplotlib.colors import to_rgb

    return PALETTES["dark" if sum(to_rgb(rcParams["text.color"])) > 1.5 else "light"]


def weight_colors() -> "LinearSegmentedColormap":
    """Return the color map of weights for matplotlib's current style."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("weights", palette().ramp)


# Fonts for scripts that matplotlib's default font lacks; matplotlib takes each glyph from the first font that has it.
_FONTS = (
    "DejaVu Sans",
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Noto Sans JP",
    "Noto Sans SC",
    "Hiragino Sans",
    "PingFang SC",
    "Yu Gothic",
    "Microsoft YaHei",
    "Malgun Gothic",
    "WenQuanYi Zen Hei",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
    "Arial Unicode MS",
)


def installed_fonts() -> list[str]:
    """Return the installed font families that together cover the most scripts, for matplotlib's ``fontfamily``."""
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return [name for name in _FONTS if name in installed]


def plot_curves(
    path: Path,
    log_history: Sequence[Mapping[str, Any]],
    levels: Mapping[str, float],
    title: str,
    unit: str,
    validation: str = "eval_nats_per_character",
) -> None:
    """Draw training and validation loss against the step.

    If the loss falls by more than a factor of ten, its axis is logarithmic.

    Args:
        path: output file; its extension selects PNG, SVG or PDF.
        log_history: ``trainer.state.log_history``.
        levels: reference values by name, drawn as dashed horizontal lines.
        title: title of the figure.
        unit: label of the vertical axis, such as "nats per token".
        validation: key of the validation loss in ``log_history``.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    drawn: list[float] = []
    for key, label, style in (("loss", "training", "-"), (validation, "validation", "o-")):
        points = [(entry["step"], entry[key]) for entry in log_history if key in entry]
        if points:
            axes.plot(*zip(*points, strict=True), style, label=label, markersize=3)
            drawn += [loss for _, loss in points if math.isfinite(loss)]
    for (name, level), color in zip(levels.items(), ("0.35", "0.6"), strict=False):
        axes.axhline(level, color=color, linestyle="--", linewidth=1)
        axes.annotate(
            name, (1, level), (-3, 2), ("axes fraction", "data"), "offset points", color=color, fontsize=8, ha="right"
        )
    axes.set(title=title, xlabel="step", ylabel=unit)
    if drawn and 0 < 10 * min(drawn) < max(drawn):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.25)
    axes.legend()
    figure.savefig(path, dpi=150)


def length_label(row: Mapping[str, Any]) -> str:
    """Return the range of lengths of a row of ``bleu_by_length``, such as "11-20", or "51+" for the last row."""
    return f"{row['from']}+" if row["to"] is None else f"{row['from']}-{row['to']}"


def bleu_varies(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the rows of ``bleu_by_length`` differ in the first decimal, so that a picture says something."""
    return len({round(row["bleu"], 1) for row in rows}) > 1


def plot_bleu_by_length(path: Path, runs: Mapping[str, Sequence[Mapping[str, Any]]], title: str) -> None:
    """Draw BLEU by source length: a group of bars for each range of lengths, with one bar for each run.

    Args:
        path: output file; its extension selects PNG, SVG or PDF.
        runs: the rows of ``bleu_by_length`` by run name; all runs are measured on the same pairs.
        title: title of the figure.
    """
    from matplotlib.figure import Figure

    groups = next(iter(runs.values()))
    figure = Figure(figsize=(max(7.0, 0.3 * len(groups) * (len(runs) + 1)), 4.2), layout="constrained")
    axes = figure.add_subplot()
    width = 0.8 / len(runs)
    for i, (name, rows) in enumerate(runs.items()):
        places = [group + (i - (len(runs) - 1) / 2) * width for group in range(len(groups))]
        bars = axes.bar(places, [row["bleu"] for row in rows], 0.92 * width, label=name)
        if len(runs) <= 2:  # with more bars, the labels would overlap
            axes.bar_label(bars, fmt="%.1f", fontsize=8, padding=1)
    labels = [f"{length_label(row)}\n{row['pairs']:,} {'pair' if row['pairs'] == 1 else 'pairs'}" for row in groups]
    axes.set_xticks(range(len(groups)), labels, fontsize=8)
    axes.set_ylim(bottom=0)
    axes.margins(y=0.1)
    axes.set(title=title, xlabel="words in the source", ylabel="BLEU")
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)
    if len(runs) > 1:
        figure.legend(loc="outside lower center", ncols=min(4, len(runs)), frameon=False)
    figure.savefig(path, dpi=150)


def plot_confusion(path: Path, matrix: Sequence[Sequence[int]], labels: Sequence[str], title: str) -> None:
    """Draw a confusion matrix with counts; colors show the fraction of the row.

    Args:
        path: output file; its extension selects PNG, SVG or PDF.
        matrix: (C, C) counts from ``ConfusionMatrix``: a row for each true class, a column for each predicted class.
        labels: (C,) names of the classes.
        title: line above the matrix.

    Raises:
        UserError: if the matrix is not square with one row for each label.
    """
    from matplotlib.figure import Figure

    counts = np.asarray(matrix)
    if counts.shape != (len(labels), len(labels)):
        raise UserError(
            f"The confusion matrix has shape {counts.shape}; it needs one row and one column for each of the "
            f"{len(labels)} labels."
        )
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = 1.6 + 0.7 * len(labels)
    figure = Figure(figsize=(side + 0.6, side), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(shares, cmap=weight_colors(), vmin=0, vmax=1)
    for (row, column), share in np.ndenumerate(shares):
        color = "white" if share > 0.5 else "black"
        axes.text(column, row, f"{counts[row, column]}", color=color, ha="center", va="center", fontsize=9)
    style: dict[str, Any] = {"parse_math": False}  # a label may contain "$"
    axes.set_xticks(range(len(labels)), labels, rotation=30, ha="right", **style)
    axes.set_yticks(range(len(labels)), labels, **style)
    axes.set(xlabel="predicted class", ylabel="true class")
    axes.set_title(title, **style)
    figure.colorbar(image, label="share of the true class")
    figure.savefig(path, dpi=150)


def plot_predictions(
    path: Path, right: Sequence[float] | np.ndarray, predicted: Sequence[float] | np.ndarray, label: str, title: str
) -> None:
    """Draw the predictions of a regression against the right numbers, with the line on which both are equal.

    Args:
        path: output file; its extension selects PNG, SVG or PDF.
        right, predicted: (n,) numbers.
        label: what the numbers are.
        title: line above the picture.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.8, 4.6), layout="constrained")
    axes = figure.add_subplot()
    axes.scatter(right, predicted, s=9, alpha=0.35, linewidths=0)
    least, most = (float(extreme(np.concatenate([right, predicted]))) for extreme in (np.min, np.max))
    axes.plot((least, most), (least, most), color="0.35", linestyle="--", linewidth=1)
    style: dict[str, Any] = {"parse_math": False}  # a column may have "$" in its name
    axes.set_title(title, **style)
    axes.set_xlabel(f"{label}, right", **style)
    axes.set_ylabel(f"{label}, predicted", **style)
    axes.set_aspect("equal")
    axes.grid(alpha=0.25)
    figure.savefig(path, dpi=150)


def plot_reliability(
    path: Path, before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], title: str
) -> None:
    """Draw the accuracy against the probability of the predicted class, before and after calibration.

    Below it are the shares of the texts by probability. If probabilities are calibrated, the points are on the dashed
    line (DeGroot & Fienberg 1983).

    Args:
        path: output file; its extension selects PNG, SVG or PDF.
        before, after: the bins of ``calibration_scores``.
        title: line above the picture.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.8, 5.8), layout="constrained")
    axes, shares = figure.subplots(2, sharex=True, height_ratios=(3, 1))
    axes.plot((0, 1), (0, 1), color="0.35", linestyle="--", linewidth=1)
    for name, bins, style, color in (("before", before, "o:", "0.55"), ("after", after, "o-", palette().thread)):
        axes.plot(
            [each["confidence"] for each in bins],
            [each["accuracy"] for each in bins],
            style,
            color=color,
            label=name,
            markersize=4,
        )
    texts, width = sum(each["texts"] for each in before), before[0]["to"] - before[0]["from"]
    looks: tuple[dict[str, Any], ...] = ({"color": "0.8"}, {"fill": False, "edgecolor": palette().thread})
    for bins, look in zip((before, after), looks, strict=True):
        shares.bar(
            [each["from"] for each in bins], [each["texts"] / texts for each in bins], width, align="edge", **look
        )
    axes.set_title(title, parse_math=False)
    axes.set(ylabel="accuracy", ylim=(-0.03, 1.03))
    axes.legend(loc="upper left")
    shares.set(xlabel="probability of the predicted class", ylabel="share of texts", xlim=(0, 1))
    for each in (axes, shares):
        each.grid(alpha=0.25)
    figure.savefig(path, dpi=150)


def plot_images(path: Path, images: Sequence[str], names: Sequence[str], title: str) -> None:
    """Draw images in rows of six, each below its name.

    Args:
        path: output file.
        images: files of the images, in base64.
        names: what is written above each.
        title: title of the figure.
    """
    import base64
    import io

    from matplotlib.figure import Figure
    from PIL import Image

    columns = min(6, len(images))
    rows = -(-len(images) // columns)
    figure = Figure(figsize=(1.7 * columns, 1.9 * rows + 0.4), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flat
    for axes in panels:
        axes.axis("off")
    for axes, encoded, name in zip(panels, images, names, strict=False):
        axes.imshow(Image.open(io.BytesIO(base64.b64decode(encoded))))
        axes.set_title(name, fontsize=7)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=120)


def plot_self_distillation(
    path: Path, log_history: Sequence[Mapping[str, Any]], highest_entropy: float, pixels: float | None, title: str
) -> None:
    """Draw entropy and divergence of a self-distillation against the step, and the accuracy of nearest neighbors.

    Args:
        path: output file.
        log_history: ``trainer.state.log_history`` of a ``DinoTrainer``.
        highest_entropy: ln K, drawn as a dashed line.
        pixels: accuracy of nearest neighbors by pixels, drawn as a dashed line; None if images have no labels.
        title: title of the figure.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    series = [(left, "teacher_entropy", "entropy of the teacher"), (left, "divergence", "divergence of the student")]
    for axes, key, label in [*series, (right, "eval_accuracy", "validation")]:
        points = [(entry["step"], entry[key]) for entry in log_history if key in entry]
        if points:
            axes.plot(*zip(*points, strict=True), "o-" if axes is right else "-", label=label, markersize=3)
    left.axhline(highest_entropy, color="0.35", linestyle="--", linewidth=1, label="ln K")
    if pixels is not None:
        right.axhline(pixels, color="0.35", linestyle="--", linewidth=1, label="pixels")
    left.set(xlabel="step", ylabel="nats", ylim=(0, None))
    right.set(xlabel="step", ylabel="accuracy of nearest neighbors")
    for axes in (left, right):
        axes.grid(alpha=0.25)
        if axes.get_legend_handles_labels()[0]:
            axes.legend()
    figure.suptitle(title)
    figure.savefig(path, dpi=150)


def plot_head_maps(
    path: Path, images: Sequence[str], maps: Sequence[Sequence[Sequence[Sequence[float]]]], title: str
) -> None:
    """Draw each image beside the attention of the class token to its patches, a panel for each head.

    Args:
        path: output file.
        images: files of the images, in base64.
        maps: (images, heads, rows, columns) weights.
        title: title of the figure.
    """
    import base64
    import io

    from matplotlib.figure import Figure
    from PIL import Image

    heads = len(maps[0])
    figure = Figure(figsize=(1.6 * (heads + 1), 1.6 * len(images) + 0.6), layout="constrained")
    rows = figure.subplots(len(images), heads + 1, squeeze=False)
    for row, encoded, of_heads in zip(rows, images, maps, strict=True):
        row[0].imshow(Image.open(io.BytesIO(base64.b64decode(encoded))))
        for axes, weights in zip(row[1:], of_heads, strict=True):
            axes.imshow(np.array(weights), cmap=weight_colors(), vmin=0)
    for number, axes in enumerate(rows[0]):
        axes.set_title("image" if number == 0 else f"head {number}", fontsize=9)
    for axes in rows.flat:
        axes.set_xticks([])
        axes.set_yticks([])
    figure.suptitle(title)
    figure.savefig(path, dpi=150)
