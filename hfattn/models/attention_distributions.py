"""Distribution functions g(e), which turn the energies of a query into the weights of its values.

Every distribution gives a weight of exactly 0 to a masked key, and to every key if the query may not attend to any key.
Neither weights nor gradients are NaN in these cases.

Shapes: ``…`` any batch dimensions, T queries, S keys. Energies, masks (boolean, True = may be attended, broadcast) and
weights are (…, T, S).
"""

from typing import Any, ClassVar

import torch

from .attention_scores import Parametric
from .score_kernels import widen


def _fill(energies: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Set masked energies to the lowest finite number: minus infinity gives NaN in a row that is masked entirely."""
    return energies if mask is None else torch.where(mask, energies, torch.finfo(energies.dtype).min)


def zero_masked(weights: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Set masked weights to exactly 0."""
    return weights if mask is None else torch.where(mask, weights, 0)


def _softmax(energies: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    return zero_masked(_fill(energies, mask).softmax(-1), mask)


class Distribution(Parametric):
    """A distribution function g. Masked positions, and rows that are masked entirely, get exact zeros.

    A subclass defines ``weigh``. A subclass that also needs queries and keys sets ``compares_vectors`` and defines
    ``prepare``, ``prepared_width`` and ``forward`` instead, as ``Compositional`` does.
    """

    compares_vectors: ClassVar[bool] = False  # constructed with query_size and key_size, called with query and prepared

    @property
    def prepared_width(self) -> int:
        """Sum of the widths of the tensors that ``prepare`` returns."""
        return 0

    def prepare(self, key: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return tensors (…, S, some width) that depend only on the keys (…, S, d_k), computed once per source."""
        return ()

    def weigh(self, energies: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Return weights (…, T, S) of energies (…, T, S); ``mask`` is boolean, broadcastable to them, or None."""
        raise NotImplementedError

    def forward(
        self,
        energies: torch.Tensor,
        mask: torch.Tensor | None = None,
        query: torch.Tensor | None = None,
        prepared: tuple[torch.Tensor, ...] = (),
    ) -> torch.Tensor:
        """Return weights (…, T, S). ``query`` (…, T, d_q) and ``prepared`` are used only if ``compares_vectors``."""
        return self.weigh(energies, mask)


class Softmax(Distribution):
    """exp(e_i) / Σ exp(e_j)."""

    def weigh(self, energies: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        return _softmax(energies, mask)


class Sigmoid(Distribution):
    """1 / (1 + exp(-e_i)), independently for each position: the weights of a row do not sum to one."""

    def weigh(self, energies: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        return zero_masked(_fill(energies, mask).sigmoid(), mask)


def _threshold_sparsemax(z: torch.Tensor) -> torch.Tensor:
    """τ with Σ max(z - τ, 0) = 1, from the partial sums of the sorted z (Martins & Astudillo 2016, algorithm 1)."""
    z = z.sort(-1, descending=True).values
    count = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)
    thresholds = (z.cumsum(-1) - 1) / count
    size = (z > thresholds).sum(-1, keepdim=True).clamp(min=1)  # 0 where energies are not finite
    return thresholds.gather(-1, size - 1)


def _threshold_entmax15(z: torch.Tensor) -> torch.Tensor:
    """τ with Σ max(z - τ, 0)² = 1: for the k largest z it is the smaller root of k τ² - 2 τ Σ z + Σ z² - 1, which is
    mean - √((1 - Σ (z - mean)²) / k) (Peters et al. 2019)."""
    z = z.sort(-1, descending=True).values
    count = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)
    mean = z.cumsum(-1) / count
    spread = z.square().cumsum(-1) - count * mean.square()  # Σ (z - mean)²
    thresholds = mean - ((1 - spread).clamp(min=0) / count).sqrt()
    size = (z >= thresholds).sum(-1, keepdim=True).clamp(min=1)  # 0 where energies are not finite
    return thresholds.gather(-1, size - 1)


def _threshold_bisection(z: torch.Tensor, alpha: float) -> torch.Tensor:
    """τ with Σ max(z - τ, 0)^(1 / (α - 1)) = 1, for z with the largest at 0: it lies in [-1, 0)."""
    low = torch.full_like(z[..., :1], -1.0)
    width = torch.ones_like(low)
    for _ in range(24 if z.dtype == torch.float32 else 54):  # the bits of the number
        width = width / 2
        total = (z - low - width).clamp(min=0).pow(1 / (alpha - 1)).sum(-1, keepdim=True)
        low = torch.where(total >= 1, low + width, low)
    return low


class _Entmax(torch.autograd.Function):
    """α-entmax along the last dimension: p = max((α - 1) e - τ, 0)^(1 / (α - 1)), τ such that Σ p = 1.

    Its Jacobian is diag(u) - u uᵀ / Σ u with u = p^(2 - α) on the support of p and 0 elsewhere (Peters et al.
    2019); for α = 2, where u is 1, the gradient on the support is centered.
    """

    @staticmethod
    def forward(ctx: Any, energies: torch.Tensor, mask: torch.Tensor | None, alpha: float) -> torch.Tensor:
        z = _fill(widen(energies), mask)
        z = (alpha - 1) * (z - z.amax(-1, keepdim=True))
        z = z.clamp(min=-1)  # τ is never below -1, so the weights of smaller z are 0
        if alpha == 2:
            threshold = _threshold_sparsemax(z)
        elif alpha == 1.5:
            threshold = _threshold_entmax15(z)
        else:
            threshold = _threshold_bisection(z, alpha)
        weights = (z - threshold).clamp(min=0).pow(1 / (alpha - 1))
        weights = zero_masked(weights / weights.sum(-1, keepdim=True), mask).to(energies.dtype)
        ctx.save_for_backward(weights)
        ctx.alpha = alpha
        return weights

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (weights,) = ctx.saved_tensors
        support = weights > 0
        # Outside the support, a weight is 0, or NaN, which must be propagated to the gradient, as softmax does.
        u = torch.where(support, torch.where(support, widen(weights), 1).pow(2 - ctx.alpha), widen(weights))
        total = u.sum(-1, keepdim=True)  # zero in a row that is masked entirely
        gradient = widen(gradient)
        mean = (u * gradient).sum(-1, keepdim=True) / torch.where(total > 0, total, 1)
        return (u * (gradient - mean)).to(weights.dtype), None, None


class Entmax(Distribution):
    """argmax over the simplex of p·e + H_α(p), H_α Tsallis' entropy (Peters et al. 2019). Weights can be exactly 0.

    Args:
        alpha: 1 is softmax and 2 is sparsemax; these and 1.5 (the default) are computed exactly, other numbers above 1
            by bisection.
    """

    def __init__(self, *, alpha: float = 1.5) -> None:
        super().__init__()
        if not isinstance(alpha, int | float) or not alpha >= 1:
            raise ValueError(f"alpha is {alpha!r}; write 1 (softmax), 2 (sparsemax) or another number above 1.")
        self.alpha = alpha

    def weigh(self, energies: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        if self.alpha == 1 or not energies.shape[-1]:  # there are no keys to sort
            return _softmax(energies, mask)
        return _Entmax.apply(energies, mask, self.alpha)


class Sparsemax(Entmax):
    """The point of the simplex nearest to e: max(e - τ, 0) (Martins & Astudillo 2016)."""

    def __init__(self) -> None:
        super().__init__(alpha=2.0)


def hard_sample(
    energies: torch.Tensor,
    mask: torch.Tensor | None = None,
    generator: torch.Generator | None = None,
    greedy: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw one position per query from softmax(e) (Xu et al. 2015, section 4.1); ``greedy`` takes the likeliest.

    Returns:
        One-hot weights (…, T, S), without a gradient, and the log-probability (…, T) of the drawn positions, with a
        gradient. The score-function estimator of the gradient of E[loss] is the gradient of ``loss.detach() *
        log_prob``. For a row that is masked entirely, no position is drawn; its weights and its log-probability are 0.
    """
    if not energies.shape[-1]:
        return energies.detach(), widen(energies).sum(-1)
    log_p = _fill(widen(energies), mask).log_softmax(-1)
    order = log_p.detach()
    if not greedy:
        # The smallest of independent exponential variables with rates p is that of position i with probability p_i.
        # No variable may be zero; otherwise a masked position could be selected.
        clocks = torch.empty_like(order).exponential_(generator=generator)
        order = order - clocks.clamp_(min=torch.finfo(clocks.dtype).tiny).log()
    index = order.argmax(-1, keepdim=True)
    weights = torch.zeros_like(energies).scatter_(-1, index, 1)
    log_prob = log_p.gather(-1, index).squeeze(-1)
    if mask is not None:
        weights, log_prob = zero_masked(weights, mask), zero_masked(log_prob, mask.any(-1))
    return weights, log_prob


def score_function(loss: torch.Tensor, log_prob: torch.Tensor, baseline: torch.Tensor | float = 0.0) -> torch.Tensor:
    """Return the same loss with a gradient that includes the effect of the sampled positions (Williams 1992).

    Args:
        loss: loss of each example or each query, in a shape that broadcasts with ``log_prob``.
        log_prob: log-probability of the sampled positions.
        baseline: value subtracted from the loss, such as its running mean. It changes the variance of the gradient, not
            its mean.
    """
    advantage = (loss - baseline).detach()
    return loss + advantage * (log_prob - log_prob.detach())


class Hard(Distribution):
    """One position per query: drawn from softmax(e) in training, the one with the largest energy in evaluation.

    Args:
        estimator: "straight_through" (the default) passes gradients as if the weights were softmax(e) (Bengio et al.
            2013); "score_function" passes no gradients: use ``hard_sample`` or ``HardAttention``, which return the
            log-probability that this estimator needs.
    """

    ESTIMATORS = ("straight_through", "score_function")

    def __init__(self, *, estimator: str = "straight_through") -> None:
        super().__init__()
        if estimator not in self.ESTIMATORS:
            raise ValueError(
                f"{estimator!r} is not an estimator; write one of {', '.join(map(repr, self.ESTIMATORS))}."
            )
        self.estimator = estimator

    def weigh(self, energies: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        weights, _ = hard_sample(energies, mask, greedy=not self.training)
        if self.estimator == "score_function" or not self.training:
            return weights
        soft = _softmax(energies, mask)
        return weights + (soft - soft.detach())


class Normalize(Distribution):
    """e_i / Σ e_j, for scores that are not negative, such as ``boxcar`` and ``generalized_kernel``.

    If all energies of a row are zero (no key in the window), its weights are zero.
    """

    def weigh(self, energies: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        energies = zero_masked(energies, mask)
        total = widen(energies).sum(-1, keepdim=True)
        positive = total > 0
        weights = energies / torch.where(positive, total, 1)
        return torch.where(positive, weights, 0).to(energies.dtype)


DISTRIBUTIONS: dict[str, type[Distribution]] = {
    "softmax": Softmax,
    "sigmoid": Sigmoid,
    "sparsemax": Sparsemax,
    "entmax": Entmax,
    "hard": Hard,
    "normalize": Normalize,
}

# Distributions defined in another file, which is saved only with models whose configuration uses one of them.
MORE_DISTRIBUTIONS = {"compositional": "attention_distances.Compositional"}

__all__ = [
    "DISTRIBUTIONS",
    "Distribution",
    "Entmax",
    "Hard",
    "Normalize",
    "Sigmoid",
    "Softmax",
    "Sparsemax",
    "hard_sample",
    "score_function",
]
