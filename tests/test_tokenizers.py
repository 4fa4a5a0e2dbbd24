"""Tokenizers: exact round trips, a plain tokenizer.json, the same from the same texts; and sampled segmentations."""

import json
import math
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from itertools import combinations, compress, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run
from tokenizers import models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from hfattn.errors import UserError
from hfattn.tokenizers import (
    SubwordSampler,
    TokenizerConfig,
    build_character_tokenizer,
    build_tokenizer,
    uncovered_characters,
)
from hfattn.tokenizers.learned import _reversible, _word_counts
from hfattn.tokenizers.unigram import LONGEST, Lattices, lattice_edges, learn_pieces, pieces_at, strings_by_length
from hfattn.training.config import checked

TEXTS = [
    "To be, or not to be.\nThat is\tthe question:\r\n  two  spaces  \x0b\x0c\x85\u2028",
    "¡Año, pingüino, corazón! «ß» ﬁ ½ ①",
    "漢字かな交じり文、한국어 ไทย हिन्दी עברית العربية",
    "e\u0301 é 👩‍👩‍👧 🇪🇸 \u200d\ufeff\u00ad\x00\x7f",
    "[PAD] [UNK] [EOS] [BOS] <s> ##a Ġ ▁ \\n ''' \"",
]


@pytest.mark.parametrize("options", [{}, {"ends": True}, {"ends": True, "unknown": True}])
@pytest.mark.parametrize("text", TEXTS)
def test_round_trip_is_exact(tmp_path: Path, text: str, options: dict[str, bool]) -> None:
    tokenizer = build_character_tokenizer([text], **options)
    tokenizer.save_pretrained(tmp_path)
    for each in (tokenizer, AutoTokenizer.from_pretrained(tmp_path)):
        ids = each(text).input_ids
        if options:
            assert ids.pop() == each.eos_token_id
            assert (each.bos_token, each.padding_side) == ("[BOS]", "right")
        assert len(ids) == len(text)
        assert each.decode(ids) == text
        assert not {each.pad_token_id, each.eos_token_id} & set(ids)  # "[PAD]" in a text is five characters


def test_a_process_without_hfattn_loads_it_with_no_custom_code(tmp_path: Path) -> None:
    text = "".join([*TEXTS, "2"])
    kinds = {
        "lower": {"lowercase": True, "unknown": True},
        "ends": {"ends": True},
        "both": {"ends": True, "unknown": True},
    }
    tokenizers = {name: build_character_tokenizer([text], **options) for name, options in kinds.items()}
    for name, tokenizer in tokenizers.items():
        tokenizer.save_pretrained(tmp_path / name)
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["tokenizer.json", "tokenizer_config.json"]
        assert "auto_map" not in json.loads((tmp_path / name / "tokenizer_config.json").read_text())
    code = (
        "import sys, json\n"
        "sys.modules['hfattn'] = None\n"
        "from transformers import AutoTokenizer\n"
        "texts, *folders = sys.argv[1:]\n"
        "for folder in folders:\n"
        "    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)\n"
        "    print(json.dumps(tokenizer(json.loads(texts), padding=True).input_ids))\n"
    )
    done = run([sys.executable, "-c", code, json.dumps([text, "2"]), *kinds], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for printed, tokenizer in zip(done.stdout.splitlines(), tokenizers.values(), strict=True):
        assert json.loads(printed) == tokenizer([text, "2"], padding=True).input_ids


def test_vocabulary_and_options() -> None:
    tokenizer = build_character_tokenizer(["bAab"])
    assert tokenizer.get_vocab() == {"[PAD]": 0, "A": 1, "a": 2, "b": 3}
    lower = build_character_tokenizer({"b": 2, "A": 1, "a": 1, "İ": 1}, lowercase=True, min_count=2, unknown=True)
    assert lower.get_vocab() == {"[PAD]": 0, "[UNK]": 1, "a": 2, "b": 3}
    assert lower("BAz").input_ids == [3, 2, 1]
    # One capital may become several characters, each by itself: İ is i and a dot above.
    assert build_character_tokenizer(["İ"], lowercase=True).decode([1, 2]) == "i̇"


def test_batches_are_padded_on_the_left() -> None:
    tokenizer = build_character_tokenizer(["abc"])
    batch = tokenizer(["a", "cab"], padding=True, return_tensors="pt")
    assert batch.input_ids.tolist() == [[0, 0, 1], [3, 1, 2]]
    assert batch.attention_mask.tolist() == [[0, 0, 1], [1, 1, 1]]
    assert set(batch) == {"input_ids", "attention_mask"}
    assert tokenizer.batch_decode(batch.input_ids, skip_special_tokens=True) == ["a", "cab"]


def test_uncovered_characters() -> None:
    tokenizer = build_character_tokenizer(["abc"], lowercase=True)
    assert uncovered_characters(tokenizer, "ABCzz!") == ["!", "z"]
    assert uncovered_characters(build_character_tokenizer(["abc"], unknown=True), "z") == []


def test_bad_input() -> None:
    with pytest.raises(UserError, match="The text is empty"):
        build_character_tokenizer([])
    with pytest.raises(UserError, match="add unknown: true"):
        build_character_tokenizer(["abc"], min_count=2)
    with pytest.raises(UserError, match="vocabulary is empty; lower min_count"):
        build_character_tokenizer(["abc"], min_count=2, unknown=True)


LEARNED = ("word", "bpe", "unigram", "wordpiece")
CORPUS = [
    "¿Dónde está la estación? ¡Ahí!",
    "The station is there, while the other stations are closed.",
    "¡No me digas que «no» es un sí!",
    "\"Tom's dogs,\" she said, 'don't bark'; they aren’t loud.",
    "  two  leading spaces, and one at the end ",
    "He was reading while she was walking; they weren't talking.",
    "Le pregunté por qué no estaba leyendo mientras ella caminaba.",
    "A well-made table, 3.5 m long (or 4), costs 1,000 €... roughly!?",
    "[PAD] and [UNK], and [BOS] and [EOS] too",
    "tabs\tand\nlines\r\n stay ▁ as _they_ ##are",
]


def build(kind: str, *, ends: bool = True, **options: Any) -> PreTrainedTokenizerFast:
    return build_tokenizer(TokenizerConfig(kind=kind, **options), CORPUS, ends=ends)


@pytest.mark.parametrize("split_digits", [False, True])
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_subwords_give_the_raw_text_back(tmp_path: Path, kind: str, split_digits: bool) -> None:
    tokenizer = build(kind, vocab_size=150, split_digits=split_digits)
    tokenizer.save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokenizer.json", "tokenizer_config.json"]
    loaded = AutoTokenizer.from_pretrained(tmp_path, trust_remote_code=False)
    for text in [*CORPUS, "", " ", "   ", "\n", "'", "¿¡?!", "''don't'' ", " (a) ", "a  b\t\tc", "[PAD][EOS]", "▁ a ▁"]:
        ids = tokenizer(text).input_ids
        assert ids == loaded(text).input_ids
        assert ids[-1] == tokenizer.eos_token_id
        assert not {0, 1, 2} & set(ids)  # "[PAD]" and "[UNK]" in a text are characters
        assert loaded.decode(ids, skip_special_tokens=True) == text
    for token in tokenizer.get_vocab():
        assert not (token[-1].isspace() and token.strip()), "a subword goes on into the next word"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_each_digit_is_a_token(kind: str) -> None:
    dates = [f"in {year}-0{year % 9 + 1}, sentence{year % 2}" for year in range(1990, 2020)]
    config = TokenizerConfig(kind=kind, vocab_size=60, split_digits=True)
    tokenizer = build_tokenizer(config, dates, ends=False)
    assert tokenizer.tokenize("in 5786") == [" in", " ", "5", "7", "8", "6"]  # no training text has this year
    assert tokenizer.tokenize("sentence1") == [" sentence", "1"]
    assert tokenizer.tokenize("2011-05") == [" ", *"2011-05"]
    assert not [token for token in tokenizer.get_vocab() if len(token) > 1 and any(map(str.isdigit, token))]
    whole = build_tokenizer(TokenizerConfig(kind=kind, vocab_size=60), dates, ends=False)
    assert any(token.strip().isdigit() and len(token.strip()) > 1 for token in whole.get_vocab())


@pytest.mark.parametrize("kind", LEARNED)
def test_symbols_size_and_padding(kind: str) -> None:
    size = 60 if kind == "word" else 120
    for ends, symbols in ((True, ["[PAD]", "[UNK]", "[BOS]", "[EOS]"]), (False, ["[PAD]", "[UNK]"])):
        tokenizer = build(kind, vocab_size=size, ends=ends)
        vocabulary = tokenizer.get_vocab()
        assert sorted(vocabulary.values()) == list(range(size))
        assert sorted(vocabulary, key=vocabulary.__getitem__)[: len(symbols)] == symbols
        batch = tokenizer(["the", "the stations"], padding=True).input_ids
        assert batch[0][-1] == 0
        assert batch[1][-1] == (3 if ends else batch[1][-1])
    left = build_tokenizer(TokenizerConfig(kind=kind, vocab_size=size), CORPUS, ends=False, padding_side="left")
    assert left(["the", "the stations"], padding=True).input_ids[0][0] == 0


@pytest.mark.parametrize("kind", LEARNED)
def test_the_same_texts_in_any_order_give_the_same_tokenizer(kind: str) -> None:
    # The library's maps are seeded anew each time, also within a process.
    results = set()
    for seed in range(4):
        texts = random.Random(seed).sample(CORPUS, len(CORPUS))
        tokenizer = build_tokenizer(TokenizerConfig(kind=kind, vocab_size=120), texts, ends=True)
        results.add(tokenizer.backend_tokenizer.to_str())
    assert len(results) == 1


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_the_smallest_vocabulary_is_named(kind: str) -> None:
    with pytest.raises(UserError, match=r"vocab_size 7 is too small .*; write at least \d+\.") as caught:
        build(kind, vocab_size=7)
    least = int(str(caught.value).split()[-1].rstrip("."))
    assert len(build(kind, vocab_size=least)) == least
    with pytest.raises(UserError, match="is too small"):
        build(kind, vocab_size=least - 1)
    # No more than the texts have: [PAD], [UNK], the space, two letters and what they make.
    assert len(build_tokenizer(TokenizerConfig(kind=kind, vocab_size=999), ["ab ab ab"], ends=False)) < 12


def test_characters_that_training_did_not_see_are_unknown() -> None:
    for kind, unknown in (("bpe", 2), ("unigram", 1), ("wordpiece", 1), ("word", 1)):
        tokenizer = build(kind, vocab_size=110)
        assert tokenizer("the 漢字").input_ids.count(1) == unknown
        assert 1 not in tokenizer("the station").input_ids


def test_subwords_in_lower_case() -> None:
    for kind in ("bpe", "unigram"):
        tokenizer = build(kind, vocab_size=150, lowercase=True)
        for text in CORPUS:
            assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == text.lower()


def test_words() -> None:
    texts = ["b a, a. B don't well-made 'a'", "b, don't"]
    tokenizer = build_tokenizer(TokenizerConfig(kind="word"), texts, ends=False)
    # By frequency, then by code point; a quotation mark is not part of a word.
    words = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    assert words == ["[PAD]", "[UNK]", "a", "'", ",", "b", "don't", ".", "B", "well-made"]
    assert tokenizer.decode(tokenizer("b don't,  x").input_ids) == "b don't , [UNK]"
    stripped = build_tokenizer(
        TokenizerConfig(kind="word", vocab_size=5, lowercase=True, strip_punctuation=True), texts, ends=False
    )
    assert stripped.get_vocab() == {"[PAD]": 0, "[UNK]": 1, "a": 2, "b": 3, "dont": 4}
    assert stripped("¡Don’t! B-a $ made").input_ids == [4, 3, 2, 1]
    frequent = build_tokenizer(TokenizerConfig(kind="word", min_count=3), texts, ends=False)
    assert frequent.get_vocab() == {"[PAD]": 0, "[UNK]": 1, "a": 2}
    with pytest.raises(UserError, match="No word occurs 9 times"):
        build_tokenizer(TokenizerConfig(kind="word", min_count=9), texts, ends=False)
    with pytest.raises(UserError, match="too small for the special tokens and a word; write at least 5"):
        build_tokenizer(TokenizerConfig(kind="word", vocab_size=4), texts, ends=True)


def test_symbols_between_white_space() -> None:
    texts = ["[MAX 2 [MIN 4 7 ] ]", "don't  [MAX\n9"]
    tokenizer = build_tokenizer(TokenizerConfig(kind="whitespace"), texts, ends=False)
    assert tokenizer.tokenize(texts[1]) == ["don't", "[MAX", "9"]
    assert tokenizer.decode(tokenizer(texts[0]).input_ids) == texts[0]
    assert tokenizer.tokenize("[MED 2") == ["[UNK]", "2"]


def test_bytes() -> None:
    tokenizer = build_tokenizer(TokenizerConfig(kind="byte"), [], ends=True)
    text = "Señor [PAD]\n  漢字 🙂"
    ids = tokenizer(text).input_ids
    assert (len(ids), len(tokenizer)) == (len(text.encode()) + 1, 256 + 3)
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    every = bytes(range(256)).decode("latin-1")
    assert tokenizer.decode(tokenizer(every).input_ids[:-1]) == every
    assert tokenizer.unk_token is None


def test_word_pieces_are_put_together_again() -> None:
    tokenizer = build("wordpiece", vocab_size=150)
    for text in (CORPUS[0], CORPUS[1], CORPUS[5], "¡No me digas que «no»!", "don't (or do); well-made, aren’t"):
        assert any(token.startswith("##") for token in tokenizer.tokenize(text))
        assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == text


def test_characters_by_their_name(tmp_path: Path) -> None:
    for ends in (False, True):
        tokenizer = build_tokenizer(TokenizerConfig(lowercase=True, unknown=True), CORPUS, ends=ends)
        same = build_character_tokenizer(CORPUS, lowercase=True, unknown=True, ends=ends)
        assert tokenizer.get_vocab() == same.get_vocab()
        assert tokenizer.padding_side == "right"
    # Counts of characters, and the side that a recurrent language model needs, also once it is saved.
    config = TokenizerConfig(min_count=2, unknown=True)
    counted = build_tokenizer(config, {"a": 2, "b": 1}, ends=False, padding_side="left")
    assert counted.get_vocab() == {"[PAD]": 0, "[UNK]": 1, "a": 2}
    counted.save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path)(["a", "aa"], padding=True).input_ids == [[0, 2], [2, 2]]


def segmentations(word: str, pieces: Collection[str]) -> Iterator[list[str]]:
    if not word:
        yield []
    for end in range(1, len(word) + 1):
        if word[:end] in pieces:
            for rest in segmentations(word[end:], pieces):
                yield [word[:end], *rest]


def edges_of(words: list[str], pieces: list[str], proper: bool) -> set[tuple[int, int, int, int]]:
    return {
        (number, start, end, pieces.index(word[start:end]))
        for number, word in enumerate(words)
        for start, end in combinations(range(len(word) + 1), 2)
        if word[start:end] in pieces and not (proper and 1 < len(word) == end - start)
    }


def test_strings_of_words_against_a_literal_loop() -> None:
    """Also words that are longer than the longest piece, and characters outside the basic plane."""
    draw = random.Random(1)
    for letters in ("ab", "aé漢🙂", " abcdefgh"):
        words = sorted({"".join(draw.choices(letters, k=draw.randint(1, 25))) for _ in range(60)})
        frequencies = [draw.randint(1, 3) for _ in words]
        counts: Counter[str] = Counter()
        for word, frequency in zip(words, frequencies, strict=True):
            for start, end in combinations(range(len(word) + 1), 2):
                if end - start <= LONGEST:
                    counts[word[start:end]] += frequency
        inner = {part for piece, n in counts.items() for part in (piece[1:], piece[:-1]) if counts[part] == n}
        candidates = sorted(piece for piece, n in counts.items() if n > 1 and piece not in inner)

        strings, text = strings_by_length(words, np.array(frequencies, dtype=float)), "".join(words)
        found = {
            text[start : start + each.length]: (start, count)
            for each in strings
            for start, count in zip(each.first[each.kept], each.counts[each.kept], strict=True)
        }
        assert {piece: count for piece, (_, count) in found.items()} == {piece: counts[piece] for piece in candidates}

        pieces = sorted(draw.sample(candidates, 10))
        starts, lengths = (np.array(each) for each in ([found[piece][0] for piece in pieces], list(map(len, pieces))))
        at = list(pieces_at(strings, starts, lengths, len(text)))
        sizes = np.array([len(word) for word in words])
        for items, begin, length in ((words, np.cumsum(sizes) - sizes, sizes), (pieces, starts, lengths)):
            for proper in (False, True):
                rows = lattice_edges(begin, length, at, proper).tolist()
                assert len(rows) == len(edges_of(items, pieces, proper))
                assert set(map(tuple, rows)) == edges_of(items, pieces, proper)


@pytest.mark.parametrize("lowercase", [False, True])
def test_words_are_counted_as_texts_are_split(lowercase: bool) -> None:
    backend = _reversible(TokenizerConfig(kind="unigram", vocab_size=9, lowercase=lowercase), models.Unigram())
    draw, letters = random.Random(1), "ab'’-. \t\n\u00a0\u2009\x1c\u200b漢É?ΣİSs  "
    for _ in range(1000):
        texts = ["".join(draw.choices(letters, k=draw.randint(0, 14))) for _ in range(3)]
        split = [backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(text)) for text in texts]
        assert _word_counts(backend, texts) == Counter(word for words in split for word, _ in words)


def test_lattices_against_every_segmentation() -> None:
    words, frequencies = ["abab", "a", "bbabb", "ba"], np.array([3.0, 2.0, 1.0, 5.0])
    pieces = ["a", "b", "ab", "ba", "abab", "bb", "abb"]
    scores = np.log(np.random.default_rng(0).dirichlet(np.ones(len(pieces))))
    kept = np.array([piece != "ab" for piece in pieces])
    for proper in (False, True):
        lengths = np.array([len(word) for word in words])
        lattices = Lattices(lengths, np.array(sorted(edges_of(words, pieces, proper))))
        for mask, words_mask in ((None, None), (kept, np.array([True, False, True, True]))):
            left, mine = list(zip(pieces, scores, strict=True)), list(zip(words, frequencies, strict=True))
            if mask is not None and words_mask is not None:
                lattices.keep(mask, words_mask)
                left, mine = list(compress(left, mask)), list(compress(mine, words_mask))
            table = dict(left)
            expected, totals = dict.fromkeys(table, 0.0), []
            for word, frequency in mine:
                paths = [p for p in segmentations(word, table) if not proper or len(p) > 1 or len(word) == 1]
                weights = [math.exp(sum(table[piece] for piece in path)) for path in paths]
                totals.append(math.log(sum(weights)))
                for path, weight in zip(paths, weights, strict=True):
                    for piece in path:
                        expected[piece] += frequency * weight / sum(weights)
            values = np.array(list(table.values()))
            np.testing.assert_allclose(lattices.log_likelihoods(values), totals, rtol=1e-12)
            counts = lattices.expected_counts(values, np.array([frequency for _, frequency in mine]))
            np.testing.assert_allclose(counts, list(expected.values()), rtol=1e-12, atol=1e-12)


def test_learned_pieces() -> None:
    # "while" only ever ends a word, and "ing" too; a vocabulary of the library's trainer has neither.
    counts = {" while": 30, " whilst": 2, " reading": 9, " walking": 8, " talking": 7, " king": 5, " x": 1}
    pieces = learn_pieces(counts, 30)
    assert len(pieces) <= 30
    assert {" while", "ing"} <= pieces.keys()
    assert set("".join(counts)) <= pieces.keys()
    assert sum(map(math.exp, pieces.values())) == pytest.approx(1, abs=1e-4)
    assert list(pieces.values()) == sorted(pieces.values(), reverse=True)
    # 3,000 of 4,000 words are ab, which becomes one piece: EM is on its way to 3/4 (an a within ab is not a word a).
    assert math.exp(learn_pieces({"ab": 3000, "a": 1000}, 3)["ab"]) == pytest.approx(0.75, abs=0.1)
    assert len(learn_pieces(counts, 16)) == len(set("".join(counts))) + 1 == 16


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_unigram_samples_every_segmentation_as_often_as_it_should(alpha: float) -> None:
    tokenizer = build("unigram", vocab_size=150)
    scores = dict(json.loads(tokenizer.backend_tokenizer.to_str())["model"]["vocab"][4:])
    words = [" while", " reading"]  # no subword crosses from one to the other
    weights: dict[str, float] = {}
    for path in product(*(list(segmentations(word, scores)) for word in words)):
        tokens = [token for part in path for token in part]
        weights["|".join(tokens)] = math.exp(alpha * sum(scores[token] for token in tokens))
    total, draws = sum(weights.values()), 20_000
    sample, rng = SubwordSampler(tokenizer, alpha), random.Random(0)
    text = "while reading"
    drawn = Counter("|".join(tokenizer.convert_ids_to_tokens(sample(text, rng)[:-1])) for _ in range(draws))
    assert drawn.keys() <= weights.keys()
    assert len(weights) > 50
    for pieces, weight in weights.items():
        share = weight / total
        assert abs(drawn[pieces] / draws - share) < 4.5 * math.sqrt(share * (1 - share) / draws) + 1 / draws


def dropped(pieces: tuple[str, ...], ranks: dict[tuple[str, ...], int], p: float) -> dict[tuple[str, ...], float]:
    """The probability of each outcome of BPE-dropout, through every set of merges that may be left out."""
    possible = [i for i in range(len(pieces) - 1) if pieces[i : i + 2] in ranks]
    outcomes: dict[tuple[str, ...], float] = defaultdict(float)
    for kept in product([False, True], repeat=len(possible)):
        probability = math.prod(1 - p if keep else p for keep in kept)
        merges = [(ranks[pieces[i : i + 2]], i) for i in compress(possible, kept)]
        if not merges:
            outcomes[pieces] += probability
            continue
        _, i = min(merges)
        after = (*pieces[:i], pieces[i] + pieces[i + 1], *pieces[i + 2 :])
        for outcome, share in dropped(after, ranks, p).items():
            outcomes[outcome] += probability * share
    return outcomes


def test_bpe_dropout_against_every_choice_of_merges() -> None:
    tokenizer = build("bpe", vocab_size=150)
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    expected = dropped(tuple(" while"), {tuple(merge): rank for rank, merge in enumerate(merges)}, 0.4)
    assert sum(expected.values()) == pytest.approx(1)
    assert len(expected) > 5
    sample, rng, draws = SubwordSampler(tokenizer, 0.4), random.Random(0), 20_000
    drawn = Counter(tuple(tokenizer.convert_ids_to_tokens(sample("while", rng)[:-1])) for _ in range(draws))
    assert drawn.keys() <= expected.keys()
    for outcome, share in expected.items():
        assert abs(drawn[outcome] / draws - share) < 4.5 * math.sqrt(share * (1 - share) / draws) + 1 / draws


@pytest.mark.parametrize(("kind", "own", "usual"), [("unigram", 1e3, 0.2), ("bpe", 1e-12, 0.1)])
def test_samples(tmp_path: Path, kind: str, own: float, usual: float) -> None:
    build(kind, vocab_size=150).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path, trust_remote_code=False)
    texts = [*CORPUS, "漢字 the 漢", ""]
    # At one end of its range, sampling is what the tokenizer does anyway, unknown characters included. Segmentations
    # of the same pieces in another order have the same probability.
    same = SubwordSampler(tokenizer, own)
    for text in texts:
        drawn, usually = same(text, random.Random(0)), tokenizer(text).input_ids
        assert (sorted(drawn), drawn[-1]) == (sorted(usually), usually[-1]) if kind == "unigram" else drawn == usually
    sample = SubwordSampler(tokenizer, usual)
    for text in CORPUS:
        epochs = [sample(text, np.random.default_rng((1, epoch, 7))) for epoch in range(5)]
        assert len({tuple(ids) for ids in epochs}) > 1
        assert all(ids[-1] == tokenizer.eos_token_id for ids in epochs)
        assert tokenizer.batch_decode(epochs, skip_special_tokens=True) == [text] * 5
        # Another object, with the same seed, in another order: what a resumed run does.
        assert SubwordSampler(tokenizer, usual)(text, np.random.default_rng((1, 3, 7))) == epochs[3]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "bpee"}, "'bpee' is not a kind of tokenizer; did you mean 'bpe'?"),
        ({"kind": "bpe"}, "kind bpe needs a vocab_size; write how many"),
        ({"kind": "char", "vocab_size": 50}, "vocab_size does not apply to kind char; remove it"),
        ({"kind": "word", "vocab_size": 0}, "vocab_size is 0; write a whole number"),
        ({"kind": "bpe", "vocab_size": 50, "unknown": True}, "unknown applies to kind char; remove it"),
        ({"kind": "bpe", "vocab_size": 50, "min_count": 2}, "min_count applies to kinds char and word; remove it"),
        ({"kind": "word", "min_count": 0}, "min_count is 0; write a whole number"),
        ({"kind": "char", "min_count": 2}, "add unknown: true"),
        ({"kind": "byte", "vocab_size": 300}, "do not apply to kind byte, which has all bytes; remove them"),
        ({"kind": "byte", "unknown": True}, "remove it, because kind byte knows all bytes"),
        ({"kind": "char", "strip_punctuation": True}, "strip_punctuation applies to kind word; remove it"),
        ({"kind": "wordpiece", "vocab_size": 50, "split_digits": True}, "split_digits applies to kinds bpe and uni"),
        ({"kind": "word", "sampling": 0.1}, "sampling is for kinds bpe and unigram; leave it out of kind word"),
        ({"kind": "wordpiece", "vocab_size": 50, "sampling": 0.1}, "leave it out of kind wordpiece"),
        (
            {"kind": "bpe", "vocab_size": 50, "sampling": 1},
            "sampling is 1; write the probability of dropping a merge, such as 0.1",
        ),
        ({"kind": "unigram", "vocab_size": 50, "sampling": -0.1}, "write a positive alpha such as 0.2"),
        ({"kind": "unigram", "vocab_size": 50, "sampling": math.nan}, "write a positive alpha such as 0.2"),
        ({"kind": "bpe", "vocab_size": "many"}, "vocab_size.*write a value of that type"),
    ],
)
def test_bad_configuration(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message.replace("?", r"\?")):
        checked(TokenizerConfig, fields, "tokenizer.")


def test_bad_texts_and_samplers() -> None:
    config = TokenizerConfig(kind="bpe", vocab_size=50)
    for texts in ([], ["", "  "]):
        with pytest.raises(UserError, match="The texts are empty"):
            build_tokenizer(config, texts, ends=True)
    with pytest.raises(TypeError, match="learns from a list of texts, not Counter"):
        build_tokenizer(config, Counter("abc"), ends=True)
    with pytest.raises(TypeError, match="learns from a list of texts, not str"):
        build_tokenizer(config, "abc", ends=True)
    with pytest.raises(UserError, match="sampling is for kinds bpe and unigram; leave it out of kind wordlevel"):
        SubwordSampler(build("word"), 0.1)
    with pytest.raises(UserError, match="write a positive alpha"):
        SubwordSampler(build("unigram", vocab_size=150), 0)
