"""Nearest words and analogies: against literal loops, from every kind of file, and what cannot be read."""

import math
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from commands import ROOT, written
from typer.testing import CliRunner

from hfattn.baselines import (
    BaselineClassifier,
    ClassifierConfig,
    CleaningConfig,
    FeaturesConfig,
    VectorsConfig,
    analogy_scores,
    load_words,
    nearest_words,
    neighbours,
)
from hfattn_cli import app

# The first number says which sex, the second royal or not; the others keep the lengths apart.
VECTORS = {
    "man": [2.0, 0.1, 0.3],
    "woman": [-2.0, 0.1, 0.3],
    "king": [4.0, 4.0, 0.0],
    "queen": [-3.0, 3.0, 0.1],
    "boy": [1.0, 0.0, -1.0],
    "girl": [-1.0, 0.0, -1.0],
    "so-so": [0.0, 0.1, 5.0],
}
QUESTIONS = (
    ": family\nman woman King Queen\nboy girl man woman\n\n: other\nman king woman uncle\n"
    ": family\nman king boy so-so\n"
)


def text_file(folder: Path) -> Path:
    lines = (f"{word} {' '.join(map(str, row))}\n" for word, row in [*VECTORS.items(), ("man", [9.0, 9.0, 9.0])])
    return written(folder / "vectors.txt", "".join(lines))


def unit(row: Sequence[float]) -> list[float]:
    length = math.sqrt(sum(value * value for value in row))
    return [value / length for value in row]


def literal(signs: dict[str, int], words: dict[str, list[float]]) -> list[tuple[str, float]]:
    """The words by their cosine with the sum of unit vectors, without those of the sum."""
    total = [sum(sign * unit(words[word])[i] for word, sign in signs.items()) for i in range(len(words["man"]))]
    cosines = {
        word: sum(a * b for a, b in zip(unit(total), unit(row), strict=True))
        for word, row in words.items()
        if word not in signs
    }
    return sorted(cosines.items(), key=lambda pair: -pair[1])


@pytest.mark.parametrize("kind", ["text", "npy"])
def test_nearest_words_are_those_of_a_literal_loop(kind: str, tmp_path: Path) -> None:
    if kind == "text":
        loaded = load_words(text_file(tmp_path))
    else:
        np.save(tmp_path / "v.npy", np.array(list(VECTORS.values()), np.float32))
        loaded = load_words(tmp_path / "v.npy", written(tmp_path / "w.txt", "".join(f"{word}\n" for word in VECTORS)))
    for expression, signs in (
        ("king", {"king": 1}),
        ("king - man + woman", {"king": 1, "man": -1, "woman": 1}),
        ("so-so - boy", {"so-so": 1, "boy": -1}),
    ):
        found, wanted = nearest_words(loaded, expression, 3), literal(signs, VECTORS)[:3]
        assert [word for word, _ in found] == [word for word, _ in wanted]
        assert [cosine for _, cosine in found] == pytest.approx([cosine for _, cosine in wanted], abs=1e-6)
    assert nearest_words(loaded, "king - man + woman", 1)[0][0] == "queen"


def save_run(folder: Path, method: str) -> None:
    algorithm = "pv_dm" if method == "doc2vec" else "cbow"
    made = BaselineClassifier(
        CleaningConfig(),
        FeaturesConfig(kind="vectors"),
        VectorsConfig(method=method, algorithm=algorithm, size=4, min_count=1, buckets=50),
        ClassifierConfig(kind="logistic"),
    )
    made.fit(["the man is a good king", "the woman is a queen"] * 3, [0, 1] * 3, ["he", "she"])
    made.save_pretrained(folder)


@pytest.mark.parametrize("method", ["word2vec", "fasttext", "doc2vec"])
def test_words_of_a_run_are_its_vectors(method: str, tmp_path: Path) -> None:
    save_run(tmp_path, method)
    rows = np.load(tmp_path / "vectors.npy").tolist()
    words = dict(zip((tmp_path / "vectors.words.txt").read_text().split(), rows, strict=True))
    loaded = load_words(tmp_path)
    found = neighbours(loaded, ["king", "kings"], 2)
    wanted = literal({"king": 1}, words)[:2]
    assert [word for word, _ in found["king"]] == [word for word, _ in wanted]
    assert [cosine for _, cosine in found["king"]] == pytest.approx([cosine for _, cosine in wanted], abs=1e-5)
    assert bool(found["kings"]) == (method == "fasttext"), "only n-grams of characters represent an unknown word"


def test_analogies_are_counted_by_section(tmp_path: Path) -> None:
    """King is read as king; "uncle" has no vector; the two sections of one name are one."""
    rows = analogy_scores(load_words(text_file(tmp_path)), written(tmp_path / "questions.txt", QUESTIONS))
    right = [
        literal({"king": 1, "man": -1, "woman": 1}, VECTORS)[0][0] == "queen",
        literal({"girl": 1, "boy": -1, "man": 1}, VECTORS)[0][0] == "woman",
        literal({"king": 1, "man": -1, "boy": 1}, VECTORS)[0][0] == "so-so",
    ]
    assert sum(right) == 2
    assert [tuple(row.values()) for row in rows] == [
        ("family", 3, 3, 2, 2 / 3),
        ("other", 1, 0, 0, None),
        ("total", 4, 3, 2, 2 / 3),
    ]
    fewer = analogy_scores(load_words(tmp_path / "vectors.txt"), tmp_path / "questions.txt", first=4)
    assert tuple(fewer[-1].values())[:3] == ("total", 4, 1)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("nearest vectors.txt King", "The word 'King' has no vector; write one of the 7 words that have one, "),
        ("nearest vectors.txt king man", r"Cannot read 'king man'; write words joined by \+ and -, such as king - man"),
        ("nearest vectors.txt king -", "Cannot read 'king -'; write words joined by"),
        ("nearest no.txt king", "no.txt: No such file"),
        ("nearest v.npy king", "v.npy has vectors without words; pass the file of the words too"),
        ("nearest empty.txt king", "empty.txt is empty; give a file with a word and its numbers on each line"),
        ("nearest notes.txt king", "notes.txt begins with no numbers; give a word and its numbers on each line"),
        ("nearest v.npy king --words empty.txt", "v.npy has no word vectors; give a file with some"),
        ("nearest run king", r"run has no baseline \(baseline.json\); give a run folder of recipes/baselines"),
        ("nearest counts king", "counts has no word vectors; give a run with features.kind: vectors"),
        ("nearest counts king --words empty.txt", "counts is a run folder, which has its own words; remove the file"),
        ("analogies vectors.txt no.txt", "no.txt: No such file"),
        ("analogies vectors.txt notes.txt", r"Line 1 of notes.txt is not a line ': SECTION'; write it as in"),
        ("analogies vectors.txt three.txt", "Line 2 of three.txt is not four words; write it as in questions-words"),
        ("analogies vectors.txt none.txt", "none.txt has no analogies; write a line ': SECTION', then four words"),
    ],
)
def test_bad_input_gets_one_sentence(
    command: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text_file(tmp_path)
    np.save("v.npy", np.zeros((0, 3), np.float32))
    (tmp_path / "run").mkdir()
    for name, content in {"empty": "", "notes": "Words.\n", "three": ": a\nb c d\n", "none": ": a\n"}.items():
        written(tmp_path / f"{name}.txt", content)
    if "counts" in command:
        made = BaselineClassifier(CleaningConfig(), FeaturesConfig(), VectorsConfig(), ClassifierConfig())
        made.fit(["a king", "a queen"] * 2, [0, 1] * 2, ["he", "she"])
        made.save_pretrained(tmp_path / "counts")
    done = CliRunner().invoke(app, ["words", *shlex.split(command)])
    assert done.exit_code == 2
    error = done.stderr.strip()
    assert re.match(f"error: {message}", error)
    assert error.count("\n") == 0


def test_the_readmes_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_run(tmp_path / "runs" / "baselines-imdb_word2vec", "word2vec")
    text_file(tmp_path).rename("glove.6B.100d.txt")
    written(tmp_path / "questions-words.txt", QUESTIONS)
    page = (ROOT / "recipes" / "baselines" / "README.md").read_text()
    commands = re.findall(r"^hfattn (words .*)$", page, re.MULTILINE)
    printed = [CliRunner().invoke(app, shlex.split(command)) for command in commands]
    assert [done.exit_code for done in printed] == [0, 0, 0]
    assert printed[1].stdout.splitlines()[0].split()[1] == "queen"
    assert printed[2].stdout.splitlines()[-1].split() == ["total", "4", "3", "2", "0.6667"]
