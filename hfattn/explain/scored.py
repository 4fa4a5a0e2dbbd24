"""A text with a number for each piece of it: attention, saliency or the activation of a unit, as a coloured text.

Shapes: T pieces of the text, S tokens that a tokenizer makes of it, special symbols included.
"""

import html
import re
import unicodedata
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..models.alignment import AttentionRecord, token_names
from ..plots import installed_fonts
from .labels import label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Blue for what counts for the target and vermilion for what counts against it (Okabe & Ito 2008), which are told apart
# with any colour vision. They are laid over the page at most at this strength, so that text on them stays legible.
_FOR, _AGAINST, _STRONGEST = (0, 114, 178), (213, 94, 0), 0.7
_LINE_WIDTH, _MARGIN, _FONT_SIZE = 7.0, 0.15, 12  # inches, inches, points
_IDEOGRAPH = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")  # scripts that put no space between words


@dataclass(frozen=True, eq=False)
class ScoredText:
    """A text in pieces, and a number for each.

    Args:
        tokens: the pieces, T of them. Joined they are the text, white space included; of a tokenizer that does not say
            where its tokens stand in a text, they are its tokens.
        scores: (T,), on the CPU.
        method: what the scores are, such as "attention" or "gradient × input".
        target: what they count for, such as the name of a class; empty where nothing is meant.
        unit: of the scores; empty where they have none.
        rest: the sum of the scores of what is no piece of the text: the special symbols of the tokenizer.
        output: of a saliency, the quantity F(x) that is explained, and ``baseline`` the one without the text, F(0); a
            complete one has scores that, with ``rest``, add up to their difference.

    Raises:
        ValueError: there is not one score for each token.
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
                f"scores has the shape {tuple(self.scores.shape)}; {len(self.tokens)} tokens need "
                f"({len(self.tokens)},)."
            )

    @property
    def gap(self) -> float | None:
        """Σ scores + rest - (F(x) - F(0)): how far a saliency is from complete; None where there is nothing to add up
        to."""
        if self.output is None or self.baseline is None:
            return None
        return float(self.scores.double().sum()) + self.rest - (self.output - self.baseline)

    def by_word(self) -> "ScoredText":
        """The same by words, with the sum of the scores of the pieces of each.

        A word ends at white space and at punctuation ("don't" is one); an ideograph or a kana is a word of its own. A
        piece that holds several words stays whole.
        """
        starts = word_starts("".join(self.tokens))
        pieces: list[str] = []
        groups: list[int] = []
        place = 0
        for token in self.tokens:
            first = place + len(token) - len(token.lstrip())
            if not pieces or (first in starts and not token.isspace()):
                pieces.append("")
            pieces[-1] += token
            groups.append(len(pieces) - 1)
            place += len(token)
        sums = self.scores.new_zeros(len(pieces)).index_add(0, torch.tensor(groups, dtype=torch.long), self.scores)
        return replace(self, tokens=tuple(pieces), scores=sums)


def word_starts(text: str) -> set[int]:
    """Places in a text at which a word, or a run of punctuation, begins."""
    starts = set()
    before = " "
    for place, character in enumerate(text):
        kind = _kind(character)
        if character in "'’" and before == "word" and _kind(text[place + 1 : place + 2] or " ") == "word":
            kind = "word"
        if kind == "ideograph" or kind not in (before, " "):
            starts.add(place)
        before = kind
    return starts


def _kind(character: str) -> str:
    if character.isspace():
        return " "
    if _IDEOGRAPH.match(character):
        return "ideograph"
    return "mark" if unicodedata.category(character)[0] in "PS" else "word"


def score_text(
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
    """Lay a score for each token over the text.

    Tokens that share a character, as the bytes of one do, become one piece with the sum of their scores.

    Args:
        text: what the tokenizer read.
        tokenizer: which splits it as it did then.
        scores: (S,), one for each token of ``tokenizer(text)``, special symbols included; those of padding that
            follows are 0.
        method, target, unit, output, baseline: as in ``ScoredText``.

    Raises:
        ValueError: there is not one score for each token.
    """
    scores = scores.detach().cpu()
    scores = scores if scores.dtype == torch.float64 else scores.float()
    encoded = tokenizer(text, return_special_tokens_mask=True, return_offsets_mapping=tokenizer.is_fast)
    special = encoded["special_tokens_mask"]
    if scores.ndim != 1 or len(scores) != len(special):
        raise ValueError(
            f"scores has the shape {tuple(scores.shape)}; this tokenizer makes {len(special)} tokens of the text, so "
            f"they need ({len(special)},)."
        )
    real = [place for place, is_special in enumerate(special) if not is_special]
    if tokenizer.is_fast:
        pieces, groups = _pieces(text, [encoded["offset_mapping"][place] for place in real])
    else:
        pieces, groups = _named(token_names([encoded["input_ids"][place] for place in real], tokenizer))
    sums = scores.new_zeros(len(pieces)).index_add(0, torch.tensor(groups, dtype=torch.long), scores[real])
    rest = float(scores.double().sum() - scores[real].double().sum())
    return ScoredText(tuple(pieces), sums, method, target, unit, rest, output, baseline)


def _pieces(text: str, offsets: list[tuple[int, int]]) -> tuple[list[str], list[int]]:
    """The text cut where tokens begin, and the piece of each token."""
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
    """Tokens as the pieces themselves: with the spaces that SentencePiece writes as part of them, or with one each."""
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
    """The weights with which one token attends to the text, laid over it.

    Args:
        record: of a text that was not padded; what is attended to is ``tokenizer(text)``.
        text, tokenizer: as for ``score_text``.
        row: which of the tokens that attend; None is the mean over all of them.
        layer, head: as in ``record.matrix``.

    Raises:
        ValueError: there is no such row, layer or head, or the record is of another text.
    """
    matrix = record.matrix(layer, head)
    if row is not None and not -len(matrix) <= row < len(matrix):
        raise ValueError(f"row is {row}; the record has {len(matrix)}: write 0 to {len(matrix) - 1}, or None.")
    weights, target = (matrix.mean(0), "") if row is None else (matrix[row], record.target_tokens[row])
    return score_text(text, tokenizer, weights, "attention", target=target)


def _limit(scored: ScoredText, limit: float | None) -> float:
    """The score that has the full colour."""
    if not scored.tokens:
        raise ValueError("This text has no tokens, so there is nothing to show; choose a longer one.")
    if not scored.scores.isfinite().all():
        raise ValueError("These scores hold what is no finite number; look for its cause in the model.")
    if limit is not None and not limit > 0:
        raise ValueError(f"limit is {limit}; write the score, above 0, that is to have the full colour.")
    return limit or float(scored.scores.abs().max()) or 1.0


def _heading(scored: ScoredText) -> str:
    return " → ".join(filter(None, (scored.method, label(scored.target) if scored.target else "")))


def render_scores_text(scored: ScoredText, most: int = 12) -> str:
    """The pieces with the largest scores, a line for each, for a terminal; and, of a saliency, what they add up to.

    Args:
        scored: the text.
        most: how many to name.
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
        lines.append(f"special symbols {scored.rest:+.4f}")
    if scored.output is not None and scored.baseline is not None:
        change = scored.output - scored.baseline
        lines.append(f"sum {change + (scored.gap or 0):+.4f}; from the text's absence to the text {change:+.4f}")
    return "\n".join(lines)


_STYLE = """
.hfattn-scores{line-height:1.9;overflow-wrap:anywhere}
.hfattn-scores p{margin:0;white-space:pre-wrap}
.hfattn-scores span{border-radius:.2em;padding:.15em 0}
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
h1{{font-size:1.25rem}}
</style>
</head>
<body>
<h1 dir="auto">{title}</h1>
{snippet}
</body>
</html>
"""


def _colour(score: float, limit: float) -> tuple[tuple[int, int, int], float]:
    """Colour and opacity."""
    return (_FOR if score >= 0 else _AGAINST), _STRONGEST * min(abs(score) / limit, 1.0)


def _css(score: float, limit: float) -> str:
    (red, green, blue), alpha = _colour(score, limit)
    return f"rgb({red} {green} {blue}/{alpha:.3f})"


def scores_snippet(scored: ScoredText, limit: float | None = None) -> str:
    """The text coloured piece by piece, with its scale, as an element for a page that exists, light or dark.

    Blue counts for the target, orange against it; the number of each piece is in its tooltip.

    Args:
        scored: at least one token.
        limit: the score that has the full colour; default the largest.

    Raises:
        ValueError: there is no token, or a score or the limit cannot be drawn.
    """
    limit = _limit(scored, limit)
    spans = []
    for token, score in zip(scored.tokens, scored.scores.tolist(), strict=True):
        inner = token.strip()
        before, after = token.partition(inner)[::2] if inner else ("", "\n" * token.count("\n"))
        shown = html.escape(inner or label(token))
        style = f"background:{_css(score, limit)}"
        title = html.escape(f"{label(inner or token)}: {score:+.4g}")
        spans.append(f'{html.escape(before)}<span style="{style}" title="{title}">{shown}</span>{html.escape(after)}')
    lowest = -limit if bool((scored.scores < 0).any()) else 0.0
    stops = ", ".join(_css(score, limit) for score in (lowest, 0.0, limit))
    unit = f" {html.escape(scored.unit)}" if scored.unit else ""
    scale = (
        f'<div class="scale" dir="ltr"><span>{lowest:.3g}</span>'
        f'<i style="background:linear-gradient(to right, {stops})"></i><span>{limit:+.3g}{unit}</span></div>'
    )
    return f'<div class="hfattn-scores"><style>{_STYLE}</style><p dir="auto">{"".join(spans)}</p>{scale}</div>'


def render_scores_html(scored: ScoredText, title: str | None = None, limit: float | None = None) -> str:
    """One self-contained page with the coloured text of ``scores_snippet``.

    Args:
        title: heading of the page; default the method and the target.
        scored, limit: as for ``scores_snippet``, which see for what is raised.
    """
    heading = html.escape(_heading(scored) if title is None else title)
    return _PAGE.format(title=heading, snippet=scores_snippet(scored, limit))


def plot_scores(scored: ScoredText, *, title: str | None = None, limit: float | None = None) -> "Figure":
    """Draw the text, coloured piece by piece, in lines of seven inches; blue counts for the target, orange against it.

    Args:
        scored: at least one token.
        title: a line above; default the method and the target.
        limit: the score that has the full colour; default the largest.

    Returns:
        A matplotlib figure, as ``plot_alignment`` returns it.

    Raises:
        ValueError: there is no token, or a score or the limit cannot be drawn.
        UserError: matplotlib is not installed.
    """
    try:
        from matplotlib.colors import LinearSegmentedColormap
        from matplotlib.figure import Figure
        from matplotlib.patches import Rectangle
    except ModuleNotFoundError as error:
        message = "Pictures need matplotlib, which is not installed; run: pip install 'hfattn[recipes]'"
        raise UserError(message) from error

    limit = _limit(scored, limit)
    fonts = installed_fonts()
    figure = Figure(figsize=(_LINE_WIDTH + 2 * _MARGIN, 1))
    line = _FONT_SIZE / 72 * 1.8  # inches from line to line
    space = _FONT_SIZE / 72 * 0.3

    def width_of(words: str, size: float = _FONT_SIZE) -> float:
        written = figure.text(0, 0, words, fontfamily=fonts, fontsize=size, parse_math=False)
        extent = written.get_window_extent().width / figure.dpi
        written.remove()
        return extent

    heading = _heading(scored) if title is None else title
    top = _MARGIN + (line + 0.1 if heading else 0)
    placed: list[tuple[float, float, float, str, float]] = []  # left, line, width, words, score
    x, y = 0.0, 0
    for token, score in zip(scored.tokens, scored.scores.tolist(), strict=True):
        inner = token.strip()
        words = inner or label(token)
        width = width_of(words)
        before, after = token.partition(inner)[::2] if inner else ("", token if "\n" in token else "")
        x += space * len(before.replace("\n", ""))
        if "\n" in before or (x > 0 and x + width > _LINE_WIDTH):
            x, y = 0.0, y + 1
        placed.append((x, y, width, words, score))
        x += width + space * len(after.replace("\n", ""))
        if "\n" in after:
            x, y = 0.0, y + 1
    widest = max(left + width for left, _, width, _, _ in placed)
    whole = (
        max(_LINE_WIDTH, widest, width_of(heading) if heading else 0) + 2 * _MARGIN,
        top + line * (placed[-1][1] + 1) + 0.75,
    )
    figure.set_size_inches(whole)
    rightward = next((d for d in map(unicodedata.bidirectional, "".join(scored.tokens)) if d in ("L", "R", "AL")), "L")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, whole[0]), ylim=(whole[1], 0))
    axes.set_axis_off()
    for left, number, width, words, score in placed:
        left = _MARGIN + (left if rightward == "L" else _LINE_WIDTH - left - width)
        base = top + line * (number + 0.5)
        rgb, alpha = _colour(score, limit)
        colour = tuple(channel / 255 for channel in rgb)
        axes.add_patch(
            Rectangle((left, base - 0.42 * line), width, 0.84 * line, facecolor=colour, alpha=alpha, linewidth=0)
        )
        axes.text(
            left, base, words, va="center_baseline", fontfamily=fonts, fontsize=_FONT_SIZE, parse_math=False
        )  # fmt: skip
    if heading:
        figure.text(
            _MARGIN / whole[0], 1 - (_MARGIN + line / 2) / whole[1], heading, va="center", fontfamily=fonts,
            fontsize=_FONT_SIZE, fontweight="bold", parse_math=False,
        )  # fmt: skip

    lowest = -limit if bool((scored.scores < 0).any()) else 0.0
    ends = [(*(channel / 255 for channel in rgb), _STRONGEST) for rgb in (_AGAINST, _FOR)]
    white = (1.0, 1.0, 1.0, 0.0)
    stops = [ends[0], white, ends[1]] if lowest < 0 else [white, ends[1]]
    bar = figure.add_axes(((_MARGIN + 0.15) / whole[0], 0.35 / whole[1], 2.2 / whole[0], 0.14 / whole[1]))
    colours = LinearSegmentedColormap.from_list("scores", stops)
    bar.imshow([[i / 255 for i in range(256)]], cmap=colours, aspect="auto", extent=(lowest, limit, 0, 1))
    bar.set_yticks([])
    bar.set_xticks([lowest, 0.0, limit] if lowest < 0 else [0.0, limit])
    bar.xaxis.set_major_formatter(lambda value, _: f"{value:+.3g}" if value else "0")
    bar.tick_params(labelsize=8, length=2)
    bar.spines[:].set_linewidth(0.5)
    if scored.unit:
        figure.text(
            (_MARGIN + 2.75) / whole[0], 0.42 / whole[1], scored.unit, va="center", fontsize=8, parse_math=False
        )  # fmt: skip
    return figure


__all__ = [
    "ScoredText",
    "plot_scores",
    "render_scores_html",
    "render_scores_text",
    "score_attention",
    "score_text",
    "scores_snippet",
]
