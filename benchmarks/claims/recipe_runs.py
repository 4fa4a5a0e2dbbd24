"""Runs of recipes that claims are measured by."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from hfattn.yaml_values import override_words

ROOT = Path(__file__).parents[2]
QUIET = {"training.report_to": "none", "training.save_total_limit": 1}


def wikitext2(data: Path, section: str = "data") -> dict[str, str]:
    """Return the fields that name the parts of WikiText-2 in a section of a configuration."""
    parts = {"dataset": "train", "validation": "valid", "test": "test"}
    return {f"{section}.{part}": str(data / f"wikitext-2.{file}.txt") for part, file in parts.items()}


def sst2(data: Path) -> dict[str, str]:
    """Return the fields that name the training part of SST-2 and, as the test part, GLUE's validation set."""
    return {"data.dataset": str(data / "sst2.train.tsv"), "data.test": str(data / "sst2.dev.tsv")}


def train(recipe: str, config: str, fields: dict[str, Any], out: Path) -> dict[str, Any]:
    """Train with the command of a recipe, unless the folder has a finished run, and return its results.

    Raises:
        CalledProcessError: the run failed; its log is beside its folder.
    """
    if not (out / "results.json").exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = ROOT / "recipes" / recipe
        command = [sys.executable, str(folder / "train.py"), "--config", str(folder / f"{config}.yaml"), "--resume"]
        with out.with_name(f"{out.name}.log").open("w") as log:
            words = ["--output_dir", str(out), *override_words(fields)]
            subprocess.run([*command, *words], stdout=log, stderr=log, check=True)
    return json.loads((out / "results.json").read_text())
