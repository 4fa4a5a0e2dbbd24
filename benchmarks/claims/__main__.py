"""Test claims of the literature, and write docs/claims.md."""

import argparse
import os
from pathlib import Path
from typing import Any

from .claim import RECORDS, entries_of, is_measured, keep, read
from .page import write
from .registry import CLAIMS


def cpu_seconds() -> float:
    """Return the CPU time of this process and of those that it has started and that ended."""
    return sum(os.times()[:4])


def facts(used: float) -> dict[str, Any]:
    """Return the circumstances of a measurement."""
    import torch
    import transformers

    from hfattn.training.results import cpu_name

    hardware = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{cpu_name()}, one thread"
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    return {"hardware": hardware, "versions": versions, "cpu_seconds": round(used, 1)}


def run(name: str, seeds: list[int], data: Path, records: Path = RECORDS) -> None:
    """Measure the variants that have no record with these seeds."""
    import torch

    torch.set_num_threads(1)
    claim = CLAIMS[name]
    if claim.measure is None:
        raise SystemExit(f"{name} is measured by python -m benchmarks {claim.benchmark} --write; run that.")
    record = claim.record or name
    for seed in seeds:
        for variant in claim.variants:
            if any(each["variant"] == variant and each.get("seed") == seed for each in read(record, records)):
                continue
            print(f"{name}: {variant}, seed {seed}", flush=True)
            start = cpu_seconds()
            measurement = claim.measure(variant, seed, data)
            print(f"  {measurement.values}", flush=True)
            keep(record, variant, seed, measurement, facts(cpu_seconds() - start), records)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("list", help="list the claims")
    running = actions.add_parser("run", help="measure variants")
    running.add_argument("names", nargs="+", choices=CLAIMS, metavar="NAME", help=", ".join(CLAIMS))
    running.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    running.add_argument("--data", type=Path, default=Path("data"), help="folder of the text files (default: data)")
    actions.add_parser("write", help="write docs/claims.md and its charts")
    arguments = parser.parse_args()
    if arguments.action == "list":
        for name, claim in CLAIMS.items():
            state = "" if is_measured(claim, entries_of(name, claim)) else " (not measured yet)"
            print(f"{name:<16}{claim.title}{state}")
    elif arguments.action == "run":
        for name in arguments.names:
            run(name, arguments.seeds, arguments.data)
    else:
        write()


if __name__ == "__main__":
    main()
