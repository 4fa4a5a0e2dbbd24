"""Draw the figures of the lab as SVG that uses the colors of the page (light or dark).

Marks that can be moved have ``data-handle``: ``q`` (the query), ``k3`` (the key of row 3) or ``v3`` (its value); and
their coordinates, ``data-x`` and ``data-y``. The attribute ``data-frame`` of the figure maps coordinates of the plane
to its units.

Shapes: S keys, N points of a curve, G rows and columns of a field.
"""

import base64
import html
import io
from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image

from hfattn.spaces import number

# Okabe and Ito's color-blind safe colors, then similar ones; every mark also has a number.
COLORS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
    "#882255", "#999933", "#332288", "#aa4499", "#117733", "#ddcc77",
)  # fmt: skip
WIDTH, LEFT, TOP, RIGHT, BOTTOM = 440, 34, 12, 10, 30  # size of a figure and its margins, in SVG units
REACH = 34  # radius of what a finger may touch of a mark: more than 22 pixels on a phone
CSS = """
.html-container:has(.lab) { padding: 0 !important; }
.lab { --ink: var(--body-text-color); --faint: var(--border-color-primary); color: var(--ink); }
.lab svg { display: block; width: 100%; max-width: 40rem; margin: 0 auto; touch-action: pan-y; overflow: visible;
  font-family: system-ui, sans-serif; user-select: none; -webkit-user-select: none; }
.lab svg text { fill: var(--ink); font-size: 12px; }
.lab svg .grid { stroke: var(--faint); stroke-width: 1; }
.lab svg .axis { stroke: var(--body-text-color-subdued); stroke-width: 1; }
.lab svg .curve { fill: none; stroke: var(--ink); stroke-width: 2; }
.lab svg .weight { fill: none; stroke-width: 2; }
.lab svg .query { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 5 4; }
.lab svg .hull { fill: none; stroke: var(--ink); stroke-width: 1.2; stroke-dasharray: 2 3; opacity: .8; }
.lab svg .mark { stroke: var(--background-fill-primary); stroke-width: 1.5; }
.lab svg .mark.unseen { fill: var(--background-fill-primary); stroke: var(--own); stroke-dasharray: 3 2; }
.lab svg .ink { fill: var(--ink); }
.lab svg .number { font-size: 10px; font-weight: 700; text-anchor: middle; pointer-events: none; }
.lab svg [data-handle] { cursor: grab; touch-action: none; outline: none; }
.lab svg [data-handle]:focus-visible :is(.mark, .cross, .query) { stroke: var(--color-accent); stroke-width: 4;
  stroke-dasharray: none; }
.lab svg .reach { fill: transparent; stroke: none; cursor: default; }
.lab .wrong { aspect-ratio: 1; display: grid; place-content: center; text-align: center; padding: 0 2rem; margin: 0;
  border: 1px dashed var(--border-color-primary); border-radius: .6rem; }
.tabitem:has(.wrong) .numbers { visibility: hidden; }
.lab .legend { display: flex; flex-wrap: wrap; gap: .15rem 1.1rem; justify-content: center; font-size: .88rem;
  margin: .3rem 0 .7rem; color: var(--body-text-color-subdued); }
.lab .legend b { color: var(--ink); font-weight: 600; font-variant-numeric: tabular-nums; }
.lab .scroll { overflow-x: auto; }
.lab table { width: 100%; max-width: 40rem; margin: 0 auto; border-collapse: collapse; font-size: .88rem;
  font-variant-numeric: tabular-nums; }
.lab th, .lab td { padding: .1rem .4rem; text-align: right; border: 0; font-weight: 400; white-space: nowrap; }
.lab th { color: var(--body-text-color-subdued); }
.lab table tr, .lab table { border: 0 !important; background: none !important; }
.lab td:first-child i { display: inline-block; width: 1.25rem; height: 1.25rem; border-radius: 50%;
  font: 700 .72rem/1.25rem system-ui, sans-serif; text-align: center; }
.lab td.bar { width: 55%; }
.lab td.bar div { position: relative; height: .95rem; border-radius: .2rem;
  background: var(--background-fill-secondary); }
.lab td.bar i { position: absolute; top: 0; height: 100%; min-width: 1px; border-radius: .2rem; }
.formula .katex-display, .hand .katex-display { margin: .35rem 0 !important; overflow-x: auto; overflow-y: hidden;
  contain: inline-size; }
.hand pre, .hand pre code { white-space: pre-wrap !important; contain: inline-size; }
.explained { min-height: 3.2em; }
@media (max-width: 40rem) {  /* the picture comes before the explanations, which have no focus */
  #explained { order: 1; }
  #limits { order: 2; }
  .lab svg text { font-size: 15px; }
  .lab svg .number { font-size: 14px; }
}
"""


class Frame:
    """The plotting area of a figure.

    Args:
        left, top, width, height: position and size in SVG units.
        x, y: smallest and largest number of each axis.
    """

    def __init__(
        self, left: float, top: float, width: float, height: float, x: tuple[float, float], y: tuple[float, float]
    ) -> None:
        self.left, self.top, self.width, self.height, self.x, self.y = left, top, width, height, x, y

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return self.left + across * self.width, self.top + (1 - up) * self.height

    @property
    def data(self) -> str:
        """Return the value of ``data-frame``."""
        numbers = (self.left, self.top, self.width, self.height, *self.x, *self.y)
        return " ".join(f"{number:g}" for number in numbers)

    def grid(self, x_ticks: Sequence[float], y_ticks: Sequence[float], x_name: str = "", y_name: str = "") -> str:
        """Draw grid lines, tick labels and axis names."""
        parts = []
        bottom, right = self.top + self.height, self.left + self.width
        for tick in x_ticks:
            x, _ = self.at(tick, self.y[0])
            parts.append(f'<path class="{"axis" if tick == 0 else "grid"}" d="M{x:.1f} {self.top}V{bottom:.1f}"/>')
            if x_name:
                parts.append(f'<text x="{x:.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{_tick(tick)}</text>')
        for tick in y_ticks:
            _, y = self.at(self.x[0], tick)
            parts.append(f'<path class="{"axis" if tick == 0 else "grid"}" d="M{self.left} {y:.1f}H{right:.1f}"/>')
            parts.append(f'<text x="{self.left - 6}" y="{y + 4:.1f}" text-anchor="end">{_tick(tick)}</text>')
        if x_name:
            parts.append(_text(right, bottom + 28, x_name, "end"))
        if y_name:
            parts.append(_text(self.left + 5, self.top + 13, y_name, "start"))
        return "".join(parts)

    def line(self, x: np.ndarray, y: np.ndarray, css: str, color: str = "") -> str:
        places = " ".join("{:.1f},{:.1f}".format(*self.at(*point)) for point in zip(x, y, strict=True))
        stroke = f' style="stroke:{color}"' if color else ""
        return f'<polyline class="{css}" points="{places}"{stroke}/>'


def _tick(number: float) -> str:
    return f"{number:g}".replace("-", "−")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-style="italic" '
        f'style="paint-order:stroke;stroke:var(--background-fill-primary);stroke-width:4px">{html.escape(text)}</text>'
    )


def _handle(name: str, label: str, place: tuple[float, float], at: tuple[float, float], shape: str) -> str:
    """Return a mark that can be moved: what it is called, its coordinates, its place in the figure and its shape."""
    reach = f'<circle class="reach" cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{REACH}"/>'
    return f"<g {_slider(name, label, place)}>{reach}{shape}</g>"


def _slider(name: str, label: str, place: tuple[float, float]) -> str:
    """Return the attributes of a mark, which the arrow keys move."""
    x, y = place
    value = f'aria-valuenow="{x:g}" aria-valuetext="{html.escape(f"{number(x)}; {number(y)}")}"'
    label = html.escape(f"{label} {int(name[1:]) + 1}" if name[1:] else label)
    return f'data-handle="{name}" data-x="{x:g}" data-y="{y:g}" tabindex="0" role="slider" aria-label="{label}" {value}'


def _key(row: int, x: float, y: float, weight: float, seen: bool) -> str:
    if not seen:
        circle = f'<circle class="mark unseen" cx="{x:.1f}" cy="{y:.1f}" r="9" style="--own:{COLORS[row]}"/>'
        return circle + _number(row, x, y, "var(--ink)")
    radius = 9 + 8 * min(1.0, abs(weight)) ** 0.5
    circle = f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{COLORS[row]}"/>'
    return circle + _number(row, x, y, _on(row))


def _number(row: int, x: float, y: float, color: str) -> str:
    return f'<text class="number" x="{x:.1f}" y="{y + 3.6:.1f}" style="fill:{color}">{row + 1}</text>'


def _on(row: int) -> str:
    """Return black or white, whichever has more contrast on a color."""
    red, green, blue = (int(COLORS[row][i : i + 2], 16) for i in (1, 3, 5))
    return "#111" if 0.299 * red + 0.587 * green + 0.114 * blue > 145 else "#fff"


def _diamond(x: float, y: float) -> str:
    return f'<path class="mark ink" d="M{x:.1f} {y - 8:.1f}l8 8l-8 8l-8 -8z"/>'


def _svg(height: float, frame: Frame, description: str, *parts: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="group" aria-label="{html.escape(description)}" '
        f'data-frame="{frame.data}">{"".join(parts)}</svg>'
    )


def _ticks(low: float, high: float) -> list[float]:
    step = next(
        step for step in (0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, high) if high - low <= 6 * step
    )
    return [round(step * n, 6) for n in range(int(np.ceil(low / step)), int(np.floor(high / step)) + 1)]


def draw_line(
    keys: np.ndarray,
    values: np.ndarray,
    query: float,
    weights: np.ndarray,
    seen: np.ndarray,
    context: float,
    grid: np.ndarray,
    curve: np.ndarray,
    curve_weights: np.ndarray,
    limit: float,
    description: str,
    names: Mapping[str, str],
) -> str:
    """Draw keys and values as points, the context as a curve over all queries, and the weights below.

    Args:
        keys, values, weights: (S,); ``weights`` belong to ``query``.
        seen: (S,), whether the query sees the key.
        context: context of ``query``.
        grid, curve: (N,), queries and their contexts.
        curve_weights: (N, S), weights of the queries in ``grid``.
        limit: largest absolute value of keys and queries.
        description: alternative text for screen readers.
        names: what a query (q), a key (k) and a value (v) is called.
    """
    low, high = min(-limit, curve.min(), context), max(limit, curve.max(), context)
    width, across = WIDTH - LEFT - RIGHT, (-limit, limit)
    upper = Frame(LEFT, TOP, width, 270, across, (low, high))
    # Most weights are between 0 and 1; those of "compositional" are not.
    least, most = min(0.0, curve_weights.min()), max(1.0, curve_weights.max())
    lower = Frame(LEFT, TOP + 270 + 18, width, 84, across, (least, most))
    ticks = _ticks(-limit, limit)
    parts = [upper.grid(ticks, _ticks(low, high), y_name="v"), upper.line(grid, curve, "curve")]
    parts.append(lower.grid(ticks, [-1.0, 0.0, 1.0] if least < 0 else [0.0, 1.0], x_name="q, k", y_name="α"))
    parts += [lower.line(grid, curve_weights[:, i], "weight", COLORS[i]) for i in range(len(keys))]
    x, y = upper.at(query, context)
    bottom = lower.top + lower.height
    stem = f'<path class="query" d="M{x:.1f} {TOP}V{bottom:.1f}"/>'
    wide = f'<path d="M{x:.1f} {TOP}V{bottom:.1f}" stroke="transparent" stroke-width="{2 * REACH}"/>'
    slider = _slider("q", names["q"], (query, context))
    parts.append(f"<g {slider} data-along>{wide}{stem}</g>")
    for i, (key, value) in enumerate(zip(keys, values, strict=True)):
        at = upper.at(key, value)
        parts.append(_handle(f"k{i}", names["k"], (key, value), at, _key(i, *at, weights[i], seen[i])))
    parts.append(f'<g data-handle="q" data-x="{query:g}" data-y="{context:g}" data-along>{_diamond(x, y)}</g>')
    return _svg(bottom + BOTTOM, upper, description, *parts)


def draw_plane(
    keys: np.ndarray,
    values: np.ndarray,
    query: np.ndarray,
    weights: np.ndarray,
    seen: np.ndarray,
    context: np.ndarray,
    field: np.ndarray,
    limit: float,
    description: str,
    names: Mapping[str, str],
) -> str:
    """Draw keys as circles sized by weight, values, their convex hull, the query and the context.

    The background mixes the colors of the keys by the weights of a query at each point; it is paler where the weights
    are spread evenly.

    Args:
        keys, values: (S, 2).
        query, context: (2,).
        weights: (S,).
        seen: (S,), whether the query sees the key.
        field: (G, G, S), weights of queries on a grid, top row first.
        limit: largest absolute value on either axis.
        description: alternative text for screen readers.
        names: what a query (q), a key (k) and a value (v) is called.
    """
    shown = max(limit, 1.05 * np.abs(context).max())
    side = WIDTH - LEFT - RIGHT
    frame = Frame(LEFT, TOP, side, side, (-shown, shown), (-shown, shown))
    ticks = _ticks(-shown, shown)
    (left, top), (right, bottom) = frame.at(-limit, limit), frame.at(limit, -limit)
    parts = [
        f'<image x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}" '
        f'preserveAspectRatio="none" href="{_picture(field)}"/>',
        frame.grid(ticks, ticks, x_name="q₁, k₁, v₁", y_name="q₂, k₂, v₂"),
    ]
    hull = " ".join("{:.1f},{:.1f}".format(*frame.at(*corner)) for corner in convex_hull(values))
    parts.append(f'<polygon class="hull" points="{hull}"/>')
    cx, cy = frame.at(*context)
    for value, weight, color in zip(values, weights, COLORS, strict=False):
        x, y = frame.at(*value)
        parts.append(
            f'<path d="M{cx:.1f} {cy:.1f}L{x:.1f} {y:.1f}" stroke="{color}" stroke-width="3" '
            f'opacity="{min(1.0, abs(weight)):.2f}"/>'
        )
    for i, (key, value) in enumerate(zip(keys, values, strict=True)):
        if not np.array_equal(key, value):
            x, y = frame.at(*value)
            square = (
                f'<rect class="mark" x="{x - 8:.1f}" y="{y - 8:.1f}" width="16" height="16" rx="3" '
                f'fill="{COLORS[i]}"/>{_number(i, x, y, _on(i))}'
            )
            parts.append(_handle(f"v{i}", names["v"], tuple(value), (x, y), square))
        at = frame.at(*key)
        parts.append(_handle(f"k{i}", names["k"], tuple(key), at, _key(i, *at, weights[i], seen[i])))
    parts.append(_diamond(cx, cy))
    x, y = frame.at(*query)
    cross = f"M{x - 9:.1f} {y:.1f}h18M{x:.1f} {y - 9:.1f}v18"
    shape = (
        f'<path d="{cross}" stroke="var(--background-fill-primary)" stroke-width="7"/>'
        f'<path class="cross" d="{cross}" stroke="var(--ink)" stroke-width="3.5"/>'
    )
    parts.append(_handle("q", names["q"], tuple(query), (x, y), shape))
    return _svg(TOP + side + BOTTOM, frame, description, *parts)


def _picture(field: np.ndarray) -> str:
    """Return the background for weights (G, G, S) as an image in a data URI."""
    size = np.abs(field)
    total = size.sum(-1, keepdims=True)
    colors = np.array([[int(color[i : i + 2], 16) for i in (1, 3, 5)] for color in COLORS[: field.shape[-1]]])
    mixed = (size @ colors) / np.where(total > 0, total, 1)
    # Uniform weights and small weights are pale.
    opacity = 20 + 130 * np.clip(size.max(-1, keepdims=True), 0, 1)
    pixels = np.concatenate([mixed, np.where(total > 0, opacity, 0)], axis=-1).round().astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels, "RGBA").save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def convex_hull(points: np.ndarray) -> list[tuple[float, float]]:
    """Return the corners of the convex hull of points (S, 2), counterclockwise (monotone chain, Andrew 1979)."""
    ordered = sorted({(float(x), float(y)) for x, y in points})
    if len(ordered) < 3:
        return ordered

    def chain(each: list[tuple[float, float]]) -> list[tuple[float, float]]:
        corners: list[tuple[float, float]] = []
        for x, y in each:
            while len(corners) > 1:
                (ax, ay), (bx, by) = corners[-2:]
                if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0:
                    break
                corners.pop()
            corners.append((x, y))
        return corners[:-1]

    return chain(ordered) + chain(ordered[::-1])


def draw_weights(energies: np.ndarray, weights: np.ndarray, seen: np.ndarray) -> str:
    """Return energies and weights (S,) as a table with bars; negative bars extend to the left.

    A key that the query does not see has no energy.
    """
    low, high = min(0.0, weights.min()), max(1.0, weights.max())
    rows = []
    for i, (energy, weight) in enumerate(zip(energies.tolist(), weights.tolist(), strict=True)):
        start, end = sorted((-low, weight - low))
        bar = (
            f'<i style="left:{100 * start / (high - low):.2f}%;width:{100 * (end - start) / (high - low):.2f}%;'
            f'background:{COLORS[i]}"></i>'
        )
        rows.append(
            f'<tr><td><i style="background:{COLORS[i]};color:{_on(i)}">{i + 1}</i></td>'
            f"<td>{number(energy) if seen[i] else '–'}</td>"
            f'<td class="bar"><div>{bar}</div></td><td>{number(weight, 3)}</td></tr>'
        )
    head = '<tr><th scope="col">i</th><th scope="col">e</th><th></th><th scope="col">α</th></tr>'
    return f'<div class="scroll"><table>{head}{"".join(rows)}</table></div>'
