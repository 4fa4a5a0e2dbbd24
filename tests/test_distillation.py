"""Distillation: the loss, what a teacher says, the texts that only it labels, and the recipe by its command line."""

import math
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import yaml
from commands import ROOT, results_of, steps, train_here, write_config
from huggingface_hub import ModelCard
from recipe_contract import BadInput, BadInputs, Configure, FinishedRun, KilledRun, Stated, TwoProcesses
from safetensors.torch import load_file
from tiny_models import labeled_file, tiny_model, tiny_teacher
from torch.nn import functional
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    GPT2ForSequenceClassification,
    TrainingArguments,
)

from hfattn import (
    RNNEncoderConfig,
    RNNEncoderForSequenceClassification,
    VaswaniConfig,
    VaswaniForSequenceClassification,
)
from hfattn.data import (
    MASKED,
    AugmentationConfig,
    EncodedTexts,
    LabeledDataConfig,
    augmented,
    read_unlabeled,
    spell_masks,
    unlabeled,
)
from hfattn.errors import UserError
from hfattn.tokenizers import TokenizerConfig, build_tokenizer
from hfattn.training import (
    DistillationConfig,
    DistillationTrainer,
    ImitatedTexts,
    Teacher,
    TeacherConfig,
    TeacherOutputs,
)
from hfattn.training.distillation import class_order, distillation_losses, vector_distances

pytestmark = pytest.mark.runs

RECIPE = ROOT / "recipes" / "distillation"
CONFIGURATIONS = sorted(RECIPE.glob("*.yaml"))
STUDENT: dict[str, Any] = {
    "model_type": "rnn_encoder",
    "embedding_size": 8,
    "hidden_size": 8,
    "classifier_dropout": 0.3,
}
TEXTS = ("The film of Mary was good, and the end was in 7.", "The dog was sad.", "A dull plot; the book was in 98.")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Labeled texts, and a teacher of them."""
    folder = tmp_path_factory.mktemp("files")
    reviews = labeled_file(folder / "reviews.tsv", pairs=False)
    teacher = tiny_teacher(folder / "teacher", reviews, names=("NO", "YES"))
    return {"reviews": reviews, "teacher": teacher}


TINY: dict[str, dict[str, Any]] = {
    "publish": {"texts": "samples"},
    "data": {"labels": ["no", "yes"], "split": [0.2, 0.1, 0.7], "max_length": 64},
    "teacher": {"max_length": 64},
    "tokenizer": {"kind": "word", "lowercase": True},
    "model": STUDENT,
    "training": {**steps(9, 3), "per_device_eval_batch_size": 50, "logging_steps": 3, "save_total_limit": 5},
    "evaluation": {"counterfactual_texts": 0},
}


def tiny_config(folder: Path, files: dict[str, Path], /, **sections: Any) -> Path:
    given = {"data": {"dataset": str(files["reviews"])}, "teacher": {"name": str(files["teacher"])}}
    return write_config(folder, TINY, given, sections)


# The loss


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_a_literal_loop(smoothing: float) -> None:
    torch.manual_seed(0)
    logits, taught = torch.randn(5, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    labels, labeled = torch.tensor([0, 2, 1, 0, 0]), torch.tensor([1, 1, 1, 1, 0])
    settings = DistillationConfig(alpha=0.3, temperature=2.5)
    found = distillation_losses(logits, taught, labels, labeled, settings, smoothing)

    def probabilities(row: list[float], temperature: float) -> list[float]:
        powers = [math.exp(value / temperature) for value in row]
        return [power / sum(powers) for power in powers]

    for i in range(5):
        student, teacher = (probabilities(each[i].tolist(), 2.5) for each in (logits, taught))
        divergence = sum(t * (math.log(t) - math.log(s)) for t, s in zip(teacher, student, strict=True))
        wanted = [smoothing / 3 + (1 - smoothing) * (c == int(labels[i])) for c in range(3)]
        plain = probabilities(logits[i].tolist(), 1.0)
        right = -sum(w * math.log(p) for w, p in zip(wanted, plain, strict=True))
        expected = 0.3 * 2.5**2 * divergence + 0.7 * right * int(labeled[i])
        assert found[i].item() == pytest.approx(expected, rel=1e-12)


def test_the_gradient_keeps_its_size_at_any_temperature() -> None:
    """At a high one it is (z - v) / C of logits with a mean of zero (Hinton et al. 2015, equation 4)."""
    torch.manual_seed(0)
    student, taught = (x - x.mean(-1, keepdim=True) for x in torch.randn(2, 6, 4, dtype=torch.float64))
    none = torch.zeros(6, dtype=torch.long)
    for temperature in (50.0, 200.0):
        logits = student.clone().requires_grad_()
        settings = DistillationConfig(alpha=1.0, temperature=temperature)
        distillation_losses(logits, taught, none, none, settings).sum().backward()
        torch.testing.assert_close(logits.grad, (student - taught) / 4, atol=0.02, rtol=0.05)


def test_the_distance_of_vectors_is_the_angle() -> None:
    vectors = torch.tensor([[2.0, 0.0], [1.0, 1.0], [-3.0, 0.0]])
    found = vector_distances(vectors, torch.tensor([[5.0, 0.0]] * 3))
    torch.testing.assert_close(found, torch.tensor([0.0, 1 - math.sqrt(0.5), 2.0]))


@pytest.mark.parametrize("family", ["rnn_encoder", "vaswani"])
def test_the_vector_that_is_returned_is_what_the_classifier_reads(family: str) -> None:
    torch.manual_seed(0)
    model = student(family).eval()
    ids, mask = torch.tensor([[3, 4, 5], [6, 7, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
    outputs = model(ids, attention_mask=mask, output_pooled=True)
    torch.testing.assert_close(model.classifier(outputs.pooler_output), outputs.logits)
    assert model(ids, attention_mask=mask).pooler_output is None


def student(family: str, vocab_size: int = 20) -> Any:
    if family == "rnn_encoder":
        return RNNEncoderForSequenceClassification(
            RNNEncoderConfig(vocab_size=vocab_size, embedding_size=4, hidden_size=4, pooling="attention")
        )
    return VaswaniForSequenceClassification(
        VaswaniConfig.preset(
            "small",
            vocab_size=vocab_size,
            hidden_size=8,
            intermediate_size=8,
            num_attention_heads=2,
            bos_token_id=None,
            eos_token_id=None,
            decoder_start_token_id=None,
        )
    )


@pytest.mark.parametrize("family", ["rnn_encoder", "vaswani"])
def test_an_accumulated_step_is_one_batch(family: str, tmp_path: Path) -> None:
    """Texts of all kinds: the loss of eight is the mean of theirs, and 2 + 6 of them give its gradient."""
    torch.manual_seed(0)
    tokenizer = build_tokenizer(TokenizerConfig(kind="word"), TEXTS, ends=False)
    generator = np.random.default_rng(0)
    said = TeacherOutputs(generator.normal(size=(8, 2)).astype("f4"), generator.normal(size=(8, 5)).astype("f2"))
    dataset = ImitatedTexts(EncodedTexts(unlabeled([*TEXTS, *TEXTS, *TEXTS[:2]]), tokenizer, 64), 5, said)
    collate = DataCollatorWithPadding(tokenizer)
    settings = DistillationConfig(alpha=0.4, temperature=3.0, hidden_weight=0.7)
    model = student(family, len(tokenizer))
    arguments = TrainingArguments(str(tmp_path), report_to="none", use_cpu=True)
    trainer = DistillationTrainer(
        model, arguments, train_dataset=dataset, distillation=settings, teacher_width=said.width
    )
    model.eval()

    def gradient(*parts: range) -> torch.Tensor:
        model.zero_grad()
        for part in parts:
            batch = dict(collate([dataset[i] for i in part]))
            trainer.compute_loss(model, batch, num_items_in_batch=torch.tensor(8)).backward()
        return torch.cat([tensor.grad.flatten() for tensor in model.parameters()])

    torch.testing.assert_close(gradient(range(8)), gradient(range(2), range(2, 8)))
    expected = 0.0
    for i in range(8):
        outputs = model(torch.tensor([dataset[i]["input_ids"]]), output_pooled=True)
        taught, vector = torch.tensor(said.logits[i : i + 1]), torch.tensor(dataset[i]["teacher_vectors"]).float()
        loss = distillation_losses(outputs.logits, taught, torch.tensor([0]), torch.tensor([int(i < 5)]), settings)
        distance = 1 - functional.cosine_similarity(model.projection(outputs.pooler_output)[0], vector, dim=0)
        expected += (loss + 0.7 * distance).item() / 8
    whole = trainer.compute_loss(model, dict(collate([dataset[i] for i in range(8)])))
    assert whole.item() == pytest.approx(expected, rel=1e-4)


# The teacher


def test_a_teacher_reads_as_its_model_does_alone(files: dict[str, Path]) -> None:
    """Padded batches against single texts; the data's classes in the other order; windows; the position of [CLS]."""
    teacher = Teacher(
        TeacherConfig(name=str(files["teacher"]), max_length=14, too_long="windows", overlap=3), ["yes", "no"]
    )
    fitted = teacher.encode(unlabeled(TEXTS))
    assert len(fitted.windows[0]) > 1
    said = teacher.read(fitted, 3, vectors=True)
    assert said.vectors is not None
    for i, windows in enumerate(fitted.windows):
        logits, vectors = [], []
        for window in windows:
            with torch.no_grad():
                outputs = teacher.model(torch.tensor([window["input_ids"]]), output_hidden_states=True)
            logits.append(outputs.logits[0, [1, 0]])
            vectors.append(outputs.hidden_states[-1][0, 0])
        torch.testing.assert_close(torch.tensor(said.logits[i]), torch.stack(logits).mean(0), atol=1e-5, rtol=1e-4)
        vector = torch.stack(vectors).mean(0)
        torch.testing.assert_close(torch.tensor(said.vectors[i]).float(), vector, atol=2e-3, rtol=2e-3)


def test_without_cls_the_vector_is_the_mean_of_the_words(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "gpt2", "gpt2")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    made = GPT2ForSequenceClassification.from_pretrained(folder, num_labels=2, pad_token_id=tokenizer.eos_token_id)
    made.save_pretrained(folder)
    teacher = Teacher(TeacherConfig(name=str(folder), max_length=60), ["a", "b"])  # LABEL_0 and LABEL_1 fit any names
    texts = spell_masks(unlabeled([TEXTS[0], f"The dog {MASKED} sad."]), MASKED)
    said = teacher.read(teacher.encode(texts), 2, vectors=True)
    assert said.vectors is not None
    ids = tokenizer("The dog sad.").input_ids  # it has no mask: the word is left out
    with torch.no_grad():
        outputs = teacher.model(torch.tensor([ids]), output_hidden_states=True)
    torch.testing.assert_close(torch.tensor(said.logits[1]), outputs.logits[0], atol=1e-5, rtol=1e-4)
    mean = outputs.hidden_states[-1][0].mean(0)
    torch.testing.assert_close(torch.tensor(said.vectors[1]).float(), mean, atol=2e-3, rtol=2e-3)


def test_a_teacher_chooses_one_class(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "bert", "distilbert")
    for problem in ("multi_label_classification", "regression"):
        config = AutoConfig.from_pretrained(folder, num_labels=2, problem_type=problem)
        AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
        with pytest.raises(UserError, match="cannot be the teacher: it does not choose one class for each text"):
            Teacher(TeacherConfig(name=str(folder), max_length=60), ["a", "b"])


def test_classes_are_told_by_their_names() -> None:
    assert class_order(["NEGATIVE", "POSITIVE"], ["positive", "negative"], "it") == [1, 0]
    assert class_order(["LABEL_0", "LABEL_1", "LABEL_2"], ["x", "a", "b"], "it") == [0, 1, 2]
    for names in (["LABEL_0", "LABEL_1", "LABEL_2"], ["bad", "good"]):
        with pytest.raises(UserError, match=f"it has the classes {', '.join(names)}, and the data have no, yes; write"):
            class_order(names, ["no", "yes"], "it")


def test_what_was_said_is_kept_for_the_same_texts_and_teacher(files: dict[str, Path], tmp_path: Path) -> None:
    def read(texts: list[str], rows: int, **options: Any) -> TeacherOutputs:
        teacher = Teacher(TeacherConfig(name=str(files["teacher"]), max_length=64), ["no", "yes"])
        with torch.no_grad():
            teacher.model.classifier.bias += options.pop("shift", 0.0)
        fitted = teacher.encode(unlabeled(texts))
        return teacher.read_once(fitted, tmp_path / "x.safetensors", rows, bf16=False, progress=None, **options)

    first = read(list(TEXTS), 1, vectors=False)
    written = (tmp_path / "x.safetensors").stat().st_mtime_ns
    again = read(list(TEXTS), 3, vectors=False)
    assert np.array_equal(first.logits, again.logits)
    assert (tmp_path / "x.safetensors").stat().st_mtime_ns == written
    assert read(list(TEXTS), 3, vectors=True).vectors is not None
    assert not np.array_equal(read(list(TEXTS), 3, vectors=False, shift=1.0).logits, first.logits)
    assert len(read(list(TEXTS[:2]), 3, vectors=False).logits) == 2


# Texts that only the teacher labels


def test_words_are_masked_and_runs_of_them_kept() -> None:
    long = " ".join(f"w{i}" for i in range(400))
    texts = unlabeled([long, "one two"])
    drawn = [item.text.split() for item in augmented(texts, AugmentationConfig(copies=30, mask=0.2, ngram=0.5), 7)]
    whole, runs = [each for each in drawn if len(each) == 400], [each for each in drawn if len(each) <= 5]
    assert len(whole) + len(runs) == len(drawn)
    shares = [sum(word == MASKED for word in each) / 400 for each in whole]
    assert np.mean(shares) == pytest.approx(0.2, abs=0.03)
    for each in whole:
        assert all(word in (MASKED, f"w{i}") for i, word in enumerate(each))
    for each in runs:
        (start,) = {int(word[1:]) - i for i, word in enumerate(each) if word.startswith("w")} or {0}
        assert "one" in each or "two" in each or 0 <= start <= 400 - len(each)
        assert set(each) != {MASKED}
    assert len({tuple(each) for each in drawn}) == len(drawn)
    assert ["one", "two"] not in drawn


def test_draws_are_those_of_the_seed() -> None:
    texts, settings = unlabeled(TEXTS), AugmentationConfig(copies=4, mask=0.3, ngram=0.2)
    first = augmented(texts, settings, 1)
    assert first.fingerprint == augmented(texts, settings, 1).fingerprint != augmented(texts, settings, 2).fingerprint
    part = augmented(unlabeled(TEXTS[:1]), settings, 1)  # those of a text do not depend on the others
    assert part.items == first.items[: len(part)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "one\n\ntwo \none\nknown\n"),
        ("a.tsv", "id\ttext\n1\tone\n2\ttwo\n3\tone\n4\tknown\n"),
        ("a.jsonl", '{"text": "one"}\n{"text": "two"}\n{"text": "one"}\n{"text": "known"}\n'),
    ],
)
def test_texts_without_labels_are_read(name: str, content: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(content)
    texts = read_unlabeled(str(path), without={"known"})
    assert [item.text for item in texts] == ["one", "two"]
    assert texts.place(1) == f"Line {2 if path.suffix == '.jsonl' else 3} of {name}"
    with pytest.raises(UserError, match="has no text that is not among the labeled texts already; add at least one"):
        read_unlabeled(str(path), without={"known", "one", "two"})


# Runs


@pytest.fixture(scope="module")
def finished(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    (folder / "more.txt").write_text("".join(f"The plot of Mary was {word}.\n" for word in ("sad", "dull", "great")))
    config = tiny_config(
        folder,
        files,
        data={"unlabeled": str(folder / "more.txt")},
        distillation={"hidden_weight": 0.5},
        augmentation={"copies": 1},
        training=steps(150, 50),
        model={"pooling": "attention"},
    )
    train_here(RECIPE, config)
    return folder


def test_scores_of_both_are_those_of_the_models_one_text_at_a_time(finished: Path, files: dict[str, Path]) -> None:
    results = results_of(finished / "run")
    data = LabeledDataConfig(dataset=str(files["reviews"]), labels=["no", "yes"], split=[0.2, 0.1, 0.7])
    parts = list(data.read_parts(42).values())
    folders = {"student": finished / "run", "teacher": files["teacher"]}
    models = {who: AutoModelForSequenceClassification.from_pretrained(path).eval() for who, path in folders.items()}
    tokenizers = {who: AutoTokenizer.from_pretrained(path) for who, path in folders.items()}
    right = np.array([item.label for item in parts[1]])
    with torch.no_grad():
        said = {
            who: np.array(
                [int(model(**tokenizers[who](item.text, return_tensors="pt")).logits.argmax()) for item in parts[1]]
            )
            for who, model in models.items()
        }
    scores = results["metrics"]["validation"]
    assert scores["accuracy"] == np.mean(said["student"] == right)
    assert scores["teacher_accuracy"] == np.mean(said["teacher"] == right) > 0.9
    assert scores["agreement"] == np.mean(said["student"] == said["teacher"])
    assert results["metrics"]["test"]["agreement"] > 0.7
    assert results["teacher"]["parameters"] == models["teacher"].num_parameters()
    assert results["model"]["parameters"] == models["student"].num_parameters()
    assert results["data"]["extra"]["unlabeled"]["texts"] == 3
    assert 60 < results["data"]["extra"]["augmented"]["texts"] <= len(parts[0]) == 120


def test_a_linear_model_on_the_same_texts_stands_beside_the_student(finished: Path) -> None:
    results = results_of(finished / "run")
    baseline = results["baseline"]
    assert baseline["texts"] == results["data"]["parts"]["train"]["texts"]
    shown = "test" if "test" in baseline else "validation"
    said = f"has an accuracy of {baseline[shown]['accuracy']:.4f}"
    assert said in (finished / "run" / "README.md").read_text()


def test_the_projection_is_in_checkpoints_and_is_not_published(finished: Path) -> None:
    (checkpoint, *_) = (finished / "run" / "checkpoints").glob("checkpoint-*")
    saved, published = (load_file(path / "model.safetensors") for path in (checkpoint, finished / "run"))
    assert saved.keys() - published.keys() == {"projection.weight", "projection.bias"}
    assert saved["projection.weight"].shape == (32, 8)


def test_with_labels_alone_it_is_the_recipe_without_a_teacher(files: dict[str, Path], tmp_path: Path) -> None:
    """Bit for bit, dropout included; texts that only the teacher would label are left out."""
    path = tiny_config(tmp_path, files, augmentation={"copies": 2})
    first = train_here(RECIPE, path, "--distillation.alpha", 0, to="a")
    fields = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({name: fields[name] for name in fields if name not in ("teacher", "augmentation")}))
    second = train_here(ROOT / "recipes" / "classification", path, to="b")
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (tmp_path / "b" / "model.safetensors").read_bytes()
    for name in ("accuracy", "nats_per_example", "confusion"):
        assert first["metrics"]["test"][name] == second["metrics"]["test"][name]
    assert first["data"]["extra"] == {}
    assert "from the labels alone" in (tmp_path / "a" / "README.md").read_text()


class TestTheRecipe(FinishedRun, KilledRun, TwoProcesses, BadInputs):
    recipe, loss, kill_step, changed = "distillation", "nats_per_example", 5, "--augmentation.copies 2"
    files: ClassVar[set[str]] = {*FinishedRun.files, "modeling_rnn_encoder.py"}
    stated: ClassVar[Stated] = {("accuracy", "accuracy (test)"): ("test", "accuracy")}
    bad: ClassVar[list[BadInput]] = [
        ("--data.labels null", "has the classes NO, YES, and the data have 0, 1; write another teacher.name, or"),
        ("--data.labels '[no, yes, maybe]'", "the classes NO, YES, and the data have no, yes, maybe; write"),
        (
            lambda f: ["--teacher.name", tiny_model(f / "body")],
            r"its classifier is untrained \(classifier.bias, classifier.weight, ",
        ),
        ("--teacher.name ./absent", "./absent was not found locally or on the Hub"),
        ("--teacher.name nobody/nothing", "hf download nobody/nothing --local-dir DIR"),
        ("--teacher.options '{dropuot: 0.1}'", "teacher.options: "),
        ("--teacher.max_length 65", "teacher.max_length is 65, and the teacher reads at most 64 tokens"),
        ("--teacher.max_length 2", "teacher.max_length is 2 with 2 special tokens"),
        ("--teacher.too_long tail", "teacher: too_long is 'tail'; write one of cut, cut_start, head_tail,"),
        ("--distillation.alpha 1.5", "distillation: alpha is 1.5; write a number from 0 to 1."),
        ("--distillation.temperature 0", "distillation: temperature is 0; write a number above 0"),
        ("--distillation.hidden_weight -1.0", "hidden_weight is -1.0; write a number of at least 0."),
        ("--augmentation.copies -1", "augmentation: copies is -1; write a whole number"),
        ("--augmentation.mask 2.0", "mask is 2.0; write a number from 0 to 1."),
        ("--augmentation '{copies: 1, mask: 0.0, ngram: 0.0}'", "so every copy equals its text"),
        ("--augmentation.copies 1 --tokenizer.kind char", "and this tokenizer has none; write"),
        ("--data.unlabeled absent.txt", "absent.txt was not found locally or on the Hub"),
        ("--data.unlabeled a/set", "a/set is not a file of texts; write the path of a .txt, .jsonl, .csv or .tsv"),
        (
            "--model.problem_type multi_label_classification --model.num_labels 1",
            "model.num_labels follows from",
        ),
        ("--model.problem_type multi_label_classification", "a logit per class, and this student one sigmoid"),
    ]

    @pytest.fixture
    def configure(self, files: dict[str, Path]) -> Configure:
        return lambda folder, **sections: tiny_config(folder, files, **sections)

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        assert printed.strip() == results["short_texts"][0]["predicted"]
        (row,) = re.findall(r"^\| teacher \|.*$", card.text, re.MULTILINE)
        shown = [f"{results['metrics'][part]['teacher_accuracy']:.4f}" for part in ("validation", "test")]
        assert [cell.strip() for cell in row.split("|")[-3:-1]] == shown
        assert f"{100 * results['metrics']['test']['agreement']:.2f}% of the test texts" in card.text

    def killed(self, folder: Path) -> dict[str, Any]:
        """Draws and the projection included."""
        return {"distillation": {"hidden_weight": 0.5}, "augmentation": {"copies": 1}}

    def check_resumed(self, folder: Path) -> None:
        """What the teacher said before the first step was kept."""
        said, first = folder / "checkpoints/teacher/train.safetensors", folder / "checkpoints/checkpoint-3"
        assert said.stat().st_mtime_ns < first.stat().st_mtime_ns

    def shared(self, folder: Path) -> dict[str, Any]:
        return {"model": {"classifier_dropout": 0.0}, "distillation": {"hidden_weight": 0.5}}
