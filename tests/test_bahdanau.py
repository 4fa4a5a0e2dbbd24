"""The recurrent encoder-decoders, against the papers' formulas and as transformers models."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import cpu_offload
from generation_tests import Make, Seq2SeqGenerationTests, V, row_of, sharpen, texts
from huggingface_hub.errors import StrictDataclassError
from model_checks import check_adapter, check_gradient_checkpointing, check_half_precision
from peft import LoraConfig, get_peft_model
from test_cells import literal_step
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, DynamicCache, set_seed

from hfattn import BahdanauConfig, BahdanauForConditionalGeneration, BahdanauModel, RecurrentCache
from hfattn.attention import DISTRIBUTIONS, SCORES
from hfattn.models.recurrent_decoder import Source
from hfattn.models.strict_config import VERSION

H = 5

LUONG = {
    "initial_state": "final",
    "encoder_direction": "forward",
    "attention_position": "after",
    "attention_score": "general",
    "output_layer": "attentional",
}
VARIANTS: dict[str, dict[str, Any]] = {
    "bahdanau": {"cell": "gru_reset_before"},
    "bahdanau_deep": {
        "decoder_layers": 3,
        "encoder_layers": 2,
        "cell": "lstm",
        "attention_distribution": "sparsemax",
        "attention_gate": "scalar",
        "output_layer": "deep",
    },
    "luong": {**LUONG, "cell": "lstm", "decoder_layers": 2, "encoder_layers": 2},
    "luong_fed": {**LUONG, "cell": "gru", "input_feeding": True, "encoder_direction": "backward"},
    "luong_local_p": {
        **LUONG,
        "cell": "elman",
        "input_feeding": True,
        "attention_window": "local_p",
        "attention_window_size": 2,
    },
    "luong_context": {**LUONG, "cell": "gru", "input_feeding": True, "output_layer": "context"},
    "luong_local_m": {**LUONG, "attention_window": "local_m", "attention_window_size": 1},
    "sutskever": {
        "attention_score": None,
        "cell": "lstm",
        "encoder_direction": "backward",
        "initial_state": "final",
        "output_layer": "state",
    },
}


def build(variant: str = "bahdanau", vocab_size: int = V, seed: int = 0, **fields: Any) -> Any:
    torch.manual_seed(seed)
    sizes = {"vocab_size": vocab_size, "embedding_size": 4, "encoder_hidden_size": H, "hidden_size": H}
    return BahdanauForConditionalGeneration(BahdanauConfig(**{**sizes, **VARIANTS[variant], **fields}))


def make(variant: str = "bahdanau", **fields: Any) -> Any:
    return build(variant, **fields).double().eval()


def targets(rows: int = 3, steps: int = 6, vocab_size: int = V) -> torch.Tensor:
    return torch.randint(3, vocab_size, (rows, steps), generator=torch.Generator().manual_seed(4))


class TestGeneration(Seq2SeqGenerationTests):
    @pytest.fixture(params=VARIANTS)
    def make(self, request: pytest.FixtureRequest) -> Make:
        def make(**fields: Any) -> Any:
            model = build(request.param, **{"initializer_range": 1.0, **fields})
            return sharpen(model, 12)

        return make


# The papers, one step and one row at a time


Step = Callable[[torch.Tensor, tuple[torch.Tensor, ...]], tuple[torch.Tensor, ...]]


def literal_cell(cell: str, rnn: nn.Module) -> Step:
    return lambda x, state: literal_step(cell, rnn, x, state)


def literal_encoder(
    model: Any, ids: torch.Tensor
) -> tuple[torch.Tensor, list[tuple[torch.Tensor, ...]], tuple[torch.Tensor, ...] | None]:
    """Return the annotations (S, C) of one source, the last state of each layer, and the last backward state."""
    config = model.config
    inputs = [model.model.encoder.embed_tokens.weight[i] for i in ids]
    finals, backward = [], None
    for layer in model.model.encoder.layers:
        outputs, states = [], []
        for rnn, reverse in ((layer.forward_rnn, False), (layer.backward_rnn, True)):
            if rnn is None:
                continue
            state = tuple(torch.zeros(H, dtype=torch.float64) for _ in range(2 if config.cell == "lstm" else 1))
            read = []
            for x in reversed(inputs) if reverse else inputs:
                state = literal_step(config.cell, rnn.rnn, x, state)
                read.append(state[0])
            outputs.append(list(reversed(read)) if reverse else read)
            states.append(state)
            backward = state if reverse else backward
        inputs = [torch.cat(directions) for directions in zip(*outputs, strict=True)]
        finals.append(tuple(torch.cat(parts) for parts in zip(*states, strict=True)))
    return torch.stack(inputs), finals, backward


def literal_luong_score(score: nn.Module, s: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return s @ score.W @ h


@torch.no_grad()
def test_bahdanau_2015_equals_its_formulas() -> None:
    """s_0 = tanh(W_s h←_1); e_ij = v·tanh(W s_{i-1} + U h_j); c_i = Σ α_ij h_j; s_i = GRU(s_{i-1}, [y_{i-1}; c_i]);
    maxout of s_i, y_{i-1}, c_i."""
    model, source, target = make("bahdanau"), texts([5])["input_ids"], targets(1)
    out = model(source, decoder_input_ids=target, output_attentions=True)
    decoder = model.model.decoder
    score = decoder.attention.score
    annotations, _, backward = literal_encoder(model, source[0])
    assert backward is not None
    s = torch.tanh(decoder.initial_state(backward[0]))
    for i, y in enumerate(target[0]):
        energies = torch.stack([torch.dot(score.v, torch.tanh(score.W_q @ s + score.W_k @ h_j)) for h_j in annotations])
        alpha = energies.exp() / energies.exp().sum()
        c = sum(a * h_j for a, h_j in zip(alpha, annotations, strict=True))
        embedding = decoder.embed_tokens.weight[y]
        (s,) = literal_step("gru_reset_before", decoder.layers[0].rnn, torch.cat([embedding, c]), (s,))
        pieces = decoder.maxout(torch.cat([s, embedding, c]))
        t = torch.stack([torch.max(pieces[2 * j], pieces[2 * j + 1]) for j in range(H)])
        torch.testing.assert_close(out.logits[0, i], model.lm_head(t))
        torch.testing.assert_close(out.cross_attentions[0][0, 0, i], alpha)


@torch.no_grad()
@pytest.mark.parametrize(
    ("variant", "fields"),
    [
        ("luong", {}),
        ("luong_fed", {}),
        ("luong_context", {}),
        ("luong_context", {"input_feeding": False}),
        ("luong_local_p", {}),
        ("luong_local_m", {}),
    ],
)
def test_luong_2015_equals_its_formulas(variant: str, fields: dict[str, Any]) -> None:
    """s_t from the cells; score s W h; window and Gaussian where local; s~ = tanh(W_c [c; s]) or tanh(W_c c), fed back
    or not."""
    model, source, target = make(variant, **fields), texts([7])["input_ids"], targets(1)
    config = model.config
    out = model(source, decoder_input_ids=target, output_attentions=True)
    decoder = model.model.decoder
    annotations, states, _ = literal_encoder(model, source[0])
    fed = torch.zeros(H, dtype=torch.float64)
    for t, y in enumerate(target[0]):
        x = decoder.embed_tokens.weight[y]
        if config.input_feeding:
            x = torch.cat([x, fed])
        for layer_idx, layer in enumerate(decoder.layers):
            states[layer_idx] = literal_step(config.cell, layer.rnn, x, states[layer_idx])
            x = states[layer_idx][0]
        s, length, width = x, len(annotations), config.attention_window_size
        inside, gaussian = [True] * length, [1.0] * length
        if config.attention_window == "local_m":
            inside = [abs(j - t) <= width for j in range(length)]
        if config.attention_window == "local_p":
            window = decoder.window
            p = length * torch.sigmoid(window.v_p @ torch.tanh(window.W_p @ s))
            inside = [abs(j - p) <= width for j in range(length)]
            gaussian = [math.exp(-((j - p) ** 2) / (2 * (width / 2) ** 2)) for j in range(length)]
        energies = [literal_luong_score(decoder.attention.score, s, h_j) for h_j in annotations]
        total = sum(e.exp() for e, i in zip(energies, inside, strict=True) if i)
        alpha = [e.exp() / total * g if i else e * 0 for e, i, g in zip(energies, inside, gaussian, strict=True)]
        c = sum(a * h_j for a, h_j in zip(alpha, annotations, strict=True))
        read = c if config.output_layer == "context" else torch.cat([c, s])
        fed = torch.tanh(decoder.attentional.weight @ read)
        torch.testing.assert_close(out.logits[0, t], model.lm_head(fed))
        torch.testing.assert_close(out.cross_attentions[0][0, 0, t], torch.stack(alpha))


@torch.no_grad()
def test_sutskever_2014_equals_its_formulas() -> None:
    model, source, target = make("sutskever", encoder_layers=2, decoder_layers=2), texts([5])["input_ids"], targets(1)
    out = model(source, decoder_input_ids=target, output_attentions=True)
    assert out.cross_attentions is None
    _, states, _ = literal_encoder(model, source[0])
    for t, y in enumerate(target[0]):
        x = model.model.decoder.embed_tokens.weight[y]
        for layer_idx, layer in enumerate(model.model.decoder.layers):
            states[layer_idx] = literal_step("lstm", layer.rnn, x, states[layer_idx])
            x = states[layer_idx][0]
        torch.testing.assert_close(out.logits[0, t], model.lm_head(x))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_fast_runs_equal_the_recurrence_step_by_step(variant: str) -> None:
    """Outputs, weights, states and gradients of a whole target in one call and of one ``step`` after the other."""
    model, source, target = make(variant, initializer_range=1.0), texts([5, 3, 7]), targets()
    encoder, decoder = model.get_encoder(), model.get_decoder()
    gradients = []
    for whole in (True, False):
        encoded = encoder(**source)
        cache = RecurrentCache(decoder.num_cache_layers)
        mask = source["attention_mask"]
        if whole:
            options = {"use_cache": True, "output_attentions": True, "past_key_values": cache}
            run = decoder(target, encoder_outputs=encoded, encoder_attention_mask=mask, **options)
            loss = run.last_hidden_state.square().sum()
        else:
            decoder._start(cache, encoded)
            states = [layer.state for layer in cache.layers]
            annotations = Source(encoded.last_hidden_state, cache.source, mask.bool())
            loss = 0.0
            for t in range(target.shape[1]):
                output, weights, states = decoder.step(decoder.embed_tokens(target[:, t]), states, annotations, t)
                torch.testing.assert_close(output, run.last_hidden_state[:, t])
                if run.cross_attentions is not None:
                    torch.testing.assert_close(weights[:, 0], run.cross_attentions[0][:, 0, t])
                loss = loss + output.square().sum()
            torch.testing.assert_close(states, [layer.state for layer in run.past_key_values.layers])
        parameters = [*encoder.parameters(), *decoder.parameters()]
        gradients.append(torch.autograd.grad(loss, parameters, allow_unused=True))
    torch.testing.assert_close(*gradients)


# Masks, caches, inputs


@pytest.mark.parametrize("side", ["left", "right", "middle"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_of_the_source_is_invisible(variant: str, side: str) -> None:
    model, length = make(variant), 4
    source, target = texts([length])["input_ids"], targets(1)
    places = {"left": [3, 4, 5, 6], "right": [0, 1, 2, 3], "middle": [0, 2, 3, 6]}[side]
    mask = torch.zeros(1, 7, dtype=torch.long)
    mask[0, places] = 1
    expected = model(source, decoder_input_ids=target, output_attentions=True)
    for filler in (0, 7):  # a masked symbol changes nothing when it is replaced
        padded = torch.full((1, 7), filler)
        padded[0, places] = source[0]
        other = texts([7], seed=9)["input_ids"]
        batch = model(
            torch.cat([padded, other]),
            attention_mask=torch.cat([mask, torch.ones_like(mask)]),
            decoder_input_ids=target.expand(2, -1),
            output_attentions=True,
        )
        torch.testing.assert_close(batch.logits[:1], expected.logits)
        if expected.cross_attentions is not None:
            weights = batch.cross_attentions[0][:1]
            torch.testing.assert_close(weights[..., places], expected.cross_attentions[0])
            assert not weights[..., mask[0] == 0].any()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_source_of_padding_gives_finite_numbers_and_gradients(variant: str) -> None:
    model = make(variant)
    source = texts([5, 3])
    source["attention_mask"][1] = 0
    loss = model(**source, labels=targets(2)).loss
    loss.backward()
    assert loss.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)


@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_before_the_target_is_invisible(variant: str) -> None:
    model, source, target = make(variant), texts([5, 3]), targets(2)
    mask = torch.ones_like(target)
    mask[1, :3] = 0
    outputs = model(**source, decoder_input_ids=target * mask, decoder_attention_mask=mask)
    alone = model(**row_of(source, 1), decoder_input_ids=target[1:, 3:])
    torch.testing.assert_close(outputs.logits[1:, 3:], alone.logits)
    holes = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 0, 0, 1, 0, 1]])
    outputs = model(**source, decoder_input_ids=target, decoder_attention_mask=holes)
    alone = model(**row_of(source, 1), decoder_input_ids=target[1:, [0, 3, 5]])
    torch.testing.assert_close(outputs.logits[1:, [0, 3, 5]], alone.logits)
    options = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None}
    prefix = {"decoder_input_ids": target * mask, "decoder_attention_mask": mask}
    written = model.generate(**source, **prefix, **options)
    assert torch.equal(written, model.generate(**source, **prefix, **options, use_cache=False))
    one = model.generate(**row_of(source, 1), decoder_input_ids=target[1:, 3:], **options)
    assert torch.equal(written[1, 4:], one[0, 1:])  # generate() writes the start symbol before all


@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_of_the_target_keeps_the_state(variant: str) -> None:
    model, source, target = make(variant), texts([5, 3]), targets(2)
    cut = target.clone()
    cut[1, 4:] = 0
    mask = torch.ones_like(cut)
    mask[1, 4:] = 0
    cache = model(**source, decoder_input_ids=cut, decoder_attention_mask=mask, use_cache=True).past_key_values
    alone = model(**row_of(source, 1), decoder_input_ids=target[1:, :4], use_cache=True).past_key_values
    for layer, layer_alone in zip(cache.layers, alone.layers, strict=True):
        for tensor, expected in zip(layer.state, layer_alone.state, strict=True):
            torch.testing.assert_close(tensor[1:], expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_cached_run_equals_uncached_run(variant: str) -> None:
    model, source, target = make(variant), texts([5, 3, 7]), targets()
    whole = model(**source, decoder_input_ids=target, output_attentions=True, output_hidden_states=True)
    cache, parts = None, []
    for piece in target.split([1, 3, 2], dim=1):
        part = model(**source, decoder_input_ids=piece, past_key_values=cache, use_cache=True, output_attentions=True)
        cache = part.past_key_values
        parts.append(part)
    assert isinstance(cache, RecurrentCache)
    assert cache.get_seq_length() == 6
    torch.testing.assert_close(torch.cat([part.logits for part in parts], 1), whole.logits)
    if whole.cross_attentions is not None:
        weights = torch.cat([part.cross_attentions[0] for part in parts], 2)
        torch.testing.assert_close(weights, whole.cross_attentions[0])
    assert [tuple(state.shape) for state in whole.decoder_hidden_states] == [(3, 6, 4)] + [(3, 6, H)] * (
        model.config.decoder_layers
    )
    assert len(whole.encoder_hidden_states) == model.config.encoder_layers + 1
    assert torch.equal(whole.encoder_hidden_states[-1], whole.encoder_last_hidden_state)


@pytest.mark.parametrize("variant", ["bahdanau", "luong"])
def test_the_keys_are_projected_once_per_source(variant: str) -> None:
    model, runs = make(variant, eos_token_id=None), 0
    score = model.model.decoder.attention.score
    prepare = score.prepare

    def counted(key: torch.Tensor) -> torch.Tensor:
        nonlocal runs
        runs += 1
        return prepare(key)

    score.prepare = counted
    model.generate(**texts([5, 3]), max_new_tokens=6, num_beams=2)
    assert runs == 1


@pytest.mark.parametrize("variant", VARIANTS)
def test_inputs_embeds_equal_input_ids(variant: str) -> None:
    model, source, target = make(variant), texts([5, 3]), targets(2)
    expected = model(**source, decoder_input_ids=target).logits
    embeds = {
        "inputs_embeds": model.get_input_embeddings()(source["input_ids"]),
        "decoder_inputs_embeds": model.model.decoder.embed_tokens(target),
    }
    torch.testing.assert_close(model(attention_mask=source["attention_mask"], **embeds).logits, expected)
    outputs = model.get_encoder()(**source)
    for given in (outputs, outputs.to_tuple()):
        got = model(encoder_outputs=given, attention_mask=source["attention_mask"], decoder_input_ids=target)
        torch.testing.assert_close(got.logits, expected)


def test_wrong_inputs_are_refused_in_one_sentence() -> None:
    model, source, target = make(), texts([5, 3]), targets(2)
    with pytest.raises(ValueError, match="Pass input_ids or inputs_embeds"):
        model(decoder_input_ids=target)
    with pytest.raises(ValueError, match="Pass only one of decoder_input_ids and decoder_inputs_embeds"):
        model(**source, decoder_input_ids=target, decoder_inputs_embeds=torch.zeros(2, 6, 4).double())
    with pytest.raises(ValueError, match="Pass labels, decoder_input_ids or decoder_inputs_embeds"):
        model(**source)
    with pytest.raises(ValueError, match=r"attention_mask has the shape \(2, 3\); pass .* \(2, 5\)"):
        model(source["input_ids"], attention_mask=torch.ones(2, 3), decoder_input_ids=target)
    with pytest.raises(ValueError, match="lacks final_state"):
        model(encoder_outputs=(torch.zeros(2, 5, 2 * H).double(),), decoder_input_ids=target)
    with pytest.raises(ValueError, match="encoder_outputs is missing"):
        model.model.decoder(target)
    with pytest.raises(ValueError, match="decoder_input_ids is empty; pass at least one"):
        model(**source, decoder_input_ids=target[:, :0])
    with pytest.raises(ValueError, match="past_key_values is a DynamicCache, and a recurrent model has no keys"):
        model(**source, decoder_input_ids=target, past_key_values=DynamicCache())
    with pytest.raises(ValueError, match="past_key_values is a DynamicCache, and a recurrent model has no keys"):
        model.generate(**source, past_key_values=DynamicCache())
    cache = model(**texts([4, 3]), decoder_input_ids=target, use_cache=True).past_key_values
    with pytest.raises(
        ValueError, match=r"source of shape \(2, 4\), and .* of shape \(2, 5\); pass both for the same source"
    ):
        model(**source, decoder_input_ids=target, past_key_values=cache)


# Loss


@torch.no_grad()
def test_the_loss_is_the_mean_of_literal_cross_entropies() -> None:
    model, source, labels = make(), texts([5, 3, 7]), targets()
    labels[1, 3:] = -100
    loss = model(**source, labels=labels).loss
    start = torch.full((3, 1), model.config.decoder_start_token_id)
    shifted = torch.cat([start, labels[:, :-1].clamp(min=0)], 1)
    assert torch.equal(model.prepare_decoder_input_ids_from_labels(labels), shifted)
    log_probabilities = model(**source, decoder_input_ids=shifted).logits.log_softmax(-1)
    terms = [-log_probabilities[b, t, y] for b, row in enumerate(labels) for t, y in enumerate(row) if y != -100]
    torch.testing.assert_close(loss, sum(terms) / len(terms), check_dtype=False, rtol=1e-6, atol=0)
    summed = model(**source, labels=labels, num_items_in_batch=10).loss
    torch.testing.assert_close(summed, loss * len(terms) / 10)


# Scores and distributions


@pytest.mark.parametrize(
    ("score", "options"),
    [
        *((score, {"max_length": 9} if score == "location" else {}) for score in SCORES),
        ("additive", {"activation": "relu"}),
        ("location", {"max_length": 9, "activation": "tanh"}),
        ("dot", {"learn_beta": True}),
    ],
)
def test_any_score(score: str, options: dict[str, Any]) -> None:
    fields = {"attention_score": score, "attention_score_options": options, "encoder_direction": "forward"}
    for position, layer in (("before", "maxout"), ("after", "attentional")):
        model = make(attention_position=position, output_layer=layer, initializer_range=1.0, **fields)
        check_attention(model)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_any_distribution(distribution: str) -> None:
    score = "generalized_kernel" if distribution == "normalize" else "additive"
    model = make(attention_score=score, attention_distribution=distribution, encoder_direction="forward")
    check_attention(model)


def check_attention(model: Any) -> None:
    source, target = texts([5, 3]), targets(2)
    outputs = model(**source, labels=target, output_attentions=True)
    outputs.loss.backward()
    assert outputs.loss.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)
    assert not outputs.cross_attentions[0][1, ..., :2].any()
    options = {"max_new_tokens": 6, "do_sample": False}
    assert torch.equal(model.generate(**source, **options), model.generate(**source, **options, use_cache=False))


# Configuration


def test_presets_have_the_sizes_of_the_papers() -> None:
    bahdanau = BahdanauConfig.preset("bahdanau2015")
    assert (bahdanau.hidden_size, bahdanau.embedding_size, bahdanau.output_size) == (1000, 620, 500)
    assert bahdanau.annotation_size == 2000
    for name in ("dot", "general", "concat", "local_p"):
        luong = BahdanauConfig.preset(f"luong2015_{name}")
        assert (luong.decoder_layers, luong.hidden_size, luong.input_feeding) == (4, 1000, True)
    sutskever = BahdanauConfig.preset("sutskever2014")
    assert (sutskever.source_vocab_size, sutskever.vocab_size, sutskever.attention_score) == (160_000, 80_000, None)
    small = BahdanauConfig.preset("bahdanau2015", hidden_size=32, vocab_size=50, source_vocab_size=None)
    assert (small.hidden_size, small.embedding_size) == (32, 620)
    with pytest.raises(ValueError, match="'bahdanau2014' is not a preset of BahdanauConfig; did you mean 'bahdanau20"):
        BahdanauConfig.preset("bahdanau2014")


def test_preset_sizes_are_counted() -> None:
    """Parameters by hand for Bahdanau's and luong_small; Sutskever's 384 M are those of the paper (section 3.4)."""
    with torch.device("meta"):
        bahdanau = BahdanauForConditionalGeneration(BahdanauConfig.preset("bahdanau2015"))
        luong_small = BahdanauForConditionalGeneration(BahdanauConfig.preset("luong_small"))
        sutskever = BahdanauForConditionalGeneration(BahdanauConfig.preset("sutskever2014"))
    score = 1000 * 1000 + 1000 * 2000 + 1000  # n' = n = 1000
    words = 30_000 * (2 * 620 + 500 + 1)
    gates = 3 * (2 * 1000 * (620 + 1000 + 1) + 1000 * (620 + 2000 + 1000 + 1))
    maxout = 2 * 500 * (1000 + 620 + 2000 + 1)
    assert bahdanau.num_parameters() == words + gates + score + maxout + 1000 * 1001
    encoder = 2 * 4 * (256 * (128 + 256) + 2 * 256)
    decoder = 4 * (512 * (128 + 512) + 2 * 512)
    expected = 2 * 1000 * 128 + encoder + decoder + 512 * 1024 + 512 * 1000 + 1000
    assert luong_small.num_parameters() == expected
    # 64 M in the recurrent layers, 320 M in embeddings and softmax; ours has two biases a gate, and one a word.
    assert sutskever.num_parameters() == pytest.approx(384e6, rel=0.001)


ALONE = {"attention_score": None, "encoder_direction": "forward"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hiden_size": 64}, "'hiden_size' is not a field of BahdanauConfig; did you mean 'hidden_size'?"),
        ({"cell": "GRU"}, "write one of 'elman', 'jordan', 'lstm', 'gru', 'gru_reset_before'"),
        ({"attention_position": "during"}, "write one of 'before', 'after'"),
        ({"attention_score": "aditive"}, "did you mean 'additive'?"),
        ({"attention_distribution": "softmaxx"}, "did you mean 'softmax'?"),
        ({"attention_score_options": {"hidden": 3}}, "hidden_size"),
        ({"share_embeddings": True, "source_vocab_size": 9}, "write share_embeddings: false"),
        ({"tie_word_embeddings": True, "embedding_size": 7}, "write output_size: 7"),
        ({"initial_state": "final", "encoder_layers": 2}, "make them equal, or write initial_state: projection"),
        ({"initial_state": "final"}, "write hidden_size: 256, or initial_state: projection"),
        ({**ALONE, "input_feeding": True}, "input_feeding True needs attention"),
        ({**ALONE, "output_layer": "attentional"}, "output_layer 'attentional' needs attention"),
        ({**ALONE, "output_layer": "context"}, "output_layer 'context' needs attention"),
        ({"output_layer": "context"}, "write attention_position: after, or output_layer: attentional"),
        ({**ALONE, "attention_distribution": "softmx"}, "attention_distribution 'softmx' needs attention"),
        ({"attention_score": None}, "write initial_state: final, or encoder_direction: backward"),
        (
            {"attention_distribution": "hard", "attention_distribution_options": {"estimator": "score_function"}},
            "write attention_distribution_options: {estimator: straight_through}",
        ),
        ({"vocab_size": 2}, "eos_token_id is 2; write an id from 0 to 1, or null"),
        ({"decoder_start_token_id": 99}, "decoder_start_token_id is 99; write an id from 0 to 64, or null"),
        (
            {"source_vocab_size": 5, "share_embeddings": False, "pad_token_id": 10},
            "pad_token_id is 10; write an id from 0 to 4, or null",
        ),
        ({"input_feeding": True}, "write attention_position: after and output_layer: attentional"),
        (
            {"input_feeding": True, "attention_position": "after", "output_layer": "maxout"},
            "write attention_position: after and output_layer: attentional (or context)",
        ),
        ({"output_layer": "state", "output_size": 7}, "remove output_size"),
        ({"sampled_softmax": 60}, "write training.sampled_softmax in the recipe"),
        ({"scheduled_sampling": 0.5}, "write training.scheduled_sampling in the recipe"),
        ({"dropout": 0.1}, "or use embedding_dropout or output_dropout"),
        ({"pad_token_id": 65}, "write an id from 0 to 64, or null"),
        ({"initializer_range": 0}, "write a number above 0"),
    ],
)
def test_a_wrong_field_is_refused_with_what_to_write_instead(fields: dict[str, object], message: str) -> None:
    with pytest.raises((ValueError, StrictDataclassError)) as error:
        BahdanauConfig(**fields)
    assert message in str(error.value)


def test_a_configuration_saved_with_settings_of_the_training(tmp_path: Path) -> None:
    """Earlier versions wrote two such settings into every config.json: the defaults are read, others refused."""
    build().config.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(saved | {"scheduled_sampling": 0.0, "sampled_softmax": None}))
    read = AutoConfig.from_pretrained(tmp_path).to_diff_dict()
    assert read == build().config.to_diff_dict() | {"hfattn_version": VERSION}
    (tmp_path / "config.json").write_text(json.dumps(saved | {"scheduled_sampling": 0.0, "sampled_softmax": 500}))
    with pytest.raises(
        (ValueError, StrictDataclassError), match=r"remove it from .* write training.sampled_softmax in"
    ):
        AutoConfig.from_pretrained(tmp_path)


# Saving, loading, training with transformers


TIES = [(False, False), (True, False), (False, True), (True, True)]


@pytest.mark.parametrize(("share", "tie"), TIES)
def test_save_and_load_with_ties(tmp_path: Path, share: bool, tie: bool) -> None:
    model = make("luong", share_embeddings=share, tie_word_embeddings=tie, output_size=4)
    model.save_pretrained(tmp_path)
    loaded, info = BahdanauForConditionalGeneration.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values())
    loaded = loaded.double().eval()
    source, target = texts([5, 3]), targets(2)
    expected = model(**source, decoder_input_ids=target).logits
    assert torch.equal(loaded(**source, decoder_input_ids=target).logits, expected)
    encoder, decoder = (part.embed_tokens.weight for part in (loaded.get_encoder(), loaded.get_decoder()))
    assert (encoder is decoder) == share
    assert (loaded.lm_head.weight is decoder) == tie
    assert isinstance(AutoConfig.from_pretrained(tmp_path), BahdanauConfig)
    assert isinstance(AutoModelForSeq2SeqLM.from_pretrained(tmp_path), BahdanauForConditionalGeneration)
    base = AutoModel.from_pretrained(tmp_path).double().eval()
    assert isinstance(base, BahdanauModel)
    hidden = base(**source, decoder_input_ids=target).last_hidden_state
    torch.testing.assert_close(model.lm_head(hidden), expected)


@pytest.mark.parametrize(("share", "tie"), TIES)
def test_resizing_the_vocabulary_keeps_the_weights(share: bool, tie: bool) -> None:
    model = make("luong", share_embeddings=share, tie_word_embeddings=tie, output_size=4)
    source, target = texts([5, 3]), targets(2)
    expected = model(**source, decoder_input_ids=target).logits
    model.resize_token_embeddings(V + 3)
    assert model.config.vocab_size == V + 3
    torch.testing.assert_close(model(**source, decoder_input_ids=target).logits[..., :V], expected)
    new = torch.full((2, 2), V + 2)
    assert model(new, decoder_input_ids=new).logits.shape[-1] == V + 3
    assert (model.get_encoder().embed_tokens.weight is model.get_decoder().embed_tokens.weight) == share


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_parameter_missing_from_the_checkpoint_is_initialized(tmp_path: Path, variant: str) -> None:
    """It gets the values of a new model, not uninitialized memory."""
    build(variant).model.encoder.save_pretrained(tmp_path)
    set_seed(0)
    loaded = BahdanauForConditionalGeneration.from_pretrained(tmp_path)
    fresh = build(variant)
    for (name, parameter), (_, other) in zip(loaded.named_parameters(), fresh.named_parameters(), strict=True):
        assert parameter.isfinite().all(), name
        assert parameter.abs().max() <= 4 * other.abs().max(), name
        assert parameter.any() == other.any(), name


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_gradient_checkpointing_changes_no_gradient(variant: str, reentrant: bool) -> None:
    check_gradient_checkpointing(make(variant), texts([5, 3, 7]), targets(3, 30), reentrant)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("variant", VARIANTS)
def test_half_precision(variant: str, dtype: torch.dtype) -> None:
    inputs = {**texts([5, 3, 7]), "decoder_input_ids": targets()}
    check_half_precision(build(variant).eval(), inputs, targets(), dtype, tolerance=0.03)


LINEAR = {"bahdanau": ["lm_head", "maxout"], "luong": ["lm_head", "attentional"]}
RECURRENT = {
    "bahdanau": ["encoder.layers.0.forward_rnn.rnn.weight_hh_l0", "rnn.weight_ih_l0", "score.W_q"],
    "luong": ["encoder.layers.1.forward_rnn.rnn.weight_hh_l0", "decoder.layers.0.rnn.weight_ih_l0"],
}


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("variant", LINEAR)
def test_lora(tmp_path: Path, variant: str, recurrent: bool) -> None:
    """Train, save, load and merge adapters on the linear layers and on the recurrent weights."""
    chosen = {"target_modules": [], "target_parameters": RECURRENT[variant]}
    config = LoraConfig(r=2, lora_alpha=4, **(chosen if recurrent else {"target_modules": LINEAR[variant]}))
    inputs = {**texts([5, 3, 7]), "decoder_input_ids": targets()}
    remains = 1.0 if recurrent else 0.9  # recurrent weights of an untrained model hardly reach the logits
    check_adapter(make(variant), config, inputs, targets(), tmp_path, steps=20, learning_rate=0.05, remains=remains)
    adapted, sources = get_peft_model(make(variant), config).eval(), texts([5, 3, 7])
    found = adapted.generate(**sources, max_new_tokens=8)
    adapted.get_base_model().fast_generation = False
    assert torch.equal(adapted.generate(**sources, max_new_tokens=8), found)


@pytest.mark.parametrize("variant", VARIANTS)
def test_offloaded_weights_are_loaded_for_each_part(variant: str) -> None:
    """The decoder calls parts of its cells and of its score, whose weights are there only during a call."""
    model, inputs = make(variant), {**texts([5, 3, 7]), "decoder_input_ids": targets()}
    expected = model(**inputs).logits
    generated = model.generate(**texts([5, 3, 7]), max_new_tokens=4)
    cpu_offload(model, execution_device=torch.device("cpu"))
    assert model.lm_head.weight.is_meta
    torch.testing.assert_close(model(**inputs).logits, expected)
    assert torch.equal(model.generate(**texts([5, 3, 7]), max_new_tokens=4), generated)


def test_device_map(tmp_path: Path) -> None:
    model = make("bahdanau")
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, device_map="auto").eval()
    source, target = texts([5, 3]), targets(2)
    torch.testing.assert_close(
        loaded(**source, decoder_input_ids=target).logits.double().cpu(),
        model(**source, decoder_input_ids=target).logits,
        check_dtype=False,
        rtol=1e-4,
        atol=1e-5,
    )


def test_dropout_acts_only_in_training() -> None:
    fields = {"dropout": 0.5, "embedding_dropout": 0.5, "output_dropout": 0.5}
    for variant in ("luong", "bahdanau_deep"):
        model, source, labels = make(variant, **fields), texts([5, 3]), targets(2)
        assert torch.equal(model(**source, labels=labels).logits, model(**source, labels=labels).logits)
        model.train()
        assert not torch.equal(model(**source, labels=labels).logits, model(**source, labels=labels).logits)


@pytest.mark.parametrize("variant", ["bahdanau", "luong", "sutskever"])
def test_it_learns_to_copy(variant: str) -> None:
    """Learn to copy or reverse a sequence within a hundred steps: the gradient reaches every part."""
    model = build(variant, embedding_size=16, encoder_hidden_size=32, hidden_size=32).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(0)
    for _ in range(150):
        ids = torch.randint(3, V, (32, 4), generator=generator)
        labels = torch.cat([ids, torch.full((32, 1), 2)], 1)
        loss = model(ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ids = torch.randint(3, V, (32, 4), generator=generator)
    copied = model.eval().generate(ids, max_new_tokens=6, do_sample=False)[:, 1:5]
    # A fixed context learns more slowly than attention; here it only has to be far from chance.
    assert (copied == ids).float().mean() > (0.4 if variant == "sutskever" else 0.95)


def test_two_vocabularies_are_resized_separately(tmp_path: Path) -> None:
    model = make("luong", share_embeddings=False, source_vocab_size=9)
    model.resize_token_embeddings(10)
    model.resize_source_token_embeddings(14)
    assert (model.config.vocab_size, model.config.source_vocab_size) == (10, 14)
    sources, target = torch.tensor([[13, 12]]), torch.tensor([[9, 3]])
    model.save_pretrained(tmp_path)
    loaded = BahdanauForConditionalGeneration.from_pretrained(tmp_path).double().eval()
    assert torch.equal(loaded(sources, labels=target).logits, model(sources, labels=target).logits)
    assert model.train()(sources, labels=target).loss.isfinite()
    base = make("luong", share_embeddings=False).model
    base.resize_token_embeddings(V + 3)
    assert base.decoder.embed_tokens.num_embeddings == base.encoder.embed_tokens.num_embeddings == V + 3


def test_encoder_outputs_may_be_an_output_a_tuple_or_a_mapping() -> None:
    model, source, labels = make(), texts([5, 3]), targets(2)
    expected = model(**source, labels=labels).loss
    encoded = model.get_encoder()(**source)
    for given in (encoded, encoded.to_tuple(), dict(encoded)):
        assert model(encoder_outputs=given, attention_mask=source["attention_mask"], labels=labels).loss == expected


def test_the_cache_is_returned_with_the_loss_if_requested() -> None:
    model, source, labels = make(), texts([5, 3]), targets(2)
    assert model(**source, labels=labels).past_key_values is None
    assert model(**source, labels=labels, use_cache=True).past_key_values.get_seq_length() == 6
