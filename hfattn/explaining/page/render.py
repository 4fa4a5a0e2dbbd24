"""Render an attention record as one interactive HTML page, read with a mouse, by touch or with the arrow keys.

Shapes: L layers, H heads, T target (query) steps, S source (key) steps.
"""

import base64
import bisect
import html
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

import torch

from ...models.alignment import AttentionRecord, check_drawable
from ...plots import PALETTES
from ..labels import is_special, right_to_left
from ..scored import ScoredText, scores_snippet
from ..words import token_words

_HERE = Path(__file__).parent
_EXACT = 50_000  # up to this many weights are written with four digits
_ROOM = 3_550_000  # bytes for more weights than that; base64 adds a third, and the page must stay below 5 MB
_SHARES = {"all": 0.08, "heads": 0.17, "layers": 0.17, "weights": 1.0}  # of the bytes that the parts before left
_LEVELS = (2, 3, 4, 5, 6, 8, 11, 16, 23, 32, 64, 128, 256)  # numbers of levels a weight may be rounded to
_SAMPLE = 1_000_000  # weights from which the number of levels that fit is estimated

# Characters that would end the script element with the data (< > &), or a line of it in an old browser.
_ESCAPES = {60: "\\u003c", 62: "\\u003e", 38: "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def render_html(
    record: AttentionRecord, title: str | None = None, row: int = 0, scored: ScoredText | None = None
) -> str:
    """Return one self-contained page: the two texts with their links, a heat map, and a map of each head.

    The page loads nothing, works from a file, and is in English or Spanish, following the browser. Readers choose a
    layer and a head, starting from the mean over all; L1 and H1 are ``layer=0`` and ``head=0`` of the record. They can
    merge the tokens of each word (as ``merge_words``), hide special tokens (as ``hide_special``), draw the lines of
    each head in a color of its own, and save the heat map as SVG, PNG or CSV. If the record has probabilities, each
    target token has its own below it.

    Up to 50,000 weights are written with four digits. More are rounded to 2 to 256 levels, as many as keep the page for
    512 tokens, 12 layers and 12 heads below 5 MB; means over heads and layers get more levels than single heads. Levels
    are equally spaced in the square root of the weight, so that small weights remain distinct, and zero has a level of
    its own. The page shows how many levels there are, and the bounds of each rounded weight.

    Args:
        record: at least one token on each side.
        title: heading of the page; default ``record.title``.
        row: index of the target token whose weights are shown first.
        scored: what the answer of a classifier depends on, which is shown above its attention.

    Raises:
        ValueError: if one side has no tokens, a weight is NaN or infinite, ``row`` is out of range, or ``scored``
            cannot be drawn.
    """
    answer = ""
    if scored is not None:
        answer = (
            f'<section class="answer">\n    <h2 data-say="answer"></h2>\n    <p>{html.escape(scored.heading)}</p>\n'
            f"    {scores_snippet(scored, numbers=True)}\n  </section>"
        )
    return _page(html.escape(record.title if title is None else title), _record(record, row), answer)


def _page(title: str, record: str, answer: str = "") -> str:
    """Return the page of a record from its title, its data and what stands above; all are written as they are."""
    files = ("page.html", "page.css", "page.js", "common.js")
    page, style, script, common = ((_HERE / name).read_text(encoding="utf-8") for name in files)
    return Template(page).substitute(
        title=title, style=style, script=f'"use strict";\n{common}{script}', record=record, answer=answer
    )


def _record(record: AttentionRecord, row: int = 0) -> str:
    """Return the data of the page as JSON that can be written into a script element."""
    check_drawable(record)
    if not 0 <= row < len(record.target_tokens):
        raise ValueError(f"row is {row}; write 0 to {len(record.target_tokens) - 1}.")
    sides = {"source": record.tokens, "target": record.target_tokens}
    words = {side: token_words(tokens) for side, tokens in sides.items()}
    data: dict[str, Any] = {
        "kind": record.kind,
        "tokens": record.tokens,
        "target_tokens": record.target_tokens,
        "right_to_left": {side: right_to_left(tokens) for side, tokens in sides.items()},
        "special": {side: [i for i, token in enumerate(tokens) if is_special(token)] for side, tokens in sides.items()},
        "row": row,
        "shape": record.weights.shape[:2],
        "ramps": {theme: colors.ramp for theme, colors in PALETTES.items()},
    }
    if any([word for word, _ in words[side]] != list(tokens) for side, tokens in sides.items()):
        data["words"] = words
    for name, values in {"probabilities": record.probabilities, "entropies": record.entropies}.items():
        if values is not None:
            data[name] = _rounded(values.tolist())
    if record.weights.numel() <= _EXACT:
        data["weights"] = [[[_rounded(row) for row in matrix] for matrix in layer] for layer in record.weights.tolist()]
    else:
        data["parts"] = _parts(record.weights)
    return to_json(data)


def to_json(data: Any) -> str:
    return json.dumps(data, separators=(",", ":")).translate(_ESCAPES)


def render_comparison(records: Mapping[str, AttentionRecord], title: str = "Comparison") -> str:
    """Return one self-contained page with the pages of several records side by side, such as of two hypotheses.

    What a reader does in one page is done in all: a source token, a layer and a head, and a view are chosen together.

    Args:
        records: the records of one source by their headings, such as its translations.
        title: heading of the page.

    Raises:
        ValueError: if there are fewer than two records, they have different source tokens or different numbers of
            layers and heads, or ``render_html`` raises it.
    """
    if len(records) < 2:
        raise ValueError("A comparison needs at least two records with different headings.")
    first, *others = records.values()
    if any(each.tokens != first.tokens or each.weights.shape[:2] != first.weights.shape[:2] for each in others):
        raise ValueError("The records have different sources, layers or heads, so they cannot be compared.")
    frames = [
        f'<iframe srcdoc="{html.escape(render_html(record, name))}" title="{html.escape(name)}"></iframe>'
        for name, record in records.items()
    ]
    page = (_HERE / "comparison.html").read_text(encoding="utf-8")
    return Template(page).substitute(title=html.escape(title), frames="\n".join(frames))


def render_list(records: Sequence[tuple[str, AttentionRecord]], title: str = "Texts") -> str:
    """Return one self-contained page of many records, which shows one at a time.

    Args:
        records: headings and records, at least one.
        title: heading of the page.

    Raises:
        ValueError: if there are no records, or ``render_html`` raises it.
    """
    if not records:
        raise ValueError("The list of records is empty; give at least one.")
    texts = [{"title": name, "record": _record(record)} for name, record in records]
    data = to_json({"page": _page("__TITLE__", "__RECORD__"), "texts": texts})
    page = (_HERE / "list.html").read_text(encoding="utf-8")
    return Template(page).substitute(title=html.escape(title), records=data)


def save_html(record: AttentionRecord, path: str | Path, title: str | None = None, row: int = 0) -> None:
    """Write the page of ``render_html`` to a file."""
    page = render_html(record, title, row)
    Path(path).write_text(page, encoding="utf-8")


def _rounded(weights: list[float]) -> list[float]:
    return [float(f"{weight:.4g}") for weight in weights]


def _parts(weights: torch.Tensor) -> dict[str, dict[str, Any]]:
    """Pack the weights (L, H, T, S) and their means: the means first, because the weights take what room is left."""
    layers, heads = weights.shape[:2]
    matrices = {}
    if layers > 1 and heads > 1:
        matrices["all"] = weights.mean((0, 1), dtype=torch.float32)[None]
    if heads > 1:
        matrices["heads"] = weights.mean(1, dtype=torch.float32)
    if layers > 1:
        matrices["layers"] = weights.mean(0, dtype=torch.float32)
    matrices["weights"] = weights.flatten(0, 1)
    parts, room = {}, _ROOM
    for name, part in matrices.items():
        parts[name], used = _pack(part, int(room * _SHARES[name]))
        room -= used
    return parts


def _pack(matrices: torch.Tensor, room: int) -> tuple[dict[str, Any], int]:
    """Round matrices (M, T, S) to as many levels as fit into ``room`` bytes; return them and the bytes used."""
    # In chunks, because copies of millions of weights would take most of the time.
    chunks = matrices.split(max(1, _SAMPLE // matrices[0].numel()))
    bounds = [_root_bounds(chunk) for chunk in chunks]
    has_zero = any(zero for _, _, zero in bounds)
    low, high = min(bound[0] for bound in bounds), max(bound[1] for bound in bounds)

    def quantize(chunk: torch.Tensor, levels: int) -> torch.Tensor:
        """Return the level (M, T * S) of each weight; if there are zeros, they are level 0."""
        nonzero = levels - has_zero
        scale = nonzero / (high - low) if high > low else 0.0
        flat = chunk.flatten(1).float()
        level = _signed_root(flat).sub_(low).mul_(scale).clamp_(0, nonzero - 1).to(torch.uint8)
        return torch.where(flat == 0, 0, level + 1) if has_zero else level

    def compress(chunks: Iterable[torch.Tensor], levels: int) -> tuple[bytes, torch.Tensor]:
        """Return the compressed levels, and the mean weight (levels,) of each level."""
        # Run lengths and byte frequencies are all there is to save; searching for repetitions would take a minute.
        compressor = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_RLE)
        sums, data = torch.zeros(2, levels, dtype=torch.float64), b""
        for chunk in chunks:
            level = quantize(chunk, levels)
            index = level.flatten().int()
            sums[0] += torch.bincount(index, chunk.flatten().double(), levels)
            sums[1] += torch.bincount(index, minlength=levels)
            data += compressor.compress(_to_bytes(level, levels).numpy().tobytes())
        return data + compressor.flush(), sums[0] / sums[1].clamp_(min=1)

    rows = matrices.flatten(0, 1)
    sample = rows[:: max(1, matrices.numel() // _SAMPLE)][None]
    share = sample.numel() / matrices.numel()
    fitting = bisect.bisect_right(_LEVELS, room * share, key=lambda levels: len(compress([sample], levels)[0]))
    for levels in reversed(_LEVELS[: max(1, fitting)]):
        data, values = compress(chunks, levels)
        if len(data) <= room:
            break
    roots = torch.linspace(low, high, levels - has_zero + 1, dtype=torch.float64)
    part = {
        "levels": levels,
        "per_byte": _per_byte(levels),
        "values": _rounded(values.tolist()),
        "edges": _rounded((roots * roots.abs()).tolist()),
        "data": base64.b64encode(data).decode(),
    }
    return part, len(data)


def _signed_root(weights: torch.Tensor) -> torch.Tensor:
    """Return the square root of |weight| with the sign of the weight, because some attentions have negative weights."""
    return torch.copysign(weights.abs().sqrt_(), weights)


def _root_bounds(weights: torch.Tensor) -> tuple[float, float, bool]:
    """Return the smallest and the largest signed root of the nonzero weights, and whether there are zeros."""
    weights = weights.float()
    least, greatest = (_signed_root(bound).item() for bound in weights.aminmax())
    if least > 0 or greatest < 0:
        return least, greatest, False
    nonzero = _signed_root(weights[weights != 0])
    if len(nonzero) == 0:
        return 0.0, 0.0, True
    return nonzero.min().item(), nonzero.max().item(), len(nonzero) < weights.numel()


def _per_byte(levels: int) -> int:
    return max(k for k in range(1, 9) if levels**k <= 256)


def _to_bytes(levels: torch.Tensor, base: int) -> torch.Tensor:
    """Pack several levels of a row into each byte, as digits to the given base, the lowest digit first."""
    per_byte = _per_byte(base)
    padded = torch.nn.functional.pad(levels, (0, -levels.shape[1] % per_byte))
    packed = padded[:, 0::per_byte].clone()
    for place in range(1, per_byte):
        packed += padded[:, place::per_byte] * base**place
    return packed
