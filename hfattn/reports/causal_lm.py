"""What a run of the causal language model reports: its scores and samples, before and after training."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..data import Documents, PackedText
from ..metrics import text_scores


def with_text_scores(score: Mapping[str, Any], text: PackedText) -> dict[str, Any]:
    """Return the scores per token together with those per character, byte and word, which compare across tokenizers."""
    return {**score, **text_scores(score["nats_per_token"] * score["tokens"], **asdict(text.size))}


def part_facts(documents: Documents, packed: PackedText) -> dict[str, Any]:
    """Return the size and the fingerprint of one part of the data."""
    return {
        "documents": len(documents),
        "characters": sum(len(item.text) for item in documents),
        "tokens": len(packed),
        "unknown_tokens": packed.unknown,
        "sha256": documents.fingerprint,
    }


def on_one_line(text: str) -> str:
    """Return a text for a cell of a table: " / " for line breaks, a space for other unprintable characters."""
    return " ".join("".join(c if c.isprintable() else " / " if c == "\n" else " " for c in text).split())


def summary(folder: Path, results: Mapping[str, Any]) -> str:
    """Return what the run prints at its end: scores before and after training, and samples."""
    columns = {
        "perplexity": ("perplexity", "12.3f"),
        "bits/char": ("bits_per_character", "11.4f"),
        "bits/byte": ("bits_per_byte", "11.4f"),
        "per word": ("perplexity_per_word", "12.4g"),
        "accuracy": ("accuracy", "10.4f"),
        "tokens": ("tokens", "10d"),
    }
    widths = [int(form.split(".")[0].rstrip("df")) for _, form in columns.values()]
    lines = ["", f"{'':20}" + "".join(f"{name:>{width}}" for name, width in zip(columns, widths, strict=True))]
    for part, after in results["metrics"].items():
        for name, score in ((f"{part}, before", after.get("before")), (part, after)):
            if score is not None:
                lines.append(f"{name:20}" + "".join(f"{score[key]:{form}}" for key, form in columns.values()))
    for sample in results["samples"]:
        lines += ["", f"--- {sample['decoding']}", sample["after"]]
    lines += [
        "",
        f"Model, results, curve and samples: {folder}",
        f"Generate text: hfattn generate {folder} --prompt ...",
    ]
    return "\n".join(lines)
