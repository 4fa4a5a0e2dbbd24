"""Approximate features of a kernel, for the SVM."""

from typing import Any

import numpy as np

from ..extras import optional

KERNELS = ("linear", "rbf", "poly")


class KernelMap:
    """Features whose inner products approximate a kernel (Nyström method; Williams & Seeger 2000).

    φ(x) = K(L, L)^(-1/2) k(L, x), where L are landmarks, drawn from the training texts. With all of them as landmarks,
    φ(x)·φ(y) = k(x, y). A linear SVM on φ costs time and memory proportional to the number of texts, and is saved as m
    landmarks and weights. An exact kernel SVM (scikit-learn's SVC) needs at least quadratic time, and keeps its support
    vectors, most of the texts.

    Args:
        kernel: "rbf", exp(-γ ‖x - y‖²), or "poly", (γ x·y + 1)^degree.
        gamma: γ.
        degree: degree of "poly".
        landmarks: highest number of landmarks m.

    Attributes:
        components: (m, F) landmarks, sparse for counts.
        normalization: (m, m) K(L, L)^(-1/2).
    """

    def __init__(self, kernel: str, gamma: float, degree: int, landmarks: int) -> None:
        self.options: dict[str, Any] = {"gamma": gamma, "degree": degree, "coef0": 1.0}
        self.kernel, self.landmarks = kernel, landmarks
        self.components: Any = np.zeros((0, 0))
        self.normalization = np.zeros((0, 0))

    def fit(self, inputs: Any, seed: int) -> "KernelMap":
        """Draw landmarks from the features (n, F) of the training texts."""
        fitted = optional("baselines", "sklearn.kernel_approximation").Nystroem(
            kernel=self.kernel, n_components=min(self.landmarks, inputs.shape[0]), random_state=seed, **self.options
        )
        fitted.fit(inputs.astype(np.float64))  # float32 is too coarse for a nearly singular K(L, L)
        self.components, self.normalization = fitted.components_, fitted.normalization_
        return self

    def transform(self, inputs: Any) -> np.ndarray:
        """Return φ (n, m) of features (n, F)."""
        pairwise = optional("baselines", "sklearn.metrics.pairwise")
        options = {"metric": self.kernel, "filter_params": True, **self.options}
        return pairwise.pairwise_kernels(inputs.astype(np.float64), self.components, **options) @ self.normalization.T

    # Saving

    def tensors(self) -> dict[str, np.ndarray]:
        """Return what was fitted as arrays; the landmarks as those of a sparse matrix (CSR)."""
        rows = optional("baselines", "scipy.sparse").csr_array(self.components)
        return {
            "landmarks.data": rows.data,
            "landmarks.indices": rows.indices,
            "landmarks.indptr": rows.indptr,
            "normalization": self.normalization,
        }

    def load(self, tensors: dict[str, np.ndarray], width: int, sparse: bool) -> None:
        """Take the arrays that ``tensors`` returned; the landmarks have the width F."""
        parts = tuple(tensors[f"landmarks.{name}"] for name in ("data", "indices", "indptr"))
        shape = (len(parts[2]) - 1, width)
        rows = optional("baselines", "scipy.sparse").csr_array(parts, shape=shape)
        self.components, self.normalization = rows if sparse else rows.toarray(), tensors["normalization"]
