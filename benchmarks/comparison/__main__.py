"""Compare the recipes with scripts for transformers, SetFit and TRL on a task each.

    python benchmarks/comparison --sst2 sst2.train.tsv sst2.dev.tsv --minilm all-MiniLM-L6-v2 \
        --text tinyshakespeare.txt --stories stories15M --their_python other/bin/python [--only transformers]

Both sides train the same model on the same examples for the same number of epochs, with the same learning rate. Both
classifiers read 2,000 phrases of SST-2 (or 8 for each class, drawn three times, beside SetFit) and choose a checkpoint
on 500 others; the score is the accuracy on GLUE's validation set. Both language models read the first million
characters; the score is in bits per character of the last 55,394, by ``hfattn evaluate``. Lines are those of the
script, without docstring, imports and empty lines; a command counts as one. Seconds are CPU seconds of the whole
command. The table is printed, and ``docs/records/comparison.json`` is written.

``--their_python`` is a Python with setfit, trl and the versions of constraints.txt.
"""

import argparse
import csv
import json
import math
import random
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, stdev
from typing import Any

HERE = Path(__file__).parent
RECORD = HERE.parents[1] / "docs" / "records" / "comparison.json"
TRAINING, VALIDATION, FEW, DRAWS = 2000, 500, 8, (1, 2, 3)
TEST_PART = 1_060_000  # first character of the test part of tiny Shakespeare


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(words: list[str | Path]) -> tuple[str, float]:
    """Run a command; return what it prints and its CPU seconds."""
    before = cpu_seconds()
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{words} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout, cpu_seconds() - before


def lines(script: Path) -> int:
    """Return the number of lines of a script that do something."""
    code = re.sub(r'^""".*?"""\n', "", script.read_text(encoding="utf-8"), flags=re.DOTALL)
    return sum(bool(line.strip()) and not line.startswith(("import ", "from ")) for line in code.splitlines())


def left_behind(folder: Path, score: float) -> dict[str, Any]:
    """Return what a training leaves on the disk, and whether there is a card with the score."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    card = folder / "README.md"
    shown = card.is_file() and any(f"{score:.{digits}f}" in card.read_text(encoding="utf-8") for digits in (3, 4))
    return {
        "megabytes": round(sum(path.stat().st_size for path in files) / 1e6),
        "files": len(files),
        "card": "no" if not card.is_file() else "with the score" if shown else "without the score",
    }


def write_phrases(path: Path, rows: list[dict[str, str]]) -> Path:
    path.write_text("sentence\tlabel\n" + "".join(f"{row['sentence']}\t{row['label']}\n" for row in rows), "utf-8")
    return path


def row(system: str, task: str, number: int, scores: list[float], seconds: list[float], folder: Path) -> dict[str, Any]:
    """Return a row of the table."""
    spread = {"deviation": round(stdev(scores), 4)} if len(scores) > 1 else {}
    return {
        "task": task,
        "system": system,
        "lines": number,
        "metric": "bits per character" if "Shakespeare" in task else "accuracy",
        "score": round(mean(scores), 4),
        **spread,
        "CPU seconds": round(mean(seconds)),
        **left_behind(folder, scores[-1]),
    }


def accuracy_of(printed: str) -> float:
    (found,) = re.findall(r"^accuracy ([\d.]+)", printed, re.MULTILINE)
    return float(found)


def result(folder: Path) -> float:
    return float(json.loads((folder / "results.json").read_text(encoding="utf-8"))["metrics"]["test"]["accuracy"])


def fine_tuning(given: argparse.Namespace, scratch: Path, phrases: list[dict[str, str]]) -> list[dict[str, Any]]:
    drawn = random.Random(1).sample(phrases, TRAINING + VALIDATION)
    train = write_phrases(scratch / "train.tsv", drawn[:TRAINING])
    validation = write_phrases(scratch / "validation.tsv", drawn[TRAINING:])
    theirs, ours, task = scratch / "trainer", scratch / "classifier", "fine-tune MiniLM on 2,000 phrases of SST-2"
    script = HERE / "trainer_classification.py"
    printed, seconds = run([given.their_python, script, given.minilm, train, validation, given.sst2[1], theirs])
    rows = [row("transformers", task, lines(script), [accuracy_of(printed)], [seconds], theirs)]
    options = {
        "model.name": given.minilm,
        "data.dataset": train,
        "data.validation": validation,
        "data.test": given.sst2[1],
        "max_tokens": 460,  # as many steps as with batches of 32
        "training.num_train_epochs": 3,
        "training.warmup_steps": 20,
        "training.bf16": "false",
        "training.eval_strategy": "epoch",
        "training.save_strategy": "epoch",
        "output_dir": ours,
    }
    seconds = train_with_recipe("classification/sst2_minilm", options)
    return [*rows, row("hfattn", task, 1, [result(ours)], [seconds], ours)]


def few_examples(given: argparse.Namespace, scratch: Path, phrases: list[dict[str, str]]) -> list[dict[str, Any]]:
    task, script = "classify SST-2 with MiniLM from 8 phrases of each class", HERE / "setfit_classification.py"
    scores: dict[str, list[float]] = {"SetFit": [], "hfattn": []}
    seconds: dict[str, list[float]] = {"SetFit": [], "hfattn": []}
    for draw in DRAWS:
        order = random.Random(draw).sample(phrases, len(phrases))
        rows = [each for label in "01" for each in [one for one in order if one["label"] == label][:FEW]]
        train = write_phrases(scratch / f"few{draw}.tsv", rows)
        theirs, ours = scratch / f"setfit{draw}", scratch / f"features{draw}"
        printed, took = run([given.their_python, script, given.minilm, train, given.sst2[1], str(draw), theirs])
        scores["SetFit"].append(accuracy_of(printed))
        seconds["SetFit"].append(took)
        options = {
            "encoder.name": given.minilm,
            "data.dataset": train,
            "data.validation": given.sst2[1],  # nothing is chosen on it: C is fixed
            "data.test": given.sst2[1],
            "data.training_examples": "null",
            "output_dir": ours,
        }
        seconds["hfattn"].append(train_with_recipe("baselines/sst2_minilm_features", options))
        scores["hfattn"].append(result(ours))
    return [
        row("SetFit", task, lines(script), scores["SetFit"], seconds["SetFit"], theirs),
        row("hfattn", task, 1, scores["hfattn"], seconds["hfattn"], ours),
    ]


def language_model(given: argparse.Namespace, scratch: Path) -> list[dict[str, Any]]:
    text = given.text.read_text(encoding="utf-8")
    train, test = scratch / "train.txt", scratch / "test.txt"
    train.write_text(text[:1_000_000], encoding="utf-8")
    test.write_text(text[TEST_PART:], encoding="utf-8")
    theirs, ours, task = (
        scratch / "sft",
        scratch / "language_model",
        "fine-tune stories15M on tiny Shakespeare for one epoch",
    )
    script = HERE / "trl_language_model.py"
    _, seconds = run([given.their_python, script, given.stories, train, theirs])
    rows = [row("TRL", task, lines(script), [bits(theirs, test)], [seconds], theirs)]
    options = {
        "model.name": given.stories,
        "data.dataset": given.text,
        "training.num_train_epochs": 1,
        "training.bf16": "false",
        "output_dir": ours,
    }
    seconds = train_with_recipe("causal_lm/shakespeare_stories15m", options)
    return [*rows, row("hfattn", task, 1, [bits(ours, test)], [seconds], ours)]


def bits(model: Path, text: Path) -> float:
    printed, _ = run([sys.executable, "-m", "hfattn", "evaluate", model, text, "--json"])
    return float(json.loads(printed)["nats_per_character"]) / math.log(2)


def train_with_recipe(recipe: str, options: dict[str, Any]) -> float:
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    _, seconds = run([sys.executable, "-m", "hfattn", "train", recipe, *words])
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sst2", nargs=2, type=Path, required=True, metavar=("TRAIN.tsv", "DEV.tsv"))
    parser.add_argument("--minilm", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--stories", type=Path, required=True)
    parser.add_argument("--their_python", type=Path, required=True)
    parser.add_argument("--only", choices=("transformers", "SetFit", "TRL"))
    given = parser.parse_args()
    with given.sst2[0].open(encoding="utf-8") as file:
        phrases = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    recorded = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        comparisons = {
            "transformers": lambda: fine_tuning(given, scratch, phrases),
            "SetFit": lambda: few_examples(given, scratch, phrases),
            "TRL": lambda: language_model(given, scratch),
        }
        for name in [given.only] if given.only else comparisons:
            recorded[name] = comparisons[name]()
            for each in recorded[name]:
                print(*(f"{field} {value}" for field, value in each.items()), sep="  ", flush=True)
            RECORD.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
