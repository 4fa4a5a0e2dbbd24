"""Learning-rate schedules against their formulas, weight decay of the optimizers, and what a configuration refuses."""

import math
import warnings
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from huggingface_hub.dataclasses import strict
from transformers import Trainer, TrainingArguments

from hfattn import (
    BahdanauConfig,
    BahdanauForConditionalGeneration,
    CharRNNConfig,
    CharRNNForCausalLM,
    VaswaniConfig,
    VaswaniForConditionalGeneration,
)
from hfattn.errors import UserError
from hfattn.training import ScheduleConfig, TrainingConfig, load_config, optimizer_class_and_arguments
from hfattn.training.arguments import COMMON_FIELDS, COMMON_VALUES, checks_alone
from hfattn.training.schedules import make_scheduler


def rates(updates: int, learning_rate: float = 1.0, total: int = 10_000, **fields: Any) -> list[float]:
    """The rate of each update, read where the optimizer reads it."""
    own: dict[str, Any] = {"lr_scheduler_type": "constant", "learning_rate": learning_rate}
    for name in ("lr_scheduler_type", "lr_scheduler_kwargs", "adam_beta2"):
        if name in fields:
            own[name] = fields.pop(name)
    arguments = TrainingArguments("unused", use_cpu=True, report_to="none", **own)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=learning_rate)
    scheduler = make_scheduler(ScheduleConfig(**fields), optimizer, arguments, total, hidden_size=512)
    used = []
    for _ in range(updates):
        used.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return used


def test_noam_is_the_papers() -> None:
    used = rates(9000, name="noam")
    expected = [512**-0.5 * min(t**-0.5, t * 4000**-1.5) for t in range(1, 9001)]
    assert used == pytest.approx(expected, rel=1e-12)
    assert max(used) == pytest.approx(6.988e-4, abs=5e-8)
    assert used.index(max(used)) == 3999  # the 4000th update
    assert rates(5, 2.0, name="noam", warmup_steps=10) == pytest.approx(
        [2 * 512**-0.5 * t * 10**-1.5 for t in range(1, 6)], rel=1e-12
    )


def test_the_inverse_square_root_is_the_papers() -> None:
    """Raffel et al. 2020, section 3.1.2: constant for k updates; that of transformers warms up instead."""
    used = rates(12_000, name="inverse_square_root")
    assert used == pytest.approx([1 / math.sqrt(max(t, 10_000)) for t in range(1, 12_001)], rel=1e-12)
    assert used[0] == pytest.approx(0.01)
    assert rates(40, 0.5, name="inverse_square_root", warmup_steps=16) == pytest.approx(
        [0.5 / math.sqrt(max(t, 16)) for t in range(1, 41)], rel=1e-12
    )


def test_tfixup_decays_from_the_first_update_on() -> None:
    used = rates(5000, 3e-4, name="tfixup")
    assert used == pytest.approx([3e-4 * math.sqrt(4000 / (4000 + done)) for done in range(5000)], rel=1e-12)
    assert rates(31, 1.0, name="tfixup", decay_steps=10)[30] == pytest.approx(0.5)


@pytest.mark.parametrize("total", [7, 15, 100, 1234])
@pytest.mark.parametrize(("f", "ratio"), [(0.1, 32), (0.25, 8)])
def test_the_slanted_triangle_is_the_papers(total: int, f: float, ratio: float) -> None:
    """Howard & Ruder 2018, equation 3, and the two cases that it leaves open."""
    own: dict[str, Any] = {} if f == 0.1 else {"cut_fraction": f, "ratio": ratio}
    used = rates(total, 0.01, total=total, name="slanted_triangular", **own)
    cut = math.floor(total * f)
    for t, rate in enumerate(used, start=1):
        if cut == 0:
            p = max(0, 1 - (t - 1) / (1 / f - 1))
        else:
            p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / f - 1))
        assert rate == pytest.approx(0.01 * (1 + max(p, 0) * (ratio - 1)) / ratio, rel=1e-12)
    assert max(used) == pytest.approx(0.01)
    assert used.index(max(used)) == max(cut, 1) - 1
    assert min(used) >= 0.01 / ratio * (1 - 1e-12)
    if total == 100:
        assert used[-1] == pytest.approx(0.01 / ratio)


@pytest.mark.parametrize(
    ("fields", "factor"),
    [
        ({"name": "linear_warmup", "warmup_steps": 20}, lambda t: min(1, t / 20)),
        ({"name": "exponential_warmup", "warmup_steps": 20}, lambda t: 1 - math.exp(-t / 20)),
        ({"name": "untuned_linear", "adam_beta2": 0.98}, lambda t: min(1, t / 100)),
        ({"name": "untuned_exponential", "adam_beta2": 0.98}, lambda t: 1 - math.exp(-t / 50)),
        ({"name": "untuned_linear", "adam_beta2": 0.999}, lambda t: min(1, t / 2000)),
    ],
)
def test_warm_up_multiplies_the_rate_of_the_arguments(fields: dict[str, Any], factor: Any) -> None:
    steps = range(1, 301)
    assert rates(300, 0.1, **fields) == pytest.approx([0.1 * factor(t) for t in steps], rel=1e-9)
    cosine = [0.5 * (1 + math.cos(math.pi * (t - 1) / 400)) for t in steps]
    expected = [0.1 * factor(t) * decay for t, decay in zip(steps, cosine, strict=True)]
    assert rates(300, 0.1, total=400, lr_scheduler_type="cosine", **fields) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "options", "last"),
    [("cosine_with_min_lr", {"min_lr": 0.01}, 0.01), ("polynomial", {"lr_end": 0.02, "power": 1.0}, 0.02)],
)
def test_a_schedule_with_a_last_rate_of_its_own_ends_there(name: str, options: dict[str, float], last: float) -> None:
    own = {"lr_scheduler_type": name, "lr_scheduler_kwargs": options}
    used = rates(101, 0.1, total=100, name="linear_warmup", warmup_steps=4, **own)
    assert used[0] == pytest.approx(0.1 / 4)
    assert used[100] == pytest.approx(last, rel=1e-9)


# Optimizers


@pytest.mark.parametrize("name", ["adamw", "adafactor", "nadam", "radam"])
def test_weight_decay_is_decoupled_from_the_gradient(tmp_path: Path, name: str) -> None:
    """Loshchilov & Hutter 2019: with a gradient of zero the weights shrink by the rate times the decay."""
    arguments = TrainingArguments(str(tmp_path), learning_rate=0.1, use_cpu=True, report_to="none")
    optimizer_class, kwargs = optimizer_class_and_arguments(name, arguments)
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer = optimizer_class([{"params": [weight], "weight_decay": 0.3}], **kwargs)
    for _ in range(3):
        weight.grad = torch.zeros_like(weight)
        optimizer.step()
    torch.testing.assert_close(weight.detach(), torch.tensor([1.0, -2.0], dtype=torch.float64) * (1 - 0.03) ** 3)


def test_the_rate_of_adafactor_is_relative_to_the_weights(tmp_path: Path) -> None:
    arguments = TrainingArguments(str(tmp_path), learning_rate=0.01, use_cpu=True, report_to="none")
    optimizer_class, kwargs = optimizer_class_and_arguments("adafactor", arguments)
    small = torch.randn(6, 5, dtype=torch.float64)
    before = [small, 100 * small, torch.zeros_like(small)]
    weights = [torch.nn.Parameter(weight.clone()) for weight in before]
    gradient = torch.randn_like(small)
    for weight in weights:
        weight.grad = gradient
    optimizer_class(weights, **kwargs).step()
    steps = [(new.detach() - old).square().mean().sqrt() for new, old in zip(weights, before, strict=True)]
    expected = 0.01 * small.square().mean().sqrt()
    torch.testing.assert_close(steps[0], expected, rtol=0.05, atol=0)
    torch.testing.assert_close(steps[1], 100 * steps[0], rtol=1e-9, atol=0)
    torch.testing.assert_close(steps[2], torch.tensor(0.01 * 1e-3).double(), rtol=0.05, atol=0)  # weights of zero move


@pytest.mark.parametrize(
    "model",
    [
        lambda: VaswaniForConditionalGeneration(VaswaniConfig(vocab_size=20, hidden_size=8, num_attention_heads=2)),
        lambda: BahdanauForConditionalGeneration(BahdanauConfig(vocab_size=20, hidden_size=8, encoder_hidden_size=4)),
        lambda: CharRNNForCausalLM(CharRNNConfig(vocab_size=20, hidden_size=8, cell="gru_reset_before")),
    ],
)
def test_biases_and_norms_do_not_decay(tmp_path: Path, model: Any) -> None:
    model = model()
    trainer = Trainer(model, TrainingArguments(str(tmp_path), use_cpu=True, report_to="none"))
    decaying = set(trainer.get_decay_parameter_names(model))
    vectors = {name for name, tensor in model.named_parameters() if tensor.dim() < 2 and not name.endswith("score.v")}
    assert vectors & decaying == set()
    assert {name for name, tensor in model.named_parameters() if tensor.dim() >= 2} <= decaying


# Configuration


@strict
@dataclass
class RecipeConfig(TrainingConfig):
    name: str = "a recipe"
    model: dict[str, Any] = field(default_factory=dict)


def arguments(folder: Path, values: dict[str, Any], *words: str) -> TrainingArguments:
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump({"training": {"report_to": "none"}} | values))
    return load_config(RecipeConfig, path, list(words)).arguments(folder)


def test_a_recipe_inherits_the_sections_on_training(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("name: mine\nschedule: {name: noam, warmup_steps: 100}\nmax_tokens: 4096\n")
    config = load_config(RecipeConfig, path, ["--averaging.ema", "0.99", "--training.report_to", "none"])
    assert (config.name, config.optimizer, config.schedule.name) == ("mine", "adamw", "noam")
    options = config.trainer_options(config.arguments(tmp_path))
    assert options["averaging"].ema == 0.99
    assert options["max_tokens"] == 4096
    assert options["optimizer_cls_and_kwargs"][1]["lr"] == 1.0  # noam's own factor


def test_fields_that_are_checked_without_the_trainer(tmp_path: Path) -> None:
    """What ``checks_alone`` accepts, ``TrainingArguments`` accept; what it does not know, it leaves to them."""
    known = {field.name: field.default for field in fields(TrainingArguments)}
    assert {name: known[name] for name in COMMON_FIELDS} == COMMON_FIELDS
    assert {type(known[name]) for name in COMMON_FIELDS} == {type(value) for value in COMMON_FIELDS.values()}
    values = {**COMMON_VALUES, "eval_steps": (2, 3), "save_steps": (4, 6), "warmup_steps": (0, 2)}
    del values["lr_scheduler_type"]
    decided = []
    for chosen in product(*values.values()):
        training = dict(zip(values, chosen, strict=True))
        decided.append(checks_alone(training, {}))
        if decided[-1]:
            arguments(tmp_path, {"training": {**training, "report_to": "none"}})
    assert 0 < sum(decided) < len(decided)
    for name in COMMON_VALUES["lr_scheduler_type"]:
        assert checks_alone({"lr_scheduler_type": name}, {})
        arguments(tmp_path, {"training": {"lr_scheduler_type": name, "report_to": "none"}})
    more: list[dict[str, Any]] = [{"optim": "sgd"}, {"bf16": True}, {"eval_steps": 0.5}, {"lr_scheduler_type": "x"}]
    assert not any(checks_alone(training, {}) for training in more)
    with pytest.raises(UserError, match=r"training\.eval_steps is 0; write a number above 0"):
        checks_alone({"eval_steps": 0}, {})


def test_emulated_bfloat16_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = {"bf16": True, "report_to": "none"}
    for has_bfloat16 in (False, True):
        monkeypatch.setattr("hfattn.training.arguments.computes_bfloat16", lambda has=has_bfloat16: has)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            arguments(tmp_path, {"training": training})
        assert any("Write bf16: auto." in str(each.message) for each in caught) is not has_bfloat16
    assert arguments(tmp_path, {"training": {**training, "bf16": "auto"}}).bf16


def test_checkpoints_that_will_be_averaged_are_kept(tmp_path: Path) -> None:
    assert arguments(tmp_path, {}).save_total_limit == 2
    assert arguments(tmp_path, {"averaging": {"last": 5}}).save_total_limit == 6


@pytest.mark.parametrize(
    ("metric", "greater"),
    [("bleu", True), ("accuracy", True), ("loss", False), ("nats_per_token", False), ("perplexity", False)],
)
def test_which_scores_are_to_become_greater(tmp_path: Path, metric: str, greater: bool) -> None:
    training = {"report_to": "none", "metric_for_best_model": metric}
    assert arguments(tmp_path, {"training": training}).greater_is_better is greater
    assert arguments(tmp_path, {"training": training | {"greater_is_better": True}}).greater_is_better is True


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--schedule.name noaam", "schedule: name is 'noaam'; write one of noam, inverse_square_root, tfixup"),
        ("--schedule.warmup_steps 10", "schedule: warmup_steps is for noam, inverse_square_root, linear_warmup"),
        ("--schedule.name noam --schedule.decay_steps 10", "schedule: decay_steps is for tfixup, and name is noam"),
        ("--schedule.name noam --schedule.warmup_steps 0", "schedule: warmup_steps is 0; write a whole number of at"),
        ("--schedule.name linear_warmup", "schedule: linear_warmup needs warmup_steps; write tau in updates"),
        (
            "--schedule.name untuned_linear --training.warmup_steps 10",
            "schedule.name untuned_linear has its own warm-up or none; remove training.warmup_steps.",
        ),
        (
            "--schedule.name tfixup --training.lr_scheduler_type cosine",
            "schedule.name tfixup is a complete schedule; remove training.lr_scheduler_type.",
        ),
        (
            "--schedule.name untuned_linear --training.lr_scheduler_type reduce_lr_on_plateau",
            "schedule.name untuned_linear multiplies a rate that must be known in advance; write another",
        ),
        (
            "--schedule.name untuned_linear --optimizer rmsprop",
            "derives its warm-up from Adam's beta2; write optimizer: adamw",
        ),
        ("--schedule.name untuned_exponential --optimizer adafactor", "derives its warm-up from Adam's beta2"),
        ("--optimizer rmsprop --training.weight_decay 0.1", "rmsprop has no decoupled weight decay; write"),
        ("--optimizer sgdd", "optimizer is 'sgdd'; write one of adamw, adafactor, nadam, radam, rmsprop."),
        ("--averaging.ema 1.0", "averaging: ema is 1.0; write a number above 0, below 1, or null."),
        ("--averaging.last 1", "averaging: last is 1; write a whole number of at least 2, or null."),
        ("--averaging.last 3 --averaging.ema 0.9", "averaging: ema and last are two ways to average; write one"),
        ("--averaging.last 3 --training.save_total_limit 3", "write training.save_total_limit: 4, or remove it"),
        ("--averaging.last 3 --training.save_strategy no", "write training.save_strategy: steps or epoch."),
        ("--max_tokens 0", "max_tokens is 0; write a whole number of at least 1, or null."),
        ("--max_tokens 1e3", "'max_tokens' expected"),
        (
            "--max_tokens 100 --training.per_device_train_batch_size 8",
            "max_tokens and training.per_device_train_batch_size both set the size of a batch; remove one.",
        ),
        ("--early_stopping_patience 0", "early_stopping_patience is 0; write a whole number of at least 1, or null."),
        (
            "--early_stopping_patience 2 --training.load_best_model_at_end false",
            "early_stopping_patience needs training.load_best_model_at_end: true; write that, or null.",
        ),
        ("--averaging.last 3 --training.save_total_limit abc", "save_total_limit is 'abc'; write a whole number of at"),
        ("--training.save_total_limit 0", "save_total_limit is 0; write a whole number of at least 1, or null."),
        ("--training.dataloader_persistent_workers true", "each epoch starts its own workers"),
        ("--training.ignore_data_skip true", "a run must resume exactly."),
        (
            "--training.use_cpu true",
            "training.use_cpu cannot be set by a recipe: configure the launcher instead, as recipes/accelerate/",
        ),
        ("--training.push_to_hub true", "publish a finished run with --push_to, which verifies it first."),
        ("--training.hub_token hf_x", "training.hub_token cannot be set by a recipe: publish a finished run with"),
        ("--training.resume_from_checkpoint x", "continue a run with --resume."),
        ("--training.report_to tensorbord", "did you mean 'tensorboard'?"),
        ("--training.optim sgd --optimizer radam", "optimizer radam and training.optim sgd are two optimizers; remove"),
        ("--training.optim stable_adamw", "training.optim stable_adamw cannot be used here: "),
        ("--training.optim sgdd", "training: sgdd is not a valid OptimizerNames, please select one of"),
        ("--training.train_sampling_strategy group_by_length", "max_tokens groups examples of similar length"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(tmp_path: Path, words: str, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        arguments(tmp_path, {}, *words.split())
    assert sentence in str(error.value)


def test_float16_needs_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hfattn.training.arguments.trains_on_cuda", lambda: False)
    with pytest.raises(UserError, match="mixed precision with float16 needs a GPU; write bf16: auto"):
        arguments(tmp_path, {}, "--training.fp16", "true")
