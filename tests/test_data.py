"""Texts, splits, windows and streams: what a batch holds, in which order, and in how much memory."""

import sys
from collections import Counter
from itertools import pairwise
from math import log
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run_anew
from tokenizers import Tokenizer
from tokenizers.models import BPE
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerFast

from hfattn.data import PermutationSampler, Streams, Text, Windows, encode_text, open_text, split_positions
from hfattn.errors import UserError
from hfattn.tokenizers import build_character_tokenizer

TEXT = "The señor said:\n\t“naïve”\r\n" * 40


def test_embedded_text_is_real_english() -> None:
    text = open_text("embedded")
    assert len(text) > 300_000
    assert "The " in "".join(text.pieces())
    assert text.fingerprint == open_text("embedded").fingerprint


def test_local_file_is_read_exactly_across_the_borders_of_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT.encode())
    for size in (1, 2, 3, 7, 1 << 20):
        monkeypatch.setattr("hfattn.data.text.PIECE_BYTES", size)
        text = open_text(str(path))
        assert "".join(text.pieces()) == TEXT
        assert len(text) == len(TEXT)
        assert text.counts == Counter(TEXT)
    assert text.name == "text.txt"


@pytest.mark.parametrize(("start", "stop"), [(0, 3), (2, 7), (5, 5), (6, 9), (0, 9)])
def test_a_part_of_a_text_is_its_characters_across_the_borders_of_pieces(start: int, stop: int) -> None:
    text = Text("text", lambda: iter(["abc", "", "defg", "hi"]))
    assert "".join(text.part(slice(start, stop)).pieces()) == "abcdefghi"[start:stop]


def test_encoding_equals_the_tokenizer_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, newline="")
    text = open_text(str(path))
    tokenizer = build_character_tokenizer(text.counts, lowercase=True)
    monkeypatch.setattr("hfattn.data.text.PIECE_CHARACTERS", 13)
    encoded = encode_text(text, tokenizer, tmp_path)
    assert encoded.ids.dtype == np.uint8
    assert encoded.ids.tolist() == tokenizer(TEXT).input_ids
    assert [p.name for p in tmp_path.iterdir()] == ["text.txt"]


def test_entropies_are_those_of_a_literal_count(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, newline="")
    text = open_text(str(path))
    encoded = encode_text(text, build_character_tokenizer(text.counts))

    def entropy(counts: Counter) -> float:
        return -sum(c / counts.total() * log(c / counts.total()) for c in counts.values())

    assert encoded.unigram_entropy() == pytest.approx(entropy(Counter(TEXT)))
    pairs = Counter(pairwise(TEXT))
    firsts = Counter(TEXT[:-1])
    conditional = -sum(c / pairs.total() * log(c / firsts[pair[0]]) for pair, c in pairs.items())
    assert encoded.bigram_entropy() == pytest.approx(conditional)


def test_splits() -> None:
    assert split_positions(200, [0.9, 0.05, 0.05]) == [slice(0, 180), slice(180, 190), slice(190, 200)]
    assert split_positions(1_115_394, [1_000_000, 60_000, "rest"]) == [
        slice(0, 1_000_000),
        slice(1_000_000, 1_060_000),
        slice(1_060_000, 1_115_394),
    ]
    assert split_positions(1_115_394, [0.9, 0.1]) == [slice(0, 1_003_854), slice(1_003_854, 1_115_394)]
    splits: list[list[float | int | str]] = [
        [0.9, 0.2],
        [1.0],
        [0.5, "rest"],
        [100, 100],
        [0.5, 0.5, "x"],
        [-1, 3, "rest"],
    ]
    for split in splits:
        with pytest.raises(UserError, match="write shares such as"):
            split_positions(1000, split)
    with pytest.raises(UserError, match="characters and there are 50; write smaller parts"):
        split_positions(50, [40, 20, "rest"])


# Windows

IDS = np.arange(1000) % 251


def test_windows_are_the_text_and_the_character_after_each_step() -> None:
    windows = Windows(IDS, window=10, stride=3)
    assert len(windows) == len(range(0, 1000 - 10, 3))
    batch = windows.__getitems__([0, 7, len(windows) - 1])
    for row, start in enumerate((0, 21, 3 * (len(windows) - 1))):
        assert batch["input_ids"][row].tolist() == IDS[start : start + 10].tolist()
        assert batch["shift_labels"][row].tolist() == IDS[start + 1 : start + 11].tolist()
    assert torch.equal(batch["labels"], batch["shift_labels"])
    assert torch.equal(windows[7]["input_ids"], batch["input_ids"][1])


@pytest.mark.parametrize("n", [11, 20, 21, 22, 995, 1000])
def test_evaluation_windows_predict_every_character_but_the_first_once(n: int) -> None:
    windows = Windows(IDS[:n], window=10, stride=10)
    batch = windows.__getitems__(list(range(len(windows))))
    scored = batch["shift_labels"][batch["shift_labels"] != -100]
    assert scored.tolist() == IDS[1:n].tolist()
    alone = windows.__getitems__([len(windows) - 1])  # what is not scored is still read
    assert alone["input_ids"][0].tolist() == IDS[n - 11 : n - 1].tolist()


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 100, 4097, 20_000])
def test_the_sampler_is_a_permutation_that_changes_with_epoch_and_seed(n: int) -> None:
    sampler = PermutationSampler(n, seed=1)
    first = list(sampler)
    assert sorted(first) == list(range(n))
    assert first == list(sampler)
    sampler.set_epoch(1)
    second = list(sampler)
    assert sorted(second) == list(range(n))
    if n >= 100:
        other = list(PermutationSampler(n, seed=2))
        for a, b in ((first, second), (first, other), (first, range(n)), (first[1:], first[:-1])):
            assert abs(np.corrcoef(a, b)[0, 1]) < 4 / n**0.5
            assert np.mean(np.asarray(a) == np.asarray(b)) < 10 / n


@pytest.mark.examples  # slow
def test_windows_of_a_large_text_need_no_memory_for_it(tmp_path: Path) -> None:
    """Eight times the text, the same anonymous memory: nothing of its size is kept."""
    code = (
        "import ctypes\n"
        "import sys\n"
        "from itertools import islice\n"
        "from torch.utils.data import DataLoader\n"
        "from hfattn.data import Windows, encode_text, open_text\n"
        "from hfattn.tokenizers import build_character_tokenizer\n"
        "text = open_text(sys.argv[1])\n"
        "ids = encode_text(text, build_character_tokenizer(text.counts)).ids\n"
        "windows = Windows(ids, 100)\n"
        "loader = DataLoader(windows, 32, sampler=windows.sampler(0), collate_fn=windows.collate)\n"
        "assert sum(batch['input_ids'].numel() for batch in islice(loader, 200)) == 640000\n"
        "ctypes.CDLL(None).malloc_trim(0)\n"  # what is free counts no more, wherever it lies
        "fields = dict(line.split(':') for line in open('/proc/self/status') if ':' in line)\n"
        "print(len(ids), int(fields['RssAnon'].split()[0]) // 1024)\n"
    )
    used = []
    for megabytes in (2, 16):
        path = tmp_path / f"{megabytes}.txt"
        with path.open("w") as file:
            for i in range(megabytes * 16):
                file.write((f"line {i} of a long text that goes on\n" * 2000)[: 1 << 16])
        # With no memory of another process, and one heap, which gives back what it does not use.
        done = run_anew([sys.executable, "-c", code, path], MALLOC_ARENA_MAX="1", TOKENIZERS_PARALLELISM="false")
        assert done.returncode == 0, done.stderr
        characters, resident = map(int, done.stdout.split())
        assert characters == megabytes << 20
        used.append(resident)
    assert used[1] < used[0] + 8, used


# Streams


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_each_row_of_a_stream_continues_the_row_before(processes: int, batch_size: int) -> None:
    """The batches that accelerate deals out in turn to the processes: each keeps its own rows from start to end."""
    streams = Streams(IDS, window=10, num_streams=batch_size * processes)
    batches = list(DataLoader(streams, batch_size, sampler=streams.sampler(0), collate_fn=streams.collate))
    part = (len(IDS) - 1) // (batch_size * processes)
    for process in range(processes):
        own = batches[process::processes]
        for row in range(batch_size):
            text = torch.cat([batch["input_ids"][row] for batch in own])
            targets = torch.cat([batch["shift_labels"][row] for batch in own])
            start = (process * batch_size + row) * part
            assert text.tolist() == IDS[start : start + len(text)].tolist()
            assert targets.tolist() == IDS[start + 1 : start + 1 + len(text)].tolist()
            assert len(text) == part // 10 * 10


@pytest.mark.parametrize(("length", "num_streams"), [(30, 7), (5, 4), (3, 8), (2, 1)])
def test_streams_for_evaluation_may_be_shorter_than_a_window(length: int, num_streams: int) -> None:
    streams = Streams(IDS[:length], window=10, num_streams=num_streams, keep_tail=True)
    batches = list(DataLoader(streams, num_streams, sampler=streams.sampler(0), collate_fn=streams.collate))
    targets = torch.cat([batch["shift_labels"] for batch in batches], 1)
    assert targets[targets != -100].tolist() == IDS[1:length].tolist()
    with pytest.raises(UserError, match=f"The text has {length} tokens, too few for {num_streams} streams"):
        Streams(IDS[:length], window=10, num_streams=num_streams)


@pytest.mark.parametrize("num_streams", [1, 4, 7])
def test_streams_for_evaluation_predict_every_token_once(num_streams: int) -> None:
    """Up to a token for each stream was left out, although the size of the whole text divides the loss."""
    streams = Streams(IDS, window=10, num_streams=num_streams, keep_tail=True)
    batches = list(DataLoader(streams, num_streams, sampler=streams.sampler(0), collate_fn=streams.collate))
    targets = torch.cat([batch["shift_labels"] for batch in batches], 1)
    assert targets[targets != -100].tolist() == IDS[1:].tolist()
    inputs = torch.cat([batch["input_ids"] for batch in batches], 1)
    assert inputs[targets != -100].tolist() == IDS[:-1].tolist()
    assert len(IDS) == 1000
    assert batches[-1]["input_ids"].shape == (num_streams, {1: 9, 4: 10, 7: 3}[num_streams])


# Bad input


def test_bad_texts(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    with pytest.raises(UserError, match=r"empty\.txt is empty"):
        len(open_text(str(tmp_path / "empty.txt")))
    (tmp_path / "latin.txt").write_bytes(b"x" * 7 + "ñ".encode("latin-1") + b"yy")
    with pytest.raises(UserError, match=r"latin.txt is not UTF-8 \(byte 7\)"):
        len(open_text(str(tmp_path / "latin.txt")))
    (tmp_path / "cut.txt").write_bytes("ñ".encode()[:1])
    with pytest.raises(UserError, match="ends inside a character"):
        len(open_text(str(tmp_path / "cut.txt")))
    with pytest.raises(UserError, match="was not found locally"):
        open_text(str(tmp_path / "none.txt"))
    with pytest.raises(UserError, match="stride of 11 skips characters; write a whole number from 1 to the length"):
        Windows(IDS, 10, 11)
    for short in (Windows, lambda ids, window: Streams(ids, window, 1)):
        with pytest.raises(UserError, match=r"10 (characters|tokens)"):
            short(IDS[:10], 10)
    (tmp_path / "a.txt").write_text("abc")
    with pytest.raises(UserError, match=r"a.txt has 'c' \(U\+0063\)"):
        encode_text(open_text(str(tmp_path / "a.txt")), build_character_tokenizer(["ab"]))
    pairs = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE({"a": 0, "b": 1, "c": 2, "ab": 3}, [("a", "b")])))
    with pytest.raises(UserError, match=r"fewer tokens of a\.txt than it has characters; use one of single characters"):
        encode_text(open_text(str(tmp_path / "a.txt")), pairs)
