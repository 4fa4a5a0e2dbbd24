"""How far a score may be from the recorded one: the rule of ``hfattn verify --measure`` and of ``hfattn reproduce``.

- The same weights on the recorded versions and kind of device: half of the last digit that cards show (of a large
  perplexity, 0.001%).
- The same weights elsewhere, where rounding changes a few predictions: 0.005 + 1 / n for shares and correlations of n
  examples, 0.5 + 100 / n for BLEU and chrF, 2% for losses.
- Other weights, the first that is known: three standard deviations over the recorded seeds of the configuration (of
  the sampling error, if that is larger); half of the width of its band; half of the width of the 95% interval of the
  score; 2% of the score. It is at least that of the same weights elsewhere.

Seeds and bands are those of the installed ``*.expected.json``, and intervals are computed from the scores that were
measured again, so that a record cannot widen its own tolerance.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..hub.consistency import LIMITS
from ..resources import recipe_folders, resource
from .bands import CPU_SHARE, FEWEST, WIDTH, deviation, limits, sampling_error
from .expected import GROUPS, SUFFIX, FinishedRun, is_clock, is_tiny, read_expected, runs_like

SHOWN = 0.00005 + 1e-9  # half of the last digit that cards show
_SHOWN_OF_100 = 0.005
_SHOWN_LOSS = 1e-5  # of a large perplexity, cards show as many digits
_ROUNDED, _ROUNDED_LOSS = 0.005, 0.02
_QUANTILE = 1.959964  # of a 95% interval


@dataclass(frozen=True)
class Tolerance:
    """The largest difference of a score from the recorded one, and where it comes from."""

    width: float
    source: str


def numbers(scores: Mapping[str, Any], *path: str) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield each number with its path, without durations; the items of a list are numbered."""
    for name, value in scores.items():
        if isinstance(value, list):
            value = {str(i): each for i, each in enumerate(value)}
        if isinstance(value, Mapping):
            yield from numbers(value, *path, name)
        elif type(value) in (int, float) and not is_clock(name):
            yield (*path, name), value


def is_of_a_whole_part(path: Sequence[str]) -> bool:
    """Return whether a path within ``metrics`` names a score of a whole part, and not a count or that of a slice."""
    inside = any(step.isdecimal() or "_by_" in step or step.startswith("by_") or step in GROUPS for step in path)
    return not inside and any(pattern.fullmatch(path[-1]) for pattern, *_ in LIMITS)


def tolerance_of_rounding(path: Sequence[str], now: float, beside: Mapping[str, Any], same: bool) -> Tolerance | None:
    """Return the tolerance of a score that the same weights have computed again; None if it is not compared.

    Args:
        path: path of the score within ``metrics``.
        now: the score that was measured again.
        beside: the scores beside it, with the number of examples.
        same: whether versions and kind of device are those of the record.
    """
    name = next(step for step in reversed(path) if not step.isdecimal()).removesuffix("_interval")
    highest = limits(name)[1]
    if same:
        width = _SHOWN_OF_100 if highest == 100 else SHOWN
        return Tolerance(max(width, _SHOWN_LOSS * abs(now)) if math.isinf(highest) else width, "the shown digits")
    if not is_of_a_whole_part(path):
        return None
    if math.isinf(highest):
        return Tolerance(_ROUNDED_LOSS * max(abs(now), 0.01), "rounding")
    counts = [value for value in beside.values() if type(value) is int and value > 0]
    return Tolerance((_ROUNDED + 1 / min(counts, default=math.inf)) * (100 if highest == 100 else 1), "rounding")


class SeedTolerances:
    """The tolerances of the scores of weights that were trained again.

    Args:
        run: the recorded run.
        schema: the ``Config`` of its recipe.

    Raises:
        UserError: the recipe has no field that the command of the run overrides.
    """

    def __init__(self, run: FinishedRun, schema: type[Any]) -> None:
        self._name = run.name
        self._seeds: list[Mapping[str, Any]] = []
        self._own: tuple[str, Tolerance] | None = None  # of the score that the configuration is judged by
        config = resource("recipes", f"{run.name}.yaml")
        path = config.with_name(config.stem + SUFFIX)
        known = run.results["recipe"] in [folder.name for folder in recipe_folders()]
        if not (known and config.is_file() and path.is_file()):
            return
        expected = read_expected(path)
        if is_tiny(run, expected):
            scores, metric = expected.tiny.scores, expected.tiny.metric or expected.metric
            if len(scores) >= FEWEST:
                half = max(WIDTH * deviation(scores), CPU_SHARE * sum(scores) / len(scores))
                self._own = metric, Tolerance(half, f"the band of the tiny variant of {run.name}, {len(scores)} seeds")
            return
        runs = runs_like(run, expected, schema, config)
        self._seeds = [each.metrics for each in runs] if len(runs) >= FEWEST else []
        if runs and (band := expected.full.band) is not None:
            self._own = expected.metric, Tolerance((band[1] - band[0]) / 2, f"the band of {run.name}")

    def of(self, path: Sequence[str], now: float, beside: Mapping[str, Any]) -> Tolerance:
        """Return the tolerance of a score of a whole part; the arguments are those of ``tolerance_of_rounding``."""
        rounding = tolerance_of_rounding(path, now, beside, same=False)
        spread = self._spread(path, now, beside)
        # Seeds that all score 1 have no deviation, and a computer with other rounding still differs by an example.
        return spread if rounding is None or spread.width >= rounding.width else rounding

    def _spread(self, path: Sequence[str], now: float, beside: Mapping[str, Any]) -> Tolerance:
        metric = ".".join(("metrics", *path))
        error = sampling_error(now, metric, beside)
        of_seeds = [score for scores in self._seeds if (score := _at(scores, path)) is not None]
        if len(of_seeds) >= FEWEST:
            width = WIDTH * max(deviation(of_seeds), error)
            return Tolerance(width, f"{WIDTH} deviations, {len(of_seeds)} seeds of {self._name}")
        if self._own is not None and self._own[0] == metric:
            return self._own[1]
        stated = beside.get(f"{path[-1]}_interval")
        if stated is not None:
            return Tolerance((stated[1] - stated[0]) / 2, "its 95% interval")
        if error > 0:
            return Tolerance(_QUANTILE * error, "its 95% interval")
        return Tolerance(CPU_SHARE * abs(now), f"{CPU_SHARE:.0%} of the score")


def _at(scores: Mapping[str, Any], path: Sequence[str]) -> float | None:
    value: Any = scores
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if type(value) in (int, float) else None
