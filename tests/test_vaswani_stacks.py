"""Options of whole stacks: the feed-forward network in pieces, attention that layers share, reversible layers, latents
and subsampling."""

import itertools
import math
import re
from typing import Any

import pytest
import torch
from generation_tests import sharpen, texts
from huggingface_hub.errors import StrictDataclassError
from model_checks import Largest, check_cached_generation, saved_storages
from test_vaswani import SIZES, ids

from hfattn import (
    VaswaniConfig,
    VaswaniForCausalLM,
    VaswaniForConditionalGeneration,
    VaswaniForMaskedLM,
    VaswaniForSequenceClassification,
)
from hfattn.errors import UserError
from hfattn.explaining import AttentionRecord, alignment, attention_groups, layer_similarity, self_attention
from hfattn.loading import max_positions
from hfattn.models.modeling_vaswani import sinusoidal_positions
from hfattn.pipelines import translations
from hfattn.tokenizers import build_character_tokenizer

F = 96


def make(kind: Any, train: bool = False, **fields: Any) -> Any:
    torch.manual_seed(0)
    config = VaswaniConfig(**{**SIZES, "dropout": 0.0, **fields})
    return kind._from_config(config, attn_implementation="eager").double().train(train)


def gradients(model: Any, **inputs: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """A number that depends on all logits, in float64 as no loss is, and its gradients."""
    logits = model(**inputs).logits
    result = (logits * torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).view_as(logits)).sum()
    model.zero_grad()
    result.backward()
    return result.detach(), {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def stored_bytes(model: Any, **inputs: Any) -> int:
    """Bytes that a forward pass stores for the backward pass, without the parameters."""
    with saved_storages() as sizes:
        model(**inputs)
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    return sum(size for pointer, size in sizes.items() if pointer not in parameters)


# feed_forward_chunk


@pytest.mark.parametrize("train", [False, True])
def test_pieces_change_neither_the_output_nor_a_gradient(train: bool) -> None:
    """Also where the last piece is shorter, or the text is no longer than a piece."""
    inputs = {"input_ids": ids(2, 7), "labels": ids(2, 5, seed=2)}
    fields = {"gated_feed_forward": True, "activation": "silu"}
    expected_result, expected = gradients(make(VaswaniForConditionalGeneration, train, **fields), **inputs)
    for chunk in (3, 5):
        model = make(VaswaniForConditionalGeneration, train, **fields, feed_forward_chunk=chunk)
        result, found = gradients(model, **inputs)
        torch.testing.assert_close(result, expected_result, atol=1e-12, rtol=0)
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, atol=1e-12, rtol=0)


def test_pieces_replay_their_dropout() -> None:
    """A derivative by differences: it is that of the function whose masks were drawn in the forward pass."""
    model = make(VaswaniForMaskedLM, train=True, feed_forward_chunk=2, activation_dropout=0.5, activation="gelu")
    inputs = {"input_ids": ids(1, 6)}
    weight = model.model.encoder.layers[0].feed_forward.fc1.weight
    torch.manual_seed(3)
    _, found = gradients(model, **inputs)
    direction = torch.randn_like(weight)
    results = []
    for step in (1e-5, -2e-5):
        with torch.no_grad():
            weight.add_(direction, alpha=step)
        torch.manual_seed(3)
        results.append(gradients(model, **inputs)[0])
    slope = (found["model.encoder.layers.0.feed_forward.fc1.weight"] * direction).sum()
    torch.testing.assert_close((results[0] - results[1]) / 2e-5, slope, atol=1e-6, rtol=1e-6)


def test_the_inner_layer_is_never_stored_as_a_whole() -> None:
    """Its n · d_ff numbers are the largest tensor, and most of what training stores."""
    n = 60
    fields: dict[str, Any] = {"intermediate_size": F, "encoder_layers": 1, "encoder_pattern": "linear"}
    inputs = {"input_ids": ids(1, n)}
    largest, stored = [], []
    for chunk in (None, 5):
        model = make(VaswaniForMaskedLM, feed_forward_chunk=chunk, **fields)
        with torch.no_grad(), Largest() as mode:
            model(**inputs)
        largest.append(mode.elements)
        stored.append(stored_bytes(model.train(), **inputs))
    assert largest[0] == n * F
    assert largest[1] < n * F / 3
    assert stored[0] - stored[1] >= n * F * 8


def test_a_piece_has_a_position() -> None:
    with pytest.raises(StrictDataclassError, match="feed_forward_chunk is 0; write a whole number of at least 1"):
        VaswaniConfig(feed_forward_chunk=0)


# attention_groups

GROUPS: dict[str, Any] = {
    "encoder_attention_groups": [2],
    "decoder_attention_groups": [1, 2],
    "cross_attention_groups": [2, 1],
}


def heads(states: torch.Tensor, linear: Any) -> torch.Tensor:
    return linear(states).unflatten(-1, (4, -1)).transpose(1, 2)  # (B, h, T, d)


def literal_stack(layers: Any, states: torch.Tensor, visible: dict[str, torch.Tensor], source: Any = None) -> Any:
    """Post-norm layers one after the other, whose weights, or whose output to the source, are copied within a group."""
    groups = {"self": [2]} if source is None else {"self": [1, 2], "cross": [2, 1]}
    weights: dict[tuple[str, int], torch.Tensor] = {}
    outputs: dict[int, torch.Tensor] = {}
    for index, layer in enumerate(layers):
        for kind, sizes in groups.items():
            attention, residual = getattr(layer, f"{kind}_attn"), getattr(layer, f"{kind}_attn_residual")
            keys = states if kind == "self" else source
            start = [sum(sizes[:group]) for group, size in enumerate(sizes) for _ in range(size)][index]
            if start == index:
                query, key = heads(states, attention.q_proj), heads(keys, attention.k_proj)
                energies = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
                weights[kind, index] = energies.masked_fill(~visible[kind], -torch.inf).softmax(-1)
            weights[kind, index] = weights[kind, start]
            if kind == "self" or start == index:
                context = (weights[kind, index] @ heads(keys, attention.v_proj)).transpose(1, 2).flatten(-2)
            if kind == "cross":
                context = outputs[index] = context if start == index else outputs[start]
            states = residual.norm(states + attention.out_proj(context))
        states = layer.feed_forward_residual.norm(states + layer.feed_forward(states))
    return states, weights


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_groups_are_a_dense_model_with_copied_weights_and_outputs(implementation: str) -> None:
    """States, weights of each layer and gradients."""
    model = make(VaswaniForConditionalGeneration, positions="none", **GROUPS)
    model.set_attn_implementation(implementation)
    inputs, target = texts([7, 5], 13), ids(2, 5, seed=2)
    outputs = model(**inputs, decoder_input_ids=target, output_attentions=True)
    real = inputs["attention_mask"].bool()[:, None, None]
    embed = model.model.encoder.embed_tokens
    encoded, own = literal_stack(model.model.encoder.layers, embed(inputs["input_ids"]) * 4, {"self": real})
    visible = {"self": torch.ones(5, 5).tril().bool(), "cross": real}
    decoded, weights = literal_stack(model.model.decoder.layers, embed(target) * 4, visible, encoded)
    logits = model.lm_head(decoded)
    torch.testing.assert_close(outputs.logits, logits, atol=1e-12, rtol=0)
    for index, layer in enumerate(outputs.encoder_attentions):
        torch.testing.assert_close(layer, own["self", index], atol=1e-12, rtol=0)
    for index, layer in enumerate(outputs.decoder_attentions):
        torch.testing.assert_close(layer, weights["self", index], atol=1e-12, rtol=0)
    assert len(outputs.cross_attentions) == (3 if implementation == "eager" else 0)
    for index, layer in enumerate(outputs.cross_attentions):
        torch.testing.assert_close(layer, weights["cross", index], atol=1e-12, rtol=0)
    parameters = list(model.parameters())
    direction = torch.randn_like(logits)
    found, expected = (torch.autograd.grad((each * direction).sum(), parameters) for each in (outputs.logits, logits))
    torch.testing.assert_close(found, expected, atol=1e-11, rtol=0)


def test_a_later_layer_of_a_group_has_no_weights_to_compare_queries_with_keys() -> None:
    layers = make(VaswaniForConditionalGeneration, **GROUPS).model.decoder.layers
    parts = [[name for name, _ in layer.self_attn.named_children() if "proj" in name] for layer in layers]
    assert parts == [["q_proj", "k_proj", "v_proj", "out_proj"]] * 2 + [["v_proj", "out_proj"]]
    parts = [[name for name, _ in layer.cross_attn.named_children() if "proj" in name] for layer in layers]
    assert parts[1] == ["out_proj"]


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_each_parameter_of_groups_has_a_gradient(norm: str) -> None:
    """Otherwise, distributed training without Trainer ends in an error."""
    model, target = make(VaswaniForConditionalGeneration, norm=norm, **GROUPS), ids(2, 5)
    model(input_ids=ids(2, 7), labels=target).loss.backward()
    assert not [name for name, parameter in model.named_parameters() if parameter.grad is None]


def test_groups_of_one_layer_are_the_dense_model() -> None:
    ones: dict[str, Any] = {
        "encoder_attention_groups": [1, 1],
        "decoder_attention_groups": [1] * 3,
        "cross_attention_groups": [1] * 3,
    }
    dense, model = make(VaswaniForConditionalGeneration), make(VaswaniForConditionalGeneration, **ones)
    assert not model.config.option_names
    inputs = {"input_ids": ids(2, 7), "decoder_input_ids": ids(2, 5)}
    assert torch.equal(dense(**inputs).logits, model(**inputs).logits)


def check_generation(model: Any, vocab_size: int = 13) -> None:
    """With padding on the left, the cache changes no token, in greedy search, sampling and beam search."""
    model, inputs = sharpen(model), texts([6, 3, 5], vocab_size)
    check_cached_generation(model, inputs, max_new_tokens=8)


OTHER_WEIGHTS: dict[str, dict[str, Any]] = {
    "one head of keys, rotated": {"num_key_value_heads": 1, "positions": "rotary"},
    "location entmax": {
        "self_attention_score": "location",
        "self_attention_score_options": {"max_length": 30},
        "self_attention_distribution": "entmax",
    },
}


@pytest.mark.parametrize("name", OTHER_WEIGHTS)
def test_groups_generate_as_without_a_cache(name: str) -> None:
    """The cache of a later layer has values alone, and those of its cross-attention are none."""
    check_generation(make(VaswaniForConditionalGeneration, **GROUPS, **OTHER_WEIGHTS[name]))
    model = make(VaswaniForCausalLM, **GROUPS, **OTHER_WEIGHTS[name])
    check_generation(model)
    layers = model(ids(2, 5)).past_key_values.layers
    assert [layer.keys.numel() > 0 for layer in layers] == [True] * 3
    assert [layer.values.numel() > 0 for layer in layers] == [True, True, False]


def test_groups_with_dropout_and_gradient_checkpointing() -> None:
    inputs = {"input_ids": ids(2, 7), "decoder_input_ids": ids(2, 5)}
    found = []
    for checkpointing in (False, True):
        model = make(VaswaniForConditionalGeneration, train=True, **GROUPS, attention_dropout=0.3)
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        torch.manual_seed(3)
        found.append(gradients(model, **inputs))
    torch.testing.assert_close(found[1], found[0], atol=1e-12, rtol=0)
    model.gradient_checkpointing_enable({"use_reentrant": True})
    with pytest.raises(ValueError, match=r"pass {'use_reentrant': False} as gradient_checkpointing_kwargs"):
        model(**inputs)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"encoder_attention_groups": [2, 3]}, "the encoder has 2 layers; write sizes of at least 1 whose sum is 2"),
        ({"cross_attention_groups": [4, -1]}, "the decoder has 3 layers; write sizes of at least 1 whose sum is 3"),
        (
            {"decoder_attention_groups": [3], "decoder_pattern": ["full", "linear", "full"]},
            "layer 1 has the pattern 'linear', whose weights cannot be shared; write 'full' for it in decoder_pattern",
        ),
    ],
)
def test_groups_that_cannot_be(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(StrictDataclassError, match=re.escape(message)):
        VaswaniConfig(**{**SIZES, **fields})


def test_an_alignment_has_the_copied_weights_of_each_layer() -> None:
    model = sharpen(make(VaswaniForConditionalGeneration, **GROUPS))
    inputs = texts([6], 13)
    options = {"max_new_tokens": 5, "output_attentions": True, "return_dict_in_generate": True, "num_beams": 2}
    outputs = model.generate(**inputs, **options)
    for kind, same, other in (("cross", (0, 1), 2), ("decoder", (1, 2), 0)):
        weights = alignment(outputs, kind=kind, input_ids=inputs["input_ids"]).weights
        assert torch.equal(*weights[list(same)])
        assert not torch.equal(weights[other], weights[1])


# The policy of groups


def record(weights: torch.Tensor) -> AttentionRecord:
    targets, tokens = (tuple(map(str, range(size))) for size in weights.shape[2:])
    return AttentionRecord(tokens, targets, weights)


def test_similarity_is_one_minus_the_divergence_in_bits() -> None:
    given = [torch.rand(3, 2, *sizes, dtype=torch.float64).softmax(-1) for sizes in ((2, 5), (4, 3))]
    given[1][0, :, 1] = 0  # a query without any key is left out
    found = layer_similarity(map(record, given))
    for i, j in itertools.product(range(3), repeat=2):
        divergences = []
        for weights in given:
            for row in range(weights.shape[2]):
                p, q = ([float(weights[layer, :, row, k].mean()) for k in range(weights.shape[3])] for layer in (i, j))
                if weights[0, 0, row].any():
                    terms = [
                        x * math.log2(2 * x / (x + y)) + y * math.log2(2 * y / (x + y))
                        for x, y in zip(p, q, strict=True)
                    ]
                    divergences.append(sum(terms) / 2)
        assert found[i, j].item() == pytest.approx(1 - sum(divergences) / len(divergences), abs=1e-12)
    apart = record(torch.eye(2)[:, None, None])  # no key has a weight in both layers
    torch.testing.assert_close(layer_similarity([apart]), torch.eye(2, dtype=torch.float64))


def test_groups_are_as_long_as_their_mean_similarity_allows() -> None:
    """Three equal layers, a lonely one, then two."""
    kinds = torch.eye(3)[[0, 0, 0, 1, 2, 2]][:, None, None]
    assert attention_groups([record(kinds)], 0.9) == [3, 1, 2]
    assert attention_groups([record(kinds)], 0.4) == [4, 2]  # the mean of six pairs, of which three are equal, is 0.5
    assert attention_groups([record(kinds)], 1) == [1] * 6
    model = make(VaswaniForConditionalGeneration, **GROUPS)
    outputs = model(ids(1, 6), labels=ids(1, 5), output_attentions=True)
    records = [alignment(outputs, input_ids=ids(1, 6), labels=ids(1, 5))]
    # A model with groups: its copies are equal, so another round can only join groups.
    assert attention_groups(records, 0.9999999)[0] >= 2
    with pytest.raises(ValueError, match=r"threshold is 2; write a similarity from 0 to 1, such as 0.9"):
        attention_groups(records, 2)
    with pytest.raises(ValueError, match="pass those of one attention of a model"):
        layer_similarity([*records, record(kinds)])
    with pytest.raises(ValueError, match="pass the attention of at least one text"):
        layer_similarity([])


# reversible

REVERSIBLE: dict[str, Any] = {"reversible": True, "norm": "pre", "norm_type": "rms", "activation": "gelu"}


def literal_reversible(layers: Any, states: torch.Tensor, source: torch.Tensor | None = None) -> torch.Tensor:
    """x_1 and x_2 in turn: each sub-layer reads one and adds to the other."""
    halves = [states, states]
    for layer in layers:
        for name in ("self_attn", "cross_attn", "feed_forward"):
            if hasattr(layer, name):
                x = getattr(layer, f"{name}_residual").norm(halves[1])
                sublayer = getattr(layer, name)
                if name == "feed_forward":
                    output = sublayer(x)
                else:
                    keys = source if name == "cross_attn" and source is not None else x
                    query, key, value = (
                        heads(x, sublayer.q_proj),
                        heads(keys, sublayer.k_proj),
                        heads(keys, sublayer.v_proj),
                    )
                    energies = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
                    if name == "self_attn" and source is not None:
                        energies = energies.masked_fill(torch.ones(energies.shape[-2:]).triu(1).bool(), -torch.inf)
                    output = sublayer.out_proj((energies.softmax(-1) @ value).transpose(1, 2).flatten(-2))
                halves = [halves[1], halves[0] + output]
    return (halves[0] + halves[1]) / 2


def test_reversible_stacks_equal_their_formula() -> None:
    model = make(VaswaniForConditionalGeneration, positions="none", **REVERSIBLE)
    source, target = ids(2, 7), ids(2, 5, seed=2)
    encoder, decoder = model.model.encoder, model.model.decoder
    encoded = encoder.norm(literal_reversible(encoder.layers, 4 * encoder.embed_tokens(source)))
    decoded = decoder.norm(literal_reversible(decoder.layers, 4 * encoder.embed_tokens(target), encoded))
    outputs = model(source, decoder_input_ids=target, output_hidden_states=True)
    torch.testing.assert_close(outputs.logits, model.lm_head(decoded), atol=1e-12, rtol=0)
    assert [states.shape[-1] for states in outputs.decoder_hidden_states] == [16] * 4
    for number in (1, 2):  # layers
        states = literal_reversible(encoder.layers[:number], 4 * encoder.embed_tokens(source))
        states = encoder.norm(states) if number == 2 else states
        torch.testing.assert_close(outputs.encoder_hidden_states[number], states, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"norm": "none", "norm_type": "layer", "encoder_pattern": "linear", "positions": "rotary"},
        {"feed_forward_chunk": 2, "embedding_norm": True, "self_attention_score": "additive"},
        {"positions": "relative_buckets"},
    ],
)
def test_gradients_without_stored_activations(fields: dict[str, Any]) -> None:
    """They equal those of stored ones, which requested states need, with dropout everywhere; to 1e-10 of their size."""
    rates = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), 0.2)
    model = make(VaswaniForConditionalGeneration, train=True, **{**REVERSIBLE, **rates, **fields})
    inputs, found = {**texts([7, 4], 13), "decoder_input_ids": ids(2, 5)}, []
    for stored in (False, True):
        torch.manual_seed(3)
        found.append(gradients(model, **inputs, output_hidden_states=stored))
    torch.testing.assert_close(found[0], found[1], atol=1e-10, rtol=1e-10)


def test_stored_activations_do_not_grow_with_the_number_of_layers() -> None:
    inputs = {"input_ids": ids(2, 20), "decoder_input_ids": ids(2, 20)}
    sizes: dict[bool, list[int]] = {False: [], True: []}
    for reversible, number in itertools.product(sizes, (1, 6)):
        layers = {"encoder_layers": number, "decoder_layers": number}
        model = make(VaswaniForConditionalGeneration, True, **{**REVERSIBLE, "reversible": reversible, **layers})
        sizes[reversible].append(stored_bytes(model, **inputs))
    assert sizes[True][0] == sizes[True][1]
    assert sizes[False][1] > 4 * sizes[False][0]


def test_reversible_layers_generate_as_without_a_cache() -> None:
    check_generation(make(VaswaniForConditionalGeneration, **REVERSIBLE))
    check_generation(make(VaswaniForCausalLM, **REVERSIBLE, decoder_pattern=["full", "linear", "full"]))


def test_reversible_layers_in_half_precision_and_with_an_adapter() -> None:
    """Gradients stay near those of float32 over twelve layers, and frozen parameters get none."""
    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        model = make(VaswaniForCausalLM, train=True, **{**REVERSIBLE, "decoder_layers": 12}).to(dtype)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("v_proj" in name)
        model(ids(2, 9), labels=ids(2, 9)).loss.backward()
        found[dtype] = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    assert len(found[torch.float32]) == 24
    for name, gradient in found[torch.float32].items():
        error = (found[torch.bfloat16][name].float() - gradient).norm() / gradient.norm()
        assert error < 0.1, (name, error)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"norm": "post"}, "whose norm of a sum cannot be undone; write norm: pre or none"),
        ({"decoder_attention_groups": [3]}, "leave out either reversible or the attention_groups"),
    ],
)
def test_reversible_layers_that_cannot_be(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(StrictDataclassError, match=message):
        VaswaniConfig(**{**SIZES, "norm": "pre", "reversible": True, **fields})


def test_reversible_layers_refuse_gradient_checkpointing() -> None:
    model = make(VaswaniForMaskedLM, train=True, **REVERSIBLE)
    model.gradient_checkpointing_enable()
    with pytest.raises(ValueError, match="leave gradient_checkpointing out, or write reversible: false"):
        model(ids(2, 7))


# latents


def attend(attention: Any, states: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Multi-head attention of one text, a head at a time."""
    query, key, value = attention.q_proj(states), attention.k_proj(keys), attention.v_proj(keys)
    context = [(query[:, own] @ key[:, own].T / 2).softmax(-1) @ value[:, own] for own in torch.arange(16).view(4, 4)]
    return attention.out_proj(torch.cat(context, dim=-1))


def literal_latents(encoder: Any, tokens: torch.Tensor, rounds: int) -> torch.Tensor:
    """Latents of one text, whose layers are post-norm: reader, layers, and again."""
    own, states = encoder.latents, 4 * encoder.latents.vectors.weight
    for index in range(rounds):
        index = min(index, len(own.readers) - 1)
        for layer in (own.readers[index], *(own.rounds[index - 1] if index else encoder.layers)):
            if layer is own.readers[index]:
                states = layer.cross_attn_residual.norm(states + attend(layer.cross_attn, states, tokens))
            else:
                states = layer.self_attn_residual.norm(states + attend(layer.self_attn, states, states))
            states = layer.feed_forward_residual.norm(states + layer.feed_forward(states))
    return states


@pytest.mark.parametrize(("rounds", "share", "number"), [(1, False, 1), (3, False, 3), (3, True, 2)])
def test_latents_equal_their_formula_and_padding_is_invisible(rounds: int, share: bool, number: int) -> None:
    """The mean of the latents of each text alone is classified, and an empty text is defined."""
    fields: dict[str, Any] = {"latents": 5, "latent_rounds": rounds, "share_rounds": share, "positions": "none"}
    model = make(VaswaniForSequenceClassification, **fields)
    encoder = model.model.encoder
    assert [len(encoder.latents.readers), len(encoder.latents.rounds)] == [number, number - 1]
    inputs = texts([9, 4, 7], 13)
    inputs["attention_mask"][2, 2:4] = 0  # padding within a text, and before it
    outputs = model(**inputs, output_attentions=True, output_hidden_states=True)
    for row, (ids_of, mask) in enumerate(zip(inputs["input_ids"], inputs["attention_mask"].bool(), strict=True)):
        latents = literal_latents(encoder, 4 * encoder.embed_tokens(ids_of[mask]), rounds)
        torch.testing.assert_close(outputs.logits[row], model.classifier(latents.mean(0)), atol=1e-12, rtol=0)
        torch.testing.assert_close(outputs.hidden_states[-1][row], latents, atol=1e-12, rtol=0)
    kinds = [tuple(weights.shape[2:]) for weights in outputs.attentions]
    assert kinds == [(5, 9), (5, 5), (5, 5)] * rounds
    assert len(outputs.hidden_states) == 1 + 3 * rounds
    torch.testing.assert_close(model(inputs["input_ids"][1:2, -4:]).logits, outputs.logits[1:2], atol=1e-12, rtol=0)
    nothing = [model(ids(1, 3), attention_mask=torch.zeros(1, 3)).logits, model(ids(1, 0)).logits]
    torch.testing.assert_close(*nothing, atol=1e-12, rtol=0)
    model.set_attn_implementation("sdpa")
    torch.testing.assert_close(model(**inputs).logits, outputs.logits, atol=1e-12, rtol=0)


def test_a_translator_reads_latents() -> None:
    """The decoder sees N positions, with any length and padding of the source; with the options above, too."""
    fields: dict[str, Any] = {
        "latents": 4,
        "latent_rounds": 2,
        "norm": "pre",
        "feed_forward_chunk": 3,
        "embedding_norm": True,
    }
    model = make(VaswaniForConditionalGeneration, **fields, encoder_pattern="linear", cross_attention_score="additive")
    check_generation(model)
    inputs, target = texts([7, 4], 13), ids(2, 5, seed=2)
    outputs = model(**inputs, decoder_input_ids=target, output_attentions=True)
    assert [tuple(weights.shape[2:]) for weights in outputs.cross_attentions] == [(5, 4)] * 3
    alone = model(inputs["input_ids"][1:, 3:], decoder_input_ids=target[1:]).logits
    torch.testing.assert_close(alone, outputs.logits[1:], atol=1e-12, rtol=0)
    with pytest.raises(ValueError, match=r"the weights need \(batch, 4\)"):
        alignment(outputs, input_ids=inputs["input_ids"], labels=target)


def test_latents_have_no_alignment_with_the_tokens() -> None:
    """Also where there are as many latents as tokens."""
    tokenizer = build_character_tokenizer(["to be"])
    model = make(VaswaniForConditionalGeneration, latents=5)
    (found,) = translations(model, tokenizer, None, ["to be"], max_new_tokens=4)
    assert found["alignment"] is None
    with pytest.raises(UserError, match="The encoder of it computes with latents, which are not tokens"):
        self_attention("it", model, tokenizer, "to be")


def test_reversible_latents_have_the_gradients_of_stored_activations() -> None:
    fields: dict[str, Any] = {**REVERSIBLE, "latents": 4, "latent_rounds": 3, "share_rounds": True, "dropout": 0.2}
    model, found = make(VaswaniForConditionalGeneration, train=True, **fields), []
    inputs = {**texts([7, 4], 13), "decoder_input_ids": ids(2, 5)}
    for stored in (False, True):
        torch.manual_seed(3)
        found.append(gradients(model, **inputs, output_hidden_states=stored))
    torch.testing.assert_close(found[0], found[1], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"latents": 0}, "latents is 0; write a whole number of at least 1"),
        ({"latent_rounds": 2}, "latent_rounds is given without latents; write their number, such as latents: 64"),
        ({"latents": 4, "positions": "rotary"}, "write positions: sinusoidal, learned or none, or leave latents out"),
        ({"latents": 4, "norm": "none"}, "write norm: post or pre, or leave latents out"),
    ],
)
def test_latents_that_cannot_be(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(StrictDataclassError, match=message):
        VaswaniConfig(**{**SIZES, **fields})


def test_latents_are_for_encoders_whose_positions_are_not_needed() -> None:
    for kind, message in {
        VaswaniForCausalLM: "a decoder cannot have any, because each latent reads the whole text; leave latents out",
        VaswaniForMaskedLM: "as a masked language model needs; leave latents out",
    }.items():
        with pytest.raises(ValueError, match=message):
            make(kind, latents=4)


# subsampling


def literal_blocks(encoder: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Blocks of one text (S, H), a block and a token at a time."""
    own, length = encoder.subsampling, encoder.subsampling.length
    weights = own.linear.weight.unflatten(1, (3 * length, -1))  # (H, 3k, H)
    blocks = []
    for start in range(0, len(tokens), length):
        total = own.linear.bias
        for offset in range(3 * length):
            token = start - length + offset
            if 0 <= token < len(tokens):
                total = total + weights[:, offset] @ tokens[token]
        blocks.append(total.relu())
    return torch.stack(blocks)


@pytest.mark.parametrize("pattern", ["full", "window"])
def test_subsampling_equals_its_formula_and_padding_is_invisible(pattern: str) -> None:
    """Also if the padding is before a text, and within it, where it counts as tokens without an embedding."""
    options = {"window": 3} if pattern == "window" else {}
    fields: dict[str, Any] = {"subsampling": 3, "encoder_pattern": pattern, "encoder_pattern_options": options}
    model = make(VaswaniForSequenceClassification, **fields)
    encoder = model.model.encoder
    inputs = texts([9, 4, 7], 13)
    outputs = model(**inputs, output_hidden_states=True)
    for row, (of_row, mask) in enumerate(zip(inputs["input_ids"], inputs["attention_mask"].bool(), strict=True)):
        of_text = of_row[mask][None]
        blocks = literal_blocks(encoder, 4 * encoder.embed_tokens(of_text[0]))
        blocks = blocks + sinusoidal_positions(torch.arange(len(blocks)), 16, torch.float64)
        torch.testing.assert_close(outputs.hidden_states[0][row, : len(blocks)], blocks, atol=1e-12, rtol=0)
        torch.testing.assert_close(model(of_text).logits[0], outputs.logits[row], atol=1e-12, rtol=0)
    holes = inputs["attention_mask"].clone()
    holes[0, 2:8] = 0
    changed = inputs["input_ids"].clone()
    changed[0, 2:8] = 5
    torch.testing.assert_close(
        *(model(tokens, attention_mask=holes).logits for tokens in (changed, inputs["input_ids"])), atol=1e-12, rtol=0
    )
    nothing = [model(ids(1, 3), attention_mask=torch.zeros(1, 3)).logits, model(ids(1, 0)).logits]
    torch.testing.assert_close(*nothing, atol=1e-12, rtol=0)


def test_a_translator_reads_blocks() -> None:
    model = make(VaswaniForConditionalGeneration, subsampling=2)
    check_generation(model)
    inputs, target = texts([7, 4], 13), ids(2, 5, seed=2)
    outputs = model(**inputs, decoder_input_ids=target, output_attentions=True)
    assert {tuple(weights.shape[2:]) for weights in outputs.cross_attentions} == {(5, 4)}
    alone = model(inputs["input_ids"][1:, 3:], decoder_input_ids=target[1:]).logits
    torch.testing.assert_close(alone, outputs.logits[1:], atol=1e-12, rtol=0)
    tokenizer = build_character_tokenizer(["to be"])
    (found,) = translations(model, tokenizer, None, ["to be"], max_new_tokens=4)
    assert found["alignment"] is None
    with pytest.raises(UserError, match="The encoder of it computes with blocks of tokens, which are not tokens"):
        self_attention("it", model, tokenizer, "to be")


def test_subsampling_is_for_encoders_whose_outputs_need_not_be_tokens() -> None:
    with pytest.raises(StrictDataclassError, match="subsampling is 1; write a whole number of at least 2, or null"):
        VaswaniConfig(**SIZES, subsampling=1)
    for kind, message in {
        VaswaniForCausalLM: "because a block reads the tokens that it would predict; leave subsampling out",
        VaswaniForMaskedLM: "blocks are not tokens, which a masked language model predicts; leave subsampling out",
    }.items():
        with pytest.raises(ValueError, match=message):
            make(kind, subsampling=4)
    model = make(VaswaniForSequenceClassification, subsampling=2)
    with pytest.raises(ValueError, match="subsampling needs one value for each token"):
        model(ids(1, 4), attention_mask=torch.ones(1, 1, 4, 4))


def test_learned_positions_of_blocks_reach_over_all_their_tokens() -> None:
    assert max_positions(VaswaniConfig(**SIZES, positions="learned", max_position_embeddings=8, subsampling=4)) == 32
