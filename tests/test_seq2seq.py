"""The trainer of encoder-decoders: scheduled sampling and the sampled softmax."""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from generation_tests import V, texts
from peft import LoraConfig, get_peft_model
from test_bahdanau import build, make, targets
from test_training import reversal_model, reversal_trainer
from transformers import set_seed

from hfattn import VaswaniConfig, VaswaniForConditionalGeneration
from hfattn.errors import UserError
from hfattn.training import ReliableSeq2SeqTrainer, Seq2SeqArguments


def transformer() -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": V, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16, "dropout": 0.0}
    config = VaswaniConfig(**sizes, encoder_layers=1, decoder_layers=1, tie_word_embeddings=False)
    return VaswaniForConditionalGeneration(config).double().eval()


MODELS = {
    "bahdanau": lambda: make("bahdanau", initializer_range=1.0),
    "luong_fed": lambda: make("luong_fed", initializer_range=1.0),
    "transformer": transformer,
}


def trainer_of(model: Any, folder: Path, **arguments: Any) -> ReliableSeq2SeqTrainer:
    options = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, **arguments}
    return ReliableSeq2SeqTrainer(model, Seq2SeqArguments(str(folder), **options))


def batch(model: Any, labels: torch.Tensor, rows: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A batch as ``DataCollatorForSeq2Seq`` makes it."""
    return {**rows, "labels": labels, "decoder_input_ids": model.prepare_decoder_input_ids_from_labels(labels)}


@pytest.mark.parametrize("name", MODELS)
def test_scheduled_sampling_mixes_references_and_predictions(tmp_path: Path, name: str) -> None:
    """With probability one, a model that is certain reads its own greedy text; an evaluation reads the reference."""
    model, source, labels = MODELS[name](), texts([5, 3, 7]), targets()
    with torch.no_grad():
        model.lm_head.weight.mul_(1e4)
    greedy = model.generate(**source, min_new_tokens=5, max_new_tokens=5, do_sample=False, pad_token_id=V)
    inputs = batch(model, labels, source)
    start = inputs["decoder_input_ids"]
    read: list[torch.Tensor] = []
    model.model.register_forward_hook(
        lambda module, args, kwargs, output: read.append(kwargs["decoder_input_ids"]), with_kwargs=True
    )
    trainer = trainer_of(model, tmp_path, scheduled_sampling=1.0)
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable()
        model.train()
        trainer.compute_loss(model, dict(inputs)).backward()
        assert torch.equal(read[-1], greedy)
        assert model.training
    assert model.get_encoder().embed_tokens.weight.grad.any()
    trainer.args.scheduled_sampling = 0.5
    set_seed(0)
    trainer.compute_loss(model, dict(inputs))
    assert 0.2 < (read[-1] != start).float()[:, 1:].mean() < 0.8
    model.eval()
    trainer.compute_loss(model, dict(inputs))
    assert torch.equal(read[-1], start)


def test_scheduled_sampling_draws_from_the_models_distribution(tmp_path: Path) -> None:
    model = make()
    source = {name: tensor.expand(4000, -1) for name, tensor in texts([5]).items()}
    inputs = batch(model, targets(1, 2).expand(4000, -1), source)
    drawn = trainer_of(model, tmp_path, scheduled_sampling=1.0)._mix_predictions(inputs, 1.0)[:, 1]
    with torch.no_grad():
        first = model.eval()(**texts([5]), decoder_input_ids=inputs["decoder_input_ids"][:1, :1])
    counts = torch.bincount(drawn, minlength=V) / 4000
    assert (counts - first.logits[0, 0].softmax(-1)).abs().max() < 0.03


@pytest.mark.parametrize(
    ("fields", "epsilon"),
    [
        ({"name": "linear", "c": 0.01}, lambda i: max(0, 1 - 0.01 * i)),
        ({"name": "linear", "k": 0.9, "c": 0.002, "epsilon": 0.25}, lambda i: max(0.25, 0.9 - 0.002 * i)),
        ({"name": "exponential", "k": 0.99}, lambda i: 0.99**i),
        ({"name": "inverse_sigmoid", "k": 30}, lambda i: 30 / (30 + math.exp(i / 30))),
        (0.25, lambda i: 0.75),
        (None, lambda i: 1),
    ],
)
def test_the_schedules_are_the_papers(tmp_path: Path, fields: Any, epsilon: Any) -> None:
    arguments = Seq2SeqArguments(str(tmp_path), scheduled_sampling=fields)
    replaced = [arguments.replaced_share(i) for i in range(1000)]
    assert replaced == pytest.approx([1 - epsilon(i) for i in range(1000)], abs=1e-12)
    assert 0 <= arguments.replaced_share(10**7) <= 1


def test_a_schedule_follows_the_updates_and_resumes_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[float] = []
    mix = ReliableSeq2SeqTrainer._mix_predictions

    def watched(self: Any, inputs: Any, probability: float) -> torch.Tensor:
        used.append(probability)
        return mix(self, inputs, probability)

    monkeypatch.setattr(ReliableSeq2SeqTrainer, "_mix_predictions", watched)
    schedule = {"name": "linear", "c": 0.1, "epsilon": 0.45}
    arguments: dict[str, Any] = {
        "scheduled_sampling": schedule,
        "max_steps": 8,
        "gradient_accumulation_steps": 2,
        "logging_steps": 1,
    }
    arguments |= {"save_strategy": "steps", "save_steps": 4}
    whole = reversal_trainer(tmp_path / "whole", **arguments)
    whole.train()
    expected = [min(0.1 * i, 0.55) for i in range(8)]
    assert used == pytest.approx([p for p in expected[1:] for _ in range(2)])  # nothing is drawn with probability 0
    logged = [log["scheduled_sampling"] for log in whole.state.log_history if "learning_rate" in log]
    assert logged == pytest.approx(expected)

    used.clear()
    shutil.copytree(tmp_path / "whole/checkpoint-4", tmp_path / "killed/checkpoint-4")
    resumed = reversal_trainer(tmp_path / "killed", reversal_model(seed=1), **arguments)
    resumed.train(str(tmp_path / "killed/checkpoint-4"))
    assert used == pytest.approx([p for p in expected[4:] for _ in range(2)])
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], tensor), name


@pytest.mark.parametrize("name", MODELS)
def test_sampled_softmax(tmp_path: Path, name: str) -> None:
    """Over the whole vocabulary it is the softmax; over a part, a softmax over that part, which holds all targets."""
    model, source, labels = MODELS[name](), texts([5, 3, 7]), targets()
    labels[0, 4:] = -100
    inputs = batch(model, labels, source)
    expected = model(**inputs)
    trainer = trainer_of(model.train(), tmp_path, sampled_softmax=V)
    whole = trainer.compute_loss(model, dict(inputs))
    torch.testing.assert_close(whole, expected.loss, check_dtype=False, rtol=1e-6, atol=0)

    trainer.args.sampled_softmax = number = len(labels.unique()) + 1
    set_seed(3)
    loss, outputs = trainer.compute_loss(model, dict(inputs), return_outputs=True)
    assert outputs.logits.shape == (3, 6, number)
    set_seed(3)
    noise = torch.rand(V)
    wanted = labels[labels != -100].unique().tolist()
    others = [i for i in noise.argsort(descending=True).tolist() if i not in wanted]
    tokens = wanted + others[: number - len(wanted)]
    terms = [
        -expected.logits[b, t, tokens].log_softmax(-1)[tokens.index(y)]
        for b, row in enumerate(labels.tolist())
        for t, y in enumerate(row)
        if y != -100
    ]
    torch.testing.assert_close(loss, sum(terms) / len(terms), check_dtype=False, rtol=1e-6, atol=0)
    loss.backward()
    assert model.lm_head.weight.grad.any(1).nonzero().flatten().tolist() == sorted(tokens)
    set_seed(3)
    summed = trainer.compute_loss(model, dict(inputs), num_items_in_batch=torch.tensor(10))
    torch.testing.assert_close(summed, loss * len(terms) / 10)
    evaluated = trainer.compute_loss(model.eval(), dict(inputs))
    torch.testing.assert_close(evaluated, expected.loss, check_dtype=False, rtol=1e-6, atol=0)
    assert torch.equal(model(**inputs).logits, expected.logits)


def test_sampled_softmax_has_at_least_as_many_tokens_as_targets(tmp_path: Path) -> None:
    model = make().train()
    labels = torch.arange(3, 9)[None]
    trainer = trainer_of(model, tmp_path, sampled_softmax=2)
    _, outputs = trainer.compute_loss(model, batch(model, labels, texts([5])), return_outputs=True)
    assert outputs.logits.shape[-1] == 6


def test_sampled_softmax_trains_an_adapter_of_the_output_layer(tmp_path: Path) -> None:
    model = get_peft_model(build(), LoraConfig(r=2, target_modules=["lm_head"])).train()
    trainer = trainer_of(model, tmp_path, sampled_softmax=5)
    trainer.compute_loss(model, batch(model, targets(2), texts([5, 3]))).backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.requires_grad]
    assert any(gradient.any() for gradient in gradients)


def test_a_run_with_both_trains_and_evaluates(tmp_path: Path) -> None:
    arguments = {"scheduled_sampling": 0.5, "sampled_softmax": 6, "learning_rate": 0.01, "max_steps": 60}
    trainer = reversal_trainer(tmp_path, reversal_model(dropout=0.0), **arguments, label_smoothing_factor=0.1)
    before = trainer.evaluate()["eval_loss"]
    trainer = reversal_trainer(tmp_path, reversal_model(dropout=0.0), **arguments, label_smoothing_factor=0.1)
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < 0.9 * before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scheduled_sampling": 1.5}, "scheduled_sampling is 1.5; write a probability from 0 to 1, or a schedule"),
        ({"scheduled_sampling": "linear"}, "scheduled_sampling is 'linear'; write a probability"),
        ({"scheduled_sampling": {"c": 0.1}}, "name is missing; write linear, exponential or inverse_sigmoid"),
        ({"scheduled_sampling": {"name": "cosine"}}, "name is 'cosine'; write one of linear, exponential, inverse_si"),
        ({"scheduled_sampling": {"name": "linear"}}, "linear needs c, the decrease in each update; write a number"),
        ({"scheduled_sampling": {"name": "linear", "c": 0.1, "k": 2}}, "k is 2, the first probability of linear"),
        ({"scheduled_sampling": {"name": "linear", "c": 0.1, "epsilon": 2}}, "epsilon is 2; write a number from 0"),
        ({"scheduled_sampling": {"name": "exponential", "k": 1}}, "k is 1; exponential needs a number below 1"),
        ({"scheduled_sampling": {"name": "exponential", "k": 0.9, "c": 1}}, "c is for linear, and name is exponential"),
        ({"scheduled_sampling": {"name": "inverse_sigmoid"}}, "k is None; inverse_sigmoid needs a number of at least"),
        ({"scheduled_sampling": {"nam": "linear"}}, "did you mean 'training.scheduled_sampling.name'"),
        ({"sampled_softmax": 1}, "sampled_softmax is 1; write a number of tokens of at least 2, or null."),
        ({"sampled_softmax": 99}, f"sampled_softmax is 99, and the vocabulary has {V} tokens; write fewer, or null."),
    ],
)
def test_a_wrong_setting_is_refused(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, UserError), match=message):
        trainer_of(make(), tmp_path, **arguments)
