"""What a run of the character-level language model reports: its scores and samples."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def summary(folder: Path, results: Mapping[str, Any]) -> str:
    """Return what the run prints at its end: scores beside the entropies of the text, and samples."""
    lines = ["", f"{'':24}{'nats/char':>10}{'bits/char':>10}{'accuracy':>10}{'perplexity':>12}{'characters':>12}"]
    for name in ("unigram", "bigram"):
        nats = results["data"][f"{name}_entropy_nats"]
        lines.append(f"{name + ' entropy':24}{nats:10.4f}{nats / math.log(2):10.4f}")
    for part, score in results["metrics"].items():
        lines.append(
            f"{'this model, ' + part:24}{score['nats_per_character']:10.4f}{score['bits_per_character']:10.4f}"
            f"{score['accuracy']:10.4f}{score['perplexity']:12.3f}{score['characters']:12d}"
        )
    for temperature, sample in results["samples"]["by_temperature"].items():
        lines += ["", f"--- temperature {temperature}", sample]
    lines += ["", f"Model, results and curve: {folder}", f"Generate text: hfattn generate {folder} --prompt ..."]
    return "\n".join(lines)
