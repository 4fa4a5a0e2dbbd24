"""Memory per pair and per character of text, from the file to the batches, and what the stored sequences do."""

import json
import os
import pickle
import re
import shlex
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from accelerate.commands.launch import launch_command_parser
from commands import ROOT
from page_blocks import BLOCK

from benchmarks.harness import between
from benchmarks.scale import MARKER, RECORD, report, write_lines, write_pairs
from hfattn.data import (
    EncodedPairs,
    Pair,
    TokenBatches,
    encoding,
    pack,
    packing,
    read_documents,
    read_pairs,
    split_corpus,
    split_positions,
)
from hfattn.data import report as report_module
from hfattn.data.stored import Again, Derived, StoredIds, StoredItems, StoredTexts, numbered
from hfattn.resources import load_recipe
from hfattn.tokenizers import TokenizerConfig, build_tokenizer
from hfattn.training import load_config

FEW, MANY = 500, 2_000


def growth(work: Callable[[int], Any]) -> float:
    """Return the bytes of memory that each further example needs at most at once, in Python and NumPy."""
    peaks = []
    work(FEW)  # which fills caches
    for number in (FEW, MANY):
        tracemalloc.start()
        kept = work(number)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        del kept
    return (peaks[1] - peaks[0]) / (MANY - FEW)


def test_pairs_need_little_memory_from_the_file_to_the_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair of two sentences of 15 words has 2 x 130 bytes of text in memory as Python objects, and 2 x 25 ids."""
    monkeypatch.setattr(encoding, "BATCH", 100)
    monkeypatch.setattr(report_module, "SAMPLE", 100)
    monkeypatch.setattr(report_module, "LANGUAGE_SAMPLE", 1)  # which takes the longest
    recipe = load_recipe(ROOT / "recipes" / "translation" / "train.py")
    for number in (FEW, MANY):
        write_pairs(tmp_path / f"{number}.tsv", number)

    def build(number: int) -> Any:
        data = recipe.DataConfig(
            dataset=str(tmp_path / f"{number}.tsv"),
            split=[number - 200, 100, "rest"],
            max_source_length=40,
            max_target_length=40,
            too_long="drop",
        )
        config = recipe.Config(data=data, tokenizer=recipe.PairTokenizerConfig(kind="bpe", vocab_size=300))
        parts = data.read_parts(1)
        tokenizers = recipe.build_tokenizers(config, parts["train"])
        encoded = recipe.EncodedPairs(parts["train"], *tokenizers, 40, 40, too_long="drop")
        assert number / 2 < len(encoded) < number - 200  # some are dropped
        report = data.report(parts)
        batches = sum(map(len, TokenBatches(encoded.lengths, 2048, seed=1)))
        assert batches == len(encoded)
        return parts, encoded, report, parts["train"].fingerprint

    assert growth(build) < 300


def test_documents_need_little_memory_from_the_file_to_the_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document has 460 characters."""
    monkeypatch.setattr(packing, "CHARACTERS", 10_000)
    for number in (FEW, MANY):
        write_lines(tmp_path / f"{number}.txt", number * 460 / 1e6)

    def build(number: int) -> Any:
        parts = split_corpus(read_documents(tmp_path / f"{number}.txt"), [0.98, 0.02], seed=1)
        tokenizer = build_tokenizer(TokenizerConfig(kind="bpe", vocab_size=300), parts[0].contents, ends=True)
        return parts, [pack(part.contents, tokenizer) for part in parts], parts[0].fingerprint

    assert growth(build) < 150


def test_stored_sequences_are_those_that_were_given() -> None:
    texts = ["one", "", "ni\u00f1o\r\n\tx\u2028", "\U0001f40d", "\ud800 half of a pair"]
    stored = StoredTexts(texts)
    assert list(stored) == texts
    assert (stored[-1], len(stored), stored.lengths.tolist()) == (texts[-1], 5, [3, 0, 12, 4, 18])
    assert stored[1:3] == texts[1:3]
    assert stored.select([4, 0]).select([1]) == ["one"]
    assert stored.select([4, 0]).lengths.tolist() == [18, 3]
    assert stored != texts[:4]
    assert stored != [*texts[:4], "another"]
    assert Derived(stored, len).select([2, 0]) == [9, 3]
    with pytest.raises(IndexError):
        stored[5]
    ids = StoredIds(iter([[1, 2, 70_000], [], [3]]))
    assert (list(ids), ids.lengths.tolist()) == ([[1, 2, 70_000], [], [3]], [3, 0, 1])
    assert list(StoredTexts([])) == list(StoredTexts(["", ""]).select([])) == []
    pairs = [Pair("a", "b", line=3, fields={"id": 7}), Pair("", "\n", line=4)]
    items = StoredItems(Pair, 2, iter(pairs))
    assert items == pairs
    assert items.select([1, 0]) == pairs[::-1]


def test_encoded_pairs_reach_a_process_that_loads_data(tmp_path: Path) -> None:
    """Such a process is forked, or gets a copy by a pickle."""
    write_pairs(tmp_path / "pairs.tsv", 30)
    pairs = read_pairs(tmp_path / "pairs.tsv")
    tokenizer = build_tokenizer(TokenizerConfig(kind="bpe", vocab_size=300), pairs.all_texts, ends=True)
    encoded = EncodedPairs(pairs, tokenizer, tokenizer, 40, 40, too_long="drop", prefix="to: ")
    copied = pickle.loads(pickle.dumps(encoded))
    assert [copied[i] for i in range(len(copied))] == [encoded[i] for i in range(len(encoded))]
    assert list(copied.sides[0].texts) == [f"to: {pair.source}" for pair in encoded.pairs]


def test_what_is_read_again_begins_anew() -> None:
    again = Again(lambda: iter("abc"))
    assert list(again) == list(again) == ["a", "b", "c"]


def test_keys_are_numbered_as_they_come() -> None:
    keys = [("b",), ("a", "b"), ("b",), ("ab",), ("a", "b")]
    numbers, different = numbered(iter(keys), len(keys))
    assert (numbers.tolist(), different) == ([0, 1, 0, 2, 1], 3)


@pytest.mark.parametrize(("split", "letters"), [([0.5, 0.3, 0.2], 1), ([100, 30, "rest"], None)])
def test_parts_of_stored_pairs_are_those_of_a_literal_loop(tmp_path: Path, split: list[Any], letters: int) -> None:
    """Many sources begin with the same letter, and are in the same part as the first one of them."""
    write_pairs(tmp_path / "pairs.tsv", 300)
    pairs = read_pairs(tmp_path / "pairs.tsv")

    def key(pair: Pair) -> str:
        return pair.source[:letters]

    keys = list({key(pair): None for pair in pairs})
    Random(3).shuffle(keys)
    part_of = {each: part for part, where in enumerate(split_positions(len(keys), split)) for each in keys[where]}
    for part, found in enumerate(pairs.split(split, 3, key=key, unit="keys")):
        assert list(found) == [pair for pair in pairs if part_of[key(pair)] == part]
    assert [pair.line for pair in pairs.sample(20, 1)] == [1 + i for i in sorted(Random(1).sample(range(300), 20))]


# Commands of docs/scaling.md

PAGE = ROOT / "docs" / "scaling.md"


def commands(page: Path) -> list[list[str]]:
    """The words of all commands of a page, and of the commands that another shell runs, without assignments before."""
    found = []
    for _, _, block in BLOCK.findall(page.read_text()):
        # What a shell computes is a number, or a name, in all of them.
        text = re.sub(r"\$\(\(.*?\)\)|\$\w+|\$\{\w+\}", "2", block.replace("\\\n", " "))
        for line in re.findall(r"^(?:\w+=\w+ )*((?:srun|hf|accelerate) .*)$", text, re.MULTILINE):
            found.append(shlex.split(line))
            if "-c" in found[-1]:
                found += map(shlex.split, found[-1][-1].split(" && "))
    return found


def test_the_commands_of_the_page_have_options_that_there_are() -> None:
    launches = [words[2:] for words in commands(PAGE) if words[:2] == ["accelerate", "launch"]]
    assert len(launches) == 7
    for words in launches:
        arguments = launch_command_parser().parse_args(words)
        assert (ROOT / arguments.config_file).is_file()
        assert (ROOT / arguments.training_script).is_file()
        _, config, *fields = arguments.training_script_args
        assert (ROOT / config).is_file()
        if "--output_dir" in fields:
            del fields[(at := fields.index("--output_dir")) : at + 2]
        fields = [word for word in fields if word != "--resume"]
        load_config(load_recipe(ROOT / arguments.training_script).Config, ROOT / config, fields).check_agreement()
    machines = [words for words in launches if "--num_machines" in words]
    assert len(machines) == 2


def test_the_hub_would_take_the_jobs_of_the_page() -> None:
    jobs = [words for words in commands(PAGE) if words[:3] == ["hf", "jobs", "run"]]
    assert len(jobs) == 3
    for words in jobs:
        done = subprocess.run(
            [Path(sys.executable).parent / "hf", "jobs", "run", "--dry-run", *words[3:]],
            env={**os.environ, "HF_TOKEN": "hf_test", "HF_ENDPOINT": "http://127.0.0.1:9"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert "Job not submitted" in done.stdout
        assert words[-1] in done.stdout.replace("'\"'\"'", "'")


def test_the_table_of_the_page_is_that_of_the_record() -> None:
    written = between(PAGE, MARKER)
    assert written == report(json.loads(RECORD.read_text()))
