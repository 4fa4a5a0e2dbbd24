"""Encoders without a matrix of weights: Fourier transforms, Linformer and Fastformer, in functions and in models."""

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import safe_open

from hfattn import (
    VaswaniConfig,
    VaswaniForCausalLM,
    VaswaniForConditionalGeneration,
    VaswaniForMaskedLM,
    VaswaniForSequenceClassification,
    VaswaniVisionConfig,
    VaswaniVisionForImageClassification,
)
from hfattn.exchange.export import export
from hfattn.explaining import alignment
from hfattn.loading import max_positions
from hfattn.models.attention_mixers import (
    FastformerMixer,
    _fourier_at_once,
    fourier,
    from_front,
    to_front,
)
from hfattn.models.modeling_vaswani import make_self_attention

SMALL: dict[str, Any] = {
    "vocab_size": 23,
    "hidden_size": 24,
    "intermediate_size": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "num_attention_heads": 2,
    "dropout": 0.0,
}
PATTERNS: dict[str, dict[str, Any]] = {
    "fourier": {"encoder_pattern": "fourier"},
    "hybrid": {"encoder_pattern": ["fourier", "full"]},
    "linformer": {"encoder_pattern": "linformer", "encoder_pattern_options": {"rank": 3, "max_length": 21}},
    "linformer of each head": {
        "encoder_pattern": "linformer",
        "encoder_pattern_options": {"rank": [3, 5], "max_length": 21, "share": "none"},
    },
    "linformer with other weights": {
        "encoder_pattern": "linformer",
        "encoder_pattern_options": {"rank": 4, "max_length": 21, "share": "kv"},
        "self_attention_score": "additive",
        "self_attention_distribution": "entmax",
    },
    "linformer with one head of keys": {
        "encoder_pattern": "linformer",
        "encoder_pattern_options": {"rank": 4, "max_length": 21},
        "num_key_value_heads": 1,
    },
    "hybrid with rotary positions": {"encoder_pattern": ["fourier", "full"], "positions": "rotary"},
    "fastformer": {"encoder_pattern": "fastformer"},
    "fastformer with values": {"encoder_pattern": "fastformer", "encoder_pattern_options": {"tie_values": False}},
}


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64)


def first_mixer(**fields: Any) -> Any:
    torch.manual_seed(0)
    config = VaswaniConfig(**{**SMALL, **fields})
    return make_self_attention(config, 0, is_causal=False, gain=1.0).double().eval()


def masked_lm(dtype: torch.dtype = torch.float64, **fields: Any) -> VaswaniForMaskedLM:
    torch.manual_seed(0)
    return VaswaniForMaskedLM(VaswaniConfig(**{**SMALL, **fields})).to(dtype).eval()


# The formulas


def dft(size: int) -> torch.Tensor:
    """The matrix exp(-2πi n k / N), entry by entry."""
    entries = [[-2 * math.pi * n * k / size for k in range(size)] for n in range(size)]
    angles = torch.tensor(entries, dtype=torch.float64)
    return torch.complex(angles.cos(), angles.sin())


@pytest.mark.parametrize("at_once", [False, True])
def test_fourier_equals_the_matrices_of_each_row(at_once: bool) -> None:
    """With padding on each side and between tokens, an empty row and a row of one token."""
    torch.manual_seed(0)
    inputs = rand(6, 11, 6)
    real = torch.ones(6, 11, dtype=torch.bool)
    real[0, 7:], real[1, :4], real[3], real[4, 1:] = False, False, False, False
    real[5, [0, 3, 4, 9]] = False
    if at_once:
        outputs = from_front(_fourier_at_once(to_front(inputs, real), real.sum(-1)), real)
    else:
        outputs = fourier(inputs, real)
        whole = torch.stack([dft(11) @ row.to(torch.complex128) @ dft(6) for row in inputs]).real
        torch.testing.assert_close(fourier(inputs), whole, atol=1e-12, rtol=0)
    for row, mask, output in zip(inputs, real, outputs, strict=True):
        number = int(mask.sum())
        expected = (dft(number) @ row[mask].to(torch.complex128) @ dft(6)).real if number else row[mask]
        torch.testing.assert_close(output[mask], expected, atol=1e-12, rtol=0)
        assert not output[~mask].any()


def test_fourier_at_once_is_precise_for_long_texts_in_float32() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(2, 3000, 4)
    lengths = torch.tensor([2999, 1801])
    inputs[0, 2999:], inputs[1, 1801:] = 0, 0
    expected = _fourier_at_once(inputs.double(), lengths)
    assert (_fourier_at_once(inputs, lengths) - expected).abs().max() < 2e-6 * expected.abs().max()


def test_gradients_of_both_ways_to_transform_are_equal() -> None:
    torch.manual_seed(0)
    real = torch.ones(3, 7, dtype=torch.bool)
    real[0, 4:], real[1, :2] = False, False
    inputs, weights = rand(3, 7, 6).requires_grad_(), rand(3, 7, 6)
    outputs = [fourier(inputs, real), from_front(_fourier_at_once(to_front(inputs, real), real.sum(-1)), real)]
    first, second = (torch.autograd.grad((output * weights).sum(), inputs)[0] for output in outputs)
    torch.testing.assert_close(first, second, atol=1e-12, rtol=0)
    assert not first[~real].any()


@pytest.mark.parametrize("share", ["none", "headwise", "kv", "layerwise"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_linformer_equals_its_formula(share: str, side: str) -> None:
    options = {"rank": 3, "max_length": 9, "share": share}
    mixer = first_mixer(encoder_pattern="linformer", encoder_pattern_options=options)
    states, mask = rand(2, 7, 24), torch.ones(2, 7, dtype=torch.long)
    tokens = slice(2, None) if side == "left" else slice(5)
    mask[1] = 0
    mask[1, tokens] = 1
    output, weights = mixer(states, mask)
    assert weights.shape == (2, 0, 7, 7)
    for text, found in ((states[0], output[0]), (states[1, tokens], output[1, tokens])):
        heads = []
        for head in range(2):
            columns = slice(12 * head, 12 * head + 12)
            query, key, value = (project(text)[:, columns] for project in (mixer.q_proj, mixer.k_proj, mixer.v_proj))
            own = head if share == "none" else 0
            e = mixer.key_combinations.E[own, :, : len(text)]
            f = e if share in ("kv", "layerwise") else mixer.value_combinations.E[own, :, : len(text)]
            heads.append((query @ (e @ key).T / math.sqrt(12)).softmax(-1) @ (f @ value))
        torch.testing.assert_close(found, mixer.out_proj(torch.cat(heads, dim=-1)), atol=1e-12, rtol=0)
    parameters = {"none": 2 * 2 * 3 * 9, "headwise": 2 * 3 * 9, "kv": 3 * 9, "layerwise": 3 * 9}
    dense = sum(parameter.numel() for parameter in first_mixer().parameters())
    assert sum(parameter.numel() for parameter in mixer.parameters()) == dense + parameters[share]


def test_layers_share_one_matrix_of_linformer(tmp_path: Path) -> None:
    """In the model, its gradient, a saved model, and weights that lack it; also with layers that do not share."""
    options = {"rank": 3, "max_length": 9, "share": ["layerwise", "kv", "layerwise"]}
    fields: dict[str, Any] = {"encoder_layers": 3, "tie_word_embeddings": False, "encoder_pattern": "linformer"}
    model: Any = masked_lm(**fields, encoder_pattern_options=options)
    ids = torch.randint(3, 23, (2, 9))

    def matrices(model: Any) -> Any:
        return [layer.self_attn.key_combinations.E for layer in model.model.encoder.layers]

    first, own, last = matrices(model)
    assert last is first
    assert own is not first
    model(ids).logits.square().sum().backward()
    one_each = copy.deepcopy(model)
    one_each.model.encoder.layers[2].self_attn.key_combinations.E = torch.nn.Parameter(first.detach().clone())
    one_each.zero_grad()
    one_each(ids).logits.square().sum().backward()
    gradients = [matrix.grad for matrix in matrices(one_each)]
    torch.testing.assert_close(first.grad, gradients[0] + gradients[2], atol=1e-11, rtol=0)
    model.save_pretrained(tmp_path / "shared")
    with safe_open(tmp_path / "shared" / "model.safetensors", "pt") as weights:
        assert len([name for name in weights.keys() if name.endswith(".E")]) == 2  # noqa: SIM118
    again: Any = VaswaniForMaskedLM.from_pretrained(tmp_path / "shared", dtype=torch.float64)
    assert matrices(again)[2] is matrices(again)[0]
    torch.testing.assert_close(again(ids).logits, model(ids).logits, atol=1e-12, rtol=0)
    masked_lm(encoder_layers=3).save_pretrained(tmp_path / "dense")
    new: Any = VaswaniForMaskedLM.from_pretrained(
        tmp_path / "dense", encoder_pattern="linformer", encoder_pattern_options=options, dtype=torch.float64
    )
    assert matrices(new)[2] is matrices(new)[0]
    assert 0 < matrices(new)[0].abs().max() < 1


def test_layers_on_patches_and_on_latents_share_one_matrix(tmp_path: Path) -> None:
    """In models whose configurations have no ``tie_word_embeddings``, and in all rounds of latents."""
    options = {"rank": 3, "max_length": 9, "share": "layerwise"}
    fields: dict[str, Any] = {"encoder_pattern": "linformer", "encoder_pattern_options": options}
    config = VaswaniVisionConfig(
        image_size=8,
        patch_size=4,
        hidden_size=8,
        encoder_layers=2,
        num_attention_heads=2,
        intermediate_size=8,
        **fields,
    )
    VaswaniVisionForImageClassification(config).save_pretrained(tmp_path)
    sizes = {**SMALL, "is_encoder_decoder": False, "encoder_layers": 2, "latents": 4, "latent_rounds": 2}
    latent = VaswaniForSequenceClassification(VaswaniConfig(**{**sizes, **fields}))
    for model in (
        VaswaniVisionForImageClassification(config),
        VaswaniVisionForImageClassification.from_pretrained(tmp_path),
        latent,
    ):
        matrices = [each.E for each in model.modules() if isinstance(getattr(each, "E", None), torch.nn.Parameter)]
        assert len(matrices) == (4 if model is latent else 2)
        assert all(matrix is matrices[0] for matrix in matrices)


def test_linformer_with_identities_is_dense_attention() -> None:
    fields = {"self_attention_distribution": "entmax"}
    mixer = first_mixer(
        **fields, encoder_pattern="linformer", encoder_pattern_options={"rank": 8, "max_length": 8, "share": "kv"}
    )
    dense = first_mixer(**fields)
    dense.load_state_dict(mixer.state_dict(), strict=False)
    with torch.no_grad():
        mixer.key_combinations.E[0] = torch.eye(8)
    states = rand(2, 8, 24)
    torch.testing.assert_close(mixer(states)[0], dense(states)[0], atol=1e-12, rtol=0)


@pytest.mark.parametrize("tie_values", [True, False])
def test_fastformer_equals_a_loop(tie_values: bool) -> None:
    mixer = first_mixer(encoder_pattern="fastformer", encoder_pattern_options={"tie_values": tie_values})
    states, mask = rand(2, 7, 24), torch.ones(2, 7, dtype=torch.long)
    mask[1, [0, 3, 6]] = 0
    output, _ = mixer(states, mask)
    for text, real, found in zip(states, mask.bool(), output, strict=True):
        queries, keys = mixer.q_proj(text[real]), mixer.k_proj(text[real])
        values = queries if tie_values else mixer.v_proj(text[real])
        products = torch.zeros_like(values)
        for head in range(2):
            columns = range(12 * head, 12 * head + 12)
            query, key, value = ([list(row[columns]) for row in rows] for rows in (queries, keys, values))
            w_q, w_k = mixer.global_query.w[head], mixer.global_key.w[head]
            alpha = torch.stack([sum(w * x for w, x in zip(w_q, q, strict=True)) / math.sqrt(12) for q in query])
            alpha = alpha.exp() / alpha.exp().sum()
            global_query = [sum(a * q[c] for a, q in zip(alpha, query, strict=True)) for c in range(12)]
            p = [[g * x for g, x in zip(global_query, k, strict=True)] for k in key]
            beta = torch.stack([sum(w * x for w, x in zip(w_k, row, strict=True)) / math.sqrt(12) for row in p])
            beta = beta.exp() / beta.exp().sum()
            global_key = [sum(b * row[c] for b, row in zip(beta, p, strict=True)) for c in range(12)]
            for i, row in enumerate(value):
                products[i, columns] = torch.stack([g * v for g, v in zip(global_key, row, strict=True)])
        torch.testing.assert_close(found[real], mixer.out_proj(products) + queries, atol=1e-12, rtol=0)


# Models


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", PATTERNS)
def test_padding_is_invisible(name: str, side: str) -> None:
    model = masked_lm(**PATTERNS[name])
    ids = torch.randint(3, 23, (3, 21))
    mask = torch.ones_like(ids)
    real = slice(6, None) if side == "left" else slice(-6)
    mask[1:] = 0
    mask[1, real] = 1  # and nothing of the last text
    whole = model(ids, attention_mask=mask).logits
    torch.testing.assert_close(model(ids[1:2, real]).logits[0], whole[1, real], atol=1e-12, rtol=0)
    torch.testing.assert_close(model(ids[:1]).logits[0], whole[0], atol=1e-12, rtol=0)
    assert whole.isfinite().all()
    empty = torch.zeros(2, 0, dtype=torch.long)
    assert model(empty, attention_mask=empty).logits.shape == (2, 0, 23)
    mixer: Any = model.model.encoder.layers[0].self_attn
    states = rand(2, 5, 24)
    mixed = mixer(states, torch.tensor([[1] * 5, [0] * 5]))[0]
    nothing = mixer.q_proj(states[1]) if isinstance(mixer, FastformerMixer) else torch.zeros(5, 24).double()
    torch.testing.assert_close(mixed[1], nothing, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", PATTERNS)
def test_gradients_are_finite_in_half_precision(name: str) -> None:
    model = masked_lm(torch.bfloat16, **PATTERNS[name]).train()
    ids = torch.randint(3, 23, (3, 15))
    mask = torch.ones_like(ids)
    mask[1, 4:], mask[2] = 0, 0
    loss = model(ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss
    loss.backward()
    assert loss.isfinite()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
    with torch.autocast("cpu", torch.bfloat16):
        assert masked_lm(torch.float32, **PATTERNS[name])(ids, attention_mask=mask).logits.isfinite().all()


def test_initialization() -> None:
    """E is drawn as a matrix, and T-Fixup scales W^V and W^O as in dense attention."""
    torch.manual_seed(0)
    options = {"rank": 40, "max_length": 60, "share": "none"}
    fields = {**SMALL, "hidden_size": 128, "norm": "none"}
    model = VaswaniForMaskedLM(VaswaniConfig(**fields, encoder_pattern="linformer", encoder_pattern_options=options))
    attention: Any = model.model.encoder.layers[0].self_attn
    assert attention.key_combinations.E.std().item() == pytest.approx(math.sqrt(2 / 100), rel=0.05)
    gain = 0.67 * 2**-0.25
    for linear in (attention.v_proj, attention.out_proj):
        assert linear.weight.std().item() == pytest.approx(gain * math.sqrt(2 / 256), rel=0.05)


def test_a_text_that_is_too_long_for_linformer_is_one_sentence() -> None:
    model = masked_lm(encoder_pattern="linformer", encoder_pattern_options={"rank": 2, "max_length": 5})
    ids = torch.randint(3, 23, (2, 7))
    mask = torch.ones_like(ids)
    with pytest.raises(ValueError, match=r"A text has 7 tokens and the pattern 'linformer' was made for 5; cut it, or"):
        model(ids)
    mask[:, :2] = 0
    padded = model(ids, attention_mask=mask).logits[:, 2:]  # five tokens in seven places
    torch.testing.assert_close(padded, model(ids[:, 2:]).logits, atol=1e-12, rtol=0)
    mask[1, 1] = 1
    with pytest.raises(ValueError, match="A text has 6 tokens"):
        model(ids, attention_mask=mask)
    assert max_positions(model.config) == 5


def test_a_translator_with_a_hybrid_encoder() -> None:
    torch.manual_seed(0)
    config = VaswaniConfig(**SMALL, encoder_pattern=["fourier", "full"], eos_token_id=None, attn_implementation="eager")
    model = VaswaniForConditionalGeneration(config).double().eval()
    ids = torch.randint(3, 23, (2, 9))
    options = {"max_new_tokens": 8, "num_beams": 2}
    generated = [model.generate(ids, use_cache=cached, **options) for cached in (True, False)]
    assert torch.equal(*generated)
    outputs = model(ids, decoder_input_ids=ids, output_attentions=True)
    assert [weights.shape[1] for weights in outputs.encoder_attentions] == [0, 2]
    assert alignment(outputs, input_ids=ids, labels=ids).weights.shape == (1, 2, 9, 9)
    with pytest.raises(ValueError, match="Layer 0 computed no attention weights"):
        alignment(outputs, kind="encoder", input_ids=ids)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_each_layer_keeps_its_place_among_the_weights(implementation: str) -> None:
    """Full layers compute no weights with sdpa, and transformers would drop them."""
    fields: dict[str, Any] = {"encoder_layers": 3, "encoder_pattern": ["fourier", "full", "window"]}
    config = VaswaniConfig(**{**SMALL, **fields}, encoder_pattern_options={"window": 2})
    config._attn_implementation = implementation
    outputs = VaswaniForMaskedLM(config).eval()(torch.randint(3, 23, (2, 9)), output_attentions=True)
    heads = [0, 2 if implementation == "eager" else 0, 2]
    assert [tuple(weights.shape) for weights in outputs.attentions] == [(2, number, 9, 9) for number in heads]


ALL_THREE: dict[str, Any] = {
    "encoder_layers": 3,
    "encoder_pattern": ["fourier", "linformer", "fastformer"],
    "encoder_pattern_options": {"rank": 3, "max_length": 21},
}


@pytest.mark.examples  # slow
def test_one_graph_of_torch_compile() -> None:
    model = masked_lm(**ALL_THREE)
    ids = torch.randint(3, 23, (2, 9))
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(
        compiled(ids, attention_mask=mask).logits, model(ids, attention_mask=mask).logits, atol=1e-11, rtol=0
    )


@pytest.mark.examples
def test_the_graph_of_onnx(tmp_path: Path) -> None:
    """The export itself compares the graph with the model, for padded texts of several lengths."""
    torch.manual_seed(0)
    config = VaswaniConfig(**{**SMALL, **ALL_THREE}, num_labels=3)
    VaswaniForSequenceClassification(config).save_pretrained(tmp_path / "model")
    export("onnx", tmp_path / "model", tmp_path / "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "model.onnx")
    too_long = np.full((1, 23), 3)
    with pytest.raises(Exception, match="out of data bounds"):  # as an accelerator does
        session.run(None, {"input_ids": too_long, "attention_mask": np.ones_like(too_long)})


# Mistakes

LINFORMER = {"encoder_pattern": "linformer"}
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "decoder": (
        {"decoder_pattern": "fourier"},
        "The pattern 'fourier' mixes every position with later ones, so it is for encoders only; leave it out of "
        "decoder_pattern, or write window.",
    ),
    "linformer in a decoder": (
        {"decoder_pattern": "linformer", "decoder_pattern_options": {"rank": 2, "max_length": 9}},
        "The pattern 'linformer' mixes every position with later ones, so it is for encoders only; leave it out of "
        "decoder_pattern, or write window.",
    ),
    "score": (
        {"encoder_pattern": ["fourier", "fastformer"], "self_attention_score": "additive"},
        "self_attention_score is 'additive', and the pattern 'fourier' does not use it; leave "
        "self_attention_score out, or write 'full' for some layers in encoder_pattern.",
    ),
    "distribution": (
        {"encoder_pattern": "fastformer", "self_attention_distribution": "entmax"},
        "self_attention_distribution is 'entmax', and the pattern 'fastformer' does not use it; leave "
        "self_attention_distribution out, or write 'full' for some layers in encoder_pattern.",
    ),
    "location": (
        {
            **LINFORMER,
            "encoder_pattern_options": {"rank": 2, "max_length": 9},
            "self_attention_score": "location",
            "self_attention_score_options": {"max_length": 9},
        },
        "The score 'location' needs the index of each key, and the pattern 'linformer' replaces the keys by "
        "combinations of them; write another score, or another pattern.",
    ),
    "rotary positions": (
        {"encoder_pattern": "fastformer", "positions": "rotary"},
        "positions is 'rotary', and the pattern 'fastformer' does not use it; leave positions out, or write "
        "'full' for some layers in encoder_pattern.",
    ),
    "rotary positions of keys": (
        {**LINFORMER, "encoder_pattern_options": {"rank": 2, "max_length": 9}, "positions": "rotary"},
        "The pattern 'linformer' combines keys, which rotary positions rotate by different angles; write positions: "
        "sinusoidal, learned or none.",
    ),
    "norm": (
        {"encoder_pattern": "fourier", "norm": "none"},
        "The pattern 'fourier' has an output that the factors of T-Fixup (norm: none) do not bound; write norm: post "
        "or pre.",
    ),
    "heads of keys": (
        {"encoder_pattern": "fastformer", "num_key_value_heads": 1},
        "The pattern 'fastformer' has a key for each head; leave num_key_value_heads out.",
    ),
    "heads": (
        {"encoder_pattern": "fastformer", "head_dim": 5},
        "The pattern 'fastformer' adds its queries to its output, but 2 heads of width 5 are not as wide as "
        "hidden_size 24; leave head_dim out.",
    ),
    "rank": (
        {**LINFORMER, "encoder_pattern_options": {"rank": 0, "max_length": 9}},
        "rank is 0; write a whole number of at least 1.",
    ),
    "missing": (
        {**LINFORMER, "encoder_pattern_options": {"rank": 3}},
        "The pattern 'linformer' needs the option 'max_length'; write it in encoder_pattern_options.",
    ),
    "one matrix": (
        {
            **LINFORMER,
            "encoder_pattern_options": {"rank": [3, 4], "max_length": 9, "share": "layerwise"},
        },
        "rank is [3, 4] in the layers that have one E (share: layerwise); write one value, or share: kv.",
    ),
    "share": (
        {**LINFORMER, "encoder_pattern_options": {"rank": 3, "max_length": 9, "share": "headwse"}},
        "'headwse' is not a way to share E and F (share); did you mean 'headwise'?",
    ),
    "tie_values": (
        {"encoder_pattern": "fastformer", "encoder_pattern_options": {"tie_values": 1}},
        "tie_values is 1; write true or false.",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_configuration_is_one_sentence(name: str) -> None:
    fields, sentence = MISTAKES[name]
    with pytest.raises(StrictDataclassError) as error:
        VaswaniConfig(**{**SMALL, "decoder_layers": 1}, **fields)
    assert str(error.value.__cause__) == sentence


def test_a_hybrid_may_have_another_score() -> None:
    """The score of the configuration is that of its full layers."""
    fields: dict[str, Any] = {"encoder_pattern": ["fourier", "full"], "self_attention_score": "additive"}
    model = masked_lm(**fields)
    assert model(torch.randint(3, 23, (1, 4))).logits.isfinite().all()
    with pytest.raises(ValueError, match=r"attention_mask has the shape \(1, 1, 4, 4\).* pass 1 for tokens"):
        model(torch.randint(3, 23, (1, 4)), attention_mask=torch.ones(1, 1, 4, 4))
    assert VaswaniForCausalLM(VaswaniConfig(**SMALL, **fields)).config.encoder_pattern == ["fourier", "full"]
