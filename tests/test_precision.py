"""Pretrained models in other precisions, and adapters that are saved without their base model."""

import contextlib
import io
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import ROOT, results_of, run_here, steps, train_here, write_config, written
from hub_server import Hub
from peft import AutoPeftModelForCausalLM, AutoPeftModelForSequenceClassification
from safetensors.torch import load_file
from tiny_models import TEXTS, tiny_model
from transformers import LlamaForCausalLM
from typer.testing import CliRunner

import hfattn
from hfattn.errors import UserError
from hfattn.hub.card import card_code, with_model_id
from hfattn.loading import BaseModel, Loaded, load_language_model
from hfattn.training import TuningConfig
from hfattn.training.fine_tuning import is_merged
from hfattn_cli import app

SENTENCES = ("The dog sees the cat.", "The cat hears the dog!", "A bird sings, the cat listens.")
TINY: dict[str, dict[str, Any]] = {
    "data": {"split": [0.7, 0.15, 0.15], "max_length": 16},
    "training": {**steps(30, 15), "learning_rate": 1e-2, "metric_for_best_model": "perplexity"},
    "sample": {"prompts": ["The cat"], "max_new_tokens": 8, "decoding": {"greedy": {"temperature": 0}}},
}
LORA = {"method": "lora", "rank": 4}
VARIANT = pytest.mark.variants


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("base"), "llama", SENTENCES, width=64)


def text_of(folder: Path) -> Path:
    path = folder / "text.txt"
    path.write_text("\n".join(f"{SENTENCES[i % 3]} {i}" for i in range(150)))
    return path


def train_on(name: object, folder: Path, patch: pytest.MonkeyPatch, tuning: dict[str, Any], **model: Any) -> Path:
    sections = {"data": {"dataset": str(text_of(folder))}, "model": {"name": str(name), **model}, "tuning": tuning}
    config = write_config(folder, TINY, sections)
    run_here(ROOT / "recipes" / "causal_lm", patch, "--config", config, "--output_dir", folder / "run")
    return folder / "run"


def command(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.examples
@pytest.mark.usefixtures("online")
def test_an_adapter_alone(base: Path, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.put("model", "user/base", {path.name: path.read_bytes() for path in base.iterdir()})
    run = train_on("user/base", tmp_path, monkeypatch, LORA)
    assert not (run / "model.safetensors").exists()
    assert not (run / "config.json").exists()
    assert (run / "adapter_model.safetensors").stat().st_size < 60_000
    adapter = json.loads((run / "adapter_config.json").read_text())
    assert adapter["base_model_name_or_path"] == "user/base"
    results = results_of(run)
    assert adapter["revision"] == results["model"]["commit"] is not None
    test = results["metrics"]["test"]
    assert test["perplexity"] < 0.7 * test["before"]["perplexity"]

    model, tokenizer = load_language_model(str(run))
    inputs = tokenizer("The cat hears the", return_tensors="pt")
    with torch.no_grad():
        ours = model(**inputs).logits
        reference = AutoPeftModelForCausalLM.from_pretrained(run).eval()(**inputs).logits
    torch.testing.assert_close(ours, reference, rtol=1e-4, atol=1e-4)

    card = (run / "README.md").read_text()
    assert "base_model: user/base\nbase_model_relation: adapter" in card.replace('"', "")
    assert "library_name: peft" in card
    assert "peft" in (run / "requirements.txt").read_text()
    assert "cat" in command("generate", run, "--prompt", "The cat", "--max-new-tokens", 8)
    assert "The cat hears" in command("attend", run, "The cat hears")
    assert "agree to the shown digits" in command("verify", run, "--measure", "--data", tmp_path / "text.txt")


TOLD_BY = {"refund": "money", "login": "password", "limit": "more"}


def tickets(path: Path) -> Path:
    """Rows whose label is told by a word, but for one of seven."""
    names = list(TOLD_BY)
    rows = [
        {"text": f"{TOLD_BY[names[i % 3]]} please, ticket {i}", "label": names[(i + (i % 7 == 0)) % 3]}
        for i in range(160)
    ]
    return written(path, rows)


def whole(folder: Path) -> bool:
    return (folder / "model.safetensors").exists() or (folder / "config.json").exists()


@pytest.mark.examples
@pytest.mark.usefixtures("online")
def test_an_adapter_with_a_new_head(hub: Hub, tmp_path: Path) -> None:
    """Its head is the calibrated one, and labels and settings are those of the training, in PEFT too."""
    base = tiny_model(tmp_path / "distilbert", texts=[*TEXTS, *(f"{word} please, ticket" for word in TOLD_BY.values())])
    hub.put("model", "user/distilbert", {path.name: path.read_bytes() for path in base.iterdir()})
    data = tickets(tmp_path / "tickets.jsonl")
    sections = {
        "model": {"name": "user/distilbert"},
        "tuning": {"method": "lora", "rank": 2},
        "data": {"dataset": str(data), "split": [0.5, 0.25, 0.25], "max_length": 16},
        "training": {**steps(60), "learning_rate": 1e-2},
        "evaluation": {"calibration": True, "coverage": 0.9, "counterfactual_texts": 0},
    }
    test = train_here(ROOT / "recipes" / "classification", write_config(tmp_path, sections))["metrics"]["test"]
    run = tmp_path / "run"
    assert not whole(run)
    temperature = test["calibration"]["temperature"]
    assert temperature != 1
    assert test["accuracy"] > 0.45
    texts = ["money please", "password please"]
    answers = hfattn.predict(str(run), texts, abstain=False)
    assert {answer["label"] for answer in answers} <= set(TOLD_BY)

    # The code of the card, and that of PEFT's own Auto class.
    said: dict[str, Any] = {}
    code, printed = card_code((run / "README.md").read_text())
    assert code is not None
    with contextlib.chdir(run), contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, said)
    assert out.getvalue() == printed
    config, tokenizer = said["config"], said["tokenizer"]
    assert said["model"].config.id2label == config.id2label == dict(enumerate(results_of(run)["data"]["labels"]))
    assert config.task_specific_params["text-classification"]["temperature"] == temperature
    names = {"id2label": config.id2label, "label2id": config.label2id}
    adapted = AutoPeftModelForSequenceClassification.from_pretrained(run, **names).eval()
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        logits = said["model"](**inputs).logits
        torch.testing.assert_close(adapted(**inputs).logits, logits, rtol=1e-4, atol=1e-5)
    for answer, row in zip(answers, logits.softmax(-1), strict=True):
        assert answer["probability"] == pytest.approx(float(row.max()), abs=1e-4)
        assert answer["label"] == adapted.config.id2label[int(row.argmax())]

    # From the Hub, at a tag that the base model does not have.
    command("push", run, "user/tickets", "--execute", "--tag", "v1")
    assert hfattn.predict("user/tickets", texts, abstain=False) == answers
    code = with_model_id(code, "user/tickets", "v1")
    assert code.count('revision="v1"') == 4
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, {})
    assert out.getvalue() == printed
    command("verify", run, "--measure", "--data", data)


@VARIANT
@pytest.mark.usefixtures("online")
@pytest.mark.parametrize(
    ("of", "recipe"),
    [
        ("multi_label", "classification"),
        ("regression", "classification"),
        ("token_classification", "token_classification"),
        ("question_answering", "question_answering"),
        ("multiple_choice", "multiple_choice"),
    ],
)
def test_every_new_head_is_published_with_an_adapter(of: str, recipe: str, hub: Hub, tmp_path: Path) -> None:
    """The code of its card is run by ``verify``, as are its pipeline and the fingerprints."""
    base = tiny_model(tmp_path / "bert", "bert")
    hub.put("model", f"user/{of}", {path.name: path.read_bytes() for path in base.iterdir()})
    sections: dict[str, Any] = {
        "model": {"name": f"user/{of}"},
        "tuning": {"method": "lora", "rank": 2},
        "training": steps(4),
    }
    tiny: Any = import_module(f"test_{of}").tiny_config
    takes_source = of in ("token_classification", "question_answering")
    config = tiny(tmp_path, *([sections.pop("model")["name"]] if takes_source else []), **sections)
    results = train_here(ROOT / "recipes" / recipe, config)
    run = tmp_path / "run"
    assert not whole(run)
    assert results["model"]["adapter"]["r"] == 2
    said = command("verify", run, "--measure")
    for check in ("the code in the card prints", "logits match", "the model loads, each weight"):
        assert f"pass  {check}" in said
    if of == "multi_label":
        config = json.loads((run / "config" / "config.json").read_text())
        assert config["task_specific_params"]["text-classification"]["thresholds"] == results["thresholds"]


@VARIANT
@pytest.mark.parametrize("tuning", [{}, LORA], ids=["full", "lora"])
def test_weights_in_bfloat16(
    tuning: dict[str, Any], base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train_on(base, tmp_path, monkeypatch, tuning, dtype="bfloat16", base_model="user/base")
    assert {weight.dtype for weight in load_file(run / "model.safetensors").values()} == {torch.bfloat16}
    assert json.loads((run / "config.json").read_text())["dtype"] == "bfloat16"
    results = results_of(run)
    assert results["model"]["base_model"] == "user/base"
    assert results["metrics"]["test"]["perplexity"] < results["metrics"]["test"]["before"]["perplexity"]
    command("verify", run)


@VARIANT
def test_checkpointed_gradients_of_an_adapter(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedding is frozen, so that without care nothing before the first layer would need a gradient."""
    losses = []
    for checkpointing in (False, True):
        folder = tmp_path / str(checkpointing)
        folder.mkdir()
        monkeypatch.setitem(TINY, "training", {**TINY["training"], "gradient_checkpointing": checkpointing})
        run = train_on(base, folder, monkeypatch, LORA)
        losses.append(results_of(run)["metrics"]["test"]["nats_per_token"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model": {"quantization": "4bit"}}, "model.quantization freezes the weights; write tuning.method: lora"),
        ({"model": {"dtype": "float16"}}, "in float16 cannot be trained; write model.dtype: bfloat16"),
        ({"model": {"dtype": "int8"}}, "dtype is 'int8'; write one of float32, bfloat16, float16"),
        (
            {"model": {"quantization": "4bit"}, "tuning": {**LORA, "merge": True}},
            "saved alone; remove tuning.merge",
        ),
        ({"tuning": {"merge": False}}, "merge applies to method lora; write method: lora"),
        ({"model": {"name": "FOLDER"}, "tuning": {**LORA, "merge": False}}, "model.name is a folder; write the id"),
        ({"model": {"name": "FOLDER", "quantization": "8bit"}, "tuning": LORA}, "model.name is a folder; write the id"),
        ({"model": {"base_model": "user/base"}}, "base_model is for a local folder, and model.name is an id"),
        ({"model": {"name": "FOLDER", "base_model": "my model"}}, "write the id of a model on the Hub, user/name"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(
    fields: dict[str, dict[str, Any]], words: str, base: Path, tmp_path: Path
) -> None:
    model = {"name": "user/base", **fields.get("model", {})}
    model["name"] = str(base) if model["name"] == "FOLDER" else model["name"]
    folder = tmp_path / "causal_lm"
    folder.mkdir()
    path = write_config(folder, TINY, {"recipe": "causal_lm"}, {"tuning": fields.get("tuning", {})}, {"model": model})
    done = CliRunner().invoke(app, ["recipes", "validate", str(path)])
    assert done.exit_code != 0
    assert words in " ".join(done.output.split())
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("changed", "code", "words"),
    [
        (True, None, "remove the field, or train on prompts and completions that end with the end token"),
        (False, {"AutoConfig": "user/base--configuration_own.Own"}, "user/base has code of its own"),
    ],
)
def test_updates_alone_have_no_place_for_what_is_not_on_the_hub(
    changed: bool, code: dict[str, str] | None, words: str, base: Path
) -> None:
    source, loaded = BaseModel(name="user/base"), Loaded(LlamaForCausalLM.from_pretrained(base), ["score.weight"])
    tuning = TuningConfig(method="lora")
    assert not is_merged(source, loaded, tuning)
    assert is_merged(source, loaded, TuningConfig(method="lora", merge=True))
    assert is_merged(BaseModel(name=str(base)), loaded, tuning)
    loaded = loaded._replace(changed=changed)
    if code is not None:
        loaded.model.config.auto_map = code
    assert is_merged(source, loaded, tuning)
    with pytest.raises(UserError, match=words):
        is_merged(source, loaded, TuningConfig(method="lora", merge=False))
