"""Draw the figures of the documentation with the package when the site is built.

Each figure is drawn for light and for dark pages, with a transparent background. ``python docs/figures.py FOLDER``
writes all of them, and alignment.png, the picture of the README in docs/assets.
"""

import io
import json
import re
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib
import torch
from cycler import cycler
from huggingface_hub.errors import StrictDataclassClassValidationError
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.transforms import ScaledTranslation

sys.path.insert(0, str(Path(__file__).parents[1]))  # `python docs/figures.py` has docs alone

from benchmarks import generation, train_recurrent, train_transformer
from benchmarks.harness import Benchmark, Record
from hfattn import VaswaniConfig, VaswaniForCausalLM, VaswaniForMaskedLM
from hfattn.attention import DISTRIBUTIONS, SCORES, LocalMonotonic, LocalPredictive, attend
from hfattn.explaining import (
    AttentionRecord,
    ScoredText,
    hide_special,
    merge_words,
    plot_alignment,
    plot_flow,
    plot_heads,
    render_html,
    rollout,
    scores_snippet,
)
from hfattn.models.modeling_vaswani import sinusoidal_positions
from hfattn.plots import weight_colors
from hfattn.training.schedules import exponential_warmup, linear_warmup, noam, tfixup

RECORDS = Path(__file__).parent / "records"
# Okabe and Ito's colors without yellow and black, which are hard to see on one of the backgrounds.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#8C8C8C")
THEMES = {"light": "#333333", "dark": "#c9ccd6"}  # color of lines and text


def _style(theme: str) -> Any:
    ink = THEMES[theme]
    return {
        "axes.edgecolor": ink,
        "axes.facecolor": "none",
        "axes.labelcolor": ink,
        "axes.prop_cycle": cycler(color=COLORS),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlesize": 9,
        "figure.facecolor": "none",
        "font.size": 8,
        "legend.frameon": False,
        "savefig.facecolor": "none",
        "svg.hashsalt": "hfattn",  # reproducible files
        "text.color": ink,
        "xtick.color": ink,
        "ytick.color": ink,
    }


def landscapes() -> Figure:
    """Draw the score of one query with every key of the plane."""
    names = [
        "dot", "cosine", "general", "additive", "activated_general", "generalized_kernel",
        "gaussian", "boxcar", "euclidean", "manhattan", "chebyshev", "mahalanobis",
    ]  # fmt: skip
    query = torch.tensor([[1.0, 0.5]])
    side = torch.linspace(-2, 2, 61)
    plane = torch.cartesian_prod(side, side)
    generator = torch.Generator().manual_seed(2)
    additive_shapes = {"W_q": (8, 2), "W_k": (8, 2), "v": (8,)}
    parameters = {
        "general": {"W": torch.tensor([[0.6, -0.8], [0.8, 0.6]])},
        "activated_general": {"W": torch.eye(2)},
        "additive": {name: torch.randn(shape, generator=generator) for name, shape in additive_shapes.items()},
        "mahalanobis": {"Sigma": torch.tensor([[1.0, 0.7], [0.7, 1.0]])},
    }
    figure = Figure(figsize=(8, 5.9), layout="constrained")
    axes = figure.subplots(3, 4)
    for one, name in zip(axes.flat, names, strict=True):
        energies = _energies(name, query, plane, parameters.get(name, {})).reshape(61, 61).T
        one.imshow(energies, cmap=weight_colors(), origin="lower", extent=(-2, 2, -2, 2), interpolation="bilinear")
        if name != "boxcar":
            one.contour(side, side, energies, levels=8, colors=COLORS[-1], linewidths=0.4, linestyles="solid")
        one.plot(*query[0], marker="o", color="white", markeredgecolor="black", markersize=5)
        one.set(title=name, aspect="equal", xticks=[], yticks=[])
        one.spines[:].set_visible(False)
    return figure


def _energies(name: str, query: torch.Tensor, key: torch.Tensor, parameters: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return f(q, k) of one query with all keys, (S,)."""
    score = SCORES[name](query.shape[-1], key.shape[-1], **SCORES[name].options_from(parameters))
    score.neutral_(given=parameters)
    score.substitute(parameters)
    with torch.no_grad():
        return score(query, key)[0]


def scaling() -> Figure:
    """Draw the largest of 20 weights against the width of random vectors."""
    torch.manual_seed(0)
    widths = [2**i for i in range(1, 11)]
    figure = Figure(figsize=(5, 2.6), layout="constrained")
    axes = figure.subplots()
    for score in ("dot", "scaled_dot", "cosine"):
        largest = []
        for width in widths:
            query, key = torch.randn(200, 4, width), torch.randn(200, 20, width)
            _, weights = attend(query, key, key, score)
            assert weights is not None  # they were asked for
            largest.append(weights.amax(-1).mean().item())
        axes.plot(widths, largest, marker="o", markersize=3, label=score)
    axes.set(xscale="log", xlabel="width of query and keys", ylabel="largest of 20 weights", ylim=(0, 1))
    axes.legend()
    return figure


def regression() -> Figure:
    """Draw attention over noisy points of a curve: the Nadaraya-Watson estimator."""
    generator = torch.Generator().manual_seed(3)
    x = (torch.rand(40, 1, generator=generator) * 5).sort(0).values
    y = 2 * x.sin() + x.pow(0.8) + 0.4 * torch.randn(40, 1, generator=generator)
    at = torch.linspace(0, 5, 400)[:, None]
    settings = {
        "gaussian, s = 0.1": ("gaussian", "softmax", {"s": 0.1}),
        "gaussian, s = 0.4": ("gaussian", "softmax", {"s": 0.4}),
        "gaussian, s = 2": ("gaussian", "softmax", {"s": 2.0}),
        "boxcar, normalize": ("boxcar", "normalize", {}),
    }
    figure = Figure(figsize=(8, 2.5), layout="constrained")
    for i, (one, (title, (score, distribution, options))) in enumerate(
        zip(figure.subplots(1, 4, sharey=True), settings.items(), strict=True)
    ):
        estimate, _ = attend(at, x, y, score, distribution, score_options=options)
        one.plot(x, y, linestyle="none", marker="o", markersize=2.5, color=COLORS[-1])
        one.plot(at, estimate, color=COLORS[i])
        one.set(title=title, xlabel="x")
    return figure


ENERGIES = torch.tensor([2.0, 1.4, 1.1, 0.3, -0.4, -1.5])


def distributions() -> Figure:
    """Draw the weights of six energies for each distribution."""
    names = ["softmax", "entmax", "sparsemax", "hard", "sigmoid", "compositional", "normalize"]
    assert set(names) == set(DISTRIBUTIONS)
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots(2, 4).flat
    _bars(next(axes), ENERGIES, "energies e", COLORS[-1])
    for one, name in zip(axes, names, strict=True):
        distribution: Any = DISTRIBUTIONS[name](query_size=1, key_size=1) if name == "compositional" else name
        energies = ENERGIES.clamp(min=0) if name == "normalize" else ENERGIES
        with torch.no_grad():
            weights = _weights(energies, distribution)
        _bars(one, weights, f"{name}: sum {weights.sum():.2f}", COLORS[0])
    return figure


def _weights(energies: torch.Tensor, distribution: Any) -> torch.Tensor:
    """Return g(e), using keys whose inner product with the query 1 is the energy."""
    if distribution == "hard":
        distribution = DISTRIBUTIONS["hard"]().eval()
    _, weights = attend(torch.ones(1, 1), energies[:, None], torch.zeros(len(energies), 1), "dot", distribution)
    assert weights is not None  # they were asked for
    return weights[0]


def _bars(axes: Axes, values: torch.Tensor, title: str, color: str) -> None:
    axes.bar(range(len(values)), values, color=color)
    axes.axhline(0, linewidth=0.6, color=matplotlib.rcParams["axes.edgecolor"])
    axes.set(title=title, xticks=[])
    axes.spines.bottom.set_visible(False)
    for i, value in enumerate(values.tolist()):
        if value == 0:
            axes.annotate("0", (i, 0), ha="center", va="bottom", fontsize=7)


def two_keys() -> Figure:
    """Draw the weight of the first of two keys against its energy."""
    gap = torch.linspace(-4, 4, 401)
    energies = torch.stack([gap, torch.zeros_like(gap)], dim=-1)
    figure = Figure(figsize=(5, 2.6), layout="constrained")
    axes = figure.subplots()
    for label, name, options in (
        ("softmax", "softmax", {}),
        ("entmax, α = 1.25", "entmax", {"alpha": 1.25}),
        ("entmax, α = 1.5", "entmax", {"alpha": 1.5}),
        ("sparsemax", "sparsemax", {}),
        ("hard", "hard", {}),
    ):
        axes.plot(gap, DISTRIBUTIONS[name](**options).eval()(energies)[:, 0], label=label)
    axes.set(xlabel="energy of the first key above that of the second", ylabel="weight of the first")
    axes.legend()
    return figure


def masks() -> Figure:
    """Draw common masks."""
    size, real = 12, torch.arange(12) < 10
    torch.manual_seed(4)
    query = torch.randn(1, size, 8)
    local_p = LocalPredictive(query_size=8, half_width=2)
    with torch.no_grad():
        monotonic, _ = LocalMonotonic(half_width=2)(query, real[None])
        predicted, gaussian = local_p(3 * query, real[None])
    full = torch.ones(size, size)
    panels = {
        "padding": full * real,
        "causal": full.tril(),
        "both": full.tril() * real,
        "local-m, D = 2": monotonic[0].float(),
        "local-p, D = 2": predicted[0] * gaussian[0],
    }
    figure = Figure(figsize=(8, 2), layout="constrained")
    for one, (title, mask) in zip(figure.subplots(1, 5), panels.items(), strict=True):
        _cells(one, mask)
        one.set(title=title, xlabel="keys")
    figure.axes[0].set_ylabel("queries")
    return figure


def _cells(axes: Axes, matrix: torch.Tensor) -> None:
    """Draw numbers between 0 and 1 for queries and keys (T, S)."""
    axes.imshow(matrix, cmap=weight_colors(), vmin=0, vmax=1)
    axes.set(xticks=[], yticks=[])
    axes.set_xticks([i - 0.5 for i in range(1, matrix.shape[1])], minor=True)
    axes.set_yticks([i - 0.5 for i in range(1, matrix.shape[0])], minor=True)
    axes.grid(which="minor", color=COLORS[-1], linewidth=0.4, alpha=0.5)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)


# The pattern of a self-attention and its options, by the title of the picture.
PATTERNS: dict[str, tuple[str, dict[str, Any]]] = {
    "full": ("full", {}),
    "window: 4": ("window", {"window": 4}),
    "window: 4, dilation: 2": ("window", {"window": 4, "dilation": 2}),
    "window: 2, global_tokens: 2": ("window", {"window": 2, "global_tokens": 2}),
    "block_local, block: 4": ("block_local", {"block": 4}),
    "strided, stride: 4": ("strided", {"stride": 4}),
    "fixed, block: 4": ("fixed", {"block": 4}),
    "adaptive_span, ramp: 8": ("adaptive_span", {"span": 8, "ramp": 8}),
    "memory, memory_length: 2": ("memory", {"segment_length": 4, "memory_length": 2}),
    "lsh, keys: 2": ("lsh", {"buckets": 4, "keys": 2, "rounds": 1}),
}


def patterns() -> Figure:
    """Draw the weights of each pattern in an encoder and in a decoder, as models compute them."""
    columns = 5
    bands = -(-len(PATTERNS) // columns)
    figure = Figure(figsize=(8, 3.5 * bands), layout="constrained")
    grid = figure.subplots(2 * bands, columns, squeeze=False)
    for index in range(bands * columns):
        of_encoder, of_decoder = grid[2 * (index // columns) :, index % columns][:2]
        title, pattern = [*PATTERNS.items(), *[("", None)] * columns][index]
        of_encoder.set_title(title.replace(", ", ",\n"))
        for axes, stack in ((of_encoder, "encoder"), (of_decoder, "decoder")):
            weights = None if pattern is None else _pattern_weights(*pattern, stack)
            if weights is None:
                axes.set_axis_off()
            else:
                _cells(axes, weights)
            if index % columns == 0:
                axes.set_ylabel(stack)
    return figure


def _pattern_weights(pattern: str, options: dict[str, Any], stack: str) -> torch.Tensor | None:
    """Return the weights (T, T) of a head, divided by the largest of each row; None if the pattern is for other stacks.

    The keys are zero vectors, so that weights differ by the pattern only.
    """
    config: dict[str, Any] = {
        **{"vocab_size": 5, "hidden_size": 16, "num_attention_heads": 1, "positions": "none"},
        **{f"{stack}_layers": 1, f"{stack}_pattern": pattern, f"{stack}_pattern_options": options},
    }
    torch.manual_seed(0)
    ids = torch.randint(5, (1, 16))
    kind = VaswaniForCausalLM if stack == "decoder" else VaswaniForMaskedLM
    try:
        model = kind(VaswaniConfig(**config, attn_implementation="eager")).eval()
    except StrictDataclassClassValidationError:
        return None
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("k_proj.weight"):
                parameter.zero_()
        weights = model(ids, output_attentions=True).attentions[0][0, 0]
    return weights / weights.amax(-1, keepdim=True)


def positions() -> Figure:
    """Draw the sinusoidal positions of the Transformer."""
    states = sinusoidal_positions(torch.arange(100), width=128)
    figure = Figure(figsize=(7, 2.6), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(states.T, cmap=weight_colors(), aspect="auto", interpolation="nearest")
    axes.set(xlabel="position", ylabel="feature")
    axes.spines[:].set_visible(False)
    figure.colorbar(image).outline.set_visible(False)
    return figure


def schedules() -> Figure:
    """Draw learning rate schedules."""
    steps = range(1, 20_001, 20)
    figure = Figure(figsize=(8, 2.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for width, warmup in ((512, 4000), (512, 8000), (256, 4000)):
        left.plot(steps, [noam(t, width, warmup) for t in steps], label=f"d = {width}, warmup = {warmup}")
    left.set(title="noam", xlabel="update", ylabel="factor on lr")
    left.legend()
    early = range(1, 8001, 10)
    right.plot(early, [linear_warmup(t, 2000) for t in early], label="linear_warmup, τ = 2000")
    right.plot(early, [exponential_warmup(t, 1000) for t in early], label="exponential_warmup, τ = 1000")
    right.plot(early, [tfixup(t, 4000) for t in early], label="tfixup, P = 4000")
    right.set(title="other schedules", xlabel="update")
    right.legend()
    return figure


def record(name: str) -> AttentionRecord:
    """Return a recorded alignment of a trained model."""
    return AttentionRecord.from_dict(json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8")))


def speed(module: ModuleType) -> Figure:
    """Draw the times of the tables of a benchmark, relative to the first row of each."""
    benchmark: Benchmark = module.BENCHMARK
    found = Record.read(benchmark.path)
    tables = [name for name in module.TITLES if name in found.columns]
    bars = [sum(len(column.times) for column in found.columns[name].values()) for name in tables]
    # Two names of up to 44 letters fit side by side.
    widths = [1 if max(map(len, found.rows(name))) > 44 else 2 for name in tables]
    legends = [-(-len(found.rows(name)) // width) for name, width in zip(tables, widths, strict=True)]  # lines
    heights = [0.16 * number + 0.2 * lines + 0.9 for number, lines in zip(bars, legends, strict=True)]
    figure = Figure(figsize=(5.6, sum(heights)), layout="constrained")  # narrow enough for a telephone
    grid = figure.subplots(len(tables), 1, squeeze=False, height_ratios=[number + 3 for number in bars])[:, 0]
    for axes, name, width in zip(grid, tables, widths, strict=True):
        columns, rows, start, ticks = found.columns[name], found.rows(name), 0.0, []
        # After the last color, the first ones are used again, with lines.
        styles = [{"color": f"C{i}", "hatch": "////" if i >= len(COLORS) else ""} for i in range(len(rows))]
        for column in columns.values():
            for i, row in enumerate(column.times):
                axes.barh(start + i, column.ratio(row), edgecolor="white", linewidth=0, **styles[rows.index(row)])
            ticks.append(start + (len(column.times) - 1) / 2)
            start += len(column.times) + 0.8
        axes.axvline(1, color=COLORS[-1], linewidth=0.6)
        axes.set_yticks(ticks, list(columns))
        axes.tick_params(axis="y", length=0)
        axes.invert_yaxis()
        axes.set(title=module.TITLES[name][0], xlabel=f"time / time of {rows[0]}")
        handles = [
            Patch(edgecolor="white", linewidth=0, label=row, facecolor=style["color"], hatch=style["hatch"])
            for row, style in zip(rows, styles, strict=True)
        ]
        below = axes.transAxes + ScaledTranslation(0, -0.4, figure.dpi_scale_trans)  # under the labels of the axis
        axes.legend(handles=handles, loc="upper center", ncols=width, bbox_to_anchor=(0.35, 0), bbox_transform=below)
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "landscapes": landscapes,
    "scaling": scaling,
    "regression": regression,
    "distributions": distributions,
    "two_keys": two_keys,
    "masks": masks,
    "patterns": patterns,
    "positions": positions,
    "schedules": schedules,
    "alignment_dates": lambda: plot_alignment(record("dates")),
    "alignment_spanish": lambda: plot_alignment(record("spanish")),
    "flow_spanish": lambda: plot_flow(record("spanish")),
    "heads": lambda: plot_heads(record("heads")),
    "rolled_out": lambda: plot_alignment(rollout(record("heads"))),
    "speed_generation": lambda: speed(generation),
    "speed_transformer": lambda: speed(train_transformer),
    "speed_recurrent": lambda: speed(train_recurrent),
}
PAGES = {"explore_spanish": ("spanish", "English to Spanish", 9)}  # name of the record, title, first row


@cache
def draw(name: str, theme: str) -> bytes:
    """Return a figure as SVG for one color scheme."""
    with matplotlib.rc_context(rc=_style(theme)), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # warning about tensors that become arrays
        figure = FIGURES[name]()
        file = io.BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def width(name: str, theme: str) -> float:
    """Return the width of a figure in CSS pixels."""
    found = re.search(rb'<svg [^>]*?width="([\d.]+)pt"', draw(name, theme))
    assert found, f"the figure {name} has no width in points"
    return float(found[1]) * 4 / 3


def colored() -> str:
    """Return a recorded text with three kinds of scores as HTML elements."""
    recorded = json.loads((RECORDS / "scores.json").read_text(encoding="utf-8"))
    texts = [ScoredText(**{**each, "scores": torch.tensor(each["scores"])}) for each in recorded]
    return "\n".join(f"<p><em>{scored.method}</em></p>\n{scores_snippet(scored)}" for scored in texts)


@cache
def page(name: str) -> str:
    """Return an interactive page."""
    recorded, title, row = PAGES[name]
    return render_html(record(recorded), title, row)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for figure_name in FIGURES:
        for theme_name in THEMES:
            (folder / f"{figure_name}.{theme_name}.svg").write_bytes(draw(figure_name, theme_name))
    plot_alignment(hide_special(merge_words(record("spanish")))).savefig(folder / "alignment.png", dpi=150)
    for page_name in PAGES:
        (folder / f"{page_name}.html").write_text(page(page_name), encoding="utf-8")
