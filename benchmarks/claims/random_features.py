"""Bias and variance of the random features of FAVOR+."""

from collections.abc import Callable
from pathlib import Path

import torch

from hfattn.models.attention_kernels import log_features, orthogonal_directions

from .claim import Claim, Measurement, Panel, Statement

WIDTH, FEATURES, DRAWS, PAIRS, TOKENS = 64, 64, 2000, 64, 256
OPPOSITE = -0.9  # x·y of the pairs that nearly cancel
COUNTS = (16, 64, 256, 1024, 4096)
SCALES = (0.25, 0.5, 0.75, 1.0)  # of queries and keys of unit variance

Directions = Callable[[int, int], torch.Tensor]


def independent(number: int, width: int) -> torch.Tensor:
    return torch.randn(number, width, dtype=torch.float64)


def orthogonal(number: int, width: int) -> torch.Tensor:
    return orthogonal_directions(number, width, torch.float64)


VARIANTS: dict[str, Directions] = {
    "orthogonal": orthogonal,
    "independent": independent,
    "independent, trigonometric": independent,
}


def pairs(cosine: float | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return unit vectors x and y (P, d), with random or given cosines."""
    x, y = torch.nn.functional.normalize(torch.randn(2, PAIRS, WIDTH, dtype=torch.float64), dim=-1)
    if cosine is not None:
        across = torch.nn.functional.normalize(y - (x * y).sum(-1, keepdim=True) * x, dim=-1)
        y = cosine * x + (1 - cosine**2) ** 0.5 * across
    return x, y


def estimates(variant: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return estimates (draws, P) of exp(x·y)."""
    found = []
    for _ in range(DRAWS):
        directions = VARIANTS[variant](FEATURES, WIDTH)
        if "trigonometric" in variant:  # Rahimi & Recht 2007: cos of the difference
            norms = (x.square().sum(-1) + y.square().sum(-1)) / 2
            found.append(norms.exp() * ((x - y) @ directions.T).cos().mean(-1))
        else:
            found.append((log_features(x, directions) + log_features(y, directions)).exp().mean(-1))
    return torch.stack(found)


def output_error(variant: str, scale: float, number: int) -> float:
    """Return ‖Y - Ŷ‖ / ‖Y‖ of attention with queries and keys from N(0, scale²), and values from N(0, 1)."""
    query, key, value = torch.randn(3, TOKENS, WIDTH, dtype=torch.float64)
    query, key = (tensor * scale * WIDTH**-0.25 for tensor in (query, key))
    exact = (query @ key.T).softmax(-1) @ value
    directions = VARIANTS[variant](number, WIDTH)
    logs = log_features(query, directions), log_features(key, directions)
    of_queries, of_keys = (each - each.max() for each in logs)  # factors that cancel
    weights = of_queries.exp() @ of_keys.exp().T
    return float((exact - weights / weights.sum(-1, keepdim=True) @ value).norm() / exact.norm())


def measure(variant: str, seed: int, data: Path) -> Measurement:
    torch.manual_seed(seed)
    x, y = pairs(None)
    exact, found = (x * y).sum(-1).exp(), estimates(variant, x, y)
    squares = (found - exact).square().mean(0)
    lemma = exact.square() * ((x + y).square().sum(-1).exp() - 1) / FEATURES
    values = {
        "relative bias": float((found / exact).mean() - 1),
        "relative MSE": float((squares / exact.square()).mean()),
        "MSE / lemma 2": float((squares / lemma).mean()),
    }
    x, y = pairs(OPPOSITE)
    exact = (x * y).sum(-1).exp()
    values["relative MSE at x·y = -0.9"] = float((estimates(variant, x, y) / exact - 1).square().mean())
    if "trigonometric" in variant:  # sums of these features may be zero or negative
        return Measurement(values)
    of_scales = [(scale, output_error(variant, scale, 256)) for scale in SCALES]
    values |= {f"error of the output, length × {scale:g}": error for scale, error in of_scales}
    curves = {
        "number": [(float(number), output_error(variant, 0.5, number)) for number in COUNTS],
        "scale": of_scales,
    }
    return Measurement(values, curves)


CLAIM = Claim(
    "Positive orthogonal features estimate the softmax kernel without bias, and with less variance than others",
    "Choromanski et al. 2021 (Performer), sections 2.3 and 2.4, lemmas 1 and 2",
    f"The features of the pattern `performer` for {PAIRS} pairs of random unit vectors x and y of width {WIDTH}, "
    f"m = {FEATURES}, {DRAWS:,} draws: bias and mean squared error (MSE) of the estimate of exp(x·y), divided by "
    "exp(x·y) or its square, and the MSE divided by that of lemma 2. Trigonometric features (Rahimi & Recht 2007) are "
    "the control. The error of the output, ‖Y - Ŷ‖ / ‖Y‖ for m = 256, is that of attention among "
    f"{TOKENS} tokens whose queries and keys have the variance 1, or vectors of a part of their length; the lemmas are "
    "about the kernel and do not bound it. The left chart is for half of the length.",
    tuple(VARIANTS),
    measure,
    (
        Statement("relative bias", "orthogonal", "equal to", 0.0, 0.01),
        Statement("relative bias", "independent", "equal to", 0.0, 0.01),
        Statement("MSE / lemma 2", "independent", "equal to", 1.0, 0.1),
        Statement("relative MSE", "orthogonal", "below", "independent"),
        Statement("relative MSE at x·y = -0.9", "independent", "below", "independent, trigonometric"),
        Statement("error of the output, length × 0.25", "orthogonal", "below", 0.1),
        Statement("error of the output, length × 1", "orthogonal", "below", 0.1),
    ),
    (
        Panel("number", "number of features m", "error of the output", log_x=True, log_y=True),
        Panel("scale", "length of queries and keys", "error of the output", log_y=True),
    ),
)
