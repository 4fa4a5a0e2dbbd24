"""Pretrained models in other precisions, and adapters that are saved without their base model."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import ROOT, results_of, run_here, steps, write_config
from hub_server import Hub
from peft import AutoPeftModelForCausalLM
from safetensors.torch import load_file
from tiny_models import wide_llama
from transformers import LlamaForCausalLM
from typer.testing import CliRunner

from hfattn.errors import UserError
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
    return wide_llama(tmp_path_factory.mktemp("base"), SENTENCES)


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
    ("new", "changed", "words"),
    [
        (["score.weight"], False, "no place for the labels of the new head score; remove the field"),
        ([], True, "remove the field, or train on prompts and completions that end with the end token"),
    ],
)
def test_updates_alone_have_no_place_for_what_is_not_on_the_hub(
    new: list[str], changed: bool, words: str, base: Path
) -> None:
    source, loaded = BaseModel(name="user/base"), Loaded(LlamaForCausalLM.from_pretrained(base), new, changed)
    with pytest.raises(UserError, match=words):
        is_merged(source, loaded, TuningConfig(method="lora", merge=False))
    assert is_merged(source, loaded, TuningConfig(method="lora"))
    assert not is_merged(source, loaded._replace(new_weights=[], changed=False), TuningConfig(method="lora"))
    assert is_merged(BaseModel(name=str(base)), loaded, TuningConfig(method="lora"))
