"""The band of a score: the range in which a run must land, from the scores of runs with several seeds.

A band is mean ± 3 standard deviations over seeds. It is never open: an edge is only the best or worst possible score
if the seeds reach it, and then the reason is stated beside the band.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH = 3  # standard deviations on each side of the mean
FEWEST = 3  # seeds that a standard deviation is computed from
CPU_SHARE = 0.02  # of the mean: least half-width of a tiny variant, whose score differs between CPUs
_LOSSES = ("nats_", "bits_", "perplexity", "pseudo_perplexity", "loss", "mean_squared_error")
_CORRELATIONS = ("pearson", "spearman")
_OUT_OF_100 = ("bleu", "chrf")
_DIGITS = 4  # significant digits of the mean that the edges are rounded to, outward


def limits(metric: str) -> tuple[float, float]:
    """Return the lowest and the highest possible score of a metric such as ``metrics.test.bleu``."""
    name = metric.rpartition(".")[2]
    if name.startswith(_LOSSES):
        return 0.0, math.inf
    if name in _CORRELATIONS:
        return -1.0, 1.0
    return 0.0, 100.0 if name.startswith(_OUT_OF_100) else 1.0


def deviation(scores: Sequence[float]) -> float:
    """Return the sample standard deviation over seeds."""
    return statistics.stdev(scores)


def relative_deviation(scores: Sequence[float], metric: str) -> float:
    """Return the deviation over seeds as a share of the mean, to transfer it to another task.

    A perplexity is compared by its logarithm, so that the share is that of a loss in nats.
    """
    if _is_perplexity(metric):
        scores = [math.log(score) for score in scores]
    return deviation(scores) / statistics.mean(scores) if any(scores) else 0.0


def transferred_deviation(share: float, mean: float, metric: str) -> float:
    """Return the deviation of a score from that of another task as a share of its mean."""
    return share * mean * (math.log(mean) if _is_perplexity(metric) else 1.0)


def sampling_error(mean: float, metric: str, counts: Mapping[str, Any]) -> float:
    """Return the binomial standard error of a share, sqrt(p (1 - p) / n), and 0 for losses and BLEU.

    p is the mean after adding one right and one wrong example (Laplace's rule of succession), so that the error is
    about 1 / n where all examples are right. The error of a correlation r is (1 - r²) / sqrt(n - 1), that of many
    examples with a normal distribution.

    Args:
        mean: score, or mean over seeds.
        metric: its path.
        counts: the numbers beside the score in ``results.json``; n is the number of tokens of a token accuracy, that of
            images of a search by image, and the smallest of the whole numbers of any other share.
    """
    if limits(metric)[1] != 1.0:
        return 0.0
    score = metric.rpartition(".")[2]
    token_wise = score.startswith("token_")
    if score.startswith("recall_at_") and "texts" in counts:  # each image is a query, and the texts are the answers
        counts = {"examples": counts["examples"]}
    whole = [value for name, value in counts.items() if type(value) is int and (not token_wise or "tokens" in name)]
    whole = [value for value in whole if value > 1]  # a model that finds nothing has predicted 0
    if not whole:
        return 0.0
    n = min(whole)
    if metric.rpartition(".")[2] in _CORRELATIONS:
        return (1 - mean**2) / math.sqrt(n - 1)
    p = (mean * n + 1) / (n + 2)
    return math.sqrt(p * (1 - p) / n)


def band(scores: Sequence[float], metric: str, half: float) -> tuple[list[float], str | None]:
    """Return the edges of a band, and the reason if one of them is the best or the worst possible score.

    Args:
        scores: of one or several seeds.
        metric: path of the score.
        half: half of the width, around the mean.
    """
    mean = statistics.mean(scores)
    least, most = limits(metric)
    unit = 10.0 ** (math.floor(math.log10(mean)) + 1 - _DIGITS) if mean > 0 else 10.0**-_DIGITS
    low, high = (round(way((mean + sign * half) / unit) * unit, 9) for way, sign in ((math.floor, -1), (math.ceil, 1)))
    for edge, beyond in ((most, high >= most), (least, low <= least)):
        if beyond:
            what = f"every seed scores {edge:g}" if set(scores) == {edge} else f"the mean is {mean:.{_DIGITS}g}"
            return [max(low, least), min(high, most)], f"{what}, and three deviations reach beyond {edge:g}"
    return [low, high], None


def _is_perplexity(metric: str) -> bool:
    return metric.rpartition(".")[2].startswith("perplexity")
