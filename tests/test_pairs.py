"""Pairs from files and datasets, and the token ids that they become."""

import io
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import written
from hub_server import HubServer

from hfattn.data import EncodedPairs, Pair, Pairs, is_local, read_pairs
from hfattn.errors import UserError
from hfattn.tokenizers import SubwordSampler, TokenizerConfig, build_character_tokenizer, build_tokenizer

PAIRS = [("A dog.", "Ein Hund."), ("Two  dogs\u2028run\x85.", "Zwei Hunde laufen.")]


def json_lines(rows: Sequence[object]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


# Sources


def test_the_same_pairs_from_every_kind_of_file(tmp_path: Path) -> None:
    written(tmp_path / "pairs.txt", "\ufeff" + "".join(f"{en}\t{de}\r\n" for en, de in PAIRS))
    written(tmp_path / "flat.jsonl", [{"id": 1, "source": en, "target": de} for en, de in PAIRS])
    nested = [{"translation": {"en": en, "de": de}, "a.b": de} for en, de in PAIRS]
    written(tmp_path / "nested.jsonl", nested)
    written(tmp_path / "train.en", "".join(f"{en}\n" for en, _ in PAIRS))
    written(tmp_path / "train.de", "".join(f"{de}\n" for _, de in PAIRS).rstrip("\n"))
    found = {
        "pairs.txt": read_pairs(tmp_path / "pairs.txt"),
        "flat.jsonl": read_pairs(str(tmp_path / "flat.jsonl")),
        "nested.jsonl": read_pairs(
            tmp_path / "nested.jsonl", source_column="translation.en", target_column="translation.de"
        ),
        "train.{en,de}": read_pairs(tmp_path / "train.{en,de}"),
    }
    for name, pairs in found.items():
        assert pairs.name == name
        assert [pair[:2] for pair in pairs] == PAIRS
        assert [pair.line for pair in pairs] == [1, 2]
        assert pairs.counts["."] == 4
        assert pairs.place(1) == f"Line 2 of {name}"
        assert pairs.fingerprint == found["pairs.txt"].fingerprint
        assert is_local(str(tmp_path / name))
    reverse = read_pairs(tmp_path / "train.{de,en}")
    assert [(pair.target, pair.source) for pair in reverse] == PAIRS
    dotted = read_pairs(tmp_path / "nested.jsonl", source_column="translation.en", target_column="a.b")
    assert dotted.fingerprint == found["nested.jsonl"].fingerprint
    assert [dotted.items[0].fields, reverse.items[0].fields] == [{}, {}]
    assert not is_local("user/pairs")


def test_texts_pairs_and_labeled_texts_of_the_hub(tmp_path: Path) -> None:
    """JSON lines without a script, their splits by the names of the files, classes with names, dotted columns."""
    card = (
        "---\ndataset_info:\n  features:\n  - {name: text, dtype: string}\n  - name: label\n    dtype:\n"
        "      class_label: {names: {'0': neg, '1': pos}}\n"
        "configs:\n- config_name: default\n  data_files:\n  - {split: train, path: data.jsonl}\n---\n"
    )
    reviews = [{"text": "fine", "label": 1}, {"text": "bad", "label": 0}, {"text": "who knows", "label": -1}]
    code = """
import json, sys
from hfattn.data import open_text, read_labeled, read_pairs
from hfattn.errors import UserError

def show(read, *arguments, **options):
    try:
        found = read(*arguments, **options)
        print(json.dumps([found.place(0), list(found.items), getattr(found, "labels", None)]))
    except UserError as error:
        print(json.dumps(str(error)))

columns = {"source_column": "translation.en", "target_column": "translation.de"}
show(read_pairs, "me/pairs", **columns)
show(read_pairs, "me/pairs", split="validation", **columns)
show(read_pairs, "me/pairs", source_column="translation.en", target_column="translation.fr")
show(read_pairs, "me/pairs", split="test", **columns)
show(read_labeled, "me/reviews", split="train[:2]")
show(read_labeled, "me/reviews", split="train[:2]", labels=["pos", "neg"])
show(read_labeled, "me/reviews", split="train[:2]", labels=["negative", "positive"])
show(read_labeled, "me/reviews", split="train[:2]", labels=["negative", "pos"])
show(read_labeled, "me/reviews")
show(read_pairs, "me/nothing")
for name, column in (("me/lines", "text"), ("me/lines", "words"), ("me/lines", "n"), ("me/nothing", "text")):
    try:
        print(json.dumps("".join(open_text(name, text_column=column).pieces())))
    except UserError as error:
        print(json.dumps(str(error)))
"""
    lines = ["To be,", "or not to be", "", "señor"]
    buffer = io.BytesIO()
    pd.DataFrame({"text": lines, "n": range(4)}).to_parquet(buffer)
    with HubServer() as hub:
        translations: list[object] = [
            {"id": i, "translation": {"en": en, "de": de}} for i, (en, de) in enumerate(PAIRS)
        ]
        hub.put(
            "dataset",
            "me/pairs",
            {"train.jsonl": json_lines(translations).encode(), "val.jsonl": json_lines(translations[1:]).encode()},
        )
        hub.put("dataset", "me/reviews", {"data.jsonl": json_lines(reviews).encode(), "README.md": card.encode()})
        hub.put("dataset", "me/lines", {"data/train-00000-of-00001.parquet": buffer.getvalue()})
        done = subprocess.run(
            [sys.executable, "-c", code], env=hub.environment(tmp_path), capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    *found, text, no_words, no_text, no_dataset = map(json.loads, done.stdout.splitlines())
    assert text == "\n".join(lines)
    assert no_words == "Row 0 of me/lines has no column 'words'; write one of text, n in data.text_column."
    assert no_text == "Row 0 of me/lines holds 0 in 'n', not text; write another column."
    assert no_dataset.startswith("me/nothing was not found locally or on the Hub; give a file, a folder")
    train, validation, no_column, no_split, named, ordered, renamed, mixed, unlabeled, nothing = found
    assert train == ["Row 0 of me/pairs", [[*pair, "", row, {"id": row}] for row, pair in enumerate(PAIRS)], None]
    assert validation == ["Row 0 of me/pairs", [[*PAIRS[1], "", 0, {"id": 1}]], None]
    assert no_column == (
        "Row 0 of me/pairs has no column 'translation.fr'; write one of id, translation.en, translation.de "
        "in data.target_column."
    )
    assert no_split.startswith("The dataset me/pairs does not load (")
    assert "'train', 'validation'" in no_split
    assert named == [
        "Row 0 of me/reviews",
        [["fine", 1, 0, {}, None, None, None], ["bad", 0, 1, {}, None, None, None]],
        ["neg", "pos"],
    ]
    assert ordered == [
        "Row 0 of me/reviews",
        [["fine", 0, 0, {}, None, None, None], ["bad", 1, 1, {}, None, None, None]],
        ["pos", "neg"],
    ]
    assert renamed == ["Row 0 of me/reviews", named[1], ["negative", "positive"]]
    assert mixed.startswith("The labels are negative, pos, and me/reviews has neg, pos; write these, or another name")
    assert unlabeled.startswith("Row 2 of me/reviews has the label -1, which is not one of neg, pos;")
    assert nothing.startswith("me/nothing was not found locally or on the Hub; give a file, a folder")


BAD: list[tuple[str, dict[str, str | bytes], str]] = [
    ("p.tsv", {"p.tsv": "a\tb\na b\n"}, r"^Line 2 of p\.tsv has no tab; write the columns source and target on each"),
    ("p.tsv", {"p.tsv": "a\tb\n\nc\td"}, r"^Line 2 of p\.tsv has no tab"),
    ("p.tsv", {"p.tsv": "a\tb\nc\t \n"}, r"^Line 2 of p\.tsv has an empty target"),
    ("p.tsv", {"p.tsv": "\tb\n"}, r"^Line 1 of p\.tsv has an empty source"),
    ("p.txt", {"p.txt": "a\tb\tc\td\n"}, r"^Line 1 of p\.txt has 3 tabs; write the columns"),
    ("p.txt", {"p.txt": ""}, r"^p\.txt is empty; write a source and its target on each line"),
    ("p.txt", {"p.txt": b"a\tb\n\xff\tc\n"}, r"^Line 2 of p\.txt is not UTF-8; convert the file"),
    (
        "p.csv",
        {"p.csv": "a,b\nc,d\n"},
        r"^Record 1 of p\.csv has no column 'source'; write one of a, b in data\.source_",
    ),
    ("no.tsv", {}, r"/no\.tsv was not found locally or on the Hub"),
    ("d", {"d/x": "a\tb\n"}, r"^.*/d does not load \(.*\); correct it\.$"),
    ("p.jsonl", {"p.jsonl": '{"source": "a", "target": "b"}\n{"source": \n'}, r"^Line 2 of p\.jsonl is not JSON \(Exp"),
    ("p.jsonl", {"p.jsonl": '["a", "b"]\n'}, r"^Line 1 of p\.jsonl is not a JSON object; write one on each line"),
    (
        "p.jsonl",
        {"p.jsonl": '{"source": "a", "goal": {"en": 1, "de": 2}}\n'},
        r"'target'; write one of source, goal",
    ),
    ("p.jsonl", {"p.jsonl": '{"source": "a", "target": 5}\n'}, r"^Line 1 of p\.jsonl holds 5 in 'target', not text"),
    (
        "p.jsonl",
        {"p.jsonl": '{"source": " \\n", "target": "b"}\n'},
        r"^Line 1 of p\.jsonl has an empty source; fill",
    ),
    ("t.{a,b}", {"t.a": "x\ny\n", "t.b": "x\n"}, r"^t\.a has 2 lines and t\.b has 1; give files whose lines are trans"),
    ("t.{a,b}", {"t.a": "x\ny\n", "t.b": "x\n\n"}, r"^Line 2 of t\.\{a,b\} has an empty target; fill it in, or remove"),
    ("t.{a,b}", {"t.a": "x\n"}, r"^There is no file .*t\.b; write the paths of two parallel files"),
    ("t.{a,b}", {"t.a": "x\n", "t.b": b"\xfe\n"}, r"^Line 1 of t\.b is not UTF-8"),
]


@pytest.mark.parametrize(("source", "files", "message"), BAD)
def test_bad_sources(tmp_path: Path, source: str, files: dict[str, str | bytes], message: str) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        written(tmp_path / name, content)
    with pytest.raises(UserError, match=message) as error:
        read_pairs(tmp_path / source)
    assert "\n" not in str(error.value)


# Token ids

TEXTS = Pairs("texts", [Pair("abcde", "ab"), Pair("ab", "abcdef"), Pair("abc", "abc"), Pair("a", "b")])


def encode(pairs: Pairs = TEXTS, longest: tuple[int, int] = (4, 5), **options: Any) -> EncodedPairs:
    tokenizer = build_character_tokenizer(TEXTS.counts, ends=True)
    return EncodedPairs(pairs, tokenizer, tokenizer, *longest, **options)


def test_what_is_too_long_is_an_error_or_dropped_or_cut() -> None:
    with pytest.raises(
        UserError,
        match=r"^Pair 1 of texts has a source of 6 tokens, its end token included; raise data.max_source_length",
    ):
        encode()
    with pytest.raises(UserError, match=r"^Pair 2 of texts has a target of 7 tokens, .* raise data.max_target_length"):
        encode(longest=(6, 5))
    dropped = encode(too_long="drop")
    assert dropped.dropped == 2
    assert dropped.pairs.items == TEXTS.items[2:]
    assert dropped[0] == {"input_ids": [3, 4, 5, 2], "labels": [3, 4, 5, 2]}
    cut = encode(too_long="cut")
    assert cut.dropped == 0
    assert cut.pairs == TEXTS
    assert cut[0] == {"input_ids": [3, 4, 5, 2], "labels": [3, 4, 2]}
    assert cut[1] == {"input_ids": [3, 4, 2], "labels": [3, 4, 5, 6, 2]}
    assert cut.lengths.tolist() == [[4, 3], [3, 5], [4, 4], [2, 2]]
    assert dropped.lengths.tolist() == [[4, 4], [2, 2]]
    with pytest.raises(UserError, match=r"^Every pair of texts is longer than data.max_source_length, 1, or"):
        encode(longest=(1, 1), too_long="drop")
    with pytest.raises(UserError, match=r"^too_long is 'truncate'; write one of error, drop, cut, cut_start"):
        encode(too_long="truncate")
    assert TEXTS.place(2) == "Pair 3 of texts"
    unknown = Pairs("new.tsv", [Pair("ab", "ab", line=1), Pair("a", "bß", line=7)])
    with pytest.raises(UserError, match=r"^Line 7 of new.tsv has 'ß' \(U\+00DF\), which does not occur in the"):
        encode(unknown)


def test_each_side_has_its_tokenizer() -> None:
    pairs = Pairs("two", [Pair("ab", "yx"), Pair("b", "zz")])
    source = build_character_tokenizer(["ab"], ends=True)
    target = build_character_tokenizer(["xyz"], ends=True)
    encoded = EncodedPairs(pairs, source, target, 9, 9)
    assert [encoded[i] for i in range(2)] == [
        {"input_ids": [3, 4, 2], "labels": [4, 3, 2]},
        {"input_ids": [4, 2], "labels": [5, 5, 2]},
    ]
    assert encoded.lengths.dtype == np.int64


def test_segmentations_are_drawn_anew_and_again_the_same() -> None:
    words = ["the", " low", "er", " new", "est", " wid", " and"]
    generator = Random(0)
    texts = ["".join(generator.choices(words, k=12)) for _ in range(40)]
    pairs = Pairs("words", list(map(Pair, texts[:20], texts[20:])))
    config = TokenizerConfig(kind="bpe", vocab_size=50)
    tokenizer = build_tokenizer(config, texts, ends=True)
    sampler = SubwordSampler(tokenizer, 0.3)
    plain = EncodedPairs(pairs, tokenizer, tokenizer, 500, 500)

    def read(epoch: int, seed: int = 1, **options: Any) -> list[dict[str, list[int]]]:
        encoded = EncodedPairs(pairs, tokenizer, tokenizer, 500, 500, seed=seed, **options)
        encoded.set_epoch(epoch)
        backwards = {i: encoded[i] for i in reversed(range(len(encoded)))}  # any order gives the same
        return [backwards[i] for i in range(len(encoded))]

    first = read(0, sampler=sampler)
    assert first == read(0, sampler=sampler)
    for other in (read(1, sampler=sampler), read(0, seed=2, sampler=sampler), [plain[i] for i in range(20)]):
        assert all(one != two for one, two in zip(first, other, strict=True))
    for pair, item in zip(pairs, first, strict=True):
        assert item["input_ids"][-1] == item["labels"][-1] == tokenizer.eos_token_id
        assert tokenizer.decode(item["input_ids"], skip_special_tokens=True) == pair.source
        assert tokenizer.decode(item["labels"], skip_special_tokens=True) == pair.target
    # Batches by tokens are cut by what is sampled in the first epoch.
    lengths = EncodedPairs(pairs, tokenizer, tokenizer, 500, 500, seed=1, sampler=sampler).lengths
    assert lengths.tolist() == [[len(item["input_ids"]), len(item["labels"])] for item in first]
    sources_only = read(0, sampler=(sampler, None))
    assert [item["input_ids"] for item in sources_only] == [item["input_ids"] for item in first]
    assert [item["labels"] for item in sources_only] == list(plain.ids[1])
    # What is drawn is never longer than what is allowed: there the usual segmentation stands in.
    longest = [int(length) for length in plain.lengths.max(axis=0)]
    tight = EncodedPairs(pairs, tokenizer, tokenizer, *longest, sampler=sampler, seed=1)
    assert tight.lengths.tolist() == [[len(tight[i]["input_ids"]), len(tight[i]["labels"])] for i in range(20)]
    for i, item in enumerate(first):
        for key, most in zip(("input_ids", "labels"), longest, strict=True):
            assert tight[i][key] == (item[key] if len(item[key]) <= most else plain[i][key])
