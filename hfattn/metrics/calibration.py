"""Calibration of classifiers: temperature scaling, expected calibration error and Brier score."""

import math
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar

BINS = 15
TEMPERATURES = (0.1, 10.0)  # beyond these, a small or nearly perfect validation part is fitted too closely


def fitted_temperature(logits: torch.Tensor, right: np.ndarray) -> float:
    """Return the temperature T for which softmax(z / T) has the lowest negative log-likelihood.

    Temperature scaling (Guo et al. 2017, section 4.2). Fit it on texts that are not reported. It changes the
    probabilities and not the predicted classes.

    Args:
        logits: (n, C), or (n, 1) of a single sigmoid.
        right: (n,) correct classes.

    Returns:
        T, within ``TEMPERATURES``; 1 if all predictions are correct, because the likelihood then grows as T goes to 0.
    """
    wide, targets = _both(logits), torch.as_tensor(right)
    if bool((wide.argmax(-1) == targets).all()):
        return 1.0

    def nats(log_temperature: float) -> float:
        return float(torch.nn.functional.cross_entropy(wide / math.exp(log_temperature), targets))

    # The likelihood has one maximum in 1/T, of which log T is a monotonic function.
    low, high = map(math.log, TEMPERATURES)
    return math.exp(minimize_scalar(nats, bounds=(low, high), method="bounded", options={"xatol": 1e-6}).x)


def calibration_scores(logits: torch.Tensor, right: np.ndarray) -> dict[str, Any]:
    """Return how well the probabilities of a classifier agree with how often it is right.

    The n texts are put into M = 15 bins of equal width by the probability of the predicted class: bin m has those in
    ((m - 1) / M, m / M]. The expected calibration error is the sum over the bins of |B_m| / n times the absolute
    difference of accuracy and mean probability in B_m (Guo et al. 2017, equation 3).

    Args:
        logits: (n, C), or (n, 1) of a single sigmoid.
        right: (n,) correct classes.

    Returns:
        ``calibration_error``, from 0 to 1; ``brier``, the mean over the texts of the sum over the classes of the
        squared difference between probability and 1 or 0 (Brier 1950), from 0 to 2; ``nats_per_example``; and ``bins``,
        of those that are not empty, with ``from``, ``to``, ``texts``, ``confidence`` (mean) and ``accuracy``.
    """
    wide = _both(logits)
    probabilities = wide.softmax(-1).numpy()
    confidence, hits = probabilities.max(-1), probabilities.argmax(-1) == right
    numbers = np.clip(np.ceil(confidence * BINS).astype(int), 1, BINS)
    bins = [
        {
            "from": (number - 1) / BINS,
            "to": number / BINS,
            "texts": int(inside.sum()),
            "confidence": float(confidence[inside].mean()),
            "accuracy": float(hits[inside].mean()),
        }
        for number in range(1, BINS + 1)
        if (inside := numbers == number).any()
    ]
    gaps = (each["texts"] / len(right) * abs(each["accuracy"] - each["confidence"]) for each in bins)
    targets = np.eye(wide.shape[-1])[right]
    return {
        "calibration_error": float(sum(gaps)),
        "brier": float(((probabilities - targets) ** 2).sum(-1).mean()),
        "nats_per_example": float(torch.nn.functional.cross_entropy(wide, torch.as_tensor(right))),
        "bins": bins,
    }


def _both(logits: torch.Tensor) -> torch.Tensor:
    """Return log-probabilities (n, C) in float64 up to a constant; those of a single sigmoid as of two classes."""
    logits = logits.double()
    return torch.cat([torch.zeros_like(logits), logits], dim=-1) if logits.shape[-1] == 1 else logits
