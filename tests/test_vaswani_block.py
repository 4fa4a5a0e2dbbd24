"""Options of later Transformers: each is its formula, and together they are the models that introduced them."""

import cmath
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from generation_tests import GenerationTests, Seq2SeqGenerationTests, sharpen
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import save_file
from test_saved_code import IDS, load_without_hfattn
from test_vaswani import HEADED, HEADS, H, V, batch, ids, make, options_of
from torch import nn
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    ContinuousBatchingConfig,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    LongformerConfig,
    LongformerForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    RobertaConfig,
    RobertaForMaskedLM,
    T5Config,
    T5ForConditionalGeneration,
)

from hfattn import (
    VaswaniConfig,
    VaswaniForCausalLM,
    VaswaniForConditionalGeneration,
    VaswaniForMaskedLM,
    VaswaniForSequenceClassification,
    VaswaniModel,
)
from hfattn.attention import SCORES
from hfattn.errors import UserError
from hfattn.exchange import convert, export
from hfattn.exchange.from_transformers import COUNTERPARTS, our_fields
from hfattn.hub import verify
from hfattn.tokenizers import build_character_tokenizer

# Each option away from its default.
OPTIONS: dict[str, dict[str, Any]] = {
    "rms": {"norm_type": "rms"},
    "gated": {"gated_feed_forward": True, "activation": "silu"},
    "no bias": {"bias": False},
    "rotary": {"positions": "rotary", "rope_theta": 50.0},
    "multi-query": {"num_key_value_heads": 1},
    "grouped": {"num_key_value_heads": 2},
}
ALL = {name: value for fields in OPTIONS.values() for name, value in fields.items()}


def randomize(model: Any) -> Any:
    """Random numbers in norms and biases too, so that one that is left out or misplaced shows."""
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model


# The formula, one position and one head at a time


def literal_norm(x: torch.Tensor, norm: Any, config: VaswaniConfig) -> torch.Tensor:
    numbers = x.tolist()
    if config.norm_type == "rms":
        assert not hasattr(norm, "bias") or norm.bias is None
        scale = math.sqrt(sum(number**2 for number in numbers) / H + config.layer_norm_eps)
        return torch.tensor([number / scale for number in numbers], dtype=torch.float64) * norm.weight
    mean = sum(numbers) / H
    scale = math.sqrt(sum((number - mean) ** 2 for number in numbers) / H + config.layer_norm_eps)
    normed = torch.tensor([(number - mean) / scale for number in numbers], dtype=torch.float64) * norm.weight
    assert (norm.bias is None) == (not config.bias)
    return normed if norm.bias is None else normed + norm.bias


def literal_linear(x: torch.Tensor, linear: Any, config: VaswaniConfig) -> torch.Tensor:
    assert (linear.bias is None) == (not config.bias)
    product = linear.weight @ x
    return product if linear.bias is None else product + linear.bias


def literal_rotation(x: torch.Tensor, position: int, config: VaswaniConfig) -> torch.Tensor:
    """Features i and i + d/2 of a head are a complex number, which is multiplied by e^(i p / theta^(2i/d))."""
    if config.positions != "rotary":
        return x
    half = config.head_width // 2
    rotated = [
        complex(x[i].item(), x[i + half].item()) * cmath.exp(1j * position / config.rope_theta ** (i / half))
        for i in range(half)
    ]
    return torch.tensor([z.real for z in rotated] + [z.imag for z in rotated], dtype=torch.float64)


def literal_attention(states: list[torch.Tensor], attention: Any, config: VaswaniConfig) -> list[torch.Tensor]:
    width = config.head_width
    query, key, value = (
        [literal_linear(state, getattr(attention, f"{part}_proj"), config) for state in states] for part in "qkv"
    )
    outputs = []
    for t in range(len(states)):
        context = []
        for head in range(HEADS):
            own = slice(head * width, (head + 1) * width)
            group = head * config.key_value_heads // HEADS
            shared = slice(group * width, (group + 1) * width)
            rotated = literal_rotation(query[t][own], t, config)
            energies = [
                (rotated @ literal_rotation(key[s][shared], s, config)).item() / math.sqrt(width) for s in range(t + 1)
            ]
            total = sum(math.exp(energy) for energy in energies)
            context.append(torch.stack([math.exp(energies[s]) / total * value[s][shared] for s in range(t + 1)]).sum(0))
        outputs.append(literal_linear(torch.cat(context), attention.out_proj, config))
    return outputs


def literal_feed_forward(x: torch.Tensor, network: Any, config: VaswaniConfig) -> torch.Tensor:
    activation = {"relu": torch.relu, "silu": lambda z: z / (1 + torch.exp(-z))}[config.activation]
    inner = activation(literal_linear(x, network.fc1, config))
    if config.gated_feed_forward:
        inner = inner * literal_linear(x, network.fc3, config)
    return literal_linear(inner, network.fc2, config)


def literal_logits(model: VaswaniForCausalLM, text: torch.Tensor) -> torch.Tensor:
    """(T) -> (T, V), for ``norm="pre"``."""
    config, decoder = model.config, model.model.decoder
    layers: Any = decoder.layers
    positions = decoder.add_positions(torch.zeros(1, len(text), H, dtype=torch.float64), torch.arange(len(text))[None])
    states = [decoder.embed_tokens.weight[i] * math.sqrt(H) + positions[0, t] for t, i in enumerate(text.tolist())]
    for layer in layers:
        normed = [literal_norm(state, layer.self_attn_residual.norm, config) for state in states]
        attended = literal_attention(normed, layer.self_attn, config)
        states = [state + output for state, output in zip(states, attended, strict=True)]
        normed = [literal_norm(state, layer.feed_forward_residual.norm, config) for state in states]
        states = [x + literal_feed_forward(y, layer.feed_forward, config) for x, y in zip(states, normed, strict=True)]
    return torch.stack([model.lm_head.weight @ literal_norm(state, decoder.norm, config) for state in states])


@pytest.mark.parametrize("attn_implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("fields", [{}, *OPTIONS.values(), ALL], ids=["2017", *OPTIONS, "all"])
def test_each_option_is_its_formula(fields: dict[str, Any], attn_implementation: str) -> None:
    """A stack computed by loops over positions, heads and pairs of positions, in float64."""
    model = randomize(make(VaswaniForCausalLM, norm="pre", attn_implementation=attn_implementation, **fields))
    text = ids(1, 6)
    torch.testing.assert_close(model(text).logits[0], literal_logits(model, text[0]), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("norm", ["post", "pre", "none"])
@pytest.mark.parametrize("kind", HEADED)
def test_the_options_belong_to_every_model_and_norm(kind: Any, norm: str) -> None:
    """Every parameter is used and trained, and a norm, gate or bias that is left out is nowhere."""
    fields = {name: value for name, value in ALL.items() if (norm, name) != ("none", "norm_type")}
    model, inputs = make(kind, norm=norm, **fields), batch(kind)
    outputs = model(**inputs)
    outputs.logits.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
        assert "classifier" in name or not name.endswith("bias")
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm | nn.RMSNorm)]
    assert all(isinstance(module, nn.RMSNorm) for module in norms)
    assert bool(norms) == (norm != "none")


def test_t_fixup_scales_the_gate_too() -> None:
    """Without norms, every matrix of the feed-forward network starts smaller."""
    sizes = {"hidden_size": 128, "intermediate_size": 128, "vocab_size": 50}
    model = make(VaswaniForMaskedLM, norm="none", dtype=torch.float32, **OPTIONS["gated"], **sizes)
    network = model.model.encoder.layers[0].feed_forward
    edge = 0.67 * 2**-0.25 * math.sqrt(6 / 256)
    for linear in (network.fc1, network.fc2, network.fc3):
        assert linear.weight.abs().max().item() == pytest.approx(edge, rel=1e-3)


def test_two_thirds_of_the_inner_width_keep_the_number_of_parameters() -> None:
    plain, gated = (
        make(VaswaniForConditionalGeneration, intermediate_size=size, gated_feed_forward=gate, bias=False)
        for size, gate in ((48, False), (32, True))
    )
    assert gated.num_parameters() == plain.num_parameters()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"norm_type": "RMSNorm"}, "norm_type is 'RMSNorm'; write one of 'layer', 'rms'."),
        ({"embedding_norm": True, "norm": "none"}, "write norm: pre or post, or leave embedding_norm out."),
        ({"local_rope_theta": -1}, "local_rope_theta is -1; write a number above 0, such as 10000."),
        ({"norm_type": "rms", "norm": "none"}, "write norm: pre or post, or leave norm_type out."),
        ({"gated_feed_forward": "silu"}, "expected bool, got str"),
        ({"activation": "swiglu"}, "write one of 'relu', 'gelu', 'gelu_new', 'silu', 'tanh'"),
        ({"positions": "rotary", "head_dim": 5}, "but head_dim is 5; write an even head_dim, or other positions."),
        ({"initialization": "T5"}, "initialization is 'T5'; write one of 'glorot', 't5'."),
        ({"rope_theta": 0}, "rope_theta is 0; write a number above 0, such as 10000."),
        ({"num_key_value_heads": 0}, "num_key_value_heads is 0; write a whole number of at least 1."),
        ({"num_key_value_heads": 3}, "3 does not divide num_attention_heads 8; write a divisor of it, such as 1, or"),
        ({"num_key_value_heads": 16}, "16 does not divide num_attention_heads 8; write a divisor of it"),
        ({"num_layers": 3}, "'num_layers' is not a field of VaswaniConfig"),
    ],
)
def test_a_wrong_option_is_refused_with_what_to_write_instead(fields: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, StrictDataclassError)) as error:
        VaswaniConfig(**{"vocab_size": V, **fields})
    assert message in str(error.value)


# Rotary positions

# Scores that depend on q·k, ‖q‖ and ‖k‖ alone; a rotation of both changes none of them.
RELATIVE = {"dot", "scaled_dot", "cosine", "gaussian", "sq_euclidean", "euclidean", "boxcar"}


@pytest.mark.parametrize("score", sorted(SCORES))
def test_rotary_positions_under_every_score(score: str) -> None:
    """The score compares rotated vectors; only inner products and distances then depend on relative positions alone."""
    fields: dict[str, Any] = {"self_attention_score": score, "self_attention_score_options": options_of(score)}
    fields |= {"positions": "rotary", "num_key_value_heads": 2, "attn_implementation": "eager"}
    model = randomize(make(VaswaniForCausalLM, norm="pre", **fields))
    attention = model.model.decoder.layers[0].self_attn
    states, places = torch.randn(1, 5, H, dtype=torch.float64), torch.arange(5)[None]
    found, _ = attention(states, rotation=model.model.decoder.rotations(states, places)[0])
    query, key, value = (
        getattr(attention, f"{part}_proj")(states)[0].unflatten(-1, (-1, config_width(model))).transpose(0, 1)
        for part in "qkv"
    )
    query, key = (
        torch.stack([torch.stack([literal_rotation(x, t, model.config) for t, x in enumerate(head)]) for head in heads])
        for heads in (query, key)
    )
    outputs = []
    for head in range(HEADS):
        prepared = attention.attention.prepare(key[head // 2])
        outputs.append(attention.attention(query[head], prepared, value[head // 2])[0])
    torch.testing.assert_close(found[0], attention.out_proj(torch.cat(outputs, dim=-1)))

    shifted, _ = attention(states, rotation=model.model.decoder.rotations(states, places + 7)[0])
    assert torch.allclose(found, shifted, atol=1e-12) == (score in RELATIVE)


def config_width(model: Any) -> int:
    return model.config.head_width


def test_cross_attention_is_not_rotated() -> None:
    """Its queries and keys belong to different texts."""
    model = make(**OPTIONS["rotary"])
    attention, states = model.model.decoder.layers[0].cross_attn, torch.randn(2, 5, H, dtype=torch.float64)
    rotation = model.model.decoder.rotations(states, torch.arange(5)[None])[0]
    plain = attention(states, key_value_states=states)[0]
    assert torch.equal(attention(states, key_value_states=states, rotation=rotation)[0], plain)


# Uses of the whole block


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", HEADED)
def test_padding_is_invisible(kind: Any, side: str) -> None:
    model, inputs = randomize(make(kind, norm="pre", **ALL)), batch(kind)
    expected = model(**inputs).logits
    number = (3, 0) if side == "left" else (0, 3)
    padded = {name: nn.functional.pad(tensor, number, value=5) for name, tensor in inputs.items()}
    for name in inputs:
        mask_name = name.replace("input_ids", "attention_mask")
        padded[mask_name] = nn.functional.pad(torch.ones_like(inputs[name]), number)
    found = model(**padded).logits
    if found.ndim == 3:
        found = found[:, 3:] if side == "left" else found[:, :-3]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("number", [1, 2, 4])
def test_the_cache_has_only_the_heads_of_the_keys(number: int) -> None:
    fields = {**ALL, "num_key_value_heads": number}
    cache = make(VaswaniForCausalLM, norm="pre", **fields)(ids(2, 6)).past_key_values
    assert {tuple(layer.keys.shape) for layer in cache.layers} == {(2, number, 6, H // HEADS)}
    assert {tuple(layer.values.shape) for layer in cache.layers} == {(2, number, 6, H // HEADS)}


@pytest.mark.parametrize("number", [1, 2, 4])
def test_continuous_batching_writes_what_generate_does(number: int) -> None:
    """Its paged cache, too, has only the heads of the keys."""
    model = randomize(make(VaswaniForCausalLM, num_key_value_heads=number, positions="rotary", dtype=torch.float32))
    texts = [ids(length)[None] for length in (5, 3, 1)]
    options: dict[str, Any] = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": 2, "pad_token_id": 0}
    found = model.generate_batch(
        [text[0].tolist() for text in texts],
        generation_config=GenerationConfig(**options),
        # Otherwise the cache would take most of the memory of the machine.
        continuous_batching_config=ContinuousBatchingConfig(num_blocks=8, page_size=16, max_batch_tokens=64),
    )
    expected = [model.generate(text, **options)[0, text.shape[1] :].tolist() for text in texts]
    assert [each.generated_tokens for each in found.values()] == expected


def test_continuous_batching_with_a_pattern_is_one_sentence() -> None:
    model = make(VaswaniForCausalLM, decoder_pattern="window", decoder_pattern_options={"window": 3})
    with pytest.raises(ValueError, match="a pattern of attention has a cache of its own; use generate"):
        model.generate_batch([[3, 4, 5]], generation_config=GenerationConfig(max_new_tokens=2))


@pytest.mark.parametrize("attn_implementation", ["sdpa", "eager"])
def test_local_layers_have_a_base_of_their_own(attn_implementation: str) -> None:
    """All keys and windows in turn, a token at a time and at once, padded on the left."""
    fields = {**ALL, "norm": "pre", "attn_implementation": attn_implementation}
    patterns = {"decoder_pattern": ["full", "window", "full"], "decoder_pattern_options": {"window": 3}}
    model = randomize(make(VaswaniForCausalLM, **fields, **patterns, local_rope_theta=5.0))
    text = ids(2, 8)
    mask = torch.ones_like(text)
    mask[0, :2] = 0
    real = mask.bool()
    whole = model(text, attention_mask=mask).logits[real]
    cache: Any = None
    steps = []
    for t in range(8):
        outputs = model(text[:, t : t + 1], attention_mask=mask[:, : t + 1], past_key_values=cache, use_cache=True)
        cache = outputs.past_key_values
        steps.append(outputs.logits)
    torch.testing.assert_close(torch.cat(steps, dim=1)[real], whole)
    assert [layer.keys.shape[1:3] for layer in cache.layers] == [(2, 8), (2, 2), (2, 8)]

    # A window as wide as the text is full attention with the other base.
    wide = {**patterns, "decoder_pattern": "window", "decoder_pattern_options": {"window": 8}}
    windows, full = (
        randomize(make(VaswaniForCausalLM, **{**fields, **own}))
        for own in ({**wide, "local_rope_theta": 5.0}, {"rope_theta": 5.0})
    )
    torch.testing.assert_close(windows(text, mask).logits[real], full(text, mask).logits[real])
    assert not torch.allclose(whole, full(text, mask).logits[real])


@pytest.mark.examples  # slow
def test_a_saved_folder_runs_where_hfattn_is_not_installed(tmp_path: Path) -> None:
    model = randomize(make(VaswaniForCausalLM, norm="pre", dtype=torch.float32, **{**ALL, "vocab_size": 12}))
    folders = [tmp_path / name for name in ("one", "two", "three")]
    model.save_pretrained(folders[0])
    for logits in load_without_hfattn("VaswaniForCausalLM", folders):
        torch.testing.assert_close(logits, model(IDS).logits)


@pytest.mark.examples
@pytest.mark.parametrize("kind", [VaswaniForCausalLM, VaswaniForMaskedLM, VaswaniForConditionalGeneration])
def test_onnx_graphs(tmp_path: Path, kind: Any) -> None:
    """``export`` compares the graph with the model on padded batches of several sizes before it keeps it."""
    model = randomize(make(kind, norm="pre", dtype=torch.float32, embedding_norm=True, lm_head_transform=True, **ALL))
    model.save_pretrained(tmp_path / "model")
    export("onnx", tmp_path / "model", tmp_path / "graph")
    assert (tmp_path / "graph" / "model.onnx").is_file()


MODERN = {**ALL, "norm": "pre", "tie_word_embeddings": False, "scale_embedding": False, "vocab_size": 12}


class TestCausalGeneration(GenerationTests):
    @pytest.fixture
    def make(self) -> Callable[..., Any]:
        return lambda **fields: sharpen(make(VaswaniForCausalLM, **{**MODERN, **fields}), 3)


class TestSeq2SeqGeneration(Seq2SeqGenerationTests):
    @pytest.fixture
    def make(self) -> Callable[..., Any]:
        other = {"self_attention_score": "additive", "cross_attention_distribution": "entmax"}
        return lambda **fields: sharpen(make(**{**MODERN, **other, **fields}), 3)


# The models that introduced them


def llama(**fields: Any) -> LlamaForCausalLM:
    sizes = {"vocab_size": V, "hidden_size": H, "intermediate_size": 24, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": HEADS, "pad_token_id": 0}
    return randomize(LlamaForCausalLM(LlamaConfig(**{**sizes, **fields})).eval())


def modernbert(**fields: Any) -> ModernBertForMaskedLM:
    sizes = {"vocab_size": V, "hidden_size": H, "intermediate_size": 24, "num_hidden_layers": 4}
    sizes |= {"num_attention_heads": HEADS, "local_attention": 4}
    sizes |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
    return randomize(ModernBertForMaskedLM(ModernBertConfig(**{**sizes, **fields})).eval())


def like_bert(kind: Any, config: Any, **fields: Any) -> Any:
    sizes = {"vocab_size": V, "hidden_size": H, "intermediate_size": 24, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": HEADS, "max_position_embeddings": 24}
    return randomize(kind(config(**{**sizes, **fields})).eval())


def longformer(**fields: Any) -> Any:
    return like_bert(LongformerForMaskedLM, LongformerConfig, **{"attention_window": 4, **fields})


LIKE_BERT: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "bert": (lambda: like_bert(BertForMaskedLM, BertConfig, hidden_act="relu"), {}),
    "roberta": (lambda: like_bert(RobertaForMaskedLM, RobertaConfig, tie_word_embeddings=False), {}),
    "longformer": (lambda: longformer(attention_window=[8, 4]), {}),
    "longformer, 3 global": (longformer, {"encoder_pattern_options": {"window": 3, "global_tokens": 3}}),
    "longformer, none global": (longformer, {"encoder_pattern_options": {"window": 3}}),
}


@pytest.mark.parametrize("name", LIKE_BERT)
def test_weights_of_models_like_bert(tmp_path: Path, name: str) -> None:
    """The same logits with padding on either side, and from Longformer back."""
    make_theirs, settings = LIKE_BERT[name]
    theirs = make_theirs()
    theirs.save_pretrained(tmp_path / "theirs")
    ours: Any = convert("transformers", tmp_path / "theirs", tmp_path / "ours", settings=settings).model.eval()
    text = ids(2, 17).clamp(min=2)
    number = ours.config.layer_pattern("encoder", 0)[1].get("global_tokens", 0)
    is_longformer = isinstance(theirs, LongformerForMaskedLM)
    if is_longformer:
        export("transformers", tmp_path / "ours", tmp_path / "back")
        back = LongformerForMaskedLM.from_pretrained(tmp_path / "back").eval()
        assert back.config.attention_window == ([8, 4] if name == "longformer" else [4, 4])
        again: Any = convert("transformers", tmp_path / "back", tmp_path / "again").model
        assert again.config.encoder_pattern_options == ours.config.encoder_pattern_options
    for before, after in ((0, 4), (4, 0)):
        mask = torch.ones_like(text)
        mask[1, :before] = 0
        mask[1, 17 - after :] = 0
        padded = text.masked_fill(mask == 0, theirs.config.pad_token_id)
        inputs: dict[str, Any] = {"attention_mask": mask}
        if is_longformer:
            inputs["global_attention_mask"] = ((mask.cumsum(-1) <= number) & mask.bool()).long()
        elif isinstance(theirs, BertForMaskedLM):
            inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
        expected = theirs(padded, **inputs).logits[mask.bool()]
        for attn_implementation in ("sdpa", "eager"):
            ours.set_attn_implementation(attn_implementation)
            found = ours(padded, attention_mask=mask).logits[mask.bool()]
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        if is_longformer:
            torch.testing.assert_close(back(padded, **inputs).logits[mask.bool()], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_a_dense_model_becomes_one_of_windows(tmp_path: Path, name: str) -> None:
    """With a window as long as the text its logits are those of the dense model; positions are repeated."""
    theirs = LIKE_BERT[name][0]()
    theirs.save_pretrained(tmp_path / "theirs")
    tokenizer = build_character_tokenizer(["to be"])
    tokenizer.model_max_length = 24
    tokenizer.save_pretrained(tmp_path / "theirs")
    dense: Any = convert("transformers", tmp_path / "theirs", tmp_path / "dense").model.eval()
    number = dense.config.max_position_embeddings
    settings = {
        "encoder_pattern": "window",
        "encoder_pattern_options": {"window": 20, "global_tokens": 1},
        "max_position_embeddings": 100,
    }
    converted = convert("transformers", tmp_path / "theirs", tmp_path / "long", settings=settings)
    long: Any = converted.model.eval()
    assert AutoTokenizer.from_pretrained(tmp_path / "long").model_max_length == 100
    text = ids(2, 20).clamp(min=2)
    torch.testing.assert_close(long(text).logits, theirs(text).logits, rtol=1e-5, atol=1e-5)
    positions = long.model.encoder.embed_positions.weight
    assert positions.shape == (100, H)
    assert torch.equal(positions[number : 2 * number], dense.model.encoder.embed_positions.weight)
    loss = long(ids(2, 100), labels=ids(2, 100)).loss
    loss.backward()
    for parameter_name, parameter in long.named_parameters():
        assert parameter.grad is not None, parameter_name
    # The projections of the global token are copies, which are trained apart.
    attention = long.model.encoder.layers[0].self_attn
    assert torch.equal(attention.global_k_proj.weight, attention.k_proj.weight)
    assert not torch.equal(attention.global_k_proj.weight.grad, attention.k_proj.weight.grad)
    if name == "roberta":  # whose activation is also that before the output layer
        narrow = {**settings, "encoder_pattern_options": {"window": 2, "global_tokens": 1}}
        convert("transformers", tmp_path / "theirs", tmp_path / "narrow", settings=narrow)
        with pytest.raises(UserError, match=r"at least 3, and w - 1 of the largest .* the windows \[2, 2\]"):
            export("transformers", tmp_path / "narrow", tmp_path / "back")
        export("transformers", tmp_path / "long", tmp_path / "longformer")
        back = LongformerForMaskedLM.from_pretrained(tmp_path / "longformer").eval()
        inputs = {"global_attention_mask": torch.zeros_like(text)}
        inputs["global_attention_mask"][:, 0] = 1
        torch.testing.assert_close(back(text, **inputs).logits, theirs(text).logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "llama", "modernbert"])
def test_a_model_without_an_output_layer(tmp_path: Path, name: str) -> None:
    """A sentence encoder, for example: the states are those of the original, and a classifier starts from them."""
    theirs = {"bert": LIKE_BERT["bert"][0], "llama": llama, "modernbert": modernbert}[name]().base_model
    theirs.save_pretrained(tmp_path / "theirs")
    build_character_tokenizer(["to be"]).save_pretrained(tmp_path / "theirs")
    converted = convert("transformers", tmp_path / "theirs", tmp_path / "ours")
    assert type(converted.model) is VaswaniModel
    assert not (tmp_path / "ours" / "README.md").exists()  # it has no task
    ours = VaswaniModel.from_pretrained(tmp_path / "ours").eval()
    text = ids(2, 17).clamp(min=2)
    found, expected = ours(text).last_hidden_state, theirs(text).last_hidden_state
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    if name == "bert":
        classifier: Any = VaswaniForSequenceClassification.from_pretrained(tmp_path / "ours", num_labels=2)
        for parameter_name, parameter in ours.encoder.named_parameters():
            assert torch.equal(parameter, classifier.model.encoder.get_parameter(parameter_name)), parameter_name


THEIRS = {
    "llama": lambda: llama(),
    "grouped": lambda: llama(num_key_value_heads=2, tie_word_embeddings=True, rms_norm_eps=1e-3),
    "biased": lambda: llama(attention_bias=True, mlp_bias=True, head_dim=8, rope_parameters={"rope_theta": 300.0}),
    "modernbert": lambda: modernbert(),
    "modernbert global": lambda: modernbert(
        layer_types=["full_attention"] * 4, local_attention=128, tie_word_embeddings=False
    ),
    "modernbert biased": lambda: modernbert(
        attention_bias=True, mlp_bias=True, norm_bias=True, classifier_bias=True, decoder_bias=False, norm_eps=1e-3
    ),
}


@pytest.mark.parametrize("name", THEIRS)
def test_weights_go_to_vaswani_and_back(tmp_path: Path, name: str) -> None:
    """The same logits with padding on either side, in one forward pass and token by token; and bit for bit back."""
    theirs: Any = THEIRS[name]()
    theirs.save_pretrained(tmp_path / "theirs")
    ours: Any = convert("transformers", tmp_path / "theirs", tmp_path / "ours").model.eval()
    text = ids(2, 9)
    for number in ((0, 4), (4, 0)):
        mask = torch.ones_like(text)
        mask[1, : number[0]] = 0
        mask[1, 9 - number[1] :] = 0
        # Theirs counts padding as positions, unless it is told otherwise.
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        for attn_implementation in ("sdpa", "eager"):
            ours.set_attn_implementation(attn_implementation)
            found, expected = (
                model(text, attention_mask=mask, **more).logits[mask.bool()]
                for model, more in ((ours, {}), (theirs, {"position_ids": positions}))
            )
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    if isinstance(theirs, LlamaForCausalLM):
        options = {"max_new_tokens": 8, "num_beams": 2, "do_sample": False, "eos_token_id": None}
        assert torch.equal(ours.generate(text, **options), theirs.generate(text, **options))

    export("transformers", tmp_path / "ours", tmp_path / "back")
    assert not list((tmp_path / "back").glob("*.py"))
    back = type(theirs).from_pretrained(tmp_path / "back")
    assert back.state_dict().keys() == theirs.state_dict().keys()
    assert all(torch.equal(tensor, back.state_dict()[key]) for key, tensor in theirs.state_dict().items())
    own = {key: value for key, value in theirs.config.to_dict().items() if not key.startswith(("_", "transformers"))}
    assert {key: back.config.to_dict()[key] for key in own} == own


def t5(**fields: Any) -> T5ForConditionalGeneration:
    sizes = {"vocab_size": V, "d_model": H, "d_ff": 24, "d_kv": 5, "num_layers": 2}
    sizes |= {"num_heads": 4, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12}
    sizes |= {"decoder_start_token_id": 0}
    return randomize(T5ForConditionalGeneration(T5Config(**{**sizes, **fields})).eval())


def untied(model: T5ForConditionalGeneration) -> T5ForConditionalGeneration:
    """T5 1.1, whose output layer transformers loads as it is, whatever the configuration says."""
    model.lm_head.weight = nn.Parameter(torch.randn_like(model.lm_head.weight))
    return model


THEIR_T5 = {
    "t5": lambda: t5(),
    "1.1": lambda: untied(t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
    "scaled and untied": lambda: untied(
        t5(feed_forward_proj="gated-silu", layer_norm_epsilon=1e-3, num_decoder_layers=3)
    ),
}


def largest(tensor: torch.Tensor) -> float:
    return float(tensor.abs().max())


@pytest.mark.parametrize("name", THEIR_T5)
def test_t5_goes_to_vaswani_and_back(tmp_path: Path, name: str) -> None:
    """The same logits, losses, gradients and hypotheses, padded on either side; and bit for bit back."""
    theirs: Any = THEIR_T5[name]()
    theirs.save_pretrained(tmp_path / "theirs")
    ours: Any = convert("transformers", tmp_path / "theirs", tmp_path / "ours").model.eval()
    ours = type(ours).from_pretrained(tmp_path / "ours").eval()
    assert isinstance(ours, VaswaniForConditionalGeneration)
    source, target = ids(2, 19), ids(2, 15)  # longer than max_distance
    for number in ((0, 6), (6, 0)):
        mask = torch.ones_like(source)
        mask[1, : number[0]] = 0
        mask[1, 19 - number[1] :] = 0
        for attn_implementation in ("sdpa", "eager"):
            ours.set_attn_implementation(attn_implementation)
            found, expected = (model(source, attention_mask=mask, labels=target) for model in (ours, theirs))
            # Both norms compute in float32, whose rounding grows with the largest logit.
            torch.testing.assert_close(found.logits, expected.logits, rtol=0, atol=3e-6 * largest(expected.logits))
            torch.testing.assert_close(found.loss, expected.loss, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(
            found.encoder_last_hidden_state[mask.bool()], expected.encoder_last_hidden_state[mask.bool()]
        )
        for beams in (1, 3):
            options = {"attention_mask": mask, "max_new_tokens": 14, "num_beams": beams, "do_sample": False}
            # Their cache has as many layers as the encoder.
            cached = theirs.config.num_layers == theirs.config.num_decoder_layers
            expected_ids = theirs.generate(source, use_cache=cached, **options)
            assert torch.equal(ours.generate(source, **options), expected_ids)
    ours.zero_grad()
    for model in (ours, theirs):
        model(source, labels=target).loss.backward()
    gradient = theirs.shared.weight.grad
    torch.testing.assert_close(
        ours.model.decoder.embed_tokens.weight.grad, gradient, rtol=0, atol=2e-5 * largest(gradient)
    )
    torch.testing.assert_close(
        ours.get_parameter("model.encoder.position_bias.table.weight").grad,
        theirs.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight.grad,
        rtol=1e-4,
        atol=1e-6,
    )

    export("transformers", tmp_path / "ours", tmp_path / "back")
    assert not list((tmp_path / "back").glob("*.py"))
    back = T5ForConditionalGeneration.from_pretrained(tmp_path / "back")
    assert back.state_dict().keys() == theirs.state_dict().keys()
    assert all(torch.equal(tensor, back.state_dict()[key]) for key, tensor in theirs.state_dict().items())
    own = {key: value for key, value in theirs.config.to_dict().items() if not key.startswith(("_", "transformers"))}
    assert {key: back.config.to_dict()[key] for key in own} == own


def test_older_files_of_t5(tmp_path: Path) -> None:
    """They have the embedding three or four times, and a table of cross-attention that nothing uses."""
    theirs: Any = t5()
    theirs.save_pretrained(tmp_path / "theirs")
    shared = theirs.shared.weight.detach()
    more = {f"{name}.weight": shared.clone() for name in ("encoder.embed_tokens", "decoder.embed_tokens", "lm_head")}
    more["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = torch.zeros(8, 4)
    state = {name: tensor for name, tensor in theirs.state_dict().items() if tensor.data_ptr() != shared.data_ptr()}
    save_file({**state, "shared.weight": shared, **more}, tmp_path / "theirs" / "model.safetensors")
    ours: Any = convert("transformers", tmp_path / "theirs", tmp_path / "ours").model.eval()
    assert ours.config.tie_word_embeddings
    text = ids(2, 9)
    torch.testing.assert_close(ours(text, labels=text).logits, theirs(text, labels=text).logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("preset", ["t5", "t5_v1_1"])
def test_t5_starts_with_logits_of_variance_one(preset: str) -> None:
    """W^Q starts with the scale that the energies lack, as in transformers; the output of 1.1 is not scaled."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 400, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 512}
    config = VaswaniConfig.preset(preset, **sizes, encoder_layers=1, decoder_layers=1)
    ours: Any = VaswaniForConditionalGeneration(config).eval()
    theirs = T5ForConditionalGeneration(
        T5Config(vocab_size=400, d_model=256, d_kv=64, num_heads=4, d_ff=512, num_layers=1)
    )
    first, cross = "encoder.block.0.layer.0.SelfAttention", "decoder.block.0.layer.1.EncDecAttention"
    pairs = {
        "model.decoder.embed_tokens.weight": "shared.weight",
        "model.encoder.position_bias.table.weight": f"{first}.relative_attention_bias.weight",
        **{
            f"model.decoder.layers.0.cross_attn.{own}_proj.weight": f"{cross}.{part}.weight"
            for own, part in {"q": "q", "k": "k", "v": "v", "out": "o"}.items()
        },
        "model.encoder.layers.0.self_attn.q_proj.weight": f"{first}.q.weight",
        "model.encoder.layers.0.feed_forward.fc1.weight": "encoder.block.0.layer.1.DenseReluDense.wi.weight",
        "model.encoder.layers.0.feed_forward.fc2.weight": "encoder.block.0.layer.1.DenseReluDense.wo.weight",
    }
    for name, other in pairs.items():
        found, expected = ours.get_parameter(name).std().item(), theirs.get_parameter(other).std().item()
        assert found == pytest.approx(expected, rel=0.3 if "bias" in name else 0.05), name
    logits = ours(torch.randint(400, (4, 30)), labels=torch.randint(400, (4, 30))).logits
    assert logits.std().item() == pytest.approx(1, rel=0.25)  # tied, a token predicts itself


@pytest.mark.parametrize("kind", [VaswaniForConditionalGeneration, VaswaniForCausalLM])
def test_the_output_of_the_decoder_is_scaled(kind: Any) -> None:
    """Before the output layer, in lean steps of a generation too."""
    plain = randomize(make(kind))
    scaled = make(kind, scale_decoder_outputs=True)
    scaled.load_state_dict(plain.state_dict())
    inputs = batch(kind)
    torch.testing.assert_close(scaled(**inputs).logits, plain(**inputs).logits / math.sqrt(H))
    if kind is VaswaniForConditionalGeneration:
        options = {"max_new_tokens": 6, "num_beams": 2, "do_sample": False, "eos_token_id": None}
        options |= {"return_dict_in_generate": True, "output_scores": True}
        assert scaled.why_not_fast() is None
        found = scaled.generate(inputs["input_ids"], **options)
        scaled.fast_generation = False
        expected = scaled.generate(inputs["input_ids"], **options)
        assert torch.equal(found.sequences, expected.sequences)
        torch.testing.assert_close(found.sequences_scores, expected.sequences_scores)


@pytest.mark.examples  # slow
def test_a_converted_t5_translates(tmp_path: Path) -> None:
    """Its tokenizer is kept, and the folder is verified in a process without hfattn."""
    tokenizer = build_character_tokenizer(["to be, or not"])
    t5(vocab_size=len(tokenizer)).save_pretrained(tmp_path / "theirs")
    tokenizer.save_pretrained(tmp_path / "theirs")
    convert("transformers", tmp_path / "theirs", tmp_path / "ours")
    report = verify(tmp_path / "ours")
    assert report.passed, report
    assert AutoTokenizer.from_pretrained(tmp_path / "ours")("to be").input_ids == tokenizer("to be").input_ids


@pytest.mark.examples  # slow
def test_a_converted_llama_keeps_its_tokenizer_and_can_be_verified(tmp_path: Path) -> None:
    tokenizer = build_character_tokenizer(["to be, or not"])
    llama(vocab_size=len(tokenizer)).save_pretrained(tmp_path / "theirs", max_shard_size="4KB")
    tokenizer.save_pretrained(tmp_path / "theirs")
    assert len([*(tmp_path / "theirs").glob("*.safetensors")]) > 1
    converted = convert("transformers", tmp_path / "theirs", tmp_path / "ours", settings={"dropout": 0.2})
    assert converted.model.config.dropout == 0.2
    report = verify(tmp_path / "ours")
    assert report.passed, report
    assert AutoTokenizer.from_pretrained(tmp_path / "ours")("to be").input_ids == tokenizer("to be").input_ids
    export("transformers", tmp_path / "ours", tmp_path / "back")
    assert AutoTokenizer.from_pretrained(tmp_path / "back")("to be").input_ids == tokenizer("to be").input_ids


@pytest.mark.parametrize(
    ("theirs", "sentence"),
    [
        (lambda: llama(attention_bias=True), "attention_bias=True and mlp_bias=False; our models have biases in all"),
        (lambda: modernbert(attention_dropout=0.1), "attention_dropout=0.1; only 0 is supported"),
        (
            lambda: modernbert(classifier_activation="relu"),
            "classifier_activation=relu and hidden_activation=gelu;",
        ),
        (
            lambda: llama(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}),
            "rotary positions of the type linear; only default is supported",
        ),
        (
            lambda: longformer(hidden_act="relu"),
            "hidden_act=relu, and gelu before its output layer",
        ),
        (
            lambda: like_bert(BertForMaskedLM, BertConfig, is_decoder=True),
            "The model is a decoder; only encoders",
        ),
        (lambda: llama(hidden_act="relu6"), "write one of 'relu', 'gelu', 'gelu_new', 'silu', 'tanh'"),
        (
            lambda: GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=5)),
            "'gpt2' is not a model_type of transformers that can be converted; write one of 'llama', 'modernbert'",
        ),
        (lambda: LlamaForSequenceClassification(llama().config), "has no lm_head.weight"),
    ],
)
def test_what_we_do_not_have(tmp_path: Path, theirs: Any, sentence: str) -> None:
    theirs().save_pretrained(tmp_path / "theirs")
    with pytest.raises(UserError, match=sentence):
        convert("transformers", tmp_path / "theirs", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    ("kind", "fields", "sentence"),
    [
        (VaswaniForCausalLM, {"positions": "learned"}, "transformers has positions=rotary, but this model has learned"),
        (VaswaniForCausalLM, {"self_attention_score": "additive"}, "has self_attention_score=scaled_dot, but this"),
        (VaswaniForCausalLM, {"final_norm": False}, "has final_norm=True, but this model has False"),
        (
            VaswaniForCausalLM,
            {"decoder_pattern": "window", "decoder_pattern_options": {"window": 2}},
            r"LlamaForCausalLM of transformers has decoder_pattern=\[\('full', {}\)",
        ),
        (VaswaniForMaskedLM, {}, "ModernBertForMaskedLM of transformers has "),
        (VaswaniForConditionalGeneration, {}, "T5ForConditionalGeneration of transformers has "),
        (VaswaniForSequenceClassification, {}, "VaswaniForSequenceClassification has no counterpart in transformers; "),
    ],
)
def test_what_they_do_not_have(tmp_path: Path, kind: Any, fields: dict[str, Any], sentence: str) -> None:
    sizes = {"vocab_size": V, "hidden_size": H, "intermediate_size": 24, "decoder_layers": 2, "num_attention_heads": 4}
    kind(VaswaniConfig.preset("llama", **{**sizes, **fields})).save_pretrained(tmp_path / "ours")
    with pytest.raises(UserError, match=sentence):
        export("transformers", tmp_path / "ours", tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()


@pytest.mark.parametrize(
    ("kind", "preset", "theirs"),
    [
        (VaswaniForCausalLM, "llama", (LlamaForCausalLM, LlamaConfig)),
        (VaswaniForMaskedLM, "modernbert", (ModernBertForMaskedLM, ModernBertConfig)),
        (VaswaniForMaskedLM, "bert", (BertForMaskedLM, BertConfig)),
        (
            VaswaniForConditionalGeneration,
            "t5",
            (
                T5ForConditionalGeneration,
                lambda: T5Config(d_model=768, d_ff=3072, num_layers=12, num_heads=12, decoder_start_token_id=0),
            ),
        ),
        (
            VaswaniForMaskedLM,
            "longformer",
            (
                LongformerForMaskedLM,
                lambda: LongformerConfig(
                    vocab_size=50_265, max_position_embeddings=4098, type_vocab_size=1, layer_norm_eps=1e-5
                ),
            ),
        ),
    ],
)
def test_presets_have_the_sizes_of_the_published_models(kind: Any, preset: str, theirs: Any) -> None:
    """Their defaults in transformers are those sizes."""
    with torch.device("meta"):
        ours, other = kind(VaswaniConfig.preset(preset)), theirs[0](theirs[1]())
    # One vector for each token type, and the positions of padding, have no counterpart.
    more = {"bert": 2, "longformer": 1 + 2}.get(preset, 0)
    assert ours.num_parameters() + more * ours.config.hidden_size == other.num_parameters()
    fields = our_fields(COUNTERPARTS[preset], other.config)
    assert VaswaniConfig(**fields).to_dict() == VaswaniConfig.preset(preset, **sizes_only(fields)).to_dict()


def sizes_only(fields: dict[str, Any]) -> dict[str, Any]:
    """What a configuration of theirs says although it is the default."""
    return {name: fields[name] for name in ("head_dim", "num_key_value_heads") if name in fields}
