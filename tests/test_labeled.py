"""Labeled texts, the strings of the Reber grammar, and the token ids that they become."""

from functools import partial
from itertools import product
from pathlib import Path
from random import Random

import pytest
import torch
from commands import written
from transformers import DataCollatorWithPadding

from hfattn.data import (
    EncodedTexts,
    Labeled,
    LabeledDataConfig,
    LabeledTexts,
    read_labeled,
)
from hfattn.errors import UserError
from hfattn.generated import GENERATED, is_embedded_reber, reber_texts
from hfattn.generated.engine import part_of
from hfattn.generated.reber import SYMBOLS
from hfattn.tokenizers import TokenizerConfig, build_character_tokenizer, build_tokenizer

# Sources


def test_the_same_texts_from_json_lines_and_from_a_tab_separated_file(tmp_path: Path) -> None:
    rows = [("good", "positive", "7"), ("bad \u2028 one", "negative", "2"), ("so-so", "negative", "4")]
    header = "sentence\tlabel\trating\n"
    found = read_labeled(
        written(tmp_path / "texts.tsv", header + "".join("\t".join(row) + "\n" for row in rows)), text_column="sentence"
    )
    assert found.labels == ["negative", "positive"]
    assert found.items == [
        Labeled(text, int(label == "positive"), line, {"rating": rating})
        for line, (text, label, rating) in enumerate(rows, start=2)
    ]
    assert (found.name, len(found), found.place(1)) == ("texts.tsv", 3, "Line 3 of texts.tsv")
    assert found.counts["o"] == 5

    lines = [{"review": {"text": text}, "label": label, "rating": int(rating)} for text, label, rating in rows]
    path = written(tmp_path / "texts.jsonl", lines)
    nested = read_labeled(path, text_column="review.text")
    assert [item[:2] for item in nested] == [item[:2] for item in found]
    assert nested.items[2].fields == {"review": {"text": "so-so"}, "rating": 4}
    assert nested.fingerprint == found.fingerprint
    flipped = read_labeled(path, text_column="review.text", labels=["positive", "negative"])
    assert [item.label for item in flipped] == [1 - item.label for item in found]
    assert flipped.fingerprint == found.fingerprint  # the classes have the same names


LABELS = [
    # written, labels asked for, names, numbers
    ([0, 1, 0], None, ["0", "1"], [0, 1, 0]),
    (["1", "0", "1"], None, ["0", "1"], [1, 0, 1]),
    ([10, 9, -1], None, ["-1", "9", "10"], [2, 1, 0]),
    ([0, 1, 1], ["negative", "positive"], ["negative", "positive"], [0, 1, 1]),
    (["1", "positive", 0], ["negative", "positive"], ["negative", "positive"], [1, 1, 0]),
    (["b", "a", "b"], None, ["a", "b"], [1, 0, 1]),
    (["b", "a", "b"], ["c", "b", "a"], ["c", "b", "a"], [1, 2, 1]),
    ([5, 1, "5"], ["1", "5"], ["1", "5"], [1, 0, 1]),
    ([0, 1, 0], ["1", "0"], ["1", "0"], [1, 0, 1]),  # numbers that are names are these names
]


@pytest.mark.parametrize(("given", "labels", "names", "numbers"), LABELS)
def test_labels_are_names_or_numbers(
    tmp_path: Path, given: list[int | str], labels: list[str] | None, names: list[str], numbers: list[int]
) -> None:
    lines = [{"text": f"text {i}", "label": label} for i, label in enumerate(given)]
    texts = read_labeled(written(tmp_path / "texts.jsonl", lines), labels=labels)
    assert texts.labels == names
    assert [item.label for item in texts] == numbers
    assert read_labeled(tmp_path / "texts.jsonl", labels=texts.labels).items == texts.items  # as another part is read


HEAD = "text\tlabel\n"
BAD: list[tuple[str | bytes, list[str] | None, str]] = [
    ("a\t0\nb\t1\n", None, r"^Line 2 of texts\.tsv has no column 'text'; write one of a, 0 in data\.text_column\.$"),
    (
        HEAD + "a\tgood\nb\tmaybe\n",
        ["bad", "good"],
        r"^Line 3 of texts\.tsv has the label 'maybe', which is not one of",
    ),
    (
        HEAD + "a\t1\nb\t2\n",
        ["bad", "good"],
        r"^Line 3 of texts\.tsv has the label '2', which is not one of bad, good;",
    ),
    (HEAD + "a\t0\nb\t7\n", ["1", "0"], r"^Line 3 of texts\.tsv has the label '7', which is not one of 1, 0;"),
    (
        HEAD + "a\t0\n \t1\n",
        None,
        r"^Line 3 of texts\.tsv has an empty text; fill it in, or remove the row; in a configuration, data\.empty",
    ),
    (HEAD + "a\t0\nb 1\n", None, r"^Line 3 of texts\.tsv has no tab; write the columns text and label on each line"),
    (HEAD + "a\t0\nb\t1\t2\n", None, r"^Line 3 of texts\.tsv has 2 tabs"),
    (HEAD + "a\t0\nb\t0\n", None, r"^The labels of texts\.tsv are 0; write at least two, each once\.$"),
    (HEAD + "a\t0\n", ["x", "x"], r"^The labels of texts\.tsv are x, x; write at least two"),
    ("text\tlabel\ttext\n", None, r"^Line 1 of texts\.tsv names a column twice: .*; rename it, or write the names"),
    (HEAD, None, r"^texts\.tsv is empty; write a text and its label on each line"),
    ("", None, r"^texts\.tsv is empty"),
    (HEAD.encode() + b"a\xe9\t0\n", None, r"^Line 2 of texts\.tsv is not UTF-8"),
]


@pytest.mark.parametrize(("content", "labels", "message"), BAD)
def test_bad_files(tmp_path: Path, content: str | bytes, labels: list[str] | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_labeled(written(tmp_path / "texts.tsv", content), labels=labels)


@pytest.mark.parametrize("label", [True, 0.5, ["a"]])
def test_labels_that_are_neither_names_nor_numbers(tmp_path: Path, label: object) -> None:
    path = written(tmp_path / "texts.jsonl", [{"text": "a", "label": label}])
    with pytest.raises(
        UserError, match=r"^Line 1 of texts\.jsonl has the label .*; write the name or the number of a class"
    ):
        read_labeled(path)


def test_a_split_keeps_equal_texts_together() -> None:
    texts = LabeledTexts("numbers", [Labeled(str(i // 2), i % 2, i) for i in range(200)], ["a", "b"], unit="Row")
    split = partial(texts.split, key=lambda item: item.text, unit="texts")
    parts = split([0.8, 0.1, 0.1], 1)
    assert [len({item.text for item in part}) for part in parts] == [80, 10, 10]
    assert sorted(item.line or 0 for part in parts for item in part) == list(range(200))
    assert all(part.labels == ["a", "b"] for part in parts)
    assert parts[1].place(0) == f"Row {parts[1].items[0].line} of numbers"
    assert [part.items for part in split([0.8, 0.1, 0.1], 1)] == [part.items for part in parts]
    assert split([0.8, 0.2], 2)[0].items != parts[0].items
    with pytest.raises(UserError, match=r"^numbers has 100 texts, and split .* leaves a part empty; add texts"):
        split([0.001, 0.999], 1)


# The Reber grammar


def grammar_strings(longest: int) -> set[str]:
    """All strings of the embedded grammar up to a length, written out from its productions by this test's own hand."""
    follow = {
        "S0": [("B", "S1")],
        "S1": [("T", "S2"), ("P", "S3")],
        "S2": [("S", "S2"), ("X", "S4")],
        "S3": [("T", "S3"), ("V", "S5")],
        "S4": [("X", "S3"), ("S", "S6")],
        "S5": [("P", "S4"), ("V", "S6")],
        "S6": [("E", "")],
    }
    found, open_ends = set(), [("", "S0")]
    while open_ends:
        text, state = open_ends.pop()
        if not state:
            found |= {f"B{end}{text}{end}E" for end in "TP"}
        elif len(text) < longest - 4:
            open_ends += [(text + symbol, after) for symbol, after in follow[state]]
    return found


def test_the_recogniser_agrees_with_all_short_strings() -> None:
    valid = grammar_strings(14)
    # By hand: the two shortest ways through the grammar, within each pair of ends.
    assert {text for text in valid if len(text) == 9} == {f"B{e}{r}{e}E" for e in "TP" for r in ("BTXSE", "BPVVE")}
    assert all(is_embedded_reber(text) for text in valid)
    for length in range(6):
        assert not any(is_embedded_reber("".join(text)) for text in product(SYMBOLS, repeat=length))
    inner = {text[2:-2] for text in valid if len(text) == 9}
    for first, last in product(SYMBOLS, repeat=2):
        for middle in product(SYMBOLS, repeat=3):
            text = f"B{''.join(middle)}E"
            assert is_embedded_reber(f"B{first}{text}{last}E") == (first == last and first in "TP" and text in inner)
    for text in valid:
        for position, symbol in product(range(len(text)), SYMBOLS):
            changed = text[:position] + symbol + text[position + 1 :]
            assert is_embedded_reber(changed) == (changed in valid)
        assert not is_embedded_reber(text + "E")
        assert not is_embedded_reber(text[:-1])


def test_drawn_strings_are_half_valid_distinct_and_apart() -> None:
    parts = {(part, seed): reber_texts(part, 301, seed) for part in GENERATED["reber"].parts for seed in (1, 2)}
    strings = {part: {item.text for seed in (1, 2) for item in parts[part, seed]} for part in GENERATED["reber"].parts}
    assert sum(map(len, strings.values())) == len(set.union(*strings.values()))
    for (part, seed), texts in parts.items():
        assert texts.labels == ["broken", "valid"]
        assert len({item.text for item in texts}) == 301
        assert [item.label for item in texts] == [1, 0] * 150 + [1]
        for item in texts:
            assert is_embedded_reber(item.text) == bool(item.label)
            assert part_of(item.text, train=2) == part
            if item.label:
                assert item.fields == {"broken": "nowhere"}
            else:
                repaired = {
                    position
                    for position, symbol in product(range(len(item.text)), SYMBOLS)
                    if is_embedded_reber(item.text[:position] + symbol + item.text[position + 1 :])
                }
                assert repaired
                ends = item.text[1] != item.text[-2] and {item.text[1], item.text[-2]} == {"T", "P"}
                assert item.fields == {"broken": "end" if ends else "middle"}
        assert reber_texts(part, 200, seed).items == texts.items[:200]
    assert parts["train", 1].fingerprint == "8f1ae4c09bf1db6adc796639270a8026e8e7959945c0cce1cb0c4460bd9889b8"
    assert parts["train", 1].fingerprint != parts["train", 2].fingerprint
    assert {item.fields["broken"] for texts in parts.values() for item in texts} == {"nowhere", "end", "middle"}


# Token ids

TEXTS = LabeledTexts("texts", [Labeled("abcde", 1), Labeled("ab", 0), Labeled("abcd", 1)], ["no", "yes"])


def test_long_texts_keep_their_first_or_last_tokens_or_go() -> None:
    tokenizer = build_character_tokenizer(TEXTS.counts)
    ids = [tokenizer(item.text).input_ids for item in TEXTS]
    first = EncodedTexts(TEXTS, tokenizer, 3)
    assert [first[i] for i in range(3)] == [
        {"input_ids": row[:3], "labels": label} for row, label in zip(ids, (1, 0, 1), strict=True)
    ]
    last = EncodedTexts(TEXTS, tokenizer, 3, too_long="cut_start")
    assert [last[i]["input_ids"] for i in range(3)] == [row[-3:] for row in ids]
    assert first.lengths.tolist() == last.lengths.tolist() == [[3], [2], [3]]
    dropped = EncodedTexts(TEXTS, tokenizer, 4, too_long="drop")
    assert (dropped.dropped, dropped.texts.items) == (1, TEXTS.items[1:])
    assert [dropped[i]["input_ids"] for i in range(len(dropped))] == ids[1:]
    ended = build_character_tokenizer(TEXTS.counts, ends=True)
    for too_long, text in (("cut", "ab"), ("cut_start", "de")):
        assert EncodedTexts(TEXTS, ended, 3, too_long=too_long)[0]["input_ids"] == ended(text).input_ids
    with pytest.raises(UserError, match=r"^Text 2 of texts has a text of 4 tokens; raise data.max_length, which is 3"):
        EncodedTexts(LabeledTexts("texts", TEXTS.items[1:], ["no", "yes"]), tokenizer, 3, too_long="error")
    with pytest.raises(UserError, match=r"^Every text of texts is longer than data.max_length, 1; raise it"):
        EncodedTexts(TEXTS, tokenizer, 1, too_long="drop")
    with pytest.raises(UserError, match=r"^too_long is 'middle'; write one of error, drop, cut, cut_start"):
        EncodedTexts(TEXTS, tokenizer, 3, too_long="middle")


def test_batches_for_a_softmax_and_for_one_sigmoid() -> None:
    tokenizer = build_character_tokenizer(TEXTS.counts)
    tokenizer.padding_side = "right"
    collate = DataCollatorWithPadding(tokenizer)
    for float_labels, labels in ((False, torch.tensor([1, 0, 1])), (True, torch.tensor([[1.0], [0.0], [1.0]]))):
        texts = EncodedTexts(TEXTS, tokenizer, 4, float_labels=float_labels)
        batch = collate([texts[i] for i in range(3)])
        assert torch.equal(batch["labels"], labels)
        assert batch["labels"].dtype == labels.dtype
        assert batch["input_ids"].tolist() == [[1, 2, 3, 4], [1, 2, 0, 0], [1, 2, 3, 4]]
        assert batch["attention_mask"].sum(1).tolist() == [4, 2, 4]
    three = LabeledTexts("three", TEXTS.items, ["a", "b", "c"])
    with pytest.raises(UserError, match=r"^three has 3 classes, and one sigmoid distinguishes two"):
        EncodedTexts(three, tokenizer, 4, float_labels=True)


def test_a_text_without_tokens_is_one_unknown_token() -> None:
    texts = LabeledTexts("texts", [Labeled("a word", 0), Labeled("?!", 1)], ["no", "yes"])
    tokenizer = build_tokenizer(TokenizerConfig(kind="word", strip_punctuation=True), ["a word"], ends=False)
    encoded = EncodedTexts(texts, tokenizer, 10)
    assert tokenizer("?!").input_ids == []
    assert encoded[1] == {"input_ids": [tokenizer.unk_token_id], "labels": 1}
    assert encoded.lengths.tolist() == [[2], [1]]


def test_a_sampler_draws_by_seed_epoch_and_index() -> None:
    tokenizer = build_character_tokenizer("abcdef")

    def shuffled(text: str, generator: Random) -> list[int]:
        ids = tokenizer(text).input_ids
        return ids + [ids[0]] * (generator.random() < 0.5)

    texts = LabeledTexts("texts", [Labeled("abcdef", 0)] * 64, ["no", "yes"])
    encoded = EncodedTexts(texts, tokenizer, 7, sampler=shuffled, seed=3)
    drawn = []
    for epoch in (0, 1, 0):
        encoded.set_epoch(epoch)
        drawn.append([len(encoded[i]["input_ids"]) for i in range(64)])
    assert drawn[0] == drawn[2] != drawn[1]
    assert set(drawn[0]) == {6, 7}
    tight = EncodedTexts(texts, tokenizer, 6, sampler=shuffled, seed=3)
    assert {len(tight[i]["input_ids"]) for i in range(64)} == {6}


def test_a_split_on_the_hub_is_refused_beside_a_local_dataset(tmp_path: Path) -> None:
    path = tmp_path / "reviews.tsv"
    path.write_text("text\tlabel\ngood\t1\nbad\t0\n")
    with pytest.raises(UserError, match=r"is the file .*reviews\.tsv, and 'validation' can only be a split on the Hub"):
        LabeledDataConfig(dataset=str(path), test="validation").read_parts(seed=1)
