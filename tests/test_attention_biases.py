"""Positions as a bias of the energies: each is its formula under every layout, and equals the model that it is from."""

import itertools
import math
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from test_attention_windows import LAYOUTS, SMALL, language_model, literal_mask
from transformers import T5Config
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from hfattn import VaswaniConfig, VaswaniForCausalLM, VaswaniForConditionalGeneration, VaswaniForMaskedLM
from hfattn.attention import Attention, Fixed, Layout, Strided, Window
from hfattn.models.configuration_layers import POSITION_BIASES
from hfattn.models.modeling_vaswani import make_position_bias

F64 = torch.float64
FIELDS: dict[str, dict[str, Any]] = {
    "alibi": {"positions": "alibi"},
    "relative_buckets": {"positions": "relative_buckets", "num_buckets": 8, "max_distance": 20},
}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Window, "block", 8)


def make_bias(name: str, is_causal: bool, num_heads: int = 2, **fields: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": 9, "hidden_size": 8 * num_heads, "num_attention_heads": num_heads}
    bias = make_position_bias(VaswaniConfig(**{**sizes, **FIELDS[name], **fields}), is_causal)
    assert bias is not None
    return bias.double()


# The formulas


@pytest.mark.parametrize("num_heads", [1, 2, 3, 8, 12, 14])
def test_the_slopes_of_alibi_are_those_of_bloom(num_heads: int) -> None:
    """For numbers of heads that are powers of two, and others."""
    slopes = build_alibi_tensor(torch.ones(1, 2), num_heads, torch.float32)[:, 0, 1]  # m j, for j = 1
    bias = make_bias("alibi", True, num_heads)(torch.zeros(num_heads, 4, 8), 6, 2)
    for i, j in itertools.product(range(4), range(6)):
        torch.testing.assert_close(bias[:, i, j], -slopes * abs(2 + i - j), rtol=1e-6, atol=0)


@pytest.mark.parametrize(("number", "longest"), [(32, 128), (8, 20), (4, 3), (16, 1000)])
@pytest.mark.parametrize("is_causal", [True, False])
def test_the_buckets_are_those_of_t5(is_causal: bool, number: int, longest: int) -> None:
    bias = make_bias("relative_buckets", is_causal, num_buckets=number, max_distance=longest)
    distances = torch.arange(-1100, 1100)
    theirs = T5Attention._relative_position_bucket(
        -distances, bidirectional=not is_causal, num_buckets=number, max_distance=longest
    )
    assert torch.equal(bias.buckets(distances), theirs)


def literal_bias(bias: Any, name: str, distance: int, head: int) -> torch.Tensor:
    """b(i - j) by its definition, for two heads."""
    if name == "alibi":
        return torch.tensor(-(2.0 ** -(4 * (head + 1))) * abs(distance), dtype=F64)
    number, first = bias.num_buckets, 0
    if not bias.is_causal:
        number //= 2
        first = number if distance < 0 else 0
    distance = max(distance, 0) if bias.is_causal else abs(distance)
    if distance >= number // 2:
        growth = math.log(distance / (number // 2)) / math.log(bias.max_distance / (number // 2))
        distance = min(number // 2 + int(growth * (number - number // 2) + 1e-6), number - 1)
    return bias.table.weight[first + distance, head]


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("name", FIELDS)
def test_self_attention_is_the_formula(name: str, is_causal: bool) -> None:
    """softmax_j(q_i·k_j / √d + b(i - j)), in a loop over heads, queries and keys; with gradients."""
    kind: Any = VaswaniForCausalLM if is_causal else VaswaniForMaskedLM
    for implementation in ("eager", "sdpa"):
        torch.manual_seed(0)
        config = VaswaniConfig(**{**SMALL, **FIELDS[name], "attn_implementation": implementation})
        stack = kind(config).double().model
        stack = stack.decoder if is_causal else stack.encoder
        layer, bias = stack.layers[0].self_attn, stack.position_bias
        states = torch.randn(1, 11, 24, dtype=F64)
        mask = torch.ones(11, 11, dtype=torch.bool).tril()[None, None] if is_causal else None
        found, _ = layer(states, mask, bias=bias)
        query, key, value = (getattr(layer, f"{part}_proj")(states)[0].unflatten(-1, (2, 12)) for part in "qkv")
        rows = []
        for i in range(11):
            context = []
            for head in range(2):
                keys = range(i + 1 if is_causal else 11)
                energies = [
                    query[i, head] @ key[j, head] / math.sqrt(12) + literal_bias(bias, name, i - j, head) for j in keys
                ]
                weights = torch.stack(energies).softmax(0)
                context.append(sum(weights[j] * value[j, head] for j in keys))
            rows.append(torch.cat(context))
        expected = layer.out_proj(torch.stack(rows))
        torch.testing.assert_close(found[0], expected, atol=1e-12, rtol=0)
        parameters = [layer.q_proj.weight, *bias.parameters()]
        gradients = [torch.autograd.grad(each.square().sum(), parameters) for each in (found, expected)]
        torch.testing.assert_close(*gradients, atol=1e-10, rtol=0)


@pytest.mark.parametrize("pattern", ["full", "window", "block_local"])
@pytest.mark.parametrize("is_causal", [True, False])
def test_relative_sinusoids_are_the_formula(is_causal: bool, pattern: str) -> None:
    """((q_i + u)·k_j + (q_i + v)·W_R R_{i-j}) / √d in a loop, with gradients; in blocks, some of the heads dilated."""
    stack = "decoder" if is_causal else "encoder"
    kind: Any = VaswaniForCausalLM if is_causal else VaswaniForMaskedLM
    options = {"window": {"window": 3, "dilation": [[1, 2], [1, 2]]}, "block_local": {"block": 3}}.get(pattern, {})
    pairs = {f"{stack}_pattern": pattern, f"{stack}_pattern_options": options}
    torch.manual_seed(0)
    model = kind(VaswaniConfig(**{**SMALL, **pairs, "positions": "relative_sinusoidal"})).double()
    layer = getattr(model.model, stack).layers[0].self_attn
    own = layer.relative_positions
    assert getattr(model.model, stack).position_bias is None
    states = torch.randn(1, 14, 24, dtype=F64)
    query, key, value = (getattr(layer, f"{part}_proj")(states)[0].unflatten(-1, (2, 12)) for part in "qkv")
    matrix = own.W_R.view(2, 12, 24)
    seen = torch.ones(2, 14, 14, dtype=torch.bool)
    for layout, heads in getattr(layer, "layouts", []):
        seen[heads] = layout.sees(torch.arange(14)[:, None], torch.arange(14))
    if is_causal:
        seen = seen.tril()
    rows = []
    for i in range(14):
        context = []
        for head in range(2):
            keys = [j for j in range(14) if seen[head, i, j]]
            energies = []
            for j in keys:
                angles = [(i - j) / 10_000 ** (2 * pair / 24) for pair in range(12)]
                sinusoid = torch.tensor([f(angle) for angle in angles for f in (math.sin, math.cos)], dtype=F64)
                content = (query[i, head] + own.u[head]) @ key[j, head]
                energies.append((content + (query[i, head] + own.v[head]) @ (matrix[head] @ sinusoid)) / math.sqrt(12))
            weights = torch.stack(energies).softmax(0)
            context.append(sum(weight * value[j, head] for weight, j in zip(weights, keys, strict=True)))
        rows.append(torch.cat(context))
    expected = layer.out_proj(torch.stack(rows))
    mask = torch.ones(14, 14, dtype=torch.bool).tril()[None, None] if is_causal and pattern == "full" else None
    found = layer(states, mask)[0][0]
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    parameters = [layer.q_proj.weight, *own.parameters()]
    gradients = [torch.autograd.grad(each.square().sum(), parameters) for each in (found, expected)]
    torch.testing.assert_close(*gradients, atol=1e-10, rtol=0)


@pytest.mark.parametrize("is_decoder", [True, False])
def test_relative_buckets_are_the_attention_of_t5(is_decoder: bool) -> None:
    """With its table, and padding in a row; T5 divides by no √d."""
    torch.manual_seed(0)
    theirs = T5Attention(
        T5Config(d_model=24, num_heads=2, d_kv=12, is_decoder=is_decoder, dropout_rate=0.0),
        has_relative_attention_bias=True,
        layer_idx=0,
    ).double()
    config = VaswaniConfig(**SMALL, positions="relative_buckets", self_attention_score="dot", bias=False)
    model: Any = (VaswaniForCausalLM if is_decoder else VaswaniForMaskedLM)(config).double().model
    stack = model.decoder if is_decoder else model.encoder
    layer = stack.layers[0].self_attn
    pairs = {"q_proj": theirs.q, "k_proj": theirs.k, "v_proj": theirs.v, "out_proj": theirs.o}
    for name, linear in pairs.items():
        getattr(layer, name).weight = linear.weight
    stack.position_bias.table.weight = theirs.relative_attention_bias.weight
    torch.nn.init.normal_(theirs.relative_attention_bias.weight)
    states = torch.randn(2, 150, 24, dtype=F64)  # longer than max_distance
    mask = torch.ones(2, 1, 150, 150, dtype=torch.bool)
    mask[1, ..., 120:] = False
    if is_decoder:
        mask = mask.tril()
    expected = theirs(states, torch.where(mask, 0.0, -torch.inf).to(F64))[0]
    found, _ = layer(states, mask, bias=stack.position_bias)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


# Under a layout


@pytest.mark.parametrize("layout", ["window 3", "widely dilated", "blocks of 7"])
@pytest.mark.parametrize("name", FIELDS)
def test_a_layout_with_a_bias_equals_dense_attention_with_its_matrix(name: str, layout: str) -> None:
    """Few and many queries, causal or not, padded on the left or not; with gradients."""
    for causal, (num_queries, num_keys), before in itertools.product(
        (True, False), [(1, 17), (33, 33), (20, 37)], (0, 3)
    ):
        bias = make_bias(name, causal)
        attention = Attention(4, 4).double()
        query = torch.randn(2, 2, num_queries, 4, dtype=F64, requires_grad=True)
        key, value = torch.randn(2, 2, 2, num_keys, 4, dtype=F64).unbind()
        real = torch.arange(num_keys)[None, None, None] >= before
        context, weights = LAYOUTS[layout]()(
            attention, query, (key,), value, real if before else None, causal=causal, bias=bias
        )
        fused, _ = LAYOUTS[layout]()(
            attention, query, (key,), value, real if before else None, causal=causal, need_weights=False, bias=bias
        )
        mask = literal_mask(layout, num_queries, num_keys, causal, before, 0)
        distances = torch.arange(num_queries)[:, None] + num_keys - num_queries - torch.arange(num_keys)
        first = int(distances.min())
        every = [[literal_bias(bias, name, x, head) for x in range(first, num_keys)] for head in range(2)]
        matrix = torch.stack([torch.stack(each)[distances - first] for each in every])
        expected, expected_weights = attention(query, (key,), value, mask, bias=matrix)
        kept = slice(max(before - (num_keys - num_queries), 0), None)  # the queries that are tokens
        parameters = [query, *bias.parameters()]
        results = [each[..., kept, :] for each in (expected, context, fused)]
        gradients = [torch.autograd.grad(each.square().sum(), parameters) for each in results]
        for result, gradient in zip(results[1:], gradients[1:], strict=True):
            torch.testing.assert_close(result, results[0], atol=1e-12, rtol=0)
            torch.testing.assert_close(gradient, gradients[0], atol=1e-10, rtol=0)
        assert weights is not None
        assert expected_weights is not None
        torch.testing.assert_close(weights[..., kept, :], expected_weights[..., kept, :], atol=1e-12, rtol=0)


def test_a_layout_computes_no_matrix_of_the_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Window, "block", 64)
    asked = []
    bias = make_bias("alibi", True)

    def recorded(query: torch.Tensor, num_keys: int, ahead: int) -> torch.Tensor:
        found: torch.Tensor = bias(query, num_keys, ahead)
        asked.append(tuple(found.shape))
        return found

    query = torch.randn(1, 2, 1000, 4, dtype=F64)
    Window(window=65)(Attention(4, 4), query, (query,), query, causal=True, need_weights=False, bias=recorded)
    assert set(asked) == {(2, 64, 128)}


# In models; generation with them is tested with the layouts


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", FIELDS)
def test_padding_is_invisible(name: str, side: str) -> None:
    torch.manual_seed(0)
    pattern = {"encoder_pattern": ["full", "window"], "encoder_pattern_options": {"window": 3}}
    config = VaswaniConfig(**SMALL, **FIELDS[name], **pattern)
    model = VaswaniForMaskedLM(config).double().eval()
    ids = torch.randint(3, 23, (1, 15))
    number = (6, 0) if side == "left" else (0, 6)
    padded, mask = (torch.nn.functional.pad(tensor, number) for tensor in (ids, torch.ones_like(ids)))
    expected = model(ids).logits
    found = model(padded, attention_mask=mask).logits[mask.bool()]
    torch.testing.assert_close(found, expected[0], atol=1e-12, rtol=0)
    order = torch.randperm(15)
    assert not torch.allclose(model(ids[:, order]).logits[:, order], expected)  # the order is seen
    assert model(ids[:, :0]).logits.shape == (1, 0, 23)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_table_for_each_stack_is_trained_under_gradient_checkpointing(reentrant: bool) -> None:
    ids = torch.randint(3, 23, (2, 9))
    config = VaswaniConfig(**SMALL, **FIELDS["relative_buckets"])
    gradients = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        model = VaswaniForConditionalGeneration(config).double().train()
        assert [name for name, _ in model.named_parameters() if "position_bias" in name] == [
            "model.encoder.position_bias.table.weight",
            "model.decoder.position_bias.table.weight",
        ]
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        model(ids, labels=ids).loss.backward()
        gradients.append({key: parameter.grad for key, parameter in model.named_parameters()})
    torch.testing.assert_close(*gradients, atol=1e-13, rtol=0)
    assert all(gradient is not None and gradient.any() for gradient in gradients[0].values())


def test_cross_attention_has_no_bias() -> None:
    torch.manual_seed(0)
    model = VaswaniForConditionalGeneration(VaswaniConfig(**SMALL, **FIELDS["alibi"])).double().eval()
    layer, states = model.model.decoder.layers[0].cross_attn, torch.randn(1, 5, 24, dtype=F64)
    found, _ = layer(states, key_value_states=states, bias=model.model.decoder.position_bias)
    assert torch.equal(found, layer(states, key_value_states=states)[0])


def test_a_static_cache() -> None:
    """Its keys end after the query."""
    model = language_model(**FIELDS["relative_buckets"])
    ids = torch.randint(3, 23, (2, 5))
    generated = [model.generate(ids, max_new_tokens=6, cache_implementation=kind) for kind in ("static", None)]
    assert torch.equal(*generated)


OPTIONS: dict[str, dict[str, Any]] = {"linformer": {"rank": 2, "max_length": 9}, "fixed": {"block": 3}}


@pytest.mark.parametrize("pattern", ["linear", "performer", "fourier", "linformer", "fastformer", "fixed"])
@pytest.mark.parametrize("name", POSITION_BIASES)
def test_a_pattern_that_adds_no_bias_is_refused(name: str, pattern: str) -> None:
    options = OPTIONS.get(pattern, {})
    with pytest.raises(StrictDataclassError) as error:
        VaswaniConfig(**SMALL, positions=name, encoder_pattern=["full", pattern], encoder_pattern_options=options)
    assert str(error.value.__cause__) == (
        f"positions is {name!r}, a bias of the energies, which the pattern {pattern!r} does not add; write "
        "other positions, or the pattern 'full', 'window' without global_tokens, 'block_local', "
        "'adaptive_span' or, in a decoder, 'memory'."
    )


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"num_buckets": 6}, "num_buckets is 6; write a multiple of 4, such as 32."),
        ({"num_buckets": 64, "max_distance": 32}, "write a number above 32, such as 256."),
        ({"positions": "t5"}, "positions is 't5'; write one of 'sinusoidal', 'learned', 'rotary', 'alibi'"),
    ],
)
def test_a_mistake_is_one_sentence(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(StrictDataclassError) as error:
        VaswaniConfig(**SMALL, **fields)
    assert sentence in str(error.value.__cause__)


@pytest.mark.parametrize("layout", [Strided(stride=3), Fixed(block=3, last=1), Window(window=3, global_tokens=1)])
def test_a_layout_with_distant_keys_refuses_a_bias(layout: Layout) -> None:
    attention, states = Attention(4, 4), torch.randn(1, 2, 9, 4)
    with pytest.raises(ValueError, match="write the pattern 'full' or 'window'"):
        layout(attention, states, attention.prepare(states), states, bias=lambda *block: torch.zeros(1))


def test_positions_that_are_a_bias_refuse_global_tokens() -> None:
    pattern = {"encoder_pattern": "window", "encoder_pattern_options": {"window": 3, "global_tokens": 1}}
    with pytest.raises(StrictDataclassError, match="leave global_tokens out"):
        VaswaniForMaskedLM(VaswaniConfig(**SMALL, **pattern, positions="alibi"))
