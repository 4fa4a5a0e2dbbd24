"""Spans of attention that heads learn: the definition in a loop, their gradients, their cache, and their penalty."""

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from model_checks import check_cached_generation
from test_attention_windows import SMALL
from transformers import TrainingArguments

from hfattn import (
    VaswaniConfig,
    VaswaniForCausalLM,
    VaswaniForConditionalGeneration,
    VaswaniForMaskedLM,
    VaswaniForSequenceClassification,
)
from hfattn.attention import Attention
from hfattn.metrics import token_loss
from hfattn.models.attention_spans import Spans
from hfattn.training import ReliableTrainer

F64 = torch.float64


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Spans, "block", 8)


def make(kind: Any = VaswaniForCausalLM, penalty: float = 0.1, **fields: Any) -> Any:
    torch.manual_seed(0)
    options = {"span": 10, "ramp": 3, "penalty": penalty}
    patterns: dict[str, Any] = {f"{stack}_pattern": "adaptive_span" for stack in ("encoder", "decoder")}
    patterns |= {f"{stack}_pattern_options": options for stack in ("encoder", "decoder")}
    config = VaswaniConfig(**{**SMALL, **patterns, "eos_token_id": None, **fields})
    model = kind(config).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("spans"):
                assert not parameter.any()
                parameter.copy_(torch.tensor([0.12, 0.47]))
    return model


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("num_queries", "num_keys", "before"), [(1, 17, 0), (33, 33, 4), (20, 37, 0)])
def test_the_weights_are_the_definition(causal: bool, num_queries: int, num_keys: int, before: int) -> None:
    """a_j = m_z(i - j) exp(s_j) / Σ_q m_z(i - q) exp(s_q) in a loop, with the gradient of z."""
    torch.manual_seed(0)
    attention = Attention(4, 4)
    spans = torch.tensor([0.2, 4.3, 9.6], dtype=F64, requires_grad=True)
    ramp = 3
    query = torch.randn(2, 3, num_queries, 4, dtype=F64)
    key, value = torch.randn(2, 2, 3, num_keys, 4, dtype=F64).unbind()
    real = None if not before else (torch.arange(num_keys) >= before)[None, None, None]
    layout = Spans(spans, ramp)
    assert layout.before == 10 + ramp - 1
    context, weights = layout(attention, query, (key,), value, real, causal=causal)
    fused, _ = layout(attention, query, (key,), value, real, causal=causal, need_weights=False)
    queries = range(before, num_queries)
    rows: list[torch.Tensor] = []
    for head, t in itertools.product(range(3), queries):
        i = t + num_keys - num_queries
        row = []
        for j in range(num_keys):
            share = ((ramp + spans[head] - abs(i - j)) / ramp).clamp(0, 1)
            hidden = j < before or (causal and j > i)
            row.append(share * 0 if hidden else share * (query[0, head, t] @ key[0, head, j] / 2).exp())
        rows.append(torch.stack(row) / torch.stack(row).sum())
    literal = torch.stack(rows).view(3, len(queries), num_keys)
    assert weights is not None
    found = weights[0, :, before:]
    torch.testing.assert_close(found, literal, atol=1e-12, rtol=0)
    assert torch.equal(found == 0, literal == 0)  # exact zeros outside
    torch.testing.assert_close(context[0, :, before:], literal @ value[0], atol=1e-12, rtol=0)
    torch.testing.assert_close(fused, context, atol=1e-12, rtol=0)
    ours = torch.autograd.grad(fused[0, :, before:].square().sum(), spans)
    theirs = torch.autograd.grad((literal @ value[0]).square().sum(), spans)
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)


def test_the_gradient_of_a_span_at_its_bounds() -> None:
    """It passes where a step against it leads back between them."""
    model = make()
    attention = model.model.decoder.layers[0].self_attn
    for value, sign in itertools.product((-0.2, 0.0, 0.5, 1.0, 1.3), (-1.0, 1.0)):
        torch.nn.init.constant_(attention.spans, value)
        attention.spans.grad = None
        lengths = attention.lengths
        assert torch.equal(lengths, torch.full((2,), 10 * min(max(value, 0.0), 1.0), dtype=F64))
        (sign * lengths.sum()).backward()
        blocked = (value <= 0 and sign > 0) or (value >= 1 and sign < 0)
        assert attention.spans.grad.tolist() == [0.0 if blocked else sign * 10] * 2


def test_generation_with_the_cache_which_holds_the_longest_span() -> None:
    """Greedy search, beams and sampling, padded on the left, with positions that are a bias too."""
    model = make(decoder_pattern=["adaptive_span", "full"], positions="alibi")
    ids = torch.randint(3, 23, (2, 13))
    mask = torch.ones_like(ids)
    mask[1, :5] = 0
    check_cached_generation(model, {"input_ids": ids, "attention_mask": mask}, max_new_tokens=20)
    cache = model(ids, use_cache=True).past_key_values
    assert cache.layers[0].keys.shape[-2] == 7  # ceil(4.7) + R, with that of the next token
    whole = model(ids, attention_mask=mask)
    torch.testing.assert_close(model(ids[1:, 5:]).logits[0], whole.logits[1, 5:], atol=1e-12, rtol=0)
    changed = ids.clone()
    changed[:, 9:] = 3
    torch.testing.assert_close(
        model(changed, attention_mask=mask).logits[:, :9], whole.logits[:, :9], atol=1e-12, rtol=0
    )


KINDS = {
    VaswaniForCausalLM: 2,
    VaswaniForMaskedLM: 2,
    VaswaniForSequenceClassification: 2,
    VaswaniForConditionalGeneration: 4,  # layers
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_penalty_is_added_in_training_only(kind: Any) -> None:
    """(λ / h) Σ z for each layer, and the share of a batch of an accumulated step."""
    ids = torch.randint(3, 23, (2, 9))
    labels = torch.tensor([0, 1]) if kind is VaswaniForSequenceClassification else ids
    model, free = make(kind), make(kind, penalty=0)
    expected = 0.1 / 2 * (1.2 + 4.7) * KINDS[kind]
    for training, more in itertools.product((True, False), ({}, {"num_items_in_batch": torch.tensor(64)})):
        losses = [each.train(training)(ids, labels=labels, **more).loss for each in (model, free)]
        share = 1.0
        if more:
            share = (2 if labels.ndim == 1 else 16 if kind is VaswaniForCausalLM else 18) / 64
        assert (losses[0] - losses[1]).item() == pytest.approx(expected * share * training, abs=1e-5)
    model.train()(ids, labels=labels).loss.backward()
    assert all(p.grad is not None and p.grad.any() for name, p in model.named_parameters() if name.endswith("spans"))


def test_a_trainer_with_its_own_loss_adds_the_penalty(tmp_path: Path) -> None:
    ids = torch.randint(3, 23, (2, 9))
    losses = []
    for penalty in (0.1, 0.0):
        arguments = TrainingArguments(tmp_path, use_cpu=True, report_to=[], disable_tqdm=True)
        trainer = ReliableTrainer(make(penalty=penalty).train(), arguments, compute_loss_func=token_loss)
        losses.append(trainer.compute_loss(trainer.model, {"input_ids": ids, "labels": ids}))
    assert (losses[0] - losses[1]).item() == pytest.approx(0.1 / 2 * (1.2 + 4.7) * 2)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "The pattern 'adaptive_span' needs the option 'span'; write it in decoder_pattern_options."),
        ({"span": 0}, "span is 0; write a whole number of at least 1."),
        ({"span": 9, "ramp": 1.5}, "ramp is 1.5; write a whole number of at least 1."),
        ({"span": 9, "penalty": -1}, "penalty is -1; write a number of at least 0, such as 2e-6."),
        ({"span": 9, "penalty": math.inf}, "penalty is inf; write a number of at least 0, such as 2e-6."),
    ],
)
def test_a_mistake_is_one_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(StrictDataclassError) as error:
        VaswaniConfig(**SMALL, decoder_pattern="adaptive_span", decoder_pattern_options=options)
    assert str(error.value.__cause__) == sentence
