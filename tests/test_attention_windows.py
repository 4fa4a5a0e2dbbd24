"""Patterns in which a query sees some keys: equal to dense attention under a mask, in functions and in models."""

import copy
import functools
import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from model_checks import Largest, check_cached_generation, check_cached_steps
from transformers import DynamicCache

from hfattn import VaswaniConfig, VaswaniForCausalLM, VaswaniForConditionalGeneration, VaswaniForMaskedLM
from hfattn.attention import DISTRIBUTIONS, SCORES, Attention, BlockLocal, Fixed, Segments, Strided, Window, attend
from hfattn.attention import LAYOUTS as LAYOUTS_BY_NAME
from hfattn.explaining import alignment

SMALL: dict[str, Any] = {
    "vocab_size": 23,
    "hidden_size": 24,
    "intermediate_size": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_attention_heads": 2,
    "dropout": 0.0,
}
LAYOUTS = {
    "window 1": lambda: Window(window=1),
    "window 3": lambda: Window(window=3),
    "window 50": lambda: Window(window=50),
    "dilated": lambda: Window(window=3, dilation=2),
    "widely dilated": lambda: Window(window=4, dilation=5),
    "global tokens": lambda: Window(window=3, global_tokens=2),
    "many global tokens": lambda: Window(window=2, global_tokens=11),
    "blocks of 1": lambda: BlockLocal(block=1),
    "blocks of 7": lambda: BlockLocal(block=7),
    "strides of 5": lambda: Strided(stride=5),
    "the near keys of strides": lambda: Strided(stride=6, part="local"),
    "the far keys of strides": lambda: Strided(stride=4, part="distant"),
    "fixed blocks": lambda: Fixed(block=5, last=2),
    "the block alone": lambda: Fixed(block=6, last=2, part="local"),
    "the last keys of blocks": lambda: Fixed(block=6, last=2, part="distant"),
    "segments of 5 with 7": lambda: Segments(segment_length=5, memory_length=7),
}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that short texts have several blocks."""
    monkeypatch.setattr(Window, "block", 8)
    monkeypatch.setattr(Strided, "block", 2)


@functools.cache
def literal_mask(name: str, num_queries: int, num_keys: int, causal: bool, before: int, after: int) -> torch.Tensor:
    """The definition, by a loop over the pairs (T, S), with padding before and after the tokens."""
    layout = LAYOUTS[name]()
    mask = torch.zeros(num_queries, num_keys, dtype=torch.bool)
    for t, j in itertools.product(range(num_queries), range(num_keys)):
        i = t + num_keys - num_queries
        if isinstance(layout, Window):
            sees = abs(i - j) < layout.dilation * layout.window and (i - j) % layout.dilation == 0
            sees = sees or min(i, j) - before < layout.global_tokens
        elif isinstance(layout, Strided):
            parts = {"local": abs(i - j) < layout.stride, "distant": (i - j) % layout.stride == 0}
            sees = parts.get(layout.part, any(parts.values()))
        elif isinstance(layout, Fixed):
            block = layout.block
            is_last = (j - before) % block >= block - layout.last
            parts = {"local": (i - before) // block == (j - before) // block, "distant": is_last}
            sees = parts.get(layout.part, any(parts.values()))
        elif isinstance(layout, Segments):
            start = (i - before) // layout.block * layout.block
            sees = start - layout.before <= j - before < start + layout.block
        else:
            assert isinstance(layout, BlockLocal)
            sees = abs((i - before) // layout.block - (j - before) // layout.block) <= 1
        mask[t, j] = sees and (j <= i or not causal) and before <= j < num_keys - after
    return mask


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("causal", [True, False])
def test_a_layout_equals_dense_attention_under_its_mask(name: str, causal: bool) -> None:
    """Few and many queries, fewer queries than keys, with and without batch dimensions, padded on each side."""
    torch.manual_seed(0)
    layout = LAYOUTS[name]()
    for (shape, score, distribution), (num_queries, num_keys), side in itertools.product(
        [((), "scaled_dot", "softmax"), ((2,), "additive", "entmax"), ((2, 3), "scaled_dot", "softmax")],
        [(1, 17), (33, 33), (20, 37)],
        [None, "left", "right"],
    ):
        attention = Attention(4, 4, score, distribution).double()
        query = torch.randn(*shape, num_queries, 4, dtype=torch.float64)
        key, value = torch.randn(2, *shape, num_keys, 4, dtype=torch.float64).unbind()
        masks, real = [], torch.ones(shape[0] if shape else 1, 1, num_keys, dtype=torch.bool)
        for row in range(len(real)):
            number = 0 if side is None else (3 * row + 2) % num_keys
            before, after = (number, 0) if side == "left" else (0, number)
            real[row, 0, :before] = False
            real[row, 0, num_keys - after :] = False
            masks.append(literal_mask(name, num_queries, num_keys, causal, before, after))
        mask = torch.stack(masks)
        if not shape:
            mask, real = mask[0], real[0]
        elif len(shape) == 2:
            mask, real = mask[:, None], real[:, None]
        given = None if side is None else real
        context, weights = layout(attention, query, attention.prepare(key), value, given, causal=causal)
        fused, none = layout(attention, query, attention.prepare(key), value, given, causal=causal, need_weights=False)
        expected, expected_weights = attention(query, attention.prepare(key), value, mask)
        assert none is None
        assert weights is not None
        assert expected_weights is not None
        kept = real[..., -num_queries:].transpose(-1, -2)  # the queries that are tokens
        torch.testing.assert_close(context * kept, expected * kept, atol=1e-12, rtol=0)
        torch.testing.assert_close(fused * kept, expected * kept, atol=1e-12, rtol=0)
        torch.testing.assert_close(weights * kept, expected_weights * kept, atol=1e-12, rtol=0)
        assert not (weights * kept).masked_fill(mask, 0).any()  # exact zeros outside


def test_gradients_equal_those_of_dense_attention() -> None:
    torch.manual_seed(0)
    attention = Attention(4, 4).double()
    tensors = torch.randn(3, 2, 30, 4, dtype=torch.float64)
    for name, make in LAYOUTS.items():
        query, key, value = (tensor.clone().requires_grad_() for tensor in tensors)
        context, _ = make()(attention, query, attention.prepare(key), value, causal=True, need_weights=False)
        context.square().sum().backward()
        again, key_again, value_again = (tensor.clone().requires_grad_() for tensor in tensors)
        mask = literal_mask(name, 30, 30, True, 0, 0)
        expected, _ = attention(again, attention.prepare(key_again), value_again, mask)
        expected.square().sum().backward()
        pairs = [(query, again), (key, key_again), (value, value_again)]
        assert all(torch.allclose(first.grad, second.grad, atol=1e-12) for first, second in pairs)


@pytest.mark.parametrize("make", [lambda: Strided(stride=4), lambda: Fixed(block=4, last=2)], ids=["strided", "fixed"])
def test_every_score_and_distribution_sees_the_union_of_both_parts(make: Any) -> None:
    torch.manual_seed(0)
    tensors = torch.randn(3, 2, 22, 4, dtype=torch.float64)
    mask = make().sees(torch.arange(22)[:, None], torch.arange(22))
    scores = [name for name in SCORES if name != "location"]
    for number, score in enumerate(scores):
        distribution = [*DISTRIBUTIONS][number % len(DISTRIBUTIONS)]
        attention = Attention(4, 4, score, distribution).double().eval()
        query, key, value = (tensor.clone().requires_grad_() for tensor in tensors)
        found = make()(attention, query[:, 3:], attention.prepare(key), value)
        expected = attention(query[:, 3:], attention.prepare(key), value, mask[3:])
        for first, second in zip(found, expected, strict=True):
            torch.testing.assert_close(first, second, atol=1e-12, rtol=0)
        gradients = [
            torch.autograd.grad(context.square().sum(), (query, key, value), allow_unused=True)
            for context, _ in (found, expected)
        ]
        for first, second in zip(*gradients, strict=True):
            torch.testing.assert_close(first, second, atol=1e-10, rtol=1e-9)


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (lambda: Window(window=64), 128),
        (lambda: Window(window=64, global_tokens=2), 192),
        (lambda: Strided(stride=64), 192),
        (lambda: Fixed(block=64, last=1), 192),
        (lambda: BlockLocal(block=64), 128),
        (lambda: Segments(segment_length=64, memory_length=64), 128),
    ],
)
def test_no_matrix_of_all_pairs_is_computed(monkeypatch: pytest.MonkeyPatch, make: Any, most: int) -> None:
    monkeypatch.setattr(Window, "block", 64)
    length = 4096
    query, key, value = torch.randn(3, 1, 1, length, 2)
    attention = Attention(2, 2)
    with Largest() as largest:
        make()(attention, query, attention.prepare(key), value, causal=True, need_weights=False)
    assert largest.elements <= length * most  # queries times the keys that each is compared with


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize(
    ("stack", "pattern", "options"),
    [
        ("decoder", "adaptive_span", {"span": 64}),
        ("decoder", "memory", {"segment_length": 64, "memory_length": 64}),
        ("decoder", "linear", {}),
        ("decoder", "performer", {"features": 64}),
        ("decoder", "gated_linear", {}),
        ("decoder", "gated_delta", {}),
        ("decoder", "lsh", {"buckets": 64, "keys": 16, "rounds": 2}),
        ("encoder", "linformer", {"rank": 64, "max_length": 4096}),
        ("encoder", "fastformer", {}),
        ("encoder", "fourier", {}),
    ],
)
def test_no_model_computes_a_matrix_of_all_pairs(stack: str, pattern: str, options: Any, is_padded: bool) -> None:
    torch.manual_seed(0)
    fields = {**SMALL, f"{stack}_layers": 1, f"{stack}_pattern": pattern, f"{stack}_pattern_options": options}
    kind = VaswaniForCausalLM if stack == "decoder" else VaswaniForMaskedLM
    model = kind(VaswaniConfig(**fields, max_position_embeddings=4096)).eval()
    ids = torch.randint(3, 23, (1, 4096))
    mask = torch.ones_like(ids)
    if is_padded:
        mask[:, :100] = 0
    with Largest() as largest, torch.no_grad():
        model(ids, attention_mask=mask)
    assert largest.elements <= 4096**2 / 8


PATTERNS: dict[str, dict[str, Any]] = {
    "window": {"decoder_pattern": "window", "decoder_pattern_options": {"window": 4}},
    "window of 1": {"decoder_pattern": "window", "decoder_pattern_options": {"window": 1}},
    "dilated heads": {
        "decoder_pattern": "window",
        "decoder_pattern_options": {"window": 3, "dilation": [[1, 1], [1, 3]]},
    },
    "growing": {"decoder_pattern": ["window", "full"], "decoder_pattern_options": {"window": [3, 5]}},
    "full, then a window": {"decoder_pattern": ["full", "window"], "decoder_pattern_options": {"window": 4}},
    "blocks": {"decoder_pattern": "block_local", "decoder_pattern_options": {"block": 3}},
    "rotary positions and shared keys": {
        "decoder_pattern": "window",
        "decoder_pattern_options": {"window": 3, "dilation": [[1, 2], [2, 2]]},
        "positions": "rotary",
        "num_key_value_heads": 1,
    },
    "sinks": {
        "decoder_pattern": ["window", "full"],
        "decoder_pattern_options": {"window": [[3, 5], 1], "global_tokens": 2},
        "positions": "rotary",
    },
    "strided": {
        "decoder_pattern": "strided",
        "decoder_pattern_options": {"stride": [4, 3], "part": ["both", "alternate"]},
    },
    "fixed": {
        "decoder_pattern": ["fixed", "full"],
        "decoder_pattern_options": {"block": 4, "last": [[1, 2], 1], "part": [["both", "distant"], "both"]},
        "positions": "rotary",
        "num_key_value_heads": 1,
    },
    "alibi": {
        "decoder_pattern": ["full", "window"],
        "decoder_pattern_options": {"window": 3, "dilation": [1, [1, 3]]},
        "positions": "alibi",
    },
    "buckets of distances": {
        "decoder_pattern": ["block_local", "full"],
        "decoder_pattern_options": {"block": 3},
        "positions": "relative_buckets",
        "num_buckets": 8,
        "max_distance": 20,
        "num_key_value_heads": 1,
    },
    "memory": {
        "decoder_pattern": ["memory", "full"],
        "decoder_pattern_options": {"segment_length": 5, "memory_length": 7},
        "positions": "relative_sinusoidal",
    },
    "additive": {
        "decoder_pattern": "window",
        "decoder_pattern_options": {"window": 4},
        "self_attention_score": "additive",
        "self_attention_distribution": "entmax",
    },
}


def language_model(implementation: str = "sdpa", **fields: Any) -> VaswaniForCausalLM:
    torch.manual_seed(0)
    config = VaswaniConfig(**{**SMALL, **fields}, eos_token_id=None, attn_implementation=implementation)
    return VaswaniForCausalLM(config).double().eval()


@pytest.mark.parametrize("name", PATTERNS)
def test_cached_equals_uncached(name: str) -> None:
    """Greedy search and beams, several returned, with padding on the left; and steps of several tokens."""
    model = language_model(**PATTERNS[name])
    ids = torch.randint(3, 23, (2, 13))
    mask = torch.ones_like(ids)
    mask[1, :5] = 0
    check_cached_generation(model, {"input_ids": ids, "attention_mask": mask}, max_new_tokens=14)
    whole = model(ids, attention_mask=mask).logits
    check_cached_steps(model, ids, mask, (6, 13))
    alone = model(ids[1:, 5:]).logits  # without its padding
    torch.testing.assert_close(alone[0], whole[1, 5:], atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", PATTERNS)
def test_later_tokens_change_nothing_and_weights_are_those_used(name: str) -> None:
    ids = torch.randint(3, 23, (1, 30))
    changed = ids.clone()
    changed[0, 17:] = 3
    eager = language_model("eager", **PATTERNS[name])
    fused = language_model("sdpa", **PATTERNS[name])
    outputs = eager(ids, output_attentions=True)
    torch.testing.assert_close(fused(ids).logits, outputs.logits, atol=1e-12, rtol=0)
    torch.testing.assert_close(fused(changed).logits[:, :17], outputs.logits[:, :17], atol=1e-12, rtol=0)
    assert len(outputs.attentions) == 2
    for layer, weights in enumerate(outputs.attentions):
        attention = eager.model.decoder.layers[layer].self_attn
        assert weights.shape == (1, 2, 30, 30)
        sums = torch.ones(1, 2, 30, dtype=torch.float64)
        for own, heads in getattr(attention, "layouts", []):
            steps = torch.arange(30)
            seen = own.sees(steps[:, None], steps).tril()
            assert not weights[:, heads][..., ~seen].any()
            sums[:, heads] = seen.any(-1).double()  # zero without any key
        torch.testing.assert_close(weights.sum(-1), sums)
    record = alignment(outputs, input_ids=ids)
    torch.testing.assert_close(record.weights.double(), torch.cat(outputs.attentions), atol=1e-6, rtol=0)
    assert torch.equal(record.weights == 0, torch.cat(outputs.attentions) == 0)


def test_the_cache_is_a_ring() -> None:
    model = language_model(decoder_pattern="window", decoder_pattern_options={"window": [4, 6]})
    generated = model.generate(
        torch.tensor([[3, 4]]), max_new_tokens=40, return_dict_in_generate=True, output_attentions=True
    )
    layers = generated.past_key_values.layers
    assert [layer.keys.shape[-2] for layer in layers] == [3, 5]
    assert generated.past_key_values.get_seq_length() == 41
    assert [weights.shape[-1] for weights in generated.attentions[-1]] == [41, 41]  # with zeros for dropped keys


@pytest.mark.parametrize("fields", [{}, {"positions": "rotary", "num_key_value_heads": 1}])
@pytest.mark.parametrize("number", [2, 9])
def test_global_tokens_of_an_encoder_have_projections_of_their_own(number: int, fields: dict[str, Any]) -> None:
    """Which start as copies; the layer is then attention under a mask, and later each row has its projections."""
    torch.manual_seed(0)
    pattern = {"encoder_pattern": "window", "encoder_pattern_options": {"window": 3, "global_tokens": number}}
    model = VaswaniForMaskedLM(VaswaniConfig(**SMALL, **pattern, **fields, attn_implementation="eager")).double().eval()
    dense = VaswaniForMaskedLM(VaswaniConfig(**SMALL, **fields, attn_implementation="eager")).double().eval()
    dense.load_state_dict(model.state_dict(), strict=False)
    ids = torch.randint(3, 23, (2, 24))
    padding = torch.ones_like(ids)
    padding[1, :5] = 0
    seen = torch.stack([literal_mask("window 3", 24, 24, False, before, 0) for before in (0, 5)])
    for row, before in ((0, 0), (1, 5)):
        seen[row, before : before + number] = seen[row, :, before : before + number] = True
    seen[1, :, :5] = False
    real = padding.bool()
    found = model(ids, padding, output_attentions=True)
    positions = (padding.cumsum(-1) - 1).clamp(min=0)
    expected = dense.model(ids, attention_mask=seen[:, None], position_ids=positions).last_hidden_state
    torch.testing.assert_close(found.logits[real], dense.lm_head(expected)[real], atol=1e-12, rtol=0)
    for weights in found.attentions:
        assert not weights[:, :, :, :].masked_fill(seen[:, None] | ~real[:, None, :, None], 0).any()

    attention = model.model.encoder.layers[0].self_attn
    with torch.no_grad():
        for name, parameter in attention.named_parameters():
            if name.startswith("global"):
                parameter.add_(torch.randn_like(parameter))
    states = torch.randn(2, 24, 24, dtype=torch.float64)
    rotation = model.model.encoder.rotations(states, positions)[0]
    found, weights = attention(states, padding, rotation=rotation)
    ordinary = dense.model.encoder.layers[0].self_attn
    of_rows = copy.deepcopy(ordinary)
    for part in "qkv":
        of_rows.get_submodule(f"{part}_proj").load_state_dict(
            attention.get_submodule(f"global_{part}_proj").state_dict()
        )
    expected, more = (each(states, seen[:, None], rotation=rotation) for each in (ordinary, of_rows))
    is_global = real & (positions < number)
    for own, first, second in zip(
        (found, weights.transpose(1, 2)),
        *((output, each.transpose(1, 2)) for output, each in (expected, more)),
        strict=True,
    ):
        torch.testing.assert_close(own[is_global], second[is_global], atol=1e-12, rtol=0)
        torch.testing.assert_close(own[real & ~is_global], first[real & ~is_global], atol=1e-12, rtol=0)


def test_missing_projections_of_global_tokens_become_copies(tmp_path: Path) -> None:
    torch.manual_seed(0)
    pattern = {"encoder_pattern": "window", "encoder_pattern_options": {"window": 3}}
    model: Any = VaswaniForMaskedLM(VaswaniConfig(**SMALL, **pattern))
    model.save_pretrained(tmp_path)
    options = {"encoder_pattern_options": {"window": 3, "global_tokens": 1}}
    loaded = VaswaniForMaskedLM.from_pretrained(tmp_path, **options)
    attention = loaded.model.encoder.layers[1].self_attn
    assert torch.equal(attention.global_v_proj.weight, model.model.encoder.layers[1].self_attn.v_proj.weight)
    with torch.no_grad():
        attention.global_v_proj.weight.zero_()
    loaded.save_pretrained(tmp_path / "trained")
    again = VaswaniForMaskedLM.from_pretrained(tmp_path / "trained")
    assert not again.model.encoder.layers[1].self_attn.global_v_proj.weight.any()
    assert torch.equal(again.model.encoder.layers[1].self_attn.global_q_proj.bias, attention.global_q_proj.bias)


def test_the_cache_of_fixed_blocks_has_the_block_and_the_last_keys_of_earlier_blocks() -> None:
    model = language_model(decoder_pattern="fixed", decoder_pattern_options={"block": 6, "last": [1, [2, 1]]})
    generated = model.generate(torch.tensor([[3, 4]]), max_new_tokens=40, return_dict_in_generate=True)
    layers = generated.past_key_values.layers
    assert [layer.keys.shape[-2] for layer in layers] == [6 + 5, 2 * 6 + 5]
    sinks = language_model(decoder_pattern="window", decoder_pattern_options={"window": [4, 1], "global_tokens": 2})
    of_sinks = sinks.generate(torch.tensor([[3, 4]]), max_new_tokens=40, return_dict_in_generate=True)
    assert [layer.keys.shape[-2] for layer in of_sinks.past_key_values.layers] == [3 + 2, 2]
    assert generated.past_key_values.get_seq_length() == 41
    for refused in (model, sinks):
        with pytest.raises(
            ValueError, match=r"cannot be cropped .*leave assistant_model and prompt_lookup_num_tokens out"
        ):
            refused.generate(torch.tensor([[3, 4] * 5]), prompt_lookup_num_tokens=2, max_new_tokens=40)


@pytest.mark.parametrize(
    "fields",
    [
        {"decoder_pattern": "window", "decoder_pattern_options": {"window": 1}},
        {"decoder_pattern": "window", "decoder_pattern_options": {"window": [4, 2], "dilation": 2}},
        {"decoder_pattern": ["window", "full"], "decoder_pattern_options": {"window": 3}, "positions": "rotary"},
        {"decoder_pattern": ["full", "block_local"], "decoder_pattern_options": {"block": 3}},
        {
            "decoder_pattern": "memory",
            "decoder_pattern_options": {"segment_length": 3, "memory_length": 2},
            "positions": "relative_sinusoidal",
        },
        {"decoder_pattern": "lsh", "decoder_pattern_options": {"buckets": 4, "keys": 3}},
    ],
)
def test_tokens_that_were_guessed_wrongly_are_taken_back(fields: dict[str, Any]) -> None:
    """By prompt lookup, or by another model with windows, the text is that of greedy search."""
    model = language_model(**fields, tie_word_embeddings=False)
    assistant = language_model(decoder_pattern="window", decoder_pattern_options={"window": 2})
    with torch.no_grad():
        for each in (model, assistant):  # so that texts are neither constant nor alike
            each.lm_head.weight.normal_()
    prompt = torch.tensor([[3, 4, 5, 3, 4, 5, 3, 4]])
    options: dict[str, Any] = {"max_new_tokens": 30, "do_sample": False, "eos_token_id": None}
    expected = model.generate(prompt, **options)
    assert not torch.equal(assistant.generate(prompt, **options), expected)
    assert len(set(expected[0, 8:].tolist())) > 2
    assert torch.equal(model.generate(prompt, **options, prompt_lookup_num_tokens=3), expected)
    assert torch.equal(model.generate(prompt, **options, assistant_model=assistant), expected)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    "pattern",
    [
        ("window", {"window": 3}),
        ("window", {"window": 3, "global_tokens": 2}),
        ("block_local", {"block": 4}),
        ("strided", {"stride": 4}),
        ("fixed", {"block": 4, "last": 2}),
    ],
)
def test_padding_of_an_encoder_is_invisible(pattern: tuple[str, dict[str, Any]], side: str) -> None:
    torch.manual_seed(0)
    config = VaswaniConfig(**SMALL, encoder_pattern=pattern[0], encoder_pattern_options=pattern[1])
    model = VaswaniForMaskedLM(config).double().eval()
    ids = torch.randint(3, 23, (2, 21))
    mask = torch.ones_like(ids)
    real = slice(6, None) if side == "left" else slice(-6)
    mask[1] = 0
    mask[1, real] = 1
    whole = model(ids, attention_mask=mask).logits
    torch.testing.assert_close(model(ids[1:, real]).logits[0], whole[1, real], atol=1e-12, rtol=0)
    torch.testing.assert_close(model(ids[:1]).logits[0], whole[0], atol=1e-12, rtol=0)


def test_a_translator_with_windows_in_both_stacks() -> None:
    torch.manual_seed(0)
    config = VaswaniConfig(
        **SMALL,
        encoder_pattern="window",
        encoder_pattern_options={"window": 3},
        decoder_pattern=["window", "full"],
        decoder_pattern_options={"window": [2, 2]},
        eos_token_id=None,
    )
    model = VaswaniForConditionalGeneration(config).double().eval()
    ids = torch.randint(3, 23, (2, 9))
    generated = [model.generate(ids, max_new_tokens=12, num_beams=2, use_cache=cached) for cached in (True, False)]
    assert torch.equal(*generated)


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"decoder_pattern": "windo"}, "'windo' is not a pattern; did you mean 'window'?"),
    "missing": (
        {"decoder_pattern": "window"},
        "The pattern 'window' needs the option 'window'; write it in decoder_pattern_options.",
    ),
    "no such option": (
        {"encoder_pattern": "window", "encoder_pattern_options": {"window": 3, "dilatation": 2}},
        "'dilatation' is not an option of encoder_pattern 'window'; did you mean 'dilation'?",
    ),
    "zero": (
        {"encoder_pattern": "window", "encoder_pattern_options": {"window": 0}},
        "window is 0; write a whole number of at least 1.",
    ),
    "layers": (
        {"encoder_pattern": ["window"], "encoder_pattern_options": {"window": 3}},
        "encoder_pattern has 1 values and the encoder 2 layers; write one value, or one for each layer.",
    ),
    "dilated and global": (
        {"encoder_pattern": "window", "encoder_pattern_options": {"window": 3, "dilation": 2, "global_tokens": 1}},
        "dilation is 2 and global_tokens 1, which a window cannot have together; leave one of them out.",
    ),
    "global heads": (
        {"encoder_pattern": "window", "encoder_pattern_options": {"window": 3, "global_tokens": [[1, 2], 1]}},
        "global_tokens is [1, 2], but the heads of a layer have the same ones; write a number.",
    ),
    "part": (
        {"encoder_pattern": "strided", "encoder_pattern_options": {"stride": 3, "part": "near"}},
        "'near' is not a part of the pattern (part); write one of 'both', 'local', 'distant'.",
    ),
    "last": (
        {"encoder_pattern": "fixed", "encoder_pattern_options": {"block": 3, "last": 4}},
        "last is 4 and block is 3; write at most 3.",
    ),
    "blocks": (
        {"encoder_pattern": "fixed", "encoder_pattern_options": {"block": [[3, 4], 3]}},
        "block is [3, 4], but the heads of a layer have blocks of one length; write a number.",
    ),
    "heads": (
        {"encoder_pattern": "window", "encoder_pattern_options": {"window": [[1, 2, 3], 4]}},
        "window has 3 values for the heads of layer 0, which has 2 heads; write one value, or one for each head.",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_configuration_is_one_sentence(name: str) -> None:
    fields, sentence = MISTAKES[name]
    with pytest.raises(StrictDataclassError) as error:
        VaswaniConfig(**SMALL, **fields)
    assert str(error.value.__cause__) == sentence


def test_what_a_pattern_cannot_do_is_one_sentence() -> None:
    model = language_model(**PATTERNS["window"])
    ids = torch.randint(3, 23, (1, 6))
    with pytest.raises(ValueError, match=r"attention_mask has the shape \(1, 1, 6, 6\).* pass 1 for tokens"):
        model(ids, attention_mask=torch.ones(1, 1, 6, 6))
    filled = DynamicCache()
    filled.update(torch.zeros(1, 2, 3, 12), torch.zeros(1, 2, 3, 12), 0)
    with pytest.raises(ValueError, match="a pattern of attention has a cache of its own"):
        model(ids, past_key_values=filled)
    with pytest.raises(ValueError, match="a pattern of attention has a cache of its own"):
        model.generate(ids, cache_implementation="static", max_new_tokens=2)
    attention = Attention(4, 4, "location", score_options={"max_length": 9})
    with pytest.raises(StrictDataclassError, match="The score 'location' needs the index of each key"):
        language_model(
            decoder_pattern="fixed",
            decoder_pattern_options={"block": 3},
            self_attention_score="location",
            self_attention_score_options={"max_length": 20},
        )
    with pytest.raises(ValueError, match="The score 'location' needs the index of each key"):
        Window(window=2)(attention, torch.randn(3, 4), attention.prepare(torch.randn(3, 4)), torch.randn(3, 4))
    attention = Attention(4, 4)
    with pytest.raises(ValueError, match="There are 4 queries and 3 keys"):
        Window(window=2)(attention, torch.randn(4, 4), attention.prepare(torch.randn(3, 4)), torch.randn(3, 4))
    marked = VaswaniForMaskedLM(
        VaswaniConfig(**SMALL, encoder_pattern="window", encoder_pattern_options={"window": 3, "global_tokens": 2})
    )
    with pytest.raises(ValueError, match=r"global_attention_mask marks .* write their number as global_tokens"):
        marked(ids, global_attention_mask=torch.ones_like(ids))


# The function


PATTERNS_OF_ATTEND: list[tuple[str, dict[str, Any]]] = [
    ("window", {"window": 5, "dilation": 2}),
    ("window", {"window": 5, "global_tokens": 3}),
    ("block_local", {"block": 4}),
    ("strided", {"stride": 4}),
    ("strided", {"stride": 4, "part": "local"}),
    ("fixed", {"block": 4, "last": 1, "part": "distant"}),
]


@pytest.mark.parametrize(("pattern", "options"), PATTERNS_OF_ATTEND)
@pytest.mark.parametrize("causal", [True, False])
def test_attend_with_a_pattern_equals_attend_with_its_mask(pattern: str, options: dict[str, int], causal: bool) -> None:
    torch.manual_seed(0)
    query = torch.randn(2, 3, 20, 4, dtype=torch.float64)
    key, value = torch.randn(2, 2, 1, 31, 4, dtype=torch.float64).unbind()  # the same for all heads
    real = torch.ones(2, 1, 1, 31, dtype=torch.bool)
    real[1, ..., 25:] = False
    keys = torch.arange(31)
    mask = LAYOUTS_BY_NAME[pattern](**options).sees(keys[11:, None], keys) & real
    if causal:
        mask = mask & (keys <= keys[11:, None])
    given: dict[str, Any] = {"score": "additive", "distribution": "entmax"}
    context, weights = attend(
        query, key, value, **given, mask=real, pattern=pattern, pattern_options=options, causal=causal
    )
    expected, expected_weights = attend(query, key, value, **given, mask=mask)
    torch.testing.assert_close(context, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(weights, expected_weights, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("pattern", "options"), PATTERNS_OF_ATTEND)
@pytest.mark.parametrize("shape", [(70,), (1, 70), (1, 1, 70)])
def test_a_mask_of_the_keys_may_have_fewer_dimensions(
    pattern: str, options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    """It is broadcast, and the text is long enough for blocks."""
    torch.manual_seed(0)
    states, real = torch.randn(2, 3, 70, 4, dtype=torch.float64), (torch.arange(70) >= 15)
    given: dict[str, Any] = {"pattern": pattern, "pattern_options": options, "need_weights": False}
    context, _ = attend(states, states, states, **given, mask=real.view(shape))
    expected, _ = attend(states, states, states, **given, mask=real.expand(2, 3, 1, 70))
    torch.testing.assert_close(context, expected, atol=1e-12, rtol=0)


def test_the_pattern_fixed_shows_the_last_key_of_each_block_by_default() -> None:
    torch.manual_seed(0)
    states = torch.randn(3, 11, 4, dtype=torch.float64)
    seen = torch.tensor([[j // 4 == i // 4 or j % 4 == 3 for j in range(11)] for i in range(11)])
    context, _ = attend(states, states, states, pattern="fixed", pattern_options={"block": 4})
    expected, _ = attend(states, states, states, mask=seen)
    torch.testing.assert_close(context, expected, atol=1e-12, rtol=0)


def test_attend_causally_equals_attend_with_a_mask() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(3, 4), torch.randn(7, 4)
    context, weights = attend(query, key, key, causal=True)
    expected, _ = attend(query, key, key, mask=torch.ones(3, 7, dtype=torch.bool).tril(4))
    torch.testing.assert_close(context, expected)
    assert weights is not None
    assert not weights.triu(5).any()


WINDOW = {"pattern": "window", "pattern_options": {"window": 2}}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({**WINDOW, "pattern": "windows"}, "'windows' is not a pattern; did you mean 'window'"),
        ({"pattern": "window"}, "The pattern 'window' needs the option 'window'; pass pattern_options={'window': a"),
        ({"pattern": "window", "pattern_options": {"width": 2}}, "'width' is not an option of the pattern 'window'"),
        ({"pattern_options": {"window": 2}}, 'pattern_options belong to a pattern; the pattern is "full"'),
        ({"pattern_options": {"window": 2}, "causal": True}, "pattern_options belong to a pattern"),
        ({**WINDOW, "mask": torch.ones(3, 3).bool()}, "with a pattern, pass one of the keys"),
        ({**WINDOW, "multiplier": torch.ones(3, 3)}, "A multiplier has a value for each query and key"),
        ({**WINDOW, "bias": torch.ones(3, 3)}, "A bias has a value for each query and key"),
    ],
)
def test_a_mistake_in_attend_is_one_sentence(given: dict[str, Any], sentence: str) -> None:
    vectors = torch.randn(3, 4)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        attend(vectors, vectors, vectors, **given)
    with pytest.raises(ValueError, match="There are 3 queries and 2 keys"):
        attend(vectors, vectors[:2], vectors[:2], causal=True)
