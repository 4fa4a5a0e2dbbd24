"""Folders that hfattn did not make: of transformers' Trainer, of peft, of a person."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hub_server import Hub
from huggingface_hub import ModelCard, constants
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from tiny_models import TEXTS, tiny_model, wordpiece_tokenizer
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    BitImageProcessorPil,
    Dinov2Config,
    Dinov2Model,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
)
from typer.testing import CliRunner

from hfattn.clean_process import BASE, CARD_CODE
from hfattn.errors import UserError
from hfattn.hub.clean_run import run_folder
from hfattn.hub.foreign import trainer_facts
from hfattn_cli import app

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(autouse=True)
def in_a_folder(online: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def run(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == code, done.output
    return done.output


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def sentence_encoder(folder: Path) -> None:
    tokenizer = wordpiece_tokenizer(TEXTS, types=True)
    tokenizer.save_pretrained(folder)
    BertModel(BertConfig(vocab_size=len(tokenizer), **SIZES)).save_pretrained(folder)
    (folder / "modules.json").write_text("[]")
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Mine\n\n```python\nimport of_the_author\n```\n")


def language_model(folder: Path) -> None:
    tokenizer = wordpiece_tokenizer(TEXTS, types=False)
    tokenizer.save_pretrained(folder)
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **SIZES)).save_pretrained(folder)


def picture_encoder(folder: Path) -> None:
    Dinov2Model(Dinov2Config(image_size=28, patch_size=14, **SIZES)).save_pretrained(folder)
    BitImageProcessorPil(size={"shortest_edge": 28}, crop_size=28).save_pretrained(folder)


def picture_classifier(folder: Path) -> None:
    ViTForImageClassification(ViTConfig(image_size=28, patch_size=14, **SIZES)).save_pretrained(folder)
    BitImageProcessorPil(size={"shortest_edge": 28}, crop_size=28).save_pretrained(folder)


def trained(folder: Path) -> None:
    """What transformers' Trainer leaves after four steps: a checkpoint, its state, and training_args.bin."""
    tiny_model(folder.parent / "base")
    tokenizer = AutoTokenizer.from_pretrained(folder.parent / "base")
    model = AutoModelForSequenceClassification.from_pretrained(folder.parent / "base")
    rows = [{**tokenizer(text), "label": i % 2} for i, text in enumerate(TEXTS[:8])]
    arguments = TrainingArguments(
        str(folder), max_steps=4, save_steps=4, logging_steps=2, eval_strategy="steps", report_to=[], disable_tqdm=True
    )
    trainer = Trainer(
        model,
        arguments,
        train_dataset=rows,
        eval_dataset=rows,
        processing_class=tokenizer,
        compute_metrics=lambda prediction: {"accuracy": float((prediction[0].argmax(-1) == prediction[1]).mean())},
    )
    trainer.train()
    trainer.save_model()
    trainer.save_state()


@pytest.mark.variants
def test_a_folder_of_the_trainer_is_described_verified_and_pushed(tmp_path: Path, hub: Hub) -> None:
    folder = tmp_path / "trained"
    trained(folder)
    state = json.loads((folder / "trainer_state.json").read_text())
    assert "Task: text-classification" in run("card", "trained", "--license", "mit", "--language", "en")
    card = (folder / "README.md").read_text()
    accuracy = [row["eval_accuracy"] for row in state["log_history"] if "eval_accuracy" in row][-1]
    assert f"| {accuracy:.4g} |" in card
    assert "Trainer ran 4 of 4 steps" in card
    assert "license: mit" in card.replace('"', "")
    assert "The data on which the scores were measured are not stated." in card
    run("push", "trained", "user/trained", "--execute")
    there = hub.files("model", "user/trained")
    assert not {name for name in there if name.startswith(("checkpoint", "training_args", "trainer_state"))}
    assert {"README.md", "fingerprints.safetensors", "manifest.json", "model.safetensors"} <= there.keys()
    # A repository is taken by its name.
    assert "user/trained: all checks passed." in run("verify", "user/trained")
    hub.put("model", "user/trained", {"notes.pkl": b"", "manifest.json": b"{}"})
    assert "not a manifest" in run("verify", "user/trained", code=2)
    said = run("card", "user/trained", "--license", "apache-2.0", "--execute")
    assert "/discussions/1" in said
    assert "deleted" not in said
    # What the card says is held against the results, and the outputs against those that were recorded.
    (folder / "README.md").write_text(card.replace("4 of 4", "5 of 5"))
    weights = load_file(folder / "model.safetensors")
    save_file({name: weight * 1.5 for name, weight in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    said = run("verify", "trained", code=1)
    assert "FAIL  the card matches the results" in said
    assert "FAIL  logits match" in said
    # The facts are read again; a license that was stated stays.
    run("card", "trained")
    assert (folder / "README.md").read_text() == card


@pytest.mark.variants
def test_each_kind_of_folder_is_recognized_and_verified(tmp_path: Path, hub: Hub) -> None:
    torch.manual_seed(0)
    kinds: dict[str, tuple[str, Callable[[Path], None]]] = {
        "feature-extraction": ("distilbert", lambda folder: headless(folder)),
        "sentence-similarity": ("encoder", sentence_encoder),
        "text-generation": ("llama", language_model),
        "image-feature-extraction": ("dinov2", picture_encoder),
        "image-classification": ("vit", picture_classifier),
    }
    for task, (name, make) in kinds.items():
        (tmp_path / name).mkdir()
        make(tmp_path / name)
        before = files(tmp_path / name).get("README.md")
        said = run("card", name)
        assert f"Task: {task}\n" in said
        assert "FAIL" not in run("verify", name)
        if before is not None:
            assert (tmp_path / name / "README.md").read_bytes() == before
            assert "do not state: language, pipeline_tag (sentence-similarity), library_name" in said
        else:
            card = (tmp_path / name / "README.md").read_text()
            assert f"pipeline_tag: {task}\n" in card
            assert "License of the weights: not stated." in card


@pytest.mark.variants
def test_a_card_of_a_person_gets_a_license_and_a_model_that_lacks_weights_gets_none(tmp_path: Path) -> None:
    folder = tmp_path / "llama"
    folder.mkdir()
    language_model(folder)
    (folder / "README.md").write_text("---\nlanguage: en\n---\nMine.\n")
    said = run("card", "llama", "--license", "mit")
    assert "Kept: llama/README.md; --rewrite replaces it." in said
    assert "do not state: pipeline_tag (text-generation), library_name (transformers)\n" in said
    card = ModelCard.load(folder / "README.md")
    assert (card.data.to_dict(), card.text.strip()) == ({"language": "en", "license": "mit"}, "Mine.")
    weights = load_file(folder / "model.safetensors")
    weights.pop(max(weights))
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    before = files(folder)
    assert "has no model that can be verified: missing keys in the weights" in run("card", "llama", code=2)
    assert files(folder) == before


def headless(folder: Path) -> None:
    from transformers import AutoModel

    tiny_model(folder / "with a head")
    AutoModel.from_pretrained(folder / "with a head").save_pretrained(folder)
    AutoTokenizer.from_pretrained(folder / "with a head").save_pretrained(folder)
    shutil.rmtree(folder / "with a head")


@pytest.mark.variants
def test_an_adapter_runs_on_its_base_from_the_hub(tmp_path: Path, hub: Hub) -> None:
    (tmp_path / "base").mkdir()
    language_model(tmp_path / "base")
    hub.put("model", "user/base", files(tmp_path / "base"))
    adapter = get_peft_model(
        LlamaForCausalLM.from_pretrained(tmp_path / "base"),
        LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj"], init_lora_weights=False),
    )
    adapter.peft_config["default"].base_model_name_or_path = "user/base"
    adapter.save_pretrained(tmp_path / "lora")
    (tmp_path / "lora" / "README.md").unlink()  # the form that peft leaves to be filled in
    assert "Task: text-generation" in run("card", "lora")
    card = (tmp_path / "lora" / "README.md").read_text()
    assert "base_model_relation: adapter" in card
    assert "An adapter (LORA, rank 2) for `user/base`" in card
    run("verify", "lora")
    weights = load_file(tmp_path / "lora" / "adapter_model.safetensors")
    changed = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    save_file(changed, tmp_path / "lora" / "adapter_model.safetensors", {"format": "pt"})
    assert "FAIL  logits match" in run("verify", "lora", code=1)


@pytest.mark.variants
@pytest.mark.parametrize("labels", [0, 2])
def test_an_adapter_may_have_more_labels_than_its_base(tmp_path: Path, hub: Hub, labels: int) -> None:
    """Its head is in the adapter; the base has a smaller one, or none."""
    tokenizer = wordpiece_tokenizer(TEXTS, types=True)
    config = BertConfig(vocab_size=len(tokenizer), **SIZES)
    base = BertForSequenceClassification(config) if labels else BertModel(config)
    for part in (tokenizer, base):
        part.save_pretrained(tmp_path / "base")
    hub.put("model", f"user/base{labels}", files(tmp_path / "base"))
    model = AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "base", num_labels=5, ignore_mismatched_sizes=True
    )
    lora = LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query"], init_lora_weights=False)
    adapter = get_peft_model(model, lora).eval()
    adapter.peft_config["default"].base_model_name_or_path = f"user/base{labels}"
    adapter.save_pretrained(tmp_path / "lora")
    (tmp_path / "lora" / "README.md").unlink()
    assert "Task: text-classification" in run("card", "lora")
    card = (tmp_path / "lora" / "README.md").read_text()
    assert 'model_kwargs={"num_labels": 5, "ignore_mismatched_sizes": True}' in card
    said = adapter(**tokenizer("The cat sat on the mat.", return_tensors="pt")).logits.argmax()
    assert f"text\nLABEL_{said}\n" in card
    assert "all checks passed" in run("verify", "lora")


def test_code_that_nobody_knows_does_not_read_a_base_model_that_is_not_public(tmp_path: Path, hub: Hub) -> None:
    """Otherwise an adapter could name any folder of a user, and its card would print what is there."""
    base = {"config.json": b'{"auths": {"hub": "a password"}}', "model.safetensors": b""}
    (tmp_path / "keys").mkdir()
    for name, data in base.items():
        (tmp_path / "keys" / name).write_bytes(data)
    for name in ("secret", "open"):
        hub.create("model", f"user/{name}", private=name == "secret")
        hub.put("model", f"user/{name}", base)
    code = f"print(open('{BASE}/config.json').read())"
    order = {"hides_hfattn": True, "loads": False, "batches": {}, "pipeline": None, "card_code": code}
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "own.py").write_text("import torch\n")

    def printed(base: str, *, known: bool = True, trust: bool = False) -> str:
        (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
        names = ["adapter_config.json", "own.py"] if known else ["adapter_config.json"]
        return run_folder(folder, names, order, known=known, trust=trust).results[CARD_CODE].facts["printed"]

    for name in (str(tmp_path / "keys"), "keys", "~/keys", "user/secret", "user/nothing"):
        for known in (True, False):  # the code of the folder, or that of its card
            with pytest.raises(UserError, match="is not known to be public; read the code with hfattn inspect"):
                printed(name, known=known)
    assert "a password" in printed("user/open")
    assert "a password" in printed(str(tmp_path / "keys"), trust=True)


def test_the_state_of_the_trainer_is_read_in_the_last_checkpoint(tmp_path: Path) -> None:
    assert trainer_facts(tmp_path) is None
    history = [
        {"step": 2, "loss": 0.5, "learning_rate": 1e-3, "grad_norm": 3.0},
        {"step": 4, "loss": 0.25, "learning_rate": 5e-4},
        {"step": 4, "eval_loss": float("nan"), "eval_f1": 0.75, "eval_runtime": 2.0, "eval_kind": "macro"},
        {"step": True, "loss": 9.0},
        "no entry",
    ]
    for step in ("9", "10", "²", "best"):  # ² is a digit, and not a number
        (tmp_path / f"checkpoint-{step}").mkdir()
        rows = history if step == "10" else history[:1]
        state = {"global_step": 4, "epoch": 0.5, "max_steps": None, "best_global_step": 4, "log_history": rows}
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(json.dumps(state))
    assert trainer_facts(tmp_path) == {
        "global_step": 4,
        "epoch": 0.5,
        "best_step": 4,
        "learning_rate": 1e-3,
        "scores": [{"step": 4, "loss": 0.25, "eval_f1": 0.75}],
    }
    # The folder itself comes first; without scores, the losses are shown.
    state = {"global_step": 2, "log_history": history[:1]}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    facts = trainer_facts(tmp_path)
    assert facts is not None
    assert facts["best_step"] is None
    assert facts["scores"] == [{"step": 2, "loss": 0.5}]


def test_a_repository_that_does_not_exist_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for offline in (False, True):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        for words in (["card"], ["verify"], ["inspect"], ["push"]):
            to = ["user/copy"] if words == ["push"] else []
            said = run(*words, "user/nothing", *to, code=2)
            assert said.startswith("error: user/nothing was not found locally"), said
            assert said.count("\n") == 1, said
            assert ("cannot be reached" in said) is offline


def test_what_cannot_be_described_is_one_sentence_and_changes_nothing(tmp_path: Path) -> None:
    weights = {"model.safetensors": (2).to_bytes(8, "little") + b"{}"}
    config = json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}).encode()
    speech = json.dumps({"model_type": "wav2vec2", "architectures": ["Wav2Vec2ForCTC"]}).encode()
    adapter = json.dumps({"peft_type": "LORA", "base_model_name_or_path": "user/nothing"}).encode()
    tokenizer = {"tokenizer.json": b"{}"}
    cases: dict[str, tuple[dict[str, bytes], str]] = {
        "no config": (weights, "has no config.json"),
        "no weights": ({"config.json": config, **tokenizer}, "no weights in safetensors"),
        "a pickle": ({"config.json": config, "pytorch_model.bin": b""}, "no weights in safetensors"),
        "no architecture": ({"config.json": b"{}", **weights, **tokenizer}, "names no architecture"),
        "a list": ({"config.json": b"[]", **weights, **tokenizer}, "config.json"),
        "no tokenizer": ({"config.json": config, **weights}, "neither a tokenizer nor an image processor"),
        "speech": ({"config.json": speech, **weights, **tokenizer}, "AutoModelForCTC"),
        "no base": ({"adapter_config.json": adapter, **weights}, "user/nothing was not found"),
        "a base without a name": ({"adapter_config.json": b"{}", **weights}, "names no base model"),
        "a broken state": ({"config.json": config, **weights, **tokenizer, "trainer_state.json": b'{"'}, "not valid"),
        "no state": ({"config.json": config, **weights, **tokenizer, "trainer_state.json": b"{}"}, "is not a state of"),
    }
    for name, (made, message) in cases.items():
        folder = tmp_path / name
        folder.mkdir()
        for file, data in made.items():
            (folder / file).write_bytes(data)
        for words in ([], ["--license", "mit"]):
            said = run("card", name, *words, code=2)
            assert said.startswith("error: "), (name, said)
            assert message in said, (name, said)
            assert said.count("\n") == 1, (name, said)
            assert files(folder) == made, name
