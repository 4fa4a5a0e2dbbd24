"""The loss in chunks: its values and gradients are those of the logits, and when it is used."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from generation_tests import V, texts
from peft import LoraConfig, get_peft_model
from test_bahdanau import make, targets
from test_seq2seq import MODELS, batch, trainer_of
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import (
    BertConfig,
    BertForMaskedLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MarianConfig,
    MarianMTModel,
    T5Config,
    T5ForConditionalGeneration,
    TrainingArguments,
)

from hfattn import (
    BiLMConfig,
    BiLMForCausalLM,
    CharRNNConfig,
    CharRNNForCausalLM,
    VaswaniConfig,
    VaswaniForCausalLM,
    VaswaniForMaskedLM,
)
from hfattn.metrics import token_loss
from hfattn.training import ReliableTrainer, StatefulTrainer, chunked_loss
from hfattn.training.chunked_loss import summed_nats
from hfattn.training.masked import MaskedTrainer

N, WIDTH = 150, 5
IDS = torch.arange(27).view(3, 9) * 7 % V


def states_and_head(dtype: torch.dtype = torch.float64, bias: bool = True) -> tuple[torch.Tensor, nn.Linear]:
    torch.manual_seed(0)
    states = torch.randn(3, N // 3, WIDTH, dtype=dtype, requires_grad=True)
    return states, nn.Linear(WIDTH, V, bias, dtype=dtype)


def labels_of(dropped: float) -> torch.Tensor:
    labels = torch.randint(V, (3, N // 3))
    return labels.masked_fill(torch.rand(labels.shape) < dropped, -100)


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked_loss, "CHUNK_ELEMENTS", 1)  # so that a chunk has as few rows as possible
    monkeypatch.setattr(chunked_loss, "FEWEST_ROWS", 8)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("dropped", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("bias", [True, False])
def test_the_loss_and_its_gradients_are_those_of_the_logits(smoothing: float, dropped: float, bias: bool) -> None:
    states, head = states_and_head(bias=bias)
    labels = labels_of(dropped)
    parameters = [states, *head.parameters()]
    plain = cross_entropy(
        head(states).flatten(0, 1), labels.flatten(), reduction="sum", label_smoothing=smoothing
    )  # fmt: skip
    nats = summed_nats(states, head, labels, smoothing)
    torch.testing.assert_close(nats, plain)
    expected, found = (torch.autograd.grad(each / 7, parameters) for each in (plain, nats))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_each_position_has_an_importance(smoothing: float) -> None:
    states, head = states_and_head()
    labels, importance = labels_of(0.4), torch.rand(3, N // 3)
    parameters = [states, *head.parameters()]
    each = cross_entropy(head(states).transpose(1, 2), labels, reduction="none", label_smoothing=smoothing)
    plain, nats = (each * importance).sum(), summed_nats(states, head, labels, smoothing, importance)
    torch.testing.assert_close(nats, plain)
    expected, found = (torch.autograd.grad(loss / 7, parameters) for loss in (plain, nats))
    torch.testing.assert_close(found, expected)


def test_the_gradient_is_that_of_differences() -> None:
    states, head = states_and_head()
    labels = labels_of(0.3)

    def nats(states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        copy = nn.Linear(WIDTH, V)
        del copy.weight, copy.bias
        copy.weight, copy.bias = weight, bias  # type: ignore[assignment]
        return summed_nats(states, copy, labels, 0.1)

    assert torch.autograd.gradcheck(nats, (states, head.weight, head.bias), fast_mode=True)


def test_large_logits_are_finite() -> None:
    states, head = states_and_head(torch.float32)
    labels = labels_of(0.0)
    plain, nats = cross_entropy((head(states) * 1e4).flatten(0, 1), labels.flatten(), reduction="sum"), None
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.mul_(1e4)
    nats = summed_nats(states, head, labels)
    nats.backward()
    torch.testing.assert_close(nats, plain, rtol=1e-3, atol=0)
    assert head.weight.grad is not None
    assert head.weight.grad.isfinite().all()


def test_autocast_computes_the_products_in_half_precision_and_the_softmax_in_float32() -> None:
    states, head = states_and_head(torch.float32)
    labels = labels_of(0.3)
    parameters = [states, *head.parameters()]
    exact = summed_nats(states, head, labels)
    with torch.autocast("cpu", torch.bfloat16):
        nats = summed_nats(states, head, labels)
        plain = cross_entropy(head(states).float().flatten(0, 1), labels.flatten(), reduction="sum")
    assert nats.dtype == torch.float32
    assert nats != exact
    torch.testing.assert_close(nats, plain)
    expected, found = (torch.autograd.grad(each / 7, parameters) for each in (plain, nats))
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


def test_half_precision_does_not_round_the_gradient_of_improbable_labels_to_one_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = 512
    monkeypatch.setattr(chunked_loss, "CHUNK_ELEMENTS", size * size)  # one chunk, whose sum is exact
    head = nn.Linear(WIDTH, size)
    for parameter in head.parameters():
        nn.init.zeros_(parameter)
    with torch.autocast("cpu", torch.bfloat16):
        nats = summed_nats(torch.ones(size, WIDTH), head, torch.arange(size))
    nats.backward()
    assert head.weight.grad is not None
    assert head.weight.grad.count_nonzero() == 0  # of a uniform distribution and each label once


# In training


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    model.zero_grad()
    return found


def check(trainer: ReliableTrainer, inputs: dict[str, Any]) -> None:
    """The loss and the gradients are those of the logits, which the outputs of a training step do not have."""
    model = trainer.model.train()
    for number in (40, None):
        found = []
        for is_chunked in (True, False):
            trainer.chunked_loss = is_chunked
            assert (trainer.why_not_chunked() is None) == is_chunked
            loss, outputs = trainer.compute_loss(model, dict(inputs), True, number)
            assert (outputs["logits"].ndim == 0) == is_chunked
            loss.backward()
            found.append((loss.float(), gradients(model)))
        torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)  # the other loss is in float32
    trainer.chunked_loss = True
    assert trainer.compute_loss(model.eval(), dict(inputs), True)[1].logits.shape[-1] == model.config.vocab_size


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", MODELS)
def test_translators(tmp_path: Path, name: str, smoothing: float) -> None:
    model = MODELS[name]()
    labels = targets()
    labels[0, 2:] = -100
    inputs = batch(model, labels, texts([5, 3, 7]))
    trainer = trainer_of(model, tmp_path, label_smoothing_factor=smoothing)
    check(trainer, inputs)
    if smoothing == 0:
        check(trainer, {name: value for name, value in inputs.items() if name != "decoder_input_ids"})
    trainer.compute_loss_func = partial(token_loss, label_smoothing=smoothing)
    check(trainer, inputs)


def vaswani(**fields: Any) -> VaswaniConfig:
    sizes = {"vocab_size": V, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16, "dropout": 0.0}
    layers = {"encoder_layers": 1, "decoder_layers": 1}
    return VaswaniConfig(**{**sizes, **layers, "decoder_start_token_id": None, "is_encoder_decoder": False, **fields})


def test_a_language_model_reads_labels_that_start_one_token_earlier(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = VaswaniForCausalLM(vaswani(is_decoder=True)).double()
    loss = partial(token_loss, label_smoothing=0.1)
    check(
        ReliableTrainer(model, arguments(tmp_path), compute_loss_func=loss), {"input_ids": IDS[:, :-1], "labels": IDS}
    )


@pytest.mark.parametrize("tied", [False, True])
def test_recurrent_language_models(tmp_path: Path, tied: bool) -> None:
    sizes: dict[str, Any] = {"vocab_size": V, "hidden_size": 16, "tie_word_embeddings": tied}
    inputs = {"input_ids": IDS[:, :-1], "labels": IDS.clone()}
    inputs["labels"][1, 5:] = -100
    for model in (CharRNNForCausalLM(CharRNNConfig(**sizes)), BiLMForCausalLM(BiLMConfig(**sizes))):
        check(ReliableTrainer(model.double(), arguments(tmp_path), compute_loss_func=token_loss), inputs)


def test_the_state_is_carried_to_the_next_window(tmp_path: Path) -> None:
    model, found = CharRNNForCausalLM(CharRNNConfig(vocab_size=V)).double().train(), []
    for is_chunked in (True, False):
        trainer = StatefulTrainer(model, arguments(tmp_path), compute_loss_func=token_loss)
        trainer.chunked_loss = is_chunked
        for start in (0, 4):
            loss = trainer.compute_loss(
                model, {"input_ids": IDS[:, start : start + 4], "labels": IDS[:, start : start + 5]}
            )
            loss.backward()
            found.append((loss.float(), gradients(model)))
    assert found[0][0] != found[1][0]
    torch.testing.assert_close(found[:2], found[2:], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "adapters", "t5"])
def test_pretrained_models(tmp_path: Path, kind: str) -> None:
    model = pretrained("llama" if kind == "adapters" else kind).double()
    inputs = {"input_ids": IDS[:, :-1], "labels": IDS}
    if kind == "t5":
        inputs |= {"labels": IDS[:, 1:], "decoder_input_ids": IDS[:, :-1]}
    if kind == "adapters":
        model = get_peft_model(model, LoraConfig(target_modules=["q_proj"])).double()
    trainer = ReliableTrainer(model, arguments(tmp_path), compute_loss_func=partial(token_loss, label_smoothing=0.1))
    check(trainer, inputs)
    if kind == "adapters":
        trainer.compute_loss(model.train(), dict(inputs)).backward()
        assert set(gradients(model)) == {name for name, _ in model.named_parameters() if "lora" in name}


@pytest.mark.parametrize("kind", ["vaswani", "bert"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_masked_language_model_computes_only_the_masked_positions(
    tmp_path: Path, smoothing: float, kind: str
) -> None:
    torch.manual_seed(0)
    own = VaswaniForMaskedLM(vaswani(tie_word_embeddings=True))
    model = (own if kind == "vaswani" else pretrained(kind)).double()
    labels = IDS.masked_fill(torch.rand(IDS.shape) < 0.8, -100)
    trainer = MaskedTrainer(model.train(), arguments(tmp_path, label_smoothing_factor=smoothing))
    assert trainer.why_not_chunked() is None
    found = []
    for trainer.chunked_loss in (True, False):
        loss = trainer.compute_loss(
            model, {"input_ids": IDS, "labels": labels}, num_items_in_batch=torch.tensor([40, 3])
        )  # fmt: skip
        loss.backward()
        found.append((loss.float(), gradients(model)))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)  # the other loss is in float32


def test_a_penalty_is_added(tmp_path: Path) -> None:
    losses = []
    for penalty in (0.5, 0.0):
        options = {"span": 10, "ramp": 3, "penalty": penalty}
        torch.manual_seed(0)
        model = VaswaniForCausalLM(
            vaswani(is_decoder=True, decoder_pattern="adaptive_span", decoder_pattern_options=options)
        )
        trainer = ReliableTrainer(model.train(), arguments(tmp_path), compute_loss_func=token_loss)
        assert trainer.why_not_chunked() is None
        losses.append(trainer.compute_loss(model, {"input_ids": IDS[:, :-1], "labels": IDS}).item())
    attention: Any = model.model.decoder.layers[0].self_attn
    added = attention.lengths.mean().item() * 0.5
    assert losses[0] - losses[1] == pytest.approx(added, rel=1e-4)


@pytest.mark.parametrize(
    ("make_trainer", "reason"),
    [
        (lambda path: trainer_of(make(), path, sampled_softmax=5), "the softmax is sampled"),
        (lambda path: trainer_of(make(), path, torch_compile=True), "the model is compiled"),
        (lambda path: trainer_of(compiled(), path), "the model is compiled"),
        (lambda path: trainer_of(hooked(), path), "no output layer over a vocabulary, or one that was replaced"),
        (lambda path: trainer_of(patched(), path), "no output layer over a vocabulary, or one that was replaced"),
        (lambda path: trainer_of(adapted(), path), "no output layer over a vocabulary, or one that was replaced"),
        (lambda path: with_token_loss("gemma2", path), "the logits are not what the output layer returns"),
        (lambda path: with_token_loss("marian", path), "the logits are not what the output layer returns"),
        (lambda path: trainer_of(pretrained("t5"), path), "the loss is another one"),
        (lambda path: ReliableTrainer(causal(), arguments(path)), "the loss is another one"),
        (lambda path: ReliableTrainer(causal(), arguments(path), compute_loss_func=print), "the loss is another one"),
    ],
)  # fmt: skip
def test_why_not(tmp_path: Path, make_trainer: Any, reason: str) -> None:
    assert reason in make_trainer(tmp_path).why_not_chunked()


def arguments(path: Path, **fields: Any) -> TrainingArguments:
    return TrainingArguments(str(path), report_to="none", use_cpu=True, **fields)


def with_token_loss(kind: str, path: Path) -> ReliableTrainer:
    return ReliableTrainer(pretrained(kind), arguments(path), compute_loss_func=token_loss)


def causal() -> VaswaniForCausalLM:
    return VaswaniForCausalLM(vaswani(is_decoder=True))


def pretrained(kind: str) -> Any:
    """A small model of transformers without dropout."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": V, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2}
    decoder = {"num_key_value_heads": 1, "head_dim": 4, "tie_word_embeddings": True}
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    parts = {
        f"{part}_{name}": 2 for part in ("encoder", "decoder") for name in ("layers", "attention_heads", "ffn_dim")
    }
    make_model: dict[str, Callable[[], Any]] = {
        "gpt2": lambda: GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=V, **no_dropout)),
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**sizes, **decoder)),
        "gemma2": lambda: Gemma2ForCausalLM(Gemma2Config(**sizes, **decoder)),
        "bert": lambda: BertForMaskedLM(BertConfig(**sizes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)),
        "t5": lambda: T5ForConditionalGeneration(
            T5Config(vocab_size=V, d_model=8, d_kv=4, d_ff=16, num_layers=1, num_heads=2, dropout_rate=0.0)
        ),
        "marian": lambda: MarianMTModel(MarianConfig(vocab_size=V, d_model=8, pad_token_id=0, **parts)),
    }
    return make_model[kind]()


def hooked() -> Any:
    model = make()
    model.lm_head.register_forward_hook(lambda *_: None)
    return model


def patched() -> Any:
    model = make()
    forward = model.lm_head.forward
    model.lm_head.forward = lambda states: 2 * forward(states)
    return model


def compiled() -> Any:
    model = make()
    model.compile()
    return model


def adapted() -> Any:
    return get_peft_model(make(), LoraConfig(target_modules=["lm_head"]))
