"""Measure the memory and CPU time of a recipe, from a large synthetic file to its hundredth training step.

    python -m benchmarks scale [--pairs 1000000] [--megabytes 100] [--only translation causal_lm char_lm] [--write]

The files have sentence pairs, documents of one line, or running text, of words with the frequencies of Zipf's law. A
recipe runs in a process of its own, from reading the file to the written folder: it learns a tokenizer (a recipe of
characters counts them), encodes all texts and trains a small model for 100 steps. The same recipe on a small file shows
what libraries, model and training need; the rest is what the data need.

The memory is the largest resident memory of the process that no file backs, which the operating system could not free
(RssAnon of Linux), and beside it the largest resident memory with the pages of files (VmHWM). ``--write`` writes
docs/records/scale.json and the table of docs/scaling.md; sizes that were recorded before stay.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain, count, islice, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml

from benchmarks.harness import RECORDS, ROOT, markdown, write_between
from hfattn.training.results import cpu_name

PAGE = ROOT / "docs" / "scaling.md"
RECORD = RECORDS / "scale.json"
MARKER = "benchmark scale"
SMALL = {"translation": 5000, "causal_lm": 2, "char_lm": 2}  # pairs, or megabytes of text, of the small file
LANGUAGES = ("bcdfghjklmnprstvz", "zvtsrpnmlkjhgfdcb")  # consonants, with which syllables begin
WORDS, SENTENCE = 50_000, (5, 26)  # words of a language, and of a sentence
LINE = 5  # sentences of a document
CHUNK = 10_000  # sentences that are drawn at once
INTERVAL = 0.05  # seconds between two looks at the memory
TRAINING = {
    "max_steps": 100,
    "eval_steps": 100,
    "save_steps": 100,
    "logging_steps": 50,
    "learning_rate": 1e-3,
    "per_device_train_batch_size": 32,
    "per_device_eval_batch_size": 32,
    "seed": 1,
}


# Data


def words_of(first: str) -> np.ndarray:
    """Return the words of a language, the most frequent, which are the shortest, first."""
    syllables = [consonant + vowel for consonant in first for vowel in "aeiou"]
    words = chain.from_iterable(product(syllables, repeat=length) for length in count(1))
    return np.array(["".join(word) for word in islice(words, WORDS)], dtype=object)


def sentences(number: int, *languages: np.ndarray) -> Iterator[tuple[str, ...]]:
    """Yield sentences, each in all languages."""
    random = np.random.default_rng(0)
    shares = np.cumsum(1 / np.arange(1, WORDS + 1))
    for start in range(0, number, CHUNK):
        lengths = random.integers(*SENTENCE, size=min(CHUNK, number - start))
        drawn = np.searchsorted(shares, random.random(lengths.sum()) * shares[-1])
        ends = np.cumsum(lengths)
        texts = [language[drawn].tolist() for language in languages]
        for begin, end in zip(ends - lengths, ends, strict=True):
            yield tuple(" ".join(text[begin:end]) + "." for text in texts)


def write_pairs(path: Path, number: int) -> None:
    with path.open("w") as file:
        file.writelines(f"{source}\t{target}\n" for source, target in sentences(number, *map(words_of, LANGUAGES)))


def write_lines(path: Path, megabytes: float) -> None:
    """Write lines of several sentences, up to a size."""
    drawn = (sentence for (sentence,) in sentences(sys.maxsize, words_of(LANGUAGES[0])))
    with path.open("w") as file:
        while file.tell() < megabytes * 1e6:
            file.write(" ".join(islice(drawn, LINE)) + "\n")


# Recipes


def translation(data: Path, size: int) -> dict[str, Any]:
    return {
        "data": {"dataset": str(data), "split": [size - 1000, 500, "rest"], "max_source_length": 80}
        | {"max_target_length": 80, "too_long": "cut"},
        "tokenizer": {"kind": "bpe", "vocab_size": 8000},
        "model": {"model_type": "vaswani", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
        | {"encoder_layers": 1, "decoder_layers": 1},
        "optimizer": "adamw",
        "max_tokens": 2048,
        "training": {name: TRAINING[name] for name in TRAINING if name != "per_device_train_batch_size"},
        "evaluation": {"examples": 50},
        "sample": {"translations": 1, "alignments": 1},
    }


def causal_lm(data: Path, size: int) -> dict[str, Any]:
    return {
        "data": {"dataset": str(data), "lines_are_texts": True, "split": [0.998, 0.001, 0.001], "max_length": 128},
        "tokenizer": {"kind": "bpe", "vocab_size": 8000},
        "model": {"model_type": "gpt2", "n_positions": 128, "n_embd": 64, "n_layer": 1, "n_head": 4},
        "optimizer": "adamw",
        "training": TRAINING,
        "sample": {"prompts": ["ba"], "max_new_tokens": 10, "decoding": {"greedy": {"temperature": 0}}},
    }


def char_lm(data: Path, size: int) -> dict[str, Any]:
    return {
        "data": {"dataset": str(data), "split": [0.998, 0.001, 0.001], "max_length": 128, "stride": 128},
        "model": {"cell": "gru", "embedding_size": 16, "hidden_size": 64},
        "optimizer": "adamw",
        "training": TRAINING,
        "sample": {"prompt": "ba", "temperatures": [0.8], "max_new_tokens": 10},
    }


RECIPES: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "translation": translation,
    "causal_lm": causal_lm,
    "char_lm": char_lm,
}


# Measurement


@dataclass
class Measured:
    """A run: its recipe, the size of the data, and what it needed.

    Attributes:
        recipe: name of the recipe.
        size: the data, in words.
        file: bytes of the file.
        memory: largest resident memory that no file backs, in bytes.
        small: the same of the run on the small file.
        resident: largest resident memory with the pages of files, in bytes.
        cpu: seconds on the CPU.
    """

    recipe: str
    size: str
    file: int
    memory: int
    small: int
    resident: int
    cpu: float


def status(process: int) -> dict[str, int]:
    """Return the memory of a process in bytes, as Linux states it; nothing once it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return {name: 1024 * int(fields[name].split()[0]) for name in ("RssAnon", "VmHWM") if name in fields}


def run_recipe(recipe: str, amount: int) -> tuple[int, int, int, float]:
    """Run a recipe on synthetic data, pairs for translation and megabytes of text for the others.

    Returns:
        The size of the file, the memory and the resident memory in bytes, and the seconds on the CPU.
    """
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        data, config, output = folder / "data.txt", folder / "config.yaml", folder / "run"
        (write_pairs if recipe == "translation" else write_lines)(data, amount)
        config.write_text(yaml.safe_dump(RECIPES[recipe](data, amount)))
        command: list[str | Path] = [
            sys.executable,
            ROOT / "recipes" / recipe / "train.py",
            "--config",
            config,
            "--output_dir",
            output,
        ]
        before, memory, resident = os.times(), 0, 0
        with (folder / "log").open("w+") as log:
            environment = {**os.environ, "ACCELERATE_USE_CPU": "true"}
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
            while process.poll() is None:
                now = status(process.pid)
                memory, resident = max(memory, now.get("RssAnon", 0)), max(resident, now.get("VmHWM", 0))
                time.sleep(INTERVAL)
            log.seek(0)
            assert process.returncode == 0, log.read()
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        return data.stat().st_size, memory, resident, cpu


def measure(recipe: str, amount: int) -> Measured:
    """Run a recipe on little and on much data, and return what it needed."""
    _, small, _, _ = run_recipe(recipe, SMALL[recipe])
    file, memory, resident, cpu = run_recipe(recipe, amount)
    unit = "pairs" if recipe == "translation" else "MB"
    return Measured(recipe, f"{amount:,} {unit}", file, memory, small, resident, round(cpu, 1))


# Report


def report(record: dict[str, Any]) -> str:
    columns = ["recipe", "data", "file (GB)", "memory (GB)", "of which data (GB)", "with file pages (GB)", "CPU (s)"]
    rows = []
    for each in (Measured(**entry) for entry in record["runs"]):
        sizes = [each.file, each.memory, each.memory - each.small, each.resident]
        rows.append([f"`{each.recipe}`", each.size, *(f"{size / 1e9:.2f}" for size in sizes), f"{each.cpu:,.0f}"])
    return f"{markdown(columns, rows)}\n{record['processor']}, one thread, CPU time; Python {record['python']}.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1_000_000, help="sentence pairs for translation")
    parser.add_argument("--megabytes", type=int, default=100, help="size of the text for the language models")
    parser.add_argument("--only", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--write", action="store_true", help="write docs/records/scale.json and docs/scaling.md")
    arguments = parser.parse_args()
    record = json.loads(RECORD.read_text()) if RECORD.is_file() else {"runs": []}
    record |= {"processor": cpu_name(), "python": sys.version.partition(" ")[0]}
    for recipe in arguments.only:
        found = measure(recipe, arguments.pairs if recipe == "translation" else arguments.megabytes)
        print(found, flush=True)
        others = [each for each in record["runs"] if (each["recipe"], each["size"]) != (found.recipe, found.size)]
        record["runs"] = sorted(
            [*others, asdict(found)], key=lambda each: (list(RECIPES).index(each["recipe"]), each["file"])
        )
    print(report(record))
    if arguments.write:
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
        write_between(PAGE, MARKER, report(record))


if __name__ == "__main__":
    main()
