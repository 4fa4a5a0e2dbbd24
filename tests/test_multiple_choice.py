"""The recipe multiple_choice: its data, its loss, and runs of every kind of model through the real command line."""

import json
import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from commands import ROOT, results_of, steps, train_here, write_config, written
from huggingface_hub import ModelCard
from recipe_contract import BadInput, BadInputs, Configure, FinishedRun, Stated
from tiny_models import tiny_model
from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainingArguments

from hfattn.data import EncodedChoices, WindowCollator, read_choices, with_distractors
from hfattn.data.choices import Choice, Choices
from hfattn.errors import UserError
from hfattn.evaluation import evaluate_folder
from hfattn.loading import BaseModel, load_model, load_tokenizer
from hfattn.training import ChoiceTrainer, TuningConfig, scores_by_question

pytestmark = pytest.mark.runs

RECIPE = ROOT / "recipes" / "multiple_choice"
COLORS, THINGS = ("red", "blue", "green", "grey"), ("dog", "house", "film", "book")


def questions_file(path: Path, number: int = 240) -> Path:
    """Questions with two to four choices; the right one has "good"."""
    generator = np.random.default_rng(0)
    rows = []
    for i in range(number):
        count = 2 + i % 3
        label = int(generator.integers(count))
        words = ["good" if place == label else "bad" for place in range(count)]
        choices = [f"it is a {word} {generator.choice(THINGS)}" for word in words]
        rows.append({"context": f"the {generator.choice(COLORS)} {i}", "choices": choices, "label": label})
    return written(path, rows)


TINY: dict[str, dict[str, Any]] = {
    "data": {"split": [0.6, 0.2, 0.2], "max_length": 48},
    "training": {**steps(40, 20), "per_device_eval_batch_size": 7, "metric_for_best_model": "accuracy"},
    "sample": {"mistakes": 3},
}
RECURRENT = {"model_type": "rnn_encoder", "embedding_size": 8, "hidden_size": 8, "pooling": "max"}
FROM_SCRATCH = {"tokenizer": {"kind": "word"}, "model": RECURRENT}


def tiny_config(folder: Path, **fields: Any) -> Path:
    # Each row has its own choices, for shared ones would connect all rows.
    path = questions_file(folder / "questions.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for i, row in enumerate(rows):
        row["choices"] = [f"{choice} {i}" for choice in row["choices"]]
    return write_config(folder, TINY, {"data": {"dataset": str(written(path, rows))}}, fields)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    train_here(RECIPE, tiny_config(folder, **FROM_SCRATCH))
    return folder


# Data


def test_choices_are_in_one_column_or_in_several(tmp_path: Path) -> None:
    rows = [{"q": "one", "a": "x", "b": "y", "c": ["x", "y"], "label": 1, "id": 7}]
    path = written(tmp_path / "a.jsonl", rows)
    listed = read_choices(str(path), context_column="q", choice_columns=["c"], label_column="label")
    spread = read_choices(str(path), context_column="q", choice_columns=["a", "b"], label_column="label")
    assert listed.items[0][:4] == spread.items[0][:4] == ("one", ("x", "y"), 1, 1)
    assert listed.fingerprint == spread.fingerprint
    assert Choices("a", [Choice("q", ("x", "y"), 0), Choice("q", ("x", "y", "z", "u"), 0)]).chance == 0.375


@pytest.mark.parametrize(
    ("label", "choices"), [(2, ["x", "y"]), (-1, ["x", "y"]), ("B", ["x", "y"]), (True, ["x", "y"])]
)
def test_a_label_that_is_no_choice_is_refused(tmp_path: Path, label: object, choices: list[str]) -> None:
    path = written(tmp_path / "a.jsonl", [{"q": "one", "c": choices, "label": label}])
    with pytest.raises(UserError, match=r"^Line 1 of a.jsonl has the label .* and 2 choices; write the index"):
        read_choices(str(path), context_column="q", choice_columns=["c"], label_column="label")


def test_distractors_are_of_similar_length_and_never_right() -> None:
    generator = np.random.default_rng(0)
    texts = ["".join(generator.choice(list("abcdefgh"), size=size)) for size in generator.integers(3, 60, size=3000)]
    items = [Choice(f"context {i // 2}", (text,), 0) for i, text in enumerate(texts)]  # two translations of each
    drawn = with_distractors(Choices("pairs", items), 3, seed=1)
    assert drawn.fingerprint == with_distractors(Choices("pairs", items), 3, seed=1).fingerprint
    right = {i: {texts[2 * i], texts[2 * i + 1]} for i in range(1500)}
    for i, (item, text) in enumerate(zip(drawn, texts, strict=True)):
        assert item.choices[item.label] == text
        others = [choice for place, choice in enumerate(item.choices) if place != item.label]
        assert len(set(others)) == 3
        assert not right[i // 2] & set(others)
        assert max(abs(len(other) - len(text)) for other in others) <= 3
    places = np.bincount([item.label for item in drawn])
    assert places.min() > 650
    # The length does not tell the right choice: about as many wrong ones are longer as are shorter.
    longer, shorter = (
        sum(
            sign * (len(choice) - len(text)) > 0
            for item, text in zip(drawn, texts, strict=True)
            for choice in item.choices
        )
        for sign in (1, -1)
    )
    assert 0.9 < longer / shorter < 1.1
    with pytest.raises(UserError, match="too few choices for data"):
        with_distractors(Choices("pairs", items[:4]), 3, seed=1)


# The loss


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {kind: tiny_model(folder / kind, kind) for kind in ("distilbert", "gpt2", "llama", "vaswani")}


def loaded_trainer(path: Path, folder: Path) -> tuple[ChoiceTrainer, Any]:
    where = BaseModel(name=str(path))
    tokenizer = load_tokenizer(where)
    loaded = load_model(AutoModelForSequenceClassification, where, num_labels=1, pad_token_id=tokenizer.pad_token_id)
    arguments = TrainingArguments(str(folder), report_to="none", use_cpu=True)
    return ChoiceTrainer(loaded.model, arguments, source=where, loaded=loaded, tuning=TuningConfig()), tokenizer


@pytest.mark.parametrize("kind", ["distilbert", "gpt2", "llama", "vaswani"])
def test_the_loss_is_that_of_each_choice_read_alone(kind: str, models: dict[str, Path], tmp_path: Path) -> None:
    """Against a literal loop in float64 over choices without padding; 2 x 4 questions give the gradient of 8."""
    trainer, tokenizer = loaded_trainer(models[kind], tmp_path)
    model = trainer.model.eval().double()
    path = str(questions_file(tmp_path / "a.jsonl", 8))
    questions = read_choices(path, context_column="context", choice_columns=["choices"], label_column="label")
    dataset, collate = EncodedChoices(questions, tokenizer, 48), WindowCollator(tokenizer)
    whole = collate([dataset[i] for i in range(8)])
    loss, outputs = trainer.compute_loss(model, dict(whole), return_outputs=True)
    assert outputs.logits.shape == (8, 4)
    expected = 0.0
    for i, item in enumerate(questions):
        with torch.no_grad():
            scores = [
                model(**tokenizer(item.context, choice, return_tensors="pt")).logits.item() for choice in item.choices
            ]
        total = sum(math.exp(score) for score in scores)
        expected -= math.log(math.exp(scores[item.label]) / total) / 8
        np.testing.assert_allclose(outputs.logits[i, : len(scores)].tolist(), scores, rtol=1e-5, atol=1e-6)
        assert torch.isneginf(outputs.logits[i, len(scores) :]).all()
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    loss.backward()
    gradients = {name: tensor.grad.clone() for name, tensor in model.named_parameters() if tensor.grad is not None}
    model.zero_grad()
    for start in (0, 4):
        batch = collate([dataset[i] for i in range(start, start + 4)])
        trainer.compute_loss(model, dict(batch), num_items_in_batch=torch.tensor(8)).backward()
    for name, tensor in model.named_parameters():
        if tensor.grad is not None:
            torch.testing.assert_close(tensor.grad, gradients[name], atol=1e-7, rtol=1e-4)


def test_permuted_choices_have_permuted_probabilities(models: dict[str, Path], tmp_path: Path) -> None:
    trainer, tokenizer = loaded_trainer(models["distilbert"], tmp_path)
    texts, order = ("it is a dog", "it is", "the story was moving and good", "no"), [2, 0, 3, 1]
    found = []
    for choices in (texts, tuple(texts[i] for i in order)):
        dataset = EncodedChoices(Choices("q", [Choice("the", choices, 0)]), tokenizer, 48)
        _, outputs = trainer.compute_loss(trainer.model.eval(), WindowCollator(tokenizer)([dataset[0]]), True)
        found.append(outputs.logits.softmax(-1)[0])
    torch.testing.assert_close(found[1], found[0][order])


def test_scores_are_padded_to_the_question_with_most_choices() -> None:
    scores = scores_by_question(torch.tensor([[1.0], [2.0], [3.0], [4.0], [5.0]]), torch.tensor([2, 3]))
    assert scores.tolist() == [[1, 2, -math.inf], [3, 4, 5]]


# Runs


def test_a_chooser_is_not_evaluated_as_a_classifier(finished: Path, tmp_path: Path) -> None:
    file = str(written(tmp_path / "rows.tsv", "text\tlabel\na\t0\nb\t1\n"))
    with pytest.raises(UserError, match="chooses among several texts, which has no measure here; its recipe measures"):
        evaluate_folder(str(finished / "run"), file)
    with pytest.raises(UserError, match="without probabilities of one class"):
        evaluate_folder(str(finished / "run"), file, together_with=[str(finished / "run")])


def test_scores_are_those_of_the_published_model_one_question_at_a_time(finished: Path) -> None:
    results = results_of(finished / "run")
    config = write_config(finished, TINY, {"data": {"dataset": str(finished / "questions.jsonl")}})
    from hfattn.resources import load_recipe
    from hfattn.training import load_config

    data = load_config(load_recipe(RECIPE / "train.py").Config, config).data
    test = data.read_parts(42)["test"]
    model = AutoModelForSequenceClassification.from_pretrained(finished / "run").eval()
    tokenizer = AutoTokenizer.from_pretrained(finished / "run")
    right, nats = 0, 0.0
    for item in test:
        with torch.no_grad():
            scores = [
                model(**tokenizer(item.context, each, return_tensors="pt")).logits.item() for each in item.choices
            ]
        right += int(np.argmax(scores)) == item.label
        nats -= math.log(math.exp(scores[item.label]) / sum(map(math.exp, scores)))
    measured = results["metrics"]["test"]
    assert measured["accuracy"] == right / len(test) > 0.8
    assert measured["nats_per_example"] == pytest.approx(nats / len(test), rel=1e-4)
    assert measured["chance"] == pytest.approx(np.mean([1 / len(item.choices) for item in test]))
    assert "f1" not in measured
    for count in (2, 3, 4):
        assert measured["by_slice"][f"choices: {count}"]["examples"] == sum(len(i.choices) == count for i in test)


@pytest.mark.parametrize("kind", ["vaswani from scratch", "distilbert", "gpt2"])
def test_every_body_chooses(kind: str, models: dict[str, Path], tmp_path: Path) -> None:
    if kind == "vaswani from scratch":
        sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
        fields: dict[str, Any] = {"tokenizer": {"kind": "word"}, "model": {"model_type": "vaswani", **sizes}}
        fields["model"]["preset"] = "small"
    else:
        fields = {"model": {"name": str(models[kind])}, "tuning": {"method": "lora", "rank": 2}}
    results = train_here(RECIPE, tiny_config(tmp_path, **fields, training=steps(4)))
    assert results["example"]["chosen"] in results["example"]["choices"]


class TestMultipleChoice(FinishedRun, BadInputs):
    recipe, tiny = "multiple_choice", FROM_SCRATCH
    files: ClassVar[set[str]] = {*FinishedRun.files, "modeling_rnn_encoder.py"}
    stated: ClassVar[Stated] = {("accuracy", "accuracy (test)"): ("test", "accuracy")}
    bad: ClassVar[list[BadInput]] = [
        ("--data.context_column question", "has no column 'question'; write one of context, choices, label"),
        (
            "--data.label_column context",
            "Line 1 of questions.jsonl has the label 'the .* and 2 choices; write the index",
        ),
        (
            lambda f: ["--data.dataset", questions_file(f / "shared.jsonl")],  # all are connected by shared choices
            "shared.jsonl has 1 groups of connected questions, .* leaves a part empty; add groups of connected ques",
        ),
        ("--data.label_column null", "nothing says which choice is right"),
        ("--data.distractors 2", "write label_column: null and one of choice_columns"),
        ("--data.choice_columns [context] --data.label_column null", "nothing says which choice is right"),
        ("--training.label_smoothing_factor 0.1", "label_smoothing_factor is for classes, and choices have none"),
        ("--model.problem_type regression", "model.problem_type follows from the data"),
        ("--tokenizer.kind bpe --tokenizer.vocab_size 60 --tokenizer.sampling 0.1", "sampling is for single texts"),
    ]

    @pytest.fixture
    def configure(self) -> Configure:
        return tiny_config

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        assert printed == results["example"]["chosen"] + "\n"
        for words in ("| choices: 4 |", "| chance |", "chooses one text even if none is right"):
            assert words in card.text


def test_a_first_question_with_one_choice_is_refused() -> None:
    """Before anything is encoded."""
    tokenizer: Any = None
    with pytest.raises(UserError, match="has one choice; write at least two"):
        EncodedChoices(Choices("q", [Choice("the", ("a",), 0)]), tokenizer, 48)
