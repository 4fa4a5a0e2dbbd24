"""Scores that are distances or kernels of distances, and a distribution that depends on a distance.

Scores that would lose too much precision in half precision are computed and returned in float32.

Shapes: ``…`` any batch dimensions, which broadcast; T queries, S keys. Energies and weights are (…, T, S).
"""

import math
from collections.abc import Mapping

import torch
from torch import nn
from transformers import initialization as init

from .attention_distributions import Distribution, zero_masked
from .attention_scores import InnerProduct, Score
from .score_kernels import broadcast, full_precision, widen
from .strict_config import by_name


def _distance(query: torch.Tensor, key: torch.Tensor, p: float) -> torch.Tensor:
    """Return ‖q - k‖_p of all pairs, (…, T, S), from differences; for equal vectors, distance and gradient are 0."""
    query, key = widen(query), widen(key)
    batch = broadcast(query.shape[:-2], key.shape[:-2])
    with full_precision(query):
        return torch.cdist(
            query.expand(*batch, -1, -1),
            key.expand(*batch, -1, -1),
            p=p,
            compute_mode="donot_use_mm_for_euclid_dist",
        )


class SqEuclidean(InnerProduct):
    """-‖q - k‖², in float32 at least.

    ``compare`` computes it from differences. The fused kernels compute products of vectors relative to the mean of the
    keys, and therefore round ‖k - mean‖²: for keys that are 10³ kernel widths apart, they need float64.
    """

    one_width = True
    precise = True
    s: float = math.sqrt(0.5)

    def prepare(self, key: torch.Tensor) -> torch.Tensor:
        return widen(key)

    def factors(self, query: torch.Tensor, prepared: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """q' = [q, -½] / s² and k' = [k, ‖k‖²], of width d + 1: q'·k' is the energy plus ‖q‖² / (2 s²)."""
        # Distances and their gradients do not depend on the origin. The mean is not part of ``prepare``, because a
        # decoder prepares its keys one by one.
        origin = prepared.detach().sum(-2, keepdim=True) / max(1, prepared.shape[-2])
        query, key = widen(query) - origin, prepared - origin
        right = torch.cat([key, key.square().sum(-1, keepdim=True)], dim=-1)
        return nn.functional.pad(query, (0, 1), value=-0.5) / self.s**2, right

    def compare(self, query: torch.Tensor, prepared: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return -_distance(query, prepared, 2.0).square() / (2 * self.s**2)


class Gaussian(SqEuclidean):
    """-‖q - k‖² / (2 s²), the logarithm of a Gaussian kernel: with softmax, the weights are those of Nadaraya-Watson.

    Args:
        s: width of the kernel, above 0.
    """

    def __init__(self, query_size: int, key_size: int, *, s: float = 1.0) -> None:
        super().__init__(query_size, key_size)
        if not isinstance(s, int | float) or not s > 0:
            raise ValueError(f"s is {s!r}; write a width above 0.")
        self.s = s


class Boxcar(Score):
    """½ if ‖q - k‖ ≤ 1, else 0: the uniform kernel. It has no gradient, and its Gram matrices may be indefinite.

    With the distribution ``normalize`` it is a kernel, K / Σ K; with any other distribution, it is a score.
    """

    one_width = True

    def compare(self, query: torch.Tensor, prepared: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        with torch.no_grad():
            return 0.5 * (_distance(query, prepared, 2.0) <= 1).to(query.dtype)


class Minkowski(Score):
    """-(Σ |q_i - k_i|^p)^(1/p).

    Args:
        p: order of the norm, at least 1; infinity is the largest difference.
    """

    one_width = True

    def __init__(self, query_size: int, key_size: int, *, p: float = 2.0) -> None:
        super().__init__(query_size, key_size)
        if not isinstance(p, int | float) or not p >= 1:
            raise ValueError(f"p is {p!r}; below 1 it makes no distance: write a number of at least 1, or infinity.")
        self.p = float(p)

    def compare(self, query: torch.Tensor, prepared: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return -_distance(query, prepared, self.p)


class Euclidean(Minkowski):
    """-‖q - k‖."""

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__(query_size, key_size, p=2.0)


class Manhattan(Minkowski):
    """-Σ |q_i - k_i|."""

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__(query_size, key_size, p=1.0)


class Chebyshev(Minkowski):
    """-max |q_i - k_i|."""

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__(query_size, key_size, p=math.inf)


class StandardizedEuclidean(Euclidean):
    """-√(Σ (q_i - k_i)² / s_i²). Parameter: s (d), the deviation of each feature."""

    s: torch.Tensor

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__(query_size, key_size)
        self._parameter("s", key_size)
        self.initialize_()

    def prepare(self, key: torch.Tensor) -> torch.Tensor:
        return widen(key) / self.s

    def compare(self, query: torch.Tensor, prepared: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return super().compare(widen(query) / self.s, prepared)


class Mahalanobis(Euclidean):
    """-√((q - k)ᵀ Σ⁻¹ (q - k)). Parameter: W (d, d) with WᵀW = Σ⁻¹, so that it remains a distance during training.

    ``attend(..., parameters={"Sigma": matrix})`` accepts the covariance matrix instead of W.
    """

    W: torch.Tensor

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__(query_size, key_size)
        self._parameter("W", key_size, key_size)
        self.initialize_()

    def initialize_(self) -> None:
        init.eye_(self.W)

    def substitute(self, parameters: Mapping[str, torch.Tensor]) -> None:
        parameters = dict(parameters)
        if "Sigma" in parameters:
            if "W" in parameters:
                raise ValueError("W and Sigma both define the covariance; pass one of them.")
            sigma = widen(parameters.pop("Sigma"))
            if sigma.shape != self.W.shape:
                raise ValueError(
                    f"Sigma has the shape {tuple(sigma.shape)}; pass a covariance of the shape {tuple(self.W.shape)}."
                )
            factor, failed = torch.linalg.cholesky_ex(sigma)
            if failed or not torch.allclose(sigma, sigma.T, rtol=1e-3):
                raise ValueError(
                    "Sigma is not symmetric and positive definite; pass a covariance that is, for example by adding a "
                    "small multiple of the identity matrix."
                )
            identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
            parameters["W"] = torch.linalg.solve_triangular(factor, identity, upper=False)
        super().substitute(parameters)

    def prepare(self, key: torch.Tensor) -> torch.Tensor:
        return self._map(key)

    def compare(self, query: torch.Tensor, prepared: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return super().compare(self._map(query), prepared)

    def _map(self, vectors: torch.Tensor) -> torch.Tensor:
        with full_precision(vectors):
            return nn.functional.linear(widen(vectors), widen(self.W))


DISSIMILARITIES: dict[str, type[Score]] = {
    "manhattan": Manhattan,
    "euclidean": Euclidean,
    "sq_euclidean": SqEuclidean,
    "chebyshev": Chebyshev,
}


class Compositional(Distribution):
    """tanh(E) ⊙ sigmoid(N), weights in (-1, 1), where N is a negated dissimilarity (Tay et al. 2019).

    If queries and keys differ in width, a learned P (d_k, d_q) maps the queries.

    Args:
        dissimilarity: name of a score that is a negated distance: "manhattan" (the default), "euclidean",
            "sq_euclidean" or "chebyshev".
    """

    compares_vectors = True
    P: torch.Tensor

    def __init__(self, query_size: int, key_size: int, *, dissimilarity: str = "manhattan") -> None:
        super().__init__()
        self.projects = query_size != key_size
        if self.projects:
            self._parameter("P", key_size, query_size)
        self.dissimilarity = by_name(DISSIMILARITIES, dissimilarity, "a dissimilarity")(key_size, key_size)
        self.initialize_()

    @property
    def prepared_width(self) -> int:
        return self.dissimilarity.key_size

    def prepare(self, key: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (self.dissimilarity(key, method="prepare"),)

    def forward(
        self,
        energies: torch.Tensor,
        mask: torch.Tensor | None = None,
        query: torch.Tensor | None = None,
        prepared: tuple[torch.Tensor, ...] = (),
    ) -> torch.Tensor:
        if query is None or not prepared:
            raise ValueError("The distribution 'compositional' compares vectors; pass query and prepared=prepare(key).")
        if self.projects:
            query = nn.functional.linear(query, self.P)
        similarity = self.dissimilarity(query, prepared[0], method="compare")
        energies, similarity = zero_masked(energies, mask), zero_masked(similarity, mask)
        return energies.tanh() * similarity.sigmoid().to(energies.dtype)


__all__ = [
    "Boxcar",
    "Chebyshev",
    "Compositional",
    "Euclidean",
    "Gaussian",
    "Mahalanobis",
    "Manhattan",
    "Minkowski",
    "SqEuclidean",
    "StandardizedEuclidean",
]
