"""The recipe classification through its real command line: from scratch, and fine-tuning of pretrained models."""

import json
import math
import re
import shlex
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from commands import (
    ROOT,
    TWO_PROCESSES,
    printed_by_card,
    results_of,
    run,
    steps,
    train_here,
    write_config,
    written,
)
from huggingface_hub import ModelCard
from peft import PeftModel
from recipe_contract import BadInput, BadInputs, Configure, FinishedRun, KilledRun, Stated, TwoProcesses
from safetensors.torch import load_file
from sklearn.metrics import confusion_matrix, f1_score
from tiny_models import labeled_file, tiny_model
from torch.nn import functional
from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainingArguments, pipeline
from typer.testing import CliRunner

import hfattn
from hfattn import RNNEncoderConfig, RNNEncoderForSequenceClassification
from hfattn.data import (
    LabeledDataConfig,
    LabeledTexts,
    WindowCollator,
    WindowedTexts,
    mean_of_windows,
    read_labeled,
)
from hfattn.data.labeled import Labeled
from hfattn.errors import UserError
from hfattn.evaluation import evaluate_classifier
from hfattn.generated import reber_texts
from hfattn.loading import BaseModel, load_model, load_tokenizer
from hfattn.reports.classification import word_weights_in_text
from hfattn.resources import load_recipe
from hfattn.training import (
    ClassifierTrainer,
    TuningConfig,
    check_calibration,
    class_weights,
    divide_logits,
    load_config,
    own_classifier_config,
    tuned,
    tuning_facts,
    weighted_loss,
)
from hfattn.training.fine_tuning import layer_depths
from hfattn_cli import app

pytestmark = pytest.mark.runs

RECIPE = ROOT / "recipes" / "classification"
CONFIGURATIONS = sorted(RECIPE.glob("*.yaml"))
TINY: dict[str, dict[str, Any]] = {
    "data": {"examples": 200, "evaluation_examples": 30},
    "model": {"model_type": "rnn_encoder", "embedding_size": 8, "hidden_size": 8},
    "sample": {"mistakes": 3, "alignments": 2},
}
GOOD, BAD_WORDS, PLAIN = (
    ("good", "great", "lovely"),
    ("bad", "poor", "dull"),
    ("the", "man", "film", "plot", "was", "and"),
)


def tiny_config(folder: Path, **fields: Any) -> Path:
    return write_config(folder, TINY, fields)


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
    return written(folder / name, lines)


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
            "dataset": str(reviews(folder, 240, "train.jsonl", seed=0)),
            "test": str(reviews(folder, 60, "test.jsonl", seed=1)),
            "labels": ["negative", "positive"],
            "max_length": 14,
            "too_long": "cut_start",
            "vectors": str(vectors),
        },
        tokenizer={"kind": "word", "lowercase": True},
        model={"pooling": "hierarchical", "direction": "bidirectional"},
        max_tokens=200,
        publish={"texts": "samples"},
        training={**steps(60, 20), "metric_for_best_model": "accuracy"},
        evaluation={
            "columns": ["where"],
            "words": ["man"],
            "counterfactual_texts": 20,
            "coverage": 0.7,
            "calibration": True,
        },
    )
    train_here(RECIPE, config)
    return folder


def test_scores_are_those_of_the_published_model_counted_one_text_at_a_time(finished: Path) -> None:
    results = results_of(finished / "run")
    model = RNNEncoderForSequenceClassification.from_pretrained(finished / "run").eval()
    tokenizer = AutoTokenizer.from_pretrained(finished / "run")
    texts = {
        "validation": LabeledDataConfig(dataset=str(finished / "train.jsonl")).read_parts(42)["validation"],
        "test": read_labeled(finished / "test.jsonl"),
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


def test_the_saved_folder_says_how_long_texts_were_read(finished: Path) -> None:
    """From its configuration alone the scores are repeated: the last 14 tokens of each review."""
    tokenizer = AutoTokenizer.from_pretrained(finished / "run")
    model = RNNEncoderForSequenceClassification.from_pretrained(finished / "run").eval()
    again = evaluate_classifier(
        model, tokenizer, read_labeled(finished / "test.jsonl", labels=["negative", "positive"])
    )
    measured = results_of(finished / "run")["metrics"]["test"]
    assert again["accuracy"] == measured["accuracy"]
    assert again["nats_per_example"] == pytest.approx(measured["nats_per_example"], rel=1e-5)


def test_counterfactuals_are_of_texts_in_which_a_word_was_swapped(finished: Path) -> None:
    """Every third of the 60 reviews is looked at; "man" becomes "woman", which the vocabulary lacks."""
    metrics = results_of(finished / "run")["metrics"]
    assert "counterfactual" not in metrics["validation"]
    moved = metrics["test"]["counterfactual"]["gender"]
    items = read_labeled(finished / "test.jsonl").items[::3]
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
    """In the vocabulary, "dull", "." and "!" have no vector."""
    vectors = results_of(finished / "run")["data"]["vectors"]
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
    results = results_of(finished / "run")
    probabilities = [float(sample["probability of the right class"]) for sample in results["samples"]]
    assert probabilities == sorted(probabilities)
    for sample in results["samples"]:
        assert sample["right"] != sample["predicted"]
        assert re.fullmatch(r"Line \d+ of test.jsonl", sample["place"])


@pytest.mark.parametrize(
    ("model", "data"),
    [
        ({"preset": "gru128", "hidden_size": 8, "embedding_size": 8}, {}),
        ({"model_type": "vaswani", "preset": "small", "hidden_size": 16, "intermediate_size": 16}, {}),
        ({}, {"labels": ["up", "down", "flat"]}),
    ],
    ids=["one sigmoid", "transformer", "three classes"],
)
def test_other_models_and_classes(tmp_path: Path, model: dict[str, Any], data: dict[str, Any]) -> None:
    lines = "".join(f"{('up', 'down', 'flat')[i % 3]}\t{i} a\n" for i in range(90))
    source = {"dataset": str(written(tmp_path / "texts.tsv", "label\ttext\n" + lines)), "split": [0.5, 0.2, 0.3]}
    fields = {**source, **data} if data else {}
    results = train_here(RECIPE, tiny_config(tmp_path, data=fields, model=model, training=steps(2)))
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


def test_numbers_of_parameters() -> None:
    """Keras' BiLSTM of this size trains 34,113 parameters; torch's LSTMs have a second bias, 2 x 4 x 32 more."""
    recipe = load_recipe(RECIPE / "train.py")
    config = load_config(recipe.Config, RECIPE / "imdb_bilstm_glove.yaml")
    settings = own_classifier_config(config, config.tokenizer.vocab_size, labels=["negative", "positive"])
    model = RNNEncoderForSequenceClassification(settings)
    assert model.num_parameters() == 2_034_113 + 256
    assert model.num_parameters(only_trainable=True) == 34_113 + 256
    pair = [load_config(recipe.Config, RECIPE / f"{name}.yaml") for name in ("imdb_gru", "imdb_gru_unmasked")]
    masked, unmasked = (own_classifier_config(config, 1000) for config in pair)
    assert isinstance(masked, RNNEncoderConfig)
    differing = {name for name, value in masked.to_dict().items() if unmasked.to_dict()[name] != value}
    assert differing == {"mask_padding"}
    pair[0].model["mask_padding"] = False
    assert pair[0] == pair[1]


TWO = "label\ttext\nup\tthe cat\n" + "".join(f"down\tdog {i}\n" for i in range(20))


def three_classes(folder: Path) -> list[object]:
    dataset = written(
        folder / "texts.tsv",
        "label\ttext\n" + "".join(f"{label}\t{label} {i}\n" for label in ("up", "down", "left") for i in range(20)),
    )
    return ["--data.dataset", dataset, "--tokenizer.kind", "word", "--model.preset", "gru128"]


BAD: list[BadInput] = [
    ("--data.dataset no.tsv", "no.tsv was not found locally or on the Hub"),
    (
        lambda f: ["--data.dataset", reviews(f, 20, "a.jsonl", 0), "--data.test", written(f / "texts.tsv", TWO)],
        "Line 2 of texts.tsv has the label 'up', which is not one of 0, 1; correct it",
    ),
    ("--model.pooling hierarchical", "needs tokens that end sentences, and the vocabulary has none of '.!\\?'"),
    (three_classes, "The data have 3 classes, and a single sigmoid output has two; write model.problem_type"),
    ("--evaluation.columns [rating]", "names 'rating', and the other columns of reber are broken; write one of these"),
    ("--data.vectors no.txt", "no.txt: No such file"),
    ("--data.words w.txt", "words is the file of words for vectors; write vectors too"),
    (
        "--data.dataset a.tsv --data.test b.tsv --data.split '[0.8, 0.1, 0.1]'",
        "already makes a test, and test is given too",
    ),
    ("--data.test b.tsv", "reber has its own validation and test; remove"),
    ("--data.split '[0.5, 0.6]'", "write shares .*, or texts such as"),
    ("--data.max_length 0", "data: max_length is 0; write a whole number of at least 1"),
    ("--data.too_long middle", "too_long is 'middle'; write one of cut, cut_start"),
    ("--data.too_long windows", "data.too_long windows is for a model that is pretrained"),
    ("--tuning.method lora", "tuning is for a model that is pretrained"),
    (
        "--sample.examples '[[a, b]]'",
        r"sample.examples has \['a', 'b'\], and the classifier reads one text; correct it",
    ),
    ("--sample.examples '[\" \"]'", "sample.examples has ' ', and the classifier reads one text; correct it"),
    (
        "--sample.examples [BTX9E]",
        "sample.examples contains '9', which is not in the vocabulary; write tokenizer.unknown: true, or sample.ex",
    ),
    ("--data.overlap 8", "data.overlap is for a model that is pretrained"),
    ("--evaluation.counterfactual_texts -1", "counterfactual_texts is -1; write"),
    ("--model.model_type gpt2", "model.model_type is 'gpt2'; write one of rnn_encoder, vas"),
    ("--model.num_labels 3", "model.num_labels follows from the data; remove it"),
    ("--model.pooling sum", "pooling is 'sum'; write one of"),
    (
        "--model.preset gru128 --training.label_smoothing_factor 0.1",
        "label_smoothing_factor needs a softmax, and this model has one sigmoid",
    ),
]


class TestFromScratch(FinishedRun, KilledRun, BadInputs):
    recipe, bad, changed = "classification", BAD, "--data.examples 201"
    files: ClassVar[set[str]] = {*FinishedRun.files, "modeling_rnn_encoder.py"}
    pictures: ClassVar[tuple[str, ...]] = ("loss_curve.png", "confusion.png", "alignment-1.png", "alignment-2.png")
    stated: ClassVar[Stated] = {
        ("accuracy", "accuracy (test)"): ("test", "accuracy"),
        ("f1", "F1 (validation)"): ("validation", "f1"),
    }

    @pytest.fixture
    def configure(self) -> Configure:
        return tiny_config

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        for words in ("where: first", "| gender |", "3 missing (78.6% found)"):
            assert words in card.text
        assert re.search(r"!\[(negative|positive), classified as", card.text)
        assert results["example"]["texts"] == [results["short_texts"][0]["text"]]
        assert printed == results["example"]["label"] + "\n"

    def killed(self, folder: Path) -> dict[str, Any]:
        return {"model": {"classifier_dropout": 0.3}, "max_tokens": 300, "training": {"max_steps": 40}}


# Fine-tuning


def test_a_published_classifier_abstains_below_its_threshold(finished: Path, tmp_path: Path) -> None:
    """As many texts are answered as the report says; and so does the code of the card, where hfattn is not."""
    folder, results = finished / "run", results_of(finished / "run")
    kept = results["metrics"]["test"]["abstaining"]
    config = json.loads((folder / "config.json").read_text())
    assert config["task_specific_params"]["text-classification"]["threshold"] == kept["threshold"]
    test = read_labeled(finished / "test.jsonl")
    answers = hfattn.predict(str(folder), [item.text for item in test])
    assert answers == hfattn.predict(str(folder), [item.text for item in test], abstain=True)
    answered = [answer["label"] is not None for answer in answers]
    assert 0 < kept["answered"] < len(test)
    assert sum(answered) == pytest.approx(kept["answered"], abs=1)  # the text at the threshold may be on either side
    assert answered == [answer["probability"] >= kept["threshold"] for answer in answers]
    assert answered == [not answer["rejected"] for answer in answers]
    whole = hfattn.predict(str(folder), [item.text for item in test], abstain=False)
    assert [answer["probability"] for answer in whole] == [answer["probability"] for answer in answers]
    assert all(answer["label"] in ("negative", "positive") for answer in whole)
    assert "rejected" not in whole[0]

    code = "".join(re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL))
    assert "threshold" in code
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("checkpoints", "logs"))
    for threshold, said in ((0.0, results["example"]["label"]), (1.1, "(abstains)")):
        config["task_specific_params"]["text-classification"]["threshold"] = threshold
        (copy / "config.json").write_text(json.dumps(config))
        clean = f"import sys\nsys.modules['hfattn'] = None\n{code}"
        done = run([sys.executable, "-c", clean], cwd=copy, HF_MODULES_CACHE=str(tmp_path / "modules"))
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == [results["example"]["label"], said]


def test_the_probabilities_of_a_published_classifier_are_calibrated(finished: Path) -> None:
    """The temperature is in the weights: pipelines and hfattn predict give the probabilities that were reported."""
    results = results_of(finished / "run")
    config = json.loads((finished / "run" / "config.json").read_text())
    temperature = config["task_specific_params"]["text-classification"]["temperature"]
    test = read_labeled(finished / "test.jsonl")
    asked = [item.text for item in test]
    by_pipeline = pipeline("text-classification", str(finished / "run"), top_k=None)(asked, truncation=True)
    right = ["negative" if item.label == 0 else "positive" for item in test]
    found = {
        "pipeline": [{each["label"]: each["score"] for each in answer} for answer in by_pipeline],
        "predict": [answer["probabilities"] for answer in hfattn.predict(str(finished / "run"), asked)],
    }
    compared = results["metrics"]["test"]["calibration"]
    assert compared["temperature"] == temperature != 1
    assert compared["after"]["nats_per_example"] == pytest.approx(results["metrics"]["test"]["nats_per_example"])
    for name, answers in found.items():
        nats = [-math.log(answer[label]) for answer, label in zip(answers, right, strict=True)]
        assert np.mean(nats) == pytest.approx(compared["after"]["nats_per_example"], abs=1e-5), name
        undone = [{label: value**temperature for label, value in answer.items()} for answer in answers]
        before = [-math.log(each[label] / sum(each.values())) for each, label in zip(undone, right, strict=True)]
        assert np.mean(before) == pytest.approx(compared["before"]["nats_per_example"], abs=1e-4), name
    assert results["selection"]["temperature"] == {"part": "validation", "metric": "nats_per_example"}
    assert (finished / "run" / "reliability.png").exists()
    card = (finished / "run" / "README.md").read_text()
    assert f"divided by the temperature {temperature:.4f}" in card
    assert f"| after | {compared['after']['calibration_error']:.4f} |" in card


@pytest.mark.parametrize("kind", ["distilbert", "gpt2", "vaswani"])
def test_the_logits_are_divided_in_the_last_layer(models: dict[str, Path], kind: str) -> None:
    model = load_model(AutoModelForSequenceClassification, location(models[kind]), num_labels=3, pad_token_id=0).model
    batch = {"input_ids": torch.tensor([[5, 6, 7], [7, 5, 6]]), "labels": torch.tensor([0, 1])}
    check_calibration(model, batch)
    before = model(batch["input_ids"]).logits
    divide_logits(model, 2.5)
    torch.testing.assert_close(model(batch["input_ids"]).logits, before / 2.5)


def test_a_model_whose_logits_cannot_be_divided_is_refused(models: dict[str, Path]) -> None:
    model = load_model(AutoModelForSequenceClassification, location(models["distilbert"]), num_labels=3).model
    batch = {"input_ids": torch.tensor([[5, 6, 7]])}
    model.classifier = torch.nn.Sequential(model.classifier, torch.nn.Tanh())
    with torch.no_grad():
        model.classifier[0].bias += 1
    with pytest.raises(UserError, match="the logits of DistilBertForSequenceClassification do not follow; write false"):
        check_calibration(model, batch)
    model.classifier = torch.nn.Identity()
    with pytest.raises(UserError, match="has none; write false"):
        check_calibration(model, batch)


def test_a_fine_tuned_classifier_is_calibrated(models: dict[str, Path], tmp_path: Path) -> None:
    path = fine_tuning_config(
        tmp_path,
        models["distilbert"],
        tuning={"method": "lora", "rank": 2},
        evaluation={"calibration": True, "counterfactual_texts": 0},
    )
    validation = train_here(RECIPE, path)["metrics"]["validation"]
    data = LabeledDataConfig(dataset=str(tmp_path / "reviews.tsv")).read_parts(42)["validation"]
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run")
    again = evaluate_classifier(model, AutoTokenizer.from_pretrained(tmp_path / "run"), data)
    assert again["confusion"] == validation["confusion"]
    assert again["nats_per_example"] == pytest.approx(validation["nats_per_example"], abs=1e-5)
    after = validation["calibration"]["after"]
    assert after["nats_per_example"] == pytest.approx(validation["nats_per_example"], abs=1e-5)
    assert after["nats_per_example"] < validation["calibration"]["before"]["nats_per_example"]
    # The head of the adapter beside the merged weights is divided too.
    base = AutoModelForSequenceClassification.from_pretrained(models["distilbert"], num_labels=2)
    adapted = PeftModel.from_pretrained(base, tmp_path / "run" / "adapter").eval()
    inputs = AutoTokenizer.from_pretrained(tmp_path / "run")("The film was good.", return_tensors="pt")
    with torch.inference_mode():
        torch.testing.assert_close(adapted(**inputs).logits, model.eval()(**inputs).logits)


def test_hfattn_classify(finished: Path, lora_run: Path) -> None:
    folder = str(finished / "run")
    text, other = (item.text for item in read_labeled(finished / "test.jsonl").items[:2])
    answers = hfattn.predict(folder, [text, other])

    def said(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["classify", *words])
        return done.exit_code, done.stdout or done.stderr.splitlines()[-1]

    for options in ((), ("--abstain",)):
        assert said(folder, text, other, *options, "--json") == (0, json.dumps(answers, indent=2) + "\n")
    (label,) = hfattn.predict(folder, [text], abstain=False)
    assert said(folder, text, "--no-abstain") == (0, f"{label['probability']:.4f}  {label['label']}\n")
    (pair,) = hfattn.predict(str(lora_run / "run"), [("The film was good.", "It was bad.")])
    assert pair != hfattn.predict(str(lora_run / "run"), ["The film was good."])[0]
    assert said(str(lora_run / "run"), "--pair", "The film was good.", "It was bad.")[1].startswith(
        f"{pair['probability']:.4f}"
    )
    for words, message in (
        ([str(lora_run / "run"), text, "--abstain"], "has no threshold; train with evaluation.coverage, or do not ask"),
        ([folder, text, "--pair"], "A pair has two texts, and 1 are given; give two with --pair"),
        ([folder, " "], "A text is empty; give at least one character"),
    ):
        code, error = said(*words)
        assert code == 2
        assert message in error


LONG = " ".join(f"word {i} of the story was good" for i in range(12))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {kind: tiny_model(folder / kind, kind) for kind in ("distilbert", "bert", "gpt2", "vaswani")}


def location(path: Path, **fields: Any) -> BaseModel:
    return BaseModel(name=str(path), **fields)


TINY_FINE_TUNING: dict[str, dict[str, Any]] = {
    "data": {"training_examples": 120, "max_length": 64},
    "training": {
        **steps(9, 3),
        "per_device_eval_batch_size": 30,
        "learning_rate": 3e-3,
        "logging_steps": 3,
        "save_total_limit": 5,
        "metric_for_best_model": "accuracy",
    },
    "evaluation": {"counterfactual_texts": 20},
}


def fine_tuning_config(folder: Path, pretrained: Path, /, **sections: Any) -> Path:
    dataset = str(labeled_file(folder / "reviews.tsv", pairs=False))
    files = {"model": {"name": str(pretrained)}, "data": {"dataset": dataset}}
    return write_config(folder, TINY_FINE_TUNING, files, sections)


# Texts


def texts(*items: str) -> LabeledTexts:
    return LabeledTexts("texts", [Labeled(text, 0, i + 1) for i, text in enumerate(items)], ["no", "yes"])


def test_a_long_text_is_cut(models: dict[str, Path]) -> None:
    tokenizer = load_tokenizer(location(models["bert"]))
    whole = tokenizer(LONG, add_special_tokens=False).input_ids
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    head = WindowedTexts(texts(LONG, "good"), tokenizer, 22)
    assert head[0]["windows"][0]["input_ids"] == [cls, *whole[:20], sep]
    assert head[1]["windows"][0]["input_ids"] == tokenizer("good").input_ids
    assert head.cut == 1
    both = WindowedTexts(texts(LONG), tokenizer, 22, too_long="head_tail")
    assert both[0]["windows"][0]["input_ids"] == [cls, *whole[:5], *whole[-15:], sep]
    assert all(len(values) == 22 for values in both[0]["windows"][0].values())


def test_windows_cover_a_long_text_and_overlap(models: dict[str, Path]) -> None:
    tokenizer = load_tokenizer(location(models["bert"]))
    whole = tokenizer(LONG, add_special_tokens=False).input_ids
    dataset = WindowedTexts(texts(LONG, "good"), tokenizer, 22, too_long="windows", overlap=6)
    windows = [window["input_ids"][1:-1] for window in dataset[0]["windows"]]
    rebuilt = windows[0]
    for before, after in pairwise(windows):
        assert after[:6] == before[-6:]
        rebuilt = rebuilt + after[6:]
    assert rebuilt == whole
    batch = WindowCollator(tokenizer)([dataset[0], dataset[1]])
    assert batch["windows"].tolist() == [len(windows), 1]
    assert len(batch["input_ids"]) == len(windows) + 1
    assert dataset.lengths.tolist()[1] == [len(tokenizer("good").input_ids)]


def test_the_mean_over_windows_is_that_of_each_text() -> None:
    logits, windows = torch.randn(6, 3, dtype=torch.float64), torch.tensor([1, 3, 2])
    expected = torch.stack([logits[0], logits[1:4].sum(0) / 3, (logits[4] + logits[5]) / 2])
    torch.testing.assert_close(mean_of_windows(logits, windows), expected)


def test_the_longer_text_of_a_pair_is_cut(models: dict[str, Path]) -> None:
    tokenizer = load_tokenizer(location(models["bert"]))
    pair = LabeledTexts("pairs", [Labeled(LONG, 0, 1, {}, "Was it good?")], ["no", "yes"])
    window = WindowedTexts(pair, tokenizer, 24)[0]["windows"][0]
    end = tokenizer("Was it good?", add_special_tokens=False).input_ids
    assert window["input_ids"][-len(end) - 1 :] == [*end, tokenizer.sep_token_id]
    assert window["token_type_ids"] == [0] * (24 - len(end) - 1) + [1] * (len(end) + 1)
    with pytest.raises(UserError, match=re.escape("data.too_long windows is for single texts, and pairs has pairs")):
        WindowedTexts(pair, tokenizer, 24, too_long="windows")


# Evaluation


def predicted_texts(folder: Path, model: Path, too_long: str) -> tuple[Any, WindowedTexts, ClassifierTrainer]:
    """Predictions for 42 texts of different lengths, 40 of them in ``reviews.tsv``, in batches of 8 texts."""
    labeled = read_labeled(folder / "reviews.tsv").sample(40, 1)
    items = [*labeled.items[:20], *texts(LONG, "good").items, *labeled.items[20:]]
    loaded = load_model(AutoModelForSequenceClassification, location(model), num_labels=2)
    tokenizer = load_tokenizer(location(model))
    dataset = WindowedTexts(LabeledTexts("mixed", items, ["no", "yes"]), tokenizer, 22, too_long=too_long, overlap=2)
    trainer = ClassifierTrainer(
        loaded.model,
        TrainingArguments(
            str(folder / "run"),
            report_to="none",
            use_cpu=True,
            per_device_eval_batch_size=8,
            remove_unused_columns=False,
        ),
        data_collator=WindowCollator(tokenizer),
        source=location(model),
        loaded=loaded,
        tuning=TuningConfig(),
        max_tokens=100,
    )
    return trainer.predict(dataset), dataset, trainer


ON_TWO_PROCESSES = """
import sys
from pathlib import Path
import numpy as np
sys.path.insert(0, {tests!r})
from test_classification import predicted_texts
output, _, trainer = predicted_texts(Path({folder!r}), Path({model!r}), "windows")
assert trainer.args.world_size == 2
if trainer.is_world_process_zero():
    np.savez({folder!r} + "/found.npz", predictions=output.predictions, labels=output.label_ids)
"""


def test_predictions_are_in_the_order_of_the_dataset_and_batches_have_texts_of_similar_lengths(
    models: dict[str, Path], tmp_path: Path
) -> None:
    """Against texts predicted alone; whole and in windows, and with two processes."""
    torch.manual_seed(0)
    labeled_file(tmp_path / "reviews.tsv", pairs=False)
    model = tmp_path / "classifier"
    loaded = load_model(AutoModelForSequenceClassification, location(models["bert"]), num_labels=2)
    loaded.model.save_pretrained(model)
    load_tokenizer(location(models["bert"])).save_pretrained(model)
    for too_long in ("cut", "windows"):
        output, dataset, trainer = predicted_texts(tmp_path, model, too_long)
        alone = [
            trainer.prediction_step(trainer.model, trainer.data_collator([dataset[i]]), False)[1]
            for i in range(len(dataset))
        ]
        np.testing.assert_allclose(output.predictions, torch.cat(alone), atol=1e-5)
        assert output.label_ids.tolist() == [item.label for item in dataset.texts]
        widths = [batch["input_ids"].shape[1] for batch in trainer.get_eval_dataloader(dataset)]
        assert widths == sorted(widths)
        assert widths[0] < widths[-1]
    script = tmp_path / "two.py"
    script.write_text(ON_TWO_PROCESSES.format(tests=str(Path(__file__).parent), folder=str(tmp_path), model=str(model)))
    done = run([*TWO_PROCESSES, script])
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "found.npz") as found:
        np.testing.assert_allclose(found["predictions"], output.predictions, atol=1e-5)
        assert found["labels"].tolist() == output.label_ids.tolist()


# The loss


def test_the_loss_weighs_classes_and_an_accumulated_step_is_one_batch(models: dict[str, Path], tmp_path: Path) -> None:
    """Against a literal loop in float64, label smoothing included; and 2 x 4 texts give the gradient of 8."""
    labeled = read_labeled(labeled_file(tmp_path / "reviews.tsv", pairs=False)).sample(60, 1)
    tokenizer = load_tokenizer(location(models["bert"]))
    loaded = load_model(AutoModelForSequenceClassification, location(models["bert"]), num_labels=2)
    weights = class_weights([1.0, 3.0], labeled)
    arguments = TrainingArguments(str(tmp_path), report_to="none", use_cpu=True, label_smoothing_factor=0.1)
    trainer = ClassifierTrainer(
        loaded.model,
        arguments,
        source=location(models["bert"]),
        loaded=loaded,
        tuning=TuningConfig(),
        class_weights=weights,
    )
    model = loaded.model.eval()
    dataset = WindowedTexts(labeled, tokenizer, 12, too_long="windows", overlap=2)
    batch = WindowCollator(tokenizer)([dataset[i] for i in range(8)])
    whole = trainer.compute_loss(model, dict(batch))

    expected = torch.zeros((), dtype=torch.float64)
    for i in range(8):
        one = WindowCollator(tokenizer)([dataset[i]])
        logits = model(**{name: one[name] for name in ("input_ids", "attention_mask", "token_type_ids")}).logits
        log = functional.log_softmax(logits.double().mean(0), -1)
        smoothed = torch.full((2,), 0.05, dtype=torch.float64)
        smoothed[int(one["labels"])] += 0.9
        expected -= (smoothed * torch.tensor([1.0, 3.0], dtype=torch.float64) * log).sum() / 8
    torch.testing.assert_close(whole.double(), expected, atol=1e-6, rtol=1e-5)

    def gradient(*losses: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        for loss in losses:
            loss.backward()
        return model.classifier.weight.grad.clone()

    halves = [WindowCollator(tokenizer)([dataset[i] for i in part]) for part in (range(4), range(4, 8))]
    accumulated = gradient(*(trainer.compute_loss(model, half, num_items_in_batch=torch.tensor(8)) for half in halves))
    torch.testing.assert_close(accumulated, gradient(trainer.compute_loss(model, dict(batch))))


@pytest.mark.parametrize("sigmoids", [1, 3])
def test_the_weighted_loss_of_a_model_from_scratch(sigmoids: int) -> None:
    """Against a literal loop; two halves of a step add up to the whole; and a rare class is found again."""
    torch.manual_seed(0)
    classes = max(sigmoids, 2)
    weights = torch.tensor([1.0, 3.0, 0.5][:classes])
    logits, labels = torch.randn(8, sigmoids, dtype=torch.float64), torch.randint(classes, (8,))
    expected = 0.0
    for row, label in zip(logits, labels.tolist(), strict=True):
        if sigmoids == 1:
            probability = 1 / (1 + math.exp(-float(row)))
            expected -= float(weights[label]) * math.log(probability if label else 1 - probability)
            continue
        log = [float(x) - math.log(sum(math.exp(float(y)) for y in row)) for x in row]
        smoothed = [0.1 / classes + (0.9 if c == label else 0.0) for c in range(classes)]
        expected -= sum(float(w) * s * x for w, s, x in zip(weights, smoothed, log, strict=True))
    options: dict[str, Any] = {"weights": weights, "label_smoothing": 0.1}
    whole = weighted_loss(SimpleNamespace(logits=logits), labels, **options)
    assert float(whole) == pytest.approx(expected / 8, rel=1e-5)
    halves = [weighted_loss(SimpleNamespace(logits=logits[i : i + 4]), labels[i : i + 4], 8, **options) for i in (0, 4)]
    assert float(sum(halves)) == pytest.approx(float(whole), rel=1e-5)


def test_balanced_classes_weigh_alike() -> None:
    labeled = LabeledTexts("x", [Labeled("a", 0)] * 6 + [Labeled("b", 1)] * 2, ["no", "yes"])
    weights = class_weights("balanced", labeled)
    assert weights is not None
    assert weights.tolist() == pytest.approx([8 / 12, 2.0])
    assert class_weights(None, labeled) is None
    with pytest.raises(UserError, match="write balanced, null, or 2 numbers of at least 0, for no, yes"):
        class_weights([1.0], labeled)
    with pytest.raises(UserError, match="No training text has the class 'yes'"):
        class_weights("balanced", LabeledTexts("x", [Labeled("a", 0)], ["no", "yes"]))


# What is trained


@pytest.mark.parametrize("kind", ["distilbert", "bert", "gpt2", "vaswani"])
def test_each_layer_is_one_deeper_than_the_next(kind: str, models: dict[str, Path]) -> None:
    model = load_model(AutoModelForSequenceClassification, location(models[kind]), num_labels=2, pad_token_id=0).model
    depths = layer_depths(model)
    assert set(depths) == {name for name, _ in model.named_parameters()}
    found = {int(match[1]): depth for name, depth in depths.items() if (match := re.search(r"\.(\d)\.", name))}
    assert found == {0: 2, 1: 1}
    assert {depth for name, depth in depths.items() if "embed" in name or "wte" in name or "shared" in name} == {3}
    assert {depth for name, depth in depths.items() if name.startswith(("classifier", "score"))} == {0}


@pytest.mark.parametrize("method", ["full", "lora"])
def test_lower_layers_learn_more_slowly(method: str, models: dict[str, Path], tmp_path: Path) -> None:
    where, tuning = location(models["bert"]), TuningConfig(method=method, layer_decay=0.5)
    loaded = load_model(AutoModelForSequenceClassification, where, num_labels=2)
    model = tuned(loaded, tuning, "SEQ_CLS")
    arguments = TrainingArguments(str(tmp_path), report_to="none", use_cpu=True, learning_rate=0.8)
    optimizer = ClassifierTrainer(model, arguments, source=where, loaded=loaded, tuning=tuning).create_optimizer()
    rates = {id(tensor): group["lr"] for group in optimizer.param_groups for tensor in group["params"]}
    trained = {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}
    assert set(rates) == {id(tensor) for tensor in trained.values()}
    for name, tensor in trained.items():
        layer = re.search(r"\.layer\.(\d)\.", name)
        depth = 2 - int(layer[1]) if layer else 3 if "embeddings" in name else 0
        assert rates[id(tensor)] == pytest.approx(0.8 * 0.5**depth), name


def test_head_only_trains_the_new_head(models: dict[str, Path]) -> None:
    where = location(models["distilbert"])
    loaded = load_model(AutoModelForSequenceClassification, where, num_labels=2)
    model = tuned(loaded, TuningConfig(method="head_only"))
    trained = {name for name, tensor in model.named_parameters() if tensor.requires_grad}
    assert trained == {"pre_classifier.weight", "pre_classifier.bias", "classifier.weight", "classifier.bias"}
    assert set(loaded.new_weights) == trained
    facts = tuning_facts(model, loaded, TuningConfig(method="head_only"), where)
    assert facts["trained_parameters"] == 32 * 32 + 32 + 2 * 32 + 2
    assert facts["base_model"] == "distilbert"


def test_lora_has_the_numbers_that_it_says(models: dict[str, Path]) -> None:
    where, tuning = location(models["distilbert"]), TuningConfig(method="lora", rank=3)
    plain = load_model(AutoModelForSequenceClassification, where, num_labels=2).model.num_parameters()
    loaded = load_model(AutoModelForSequenceClassification, where, num_labels=2)
    facts = tuning_facts(tuned(loaded, tuning, "SEQ_CLS"), loaded, tuning, where)
    updates = 2 * (4 * 3 * (32 + 32) + 2 * 3 * (32 + 64))  # two layers: four matrices of attention, two of the network
    assert facts["trained_parameters"] == updates + 32 * 32 + 32 + 2 * 32 + 2
    assert facts["parameters"] == plain


# Runs


@pytest.fixture(scope="module")
def lora_run(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora")
    tuning = {"method": "lora", "rank": 4, "lora_dropout": 0.1}
    sample = {"examples": ["The film was good.", "The film was not good at all."]}
    publish = {"texts": "own_words"}
    train_here(RECIPE, fine_tuning_config(folder, models["distilbert"], tuning=tuning, sample=sample, publish=publish))
    return folder


def test_lora_leaves_a_whole_model_and_its_adapter(lora_run: Path, models: dict[str, Path]) -> None:
    folder = lora_run / "run"
    whole = AutoModelForSequenceClassification.from_pretrained(folder)
    base = AutoModelForSequenceClassification.from_pretrained(models["distilbert"], num_labels=2)
    adapted = PeftModel.from_pretrained(base, folder / "adapter")
    inputs = AutoTokenizer.from_pretrained(folder)(
        ["The film was good.", "A bad end."], padding=True, return_tensors="pt"
    )
    with torch.inference_mode():
        torch.testing.assert_close(whole.eval()(**inputs).logits, adapted.eval()(**inputs).logits)
    before, after = (load_file(path / "model.safetensors") for path in (models["distilbert"], folder))
    assert torch.equal(
        before["embeddings.word_embeddings.weight"], after["distilbert.embeddings.word_embeddings.weight"]
    )
    name = "transformer.layer.0.attention.q_lin.weight"
    assert not torch.equal(before[name], after[f"distilbert.{name}"])
    model = results_of(folder)["model"]
    assert (model["method"], model["base_model"]) == ("lora", "distilbert")
    published = [path for path in folder.rglob("*.json") if "checkpoints" not in path.parts] + [folder / "README.md"]
    for path in published:
        assert str(lora_run) not in path.read_text(), path
        assert str(models["distilbert"]) not in path.read_text(), path


def test_the_final_scores_of_lora_are_those_of_the_saved_weights(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit: updates beside a weight round otherwise than updates that are merged into it."""
    inputs = AutoTokenizer.from_pretrained(models["distilbert"])(["The film was good."], return_tensors="pt")
    evaluated, predict = [], ClassifierTrainer.predict

    def predict_here(trainer: ClassifierTrainer, *words: Any, **options: Any) -> Any:
        with torch.inference_mode():
            evaluated.append(trainer.model.eval()(**inputs).logits)
        return predict(trainer, *words, **options)

    monkeypatch.setattr(ClassifierTrainer, "predict", predict_here)
    tuning = {"method": "lora", "rank": 4}
    training = {"learning_rate": 1e-2, "bf16": False}
    train_here(RECIPE, fine_tuning_config(tmp_path, models["distilbert"], tuning=tuning, training=training))
    whole = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run").eval()
    with torch.inference_mode():
        logits = whole(**inputs).logits
    assert evaluated
    assert all(torch.equal(each, logits) for each in evaluated)


def test_the_pipeline_says_what_the_card_does(lora_run: Path) -> None:
    results = results_of(lora_run / "run")
    card = (lora_run / "run" / "README.md").read_text()
    assert results["example"] == results["examples"][0]
    assert 'tokenizer("The film was good.",' in card
    for example, text in zip(results["examples"], ("The film was good.", "The film was not good at all."), strict=True):
        (said,) = pipeline("text-classification", str(lora_run / "run"))(text)
        assert said["label"] == example["label"]
        assert said["score"] == pytest.approx(example["probability"], abs=1e-4)
        assert f"| {text} | {example['label']} | {example['probability']:.4f} |" in card


def test_the_readmes_pipeline_classifies_a_text_and_a_pair(
    lora_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (RECIPE / "README.md").read_text()
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    commands = re.findall(r"^hfattn (classify .*)$", page, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    shutil.copytree(lora_run / "run", tmp_path / "runs" / "classification-sst2_minilm")
    (tmp_path / "runs" / "classification-sick_minilm").symlink_to(lora_run / "run")
    config = tmp_path / "runs" / "classification-sst2_minilm" / "config.json"
    reading = '"text-classification": {'
    config.write_text(config.read_text().replace(reading, f'{reading}"threshold": 1.0, '))
    lines = [CliRunner().invoke(app, shlex.split(command)).stdout.splitlines() for command in commands]
    assert [len(each) for each in lines] == [2, 1]
    assert all("(abstains)" in line for line in lines[0])
    said: dict[str, Any] = {}
    exec(code, said)
    for each in (said["sentiment"]("The actors were very convincing."), said["entailment"](said["pair"])):
        assert {"label", "score"} == set(each[0] if isinstance(each, list) else each)


def test_our_own_encoder_is_fine_tuned_and_published_like_the_others(models: dict[str, Path], tmp_path: Path) -> None:
    path = fine_tuning_config(tmp_path, models["vaswani"], class_weights="balanced", evaluation={"words": ["Mary"]})
    results = train_here(RECIPE, path)
    assert printed_by_card(tmp_path / "run").strip() == results["example"]["label"]
    assert results["model"]["new_weights"] == ["classifier.bias", "classifier.weight"]
    validation = results["metrics"]["validation"]
    assert validation["by_slice"]["word: Mary"]["examples"] == 60
    assert validation["counterfactual"]["name"]["texts"] == 20


def test_rows_of_a_part_are_told_by_their_column(tmp_path: Path) -> None:
    path = tmp_path / "all.tsv"
    path.write_text("text\tlabel\ttag\na\tno\ttrain\nb\tyes\ttrain\nc\tno\tdev\n")
    train = read_labeled(path, part_column="tag")
    assert [(item.text, item.line, item.fields) for item in train] == [("a", 2, {}), ("b", 3, {})]
    dev = read_labeled(path, part_column="tag", split="dev", labels=train.labels)
    assert [item.text for item in dev] == ["c"]
    with pytest.raises(
        UserError, match=re.escape("has no row with 'test' in the column 'tag'; write one of dev, train.")
    ):
        read_labeled(path, part_column="tag", split="test")


WINDOWS = {"max_length": 12, "too_long": "windows", "overlap": 2}


class FineTuning(KilledRun):
    """Killed with dropout, several windows of a text, and rates by layer."""

    recipe, kill_step, changed = "classification", 7, "--data.training_examples 121"

    @pytest.fixture
    def configure(self, models: dict[str, Path]) -> Configure:
        return lambda folder, **sections: fine_tuning_config(folder, models["distilbert"], **sections)

    def check_resumed(self, folder: Path) -> None:
        """From its folder alone, the model is evaluated in windows again."""
        model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        texts = load_recipe(RECIPE / "train.py").DataConfig(dataset=str(folder.parent / "reviews.tsv")).read_parts(42)
        again = evaluate_classifier(model, AutoTokenizer.from_pretrained(folder), texts["validation"])
        measured = results_of(folder)["metrics"]["validation"]
        assert again["nats_per_example"] == pytest.approx(measured["nats_per_example"], rel=1e-5)


class TestLora(FineTuning, FinishedRun):
    stated: ClassVar[Stated] = {("accuracy", "accuracy (validation)"): ("validation", "accuracy")}

    @pytest.fixture
    def finished(self, lora_run: Path) -> Path:
        return lora_run

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        assert printed.strip() == results["example"]["label"]

    def killed(self, folder: Path) -> dict[str, Any]:
        return {"tuning": {"method": "lora", "layer_decay": 0.8, "lora_dropout": 0.1}, "data": WINDOWS}


class TestFullTuning(FineTuning, TwoProcesses, BadInputs):
    loss = "nats_per_example"
    bad: ClassVar[list[BadInput]] = [
        ("--model.name nobody/nothing", "a folder made elsewhere with hf download nobody/nothing --local-dir DIR"),
        ("--model.name ./absent", "./absent was not found locally or on the Hub"),
        (lambda f: ["--model.name", f], "holds no model: config.json is missing"),
        ("--model.options '{dropuot: 0.1}'", "did you mean 'dropout'"),
        ("--model.options '{vocab_size: 7}'", "of the shape that its configuration says"),
        ("--data.max_length 65", "data.max_length is 65; this model reads at most 64 tokens"),
        ("--data.max_length 12 --data.too_long windows --data.overlap 10", "raise max_length or lower overlap"),
        ("--data.too_long tail", "too_long is 'tail'; write one of cut, cut_start, head_tail, windows."),
        ("--data.part_column part", "has no column 'part'; write one of text, label."),
        ("--data.regression true --class_weights balanced", "class_weights is for classes, and a regression"),
        ("--class_weights even", "class_weights is 'even'; write balanced, null, or 2 numbers"),
        ("--tuning.method some", "method is 'some'; write one of full, lora, head_only."),
        ("--tuning.method lora --tuning.target_modules [query]", "the linear layers of this model are k_lin,"),
        ("--data.vectors glove.txt", "data.vectors is for a model from scratch .*; remove it."),
        ("--tokenizer.kind word", "tokenizer is for a model from scratch .*; remove it."),
        ("--tuning.method lora --averaging.last 2", "lora saves updates only; write averaging.ema"),
        ("--evaluation.swaps absent.yaml", "The file absent.yaml with the words to swap does not exist"),
        ("--evaluation.columns [stars]", "evaluation.columns names 'stars'"),
    ]

    def killed(self, folder: Path) -> dict[str, Any]:
        return {"tuning": {"layer_decay": 0.8}, "data": WINDOWS}

    def shared(self, folder: Path) -> dict[str, Any]:
        """Several windows of a text, and weights of the classes."""
        return {
            "model": {"options": {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0}},
            "data": WINDOWS,
            "class_weights": [1.0, 2.0],
            "evaluation": {"counterfactual_texts": 0},
        }
