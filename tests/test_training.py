"""Training: the stateful loop against a literal one, exact resumption, processes, numbers that are not finite."""

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import run, tiny_config, train, train_until
from safetensors.torch import load_file
from transformers import TrainingArguments

from hfattn import CharRNNConfig, CharRNNForCausalLM
from hfattn.data import Streams, Windows
from hfattn.errors import NonFiniteError, UserError
from hfattn.training import (
    OPTIMIZERS,
    ReliableTrainer,
    StatefulTrainer,
    last_complete_checkpoint,
    optimizer_class_and_arguments,
)

V, T, B = 9, 5, 3
IDS = np.random.default_rng(0).integers(0, V, size=160).astype(np.uint8)
CELLS = ["gru", "lstm"]


def make_model(cell: str = "gru") -> CharRNNForCausalLM:
    torch.manual_seed(0)
    return CharRNNForCausalLM(CharRNNConfig(vocab_size=V, hidden_size=8, num_hidden_layers=2, cell=cell))


def make_trainer(
    kind: type[ReliableTrainer], model: CharRNNForCausalLM, folder: Path, dataset: Any, **arguments: Any
) -> ReliableTrainer:
    defaults = {
        "learning_rate": 0.05,
        "lr_scheduler_type": "constant",
        "per_device_train_batch_size": B,
        "per_device_eval_batch_size": B,
        "max_grad_norm": 0.0,
        "weight_decay": 0.0,
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "logging_nan_inf_filter": False,
    }
    args = TrainingArguments(str(folder), **{**defaults, **arguments})
    return kind(
        model,
        args,
        data_collator=dataset.collate,
        train_dataset=dataset,
        eval_dataset=dataset,
        optimizer_cls_and_kwargs=(torch.optim.SGD, {"lr": args.learning_rate}),
    )


def literal_stateful_training(cell: str, passes: int, accumulation: int) -> CharRNNForCausalLM:
    """B streams side by side; the state is carried and detached, and reset at each pass; plain SGD."""
    model = make_model(cell).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    length = (len(IDS) - 1) // B
    rows = torch.from_numpy(np.stack([IDS[b * length : b * length + length + 1] for b in range(B)]).astype(int))
    steps = length // T
    for _ in range(passes):
        hidden = None
        for step in range(steps):
            window = rows[:, step * T : step * T + T + 1]
            embedded, states = model.model.embed_tokens(window[:, :-1]), []
            for i, layer in enumerate(model.model.layers):
                embedded, state = layer.rnn(embedded, None if hidden is None else hidden[i])
                states.append(state)
            hidden = [tuple(s.detach() for s in state) if cell == "lstm" else state.detach() for state in states]
            logits = model.lm_head(embedded)
            group = min(accumulation, steps - step // accumulation * accumulation)  # the last group may be smaller
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten()) / group
            loss.backward()
            if (step + 1) % accumulation == 0 or step + 1 == steps:
                optimizer.step()
                optimizer.zero_grad()
    return model


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("cell", CELLS)
def test_stateful_training_equals_the_literal_loop(tmp_path: Path, cell: str, accumulation: int) -> None:
    model = make_model(cell)
    trainer = make_trainer(
        StatefulTrainer,
        model,
        tmp_path,
        Streams(IDS, T, B),
        num_train_epochs=2,
        gradient_accumulation_steps=accumulation,
        eval_strategy="steps",  # evaluating between the steps must not disturb the state that training carries
        eval_steps=2,
    )
    trainer.train()
    expected = literal_stateful_training(cell, 2, accumulation).state_dict()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, expected[name], atol=2e-6, rtol=0)


def test_stateful_evaluation_reads_the_text_as_one(tmp_path: Path) -> None:
    model = make_model()
    streams = Streams(IDS, T, 1, keep_tail=True)
    trainer = make_trainer(StatefulTrainer, model, tmp_path, streams, per_device_eval_batch_size=1)
    ids = torch.from_numpy(IDS.astype(int))[None]
    with torch.no_grad():
        logits = model.eval()(ids[:, :-1]).logits
    for _ in range(2):  # and a second evaluation begins again from zero
        predictions = trainer.predict(streams).predictions.reshape(-1, V)
        predictions = predictions[predictions[:, 0] != -100]
        torch.testing.assert_close(torch.from_numpy(predictions), logits[0], atol=1e-6, rtol=0)


def test_stateful_training_learns_what_stateless_training_cannot_see(tmp_path: Path) -> None:
    """A symbol that comes every 12 characters, windows of 4: a window without it is the second of three or the third,
    so that no stateless model does better than one bit for each such pair of windows."""
    floor = 2 * math.log(2) / 12
    ids = np.zeros(1201, dtype=np.uint8)
    ids[::12] = 1
    losses = {}
    for kind, dataset in ((StatefulTrainer, Streams(ids, 4, 4)), (ReliableTrainer, Windows(ids, 4, 4))):
        model = make_model("lstm")
        trainer = make_trainer(
            kind, model, tmp_path, dataset, num_train_epochs=12, per_device_train_batch_size=4,
            per_device_eval_batch_size=4,
        )  # fmt: skip
        trainer.optimizer_cls_and_kwargs = (torch.optim.Adam, {"lr": 0.02})
        trainer.train()
        losses[kind] = trainer.evaluate()["eval_loss"]
    assert losses[StatefulTrainer] < floor / 2
    assert floor - 1e-3 < losses[ReliableTrainer] < floor + 0.05


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_by_name(tmp_path: Path, name: str) -> None:
    arguments = TrainingArguments(str(tmp_path), learning_rate=0.02, adam_beta1=0.8, adam_epsilon=1e-7, use_cpu=True)
    optimizer_class, kwargs = optimizer_class_and_arguments(name, arguments)
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = optimizer_class([weight], **kwargs)
    for _ in range(400):
        optimizer.zero_grad()
        weight.pow(2).sum().backward()
        optimizer.step()
    assert weight.abs().max() < 0.5
    assert optimizer.defaults["eps"] == 1e-7
    assert name == "rmsprop" or optimizer.defaults["betas"] == (0.8, 0.999)


def test_an_unknown_optimizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="write one of adamw, nadam, radam, rmsprop"):
        optimizer_class_and_arguments("sgdd", TrainingArguments(str(tmp_path), use_cpu=True))


# Numbers that are not numbers


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    model = make_model()
    trainer = make_trainer(
        ReliableTrainer, model, tmp_path, Windows(IDS, T), save_strategy="steps", save_steps=2, max_steps=20
    )
    forward = model.forward
    calls = 0

    def poisoned(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        outputs = forward(*args, **kwargs)
        return outputs | {"loss": outputs.loss * float("nan")} if calls == 6 else outputs

    model.forward = poisoned
    with pytest.raises(NonFiniteError, match=r"The loss is nan at step 6; the last good checkpoint is .*checkpoint-4"):
        trainer.train()
    assert last_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-4"
    weights = load_file(tmp_path / "checkpoint-4" / "model.safetensors")
    assert all(tensor.isfinite().all() for tensor in weights.values())


def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    model = make_model()
    trainer = make_trainer(
        ReliableTrainer, model, tmp_path, Windows(IDS, T), save_strategy="steps", save_steps=1, max_steps=3,
        learning_rate=float("inf"),
    )  # fmt: skip
    with pytest.raises(NonFiniteError, match=r"not finite at step 1; there is no checkpoint yet"):
        trainer.train()
    assert not list(tmp_path.glob("checkpoint-*"))


def test_the_command_names_the_step_and_exits_with_code_1(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, training={"learning_rate": 1e35, "max_grad_norm": 0})
    done = train(config, "--output_dir", tmp_path / "run")
    assert done.returncode == 1
    sentence = done.stderr.splitlines()[-1]
    assert re.fullmatch(r"error: The loss is (inf|nan) at step \d; there is no checkpoint yet: lower .*\.", sentence)
    assert "Traceback" not in done.stderr


# Killed and resumed


def test_a_checkpoint_that_was_not_written_to_its_end_is_passed_over(tmp_path: Path) -> None:
    for step, state in ((5, '{"global_step": 5}'), (10, '{"global_step": 10}'), (100, '{"global_'), (200, None)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        if state is not None:
            (folder / "trainer_state.json").write_text(state)
    (tmp_path / "checkpoint-best").mkdir()
    assert last_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    assert last_complete_checkpoint(tmp_path / "nothing") is None


@pytest.mark.parametrize(
    ("stateful", "killed_at"),
    [(False, "checkpoint-90"), (False, "checkpoint-60/optimizer.pt"), (True, "checkpoint-40"), (True, "checkpoint-70")],
)
def test_a_run_that_was_killed_ends_with_the_weights_of_one_that_was_not(
    tmp_path: Path, stateful: bool, killed_at: str
) -> None:
    """SIGKILL at any moment, also while a checkpoint is half-written, in the first pass and in a later one."""
    config = tiny_config(
        tmp_path,
        data={"stateful": stateful, "stride": 7, "window": 8},
        model={"num_hidden_layers": 2, "dropout": 0.3, "output_dropout": 0.2, "cell": "lstm"},
        training={"max_steps": 130, "eval_steps": 10, "save_steps": 10, "lr_scheduler_type": "cosine"},
    )
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = train(config, "--output_dir", whole)
    assert done.returncode == 0, done.stderr
    train_until(config, killed / "checkpoints" / killed_at, "--output_dir", killed)
    assert not (killed / "model.safetensors").exists()
    refused = train(config, "--output_dir", killed)
    assert refused.returncode == 2
    assert "is not empty; continue its run with --resume" in refused.stderr
    done = train(config, "--output_dir", killed, "--resume")
    assert done.returncode == 0, done.stderr
    assert json.loads((killed / "results.json").read_text())["training"]["steps"] == 130
    for file in ("model.safetensors", "checkpoints/checkpoint-130/model.safetensors"):
        assert (killed / file).read_bytes() == (whole / file).read_bytes()
    optimizers = [torch.load(run / "checkpoints/checkpoint-130/optimizer.pt") for run in (whole, killed)]
    torch.testing.assert_close(optimizers[0], optimizers[1], atol=0, rtol=0)


def test_a_run_is_resumed_with_its_own_settings_only(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    train_until(config, tmp_path / "run/checkpoints/checkpoint-10", "--output_dir", tmp_path / "run")
    done = train(config, "--output_dir", tmp_path / "run", "--resume", "--model.hidden_size", 32)
    assert done.returncode == 2
    assert "was started with another 'model'" in done.stderr
    (tmp_path / "text.txt").write_text(
        "Quite another text! 0123456789. The quick brown fox jumps over a lazy dog.\n" * 40
    )
    done = train(config, "--output_dir", tmp_path / "run", "--resume")
    assert done.returncode == 2
    assert "was started with another 'run'" in done.stderr


@pytest.mark.parametrize("stopped", ["at the last step", "early"])
def test_a_run_that_was_killed_after_its_last_step_takes_no_other(tmp_path: Path, stopped: str) -> None:
    config = tiny_config(
        tmp_path,
        training={"max_steps": 30 if stopped == "at the last step" else 500, "lr_scheduler_type": "constant"},
        early_stopping_patience=1,
        **({"model": {"embedding_dropout": 0.0}} if stopped == "early" else {}),
    )
    words = ["--training.learning_rate", 1.0, "--training.max_grad_norm", 0] if stopped == "early" else []
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = train(config, "--output_dir", whole, *words)
    assert done.returncode == 0, done.stderr
    before = json.loads((whole / "results.json").read_text())
    assert "early stopping is disabled" not in done.stderr
    shutil.copytree(whole / "checkpoints", killed / "checkpoints")  # as it stands when evaluation begins
    for state in (killed / "checkpoints").glob("*/trainer_state.json"):
        state.write_text(state.read_text().replace(str(whole), str(killed)))
    done = train(config, "--output_dir", killed, *words, "--resume")
    assert done.returncode == 0, done.stderr
    after = json.loads((killed / "results.json").read_text())
    assert (killed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert after["metrics"]["test"]["accuracy"] == before["metrics"]["test"]["accuracy"]
    assert after["training"]["steps"] == before["training"]["steps"]
    assert stopped == "at the last step" or before["training"]["steps"] < 500
    assert after["training"]["wall_time_seconds"] == pytest.approx(before["training"]["wall_time_seconds"], rel=0.5)


# Processes


@pytest.mark.parametrize("stateful", [False, True])
def test_two_processes_equal_one_with_twice_the_batch(tmp_path: Path, stateful: bool) -> None:
    """DDP over gloo, with gradient accumulation: the same rows, the same states, the same steps."""
    config = tiny_config(
        tmp_path, data={"stateful": stateful, "stride": 3}, training={"max_steps": 20, "gradient_accumulation_steps": 2}
    )
    one, two = tmp_path / "one", tmp_path / "two"
    done = train(config, "--output_dir", one)
    assert done.returncode == 0, done.stderr
    launch = [
        "accelerate",
        "launch",
        "--multi_gpu",
        "--num_processes",
        2,
        "--num_machines",
        1,
        "--mixed_precision",
        "no",
    ]
    launch += ["--dynamo_backend", "no", "--main_process_port", 0]
    script = ["recipes/char_lm/train.py", "--config", config, "--output_dir", two]
    sizes = ["--training.per_device_train_batch_size", 4, "--training.per_device_eval_batch_size", 2]
    done = run([*launch, *script, *sizes])
    assert done.returncode == 0, done.stderr
    results = [json.loads((folder / "results.json").read_text()) for folder in (one, two)]
    assert [result["hardware"]["processes"] for result in results] == [1, 2]
    weights = [load_file(folder / "model.safetensors") for folder in (one, two)]
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, atol=1e-5, rtol=0)
    for split in ("validation", "test"):
        first, second = (result["metrics"][split] for result in results)
        assert first["characters"] == second["characters"]
        assert first["nats_per_character"] == pytest.approx(second["nats_per_character"], abs=1e-4)
