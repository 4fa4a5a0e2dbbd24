"""Strided, fixed and learned spans of attention against dense attention, on text."""

from pathlib import Path
from typing import Any

from hfattn.models.attention_spans import AdaptiveSpanAttention

from .character_models import BITS, LAYERS, WIDTH, Budget, trained
from .claim import Claim, Measurement, Panel, Statement

BUDGET = Budget(length=1024, batch=2, steps=800)
BLOCK, LAST = 32, 8
PATTERNS: dict[str, tuple[str, dict[str, Any]]] = {
    "dense": ("full", {}),
    "fixed": ("fixed", {"block": BLOCK, "last": LAST}),
    "strided": ("strided", {"stride": BLOCK}),
    "learned spans": ("adaptive_span", {"span": BUDGET.length}),
}
SPAN, GROWTH = "mean span (characters)", "mean span of the upper two layers - lower two"


def measure(variant: str, seed: int, data: Path) -> Measurement:
    pattern, options = PATTERNS[variant]
    model, bits, curve = trained(pattern, options, BUDGET, seed, data)
    values, curves = {BITS: bits}, {"loss": curve}
    if pattern == "adaptive_span":
        spans = [each.lengths.detach() for each in model.modules() if isinstance(each, AdaptiveSpanAttention)]
        means = [each.mean().item() for each in spans]
        values[SPAN] = sum(means) / LAYERS
        values[GROWTH] = (sum(means[LAYERS // 2 :]) - sum(means[: LAYERS // 2])) / (LAYERS // 2)
        curves["spans"] = [(float(layer), mean) for layer, mean in enumerate(means, start=1)]
        curves["longest"] = [(float(layer), each.max().item()) for layer, each in enumerate(spans, start=1)]
    return Measurement(values, curves, BUDGET.steps)


SETTING = (
    f"`vaswani` as a character language model on tiny Shakespeare (the last 10% held out): {LAYERS} pre-norm layers of "
    f"width {WIDTH} with 4 heads and rotary positions; {BUDGET}. "
    "What dense attention reaches in longer runs was not measured. "
)
CLAIMS = {
    "sparse_patterns": Claim(
        "On text, the fixed pattern of Sparse Transformers is as good as dense attention, and the strided one is worse",
        "Child et al. 2019 (Sparse Transformers), section 7.1, table 1",
        SETTING
        + f"*Fixed* has blocks of {BLOCK} characters, of which the last {LAST} are seen by all later ones; *strided* "
        f"sees the last {BLOCK} characters and one of {BLOCK} before; each head sees both parts. (In the paper, with "
        "30 layers on enwik8, dense attention has 1.00 bits per byte, fixed 0.99 and strided 1.13.)",
        ("dense", "fixed", "strided"),
        measure,
        (
            Statement(BITS, "fixed", "not above", "dense", 0.02),
            Statement(BITS, "strided", "above", "dense"),
            Statement(BITS, "strided", "above", "fixed"),
        ),
        (Panel("loss", "step", "training nats per character"),),
    ),
    "adaptive_spans": Claim(
        "Learned spans are much shorter than the longest allowed one, longer in upper layers, and cost no accuracy",
        "Sukhbaatar et al. 2019 (Adaptive attention span), section 3.2, figures 3 and 4",
        SETTING + f"*Learned spans* are at most {BUDGET.length:,} characters and begin at 0, so that a short "
        "run keeps them short; attention falls to zero over 32 characters after them, and the penalty is the paper's, "
        "2e-6. *Dense* sees all characters before. (In the paper, 12 layers "
        "with spans of up to 8,192 use 314 on average.)",
        ("dense", "learned spans"),
        measure,
        (
            Statement(SPAN, "learned spans", "below", BUDGET.length / 4),
            Statement(GROWTH, "learned spans", "above", 0.0),
            Statement(BITS, "learned spans", "not above", "dense", 0.01),
        ),
        (
            Panel("loss", "step", "training nats per character"),
            Panel("spans", "layer", "mean span of the heads"),
            Panel("longest", "layer", "longest span"),
        ),
        record="sparse_patterns",
    ),
}
