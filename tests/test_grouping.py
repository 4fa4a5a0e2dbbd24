"""Splits that keep connected pairs, and the phrases of a sentence, out of each other's parts."""

from collections.abc import Sequence
from itertools import combinations, product
from random import Random

import pytest

from hfattn.data import LabeledDataConfig, LabeledTexts
from hfattn.data.grouping import split_by_phrase, split_by_shared_text
from hfattn.data.labeled import Labeled
from hfattn.errors import UserError

NAMES = ["no", "yes"]


def pairs(*texts: tuple[str, str]) -> LabeledTexts:
    return LabeledTexts("pairs", [Labeled(a, i % 2, i + 1, pair=b) for i, (a, b) in enumerate(texts)], NAMES)


def texts(*texts: str) -> LabeledTexts:
    return LabeledTexts("texts", [Labeled(text, i % 2, i + 1) for i, text in enumerate(texts)], NAMES)


def test_no_text_of_a_pair_is_in_two_parts() -> None:
    random = Random(0)
    drawn = [(f"a{random.randrange(60)}", f"b{random.randrange(60)}") for _ in range(80)]
    parts = split_by_shared_text(pairs(*drawn), [0.6, 0.2, 0.2], seed=3)
    assert sorted(pair for part in parts for pair in map(part.texts, part)) == sorted(drawn)
    seen = [{text for item in part for text in part.texts(item)} for part in parts]
    assert not any(one & other for one, other in combinations(seen, 2))


def test_the_largest_component_is_for_training_and_the_parts_have_their_sizes() -> None:
    chain = [(f"c{i}", f"c{i + 1}") for i in range(40)]  # connected through other pairs only
    single = [(f"s{i}", f"t{i}") for i in range(60)]
    train, validation = split_by_shared_text(pairs(*single, *chain), [0.8, 0.2], seed=1)
    assert [len(train), len(validation)] == [80, 20]
    assert {pair for pair in map(train.texts, train) if pair[0].startswith("c")} == set(chain)


def occurs(phrase: str, sentence: str) -> bool:
    words, others = phrase.split(), sentence.split()
    return any(others[i : i + len(words)] == words for i in range(len(others)))


def test_phrases_of_three_words_that_occur_in_a_sentence_of_another_part_leave_training() -> None:
    random = Random(0)
    sentences = [" ".join(random.choices("abcdefgh", k=random.randrange(5, 9))) for _ in range(40)]
    phrases = []
    for sentence in sentences:
        words = sentence.split()
        for length in (1, 2, 3, 4):
            start = random.randrange(len(words) - length + 1)
            phrases.append(" ".join(words[start : start + length]) + " ")  # SST-2 ends each phrase with a space
    every = texts(*phrases, *sentences)
    train, validation, test = split_by_phrase(every, [0.8, 0.1, 0.1], seed=2)

    wholes = {s for s in sentences if not any(s != other and occurs(s, other) for other in sentences)}
    held_out = [item.text for item in (*validation.items, *test.items)]
    assert set(held_out) <= wholes
    assert [len({item.text for item in part}) for part in (validation, test)] == [len(wholes) // 10] * 2
    left_out = [
        item.text
        for item in every
        if len(item.text.split()) >= 3 and any(occurs(item.text, sentence) for sentence in held_out)
    ]
    assert len(left_out) > len(held_out)  # not only the sentences themselves
    assert [item.text for item in train] == [item.text for item in every if item.text not in left_out]
    assert {item.label for item in train} == {0, 1}


def test_the_same_seed_gives_the_same_parts() -> None:
    sentences = texts(*(f"this is sentence {i}" for i in range(30)))
    one, same, other = (split_by_phrase(sentences, [0.5, 0.5], seed)[0].items for seed in (1, 1, 2))
    assert one == same != other


@pytest.mark.parametrize("split", [[0.9, 0.1], [0.5, 0.5]])
def test_an_empty_part_is_refused(split: Sequence[float]) -> None:
    connected = pairs(*product("ab", "cd"))
    with pytest.raises(UserError, match=r"1 groups of connected pairs, and split .* leaves a part empty"):
        split_by_shared_text(connected, split, seed=1)
    with pytest.raises(UserError, match=r"1 groups of connected questions, .* add groups of connected questions"):
        split_by_shared_text(connected, split, seed=1, unit="questions")
    with pytest.raises(UserError, match=r"1 sentences, and split .* leaves a part empty"):
        split_by_phrase(texts("one sentence here"), split, seed=1)


@pytest.mark.parametrize(
    ("split_by", "pair_column", "sentence"),
    [
        ("shared_text", None, "split_by: shared_text is for pairs"),
        ("phrase", "hypothesis", "split_by: phrase is for single texts"),
        ("sentence", None, "is 'sentence'; write one of text, shared_text, phrase"),
    ],
)
def test_a_split_that_does_not_fit_the_columns_is_refused(
    split_by: str, pair_column: str | None, sentence: str
) -> None:
    with pytest.raises(Exception, match=sentence):
        LabeledDataConfig(dataset="data.tsv", split_by=split_by, pair_column=pair_column)
