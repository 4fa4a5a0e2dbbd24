"""The probe of a character model's states: its parts against literal loops, and its command on small data."""

import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from commands import RECIPE, run

from hfattn import BahdanauConfig, BahdanauForConditionalGeneration, CharRNNConfig, CharRNNForCausalLM
from hfattn.data import Labeled, LabeledTexts
from hfattn.errors import UserError
from hfattn.loading import save_translator
from hfattn.probe import Probed, final_states, fit_probe, fold_texts, unit_threshold
from hfattn.resources import load_recipe
from hfattn.tokenizers import build_character_tokenizer

TOKENIZER = build_character_tokenizer(["abcdefghijklmnopqrstuvwxyz \n"], lowercase=True)


def make(cell: str = "lstm") -> Any:
    torch.manual_seed(0)
    return CharRNNForCausalLM(
        CharRNNConfig(vocab_size=len(TOKENIZER), cell=cell, hidden_size=8, num_hidden_layers=2, pad_token_id=0)
    ).eval()


def texts(*pairs: tuple[str, int]) -> LabeledTexts:
    return LabeledTexts("texts", [Labeled(*pair) for pair in pairs], ["bad", "good"])


@pytest.mark.parametrize("cell", ["lstm", "gru", "elman"])
@pytest.mark.parametrize("max_tokens", [1, 40])
def test_states_are_those_of_reading_character_by_character(cell: str, max_tokens: int) -> None:
    model = make(cell)
    some = texts(("a longer text than the others", 0), ("abc", 1), ("Four words of it", 0), ("b", 1))
    states = final_states(model, TOKENIZER, some, max_tokens)
    assert states.shape == (4, 16)
    for row, item in zip(states, some, strict=True):
        hidden = [torch.zeros(1, 1, 8, dtype=torch.float64) for _ in range(4)]
        layers = [layer.rnn.double() for layer in model.model.layers]
        for number in TOKENIZER(item.text).input_ids:
            value = model.model.embed_tokens.weight[number].double()[None, None]
            for i, layer in enumerate(layers):
                if cell == "lstm":
                    value, (hidden[2 * i], hidden[2 * i + 1]) = layer(value, (hidden[2 * i], hidden[2 * i + 1]))
                else:
                    value, hidden[i] = layer(value, hidden[i])
        last = [hidden[1].tanh(), hidden[3].tanh()] if cell == "lstm" else hidden[:2]
        np.testing.assert_allclose(row, torch.cat(last, -1).flatten().detach().numpy(), atol=1e-6)


def test_characters_that_the_model_does_not_know() -> None:
    folded, replaced = fold_texts(texts(("Not BAD: a 7!", 0), ("7\ta", 1)), TOKENIZER)
    assert [item.text for item in folded] == ["\nNot BAD  a   ", "\n  a"]
    assert replaced == {"7": 2, ":": 1, "!": 1, "\t": 1}
    bare = build_character_tokenizer(["abc"])
    folded, _ = fold_texts(texts(("a b\nc", 0)), bare)
    assert [item.text for item in folded] == ["abc"]
    admitting = build_character_tokenizer(["abc"], unknown=True)
    folded, replaced = fold_texts(texts(("a, b", 0)), admitting)
    assert [item.text for item in folded] == ["\na, b"]
    assert not replaced


@pytest.mark.parametrize("seed", range(20))
def test_the_threshold_is_the_best_that_there_is(seed: int) -> None:
    generator = np.random.default_rng(seed)
    values, labels = generator.integers(0, 6, 15) / 4, generator.integers(0, 2, 15)
    threshold, above = unit_threshold(values, labels)
    reached = (np.where(values > threshold, above, 1 - above) == labels).sum()
    tried = [
        (np.where(values > edge, one, 1 - one) == labels).sum()
        for edge in (-1, *(np.arange(6) / 4 + 0.1))
        for one in (0, 1)
    ]
    assert reached == max(tried)


def test_the_probe_finds_the_one_unit_that_knows() -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 300)
    states = generator.normal(0, 0.3, (300, 12))
    states[:, 7] = np.where(labels == 1, -0.6, 0.4) + generator.normal(0, 0.1, 300)
    train, validation = Probed(states[:200], labels[:200]), Probed(states[200:], labels[200:])
    probe = fit_probe(train, validation, seed=1)
    assert probe.unit == 7
    assert probe.above == 0
    assert -0.4 < probe.threshold < 0.2
    assert probe.units < 12  # the penalty leaves some out
    assert (probe.predict_by_unit(states) == labels).mean() > 0.98
    right = [int(sum(map(float, row * probe.weights)) + probe.bias > 0) for row in states[200:]]
    assert probe.predict(states[200:]).tolist() == right
    assert (
        (np.array(right) == labels[200:]).mean() == probe.validation[probe.strength] == max(probe.validation.values())
    )
    assert all(score < probe.validation[probe.strength] for C, score in probe.validation.items() if probe.strength > C)
    with pytest.raises(UserError, match="all of one class"):
        fit_probe(Probed(states, np.zeros(300, int)), validation, seed=1)
    with pytest.raises(UserError, match="All weights of the probe are 0"):
        fit_probe(train, validation, seed=1, strengths=[1e-6])


# The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model, and texts whose ends tell their class."""
    path = tmp_path_factory.mktemp("probe")
    make().save_pretrained(path / "model")
    TOKENIZER.save_pretrained(path / "model")
    random = Random(0)
    for part, number in (("train", 200), ("test", 60)):
        lines = ["sentence\tlabel"]
        for i in range(number):
            words = " ".join(random.choice(["one", "Two", "3"]) for _ in range(random.randint(1, 6)))
            lines.append(f"{words} {('bbb', 'zzz')[i % 3 == 0]}\t{int(i % 3 == 0)}")
        (path / f"{part}.tsv").write_text("\n".join(lines) + "\n")
    return path


def words(folder: Path, *more: object) -> list[str]:
    given = ["model", "--dataset", "train.tsv", "--test", "test.tsv", "--text_column", "sentence"]
    return [str(folder / word) if word[0] in "mt" else word for word in given] + list(map(str, more))


def test_the_command(folder: Path) -> None:
    output = folder / "out"
    done = run([sys.executable, RECIPE / "probe.py", *words(folder, "--output_dir", output)])
    assert done.returncode == 0, done.stderr
    results = json.loads((output / "results.json").read_text())
    test = results["metrics"]["test"]
    assert test["examples"] == 60
    assert test["majority"] == pytest.approx(2 / 3)
    assert test["accuracy"] > 0.95
    assert test["unit_accuracy"] > 0.8
    assert 0 < results["probe"]["units_not_zero"] <= results["probe"]["units"] == 16
    assert results["data"]["parts"]["train"]["texts"] + results["data"]["parts"]["validation"]["texts"] == 200
    assert list(results["data"]["replaced"]["test"]["characters"]) == ["3"]
    assert (output / "unit.png").read_bytes()[1:4] == b"PNG"
    assert f"{test['accuracy']:.4f}" in done.stdout
    assert str(folder) not in (output / "results.json").read_text()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--dataset", "missing.tsv"], "missing.tsv"),
        (["--text_column", "review"], "has no column 'review'; write one of sentence, label"),
        (["--labels", "a", "b", "c"], "has 3 classes, and the probe needs two"),
        (["--max_tokens", "0"], "max_tokens is 0; write a whole number of at least 1"),
        (["--output_dir", "{folder}"], "exists already; choose another folder with --output_dir"),
    ],
)
def test_bad_input(folder: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], message: str) -> None:
    given = words(folder, "--output_dir", folder / "none", *(word.format(folder=folder) for word in more))
    monkeypatch.setattr(sys, "argv", ["probe.py", *given])
    with pytest.raises(UserError, match=message):
        load_recipe(RECIPE / "probe.py").main()
    assert not (folder / "none").exists()


def test_a_model_of_another_kind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = build_character_tokenizer(["ab"], ends=True)
    model = BahdanauForConditionalGeneration(BahdanauConfig(vocab_size=len(tokenizer)))
    save_translator(folder / "translator", model, tokenizer)
    _, *others = words(folder, "--output_dir", folder / "none")
    monkeypatch.setattr(sys, "argv", ["probe.py", str(folder / "translator"), *others])
    with pytest.raises(UserError, match="translator"):
        load_recipe(RECIPE / "probe.py").main()
