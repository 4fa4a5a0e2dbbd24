"""The classification recipe through its real command line."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from commands import ROOT, printed_by_card, refusal, run_here, run_until_step
from huggingface_hub import ModelCard
from sklearn.metrics import confusion_matrix, f1_score
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from hfattn import RNNEncoderConfig, RNNEncoderForSequenceClassification
from hfattn.data import read_labelled, split_labelled
from hfattn.errors import UserError
from hfattn.generated import reber_texts
from hfattn.resources import load_recipe
from hfattn.training import classifier_config, load_config
from hfattn.training.classifier_models import word_weights_in_text

RECIPE = ROOT / "recipes" / "classification"
CONFIGURATIONS = sorted(RECIPE.glob("*.yaml"))
TINY: dict[str, dict[str, Any]] = {
    "data": {"texts": 200, "evaluation_texts": 30},
    "model": {"model_type": "rnn_encoder", "embedding_size": 8, "hidden_size": 8},
    "training": {
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 8,
        "max_steps": 20,
        "learning_rate": 1e-2,
        "eval_steps": 10,
        "save_steps": 10,
        "logging_steps": 5,
        "report_to": "none",
    },
    "sample": {"number": 3, "alignments": 2},
}
GOOD, BAD_WORDS, PLAIN = (
    ("good", "great", "lovely"),
    ("bad", "poor", "dull"),
    ("the", "man", "film", "plot", "was", "and"),
)


def tiny_config(folder: Path, **fields: Any) -> Path:
    config: dict[str, Any] = {name: dict(section) for name, section in TINY.items()}
    for name, value in fields.items():
        config[name] = {**config.get(name, {}), **value} if isinstance(value, dict) else value
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def reviews(folder: Path, number: int, name: str, seed: int) -> Path:
    """Reviews whose one word of praise or blame tells their label; a column says in which sentence it is."""
    generator = np.random.default_rng(seed)
    lines = []
    for i in range(number):
        first, second = (list(generator.choice(PLAIN, size=int(generator.integers(5, 9)))) for _ in range(2))
        chosen = first if i % 4 < 2 else second
        chosen.insert(int(generator.integers(len(chosen))), generator.choice(GOOD if i % 2 else BAD_WORDS))
        text = f"{' '.join(first).capitalize()}. {' '.join(second).capitalize()}!"
        lines.append({"text": text, "label": i % 2, "where": "first" if i % 4 < 2 else "second"})
    path = folder / name
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def written(folder: Path, content: str) -> Path:
    path = folder / "texts.tsv"
    path.write_text(content)
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on reviews, read by sentences, its embeddings begun from a file of vectors."""
    folder = tmp_path_factory.mktemp("finished")
    vectors = folder / "vectors.txt"
    known = (*PLAIN, *GOOD, *BAD_WORDS[:2])
    generator = np.random.default_rng(0)
    vectors.write_text("".join(f"{word} {' '.join(f'{x:.3f}' for x in generator.normal(size=8))}\n" for word in known))
    config = tiny_config(
        folder,
        data={
            "source": str(reviews(folder, 240, "train.jsonl", seed=0)),
            "test": str(reviews(folder, 60, "test.jsonl", seed=1)),
            "labels": ["negative", "positive"],
            "max_length": 14,
            "keep": "last",
            "vectors": str(vectors),
        },
        tokenizer={"kind": "word", "lowercase": True},
        model={"pooling": "hierarchical", "direction": "bidirectional"},
        max_tokens=200,
        training={"max_steps": 60, "eval_steps": 20, "save_steps": 20, "metric_for_best_model": "accuracy"},
        evaluation={"columns": ["where"], "words": ["man"], "counterfactual_texts": 20},
    )
    text = yaml.safe_load(config.read_text())
    del text["training"]["per_device_train_batch_size"]  # max_tokens decides
    config.write_text(yaml.safe_dump(text))
    with pytest.MonkeyPatch.context() as monkeypatch:
        run_here(RECIPE, monkeypatch, "--config", config, "--output_dir", folder / "run")
    return folder


def results_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "run" / "results.json").read_text())


def test_a_run_leaves_a_model_folder_results_pictures_and_card(finished: Path) -> None:
    folder = finished / "run"
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "modeling_rnn_encoder.py", "README.md"} <= names
    for picture in ("loss_curve.png", "confusion.png", "alignment-1.png", "alignment-2.png"):
        assert (folder / picture).read_bytes()[:4] == b"\x89PNG"
    assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", (folder / "alignment-1.html").read_text())


def test_scores_are_those_of_the_published_model_counted_one_text_at_a_time(finished: Path) -> None:
    results = results_of(finished)
    assert str(finished) not in json.dumps(results)
    model = RNNEncoderForSequenceClassification.from_pretrained(finished / "run").eval()
    tokenizer = AutoTokenizer.from_pretrained(finished / "run")
    texts = {
        "validation": split_labelled(read_labelled(finished / "train.jsonl"), [0.9, 0.1], seed=42)[1],
        "test": read_labelled(finished / "test.jsonl"),
    }
    assert results["data"]["labels"] == ["negative", "positive"]
    for part, items in texts.items():
        right, predicted, nats, where = [], [], 0.0, []
        for item in items:
            ids = torch.tensor([tokenizer(item.text).input_ids[-14:]])
            with torch.no_grad():
                log_probabilities = model(ids).logits[0].log_softmax(-1)
            right.append(item.label)
            predicted.append(int(log_probabilities.argmax()))
            nats -= log_probabilities[item.label].item()
            where.append(item.fields["where"])
        score = results["metrics"][part]
        agree = np.array(right) == np.array(predicted)
        assert score["examples"] == len(items)
        assert score["accuracy"] == agree.mean()
        assert score["f1"] == pytest.approx(f1_score(right, predicted, average="macro"))
        assert score["nats_per_example"] == pytest.approx(nats / len(items), rel=1e-4)
        assert score["confusion"] == confusion_matrix(right, predicted, labels=[0, 1]).tolist()
        masks = {
            "class: positive": np.array(right) == 1,
            "where: first": np.array(where) == "first",
            "word: man": np.array(
                ["man" in item.text.lower().replace(".", "").replace("!", "").split() for item in items]
            ),
        }
        for name, mask in masks.items():
            assert score["by_slice"][name]["examples"] == mask.sum()
            assert score["by_slice"][name]["accuracy"] == pytest.approx(agree[mask].mean())
    assert results["metrics"]["test"]["accuracy"] > 0.7


def test_counterfactuals_are_of_texts_in_which_a_word_was_swapped(finished: Path) -> None:
    """Every third of the 60 reviews is looked at; "man" becomes "woman", which the vocabulary lacks."""
    metrics = results_of(finished)["metrics"]
    assert "counterfactual" not in metrics["validation"]
    moved = metrics["test"]["counterfactual"]["gender"]
    items = read_labelled(finished / "test.jsonl").items[::3]
    changed = [item.text for item in items if re.search(r"\bman\b", item.text, re.IGNORECASE)]
    model = RNNEncoderForSequenceClassification.from_pretrained(finished / "run").eval()
    tokenizer = AutoTokenizer.from_pretrained(finished / "run")

    def positive(text: str) -> float:
        with torch.no_grad():
            return model(torch.tensor([tokenizer(text).input_ids[-14:]])).logits[0].softmax(-1)[1].item()

    swapped = [re.sub(r"\bman\b", "woman", re.sub(r"\bMan\b", "Woman", text)) for text in changed]
    pairs = [(positive(text), positive(other)) for text, other in zip(changed, swapped, strict=True)]
    assert moved["texts"] == len(changed) > 5
    assert moved["mean_shift"] == pytest.approx(np.mean([abs(a - b) for a, b in pairs]), abs=1e-5)
    assert moved["flipped"] == np.mean([(a > 0.5) != (b > 0.5) for a, b in pairs])
    assert metrics["test"]["counterfactual"]["country"]["texts"] == 0


def test_the_vectors_that_the_embeddings_began_with_are_counted(finished: Path) -> None:
    """Of the vocabulary's words and marks, "dull", "." and "!" have none."""
    vectors = results_of(finished)["data"]["vectors"]
    assert (vectors["name"], vectors["found"], vectors["missing"]) == ("vectors.txt", 11, 3)
    assert set(vectors["most_frequent_missing"]) == {"dull", ".", "!"}


def test_the_weight_of_a_word_is_that_in_its_sentence_times_the_sentences(finished: Path) -> None:
    model = RNNEncoderForSequenceClassification.from_pretrained(finished / "run").eval()
    tokenizer = AutoTokenizer.from_pretrained(finished / "run")
    ids = torch.tensor([tokenizer("The film was good. The man and the plot! And bad").input_ids])
    words, sentences = model(ids, output_attentions=True).attentions
    found = word_weights_in_text(model, ids, words, sentences)
    sentence_of = [0] * 5 + [1] * 6 + [2] * 2
    expected = [words[0, 0, 0, i].item() * sentences[0, 0, 0, s].item() for i, s in enumerate(sentence_of)]
    torch.testing.assert_close(found, torch.tensor([[[expected]]]))
    assert found.sum().item() == pytest.approx(1)


def test_mistakes_are_shown_from_the_most_confident_one(finished: Path) -> None:
    results = results_of(finished)
    probabilities = [float(sample["probability of the right class"]) for sample in results["samples"]]
    assert probabilities == sorted(probabilities)
    for sample in results["samples"]:
        assert sample["right"] != sample["predicted"]
        assert re.fullmatch(r"Line \d+ of test.jsonl", sample["place"])


def test_the_card_states_the_results_and_its_snippet_classifies_without_hfattn(finished: Path) -> None:
    card = ModelCard.load(finished / "run" / "README.md")
    results = results_of(finished)
    values = {(r.metric_type, r.metric_name): r.metric_value for r in card.data.eval_results}
    assert values["accuracy", "accuracy (test)"] == results["metrics"]["test"]["accuracy"]
    assert values["f1", "F1 (validation)"] == results["metrics"]["validation"]["f1"]
    for words in ("where: first", "| gender |", "3 (78.6 % known)", "![negative, read as"):
        assert words in card.text or words.replace("negative", "positive") in card.text
    assert printed_by_card(finished / "run") == results["short_texts"][0]["predicted"] + "\n"


def test_a_run_that_was_killed_ends_as_one_that_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gone after the second checkpoint; batches by tokens, dropout, strings of the grammar."""
    config = tiny_config(tmp_path, model={"classifier_dropout": 0.3}, max_tokens=300, training={"max_steps": 40})
    text = yaml.safe_load(config.read_text())
    del text["training"]["per_device_train_batch_size"]
    config.write_text(yaml.safe_dump(text))
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run_here(RECIPE, monkeypatch, "--config", config, "--output_dir", whole)
    run_until_step(RECIPE, monkeypatch, 23, "--config", config, "--output_dir", killed)
    with pytest.raises(UserError, match="was started with another 'data'"):
        run_here(RECIPE, monkeypatch, "--config", config, "--output_dir", killed, "--resume", "--data.texts", 201)
    run_here(RECIPE, monkeypatch, "--config", config, "--output_dir", killed, "--resume")
    assert (killed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    first, second = (json.loads((folder / "results.json").read_text())["metrics"] for folder in (whole, killed))
    for part in ("validation", "test"):
        assert first[part]["nats_per_example"] == second[part]["nats_per_example"]


@pytest.mark.parametrize(
    ("model", "data"),
    [
        ({"preset": "gru128", "hidden_size": 8, "embedding_size": 8}, {}),
        ({"model_type": "vaswani", "preset": "small", "hidden_size": 16, "intermediate_size": 16}, {}),
        ({}, {"labels": ["up", "down", "flat"]}),
    ],
    ids=["one sigmoid", "transformer", "three classes"],
)
def test_other_models_and_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: dict[str, Any], data: dict[str, Any]
) -> None:
    source = written(
        tmp_path, "label\ttext\n" + "".join(f"{('up', 'down', 'flat')[i % 3]}\t{i} a\n" for i in range(90))
    )
    fields = {"source": str(source), "split": [0.5, 0.2, 0.3], **data} if data else {}
    model_section = {"model_type": "rnn_encoder", "embedding_size": 8, "hidden_size": 8, **model}
    if model.get("model_type") == "vaswani":
        del model_section["embedding_size"]
    config = tiny_config(tmp_path, data=fields, training={"max_steps": 2, "eval_steps": 2, "save_steps": 2})
    config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), "model": model_section}))
    run_here(RECIPE, monkeypatch, "--config", config, "--output_dir", tmp_path / "run")
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    names = data.get("labels", ["broken", "valid"])
    assert len(results["metrics"]["test"]["confusion"]) == len(names)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run")
    if "preset" in model and "model_type" not in model:
        assert loaded.config.id2label == {0: "valid"}
        texts = reber_texts("test", 30, seed=42)
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
        with torch.no_grad():
            positive = [int(loaded(**tokenizer(item.text, return_tensors="pt")).logits[0, 0] > 0) for item in texts]
        accuracy = np.mean([p == item.label for p, item in zip(positive, texts, strict=True)])
        assert results["metrics"]["test"]["accuracy"] == accuracy
    else:
        assert list(loaded.config.id2label.values()) == names
    assert (tmp_path / "run" / "alignment-1.png").exists() == (model.get("model_type") == "vaswani")


def test_the_documents_models_have_their_numbers_of_parameters() -> None:
    """34,113 of the BiLSTM are trained in the documents; torch's LSTMs have a second bias, 2 x 4 x 32 more."""
    recipe = load_recipe(RECIPE / "train.py")
    config = load_config(recipe.Config, RECIPE / "imdb_bilstm_glove.yaml")
    settings = classifier_config(config, config.tokenizer.vocab_size, labels=["negative", "positive"])
    model = RNNEncoderForSequenceClassification(settings)
    assert model.num_parameters() == 2_034_113 + 256
    assert model.num_parameters(only_trainable=True) == 34_113 + 256
    pair = [load_config(recipe.Config, RECIPE / f"{name}.yaml") for name in ("imdb_gru", "imdb_gru_unmasked")]
    masked, unmasked = (classifier_config(config, 1000) for config in pair)
    assert isinstance(masked, RNNEncoderConfig)
    differing = {name for name, value in masked.to_dict().items() if unmasked.to_dict()[name] != value}
    assert differing == {"mask_padding"}
    pair[0].model["mask_padding"] = False
    assert pair[0] == pair[1]


def test_files_of_the_recipe_are_valid() -> None:
    recipe = load_recipe(RECIPE / "train.py")
    for path in CONFIGURATIONS:
        header = path.read_text().split("\n\n")[0]
        assert all(line.startswith("#") for line in header.splitlines()), path
        for word in ("Cost: ", "launch: ", "override: ", "resume: ", "Expect: "):
            assert word in header, path
        recipe.validate(load_config(recipe.Config, path))


WORDS = ["--tokenizer.kind", "word"]
TWO = "label\ttext\nup\tthe cat\n" + "".join(f"down\tdog {i}\n" for i in range(20))
BAD: list[tuple[str, Callable[[Path], list[object]], str]] = [
    ("missing file", lambda f: ["--data.source", f / "no.tsv"], r"no.tsv was not found locally or on the Hub"),
    ("no tab", lambda f: ["--data.source", written(f, "label\ttext\nup\n")], "Line 2 of texts.tsv has no tab"),
    (
        "column",
        lambda f: ["--data.source", written(f, TWO), "--data.text_column", "review"],
        "Line 2 of texts.tsv has no column 'review'; write one of label, text",
    ),
    (
        "label",
        lambda f: ["--data.source", written(f, TWO), "--data.labels", "[up, left]"],
        "Line 3 of texts.tsv has the label 'down', which is none of up, left; correct it",
    ),
    (
        "test's label",
        lambda f: ["--data.source", reviews(f, 20, "a.jsonl", 0), "--data.test", written(f, TWO)],
        "Line 2 of texts.tsv has the label 'up', which is none of 0, 1; correct it",
    ),
    (
        "sentences",
        lambda f: ["--model.pooling", "hierarchical"],
        "Hierarchical pooling needs tokens that end sentences, and the vocabulary has none of '.!\\?'",
    ),
    (
        "sigmoid",
        lambda f: ["--data.source", written(f, TWO + "left\tcow\n"), *WORDS, "--model.preset", "gru128"],
        "The data have 3 classes, and one sigmoid tells two apart; write model.problem_type",
    ),
    (
        "slice",
        lambda f: ["--evaluation.columns", "[rating]"],
        "names 'rating', and beside text and label reber has broken; write one of these",
    ),
    ("vectors", lambda f: ["--data.vectors", f / "no.txt"], "no.txt: No such file"),
    ("words", lambda f: ["--data.words", "w.txt"], "words is the file of the words of vectors; write vectors too"),
    ("two tests", lambda f: ["--data.source", "a.tsv", "--data.test", "b.tsv", "--data.split", "[0.8, 0.1, 0.1]"],
     "cuts a test from source, and test is given too"),
    ("reber's test", lambda f: ["--data.test", "b.tsv"], "reber has its own validation and test; leave"),
    ("split", lambda f: ["--data.split", "[0.5, 0.6]"], "write shares .*, or texts such as"),
    ("sizes", lambda f: ["--data.max_length", "0"], "data: max_length is 0; write a whole number of at least 1"),
    ("keep", lambda f: ["--data.keep", "middle"], "keep is 'middle'; write first or last"),
    ("counterfactuals", lambda f: ["--evaluation.counterfactual_texts", "-1"], "counterfactual_texts is -1; write"),
    ("family", lambda f: ["--model.model_type", "gpt2"], "model.model_type is 'gpt2'; write one of rnn_encoder, vas"),
    ("classes", lambda f: ["--model.num_labels", "3"], "model.num_labels follows from the data; leave it out"),
    ("pooling", lambda f: ["--model.pooling", "sum"], "pooling is 'sum'; write one of"),
    (
        "smoothing",
        lambda f: ["--model.preset", "gru128", "--training.label_smoothing_factor", "0.1"],
        "label_smoothing_factor is for a softmax, and this model has one sigmoid",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("words", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input(
    tmp_path: Path,
    words: Callable[[Path], list[object]],
    message: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, config = tmp_path / "run", tiny_config(tmp_path)
    error = refusal(RECIPE, monkeypatch, capfd, run, "--config", config, *words(tmp_path))
    assert re.search(message, error), error
