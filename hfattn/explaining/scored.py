"""Colored texts: a score for each piece of a text (attention, saliency, or the value of a unit).

Shapes: T pieces of the text, S tokens of the tokenizer, including special tokens.
"""

import csv
import html
import io
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, product
from typing import TYPE_CHECKING, NamedTuple

import torch
from transformers import PreTrainedTokenizerBase

from ..models.alignment import AttentionRecord, token_names
from .labels import label
from .layout import MARGIN, Position, extent, frame, new_figure, sheet, text_style
from .words import piece_groups

if TYPE_CHECKING:
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

# Blue for positive and vermilion for negative scores (Okabe & Ito 2008), distinguishable with any color vision. The
# opacity stays low enough for the text to be legible.
_POSITIVE, _NEGATIVE, _STRONGEST = "#0072b2", "#d55e00", 0.7
_LINE_WIDTH, _LINE_HEIGHT, _NUMBER_HEIGHT, _SPACE = 7.0, 0.3, 0.14, 0.05  # inches
_FONT_SIZE = 12  # points


@dataclass(frozen=True, eq=False)
class ScoredText:
    """A text in pieces, with a score for each.

    Args:
        tokens: the T pieces. Joined, they are the text, including white space; for a tokenizer without offsets, they
            are its tokens.
        scores: (T,), on the CPU.
        method: name of the method, such as "attention" or "gradient × input".
        target: the answer that the scores explain, such as the name of a class; empty if there is none.
        unit: unit of the scores; empty if they have none.
        rest: sum of the scores of the special tokens, which are not in the text.
        output: for saliency, the explained quantity F(x).
        baseline: for saliency, F(0), without the text. The scores of a complete method, with ``rest``, add up to
            ``output - baseline``.

    Raises:
        ValueError: if there is not one score for each token.
    """

    tokens: tuple[str, ...]
    scores: torch.Tensor
    method: str
    target: str = ""
    unit: str = ""
    rest: float = 0.0
    output: float | None = None
    baseline: float | None = None

    def __post_init__(self) -> None:
        if tuple(self.scores.shape) != (len(self.tokens),):
            raise ValueError(
                f"scores has shape {tuple(self.scores.shape)}; {len(self.tokens)} tokens need ({len(self.tokens)},)."
            )

    @property
    def gap(self) -> float | None:
        """Completeness error of saliency scores, Σ scores + rest - (F(x) - F(0)); None if there is no ``baseline``."""
        if self.output is None or self.baseline is None:
            return None
        return float(self.scores.double().sum()) + self.rest - (self.output - self.baseline)

    @property
    def heading(self) -> str:
        """The method and the target, such as "gradient × input → positive"."""
        shown = self.target if self.target == self.target.strip() else label(self.target)  # a token may be a space
        return " → ".join(filter(None, (self.method, shown)))

    @property
    def change(self) -> str:
        """Sentence on the sum of all scores and the change of F from an input of zeros; empty without ``baseline``."""
        if self.output is None or self.baseline is None:
            return ""
        change = self.output - self.baseline
        answer = {"nats of log-odds": "the log-odds", "": "the prediction"}.get(self.unit, "the log-probability ratio")
        return f"sum of scores {change + (self.gap or 0):+.4g}; change of {answer} from an empty input {change:+.4g}"

    def by_word(self) -> "ScoredText":
        """Return the text in words, each with the sum of the scores of its pieces.

        Words end at white space and at punctuation ("don't" is one word); each ideograph and each kana is a word. A
        piece that contains several words is not split.
        """
        groups = piece_groups(self.tokens)
        pieces = [""] * (max(groups, default=-1) + 1)
        for token, group in zip(self.tokens, groups, strict=True):
            pieces[group] += token
        sums = self.scores.new_zeros(len(pieces)).index_add(0, torch.tensor(groups, dtype=torch.long), self.scores)
        return replace(self, tokens=tuple(pieces), scores=sums)


def score_tokens(
    text: str,
    tokenizer: PreTrainedTokenizerBase,
    scores: torch.Tensor,
    method: str,
    *,
    target: str = "",
    unit: str = "",
    output: float | None = None,
    baseline: float | None = None,
) -> ScoredText:
    """Return a text with the scores of its tokens.

    Tokens that share a character, such as the bytes of one, become one piece with the sum of their scores.

    Args:
        text: the text that was scored.
        tokenizer: the tokenizer that split it.
        scores: (S,), one for each token of ``tokenizer(text)``, including special tokens.
        method: as in ``ScoredText``.
        target: as in ``ScoredText``.
        unit: as in ``ScoredText``.
        output: as in ``ScoredText``.
        baseline: as in ``ScoredText``.

    Raises:
        ValueError: if there is not one score for each token.
    """
    scores = scores.detach().cpu()
    scores = scores if scores.dtype == torch.float64 else scores.float()
    encoded = tokenizer(text, return_special_tokens_mask=True, return_offsets_mapping=tokenizer.is_fast)
    special = encoded["special_tokens_mask"]
    if scores.ndim != 1 or len(scores) != len(special):
        raise ValueError(
            f"scores has shape {tuple(scores.shape)}; the tokenizer splits this text into {len(special)} tokens, which "
            f"need ({len(special)},)."
        )
    real = [place for place, is_special in enumerate(special) if not is_special]
    if tokenizer.is_fast:
        pieces, groups = _pieces(text, [encoded["offset_mapping"][place] for place in real])
    else:
        pieces, groups = _named(token_names([encoded["input_ids"][place] for place in real], tokenizer))
    sums = scores.new_zeros(len(pieces)).index_add(0, torch.tensor(groups, dtype=torch.long), scores[real])
    rest = float(scores.double().sum() - scores[real].double().sum())
    return ScoredText(tuple(pieces), sums, method, target, unit, rest, output, baseline)


def word_groups(text: str, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the index of the word of each token of ``tokenizer(text)``; a special token is a word.

    Words are those of ``ScoredText.by_word``. A token of several words belongs to the first.
    """
    encoded = tokenizer(text, return_special_tokens_mask=True, return_offsets_mapping=tokenizer.is_fast)
    special = encoded["special_tokens_mask"]
    real = [place for place, is_special in enumerate(special) if not is_special]
    if tokenizer.is_fast:
        pieces, groups = _pieces(text, [encoded["offset_mapping"][place] for place in real])
    else:
        pieces, groups = _named(token_names([encoded["input_ids"][place] for place in real], tokenizer))
    of_pieces = piece_groups(pieces)
    words: list[object] = [("special", place) for place in range(len(special))]
    for place, group in zip(real, groups, strict=True):
        words[place] = of_pieces[group]
    changes = [int(place > 0 and words[place] != words[place - 1]) for place in range(len(words))]
    return list(accumulate(changes))


def _pieces(text: str, offsets: list[tuple[int, int]]) -> tuple[list[str], list[int]]:
    """Return the text cut where tokens begin, and the index of the piece of each token."""
    spans: list[tuple[int, int]] = []
    groups = []
    for start, end in offsets:
        if spans and (start < spans[-1][1] or spans[-1][0] == spans[-1][1]):
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
        groups.append(len(spans) - 1)
    cuts = [0, *(start for start, _ in spans[1:]), len(text)]
    return [text[start:end] for start, end in pairwise(cuts)][: len(spans)], groups


def _named(names: tuple[str, ...]) -> tuple[list[str], list[int]]:
    """Return the tokens as pieces, with the spaces of SentencePiece or with one space each, and their indices."""
    spelled = any("▁" in name for name in names)
    return [name.replace("▁", " ") if spelled else f"{name} " for name in names], list(range(len(names)))


def score_attention(
    record: AttentionRecord,
    text: str,
    tokenizer: PreTrainedTokenizerBase,
    row: int | None = None,
    *,
    layer: int | None = None,
    head: int | None = None,
) -> ScoredText:
    """Return a text whose scores are the weights with which a token attends to it.

    Args:
        record: attention to ``tokenizer(text)``, without padding.
        text: as in ``score_tokens``.
        tokenizer: as in ``score_tokens``.
        row: index of the token that attends; None is the mean over all rows.
        layer: as in ``record.matrix``.
        head: as in ``record.matrix``.

    Raises:
        ValueError: if there is no such row, layer or head, or the record belongs to another text.
    """
    matrix = record.matrix(layer, head)
    if row is not None and not -len(matrix) <= row < len(matrix):
        raise ValueError(f"row is {row}; the record has {len(matrix)} rows: write 0 to {len(matrix) - 1}, or None.")
    weights, target = (matrix.mean(0), "") if row is None else (matrix[row], record.target_tokens[row])
    return score_tokens(text, tokenizer, weights, "attention", target=target)


def _limit(scored: ScoredText, limit: float | None) -> float:
    """Return the score with the full color."""
    if not scored.tokens:
        raise ValueError("The text has no tokens, so there is nothing to draw; use a longer text.")
    if not scored.scores.isfinite().all():
        raise ValueError("The scores contain NaN or infinity; check the model that produced them.")
    if limit is not None and not limit > 0:
        raise ValueError(f"limit is {limit}; write the score, above 0, that gets the full color.")
    return limit or float(scored.scores.abs().max()) or 1.0


def _has_words(scored: ScoredText) -> bool:
    """Return whether there is room for a number below each piece: the pieces are not characters."""
    return any(len(token.strip()) > 1 for token in scored.tokens)


def render_scores_text(scored: ScoredText, most: int = 12) -> str:
    """Return lines for a terminal: the pieces with the largest scores and, for saliency, the sum of all scores.

    Args:
        scored: at least one token.
        most: number of pieces.

    Raises:
        ValueError: if there is no token, or a score is NaN or infinite.
    """
    order = scored.scores.abs().argsort(descending=True, stable=True)[:most].tolist()
    names = [label(scored.tokens[i].strip() or scored.tokens[i], 20) for i in order]
    width = max(map(len, names), default=0)
    limit = _limit(scored, None)
    lines = [
        f"{name:{width}} {score:+9.4f} {('+' if score > 0 else '-') * round(20 * abs(score) / limit)}".rstrip()
        for name, score in zip(names, scored.scores[order].tolist(), strict=True)
    ]
    if scored.rest:
        lines.append(f"special tokens {scored.rest:+.4f}")
    if scored.change:
        lines.append(scored.change)
    return "\n".join(lines)


def render_rows_text(rows: Sequence[ScoredText], most: int = 4) -> str:
    """Return a line for each row, with the pieces that have the largest scores.

    Args:
        rows: as for ``plot_rows``.
        most: number of pieces in a line.

    Raises:
        ValueError: as ``plot_rows``.
    """
    _rows_limit(rows)
    names = [label(row.target, 20) for row in rows]
    width = max(map(len, names))
    lines = []
    for name, row in zip(names, rows, strict=True):
        order = row.scores.abs().argsort(descending=True, stable=True)[:most].tolist()
        scores = [f"{label(row.tokens[i].strip() or row.tokens[i], 20)} {row.scores[i]:+.2f}" for i in order]
        lines.append(f"{name:{width}} ← {'   '.join(scores)}")
    return "\n".join(lines)


def _rows_limit(rows: Sequence[ScoredText]) -> float:
    """Return the score with the full color in rows of the same text."""
    if not rows:
        raise ValueError("The list of rows is empty; give at least one.")
    if any(row.tokens != rows[0].tokens for row in rows):
        raise ValueError("The rows belong to different texts; give the rows of one text.")
    return max(_limit(row, None) for row in rows)


_STYLE = """
.hfattn-scores{line-height:1.9;overflow-wrap:anywhere}
.hfattn-scores p{margin:0;white-space:pre-wrap;overflow-x:auto}
.hfattn-scores span{border-radius:.2em;padding:.15em 0}
.hfattn-scores .numbered{display:inline-block;overflow-wrap:normal;line-height:1.4;text-align:center;vertical-align:top}
.hfattn-scores small{display:block;padding:0 .3em;font-size:.65em;font-variant-numeric:tabular-nums}
.hfattn-scores .scale{display:flex;align-items:center;gap:.5em;margin-top:.6em;font-size:.8em;line-height:1.2}
.hfattn-scores .scale span{white-space:nowrap}
.hfattn-scores .scale i{flex:0 1 9em;min-width:3em;height:.8em;border-radius:.2em;outline:1px solid rgb(128 128 128/.5)}
""".strip()

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root{{color-scheme:light dark}}
body{{max-width:46rem;margin:1.5rem auto;padding:0 1rem;font:1rem/1.5 system-ui,sans-serif}}
body{{background:Canvas;color:CanvasText}}
h1{{font-size:1.25rem}}
</style>
</head>
<body>
<main>
<h1 dir="auto">{title}</h1>
{snippet}
</main>
</body>
</html>
"""


def _color(score: float, limit: float) -> str:
    """Return the color of a score as #RRGGBBAA, for CSS and matplotlib."""
    opacity = _STRONGEST * min(abs(score) / limit, 1.0)
    return f"{_POSITIVE if score >= 0 else _NEGATIVE}{round(255 * opacity):02x}"


def scores_snippet(scored: ScoredText, limit: float | None = None, *, numbers: bool = False) -> str:
    """Return an HTML element with the colored text and its scale, for light and dark pages.

    Blue pieces count for the target, orange ones against it; the tooltip of a piece is its score.

    Args:
        scored: at least one token.
        limit: the score with the full color; default the largest absolute score.
        numbers: whether the score of a piece stands below it too, with two digits.

    Raises:
        ValueError: if there is no token, a score is NaN or infinite, or the limit is not above 0.
    """
    limit = _limit(scored, limit)
    lowest = -limit if bool((scored.scores < 0).any()) else 0.0
    kind = ' class="numbered"' if numbers else ""
    spans = []
    for token, score in zip(scored.tokens, scored.scores.tolist(), strict=True):
        inner = token.strip()
        before, after = token.partition(inner)[::2] if inner else ("", "\n" * token.count("\n"))
        shown = html.escape(inner or label(token))
        style = f"background:{_color(score, limit)}"
        title = html.escape(f"{label(inner or token)}: {score:+.4g}")
        if numbers:
            rounded = round(score, 2) + 0.0  # without -0.00
            shown += f"<small>{rounded:{'+' if lowest else ''}.2f}</small>".replace("-", "−")
        span = f'<span{kind} style="{style}" title="{title}">{shown}</span>'
        spans.append(f"{html.escape(before)}{span}{html.escape(after)}")
    stops = ", ".join(_color(score, limit) for score in (lowest, 0.0, limit))
    unit = f" {html.escape(scored.unit)}" if scored.unit else ""
    scale = (
        f'<div class="scale" dir="ltr"><span>{lowest:.3g}</span>'
        f'<i style="background:linear-gradient(to right, {stops})"></i><span>{limit:+.3g}{unit}</span></div>'
    )
    return f'<div class="hfattn-scores"><style>{_STYLE}</style><p dir="auto">{"".join(spans)}</p>{scale}</div>'


def render_scores_html(scored: ScoredText, title: str | None = None, limit: float | None = None) -> str:
    """Return a self-contained page with the colored text of ``scores_snippet``.

    Args:
        scored: as in ``scores_snippet``.
        title: heading of the page; default the method and the target.
        limit: as in ``scores_snippet``.

    Raises:
        ValueError: as ``scores_snippet``.
    """
    heading = html.escape(scored.heading if title is None else title)
    snippet = scores_snippet(scored, limit, numbers=_has_words(scored))
    if scored.change:
        snippet += f"\n<p>{scored.change[0].upper()}{scored.change[1:]}.</p>"
    return _PAGE.format(title=heading, snippet=snippet)


_ROWS_STYLE = """
body{max-width:none}
.rows{overflow-x:auto}
table{border-collapse:collapse}
th,td{padding:.25rem .5rem;text-align:right;font-weight:normal;white-space:pre}
thead th{vertical-align:bottom;text-align:center}
tbody th{position:sticky;left:0;background:Canvas}
tbody td{border:1px solid rgb(128 128 128/.35);font-variant-numeric:tabular-nums;font-size:.85em}
"""


def render_rows_html(rows: Sequence[ScoredText], title: str | None = None) -> str:
    """Return a self-contained page with a table of the scores: a row for each answer, a column for each piece.

    Args:
        rows: as for ``plot_rows``.
        title: heading of the page; default the method.

    Raises:
        ValueError: as ``plot_rows``.
    """
    limit = _rows_limit(rows)
    header = "".join(f'<th scope="col">{html.escape(label(token.strip() or token))}' for token in rows[0].tokens)
    lines = []
    for row in rows:
        cells = "".join(f'<td style="background:{_color(s, limit)}">{s:+.2f}' for s in row.scores.tolist())
        lines.append(f'<tr><th scope="row">{html.escape(label(row.target))}{cells}<td>{row.rest:+.2f}')
    unit = f" Scores in {html.escape(rows[0].unit)}." if rows[0].unit else ""
    table = (
        f"<style>{_ROWS_STYLE}</style>\n<p>Each row is an answer, each column a piece of the text. Blue counts for the "
        f'answer, orange against it.{unit}</p>\n<div class="rows" tabindex="0" role="region" aria-label="Scores">\n'
        f'<table><thead><tr><td>{header}<th scope="col">special tokens</thead>\n<tbody>\n'
        + "\n".join(lines)
        + "\n</tbody></table>\n</div>"
    )
    return _PAGE.format(title=html.escape(rows[0].method if title is None else title), snippet=table)


def write_rows_csv(rows: Sequence[ScoredText]) -> str:
    """Return the scores as comma-separated values: a line for each answer, a column for each piece.

    The last columns are the sum of the scores of special tokens, and for saliency F(x) and F(0).

    Args:
        rows: as for ``plot_rows``.
    """
    _rows_limit(rows)
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(["", *(token.strip() or token for token in rows[0].tokens), "special tokens", "F(x)", "F(0)"])
    for row in rows:
        writer.writerow([row.target.strip(), *row.scores.tolist(), row.rest, row.output, row.baseline])
    return file.getvalue()


def plot_rows(rows: Sequence[ScoredText], *, title: str | None = None) -> "Figure":
    """Draw the scores as a map: a row for each answer, a column for each piece; blue counts for it, orange against it.

    Args:
        rows: the scores of one text for several answers, such as those of ``saliency_rows``.
        title: line above the map; default the method.

    Returns:
        A matplotlib figure, as ``plot_alignment``.

    Raises:
        ValueError: if there are no rows, the rows have different tokens, or a score is NaN or infinite.
        UserError: if matplotlib is not installed.
    """
    limit = _rows_limit(rows)
    figure = new_figure()
    scores = torch.stack([row.scores.float() for row in rows])
    columns = [label(token.strip() or token, 24) for token in rows[0].tokens]
    names = [label(row.target, 24) for row in rows]
    cell, style, small = 0.5, text_style(10), text_style(8)
    left = max(extent(figure, name, **style)[0] for name in names) + MARGIN + 0.08
    above = max(extent(figure, name, rotation=90, **style)[1] for name in columns) + MARGIN + 0.08
    width, height = cell * len(columns), 0.6 * cell * len(rows)
    heading = rows[0].method if title is None else title
    scale = 2.6 + extent(figure, rows[0].unit or " ", **small)[0]
    above, place = frame(figure, heading, above, left + max(width, scale) + MARGIN, height + 0.75)
    axes = figure.add_axes(place(left, above, width, height))
    axes.imshow(scores, cmap=_color_map(-limit, limit), vmin=-limit, vmax=limit, aspect="auto")
    axes.set_xticks(range(len(columns)), columns, rotation=90, **style)
    axes.set_yticks(range(len(names)), names, **style)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.spines[:].set(visible=True, linewidth=0.5, alpha=0.4)
    for (i, row), j in product(enumerate(scores.tolist()), range(len(columns))):
        axes.text(j, i, f"{row[j]:+.1f}", ha="center", va="center", **small)
    _add_scale(figure, place(left, above + height + 0.26, 2.2, 0.14), -limit, limit, rows[0].unit)
    return figure


def plot_scores(scored: ScoredText, *, title: str | None = None, limit: float | None = None) -> "Figure":
    """Draw the colored text in lines of seven inches; blue counts for the target, orange against it.

    Unless the pieces are characters, the score of each is written below it.

    Args:
        scored: at least one token.
        title: line above the text; default the method and the target.
        limit: the score with the full color; default the largest absolute score.

    Returns:
        A matplotlib figure, as ``plot_alignment``.

    Raises:
        ValueError: as ``scores_snippet``.
        UserError: if matplotlib is not installed.
    """
    limit = _limit(scored, limit)
    figure = new_figure()
    from matplotlib.patches import Rectangle

    style, small, numbers = text_style(_FONT_SIZE), text_style(7), _has_words(scored)
    written = {f"{score:+.2g}" for score in scored.scores.tolist()} if numbers else set()
    room = max((extent(figure, number, **small)[0] + 0.06 for number in written), default=0.0)
    words = _lines(scored, lambda text: max(room, extent(figure, text, **style)[0]))
    widest = max(_LINE_WIDTH, *(word.left + word.width for word in words))
    line_height = _LINE_HEIGHT + (_NUMBER_HEIGHT if numbers else 0.0)
    height = line_height * (words[-1].line + 1)
    heading = scored.heading if title is None else title
    top, place = frame(figure, heading or None, MARGIN, widest + 2 * MARGIN, height + 0.75)
    axes = sheet(figure)
    directions = map(unicodedata.bidirectional, "".join(scored.tokens))
    leftward = next((direction for direction in directions if direction in ("L", "R", "AL")), "L") != "L"
    for word in words:
        left = MARGIN + (widest - word.left - word.width if leftward else word.left)
        middle = top + line_height * word.line + 0.5 * _LINE_HEIGHT
        corner = (left, middle - 0.42 * _LINE_HEIGHT)
        color = _color(word.score, limit)
        axes.add_patch(Rectangle(corner, word.width, 0.84 * _LINE_HEIGHT, facecolor=color, linewidth=0))
        center = left + word.width / 2
        axes.text(center, middle, word.text, ha="center", va="center_baseline", **style)
        if numbers:
            axes.text(center, middle + 0.5 * _LINE_HEIGHT, f"{word.score:+.2g}", ha="center", va="top", **small)
    lowest = -limit if bool((scored.scores < 0).any()) else 0.0
    _add_scale(figure, place(MARGIN + 0.15, top + height + 0.26, 2.2, 0.14), lowest, limit, scored.unit)
    return figure


class _Word(NamedTuple):
    """A piece with its position: ``left`` and ``width`` in inches, ``line`` counted from 0."""

    text: str
    score: float
    line: int
    left: float
    width: float


def _lines(scored: ScoredText, width_of: Callable[[str], float]) -> list[_Word]:
    """Break a text into lines of at most ``_LINE_WIDTH`` inches and at its line breaks."""
    words = []
    x, line = 0.0, 0
    for token, score in zip(scored.tokens, scored.scores.tolist(), strict=True):
        inner = token.strip()
        before, after = token.partition(inner)[::2] if inner else ("", token if "\n" in token else "")
        text = inner or label(token)
        width = width_of(text)
        x += _SPACE * len(before.replace("\n", ""))
        if "\n" in before or (x > 0 and x + width > _LINE_WIDTH):
            x, line = 0.0, line + 1
        words.append(_Word(text, score, line, x, width))
        x += width + _SPACE * len(after.replace("\n", ""))
        if "\n" in after:
            x, line = 0.0, line + 1
    return words


def _color_map(lowest: float, limit: float) -> "ListedColormap":
    from matplotlib.colors import ListedColormap

    return ListedColormap([_color(score, limit) for score in torch.linspace(lowest, limit, 256).tolist()])


def _add_scale(figure: "Figure", position: Position, lowest: float, limit: float, unit: str) -> None:
    scores = torch.linspace(lowest, limit, 256)
    colors = _color_map(lowest, limit)
    bar = figure.add_axes(position)
    bar.imshow(scores[None], cmap=colors, aspect="auto", extent=(lowest, limit, 0, 1))
    bar.set_yticks([])
    bar.set_xticks(sorted({lowest, 0.0, limit}))
    bar.xaxis.set_major_formatter(lambda value, _: f"{value:+.3g}" if value else "0")
    bar.tick_params(labelsize=8, length=2)
    bar.spines[:].set_linewidth(0.5)
    if unit:
        bar.text(1.15, 0.5, unit, transform=bar.transAxes, va="center", fontsize=8, parse_math=False)
