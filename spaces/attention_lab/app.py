"""Place keys, values and a query by hand and see energies, weights and context for any score, distribution and pattern.

hfattn space run attention_lab
"""

import html
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr
import numpy as np
import torch
from lab_plots import COLORS, CSS, draw_line, draw_plane, draw_weights

from hfattn.attention import DISTRIBUTIONS, SCORES, Distribution, Hard, attend
from hfattn.errors import UserError
from hfattn.spaces import Texts, launch, number

SPACE = Path(__file__).parent
TEXTS = Texts(SPACE / "texts.yaml")
LIMIT = 5.0  # absolute value of keys, values and queries
MOST = len(COLORS)  # keys
STEP = 0.05  # of a query
QUERIES, SIDE = 201, 48  # points of the curve; points on each side of the field
WITH_HIDDEN, HIDDEN = ("additive", "deep", "feature"), 3  # width of the hidden layer of scores that have one
FEATURE_MAPS = ("elu", "relu", "softplus", "exp")
DISSIMILARITIES = ("manhattan", "euclidean", "sq_euclidean", "chebyshev")
LATEX = [{"left": "$$", "right": "$$", "display": True}, {"left": "$", "right": "$", "display": False}]

FORMULAS = {
    "dot": r"e_i = q \cdot k_i",
    "scaled_dot": r"e_i = \dfrac{q \cdot k_i}{\sqrt{d}}",
    "cosine": r"e_i = \beta\,\dfrac{q \cdot k_i}{\lVert q \rVert\,\lVert k_i \rVert}",
    "general": r"e_i = q^\top W k_i",
    "biased_general": r"e_i = k_i^\top (W q + b)",
    "activated_general": r"e_i = \tanh(q^\top W k_i + b)",
    "additive": r"e_i = v^\top \tanh(W_q q + W_k k_i)",
    "deep": r"\begin{gathered} e_i = v^\top E_i^2 + b_3 \\ E_i^1 = \mathrm{ReLU}(W_0 k_i + W_1 q + b_1) \\ "
    r"E_i^2 = \mathrm{ReLU}(W_2 E_i^1 + b_2) \end{gathered}",
    "location": r"e_i = (W q)_i",
    "feature": r"e_i = v^\top \tanh(W_0 k_i + W_1 \bar{k} + b)",
    "generalized_kernel": r"e_i = \varphi(q) \cdot \varphi(k_i)",
    "gaussian": r"e_i = -\dfrac{\lVert q - k_i \rVert^2}{2 s^2}",
    "sq_euclidean": r"e_i = -\lVert q - k_i \rVert^2",
    "boxcar": r"e_i = \tfrac{1}{2}\,[\lVert q - k_i \rVert \le 1]",
    "euclidean": r"e_i = -\lVert q - k_i \rVert",
    "manhattan": r"e_i = -\textstyle\sum_j |q_j - k_{ij}|",
    "chebyshev": r"e_i = -\max_j |q_j - k_{ij}|",
    "minkowski": r"e_i = -\bigl(\textstyle\sum_j |q_j - k_{ij}|^p\bigr)^{1/p}",
    "standardized_euclidean": r"e_i = -\sqrt{\textstyle\sum_j (q_j - k_{ij})^2 / s_j^2}",
    "mahalanobis": r"e_i = -\lVert W (q - k_i) \rVert, \quad W^\top W = \Sigma^{-1}",
    "softmax": r"\alpha_i = \dfrac{\exp e_i}{\sum_j \exp e_j}",
    "sigmoid": r"\alpha_i = \dfrac{1}{1 + \exp(-e_i)}",
    "sparsemax": r"\begin{gathered} \alpha_i = \max(e_i - \tau, 0) \\ \textstyle\sum_i \alpha_i = 1 \end{gathered}",
    "entmax": r"\begin{gathered} \alpha_i = \max((a - 1)\,e_i - \tau, 0)^{1/(a - 1)} \\ "
    r"\textstyle\sum_i \alpha_i = 1 \end{gathered}",
    "hard": r"\alpha_i = [\,i = \arg\max_j e_j\,]",
    "compositional": r"\alpha_i = \tanh(e_i)\,\sigma(-\mathrm{dist}(q, k_i))",
    "normalize": r"\alpha_i = \dfrac{e_i}{\sum_j e_j}",
    "full": r"j \in \{1, \dots, n\}",
    "window": r"|i - j| < \delta w, \quad \delta \mid i - j",
    "block_local": r"\left|\left\lceil i / b \right\rceil - \left\lceil j / b \right\rceil\right| \le 1",
    "strided": r"|i - j| < l \;\lor\; l \mid i - j",
    "fixed": r"\left\lceil i / l \right\rceil = \left\lceil j / l \right\rceil \;\lor\; l \mid j",
    "memory": r"T \left\lceil i / T \right\rceil - T - 2 < j \le T \left\lceil i / T \right\rceil",
}
# The options of each pattern, from the sliders for a size and a dilation.
PATTERNS: dict[str, Callable[[int, int], dict[str, int]]] = {
    "full": lambda size, dilation: {},
    "window": lambda size, dilation: {"window": size, "dilation": dilation},
    "block_local": lambda size, dilation: {"block": size},
    "strided": lambda size, dilation: {"stride": size},
    "fixed": lambda size, dilation: {"block": size, "last": 1},
    "memory": lambda size, dilation: {"segment_length": size, "memory_length": 2},
}
CAUSAL = r", \quad j \le i"
# "concat" is another name of "additive".
SCORE_NAMES = [name for name, kind in SCORES.items() if list(SCORES.values()).index(kind) == list(SCORES).index(name)]
# Keys and values of one dimension, and of two; without a value, the key is the value.
LINES: dict[str, list[list[float]]] = {
    "sine": [[x, round(2.5 * math.sin(1.4 * x) + d, 2)] for x, d in zip(
        (-4.6, -3.8, -3.1, -2.2, -1.4, -0.5, 0.4, 1.2, 2.1, 2.9, 3.7, 4.5),
        (0.3, -0.5, 0.4, -0.2, 0.6, -0.4, 0.5, 0.1, -0.6, 0.4, -0.3, 0.2), strict=True)],
    "step": [[-4, -2], [-2.5, -2], [-1, -2], [1, 3], [2.5, 3], [4, 3]],
    "three": [[-3, -2], [0, 3], [2.5, 1]],
}  # fmt: skip
PLANES: dict[str, list[list[float | None]]] = {
    "circle": [
        [round(3 * math.cos(0.4 + n * math.tau / 6), 2), round(3 * math.sin(0.4 + n * math.tau / 6), 2), None, None]
        for n in range(6)
    ],
    "memory": [[-3, 2, 2, 4], [-3, -2, 4, 0], [-1, 0, 2, -4]],
    "scattered": [
        [-3.6, 2.7, None, None], [-0.9, 3.4, None, None], [1.9, 1.2, None, None], [3.7, 3.1, None, None],
        [-2.2, -0.4, None, None], [0.4, -2.1, None, None], [3.1, -3.3, None, None], [-3.9, -3.5, None, None],
    ],
}  # fmt: skip
MOVE = f"const LIMIT = {LIMIT}, STEP = {STEP};\n" + (SPACE / "lab.js").read_text(encoding="utf-8")
NONNEGATIVE = ("boxcar", "generalized_kernel")  # scores that ``normalize`` divides by their sum


class Choice(NamedTuple):
    """A score, a distribution, a pattern and their options; options of other functions are ignored."""

    score: str
    distribution: str
    pattern: str
    causal: bool
    feature_map: str
    dissimilarity: str
    s: float
    p: float
    beta: float
    seed: float
    alpha: float
    size: float
    dilation: float
    position: float

    @property
    def hides_keys(self) -> bool:
        return self.causal or self.pattern != "full"

    def pattern_options(self) -> dict[str, int]:
        return PATTERNS[self.pattern](int(self.size), int(self.dilation))

    def row(self, num_keys: int) -> int:
        """Return the row of the key at whose position the query is, from 0; the last one if there are fewer."""
        return min(int(self.position), num_keys) - 1

    def score_options(self, num_keys: int) -> dict[str, Any]:
        own: dict[str, dict[str, Any]] = {
            "gaussian": {"s": self.s},
            "minkowski": {"p": self.p},
            "generalized_kernel": {"feature_map": self.feature_map},
            "cosine": {"learn_beta": True},
            "location": {"max_length": num_keys},
        }
        return own.get(self.score, {"hidden_size": HIDDEN} if self.score in WITH_HIDDEN else {})

    def distribution_options(self) -> dict[str, Any]:
        own: dict[str, dict[str, Any]] = {
            "entmax": {"alpha": self.alpha},
            "compositional": {"dissimilarity": self.dissimilarity},
        }
        return own.get(self.distribution, {})

    def parameters(self, width: int, num_keys: int) -> dict[str, torch.Tensor]:
        """Return random parameters of the score, rounded so that the computation uses the displayed digits."""
        with torch.device("meta"):  # only names and shapes are needed
            score = SCORES[self.score](width, width, **self.score_options(num_keys))
        draw = torch.Generator().manual_seed(int(self.seed))
        found = {}
        for name, parameter in score.named_parameters():
            drawn = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
            if name == "log_beta":
                found[name] = torch.full((1,), math.log(self.beta), dtype=torch.float64)
            else:
                found[name] = ((0.5 * drawn).exp() if name == "s" else drawn).mul(100).round().div(100)
        return found


LEARNED = {
    *("general", "biased_general", "activated_general", "location", "standardized_euclidean", "mahalanobis"),
    *WITH_HIDDEN,
}
SHOWN_FOR: dict[str, Callable[[str, str, str, bool], bool]] = {  # option: whether it belongs to what is chosen
    "s": lambda score, *_: score == "gaussian",
    "p": lambda score, *_: score == "minkowski",
    "beta": lambda score, *_: score == "cosine",
    "feature_map": lambda score, *_: score == "generalized_kernel",
    "seed": lambda score, *_: score in LEARNED,
    "alpha": lambda _, distribution, *__: distribution == "entmax",
    "dissimilarity": lambda _, distribution, *__: distribution == "compositional",
    "size": lambda _, __, pattern, ___: pattern != "full",
    "dilation": lambda _, __, pattern, ___: pattern == "window",
    "of_pattern": lambda _, __, pattern, causal: causal or pattern != "full",
}


class Energies(Distribution):
    """Distribution that returns the energies, so that ``attend`` returns them instead of weights."""

    def forward(self, energies: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        return energies


class Result(NamedTuple):
    """Energies and weights (T, S) and contexts (T, d_v) of T queries, the parameters, and which keys are seen (S,)."""

    energies: np.ndarray
    weights: np.ndarray
    context: np.ndarray
    parameters: Mapping[str, torch.Tensor]
    seen: np.ndarray


def attention_of(query: np.ndarray, key: np.ndarray, value: np.ndarray, choice: Choice) -> Result:
    """Attend with queries (T, d), all at the position of the choice, to keys (S, d) and values (S, d_v)."""
    parameters = choice.parameters(key.shape[1], len(key))
    given: dict[str, Any] = {}
    queries = torch.from_numpy(query)
    if choice.hides_keys:
        # ``attend`` puts the last query at the position of the last key: the first of these is at that of the choice.
        queries = queries[:, None].expand(-1, len(key) - choice.row(len(key)), -1)
        given = {"pattern": choice.pattern, "pattern_options": choice.pattern_options(), "causal": choice.causal}

    def through(queries: torch.Tensor, score: str, distribution: str | Distribution, **options: Any) -> Any:
        found = attend(queries, torch.from_numpy(key), torch.from_numpy(value), score, distribution, **options, **given)
        return [tensor[..., 0, :].numpy() if given else tensor.numpy() for tensor in found if tensor is not None]

    hard = choice.distribution == "hard"  # the name would sample; evaluation mode takes the largest energy
    of_score = {"score_options": choice.score_options(len(key)), "parameters": parameters}
    distribution = Hard().eval() if hard else choice.distribution
    context, weights = through(
        queries, choice.score, distribution, distribution_options=choice.distribution_options(), **of_score
    )
    _, energies = through(queries, choice.score, Energies(), **of_score)
    _, uniform = through(torch.zeros_like(queries[:1]), "dot", "softmax")
    return Result(energies, weights, context, parameters, uniform[0] > 0)


def read_table(rows: Sequence[Sequence[Any]], columns: int, needed: int, request: gr.Request) -> np.ndarray:
    """Return the numbers of a table (S, columns); cells after the first ``needed`` may be empty and become NaN.

    Empty rows are skipped.

    Raises:
        UserError: in the language of the request, if a number is missing or wrong, or there are too many rows.
    """
    found = []
    for place, row in enumerate(rows, start=1):
        numbers = []
        for cell in list(row)[:columns]:
            text = "" if cell is None else str(cell).strip().replace("−", "-").replace(",", ".")
            try:
                numbers.append(float(text or "nan"))
            except ValueError:
                raise UserError(TEXTS.say(request, "no_number", row=place, cell=str(cell)[:20])) from None
        if all(map(math.isnan, numbers)):
            continue
        empty = [math.isnan(each) for each in numbers]
        if any(empty[:needed]) or (any(empty[needed:]) and not all(empty[needed:])):
            raise UserError(TEXTS.say(request, "missing_number", row=place))
        if any(abs(each) > LIMIT for each in numbers):
            worst = max(numbers, key=lambda each: 0 if math.isnan(each) else abs(each))
            raise UserError(TEXTS.say(request, "out_of_range", row=place, value=f"{worst:g}", limit=f"{LIMIT:g}"))
        found.append(numbers)
    if not found:
        raise UserError(TEXTS.say(request, "no_keys"))
    if len(found) > MOST:
        raise UserError(TEXTS.say(request, "too_many_keys", most=MOST, given=len(found)))
    return np.array(found)


def filled(rows: Sequence[Sequence[Any]]) -> list[int]:
    """Return the places of the rows that ``read_table`` does not skip."""
    return [place for place, row in enumerate(rows) if any(cell is not None and str(cell).strip() for cell in row)]


def vector(numbers: Sequence[float]) -> str:
    """Format a number or a row of numbers as LaTeX."""
    written = [number(each).replace("−", "-") for each in numbers]
    between = r",\;"
    return written[0] if len(written) == 1 else f"({between.join(written)})"


def factor(numbers: Sequence[float]) -> str:
    """Format a factor that follows a dot, with parentheses if it is negative."""
    written = vector(numbers)
    return f"({written})" if written.startswith("-") else written


def matrix(name: str, tensor: torch.Tensor) -> str:
    base, _, index = name.partition("_")
    rows = tensor if tensor.ndim > 1 else tensor[:, None]
    body = r" \\ ".join(" & ".join(number(cell).replace("−", "-") for cell in row) for row in rows.tolist())
    return rf"{base}{f'_{{{index}}}' if index else ''} = \begin{{pmatrix}} {body} \end{{pmatrix}}"


def by_hand(query: Sequence[float], values: np.ndarray, result: Result, choice: Choice, warning: str) -> str:
    """Return the computation for the first query as Markdown with formulas."""
    weights, context = result.weights[0], result.context[0]
    seen = np.flatnonzero(result.seen)
    order = seen[np.argsort(-np.abs(weights[seen]), kind="stable")]
    # Only those that round to a nonzero number, as many as fit on a line.
    shown = sorted(int(i) for i in order[: 4 - values.shape[1]] if abs(weights[i]) >= 0.005)
    terms = [rf"{factor([weights[i]])} \cdot {factor(values[i].tolist())}" for i in shown]
    dots = [r"\cdots"] if np.count_nonzero(weights) > len(terms) else []
    first = int(order[0])
    place = rf"_{{{choice.row(len(values)) + 1}}}" if choice.hides_keys else ""
    lines = [
        rf"q{place} = {vector(query)}",
        rf"e_{{{first + 1}}} = {vector([result.energies[0, first]])}, \quad "
        rf"\alpha_{{{first + 1}}} = {vector([weights[first]])}",
        rf"\begin{{aligned}} c &= \textstyle\sum_i \alpha_i v_i \\ &= {' + '.join(terms + dots) or '0'} \\ "
        rf"&= {vector(context.tolist())} \end{{aligned}}",
    ]
    learned = [matrix(name, tensor) for name, tensor in result.parameters.items() if name != "log_beta"]
    options = {
        "score_options": {} if choice.score in ("cosine", "location") else choice.score_options(len(values)),
        "distribution_options": choice.distribution_options(),
    }
    given = "".join(f", {name}={value}" for name, value in options.items() if value)
    if learned or choice.score == "cosine":
        given += ", parameters={…}"
    code = f'attend(query, key, value, "{choice.score}", "{choice.distribution}"{given})'
    if choice.hides_keys:  # one query at each position
        if choice.pattern != "full":
            given += f', pattern="{choice.pattern}", pattern_options={choice.pattern_options()}'
        given += ", causal=True" if choice.causal else ""
        code = f'attend(queries, key, value, "{choice.score}", "{choice.distribution}"{given})'
        code = f"context, weights = {code}\nweights[{choice.row(len(values))}]"
    return "\n\n".join(
        [
            *([f"⚠️ {warning}"] if warning else []),
            *(f"$${each}$$" for each in lines),
            *(f"$${each}$$" for each in learned),
            f"```python\n{code}\n```",
        ]
    )


def legend(**numbers: Sequence[float]) -> str:
    spans = []
    for name, values in numbers.items():
        text = ", ".join(map(number, values))
        spans.append(f"<span>{name.replace('sum', 'Σα')} = <b>{f'({text})' if len(values) > 1 else text}</b></span>")
    return f'<div class="legend">{"".join(spans)}</div>'


def build() -> gr.Blocks:
    """Build the page."""

    def warning(choice: Choice, result: Result, request: gr.Request) -> str:
        if choice.distribution == "normalize" and (result.energies[:, result.seen] < 0).any():
            return TEXTS.say(request, "warning_normalize")
        if not result.weights[0].any():
            return TEXTS.say(request, "warning_nothing")
        return ""

    def shown(
        picture: str, query: list[float], result: Result, values: np.ndarray, choice: Choice, request: gr.Request
    ) -> tuple[str, str, str]:
        weights = result.weights[0]
        numbers = legend(q=query, c=result.context[0], sum=[weights.sum()])
        numbers += draw_weights(result.energies[0], weights, result.seen)
        hand = by_hand(query, values, result, choice, warning(choice, result, request))
        return f'<div class="lab">{picture}</div>', f'<div class="lab">{numbers}</div>', hand

    def refused(error: UserError) -> tuple[Any, ...]:
        """Show a sentence in the place of the picture; the style hides the numbers, which are of another table."""
        return (
            f'<div class="lab"><p class="wrong" role="alert">{html.escape(str(error))}</p></div>',
            gr.skip(),
            gr.skip(),
        )

    def check(choice: Choice, request: gr.Request) -> None:
        if choice.score == "location" and choice.pattern != "full":
            raise UserError(TEXTS.say(request, "location_in_pattern"))

    def line(
        keys: list[list[Any]], query: float, score: str, distribution: str, pattern: str, causal: bool,
        s: float, p: float, beta: float, feature_map: str, seed: float, alpha: float, dissimilarity: str,
        size: float, dilation: float, position: float, request: gr.Request,
    ) -> tuple[Any, ...]:  # fmt: skip
        choice = Choice(
            score, distribution, pattern, causal, feature_map, dissimilarity, s, p, beta, seed, alpha,
            size, dilation, position,
        )  # fmt: skip
        try:
            table, at = read_table(keys, 2, 2, request), [query]
            check(choice, request)
        except UserError as error:
            return refused(error)
        key, value = table[:, :1], table[:, 1:]
        grid = np.linspace(-LIMIT, LIMIT, QUERIES)
        result = attention_of(np.array([at, *grid[:, None]]), key, value, choice)
        context, weights = result.context[:, 0], result.weights
        said = TEXTS.say(request, "picture_line", keys=len(key), query=number(at[0]), context=number(context[0]))
        picture = draw_line(
            key[:, 0], value[:, 0], at[0], weights[0], result.seen, context[0], grid, context[1:], weights[1:], LIMIT,
            said, names(request),
        )  # fmt: skip
        return shown(picture, at, result, value, choice, request)

    def plane(
        keys: list[list[Any]], query_x: float, query_y: float, score: str, distribution: str, pattern: str,
        causal: bool, s: float, p: float, beta: float, feature_map: str, seed: float, alpha: float,
        dissimilarity: str, size: float, dilation: float, position: float, request: gr.Request,
    ) -> tuple[Any, ...]:  # fmt: skip
        choice = Choice(
            score, distribution, pattern, causal, feature_map, dissimilarity, s, p, beta, seed, alpha,
            size, dilation, position,
        )  # fmt: skip
        try:
            table, at = read_table(keys, 4, 2, request), [query_x, query_y]
            check(choice, request)
        except UserError as error:
            return refused(error)
        key = table[:, :2]
        value = np.where(np.isnan(table[:, 2:]), key, table[:, 2:])
        centres = np.linspace(-LIMIT, LIMIT, 2 * SIDE + 1)[1::2]
        x, y = np.meshgrid(centres, centres[::-1])
        result = attention_of(np.array([at, *np.stack([x.ravel(), y.ravel()], axis=1)]), key, value, choice)
        weights, context = result.weights[0], result.context[0]
        said = TEXTS.say(
            request, "picture_plane", keys=len(key), query=", ".join(map(number, at)),
            context=", ".join(map(number, context)),
        )  # fmt: skip
        field = result.weights[1:].reshape(SIDE, SIDE, len(key))
        picture = draw_plane(
            key, value, np.array(at), weights, result.seen, context, field, LIMIT, said, names(request)
        )
        return shown(picture, at, result, value, choice, request)

    def names(request: gr.Request) -> dict[str, str]:
        return {mark: TEXTS.say(request, f"mark_{mark}") for mark in "qkv"}

    def describe(score: str, distribution: str, pattern: str, causal: bool) -> tuple[Any, ...]:
        return (
            f"$${FORMULAS[score]}$$", TEXTS(f"score_{score}"),
            f"$${FORMULAS[distribution]}$$", TEXTS(f"distribution_{distribution}"),
            f"$${FORMULAS[pattern]}{CAUSAL if causal else ''}$$", TEXTS(f"pattern_{pattern}"),
            *(gr.update(visible=has(score, distribution, pattern, causal)) for has in SHOWN_FOR.values()),
            gr.update(visible=distribution == "normalize" and score not in NONNEGATIVE),
        )  # fmt: skip

    def moved(event: gr.EventData) -> tuple[str, float, float]:
        """Parse the moved mark and its position, clipped to the plane and rounded to slider steps."""
        x, y = (round(min(LIMIT, max(-LIMIT, float(event._data[each]))) / STEP) * STEP for each in "xy")
        return str(event._data["handle"]), round(x, 2), round(y, 2)

    def move_on_line(event: gr.EventData, request: gr.Request, *given: Any) -> tuple[Any, ...]:
        keys, query, *chosen = given
        handle, x, y = moved(event)
        if handle == "q":
            return gr.skip(), x, *line(*[keys, x, *chosen, request])
        keys[filled(keys)[int(handle[1:])]][:2] = [x, y]
        return keys, gr.skip(), *line(*[keys, query, *chosen, request])

    def move_in_plane(event: gr.EventData, request: gr.Request, *given: Any) -> tuple[Any, ...]:
        keys, query_x, query_y, *chosen = given
        handle, x, y = moved(event)
        if handle == "q":
            return gr.skip(), x, y, *plane(*[keys, x, y, *chosen, request])
        keys[filled(keys)[int(handle[1:])]][slice(0, 2) if handle[0] == "k" else slice(2, 4)] = [x, y]
        return keys, gr.skip(), gr.skip(), *plane(*[keys, query_x, query_y, *chosen, request])

    def slider(low: float, high: float, value: float, step: float, key: str, **options: Any) -> gr.Slider:
        return gr.Slider(low, high, value, step=step, label=TEXTS(key), **options)

    def table(rows: list[list[Any]], headers: list[str], key: str) -> gr.Dataframe:
        return gr.Dataframe(
            rows, headers=headers, datatype="number", type="array", interactive=True,
            column_widths=[f"{100 // len(headers)}%"] * len(headers), label=TEXTS(key), max_height=330, buttons=[],
        )  # fmt: skip

    def preset(names: Mapping[str, Any]) -> gr.Dropdown:
        return gr.Dropdown(
            [(TEXTS(f"preset_{name}"), name) for name in names], value=next(iter(names)), label=TEXTS("preset")
        )

    def markdown(text: Any = "", **options: Any) -> gr.Markdown:
        return gr.Markdown(text, latex_delimiters=LATEX, **options)

    with gr.Blocks(title="Attention laboratory", analytics_enabled=False) as page:
        gr.Markdown(TEXTS("title"))
        gr.Markdown(TEXTS("intro"))
        visible = {name: has("gaussian", "softmax", "full", False) for name, has in SHOWN_FOR.items()}
        with gr.Row():
            score = gr.Dropdown(SCORE_NAMES, value="gaussian", label=TEXTS("score"), min_width=140)
            distribution = gr.Dropdown(list(DISTRIBUTIONS), value="softmax", label=TEXTS("distribution"), min_width=140)
            pattern = gr.Dropdown(list(PATTERNS), value="full", label=TEXTS("pattern"), min_width=140)
            causal = gr.Checkbox(label=TEXTS("causal"), min_width=140)
        s = slider(0.1, 4, 0.7, 0.05, "s", visible=visible["s"])
        p = slider(1, 10, 3, 0.5, "p", visible=visible["p"])
        beta = slider(0.1, 20, 3, 0.1, "beta", visible=visible["beta"])
        feature_map = gr.Dropdown(FEATURE_MAPS, value="elu", label=TEXTS("feature_map"), visible=visible["feature_map"])
        seed = slider(0, 50, 1, 1, "seed", info=TEXTS("seed_info"), visible=visible["seed"])
        alpha = slider(1, 4, 1.5, 0.1, "alpha", visible=visible["alpha"])
        dissimilarity = gr.Dropdown(
            DISSIMILARITIES, value="manhattan", label=TEXTS("dissimilarity"), visible=visible["dissimilarity"]
        )
        with gr.Row(visible=visible["of_pattern"]) as of_pattern:
            size = slider(1, MOST, 3, 1, "size", visible=visible["size"], min_width=140)
            dilation = slider(1, 4, 1, 1, "dilation", visible=visible["dilation"], min_width=140)
            position = slider(1, MOST, 6, 1, "position", min_width=140)
        suggestion = gr.Button(TEXTS("suggestion"), visible=False, size="sm")
        with gr.Row(equal_height=False, elem_id="explained"):
            with gr.Column(min_width=300):
                score_formula = markdown(f"$${FORMULAS['gaussian']}$$", elem_classes="formula")
                score_text = markdown(TEXTS("score_gaussian"), elem_classes="explained")
            with gr.Column(min_width=300):
                distribution_formula = markdown(f"$${FORMULAS['softmax']}$$", elem_classes="formula")
                distribution_text = markdown(TEXTS("distribution_softmax"), elem_classes="explained")
            with gr.Column(min_width=300):
                pattern_formula = markdown(f"$${FORMULAS['full']}$$", elem_classes="formula")
                pattern_text = markdown(TEXTS("pattern_full"), elem_classes="explained")
        settings = [s, p, beta, feature_map, seed, alpha, dissimilarity, size, dilation]
        kinds = [score, distribution, pattern, causal]
        chosen = [*kinds, *settings, position]
        with gr.Tabs():
            with gr.Tab(TEXTS("line"), id="line"), gr.Row():
                with gr.Column(scale=3, min_width=300):
                    line_figure = gr.HTML(js_on_load=MOVE, elem_id="line")
                    line_query = slider(-LIMIT, LIMIT, 0.8, STEP, "query")
                    line_preset = preset(LINES)
                    gr.Markdown(TEXTS("line_info"), elem_classes="quiet")
                with gr.Column(scale=2, min_width=300):
                    line_weights = gr.HTML(elem_classes="numbers")
                    with gr.Accordion(TEXTS("by_hand"), elem_classes="numbers"):
                        line_numbers = markdown(elem_classes="hand")
                    line_keys = table(LINES["sine"], ["k", "v"], "keys")
            with gr.Tab(TEXTS("plane"), id="plane"), gr.Row():
                with gr.Column(scale=3, min_width=300):
                    plane_figure = gr.HTML(js_on_load=MOVE, elem_id="plane")
                    with gr.Row():
                        query_x = slider(-LIMIT, LIMIT, 1.5, STEP, "query_x", min_width=140)
                        query_y = slider(-LIMIT, LIMIT, 1.0, STEP, "query_y", min_width=140)
                    plane_preset = preset(PLANES)
                    gr.Markdown(TEXTS("plane_info"), elem_classes="quiet")
                with gr.Column(scale=2, min_width=300):
                    plane_weights = gr.HTML(elem_classes="numbers")
                    with gr.Accordion(TEXTS("by_hand"), elem_classes="numbers"):
                        plane_numbers = markdown(elem_classes="hand")
                    plane_keys = table(PLANES["circle"], ["k₁", "k₂", "v₁", "v₂"], "keys_plane")
        gr.Markdown(TEXTS("limits"), elem_classes="quiet", elem_id="limits")

        on_line, in_plane = [line_keys, line_query, *chosen], [plane_keys, query_x, query_y, *chosen]
        line_shown, plane_shown = (
            [line_figure, line_weights, line_numbers],
            [plane_figure, plane_weights, plane_numbers],
        )
        quick: dict[str, Any] = {"show_progress": "hidden", "trigger_mode": "always_last"}
        # Not the changes of tables and queries that come from the server: those come with the new picture.
        triggers = [page.load, *(each.change for each in chosen)]
        gr.on([*triggers, line_keys.input, line_query.input], line, on_line, line_shown, api_name="line", **quick)
        gr.on(
            [*triggers, plane_keys.input, query_x.input, query_y.input],
            plane, in_plane, plane_shown, api_name="plane", **quick,
        )  # fmt: skip
        gr.on(
            [each.change for each in kinds],
            describe, kinds,
            [
                score_formula, score_text, distribution_formula, distribution_text, pattern_formula, pattern_text,
                *settings, of_pattern, suggestion,
            ],
            api_name="describe", **quick,
        )  # fmt: skip
        suggestion.click(lambda: "boxcar", outputs=score, api_visibility="private", **quick)
        line_preset.input(lambda name: LINES[name], line_preset, line_keys, api_name="line_preset", **quick).then(
            line, on_line, line_shown, api_visibility="private", **quick
        )
        plane_preset.input(lambda name: PLANES[name], plane_preset, plane_keys, api_name="plane_preset", **quick).then(
            plane, in_plane, plane_shown, api_visibility="private", **quick
        )
        line_figure.moved(
            move_on_line, on_line, [line_keys, line_query, *line_shown], api_visibility="private", **quick
        )
        plane_figure.moved(
            move_in_plane, in_plane, [plane_keys, query_x, query_y, *plane_shown], api_visibility="private", **quick
        )
    return page


if __name__ == "__main__":
    launch(build(), TEXTS, CSS)
