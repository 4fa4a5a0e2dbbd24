"""Training: the stateful loop against a literal one, exact resumption, processes, numbers that are not finite,
averaged weights, early stopping, what a step's loss is divided by, a disk that fills."""

import json
import math
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import (
    RECIPE,
    ROOT,
    TWO_PROCESSES,
    environment,
    files_of_at_most,
    results_of,
    run,
    run_until_step,
    tiny_config,
    tiny_text,
    train,
    train_here,
    train_until,
    written,
)
from safetensors.torch import load_file
from torch.utils.data import Dataset, Subset
from transformers import (
    DataCollatorForSeq2Seq,
    DataCollatorWithPadding,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from hfattn import (
    CharRNNConfig,
    CharRNNForCausalLM,
    RNNEncoderConfig,
    RNNEncoderForSequenceClassification,
    VaswaniConfig,
    VaswaniForCausalLM,
    VaswaniForConditionalGeneration,
    VaswaniForSequenceClassification,
)
from hfattn.data import EncodedPairs, Pair, Pairs, PermutationSampler, Streams, Windows, split_positions
from hfattn.errors import NonFiniteError, UserError
from hfattn.files import write_json, writing
from hfattn.tokenizers import build_character_tokenizer
from hfattn.training import (
    OPTIMIZERS,
    AveragingConfig,
    ReliableSeq2SeqTrainer,
    ReliableTrainer,
    ScheduleConfig,
    Seq2SeqArguments,
    StatefulTrainer,
    last_complete_checkpoint,
    optimizer_class_and_arguments,
)
from hfattn.training.averaging import RAW_WEIGHTS

V, T, B = 9, 5, 3
ARGUMENTS = {
    "lr_scheduler_type": "constant",
    "report_to": "none",
    "save_strategy": "no",
    "use_cpu": True,
    "disable_tqdm": True,
    "remove_unused_columns": False,
    "logging_nan_inf_filter": False,
}
IDS = np.random.default_rng(0).integers(0, V, size=160).astype(np.uint8)
CELLS = ["gru", "lstm"]


def make_model(cell: str = "gru") -> CharRNNForCausalLM:
    torch.manual_seed(0)
    return CharRNNForCausalLM(CharRNNConfig(vocab_size=V, hidden_size=8, num_hidden_layers=2, cell=cell))


def make_trainer(
    kind: type[ReliableTrainer], model: CharRNNForCausalLM, folder: Path, dataset: Any, **arguments: Any
) -> ReliableTrainer:
    sizes = {"per_device_train_batch_size": B, "per_device_eval_batch_size": B}
    defaults = {"learning_rate": 0.05, "max_grad_norm": 0.0, "weight_decay": 0.0, **sizes}
    args = TrainingArguments(str(folder), **{**ARGUMENTS, **defaults, **arguments})
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
    arguments = TrainingArguments(
        str(tmp_path), learning_rate=0.02, adam_beta1=0.8, adam_beta2=0.99, adam_epsilon=1e-7, use_cpu=True
    )
    optimizer_class, kwargs = optimizer_class_and_arguments(name, arguments)
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = optimizer_class([weight], **kwargs)
    for _ in range(400):
        optimizer.zero_grad()
        weight.pow(2).sum().backward()
        optimizer.step()
    assert weight.abs().max() < 0.5
    if name == "adafactor":  # it has moments of its own
        return
    assert optimizer.defaults["eps"] == 1e-7
    if name == "rmsprop":
        assert optimizer.defaults["alpha"] == 0.99
    else:
        assert optimizer.defaults["betas"] == (0.8, 0.99)


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
    config = tiny_config(tmp_path, training={"learning_rate": 1000, "weight_decay": 1000, "max_grad_norm": 0})
    done = train(config, "--output_dir", tmp_path / "run")
    assert done.returncode == 1
    sentence = done.stderr.splitlines()[-1]
    assert re.fullmatch(r"error: The loss is (inf|nan) at step \d; there is no checkpoint yet: lower .*\.", sentence)
    assert "Traceback" not in done.stderr


def test_a_run_that_ended_before_it_trained_is_started_again_with_other_settings(tmp_path: Path) -> None:
    """Its message asks for a lower learning rate, so the same command with that works."""
    config, run = tiny_config(tmp_path, training={"report_to": ["tensorboard"]}), tmp_path / "run"
    too_high = {"learning_rate": 1000, "weight_decay": 1000, "max_grad_norm": 0}
    words = [word for name, value in too_high.items() for word in (f"--training.{name}", value)]
    with pytest.raises(NonFiniteError, match="there is no checkpoint yet"):
        train_here(RECIPE, config, *words)
    before = list((run / "logs").rglob("events.*"))
    for other in ("features.safetensors", "checkpoints/features", "checkpoints/checkpoint-5"):
        (run / other).mkdir()
        with pytest.raises(UserError, match="is not empty; continue its run with --resume"):
            train_here(RECIPE, config)
        (run / other).rmdir()
    with pytest.raises(UserError, match=r"was started with training\.learning_rate 1000"):
        train_here(RECIPE, config, "--resume")
    assert train_here(RECIPE, config)["configuration"]["training"]["learning_rate"] == 1e-2
    assert "learning_rate: 0.01" in (run / "checkpoints" / "recipe.yaml").read_text()
    assert before
    assert not any(path.exists() for path in before)


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


def test_a_run_continues_from_the_checkpoint_before_a_damaged_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that was cut by a full disk, or that has its length and only zeros after a loss of power."""
    options: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2, "save_total_limit": 2}

    def train_to(steps: int) -> Any:
        trainer = make_trainer(ReliableTrainer, make_model(), tmp_path, Windows(IDS, T), max_steps=steps, **options)
        trainer.train_or_resume(resume=True)
        return trainer

    train_to(4)
    for file in ("model.safetensors", "optimizer.pt", "rng_state.pth", "scheduler.pt"):
        path = tmp_path / "checkpoint-4" / file
        whole = path.read_bytes()
        for damaged in (b"", whole[: len(whole) // 2], whole[:-1], bytes(len(whole))):
            path.write_bytes(damaged)
            assert last_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-2"
        path.write_bytes(whole)
        assert last_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-4"

    (tmp_path / "checkpoint-4" / "optimizer.pt").write_bytes(b"")
    (tmp_path / "checkpoint-4").rename(tmp_path / "checkpoint-100")
    capsys.readouterr()
    again = train_to(6)
    printed = capsys.readouterr()
    assert f"Resuming from {tmp_path}/checkpoint-2:" in printed.out
    assert printed.err.startswith(f"{tmp_path}/checkpoint-100 is damaged; it is kept as damaged-checkpoint-100.\n")
    assert sorted(path.name for path in tmp_path.glob("*checkpoint*")) == [
        "checkpoint-4",
        "checkpoint-6",
        "damaged-checkpoint-100",
    ]
    whole_run = make_trainer(ReliableTrainer, make_model(), tmp_path / "whole", Windows(IDS, T), max_steps=6, **options)
    whole_run.train()
    torch.testing.assert_close(again.model.state_dict(), whole_run.model.state_dict(), atol=0, rtol=0)


@pytest.mark.parametrize(
    ("stateful", "moments"),
    [(False, ["checkpoint-90", "checkpoint-60/optimizer.pt"]), (True, ["checkpoint-40", "checkpoint-70"])],
)
def test_a_run_that_was_killed_ends_with_the_weights_of_one_that_was_not(
    tmp_path: Path, stateful: bool, moments: list[str]
) -> None:
    """SIGKILL at any moment, also while a checkpoint is half-written, in the first pass and in a later one."""
    config = tiny_config(
        tmp_path,
        data={"stateful": stateful, "stride": 7, "max_length": 8},
        model={"num_hidden_layers": 2, "dropout": 0.3, "output_dropout": 0.2, "cell": "lstm"},
        training={"max_steps": 130, "eval_steps": 10, "save_steps": 10, "lr_scheduler_type": "cosine"},
    )
    train_here(RECIPE, config, to="whole")
    for moment in moments:
        whole, killed = tmp_path / "whole", tmp_path / moment.replace("/", "-")
        train_until(config, killed / "checkpoints" / moment, "--output_dir", killed)
        assert not (killed / "model.safetensors").exists()
        with pytest.raises(UserError, match="is not empty; continue its run with --resume"):
            train_here(RECIPE, config, to=killed.name)
        assert train_here(RECIPE, config, "--resume", to=killed.name)["training"]["steps"] == 130
        for file in ("model.safetensors", "checkpoints/checkpoint-130/model.safetensors"):
            assert (killed / file).read_bytes() == (whole / file).read_bytes()
        optimizers = [torch.load(run / "checkpoints/checkpoint-130/optimizer.pt") for run in (whole, killed)]
        torch.testing.assert_close(optimizers[0], optimizers[1], atol=0, rtol=0)


@pytest.mark.parametrize("stateful", [False, True])
def test_a_run_that_was_interrupted_is_saved_and_ends_as_one_that_was_not(tmp_path: Path, stateful: bool) -> None:
    """Ctrl-C between two regular checkpoints, the last of which are averaged."""
    config = tiny_config(
        tmp_path,
        data={"stateful": stateful, "stride": 7, "max_length": 8},
        model={"num_hidden_layers": 2, "dropout": 0.3},
        averaging={"last": 2},
        training={"max_steps": 130, "eval_strategy": "no", "save_steps": 40, "load_best_model_at_end": False},
    )
    train_here(RECIPE, config, to="whole")
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    done = train_until(config, stopped / "checkpoints/checkpoint-40", "--output_dir", stopped, number=signal.SIGINT)
    assert done.returncode == 130
    sentence = r"Interrupted at step (\d+) of 130; a checkpoint of this step is saved\. To continue, .* with --resume\."
    match = re.fullmatch(sentence, done.stderr.splitlines()[-1])
    assert match is not None, done.stderr
    assert "Traceback" not in done.stderr
    saved = last_complete_checkpoint(stopped / "checkpoints")
    assert saved is not None
    assert saved.name == f"checkpoint-{match[1]}"
    assert 40 <= int(match[1]) < 130
    resumed = train(config, "--resume", "--output_dir", stopped)
    assert resumed.returncode == 0, resumed.stderr
    assert f"Resuming from {saved}: CharRNNForCausalLM, " in resumed.stdout
    assert (stopped / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_command_that_is_terminated_leaves_no_training(tmp_path: Path) -> None:
    run, text = tmp_path / "run", str(tiny_text(tmp_path))
    command = [sys.executable, "-m", "hfattn", "train", "char_lm/quickstart", "--data.dataset", text]
    command += ["--data.max_length", "16", "--model.hidden_size", "8", "--output_dir", str(run)]
    command += ["--training.max_steps", "100000", "--training.eval_steps", "5", "--training.save_steps", "5"]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment(), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 120
        while not list(run.glob("checkpoints/checkpoint-*")):  # any: each takes the place of the one before it
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        (training,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    finally:
        process.terminate()
        process.wait(timeout=60)
    assert not Path(f"/proc/{training}").exists()


def test_a_run_is_resumed_with_its_own_settings_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config(tmp_path)
    run_until_step(RECIPE, monkeypatch, 15, "--config", config, "--output_dir", tmp_path / "run")
    with pytest.raises(UserError, match=r"was started with model\.hidden_size 16, and this command has 32; resume it"):
        train_here(RECIPE, config, "--resume", "--model.hidden_size", 32)
    with pytest.raises(UserError, match=r"was started with training\.weight_decay none, and this command has 0\.1;"):
        train_here(RECIPE, config, "--resume", "--training.weight_decay", 0.1)
    another = "Quite another text! 0123456789. The quick brown fox jumps over a lazy dog.\n"
    (tmp_path / "text.txt").write_text(another * 40)
    with pytest.raises(UserError, match="was started with other data: its text differs; resume it with the same"):
        train_here(RECIPE, config, "--resume")


def test_checkpoints_of_the_model_alone_and_an_optimizer_of_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a run trains and is finished, and what was killed is not resumed with an optimizer that starts again."""
    config = tiny_config(tmp_path, training={"optim": "adafactor", "save_only_model": True})
    results = train_here(RECIPE, config, to="whole")
    assert results["configuration"]["training"]["optim"] == "adafactor"
    assert not list(tmp_path.glob("whole/checkpoints/*/optimizer.pt"))
    run_until_step(RECIPE, monkeypatch, 15, "--config", config, "--output_dir", tmp_path / "run")
    with pytest.raises(UserError, match=r"has only the model \(training\.save_only_model\), so the training cannot be"):
        train_here(RECIPE, config, "--resume")
    adamw = train_here(RECIPE, tiny_config(tmp_path), to="adamw")
    assert abs(adamw["metrics"]["test"]["loss"] - results["metrics"]["test"]["loss"]) > 0.01


@pytest.mark.parametrize("stopped", ["at the last step", "early"])
def test_a_run_that_was_killed_after_its_last_step_takes_no_other(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], stopped: str
) -> None:
    config = tiny_config(
        tmp_path,
        training={"max_steps": 30 if stopped == "at the last step" else 500, "lr_scheduler_type": "constant"},
        early_stopping_patience=1,
        **({"model": {"embedding_dropout": 0.0}} if stopped == "early" else {}),
    )
    words = ["--training.learning_rate", 1.0, "--training.max_grad_norm", 0] if stopped == "early" else []
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    before = train_here(RECIPE, config, *words, to="whole")
    assert "early stopping is disabled" not in capfd.readouterr().err
    shutil.copytree(whole / "checkpoints", killed / "checkpoints")  # as it stands when evaluation begins
    for state in (killed / "checkpoints").glob("*/trainer_state.json"):
        state.write_text(state.read_text().replace(str(whole), str(killed)))
    after = train_here(RECIPE, config, *words, "--resume", to="killed")
    assert (killed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert after["metrics"]["test"]["accuracy"] == before["metrics"]["test"]["accuracy"]
    assert after["training"]["steps"] == before["training"]["steps"]
    assert stopped == "at the last step" or before["training"]["steps"] < 500
    assert after["training"]["wall_time_seconds"] == pytest.approx(before["training"]["wall_time_seconds"], rel=0.5)


# Texts of different lengths: batches by tokens, the loss of a step, averaged weights


class Reversals(Dataset[dict[str, list[int]]]):
    """Rows of 2 to 9 ids, to be written backwards; 3 is the end."""

    def __init__(self, number: int = 64) -> None:
        generator = np.random.default_rng(0)
        self.rows = [generator.integers(4, 12, size=size).tolist() for size in generator.integers(1, 9, size=number)]
        self.lengths = np.array([[len(row) + 1, len(row) + 1] for row in self.rows])
        self.epochs: list[int] = []

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        row = self.rows[index]
        return {"input_ids": [*row, 3], "labels": [*row[::-1], 3]}

    def sampler(self, seed: int) -> PermutationSampler:
        return PermutationSampler(len(self), seed)

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


def reversal_model(seed: int = 0, **fields: Any) -> VaswaniForConditionalGeneration:
    torch.manual_seed(seed)
    defaults = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "dropout": 0.1}
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 2}
    layers = {"encoder_layers": 1, "decoder_layers": 1}
    return VaswaniForConditionalGeneration(VaswaniConfig(vocab_size=12, **{**defaults, **ids, **layers, **fields}))


def reversal_tokenizer() -> PreTrainedTokenizerBase:
    return build_character_tokenizer(dict.fromkeys("abcdefgh", 1), ends=True)


def reversal_trainer(
    folder: Path, model: VaswaniForConditionalGeneration | None = None, options: Any = None, **arguments: Any
) -> ReliableSeq2SeqTrainer:
    model = reversal_model() if model is None else model
    sizes = {"per_device_train_batch_size": 8, "per_device_eval_batch_size": 32, "max_steps": 8}
    defaults = {"learning_rate": 0.02, "restore_callback_states_from_checkpoint": True, **sizes}
    dataset = Reversals()
    return ReliableSeq2SeqTrainer(
        model,
        Seq2SeqArguments(str(folder), **{**ARGUMENTS, **defaults, **arguments}),
        data_collator=DataCollatorForSeq2Seq(reversal_tokenizer(), model),
        train_dataset=dataset,
        eval_dataset=dataset,
        **(options or {}),
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_one_batch_equals_as_many_examples_accumulated(tmp_path: Path, smoothing: float) -> None:
    """Each token of a step counts the same, in whichever micro-batch it stands and however long its neighbors are."""
    weights = []
    for rows, accumulation in ((8, 1), (1, 8), (2, 4)):
        trainer = reversal_trainer(
            tmp_path,
            reversal_model(dropout=0.0).double(),
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=accumulation,
            label_smoothing_factor=smoothing,
            max_grad_norm=0.5,
        )
        trainer.train()
        weights.append(trainer.model.state_dict())
    tolerance = 1e-9 if smoothing == 0 else 1e-6  # transformers adds up the smoothed part in float32
    for other in weights[1:]:
        for name, tensor in weights[0].items():
            torch.testing.assert_close(other[name], tensor, atol=tolerance, rtol=0)


class LabeledRows(Reversals):
    """Rows with a class from 0 to 2."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": self.rows[index], "label": index % 3}


class Sigmoids(LabeledRows):
    """Rows with three labels of 0 or 1."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": self.rows[index], "label": [float(index % 2), float(index % 3 == 0), 1.0]}


@pytest.mark.parametrize("family", ["rnn_encoder", "vaswani"])
@pytest.mark.parametrize(
    ("dataset", "problem"),
    [(LabeledRows, "single_label_classification"), (Sigmoids, "multi_label_classification")],
)
def test_a_classifiers_step_does_not_depend_on_its_batches(
    tmp_path: Path, family: str, dataset: Any, problem: str
) -> None:
    """20 rows in steps of 8, the last of them smaller, with plain SGD: as one batch or as several."""
    fields = {"vocab_size": 12, "num_labels": 3, "problem_type": problem, "hidden_size": 8}
    losses, weights = [], []
    for rows, accumulation in ((8, 1), (2, 4), (4, 2)):
        torch.manual_seed(0)
        model: Any
        if family == "vaswani":
            config = VaswaniConfig(**fields, num_attention_heads=2, intermediate_size=16, encoder_layers=1, dropout=0.0)
            model = VaswaniForSequenceClassification(config).double()
        else:
            model = RNNEncoderForSequenceClassification(RNNEncoderConfig(**fields, embedding_size=8)).double()
        rows_of_labels = dataset(20)
        rows_of_labels.collate = DataCollatorWithPadding(reversal_tokenizer())
        trainer = make_trainer(
            ReliableTrainer,
            model,
            tmp_path,
            rows_of_labels,
            num_train_epochs=2,
            learning_rate=0.5,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=accumulation,
        )
        losses.append(trainer.train().training_loss)
        weights.append(model.state_dict())
    assert losses[1:] == pytest.approx([losses[0]] * 2, abs=1e-6)
    for other in weights[1:]:
        for name, tensor in weights[0].items():
            torch.testing.assert_close(other[name], tensor, atol=1e-6, rtol=0)


def test_label_smoothing_is_the_cross_entropy_with_a_smoothed_target(tmp_path: Path) -> None:
    """Szegedy et al. 2016, section 7: 1 - epsilon on the right token and epsilon / V on each, padding left out."""
    epsilon = 0.3
    model, literal = reversal_model(dropout=0.0), reversal_model(dropout=0.0)
    trainer = reversal_trainer(tmp_path, model, label_smoothing_factor=epsilon, max_steps=1, max_grad_norm=0.0)
    trainer.optimizer_cls_and_kwargs = (torch.optim.SGD, {"lr": 1.0})
    batch = trainer.data_collator([trainer.train_dataset[i] for i in list(PermutationSampler(64, 42))[:8]])
    logits = literal(**{name: tensor for name, tensor in batch.items() if name != "labels"}).logits
    log_probabilities = logits.log_softmax(-1)
    scored = batch["labels"] != -100
    target = torch.full_like(logits, epsilon / 12)
    target.scatter_add_(-1, batch["labels"].clamp(min=0)[..., None], torch.full_like(logits[..., :1], 1 - epsilon))
    loss = -(target * log_probabilities).sum(-1)[scored].mean()
    loss.backward()
    trainer.train()
    before = reversal_model(dropout=0.0).state_dict()
    for (name, tensor), (_, expected) in zip(model.named_parameters(), literal.named_parameters(), strict=True):
        gradient = torch.zeros_like(tensor) if expected.grad is None else expected.grad
        torch.testing.assert_close(before[name] - tensor.detach(), gradient, atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", ["char_rnn", "vaswani"])
def test_label_smoothing_of_the_plain_trainer_shifts_the_labels_of_a_language_model(
    tmp_path: Path, family: str
) -> None:
    torch.manual_seed(0)
    model: Any = make_model()
    if family == "vaswani":
        model = VaswaniForCausalLM(VaswaniConfig(vocab_size=V, hidden_size=8, num_attention_heads=2, dropout=0.0))
    ids = torch.from_numpy(IDS[:18].astype(int)).view(2, 9)
    labels = ids.clone()
    labels[1, :4] = -100
    with torch.no_grad():
        log_probabilities = model.eval()(ids).logits.log_softmax(-1)
    terms = [
        0.7 * -log_probabilities[b, t, labels[b, t + 1]] + 0.3 * -log_probabilities[b, t].mean()
        for b in range(2)
        for t in range(8)
        if labels[b, t + 1] != -100
    ]
    arguments = TrainingArguments(str(tmp_path), **ARGUMENTS, label_smoothing_factor=0.3, max_steps=1)
    rows = [{"input_ids": ids[b], "labels": labels[b]} for b in range(2)]
    trainer = Trainer(model, arguments, train_dataset=rows, eval_dataset=rows)
    expected = pytest.approx((sum(terms) / len(terms)).item(), abs=1e-6)
    assert trainer.evaluate()["eval_loss"] == expected
    assert trainer.train().training_loss == expected


def test_label_smoothing_of_char_lm(tmp_path: Path) -> None:
    """A batch of the recipe has labels that are already shifted."""
    training = {"label_smoothing_factor": 0.3, "max_steps": 2, "eval_steps": 2, "save_steps": 2}
    config = tiny_config(tmp_path, training={**training, "per_device_eval_batch_size": 1000})
    scores = train_here(RECIPE, config)["metrics"]["validation"]
    vocabulary = json.loads((tmp_path / "run" / "tokenizer.json").read_text())["model"]["vocab"]
    ids = np.array([vocabulary[character] for character in (tmp_path / "text.txt").read_text()])
    windows = Windows(ids[split_positions(len(ids), [0.8, 0.1, 0.1])[1]], 16, 16)
    batch = windows.__getitems__(range(len(windows)))
    model = CharRNNForCausalLM.from_pretrained(tmp_path / "run").eval()
    with torch.no_grad():
        logits = model(batch["input_ids"]).logits
    smoothed = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), label_smoothing=0.3)
    assert scores["loss"] == pytest.approx(smoothed.item(), abs=1e-5)


def test_batches_by_tokens_in_training(tmp_path: Path) -> None:
    trainer = reversal_trainer(tmp_path, options={"max_tokens": 40}, max_steps=-1, num_train_epochs=3)
    shapes = []
    forward = trainer.model.forward

    def watched(input_ids: torch.Tensor, **kwargs: Any) -> Any:
        shapes.append((tuple(input_ids.shape), tuple(kwargs["decoder_input_ids"].shape)))
        return forward(input_ids=input_ids, **kwargs)

    trainer.model.forward = watched
    trainer.train()
    assert all(rows * width <= 40 for shape in shapes for rows, width in shape)
    assert sum(source[0] for source, _ in shapes) == 3 * 64  # each example once in each pass
    assert trainer.state.global_step == len(shapes) == 3 * len(trainer.get_train_dataloader())
    assert list(dict.fromkeys(trainer.train_dataset.epochs)) == [0, 1, 2]
    by_number = reversal_trainer(tmp_path).padding_share
    assert trainer.padding_share < 0.1 < 0.25 < by_number


def evaluated_and_saved(every: int, **more: Any) -> dict[str, Any]:
    """Arguments of a run that is evaluated and saved after every so many steps."""
    return {"eval_strategy": "steps", "eval_steps": every, "save_strategy": "steps", "save_steps": every, **more}


BEST_QUALITY = {"load_best_model_at_end": True, "metric_for_best_model": "quality", "greater_is_better": True}
EVERYTHING = {
    "max_tokens": 40,
    "schedule": ScheduleConfig(name="untuned_exponential"),
    "averaging": AveragingConfig(ema=0.9),
}


def test_a_resumed_run_ends_the_same_with_all_of_it(tmp_path: Path) -> None:
    """Resumed in the middle of a pass: the batches, the schedule, both sets of weights, to the last bit."""
    arguments = evaluated_and_saved(5, max_steps=14, gradient_accumulation_steps=2, adam_beta2=0.9)
    arguments["label_smoothing_factor"] = 0.1
    whole = reversal_trainer(tmp_path / "whole", options=EVERYTHING, **arguments)
    whole.train()
    shutil.copytree(tmp_path / "whole/checkpoint-10", tmp_path / "killed/checkpoint-10")
    resumed = reversal_trainer(tmp_path / "killed", reversal_model(seed=1), EVERYTHING, **arguments)
    resumed.train(str(tmp_path / "killed/checkpoint-10"))
    assert 0 < resumed.state.epoch % 1 < 1
    for file in ("model.safetensors", RAW_WEIGHTS):
        first, second = (tmp_path / run / "checkpoint-14" / file for run in ("whole", "killed"))
        assert first.read_bytes() == second.read_bytes()
    for name, tensor in whole.model.state_dict().items():
        torch.testing.assert_close(resumed.model.state_dict()[name], tensor, atol=0, rtol=0)
    histories = [[log["eval_loss"] for log in t.state.log_history if "eval_loss" in log] for t in (whole, resumed)]
    assert histories[0] == histories[1]
    assert len(histories[0]) == 3


class Recorder(TrainerCallback):
    """The weights after each update."""

    def __init__(self) -> None:
        self.weights: list[dict[str, torch.Tensor]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.weights.append({name: tensor.detach().double().clone() for name, tensor in model.named_parameters()})


def test_the_moving_average_is_what_is_evaluated_saved_and_left(tmp_path: Path) -> None:
    recorder = Recorder()
    trainer = reversal_trainer(
        tmp_path,
        options={"averaging": AveragingConfig(ema=0.6), "callbacks": [recorder]},
        **evaluated_and_saved(6, max_steps=12),
    )
    average = {name: tensor.detach().double().clone() for name, tensor in trainer.model.named_parameters()}
    trainer.train()
    averages = {}
    for step, weights in enumerate(recorder.weights, start=1):
        decay = min(0.6, (1 + step) / (10 + step))
        average = {name: decay * average[name] + (1 - decay) * weights[name] for name in weights}
        averages[step] = average
    for step in (6, 12):
        checkpoint = tmp_path / f"checkpoint-{step}"
        saved = dict(VaswaniForConditionalGeneration.from_pretrained(checkpoint).named_parameters())
        for name, tensor in load_file(checkpoint / RAW_WEIGHTS).items():
            torch.testing.assert_close(tensor.double(), recorder.weights[step - 1][name], atol=0, rtol=0)
            torch.testing.assert_close(saved[name].detach().double(), averages[step][name], atol=1e-6, rtol=0)
    for name, tensor in trainer.model.named_parameters():
        torch.testing.assert_close(tensor.detach().double(), averages[12][name], atol=1e-6, rtol=0)
    logged = [log["eval_loss"] for log in trainer.state.log_history if "eval_loss" in log]
    assert trainer.evaluate()["eval_loss"] == logged[-1]
    loaded = VaswaniForConditionalGeneration.from_pretrained(tmp_path / "checkpoint-6")
    assert reversal_trainer(tmp_path / "other", loaded).evaluate()["eval_loss"] == pytest.approx(logged[0], abs=1e-6)


def test_the_best_of_the_averaged_weights_is_left(tmp_path: Path) -> None:
    """The score falls after step 4, so that the average of step 4 is the best."""
    trainer = reversal_trainer(
        tmp_path,
        options={"averaging": AveragingConfig(ema=0.9), "early_stopping_patience": 2},
        **evaluated_and_saved(2, max_steps=20, save_total_limit=1, **BEST_QUALITY),
    )
    qualities = iter([0.1, 0.9, 0.3, 0.2, 0.95, 0.99])
    trainer.compute_metrics = lambda prediction: {"quality": next(qualities)}
    trainer.train()
    assert trainer.state.global_step == 8
    assert trainer.state.best_global_step == 4
    for name, tensor in load_file(tmp_path / "checkpoint-4" / "model.safetensors").items():
        torch.testing.assert_close(trainer.model.state_dict()[name], tensor, atol=0, rtol=0)


def test_the_best_checkpoint_is_found_in_a_folder_that_was_moved(tmp_path: Path) -> None:
    fields = evaluated_and_saved(2, max_steps=6, **BEST_QUALITY)
    trainer = reversal_trainer(tmp_path / "before", **fields)
    qualities = iter([0.9, 0.1, 0.2])
    trainer.compute_metrics = lambda prediction: {"quality": next(qualities)}
    trainer.train()
    (tmp_path / "before").rename(tmp_path / "after")
    best = load_file(tmp_path / "after" / "checkpoint-2" / "model.safetensors")
    for last in (6, 4):  # nothing is left to train, or two steps
        trainer = reversal_trainer(tmp_path / "after", reversal_model(seed=1), **fields)
        trainer.compute_metrics = lambda prediction: {"quality": 0.2}
        trainer.train(str(tmp_path / "after" / f"checkpoint-{last}"))
        for name, tensor in best.items():
            torch.testing.assert_close(trainer.model.state_dict()[name], tensor, atol=0, rtol=0)


def test_a_metric_that_is_not_computed_is_named(tmp_path: Path) -> None:
    trainer = reversal_trainer(
        tmp_path, max_steps=4, eval_strategy="steps", eval_steps=2, metric_for_best_model="qualty"
    )
    trainer.compute_metrics = lambda prediction: {"quality": 1.0}
    with pytest.raises(UserError, match=r"training.metric_for_best_model: 'qualty' is not .* did you mean 'quality'\?"):
        trainer.train()


def test_the_mean_of_the_last_checkpoints_is_left(tmp_path: Path) -> None:
    recorder = Recorder()
    trainer = reversal_trainer(
        tmp_path,
        reversal_model(tie_word_embeddings=True),
        {"averaging": AveragingConfig(last=3), "callbacks": [recorder]},
        max_steps=10,
        save_strategy="steps",
        save_steps=2,
        save_total_limit=4,
    )
    trainer.train()
    for name, tensor in trainer.model.named_parameters():
        mean = sum(recorder.weights[step - 1][name] for step in (6, 8, 10)) / 3
        torch.testing.assert_close(tensor.detach(), mean.float(), atol=0, rtol=0)
    left = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    again = reversal_trainer(
        tmp_path,
        reversal_model(seed=1, tie_word_embeddings=True),
        {"averaging": AveragingConfig(last=3)},
        max_steps=10,
        save_strategy="steps",
    )
    again.train(str(tmp_path / "checkpoint-10"))  # was killed between its last step and its evaluation
    for name, tensor in again.model.state_dict().items():
        torch.testing.assert_close(tensor, left[name], atol=0, rtol=0)


def test_a_run_without_checkpoints_has_no_mean_of_them(tmp_path: Path) -> None:
    options = {"averaging": AveragingConfig(last=3)}
    trainer = reversal_trainer(tmp_path, options=options, max_steps=1)
    with pytest.raises(UserError, match=r"averaging.last 3 averages checkpoints, and .* has none; write"):
        trainer.train()


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"hidden_size": 24}, r"is \[12, 16\], and this model's is \[12, 24\]; resume with the model that"),
        ({"decoder_layers": 2}, r"its \S+decoder\.layers\.1\.\S+ is absent, and this model's is \["),
        ({"share_embeddings": False}, r"checkpoint-2 has another model"),
    ],
)
def test_a_checkpoint_of_another_architecture_is_refused(tmp_path: Path, other: Any, sentence: str) -> None:
    reversal_trainer(tmp_path, max_steps=2, save_strategy="steps", save_steps=2).train()
    with pytest.raises(UserError, match=sentence):
        reversal_trainer(tmp_path, reversal_model(**other)).train(str(tmp_path / "checkpoint-2"))


@pytest.mark.parametrize("subset", [False, True])
def test_pairs_are_evaluated_by_length_and_predicted_in_their_order(tmp_path: Path, subset: bool) -> None:
    """Likelihoods and translations against those of each pair alone."""
    tokenizer = reversal_tokenizer()
    generator = np.random.default_rng(0)
    words = ["".join(generator.choice(list("abcdefgh"), size=size)) for size in generator.integers(1, 9, size=40)]
    dataset: Any = EncodedPairs(Pairs("words", [Pair(word, word[::-1]) for word in words]), tokenizer, tokenizer, 9, 9)
    if subset:
        dataset = Subset(dataset, [31, 4, 17, 8, 25, 6, 39, 1, 2, 12, 20])
    ends = {"bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    arguments = {"predict_with_generate": True, "generation_max_length": 12, "per_device_eval_batch_size": 4}
    trainer = reversal_trainer(tmp_path, reversal_model(**ends), {"max_tokens": 36}, **arguments)
    output = trainer.predict(dataset)
    widths = [batch["input_ids"].shape[1] for batch in trainer.get_eval_dataloader(dataset)]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]
    trainer.max_tokens = None  # batches of training have padding then, and so have those of evaluation
    widths = [batch["input_ids"].shape[1] for batch in trainer.get_eval_dataloader(dataset)]
    assert widths != sorted(widths)
    _, nats, generated = output.predictions
    for i in range(len(dataset)):
        batch = trainer.data_collator([dataset[i]])
        _, (_, one_nats, one_generated), labels = trainer.prediction_step(trainer.model, batch, False)
        for rows, alone in ((output.label_ids, labels), (nats, one_nats), (generated, one_generated)):
            np.testing.assert_allclose(rows[i, : alone.shape[1]], alone[0], atol=1e-5)


# A disk that fills


@pytest.mark.parametrize("fails", ["model.safetensors", "optimizer.pt"])
def test_a_full_disk_keeps_the_checkpoint_before(tmp_path: Path, fails: str) -> None:
    options = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2}
    reversal_trainer(tmp_path, **{**options, "max_steps": 2}).train()
    before = {path.name: path.read_bytes() for path in (tmp_path / "checkpoint-2").iterdir()}
    limit = len(before[fails]) - 100
    assert fails == "model.safetensors" or limit > len(before["model.safetensors"])
    trainer = reversal_trainer(tmp_path, **options)
    with files_of_at_most(limit), pytest.raises(UserError) as error:
        trainer.train(str(tmp_path / "checkpoint-2"))
    assert str(error.value) == (
        f"The disk is full: {tmp_path}/checkpoint-4 is incomplete; the last good checkpoint is "
        f"{tmp_path}/checkpoint-2: free some space and continue with --resume."
    )
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-2"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "checkpoint-2").iterdir()} == before
    reversal_trainer(tmp_path, **options).train(str(last_complete_checkpoint(tmp_path)))
    assert last_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-6"


def test_results_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    with (
        files_of_at_most(100),
        pytest.raises(UserError, match=f"The disk is full: {tmp_path} is incomplete"),
    ):
        write_json(tmp_path / "results.json", {"much": "x" * 1000})
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_another_kind_is_not_taken_for_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), writing(tmp_path):
        (tmp_path / "absent").read_text()
    with pytest.raises(RuntimeError, match="shapes"), writing(tmp_path):
        raise RuntimeError("shapes differ")


# Processes


def test_a_process_that_fails_ends_the_launch(tmp_path: Path) -> None:
    """Whichever it is; the other would wait for it for half an hour."""
    script = written(
        tmp_path / "one.py", "import os, sys, time\nsys.exit('lost') if os.environ['RANK'] == '1' else time.sleep(60)\n"
    )
    start = time.monotonic()
    done = run([*TWO_PROCESSES, script])
    assert done.returncode == 1
    assert done.stderr == "lost\n"
    assert time.monotonic() - start < 50


@pytest.mark.parametrize("stateful", [False, True])
def test_two_processes_equal_one_with_twice_the_batch(tmp_path: Path, stateful: bool) -> None:
    """DDP over gloo, with gradient accumulation: the same rows, the same states, the same steps."""
    config = tiny_config(
        tmp_path, data={"stateful": stateful, "stride": 3}, training={"max_steps": 20, "gradient_accumulation_steps": 2}
    )
    one = train_here(RECIPE, config, to="one")
    sizes = ["--training.per_device_train_batch_size", 4, "--training.per_device_eval_batch_size", 2]
    words = ["--config", config, "--output_dir", tmp_path / "two", *sizes]
    done = run([*TWO_PROCESSES, RECIPE / "train.py", *words])
    assert done.returncode == 0, done.stderr
    two = results_of(tmp_path / "two")
    assert [each["hardware"]["processes"] for each in (one, two)] == [1, 2]
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("one", "two")]
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, atol=1e-5, rtol=0)
    for split in ("validation", "test"):
        first, second = one["metrics"][split], two["metrics"][split]
        assert first["characters"] == second["characters"]
        assert first["nats_per_character"] == pytest.approx(second["nats_per_character"], abs=1e-4)


def test_two_processes_share_batches_by_tokens(tmp_path: Path) -> None:
    """Each of two processes reads every other batch: the step of one process that accumulates two."""
    options = {"max_tokens": 36, "averaging": AveragingConfig(ema=0.9)}
    arguments = {"max_steps": -1, "num_train_epochs": 2, "label_smoothing_factor": 0.1, "adam_epsilon": 0.1}
    one = reversal_trainer(
        tmp_path / "one", reversal_model(dropout=0.0), options, gradient_accumulation_steps=2, **arguments
    )
    assert len(one.get_train_dataloader()) % 2 == 0
    one.train()
    script = tmp_path / "two.py"
    script.write_text(
        "from pathlib import Path\n"
        "from test_training import AveragingConfig, reversal_model, reversal_trainer\n"
        f"two = reversal_trainer(Path('two'), reversal_model(dropout=0.0), {options!r}, **{arguments!r})\n"
        "two.train()\n"
        "if two.is_world_process_zero():\n"
        "    two.model.save_pretrained(f'two-{two.args.world_size}-{two.state.global_step}')\n"
    )
    done = run([*TWO_PROCESSES, script], cwd=tmp_path, PYTHONPATH=str(Path(__file__).parent))
    assert done.returncode == 0, done.stderr
    two = VaswaniForConditionalGeneration.from_pretrained(tmp_path / f"two-2-{one.state.global_step}")
    moved = 0.0
    for (name, tensor), other in zip(one.model.named_parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(other, tensor, atol=1e-5, rtol=0, msg=name)
        moved = max(moved, float((tensor - reversal_model(dropout=0.0).get_parameter(name)).detach().abs().max()))
    assert moved > 0.01
