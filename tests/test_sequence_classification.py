"""Fine-tuning classifiers: what is trained, at which rate, how texts are fitted, and what a run leaves behind."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from commands import ROOT, printed_by_card, refusal, run, run_here, run_until_step
from peft import PeftModel
from safetensors.torch import load_file
from tiny_models import labelled_file, tiny_model
from torch.nn import functional
from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainingArguments, pipeline

from hfattn.data import FittedTexts, LabelledTexts, WindowCollator, mean_of_windows, read_labelled
from hfattn.data.labelled import Labelled
from hfattn.errors import UserError
from hfattn.loading import ModelLocation, load_model, load_tokenizer
from hfattn.training import ClassifierTrainer, TuningConfig, class_weights, tuned, tuning_facts
from hfattn.training.fine_tuning import layer_depths

RECIPE = ROOT / "recipes" / "sequence_classification"
LONG = " ".join(f"word {i} of the story was good" for i in range(12))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {kind: tiny_model(folder / kind, kind) for kind in ("distilbert", "bert", "gpt2", "vaswani")}


def source(path: Path, **fields: Any) -> ModelLocation:
    return ModelLocation(name=str(path), **fields)


def config(folder: Path, pretrained: Path, /, **sections: Any) -> Path:
    """A configuration that trains in a second or two."""
    fields: dict[str, Any] = {
        "model": {"name": str(pretrained)},
        "data": {
            "source": str(labelled_file(folder / "reviews.tsv", pairs=False)),
            "training_texts": 120,
            "max_length": 64,
        },
        "training": {
            "per_device_train_batch_size": 8,
            "per_device_eval_batch_size": 30,
            "max_steps": 9,
            "learning_rate": 3e-3,
            "eval_steps": 3,
            "save_steps": 3,
            "logging_steps": 3,
            "save_total_limit": 5,
            "report_to": "none",
            "metric_for_best_model": "accuracy",
        },
        "evaluation": {"counterfactual_texts": 20},
    }
    for name, value in sections.items():
        fields[name] = {**fields.get(name, {}), **value} if isinstance(value, dict) else value
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(fields))
    return path


# Texts


def texts(*items: str) -> LabelledTexts:
    return LabelledTexts("texts", [Labelled(text, 0, i + 1) for i, text in enumerate(items)], ["no", "yes"])


def test_of_a_long_text_its_head_or_its_head_and_tail_are_read(models: dict[str, Path]) -> None:
    tokenizer = load_tokenizer(source(models["bert"]))
    whole = tokenizer(LONG, add_special_tokens=False).input_ids
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    head = FittedTexts(texts(LONG, "good"), tokenizer, 22)
    assert head[0]["windows"][0]["input_ids"] == [cls, *whole[:20], sep]
    assert head[1]["windows"][0]["input_ids"] == tokenizer("good").input_ids
    assert head.cut == 1
    both = FittedTexts(texts(LONG), tokenizer, 22, long="head_tail")
    assert both[0]["windows"][0]["input_ids"] == [cls, *whole[:5], *whole[-15:], sep]
    assert all(len(values) == 22 for values in both[0]["windows"][0].values())


def test_windows_cover_a_long_text_and_overlap(models: dict[str, Path]) -> None:
    tokenizer = load_tokenizer(source(models["bert"]))
    whole = tokenizer(LONG, add_special_tokens=False).input_ids
    dataset = FittedTexts(texts(LONG, "good"), tokenizer, 22, long="windows", overlap=6)
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


def test_of_a_pair_the_longer_text_is_cut(models: dict[str, Path]) -> None:
    tokenizer = load_tokenizer(source(models["bert"]))
    pair = LabelledTexts("pairs", [Labelled(LONG, 0, 1, {}, "Was it good?")], ["no", "yes"])
    window = FittedTexts(pair, tokenizer, 24)[0]["windows"][0]
    end = tokenizer("Was it good?", add_special_tokens=False).input_ids
    assert window["input_ids"][-len(end) - 1 :] == [*end, tokenizer.sep_token_id]
    assert window["token_type_ids"] == [0] * (24 - len(end) - 1) + [1] * (len(end) + 1)
    with pytest.raises(UserError, match=re.escape("data.long windows is for single texts, and pairs has pairs")):
        FittedTexts(pair, tokenizer, 24, long="windows")


# The loss


def test_the_loss_weighs_classes_and_an_accumulated_step_is_one_batch(models: dict[str, Path], tmp_path: Path) -> None:
    """Against a literal loop in float64, label smoothing included; and 2 x 4 texts give the gradient of 8."""
    labelled = read_labelled(labelled_file(tmp_path / "reviews.tsv", pairs=False)).sample(60, 1)
    tokenizer = load_tokenizer(source(models["bert"]))
    loaded = load_model(AutoModelForSequenceClassification, source(models["bert"]), num_labels=2)
    weights = class_weights([1.0, 3.0], labelled)
    arguments = TrainingArguments(str(tmp_path), report_to="none", use_cpu=True, label_smoothing_factor=0.1)
    trainer = ClassifierTrainer(
        loaded.model, arguments, source=source(models["bert"]), tuning=TuningConfig(), class_weights=weights
    )
    model = loaded.model.eval()
    dataset = FittedTexts(labelled, tokenizer, 12, long="windows", overlap=2)
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


def test_balanced_classes_weigh_alike() -> None:
    labelled = LabelledTexts("x", [Labelled("a", 0)] * 6 + [Labelled("b", 1)] * 2, ["no", "yes"])
    weights = class_weights("balanced", labelled)
    assert weights is not None
    assert weights.tolist() == pytest.approx([8 / 12, 2.0])
    assert class_weights(None, labelled) is None
    with pytest.raises(UserError, match="write balanced, null, or 2 numbers of at least 0, of no, yes"):
        class_weights([1.0], labelled)
    with pytest.raises(UserError, match="No text to train on has the class 'yes'"):
        class_weights("balanced", LabelledTexts("x", [Labelled("a", 0)], ["no", "yes"]))


# What is trained


@pytest.mark.parametrize("kind", ["distilbert", "bert", "gpt2", "vaswani"])
def test_each_layer_is_one_deeper_than_the_next(kind: str, models: dict[str, Path]) -> None:
    model = load_model(AutoModelForSequenceClassification, source(models[kind]), num_labels=2, pad_token_id=0).model
    depths = layer_depths(model)
    assert set(depths) == {name for name, _ in model.named_parameters()}
    found = {int(match[1]): depth for name, depth in depths.items() if (match := re.search(r"\.(\d)\.", name))}
    assert found == {0: 2, 1: 1}
    assert {depth for name, depth in depths.items() if "embed" in name or "wte" in name or "shared" in name} == {3}
    assert {depth for name, depth in depths.items() if name.startswith(("classifier", "score"))} == {0}


@pytest.mark.parametrize("method", ["full", "lora"])
def test_lower_layers_learn_more_slowly(method: str, models: dict[str, Path], tmp_path: Path) -> None:
    where, tuning = source(models["bert"]), TuningConfig(method=method, layer_decay=0.5)
    loaded = load_model(AutoModelForSequenceClassification, where, num_labels=2)
    model = tuned(loaded, tuning, "SEQ_CLS")
    arguments = TrainingArguments(str(tmp_path), report_to="none", use_cpu=True, learning_rate=0.8)
    optimizer = ClassifierTrainer(model, arguments, source=where, tuning=tuning).create_optimizer()
    rates = {id(tensor): group["lr"] for group in optimizer.param_groups for tensor in group["params"]}
    trained = {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}
    assert set(rates) == {id(tensor) for tensor in trained.values()}
    for name, tensor in trained.items():
        layer = re.search(r"\.layer\.(\d)\.", name)
        depth = 2 - int(layer[1]) if layer else 3 if "embeddings" in name else 0
        assert rates[id(tensor)] == pytest.approx(0.8 * 0.5**depth), name


def test_a_probe_trains_the_new_head_alone(models: dict[str, Path]) -> None:
    where = source(models["distilbert"])
    loaded = load_model(AutoModelForSequenceClassification, where, num_labels=2)
    model = tuned(loaded, TuningConfig(method="head_only"))
    trained = {name for name, tensor in model.named_parameters() if tensor.requires_grad}
    assert trained == {"pre_classifier.weight", "pre_classifier.bias", "classifier.weight", "classifier.bias"}
    assert set(loaded.new_weights) == trained
    facts = tuning_facts(model, loaded, TuningConfig(method="head_only"), where)
    assert facts["trained_parameters"] == 32 * 32 + 32 + 2 * 32 + 2
    assert facts["base_model"] == "distilbert"


def test_lora_has_the_numbers_that_it_says(models: dict[str, Path]) -> None:
    where, tuning = source(models["distilbert"]), TuningConfig(method="lora", rank=3)
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
    path = config(folder, models["distilbert"], tuning={"method": "lora", "rank": 4, "lora_dropout": 0.1})
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
        run_here(RECIPE, monkeypatch, "--config", path, "--output_dir", folder / "run")
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
    model = json.loads((folder / "results.json").read_text())["model"]
    assert (model["method"], model["base_model"]) == ("lora", "distilbert")
    published = [path for path in folder.rglob("*.json") if "checkpoints" not in path.parts] + [folder / "README.md"]
    for path in published:
        assert str(lora_run) not in path.read_text(), path
        assert str(models["distilbert"]) not in path.read_text(), path


def test_the_card_and_the_pipeline_say_the_same(lora_run: Path) -> None:
    printed = printed_by_card(lora_run / "run")
    results = json.loads((lora_run / "run" / "results.json").read_text())
    assert printed.strip() == results["example"]["label"]
    classify = pipeline("text-classification", str(lora_run / "run"))
    said = classify(results["example"]["texts"][0])[0]
    assert said["label"] == results["example"]["label"]
    assert said["score"] == pytest.approx(results["example"]["probability"], abs=1e-4)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_killed_run_resumes_to_the_same_weights(
    method: str, models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout, several windows of a text, and rates by layer included."""
    path = config(
        tmp_path,
        models["distilbert"],
        tuning={"method": method, "layer_decay": 0.8} | ({"lora_dropout": 0.1} if method == "lora" else {}),
        data={"max_length": 12, "long": "windows", "overlap": 2},
    )
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    run_here(RECIPE, monkeypatch, "--config", path, "--output_dir", tmp_path / "whole")
    killed = tmp_path / "killed"
    run_until_step(RECIPE, monkeypatch, 7, "--config", path, "--output_dir", killed)
    assert not (killed / "results.json").exists()
    run_here(RECIPE, monkeypatch, "--config", path, "--output_dir", killed, "--resume")
    weights = [load_file(folder / "model.safetensors") for folder in (tmp_path / "whole", killed)]
    assert weights[0].keys() == weights[1].keys()
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name]), name


def test_our_own_encoder_is_fine_tuned_and_published_like_the_others(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = config(tmp_path, models["vaswani"], class_weights="balanced", evaluation={"words": ["Mary"]})
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    run_here(RECIPE, monkeypatch, "--config", path, "--output_dir", tmp_path / "run")
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert printed_by_card(tmp_path / "run").strip() == results["example"]["label"]
    assert results["model"]["new_weights"] == ["classifier.bias", "classifier.weight"]
    validation = results["metrics"]["validation"]
    assert validation["by_slice"]["word: Mary"]["examples"] == 60
    assert validation["counterfactual"]["name"]["texts"] == 20


def test_two_processes_train_as_one_with_twice_the_batch(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = config(
        tmp_path,
        models["distilbert"],
        model={"options": {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0}},
        data={"max_length": 12, "long": "windows", "overlap": 2},
        class_weights=[1.0, 2.0],
        training={"learning_rate": 1.0, "adam_epsilon": 1.0, "max_steps": 6, "eval_steps": 6, "save_steps": 6},
        evaluation={"counterfactual_texts": 0},
    )
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    run_here(RECIPE, monkeypatch, "--config", path, "--output_dir", tmp_path / "one")
    launch = ["accelerate", "launch", "--config_file", ROOT / "recipes" / "accelerate" / "ddp.yaml"]
    words = ["--config", path, "--output_dir", tmp_path / "two", "--training.per_device_train_batch_size", 4]
    two = run([*launch, RECIPE / "train.py", *words])
    assert two.returncode == 0, two.stderr
    results = [json.loads((tmp_path / name / "results.json").read_text()) for name in ("one", "two")]
    assert [each["hardware"]["processes"] for each in results] == [1, 2]
    torch.testing.assert_close(
        *(load_file(tmp_path / name / "model.safetensors") for name in ("one", "two")), atol=1e-5, rtol=1e-4
    )
    assert [each["metrics"]["validation"]["examples"] for each in results] == [60, 60]


# Bad input


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        (
            {"model": {"name": "nobody/nothing"}},
            "a folder made elsewhere with hf download nobody/nothing --local-dir DIR",
        ),
        ({"model": {"name": "./absent"}}, "./absent was not found locally or on the Hub"),
        ({"model": {"name": "TMP"}}, "holds no model: config.json is missing"),
        ({"model": {"options": {"dropuot": 0.1}}}, "did you mean 'dropout'?"),
        ({"model": {"options": {"vocab_size": 7}}}, "of the shape that its configuration says"),
        ({"data": {"max_length": 65}}, "data.max_length is 65, and the model reads at most 64 tokens"),
        ({"data": {"max_length": 12, "long": "windows", "overlap": 10}}, "raise max_length or lower overlap"),
        ({"data": {"long": "tail"}}, "data.long is 'tail'; write one of head, head_tail, windows."),
        ({"data": {"part_column": "part"}}, "has no column 'part'; write one of text, label."),
        ({"class_weights": "even"}, "class_weights is 'even'; write balanced, null, or 2 numbers"),
        ({"tuning": {"method": "some"}}, "method is 'some'; write one of full, lora, head_only."),
        ({"tuning": {"method": "lora", "target_modules": ["query"]}}, "this model's linear layers are k_lin, lin1"),
        ({"tuning": {"method": "lora"}, "averaging": {"last": 2}}, "lora saves updates; write ema"),
        ({"evaluation": {"swaps": "absent.yaml"}}, "There is no file absent.yaml of words to swap"),
        ({"evaluation": {"columns": ["stars"]}}, "evaluation.columns names 'stars'"),
    ],
)
def test_bad_input_is_one_sentence(
    sections: dict[str, Any],
    sentence: str,
    models: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if sections.get("model", {}).get("name") == "TMP":
        sections = {"model": {"name": str(tmp_path)}}
    path = config(tmp_path, models["distilbert"], **sections)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    error = refusal(RECIPE, monkeypatch, capfd, tmp_path / "run", "--config", path)
    assert sentence in error


def test_rows_of_a_part_are_told_by_their_column(tmp_path: Path) -> None:
    path = tmp_path / "all.tsv"
    path.write_text("text\tlabel\ttag\na\tno\ttrain\nb\tyes\ttrain\nc\tno\tdev\n")
    train = read_labelled(path, part_column="tag")
    assert [(item.text, item.line, item.fields) for item in train] == [("a", 2, {}), ("b", 3, {})]
    dev = read_labelled(path, part_column="tag", split="dev", labels=train.labels)
    assert [item.text for item in dev] == ["c"]
    with pytest.raises(
        UserError, match=re.escape("has no row with 'test' in the column 'tag'; write one of dev, train.")
    ):
        read_labelled(path, part_column="tag", split="test")
