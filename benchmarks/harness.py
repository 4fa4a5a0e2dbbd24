"""Time functions that do comparable work, in turn, and keep what was measured.

A benchmark has tables, whose columns are groups of functions. The functions of a group are called once to warm up, and
then in rounds, each function in each round, so that a change of the machine's load affects all of them. A product of
matrices and a copy, whose rates are those of the machine at that time, are timed in the same rounds.

The time is that of the process, and of those that it starts, on the CPU with one thread, which other processes
lengthen less than the time that passes; otherwise (several threads, an accelerator), it is the time that passes. Both
are recorded.
"""

import argparse
import ctypes
import importlib.metadata
import importlib.util
import json
import math
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers

from hfattn.training.results import cpu_name

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "docs" / "records"
SHORTEST = 0.02  # seconds of a round of one function, which is called as often as that takes
PAUSE = 0.1  # seconds before each function, in which the threads of the one before become idle
MATRIX, COPIED = 1024, 2**26  # width of the square matrices, and bytes that are copied
INSTRUCTIONS = ("avx2", "avx512_f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8")

Function = Callable[[], Any]


@dataclass(frozen=True)
class Group:
    """Functions that are timed in turn, a column of a table.

    Attributes:
        column: what the functions have in common, such as "4,096".
        functions: by the names of the rows. Others are compared with the first one.
        check: raises an AssertionError if an output is wrong; it is called before anything is timed.
        sizes: returns bytes by the name of a function, after the check; by default, the largest memory of each
            function above that of its inputs is measured.
    """

    column: str
    functions: dict[str, Function]
    check: Callable[[], None]
    sizes: Callable[[], dict[str, int]] | None = None


@dataclass(frozen=True)
class Benchmark:
    """A benchmark.

    Attributes:
        name: of the module, of the record in docs/records and of the markers on the page.
        page: the page with the tables, between ``<!-- benchmark NAME -->`` and ``<!-- /benchmark NAME -->``.
        tables: by name, what makes the groups of a table on a device, one after the other, so that only one is in
            memory.
        report: returns the Markdown of a record.
        peers: other packages that are compared, where they are installed.
    """

    name: str
    page: Path
    tables: dict[str, Callable[[torch.device], Iterator[Group]]]
    report: Callable[["Record"], str]
    peers: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        return RECORDS / f"{self.name}.json"


@dataclass
class Column:
    """What was measured of a group.

    Attributes:
        times: seconds of a call on the clock of the table, in each round, by function.
        sizes: bytes by function.
        gflops, gigabytes: rates of the product of matrices and of the copy, per second.
    """

    times: dict[str, list[float]]
    sizes: dict[str, int] = field(default_factory=dict)
    gflops: float = 0.0
    gigabytes: float = 0.0

    def median(self, name: str) -> float:
        return statistics.median(self.times[name])

    def ratios(self, name: str, to: str = "") -> list[float]:
        """Return the time of a function in each round divided by that of another one, by default the first."""
        baseline = self.times[to or next(iter(self.times))]
        return [own / other for own, other in zip(self.times[name], baseline, strict=True)]

    def ratio(self, name: str, to: str = "") -> float:
        return statistics.median(self.ratios(name, to))


class Record:
    """The tables of a benchmark, as in its file.

    Attributes:
        facts: circumstances of each table.
        columns: the columns of each table, by name.
    """

    def __init__(self, tables: dict[str, Any]) -> None:
        self.facts: dict[str, dict[str, Any]] = {name: table["facts"] for name, table in tables.items()}
        self.columns: dict[str, dict[str, Column]] = {}
        for name, table in tables.items():
            clock = "cpu" if is_cpu_time(table["facts"]["threads"], table["facts"]["device"]) else "wall"
            self.columns[name] = {
                each["column"]: Column(each[clock], each["bytes"], each["gflops"], each["gigabytes"])
                for each in table["groups"]
            }

    @classmethod
    def read(cls, path: Path) -> "Record":
        return cls(json.loads(path.read_text(encoding="utf-8")))

    def rows(self, table: str) -> list[str]:
        """Return the names of all functions of a table."""
        return list(dict.fromkeys(name for column in self.columns[table].values() for name in column.times))


def is_cpu_time(threads: int, device: str) -> bool:
    """Return whether the time of the process is compared, instead of the time that passes."""
    return threads == 1 and device == "cpu"


# Measurement


def cpu_seconds() -> float:
    """Return seconds of this process on the CPU, and of those that it has started and that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def clock(function: Function, calls: int, device: torch.device) -> tuple[float, float]:
    """Return seconds of the process on the CPU, and seconds that pass, of one of several calls."""
    cpu, wall = cpu_seconds(), time.perf_counter()
    for _ in range(calls):
        function()
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return (cpu_seconds() - cpu) / calls, (time.perf_counter() - wall) / calls


def peak_memory(function: Function, device: torch.device) -> int:
    """Call a function, and return the bytes that it needs at most, beyond what was allocated before.

    On a CPU, this is resident memory, as Linux counts it, after unused memory was given back.
    """
    if device.type != "cpu":
        torch.accelerator.reset_peak_memory_stats(device)
        before = torch.accelerator.memory_allocated(device)
        function()
        return torch.accelerator.max_memory_allocated(device) - before
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is the present memory from now on
    before = _resident("VmRSS")
    function()
    return _resident("VmHWM") - before


def _resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def of_the_machine(device: torch.device) -> dict[str, Function]:
    """Return a product of matrices and a copy."""
    left, right = (torch.randn(MATRIX, MATRIX, device=device) for _ in range(2))
    source = torch.zeros(COPIED // 4, device=device)
    target = torch.empty_like(source)
    return {"product": lambda: left @ right, "copy": lambda: target.copy_(source)}


def measure(group: Group, rounds: int, threads: int, device: torch.device) -> dict[str, Any]:
    """Check the functions of a group and time them; return the entry of the record."""
    group.check()
    functions = {**group.functions, **of_the_machine(device)}
    calls, times = {}, {name: ([], []) for name in functions}  # type: ignore[var-annotated]
    sizes = group.sizes() if group.sizes else {}
    for name, function in functions.items():  # the warm-up
        start = time.perf_counter()
        needed = peak_memory(function, device)
        calls[name] = max(1, math.ceil(SHORTEST / (time.perf_counter() - start)))
        if not group.sizes and name in group.functions:
            sizes[name] = needed
    for _ in range(rounds):
        for name, function in functions.items():
            time.sleep(PAUSE)
            for kept, seconds in zip(times[name], clock(function, calls[name], device), strict=True):
                kept.append(float(f"{seconds:.4g}"))
    kind = 0 if is_cpu_time(threads, device.type) else 1
    product, copy = (statistics.median(times.pop(name)[kind]) for name in ("product", "copy"))
    return {
        "column": group.column,
        "gflops": round(2 * MATRIX**3 / product / 1e9, 1),
        "gigabytes": round(2 * COPIED / copy / 1e9, 1),
        "bytes": sizes,
        "cpu": {name: cpu for name, (cpu, _) in times.items()},
        "wall": {name: wall for name, (_, wall) in times.items()},
    }


def facts(threads: int, device: torch.device, rounds: int, peers: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the circumstances of a table, with the versions of libraries and of the ``peers`` that are installed."""
    capabilities = torch.cpu.get_capabilities()
    return {
        "processor": cpu_name() if device.type == "cpu" else torch.cuda.get_device_name(device),
        "instructions": [name for name in INSTRUCTIONS if capabilities.get(name)],
        "processors": os.cpu_count(),
        "threads": threads,
        "device": device.type,
        "rounds": rounds,
        "load": round(os.getloadavg()[0], 1),  # processes that run or want to, including this one
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            **{name: importlib.metadata.version(name) for name in peers if importlib.util.find_spec(name)},
        },
    }


# Report


def circumstances(record: Record, table: str) -> str:
    """Return the sentence below a table: where it was measured, and the rates of the machine."""
    of, columns = record.facts[table], record.columns[table].values()
    gflops, gigabytes = ([getattr(each, rate) for each in columns] for rate in ("gflops", "gigabytes"))
    threads = "one thread" if of["threads"] == 1 else f"{of['threads']} threads"
    time = "CPU time" if is_cpu_time(of["threads"], of["device"]) else "time"
    shared = f", shared with others (load {of['load']:.1f} on {of['processors']} processors)"
    named = ", ".join(f"{name} {version}" for name, version in of["versions"].items())
    return (
        f"{of['processor']} ({', '.join(of['instructions'])}), {threads}{shared if of['load'] > 1.5 else ''}: median "
        f"{time} of {of['rounds']} rounds; the quartiles are within {spread(record, table):.0%} of it in half of the "
        f"cells. A product of matrices of width {MATRIX:,} ran at {min(gflops):.0f} to {max(gflops):.0f} GFLOP/s, a "
        f"copy at {min(gigabytes):.0f} to {max(gigabytes):.0f} GB/s. {named}."
    )


def spread(record: Record, table: str) -> float:
    """Return half of the distance of the quartiles divided by the median, the median over the cells of a table."""
    found = []
    for column in record.columns[table].values():
        for times in column.times.values():
            low, middle, high = statistics.quantiles(times, n=4)
            found.append((high - low) / middle / 2)
    return statistics.median(found)


def markdown(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def three_digits(number: float) -> str:
    return f"{number:,.3g}" if number < 1000 else f"{number:,.0f}"


def times_table(record: Record, table: str, first: str) -> str:
    """Return a table of milliseconds, each with its ratio to the first row: bold where it is below 0.95."""
    columns, rows = record.columns[table], record.rows(table)
    lines = []
    for name in rows:
        cells = []
        for column in columns.values():
            if name not in column.times:
                cells.append("–")
                continue
            ratio = column.ratio(name)
            shown = f"**{ratio:.2f}**" if ratio < 0.95 else f"{ratio:.2f}"
            cells.append(three_digits(1e3 * column.median(name)) + (f" ({shown})" if name != rows[0] else ""))
        lines.append([name, *cells])
    return markdown([first, *columns], lines)


def titled_tables(record: Record, titles: Mapping[str, tuple[str, str]]) -> str:
    """Return the tables of a record in milliseconds.

    Args:
        record: the record; a table that it does not have is left out.
        titles: the title of each table, and the heading of its first column.
    """
    parts = [
        f"**{title}, milliseconds (and ratio to the first row)**\n\n{times_table(record, table, first)}\n"
        f"{circumstances(record, table)}\n"
        for table, (title, first) in titles.items()
        if table in record.columns
    ]
    return "\n".join(parts)


def write_between(page: Path, marker: str, text: str) -> None:
    """Replace what a page has between ``<!-- marker -->`` and ``<!-- /marker -->``."""
    before, _, after = _parts(page, marker)
    page.write_text(before + text + after, encoding="utf-8")


def between(page: Path, marker: str) -> str:
    """Return what a page has between ``<!-- marker -->`` and ``<!-- /marker -->``."""
    return _parts(page, marker)[1]


def _parts(page: Path, marker: str) -> tuple[str, str, str]:
    """Return a page up to the end of the first marker, what is between them, and the rest from the second one."""
    start, end = (f"<!-- {slash}{marker} -->\n" for slash in ("", "/"))
    before, _, rest = page.read_text(encoding="utf-8").partition(start)
    text, _, after = rest.partition(end)
    return before + start, text, end + after


def write(benchmark: Benchmark, record: Record) -> None:
    """Write the tables of a record between the markers of the page."""
    write_between(benchmark.page, f"benchmark {benchmark.name}", benchmark.report(record))


def written(benchmark: Benchmark) -> str:
    """Return what the page has between the markers."""
    return between(benchmark.page, f"benchmark {benchmark.name}")


def save(path: Path, tables: dict[str, Any]) -> None:
    """Write a record, one line for each group."""
    lines = []
    for name, table in tables.items():
        groups = ",\n".join(f"  {json.dumps(each, ensure_ascii=False)}" for each in table["groups"])
        lines.append(f'"{name}": {{\n "facts": {json.dumps(table["facts"])},\n "groups": [\n{groups}\n ]}}')
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def run(benchmark: Benchmark, documentation: str) -> None:
    """Read the command line, measure, print the tables and, with ``--write``, update the record and the page."""
    parser = argparse.ArgumentParser(description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--rounds", type=int, default=5, help="at least 2 (default: 5)")
    parser.add_argument(
        "--only", nargs="+", choices=benchmark.tables, metavar="TABLE", help="leave the others as recorded"
    )
    parser.add_argument("--write", action="store_true", help=f"write docs/records/{benchmark.name}.json and the page")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    tables: dict[str, Any] = {}

    def all_tables() -> dict[str, Any]:
        known = json.loads(benchmark.path.read_text(encoding="utf-8")) if benchmark.path.is_file() else {}
        return {**known, **tables}

    for name in arguments.only or benchmark.tables:
        now = facts(arguments.threads, arguments.device, arguments.rounds, benchmark.peers)
        table = tables[name] = {"facts": now, "groups": []}
        for group in benchmark.tables[name](arguments.device):
            table["groups"].append(measure(group, arguments.rounds, arguments.threads, arguments.device))
            table["facts"]["load"] = max(table["facts"]["load"], round(os.getloadavg()[0], 1))
            print(f"{name}, {group.column}: {Record(tables).columns[name][group.column]}", flush=True)
        if not table["groups"]:
            print(f"{name}: not measured on this hardware")
            del tables[name]
        if arguments.write:
            save(benchmark.path, all_tables())
    if arguments.write:
        write(benchmark, Record.read(benchmark.path))
    else:
        print(benchmark.report(Record(all_tables())))
