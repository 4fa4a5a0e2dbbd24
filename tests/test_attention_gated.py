"""Patterns that are recurrences with gates: equal to a loop over the steps, in functions and in models."""

from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from model_checks import check_cached_generation
from test_attention_kernels import SMALL, language_model, padded_batch
from torch.nn.functional import logsigmoid, normalize, silu, softplus
from transformers import Qwen3NextConfig
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

from hfattn import VaswaniConfig, VaswaniForCausalLM, VaswaniForConditionalGeneration
from hfattn.explaining import alignment
from hfattn.models import attention_gated
from hfattn.models.attention_gated import gated_delta_rule, gated_linear_rule, short_convolution

PATTERNS: dict[str, dict[str, Any]] = {
    "gated_linear": {"pattern": "gated_linear"},
    "gated_delta": {"pattern": "gated_delta"},
    "full, then gated_delta": {"pattern": ["full", "gated_delta"], "pattern_options": {"conv_size": 3}},
}
GATED = ["gated_linear", "gated_delta"]
RULES: dict[str, Any] = {"gated_linear": gated_linear_rule, "gated_delta": gated_delta_rule}


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that short texts have several chunks."""
    monkeypatch.setattr(attention_gated, "CHUNK", 8)


def step(
    state: torch.Tensor, key: torch.Tensor, value: torch.Tensor, gate: torch.Tensor, rate: torch.Tensor | None = None
) -> torch.Tensor:
    """The next state of one head: S (d_k, d_v), k (d_k), v (d_v), α (d_k or 1), β (1)."""
    if rate is None:
        return gate.diag() @ state + torch.outer(key, value)
    change = torch.eye(len(key), dtype=key.dtype) - rate * torch.outer(key, key)
    return gate * change @ state + rate * torch.outer(key, value)


def arguments(name: str, length: int, seed: int = 0) -> list[torch.Tensor]:
    """q, k, v and gates of two heads, d_k 5 and d_v 3."""
    torch.manual_seed(seed)
    query, key = torch.randn(2, 2, length, 5, dtype=torch.float64)
    value = torch.randn(2, length, 3, dtype=torch.float64)
    log_gate = logsigmoid(3 * torch.randn(2, length, 5, dtype=torch.float64))
    if name == "gated_linear":
        return [query, key, value, log_gate]
    return [query, normalize(key, dim=-1), value, log_gate[..., :1], torch.rand(2, length, 1, dtype=torch.float64)]


@pytest.mark.parametrize("name", GATED)
def test_chunks_equal_a_loop_over_the_steps(name: str) -> None:
    """Chunks of several lengths, from a state and to a state, forward and backward."""
    inputs = [tensor.requires_grad_() for tensor in arguments(name, 19)]
    start = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    query, key, value, log_gate, *rates = inputs
    outputs, last = [], []
    for head, state in enumerate(start):
        for i in range(19):
            state = step(state, key[head, i], value[head, i], log_gate[head, i].exp(), *(b[head, i] for b in rates))
            outputs.append(state.T @ query[head, i])
        last.append(state)
    expected, state = torch.stack(outputs).view(2, 19, 3), torch.stack(last)
    factors = torch.randn_like(expected)
    gradients = torch.autograd.grad((expected * factors).sum() + state.square().sum(), [*inputs, start])
    for chunk in (1, 2, 8, 32):
        found, found_state = RULES[name](*inputs, start, chunk)
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
        torch.testing.assert_close(found_state, state, atol=1e-12, rtol=0)
        own = torch.autograd.grad((found * factors).sum() + found_state.square().sum(), [*inputs, start])
        torch.testing.assert_close(own, gradients, atol=1e-11, rtol=1e-11)
        first, between = RULES[name](*(tensor[:, :6] for tensor in inputs), start, chunk)
        rest, after = RULES[name](*(tensor[:, 6:] for tensor in inputs), between, chunk)
        torch.testing.assert_close(torch.cat([first, rest], 1), expected, atol=1e-12, rtol=0)
        torch.testing.assert_close(after, state, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", GATED)
def test_gates_close_to_zero_are_exact_in_float32(name: str) -> None:
    """Of long texts: gates whose products underflow, between gates that forget almost nothing."""
    query, key, value, log_gate, *rates = arguments(name, 3000)
    draws = torch.rand_like(log_gate)
    log_gate = torch.where(draws < 0.9, log_gate / 100, log_gate)
    log_gate = log_gate.masked_fill(draws < 0.02, -1e5).masked_fill(draws < 0.01, -90)
    inputs = [query, normalize(key, dim=-1), value, log_gate, *rates]
    results = []
    for dtype in (torch.float64, torch.float32):
        of_dtype = [tensor.to(dtype).requires_grad_() for tensor in inputs]
        output, _ = RULES[name](*of_dtype, None, 64)
        results.append([output, *torch.autograd.grad(output.square().sum(), of_dtype)])
    for exact, found in zip(*results, strict=True):
        assert found.isfinite().all()
        assert (found.double() - exact).abs().max() < 2e-5 * exact.abs().max()


def convolved(inputs: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Σ_l w_l x_{i-K+1+l} of one text (T, width), by a loop."""
    size = weight.shape[1]
    outputs = torch.zeros_like(inputs)
    for i in range(len(inputs)):
        for lag in range(size):
            if i - size + 1 + lag >= 0:
                outputs[i] += weight[:, lag] * inputs[i - size + 1 + lag]
    return outputs


@pytest.mark.parametrize("size", [1, 4])
def test_a_convolution_sees_the_tokens_only(size: int) -> None:
    """With padding at either side and between, also where a cached text is continued."""
    torch.manual_seed(0)
    inputs, weight = torch.randn(4, 9, 3, dtype=torch.float64), torch.randn(3, size, dtype=torch.float64)
    real = torch.tensor([[1] * 9, [0, 0, 0, 1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 1, 1, 0, 1, 0], [0] * 9], dtype=torch.bool)
    for cut in (0, 2, 5, 9):
        state, parts = inputs.new_zeros(4, size - 1, 3), []
        for steps in (slice(cut), slice(cut, 9)):
            outputs, state = short_convolution(inputs[:, steps], weight, state, real[:, steps])
            parts.append(outputs)
        for text, outputs, mask, last in zip(inputs, torch.cat(parts, 1), real, state, strict=True):
            torch.testing.assert_close(outputs[mask], convolved(text[mask], weight), atol=1e-13, rtol=0)
            padded = torch.cat([inputs.new_zeros(size - 1, 3), text[mask]])
            assert torch.equal(last, padded[len(padded) - size + 1 :])
    whole, last = short_convolution(inputs[:1], weight, inputs.new_zeros(1, size - 1, 3), None)
    torch.testing.assert_close(whole[0], convolved(inputs[0], weight), atol=1e-13, rtol=0)
    assert torch.equal(last, inputs[:1, 9 - size + 1 :])


def literal(attention: Any, hidden: torch.Tensor) -> torch.Tensor:
    """The layer on one text (T, H), from its formulas, head by head and step by step."""
    query, key, value = (project(hidden) for project in (attention.q_proj, attention.k_proj, attention.v_proj))
    is_delta = attention.pattern == "gated_delta"
    if is_delta:
        weights = attention.convolution.split([part.shape[1] for part in (query, key, value)])
        query, key, value = (
            silu(convolved(part, weight)) for part, weight in zip((query, key, value), weights, strict=True)
        )
    heads = []
    for head in range(2):
        group = head // attention.group_size
        q = query.unflatten(-1, (2, -1))[:, head]
        k, v = (part.unflatten(-1, (attention.num_groups, -1))[:, group] for part in (key, value))
        if is_delta:
            q, k = (part / (part.square().sum(-1, keepdim=True) + 1e-6).sqrt() for part in (q, k))
            steps = softplus(attention.forget_proj(hidden)[:, group] + attention.dt_bias[group])
            gates = [(-attention.A_log[group].exp() * steps).exp(), attention.rate_proj(hidden)[:, group].sigmoid()]
        else:
            logits = attention.forget_out(attention.forget_in(hidden)).unflatten(-1, (attention.num_groups, -1))
            gates = [logits[:, group].sigmoid() ** (1 / 16)]
        state = hidden.new_zeros(k.shape[1], v.shape[1])
        outputs = []
        for i in range(len(hidden)):
            state = step(state, k[i], v[i], *(gate[i] for gate in gates))
            outputs.append(state.T @ q[i] / k.shape[1] ** 0.5)
        context = torch.stack(outputs)
        heads.append(context / (context.square().mean(-1, keepdim=True) + 1e-5).sqrt() * attention.norm.weight)
    return attention.out_proj(torch.cat(heads, -1) * silu(attention.gate_proj(hidden)))


def first_layer(name: str, **fields: Any) -> Any:
    torch.manual_seed(0)
    config = VaswaniConfig(**SMALL, decoder_pattern=name, **fields)
    return VaswaniForCausalLM(config).double().model.decoder.layers[0].self_attn


@pytest.mark.parametrize("num_groups", [1, 2])
@pytest.mark.parametrize("name", GATED)
def test_a_layer_equals_its_formulas(name: str, num_groups: int) -> None:
    """With keys of each head and with shared ones; padding is at either side and between."""
    attention = first_layer(name, num_key_value_heads=num_groups)
    attention.norm.weight.data.normal_()
    hidden = torch.randn(3, 20, 24, dtype=torch.float64)
    mask = torch.ones(3, 20, dtype=torch.bool)
    mask[0, :6], mask[1, 15:], mask[2, 7:12] = False, False, False
    output, _ = attention(hidden, mask.long())
    for text, found, real in zip(hidden, output, mask, strict=True):
        torch.testing.assert_close(found[real], literal(attention, text[real]), atol=1e-12, rtol=0)
    alone, _ = attention(hidden[:1, 6:])
    torch.testing.assert_close(alone[0], output[0, 6:], atol=1e-12, rtol=0)


def test_a_layer_equals_that_of_qwen3_next() -> None:
    """Of transformers, which computes in float32; several chunks, with and without padding."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "rms_norm_eps": 1e-5, "linear_num_value_heads": 2, "linear_num_key_heads": 2}
    widths = {"linear_key_head_dim": 9, "linear_value_head_dim": 18, "linear_conv_kernel_dim": 4}
    theirs = Qwen3NextGatedDeltaNet(Qwen3NextConfig(**sizes, **widths), 0)
    torch.nn.init.normal_(theirs.norm.weight)
    ours = first_layer("gated_delta", bias=False).float()
    of_heads = theirs.in_proj_qkvz.weight.view(2, 54, 24).split([9, 9, 18, 18], 1)
    rate, forget = theirs.in_proj_ba.weight.view(2, 2, 24).unbind(1)
    names = ("q_proj", "k_proj", "v_proj", "gate_proj")
    weights = {f"{name}.weight": part.flatten(0, 1) for name, part in zip(names, of_heads, strict=True)}
    weights |= {"forget_proj.weight": forget, "rate_proj.weight": rate, "convolution": theirs.conv1d.weight[:, 0]}
    same = {name: theirs.state_dict()[name] for name in ("A_log", "dt_bias", "norm.weight", "out_proj.weight")}
    ours.load_state_dict({**weights, **same})
    hidden, mask = torch.randn(2, 70, 24), torch.ones(2, 70)
    mask[1, :20] = 0
    found, expected = ours(hidden, mask)[0], theirs(hidden, attention_mask=mask)
    torch.testing.assert_close(found[mask.bool()], expected[mask.bool()], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", GATED)
def test_implicit_weights_are_those_of_the_values(name: str) -> None:
    attention = first_layer(name, num_key_value_heads=1)
    ids, mask, real = padded_batch("left")
    hidden = torch.randn(2, 21, 24, dtype=torch.float64)
    output, none = attention(hidden, mask)
    assert none.shape == (2, 0, 21, 21)
    again, weights = attention(hidden, mask, implicit_weights=True)
    assert torch.equal(again, output)
    assert weights.shape == (2, 2, 21, 21)
    assert not weights.triu(1).any()
    assert not weights[1, :, 6:, :6].any()  # padding
    (_, _, value, *_), _ = attention.inputs(hidden, mask.bool(), ())
    context = (weights @ value[:, :, 0]).transpose(1, 2)  # (B, T, h, d_v); the heads share values
    gate = silu(attention.gate_proj(hidden))
    torch.testing.assert_close(attention.out_proj(attention.norm(context).flatten(-2) * gate), output)
    model = language_model(**PATTERNS[name])
    outputs = model(ids, attention_mask=mask, output_attentions=True, implicit_weights=True)
    record = alignment(outputs, 1, input_ids=ids, attention_mask=mask)
    assert torch.equal(record.weights, torch.stack(outputs.attentions)[:, 1, :, real, real])


@pytest.mark.parametrize("name", PATTERNS)
def test_cached_equals_uncached(name: str) -> None:
    """Greedy search, samples and beams, with padding on the left; and steps of several tokens, padded anywhere."""
    model = language_model(**PATTERNS[name])
    ids, mask, _ = padded_batch("left", 13, 5)
    check_cached_generation(model, {"input_ids": ids, "attention_mask": mask}, max_new_tokens=6)
    mask[1, 9:11] = 0
    whole = model(ids, attention_mask=mask).logits
    cache = None
    for steps in (slice(0, 3), slice(3, 10), slice(10, 12), slice(12, 13)):
        outputs = model(ids[:, steps], attention_mask=mask[:, : steps.stop], past_key_values=cache, use_cache=True)
        cache = outputs.past_key_values
        real = mask[:, steps].bool()
        torch.testing.assert_close(outputs.logits[real], whole[:, steps][real], atol=1e-12, rtol=0)
    alone = model(ids[1:, mask[1].bool()]).logits
    torch.testing.assert_close(alone[0], whole[1, mask[1].bool()], atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", GATED)
def test_a_state_does_not_grow_and_is_continued(name: str) -> None:
    """The cache of one prompt for several answers, and for chosen texts of a batch."""
    model = language_model(**PATTERNS[name])
    ids = torch.randint(3, 23, (2, 29))
    cache = model(ids[:, :6], use_cache=True).past_key_values
    shapes = [tensor.shape[1:] for tensor in cache.layers[0].state]
    width = {"gated_linear": [(2, 6, 12)], "gated_delta": [(2, 9, 18), (3, 72)]}
    assert shapes == width[name]
    cache.batch_repeat_interleave(2)
    cache.batch_select_indices(torch.tensor([3, 0]))
    cache.reorder_cache(torch.tensor([1, 0]))
    found = model(ids[:, 6:], past_key_values=cache).logits
    whole = model(ids).logits
    torch.testing.assert_close(found, whole[:, 6:], atol=1e-12, rtol=0)
    assert [tensor.shape[1:] for tensor in cache.layers[0].state] == shapes
    with pytest.raises(ValueError, match=r"^A recurrent cache cannot be cropped .*; run the model on the shorter text"):
        cache.crop(-1)
    with pytest.raises(ValueError, match=r"^implicit_weights needs all keys, .*; pass the whole text, with use_cache="):
        model(ids, past_key_values=cache, implicit_weights=True)
    cache.reset()
    torch.testing.assert_close(model(ids, past_key_values=cache).logits, whole, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", GATED)
def test_texts_without_a_token_are_zeros(name: str) -> None:
    model: Any = language_model(**PATTERNS[name])
    attention = model.model.decoder.layers[0].self_attn
    attention.out_proj = torch.nn.Identity()
    for length in (0, 1, 9):
        output, _ = attention(torch.randn(2, length, 24).double(), torch.zeros(2, length))
        assert not output.any()
    model = language_model(**PATTERNS[name])
    inputs = torch.zeros(2, 9, 24, dtype=torch.float64, requires_grad=True)
    model(inputs_embeds=inputs, attention_mask=torch.zeros(2, 9)).logits.sum().backward()
    assert inputs.grad is not None
    assert inputs.grad.isfinite().all()
    assert model(torch.zeros(2, 0, dtype=torch.long)).logits.shape == (2, 0, 23)


@pytest.mark.parametrize("name", GATED)
def test_half_precision_is_computed_in_float32(name: str) -> None:
    """Of a long text, with gates that bfloat16 would round to 1."""
    attention = first_layer(name)
    with torch.no_grad():
        bias = attention.dt_bias if name == "gated_delta" else attention.forget_out.bias
        bias.fill_(-5.0 if name == "gated_delta" else 5.0)
    attention = attention.to(torch.bfloat16)
    hidden = torch.randn(1, 600, 24).to(torch.bfloat16)
    output, _ = attention(hidden)
    expected, _ = attention.double()(hidden.double())
    with torch.autocast("cpu", torch.bfloat16):
        cast, _ = attention.float()(hidden.float())
    for found in (output, cast):
        assert found.dtype == torch.bfloat16
        assert (found.double() - expected).norm() < 0.03 * expected.norm()


def test_gradient_checkpointing_changes_no_gradient() -> None:
    ids, mask, _ = padded_batch("left")
    gradients = []
    for checkpointing in (False, True):
        model = language_model(pattern=GATED).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        model(ids, attention_mask=mask, labels=ids).loss.backward()
        gradients.append({key: parameter.grad for key, parameter in model.named_parameters()})
    torch.testing.assert_close(*gradients, atol=1e-13, rtol=0)


def test_a_translator_with_gates_in_its_decoder() -> None:
    torch.manual_seed(0)
    config = VaswaniConfig(**SMALL, decoder_pattern=GATED, eos_token_id=None)
    model = VaswaniForConditionalGeneration(config).double().eval()
    ids, mask, _ = padded_batch("right", 9, 3)
    generated = [
        model.generate(ids, attention_mask=mask, max_new_tokens=7, num_beams=2, use_cache=cached)
        for cached in (True, False)
    ]
    assert torch.equal(*generated)


def test_gates_that_a_checkpoint_lacks_are_drawn(tmp_path: Path) -> None:
    """Projections of a softmax model, with another pattern; and a saved model is loaded as it was."""
    torch.manual_seed(0)
    VaswaniForCausalLM(VaswaniConfig(**SMALL)).save_pretrained(tmp_path / "full")
    options = {"expand_k": 1.0, "expand_v": 1}
    model = VaswaniForCausalLM.from_pretrained(
        tmp_path / "full", decoder_pattern="gated_delta", decoder_pattern_options=options
    )
    for layer in model.model.decoder.layers:
        attention: Any = layer.self_attn
        assert 0 < attention.A_log.exp().min() < attention.A_log.exp().max() < 16
        steps = softplus(attention.dt_bias)
        assert 0.001 <= steps.min() < steps.max() <= 0.1
        assert attention.convolution.abs().max() <= 0.5
        assert attention.convolution.std() > 0.2
        assert (attention.norm.weight == 1).all()
    model.save_pretrained(tmp_path / "gated")
    again = VaswaniForCausalLM.from_pretrained(tmp_path / "gated")
    ids = torch.randint(3, 23, (1, 9))
    torch.testing.assert_close(again.eval()(ids).logits, model.eval()(ids).logits)


def test_rotary_positions_are_those_of_other_layers() -> None:
    model: Any = language_model(pattern=["gated_delta", "full"])
    fields = {**SMALL, "positions": "rotary", "decoder_pattern": ["gated_delta", "full"]}
    rotary: Any = VaswaniForCausalLM(VaswaniConfig(**fields, self_attention_distribution="entmax")).double().eval()
    attention, expected = (each.model.decoder.layers[0].self_attn for each in (rotary, model))
    expected.load_state_dict(attention.state_dict())
    hidden = torch.randn(1, 9, 24, dtype=torch.float64)
    rotation = torch.randn(2, 1, 1, 9, 6, dtype=torch.float64)
    assert torch.equal(attention(hidden, rotation=rotation)[0], expected(hidden)[0])
    ids = torch.randint(3, 23, (1, 9))
    assert not torch.allclose(
        rotary(ids).logits[0, 1:], rotary(ids, position_ids=torch.zeros(1, 9).long()).logits[0, 1:]
    )


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "encoder": (
        {"encoder_pattern": "gated_linear"},
        "The pattern 'gated_linear' reads a text from left to right, so it is for decoders only; leave it out of "
        "encoder_pattern, or write linear.",
    ),
    "score": (
        {"decoder_pattern": ["gated_linear", "gated_delta"], "self_attention_score": "additive"},
        "self_attention_score is 'additive', and the pattern 'gated_linear' does not use it; leave "
        "self_attention_score out, or write 'full' for some layers in decoder_pattern.",
    ),
    "rotary positions": (
        {"decoder_pattern": "gated_delta", "positions": "rotary"},
        "positions is 'rotary', and the pattern 'gated_delta' does not use it; leave positions out, or write 'full' "
        "for some layers in decoder_pattern.",
    ),
    "norm": (
        {"decoder_pattern": ["full", "gated_delta"], "norm": "none"},
        "The pattern 'gated_delta' has an output that the factors of T-Fixup (norm: none) do not bound; write norm: "
        "post or pre.",
    ),
    "width": (
        {"decoder_pattern": "gated_linear", "decoder_pattern_options": {"expand_k": 0.3}},
        "expand_k is 0.3 and head_dim 12; write a number whose product with head_dim is a whole number of at least 1.",
    ),
    "rank": (
        {"decoder_pattern": "gated_linear", "decoder_pattern_options": {"gate_low_rank_dim": 0}},
        "gate_low_rank_dim is 0; write a whole number of at least 1.",
    ),
    "temperature": (
        {"decoder_pattern": "gated_linear", "decoder_pattern_options": {"gate_logit_normalizer": 0}},
        "gate_logit_normalizer is 0; write a number above 0.",
    ),
    "convolution": (
        {"decoder_pattern": "gated_delta", "decoder_pattern_options": {"conv_size": 1.5}},
        "conv_size is 1.5; write a whole number of at least 0.",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_configuration_is_one_sentence(name: str) -> None:
    fields, sentence = MISTAKES[name]
    with pytest.raises(StrictDataclassError) as error:
        VaswaniConfig(**SMALL, **fields)
    assert str(error.value.__cause__) == sentence
