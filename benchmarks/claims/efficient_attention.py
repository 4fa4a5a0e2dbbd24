"""Growth, crossing with dense attention, and decoding of efficient attention: what the record of its benchmark says."""

from collections.abc import Callable
from typing import Any

from ..harness import RECORDS, Record
from ..lengths import crossings, exponents, lengths, memory_exponent, number
from .claim import Claim, Panel, Statement

BENCHMARK = "efficient_attention"
WINDOW, LOCAL, LINEAR = "window, 256 keys", "block_local, 129 to 256 keys", "linear"
PERFORMER, PERFORMERS = "performer, 256 features", ("performer, 64 features", "performer, 256 features")
STRIDED, FIXED = "strided, 128 keys and each 128th", "fixed, up to 128 keys and each 128th"
MEMORY, LSH, GATED = "memory, 129 to 256 keys", "lsh, 2 rounds", ("gated_linear", "gated_delta")
OF_ENCODERS = ("linformer, rank 256", "fastformer", "fourier")
OF_DECODERS = (WINDOW, LOCAL, LINEAR, *PERFORMERS, STRIDED, FIXED, MEMORY, LSH)


def _entries(
    record: Record,
    table: str,
    variants: tuple[str, ...],
    values: Callable[[str, int], dict[str, float]],
    curves: Callable[[str, int], dict[str, list[tuple[float, float]]]],
) -> list[dict[str, Any]]:
    """Return the entries of a claim, one for each variant and round."""
    of = record.facts[table]
    facts = {"steps": 0, "hardware": f"{of['processor']}, one thread", "versions": of["versions"]}
    return [
        {"variant": row, "seed": turn + 1, "values": values(row, turn), "curves": curves(row, turn), **facts}
        for row in variants
        for turn in range(of["rounds"])
    ]


def _record() -> Record:
    return Record.read(RECORDS / f"{BENCHMARK}.json")


def _curve(record: Record, table: str, row: str, turn: int) -> list[tuple[float, float]]:
    """Return (n, ms) of a round."""
    columns = record.columns[table].items()
    return [(float(number(n)), 1e3 * column.times[row][turn]) for n, column in columns if row in column.times]


def _kind(row: str) -> str:
    return "encoder" if row in OF_ENCODERS else "causal"


def growth() -> list[dict[str, Any]]:
    record = _record()

    def values(row: str, turn: int) -> dict[str, float]:
        tables = {way: f"{_kind(row)}, {way}" for way in ("forward", "training")}
        found = {f"exponent, {way}": exponents(record, table, row)[turn] for way, table in tables.items()}
        return {**found, "exponent of memory, training": memory_exponent(record, tables["training"], row)}

    def curves(row: str, turn: int) -> dict[str, list[tuple[float, float]]]:
        return {way: _curve(record, f"{_kind(row)}, {way}", row, turn) for way in ("forward", "training")}

    return _entries(record, "causal, forward", GROWTH, values, curves)


def pays() -> list[dict[str, Any]]:
    record = _record()

    def values(row: str, turn: int) -> dict[str, float]:
        found = {}
        for way in ("forward", "training"):
            measured = lengths(record, table := f"causal, {way}")
            found[f"n, {way}"] = min(max(crossings(record, table, row)[turn], measured[0]), measured[-1])
        return found

    def curves(row: str, turn: int) -> dict[str, list[tuple[float, float]]]:
        return {
            way: [
                (float(number(n)), column.ratios(row)[turn]) for n, column in record.columns[f"causal, {way}"].items()
            ]
            for way in ("forward", "training")
        }

    return _entries(record, "causal, forward", OF_DECODERS, values, curves)


def decoding() -> list[dict[str, Any]]:
    record = _record()
    earlier, later = (record.columns["decoding"][n] for n in ("1,000", "10,000"))

    def values(row: str, turn: int) -> dict[str, float]:
        return {
            "time after 10,000 / after 1,000": later.times[row][turn] / earlier.times[row][turn],
            "cache after 10,000 / after 1,000": later.sizes[row] / earlier.sizes[row],
        }

    return _entries(
        record, "decoding", STEPS, values, lambda row, turn: {"time": _curve(record, "decoding", row, turn)}
    )


GROWTH = ("full", *OF_DECODERS, *OF_ENCODERS)
STEPS = ("full", WINDOW, LOCAL, LINEAR, PERFORMER, MEMORY, *GATED)
PASSES = ("forward", "training")
SETTING = (
    "Attention alone, one text, 8 heads of width 64, in float32 on one thread: CPU time of a forward pass, or of a "
    "forward and a backward pass (*training*). A round measures every variant once. "
)
LATER = "`strided`, `fixed`, `memory` and `lsh` were added later."
TIME, CACHE = "time after 10,000 / after 1,000", "cache after 10,000 / after 1,000"

CLAIMS = {
    "growth": Claim(
        "Time grows as the square of the length with dense attention and as the length with efficient attention; "
        "memory grows as the length with both, if dense attention is fused",
        "Tay et al. 2022 (survey), table 1; Rabe & Staats 2021",
        SETTING + "The exponent a is fitted to time = c n^a from 1,024 tokens to the longest text of the benchmark. "
        "`linformer`, `fastformer` and `fourier` are measured in an encoder, the others in a decoder. "
        "Memory is that of one call, as Linux counts it, and the same in all rounds. The criteria are at least 1.8 for "
        "dense attention, 0.9 to 1.2 for windows, `memory` and `linformer`, 1.2 to 1.6 for `strided` and `fixed`, and "
        "0.9 to 1.4 for the others. " + LATER,
        GROWTH,
        None,
        (
            *(Statement(f"exponent, {way}", "full", "above", 1.8) for way in PASSES),
            *(
                Statement(f"exponent, {way}", row, "equal to", 1.05, 0.15)
                for row in (WINDOW, LOCAL, MEMORY, OF_ENCODERS[0])
                for way in PASSES
            ),
            *(
                Statement(f"exponent, {way}", row, "equal to", 1.15, 0.25)
                for row in (LINEAR, *PERFORMERS, LSH, *OF_ENCODERS[1:])
                for way in PASSES
            ),
            *(Statement(f"exponent, {way}", row, "equal to", 1.4, 0.2) for row in (STRIDED, FIXED) for way in PASSES),
            Statement("exponent of memory, training", "full", "equal to", 1.0, 0.1),
            Statement("exponent of memory, training", WINDOW, "equal to", 1.0, 0.1),
            *(
                Statement("exponent of memory, training", row, "not above", 1.0, 0.1)
                for row in (*OF_DECODERS[1:], *OF_ENCODERS)
            ),
        ),
        tuple(Panel(way, "n", f"CPU ms, {way}", log_x=True, log_y=True) for way in PASSES),
        benchmark=BENCHMARK,
        from_benchmark=growth,
    ),
    "pays": Claim(
        "Efficient attention is slower than fused dense attention on short texts, and faster on long ones",
        "Dao et al. 2022 (FlashAttention), section 4.3",
        SETTING + "The value is the number of tokens n from which a variant is faster than dense causal attention "
        "(`scaled_dot_product_attention` of torch), interpolated between the measured lengths on logarithmic scales; "
        "it is 256 or 16,384 if it lies outside of them. Short is up to 512 tokens, long is from 2,048. " + LATER,
        OF_DECODERS,
        None,
        tuple(
            Statement(f"n, {way}", row, relation, bound)
            for row in OF_DECODERS
            for way in PASSES
            for relation, bound in (("above", 512.0), ("below", 2048.0))
        ),
        tuple(Panel(way, "n", f"time / time of dense attention, {way}", log_x=True, log_y=True) for way in PASSES),
        benchmark=BENCHMARK,
        from_benchmark=pays,
    ),
    "decoding": Claim(
        "With a window, a memory or a state, a step of decoding takes the same time and memory after any number of "
        "tokens",
        "Katharopoulos et al. 2020, section 3.4; Choromanski et al. 2021; Beltagy et al. 2020, section 3.1; Yang et "
        "al. 2024",
        "One step of a decoder of one layer (width 512, feed-forward network of width 2,048, 8 heads, batch 1) with "
        "its cache, on one thread: CPU time and bytes of the cache after 10,000 tokens, divided by those after 1,000. "
        "`memory` and the gated patterns were added later.",
        STEPS,
        None,
        (
            *(Statement(TIME, row, "equal to", 1.0, 0.25) for row in STEPS[1:]),
            Statement(TIME, "full", "above", 2.0),
            *(Statement(CACHE, row, "equal to", 1.0, 0.01) for row in STEPS[1:]),
        ),
        (Panel("time", "tokens before", "CPU ms", log_x=True, log_y=True),),
        benchmark=BENCHMARK,
        from_benchmark=decoding,
    ),
}
