"""Data that are not public: no file of a run quotes them, and the repository of the model is private."""

import json
import random
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from commands import ROOT, refusal, results_of, run, steps, train_here, write_config, written
from hub_server import HubServer
from safetensors import safe_open

from hfattn.data import GIVEN
from hfattn.hub import PublishConfig, has_public_data, verify, vocabulary_texts
from hfattn.hub.manifest import check_manifest, is_listed
from hfattn.hub.private_texts import check_private_texts, split_rare_numbers
from hfattn.training import OwnClassifierConfig, OwnClassifierDataConfig

pytestmark = pytest.mark.runs

QUOTES_NOTHING = "no text of the data is quoted"
ASKED = {
    "refund": "please send back what I paid for order {} because it was broken",
    "login": "since yesterday the account {} cannot be opened with my old password",
}
OWN = "the old password was broken"


def tickets(path: Path, number: int = 120) -> Path:
    generator = random.Random(0)
    rows = []
    for i in range(number):
        intent = list(ASKED)[i % 2]
        text = f"{generator.choice(['hello', 'dear team', 'good morning'])} {ASKED[intent]}"
        rows.append({"text": text.format(generator.randrange(10_000, 99_999)), "label": intent, "target": intent})
    return written(path, rows)


CLASSIFICATION: dict[str, Any] = {
    "data": {"split": [0.6, 0.2, 0.2], "max_length": 32},
    "tokenizer": {"kind": "word"},
    "model": {"model_type": "rnn_encoder", "embedding_size": 8, "hidden_size": 8, "pooling": "attention"},
    "training": {**steps(8, 4), "per_device_eval_batch_size": 8},
    "sample": {"examples": [OWN]},
}
TRANSLATION: dict[str, Any] = {
    "data": {"source_column": "text", "target_column": "label", "split": [0.6, 0.2, 0.2], "max_source_length": 40},
    "tokenizer": {"kind": "word"},
    "model": {"model_type": "bahdanau", "embedding_size": 8, "hidden_size": 8},
    "training": {**steps(8, 4), "per_device_eval_batch_size": 8},
    "sample": {"translations": 3, "alignments": 1, "pairs": [[OWN, "login"]]},
}
BASELINE: dict[str, Any] = {"data": {"split": [0.6, 0.2, 0.2]}, "classifier": {"kind": "logistic"}}
RECIPES = {"classification": CLASSIFICATION, "translation": TRANSLATION, "baselines": BASELINE}


def trained(recipe: str, folder: Path, texts: str | None = None) -> Path:
    sections = RECIPES[recipe]
    data = {**sections["data"], "dataset": str(tickets(folder / "tickets.jsonl"))}
    config = folder / "own.yaml"
    config.write_text(yaml.safe_dump(sections | {"data": data, "publish": {"texts": texts}}))
    train_here(ROOT / "recipes" / recipe, config)
    return folder / "run"


def published_texts(run: Path) -> dict[str, str]:
    """Return the text of every published file, and the fingerprint texts."""
    found = {
        path.name: path.read_text()
        for path in run.iterdir()
        if path.suffix in (".md", ".json", ".svg", ".html", ".txt")
    }
    if (run / "fingerprints.safetensors").exists():
        with safe_open(run / "fingerprints.safetensors", "pt") as file:
            found["fingerprints.safetensors"] = json.dumps(file.metadata())
    return found


def quoted(run: Path, data: Path) -> set[str]:
    """Return the files in which five consecutive words of a row are, by a literal search."""
    rows = [json.loads(line)["text"].split() for line in data.read_text().splitlines()]
    pieces = {" ".join(words[i : i + 5]) for words in rows for i in range(len(words) - 4)}
    return {name for name, text in published_texts(run).items() if any(piece in text for piece in pieces)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {recipe: trained(recipe, tmp_path_factory.mktemp(recipe)) for recipe in RECIPES}


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_run_on_own_data_quotes_none_of_them(runs: dict[str, Path], recipe: str) -> None:
    folder = runs[recipe]
    data = folder.parent / "tickets.jsonl"
    results = results_of(folder)
    assert results["publish"] == {"texts": "none", "public_data": False}
    assert not quoted(folder, data)
    assert check_manifest(folder)
    assert is_listed(folder, "data_report.md")
    found = (folder / "data_report.md").read_text()
    assert "120 rows of tickets.jsonl" in found or "train: 72 pairs of tickets.jsonl" in found
    assert OWN not in (folder / "README.md").read_text()
    assert "The texts are not public." in (folder / "README.md").read_text()
    for name in ("tokenizer.json", "vocabulary.json"):
        if (folder / name).exists():
            assert not re.search(r"\d{5}", (folder / name).read_text())
    if recipe != "baselines":
        report = verify(folder, measure=[str(data)])
        assert report.passed, report
        assert {check.name: check.passed for check in report.checks}[QUOTES_NOTHING]


def test_samples_are_quoted_where_the_configuration_says_so(tmp_path: Path) -> None:
    folder = trained("classification", tmp_path, "samples")
    results = results_of(folder)
    assert results["publish"] == {"texts": "samples", "public_data": False}
    assert {"results.json", "fingerprints.safetensors"} <= quoted(folder, tmp_path / "tickets.jsonl")
    # Another hand says that the folder quotes nothing.
    (folder / "results.json").write_text(json.dumps(results | {"publish": {"texts": "none", "public_data": False}}))
    (found,) = [
        check
        for check in verify(folder, measure=[str(tmp_path / "tickets.jsonl")]).checks
        if check.name == QUOTES_NOTHING
    ]
    assert found.passed is False
    assert re.search(r"quotes text \d+ of the data; write publish.texts: samples", found.detail)


def test_own_words_are_shown_and_no_others(tmp_path: Path) -> None:
    folder = trained("translation", tmp_path, "own_words")
    assert OWN in (folder / "README.md").read_text()
    assert not quoted(folder, tmp_path / "tickets.jsonl")
    assert verify(folder, measure=[str(tmp_path / "tickets.jsonl")]).passed


def test_the_verifier_does_not_read_data_that_it_was_not_given(runs: dict[str, Path]) -> None:
    (check,) = [check for check in verify(runs["classification"]).checks if check.name == QUOTES_NOTHING]
    assert check.passed is None
    assert "--measure --data FILE" in check.detail


def test_rare_numbers_are_read_digit_by_digit() -> None:
    texts = [f"in 2019 order {number}x" for number in range(48_290, 48_302)] + ["no 12"]
    split = list(split_rare_numbers(texts))
    assert split[0] == "in 2019 order  4 8 2 9 0 x"
    assert split[-1] == "no 12"
    assert list(split_rare_numbers(["pay 48291"] * 10)) == ["pay 48291"] * 10
    assert next(iter(split_rare_numbers(["pay 48291 48291"] * 9))).split() == ["pay", *"48291", *"48291"]


def test_numbers_of_word_vectors_are_read_digit_by_digit_too(tmp_path: Path) -> None:
    """A number in nine texts and in the file of vectors is as rare as one in nine texts."""
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("order 1 2\n48291 3 4\nspring 5 6\n")
    data = OwnClassifierDataConfig(dataset="texts.tsv", vectors=str(vectors), all_words=True)
    texts = ["order 48291"] * 9
    for publish, number in (("none", " 4 8 2 9 1 "), ("samples", "48291")):
        config = OwnClassifierConfig(data=data, publish=PublishConfig(texts=publish))
        learned = vocabulary_texts(config, iter(texts))
        assert list(learned) == list(learned) == [f"order {number}"] * 9 + ["order", number, "spring"]
    config.data.all_words = False
    assert vocabulary_texts(config, texts) is texts


def test_a_vocabulary_with_a_rare_number_is_found(tmp_path: Path) -> None:
    vocabulary = {"model": {"vocab": {"order": 0, "48291": 1}}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(vocabulary))
    rows = [f"order {48_291 + i}" for i in range(20)]
    with pytest.raises(AssertionError, match="the vocabulary has 1 numbers that are in fewer than 10 texts"):
        check_private_texts(tmp_path, rows)
    assert check_private_texts(tmp_path, ["order 48291"] * 20)
    assert check_private_texts(tmp_path, rows, learned_vocabulary=False)  # that of a pretrained model


@pytest.mark.parametrize(
    ("text", "is_quoted"),
    [
        ("Please SEND back, what I paid", True),  # a whole row, other case and punctuation
        ("send back what I paid", False),
        ("one two three four five six seven eight", True),  # eight words of a longer row
        ("two three four five six seven eight nine", True),
        ("one two three four five six seven", False),
    ],
)
def test_what_counts_as_a_quotation(tmp_path: Path, text: str, is_quoted: bool) -> None:
    rows = ["please send back what I paid", "one two three four five six seven eight nine", "I see"]
    (tmp_path / "README.md").write_text(f"Before. {text}\nAfter, I see.")
    if is_quoted:
        with pytest.raises(AssertionError, match=r"README.md quotes text \d of the data"):
            check_private_texts(tmp_path, rows)
        assert check_private_texts(tmp_path, rows, own_words=[text])
    else:
        assert check_private_texts(tmp_path, rows)


def test_which_data_are_public(tmp_path: Path) -> None:
    file = str(tickets(tmp_path / "tickets.jsonl", 4))

    def public(dataset: str, public_data: str | None = None, **parts: str) -> bool:
        data = SimpleNamespace(dataset=dataset, generated=("reber",), **{"validation": None, "test": None, **parts})
        return has_public_data(SimpleNamespace(data=data, publish=PublishConfig(public_data=public_data)))

    assert public("reber")
    assert public("user/data")
    assert public(file, file)
    assert not public(file)
    assert not public(file, "sick.txt")
    assert not public(str(tmp_path))
    assert not public(GIVEN)
    assert not public("user/data", test=file)


def test_a_language_model_quotes_at_least_the_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path, {"publish": {"texts": "none"}})
    recipe = ROOT / "recipes" / "char_lm"
    message = refusal(recipe, monkeypatch, capfd, tmp_path / "run", "--config", config)
    assert "publish.texts is none, but the card of a language model shows what it writes" in message


@pytest.mark.examples  # because each push verifies the folder
def test_a_model_of_own_data_gets_a_private_repository(runs: dict[str, Path], tmp_path: Path) -> None:
    with HubServer() as hub:

        def push(name: str, *words: str) -> tuple[int, str]:
            command = [sys.executable, "-m", "hfattn", "push", runs["classification"], f"{hub.user}/{name}", *words]
            done = run(command, ROOT, **hub.environment(tmp_path))
            return done.returncode, " ".join(f"{done.stdout} {done.stderr}".split())

        assert f"Visible to: only you, {hub.user} (private)" in push("own", "--execute")[1]
        assert hub.repos["model", f"{hub.user}/own"].private
        assert "Visible to: everyone (public)" in push("shown", "--public", "--execute")[1]
        assert not hub.repos["model", f"{hub.user}/shown"].private
        assert f"Warning: {hub.user}/shown is public, and the data of this model are not" in push("shown")[1]
        code, said = push("both", "--private", "--public")
        assert code != 0
        assert "either private or public" in said

        # A new card of the public repository is proposed beside its other files, with the same warning.
        hub.put("model", f"{hub.user}/shown", {"notes.txt": b"of the owner\n"})
        before = hub.files("model", f"{hub.user}/shown")
        words = ["card", f"{hub.user}/shown", "--license", "mit", "--language", "en", "--execute"]
        done = run([sys.executable, "-m", "hfattn", *words], ROOT, **hub.environment(tmp_path))
        assert done.returncode == 0, done.stderr
        assert f"Warning: {hub.user}/shown is public, and the data of this model are not" in done.stdout
        assert hub.files("model", f"{hub.user}/shown") == before
        proposed = hub.files("model", f"{hub.user}/shown", "refs/pr/1")
        assert proposed.keys() == before.keys()
        changed = {name for name in before if proposed[name] != before[name]}
        assert changed == {"README.md", "manifest.json", "results.json"}
        (tmp_path / "proposed").mkdir()
        for name in changed:
            (tmp_path / "proposed" / name).write_bytes(proposed[name])
        assert not quoted(tmp_path / "proposed", runs["classification"].parent / "tickets.jsonl")
