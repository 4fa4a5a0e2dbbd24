"""A claim, its records, and the verdict of a statement about two variants."""

import json
import math
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).parent / "records"
CONFIDENCE = 0.95
# A difference (left - right) for which a statement holds lies between these bounds; t is the tolerance.
RELATIONS: dict[str, Callable[[float], tuple[float, float]]] = {
    "above": lambda t: (0.0, math.inf),
    "below": lambda t: (-math.inf, 0.0),
    "not below": lambda t: (-t, math.inf),
    "not above": lambda t: (-math.inf, t),
    "equal to": lambda t: (-t, t),
}


@dataclass(frozen=True)
class Statement:
    """What a claim says of one value.

    Attributes:
        value: name of the measured value.
        left: a variant.
        relation: a name of ``RELATIONS``.
        right: another variant, or a constant.
        tolerance: differences up to this one count as equal, for "not below", "not above" and "equal to".
    """

    value: str
    left: str
    relation: str
    right: str | float
    tolerance: float = 0.0

    def __str__(self) -> str:
        within = f", within {self.tolerance:g}" if self.tolerance else ""
        return f"{self.value}: {self.left} {self.relation} {self.right}{within}"


@dataclass(frozen=True)
class Panel:
    """A panel of the chart: one curve for each variant, the mean over seeds with the range as a band."""

    curve: str
    x: str
    y: str
    log_x: bool = False
    log_y: bool = False


@dataclass
class Measurement:
    """What one variant gave with one seed.

    Attributes:
        values: numbers by name.
        curves: points (x, y) by the name of the curve.
        steps: number of training steps.
    """

    values: dict[str, float]
    curves: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    steps: int = 0


@dataclass(frozen=True)
class Claim:
    """A claim and the runs that test it.

    Attributes:
        title: the statement, in one line.
        source: paper and section.
        setting: model, data and budget, and what the setting cannot show.
        variants: names of the variants.
        measure: function of variant, seed, and the folder of the data; None if a benchmark measures.
        statements: what the claim says of the values.
        panels: panels of the chart.
        record: name of the record, for claims that share runs; by default the name of the claim.
        benchmark: the benchmark that measures, whose rounds take the place of seeds.
        from_benchmark: returns the entries that its record gives.
    """

    title: str
    source: str
    setting: str
    variants: tuple[str, ...]
    measure: Callable[[str, int, Path], Measurement] | None
    statements: tuple[Statement, ...]
    panels: tuple[Panel, ...]
    record: str = ""
    benchmark: str = ""
    from_benchmark: Callable[[], list[dict[str, Any]]] | None = None


@dataclass(frozen=True)
class Sample:
    """Mean and standard deviation of a value over a number of seeds."""

    mean: float
    deviation: float
    number: int

    def __str__(self) -> str:
        if self.mean >= 1000:  # a count
            return f"{self.mean:,.0f}"
        return f"{self.mean:.4g}" + (f" ± {self.deviation:.3g}" if self.number > 1 else "")


def sample(values: list[float]) -> Sample:
    return Sample(statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0, len(values))


def read(name: str, records: Path = RECORDS) -> list[dict[str, Any]]:
    """Return the entries of a record: measurements with a seed, or summaries of several seeds."""
    path = records / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else []


def entries_of(name: str, claim: Claim, records: Path = RECORDS) -> list[dict[str, Any]]:
    """Return the entries of the variants of a claim, from its record or from that of a benchmark."""
    found = claim.from_benchmark() if claim.from_benchmark else read(claim.record or name, records)
    return [each for each in found if each["variant"] in claim.variants]


def keep(name: str, variant: str, seed: int, measurement: Measurement, facts: dict[str, Any], records: Path) -> None:
    """Add a measurement to a record. It replaces a summary of the variant, whose runs are older."""
    entries = [each for each in read(name, records) if each["variant"] != variant or each.get("seed", seed) != seed]
    entries.append({"variant": variant, "seed": seed, **_rounded(asdict(measurement)), **facts})
    text = ",\n".join(json.dumps(each, ensure_ascii=False) for each in entries)  # one line for each measurement
    (records / f"{name}.json").write_text(f"[\n{text}\n]\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def samples(entries: list[dict[str, Any]], variant: str) -> dict[str, Sample]:
    """Return the values of a variant over its seeds.

    A summary, of runs whose single values were not kept, has [mean, standard deviation] for each value.
    """
    of_variant = [each for each in entries if each["variant"] == variant]
    measured = [each["values"] for each in of_variant if "seed" in each]
    if measured:  # a value may be measured with some of the seeds only
        names = dict.fromkeys(name for values in measured for name in values)
        return {name: sample([values[name] for values in measured if name in values]) for name in names}
    for each in of_variant:
        return {name: Sample(mean, spread, each["seeds"]) for name, (mean, spread) in each["values"].items()}
    return {}


def is_measured(claim: Claim, entries: list[dict[str, Any]]) -> bool:
    """Return whether each variant has two runs or more; the page shows only such claims."""
    found = [samples(entries, variant) for variant in claim.variants]
    return all(values and max(each.number for each in values.values()) > 1 for values in found)


def interval(left: Sample, right: Sample | float) -> tuple[float, float]:
    """Return Student's confidence interval of the mean difference, with the pooled variance of two samples."""
    from scipy.stats import t

    if isinstance(right, float | int):
        freedom, center = left.number - 1, left.mean - right
        error = left.deviation / math.sqrt(left.number)
    else:
        freedom, center = left.number + right.number - 2, left.mean - right.mean
        squares = (left.number - 1) * left.deviation**2 + (right.number - 1) * right.deviation**2
        error = math.sqrt(squares / freedom * (1 / left.number + 1 / right.number))
    half = float(t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
    return center - half, center + half


def verdict(statement: Statement, left: Sample | None, right: Sample | float | None) -> str:
    """Judge a statement by the confidence interval of the difference.

    Returns:
        "supported" if the statement holds in the whole interval; "refuted" if it holds nowhere in it; "undecided"
        otherwise; "not tested" with fewer than two runs of a variant. The interval follows.
    """
    for each in (left, right):
        if each is None or (isinstance(each, Sample) and each.number < 2):
            return "not tested: two runs of each are needed"
    assert left is not None
    assert right is not None
    low, high = interval(left, right)
    smallest, largest = RELATIONS[statement.relation](statement.tolerance)
    is_strict = statement.relation in ("above", "below")
    word = "undecided"
    if smallest <= low and high <= largest and not (is_strict and low <= 0 <= high):
        word = "supported"
    elif high < smallest or low > largest:
        word = "refuted"
    return f"{word} ({(low + high) / 2:+.3g}; {low:+.3g} to {high:+.3g})"


def verdicts(claim: Claim, entries: list[dict[str, Any]]) -> list[tuple[Statement, str]]:
    found = {variant: samples(entries, variant) for variant in claim.variants}
    judged = []
    for each in claim.statements:
        right = found[each.right].get(each.value) if isinstance(each.right, str) else each.right
        judged.append((each, verdict(each, found[each.left].get(each.value), right)))
    return judged
