"""What a table of a benchmark says about the number of tokens n, if its columns are numbers of tokens."""

import math
import statistics

from .harness import Record

FITTED = 1024  # tokens from which the exponent of n is fitted


def number(column: str) -> int:
    return int(column.replace(",", ""))


def lengths(record: Record, table: str) -> list[int]:
    return [number(column) for column in record.columns[table]]


def exponents(record: Record, table: str, row: str) -> list[float]:
    """Return a of time = c n^a, fitted to n ≥ 1,024, for each round; nothing for fewer than three n."""
    columns = record.columns[table].items()
    found = [
        (number(name), column.times[row]) for name, column in columns if row in column.times and number(name) >= FITTED
    ]
    rounds = zip(*(times for _, times in found), strict=True)
    return [_slope([n for n, _ in found], list(times)) for times in rounds] if len(found) > 2 else []


def memory_exponent(record: Record, table: str, row: str) -> float:
    """Return a of memory = c n^a, fitted to n ≥ 1,024; NaN for fewer than three n."""
    columns = record.columns[table].items()
    found = [
        (number(name), float(column.sizes[row]))
        for name, column in columns
        if row in column.sizes and number(name) >= FITTED
    ]
    return _slope(*map(list, zip(*found, strict=True))) if len(found) > 2 else math.nan


def _slope(numbers: list[int], values: list[float]) -> float:
    return statistics.linear_regression([math.log(n) for n in numbers], [math.log(each) for each in values]).slope


def crossing(ratios: list[tuple[int, float]]) -> float:
    """Return the n from which a ratio is below 1, interpolated on logarithmic scales: 0 if it always is, and infinity
    if it is not at the largest n."""
    above = [index for index, (_, ratio) in enumerate(ratios) if ratio >= 1]
    if not above:
        return 0.0
    if above[-1] == len(ratios) - 1:
        return math.inf
    (left, high), (right, low) = ratios[above[-1] : above[-1] + 2]
    share = math.log(high) / math.log(high / low)
    return left * (right / left) ** share


def crossings(record: Record, table: str, row: str) -> list[float]:
    """Return the n from which a row is faster than the first one, for each round."""
    columns = [column.ratios(row) for column in record.columns[table].values()]
    numbers = lengths(record, table)
    return [crossing(list(zip(numbers, ratios, strict=True))) for ratios in zip(*columns, strict=True)]
