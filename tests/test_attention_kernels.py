"""Patterns whose weights are kernels: equal to dense attention with the same kernel, in functions and in models."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from model_checks import Largest, check_cached_generation, check_cached_steps
from transformers import DynamicCache

from hfattn import (
    AttentionRecord,
    VaswaniConfig,
    VaswaniForCausalLM,
    VaswaniForConditionalGeneration,
    VaswaniForMaskedLM,
)
from hfattn.explaining import alignment
from hfattn.models import attention_kernels
from hfattn.models.attention_kernels import KernelAttention, causal_sums, log_features, orthogonal_directions

SMALL: dict[str, Any] = {
    "vocab_size": 23,
    "hidden_size": 24,
    "intermediate_size": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_attention_heads": 2,
    "dropout": 0.0,
}


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that short texts have several chunks."""
    monkeypatch.setattr(attention_kernels, "CHUNK", 8)


PATTERNS: dict[str, dict[str, Any]] = {
    "linear": {"pattern": "linear"},
    "performer": {"pattern": "performer", "pattern_options": {"features": 10}},
    "linear, then full": {"pattern": ["linear", "full"]},
    "full, then linear": {"pattern": ["full", "linear"]},
    "full, then performer": {"pattern": ["full", "performer"], "pattern_options": {"features": 10}},
}
KERNELS = ["linear", "performer"]


def language_model(implementation: str = "sdpa", **pattern: Any) -> VaswaniForCausalLM:
    torch.manual_seed(0)
    fields = {f"decoder_{name}": value for name, value in pattern.items()}
    config = VaswaniConfig(**SMALL, **fields, eos_token_id=None, attn_implementation=implementation)
    return VaswaniForCausalLM(config).double().eval()


def masked_model(**pattern: Any) -> VaswaniForMaskedLM:
    torch.manual_seed(0)
    fields = {f"encoder_{name}": value for name, value in pattern.items()}
    return VaswaniForMaskedLM(VaswaniConfig(**SMALL, **fields)).double().eval()


def padded_batch(side: str, length: int = 21, padding: int = 6) -> tuple[torch.Tensor, torch.Tensor, slice]:
    """Ids and mask of two texts, the second one padded, and its tokens."""
    ids = torch.randint(3, 23, (2, length), generator=torch.Generator().manual_seed(1))
    real = slice(padding, None) if side == "left" else slice(-padding)
    mask = torch.ones_like(ids)
    mask[1] = 0
    mask[1, real] = 1
    return ids, mask, real


def test_chunks_equal_a_loop_over_the_keys() -> None:
    """Chunks of each length, the state included, forward and backward."""
    torch.manual_seed(0)
    query, key = torch.rand(2, 2, 19, 5, dtype=torch.float64)
    value = torch.randn(2, 19, 3, dtype=torch.float64)
    scale = torch.randn(2, 19, dtype=torch.float64).cumsum(-1).cummax(-1).values
    expected = torch.zeros(2, 19, 3, dtype=torch.float64)
    for i, j in itertools.product(range(19), range(19)):
        if j <= i:
            kernel = (query[:, i] * key[:, j]).sum(-1) * (scale[:, j] - scale[:, i]).exp()
            expected[:, i] += kernel[:, None] * value[:, j]
    gradients = []
    for chunk in (1, 2, 7, 19, 50):
        q, k, v = (tensor.clone().requires_grad_() for tensor in (query, key, value))
        sums, whole = causal_sums(q, k, v, scale, None, chunk)
        torch.testing.assert_close(sums, expected, atol=1e-12, rtol=0)
        sums.square().sum().backward()
        gradients.append([q.grad, k.grad, v.grad])
        first, state = causal_sums(query[:, :6], key[:, :6], value[:, :6], scale[:, :6], None, chunk)
        rest, state = causal_sums(query[:, 6:], key[:, 6:], value[:, 6:], scale[:, 6:], state, chunk)
        torch.testing.assert_close(torch.cat([first, rest], 1), expected, atol=1e-12, rtol=0)
        torch.testing.assert_close(state, whole, atol=1e-12, rtol=0)
    for other in gradients[1:]:
        torch.testing.assert_close(other, gradients[0], atol=1e-11, rtol=0)


@pytest.mark.parametrize("side", ["left", "right"])
def test_linear_attention_equals_dense_attention_with_its_kernel(side: str) -> None:
    """The score φ(q)·φ(k) and ``normalize``, in both stacks, padded, with rotary positions and shared keys."""
    dense = {"self_attention_score": "generalized_kernel", "self_attention_distribution": "normalize"}
    fields = {**SMALL, "positions": "rotary", "num_key_value_heads": 1}
    ids, mask, _ = padded_batch(side)
    for stack, kind in (("encoder", VaswaniForMaskedLM), ("decoder", VaswaniForCausalLM)):
        torch.manual_seed(0)
        model = kind(VaswaniConfig(**fields, **{f"{stack}_pattern": "linear"})).double().eval()
        expected = kind(VaswaniConfig(**fields, **dense)).double().eval()
        expected.load_state_dict(model.state_dict())
        found = model(ids, attention_mask=mask).logits[mask.bool()]
        torch.testing.assert_close(found, expected(ids, attention_mask=mask).logits[mask.bool()], atol=1e-12, rtol=0)


def performer(causal: bool, **options: Any) -> tuple[Any, Any]:
    """A model, and the attention of its first layer."""
    pattern: dict[str, Any] = {"pattern": "performer", "pattern_options": options}
    model: Any = language_model(**pattern) if causal else masked_model(**pattern)
    return model, (model.model.decoder if causal else model.model.encoder).layers[0].self_attn


def kernel_of(attention: Any, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Σ_l φ(q)_l φ(k)_l of each pair, by a loop over the directions; without factors that keep it in range."""
    total = torch.zeros(*query.shape[:-1], key.shape[-2], dtype=torch.float64)
    query, key = query * query.shape[-1] ** -0.25, key * key.shape[-1] ** -0.25
    for direction in attention.directions.double():
        left = (query @ direction - query.square().sum(-1) / 2).exp()
        right = (key @ direction - key.square().sum(-1) / 2).exp()
        total += left[..., None] * right[..., None, :]
    return total / len(attention.directions)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("causal", [True, False])
def test_performer_equals_dense_attention_with_its_features(causal: bool, side: str) -> None:
    _, attention = performer(causal, features=17)
    _, mask, _ = padded_batch(side)
    hidden = 3 * torch.randn(2, 21, 24, dtype=torch.float64)
    query, key, value = (
        attention._heads(part(hidden)) for part in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    kernel = kernel_of(attention, query, key) * mask[:, None, None]
    kernel = kernel.tril() if causal else kernel
    weights = kernel / kernel.sum(-1, keepdim=True)
    expected = attention.out_proj((weights @ value).transpose(1, 2).flatten(-2))
    output, _ = attention(hidden, mask)
    torch.testing.assert_close(output[mask.bool()], expected[mask.bool()], atol=1e-11, rtol=0)


def test_long_keys_do_not_underflow() -> None:
    """Keys in float32 whose features are all zero without the maximum, which rises when shorter keys follow."""
    _, attention = performer(True, features=32)
    attention.k_proj.weight.data *= 8
    hidden = torch.randn(1, 40, 24) * torch.linspace(2, 0.1, 40)[:, None]
    query, key = (attention._heads(part(hidden.double())) * 12**-0.25 for part in (attention.q_proj, attention.k_proj))
    left, right = (log_features(heads, attention.directions) for heads in (query, key))
    assert (right.float().exp() == 0).all(-1)[:, :, :5].any()
    energies = (left[:, :, :, None] + right[:, :, None]).logsumexp(-1)
    weights = energies.masked_fill(torch.ones(40, 40).triu(1).bool(), -torch.inf).softmax(-1)
    value = attention._heads(attention.v_proj(hidden.double()))
    expected = attention.out_proj((weights @ value).transpose(1, 2).flatten(-2))
    output, _ = attention.float()(hidden)
    torch.testing.assert_close(output.double(), expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize("pair", [(0.8, 0.8, 0.6), (1.0, 0.5, -0.5), (0.9, 0.9, 0.0)])
def test_the_kernel_is_unbiased_and_its_variance_that_of_lemma_2(pair: tuple[float, float, float]) -> None:
    """MSE = exp(x·y)² (exp(‖x + y‖²) - 1) / m for independent directions; orthogonal ones have at most that."""
    torch.manual_seed(0)
    first, second, cosine = pair
    width, number, draws = 8, 16, 20_000
    x = torch.zeros(width, dtype=torch.float64)
    y = torch.zeros(width, dtype=torch.float64)
    x[0], y[0], y[1] = first, second * cosine, second * (1 - cosine**2) ** 0.5
    exact = (x @ y).exp()
    bound = exact**2 * ((x + y).square().sum().exp() - 1) / number
    errors = {}
    independent = torch.randn(draws * number, width, dtype=torch.float64)
    orthogonal = orthogonal_directions(draws * number, width, torch.float64)
    for name, directions in (("independent", independent), ("orthogonal", orthogonal)):
        products = (log_features(x, directions) + log_features(y, directions)).exp()
        estimates = products.view(draws, number).mean(-1)
        standard_error = estimates.std() / draws**0.5
        assert (estimates.mean() - exact).abs() < 3 * standard_error
        errors[name] = (estimates - exact).square().mean()
    assert abs(errors["independent"] / bound - 1) < 0.1
    assert errors["orthogonal"] < errors["independent"]


def test_directions_are_orthogonal_in_blocks_and_as_long_as_normal_vectors() -> None:
    torch.manual_seed(0)
    directions = orthogonal_directions(20_006, 8, torch.float64)
    assert directions.shape == (20_006, 8)
    products = directions[:20_000].view(-1, 8, 8)
    products = products @ products.transpose(-1, -2)
    lengths = products.diagonal(dim1=-2, dim2=-1)
    assert (products - lengths.diag_embed()).abs().max() < 1e-12
    assert abs(lengths.mean() - 8) < 0.1  # of chi-squared numbers with 8 degrees of freedom
    assert abs(lengths.var() - 16) < 0.8
    assert directions.mean(0).abs().max() < 0.03  # no sign is preferred
    assert (directions.T @ directions / len(directions) - torch.eye(8)).abs().max() < 0.05


def test_directions_are_drawn_again_in_training_only(tmp_path: Path) -> None:
    ids = torch.randint(3, 23, (2, 9))
    model, attention = performer(False, features=10, redraw=3)
    first = attention.directions.clone()
    for _ in range(5):
        model(ids)
    assert torch.equal(attention.directions, first)
    model.train().gradient_checkpointing_enable()  # which runs a layer twice for each pass
    for passes in range(1, 4):
        model(ids, labels=ids).loss.backward()
        assert torch.equal(attention.directions, first)
        assert attention.passes == passes
    model.save_pretrained(tmp_path)
    again = VaswaniForMaskedLM.from_pretrained(tmp_path, dtype=torch.float64)
    torch.testing.assert_close(again(ids).logits, model.eval()(ids).logits, atol=1e-12, rtol=0)
    again.train()(ids)  # the fourth pass
    loaded: Any = again.model.encoder.layers[0].self_attn
    assert not torch.equal(loaded.directions, first)
    assert loaded.passes == 1
    model, attention = performer(False, features=10, redraw=0)
    first = attention.directions.clone()
    for _ in range(3):
        model.train()(ids)
    assert torch.equal(attention.directions, first)


def test_directions_that_a_checkpoint_lacks_are_drawn(tmp_path: Path) -> None:
    """The weights of a softmax model, with another pattern."""
    masked_model(pattern="full").save_pretrained(tmp_path)
    torch.manual_seed(0)
    model: Any = VaswaniForMaskedLM.from_pretrained(tmp_path, encoder_pattern="performer", dtype=torch.float64)
    for layer in model.model.encoder.layers:
        directions = layer.self_attn.directions
        assert directions.shape == (256, 12)
        assert abs(directions.square().mean() - 1) < 0.1
        assert layer.self_attn.passes == 0
    first, second = (layer.self_attn.directions for layer in model.model.encoder.layers)
    assert not torch.equal(first, second)
    assert model(torch.randint(3, 23, (1, 9))).logits.isfinite().all()


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("causal", [True, False])
def test_implicit_weights_are_those_of_the_context(name: str, causal: bool) -> None:
    model: Any = language_model(**PATTERNS[name]) if causal else masked_model(**PATTERNS[name])
    attention = (model.model.decoder if causal else model.model.encoder).layers[0].self_attn
    assert isinstance(attention, KernelAttention)
    ids, mask, real = padded_batch("left")
    hidden = torch.randn(2, 21, 24, dtype=torch.float64)
    output, none = attention(hidden, mask)
    assert none is None
    again, weights = attention(hidden, mask, implicit_weights=True)
    assert torch.equal(again, output)
    context = weights @ attention._heads(attention.v_proj(hidden))
    expected = attention.out_proj(context.transpose(1, 2).flatten(-2))
    torch.testing.assert_close(output, expected, atol=1e-12, rtol=0)
    assert not weights[1, :, :, :6].any()  # padding
    torch.testing.assert_close(weights[:, :, real].sum(-1), torch.ones(2, 2, 15, dtype=torch.float64))
    assert bool(weights.triu(1).any()) != causal
    outputs = model(ids, attention_mask=mask, output_attentions=True, implicit_weights=True)
    record = alignment(outputs, 1, input_ids=ids, attention_mask=mask)
    assert torch.equal(record.weights, torch.stack(outputs.attentions)[:, 1, :, real, real])


@pytest.mark.parametrize("name", PATTERNS)
def test_cached_equals_uncached(name: str) -> None:
    """Greedy search, samples and beams, several returned, with padding on the left; and steps of several tokens."""
    model = language_model(**PATTERNS[name])
    ids, mask, _ = padded_batch("left", 13, 5)
    check_cached_generation(model, {"input_ids": ids, "attention_mask": mask}, max_new_tokens=9)
    whole = model(ids, attention_mask=mask).logits
    check_cached_steps(model, ids, mask, (3, 12, 13))  # of the second text, the first three are padding
    alone = model(ids[1:, 5:]).logits  # without its padding
    torch.testing.assert_close(alone[0], whole[1, 5:], atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_cached_prompt_is_continued(name: str) -> None:
    """The cache of one prompt for several answers, and for chosen texts of a batch."""
    model = language_model(**PATTERNS[name])
    ids = torch.randint(3, 23, (2, 9))
    cache = model(ids[:, :6], use_cache=True).past_key_values
    cache.batch_repeat_interleave(2)
    cache.batch_select_indices(torch.tensor([3, 0]))
    found = model(ids[:, 6:].flip(0), past_key_values=cache).logits
    torch.testing.assert_close(found, model(ids).logits[:, 6:].flip(0), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", PATTERNS)
def test_later_tokens_change_nothing(name: str) -> None:
    ids = torch.randint(3, 23, (1, 30))
    changed = ids.clone()
    changed[0, 17:] = 3
    model = language_model(**PATTERNS[name])
    torch.testing.assert_close(model(changed).logits[:, :17], model(ids).logits[:, :17], atol=1e-13, rtol=0)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", PATTERNS)
def test_padding_of_an_encoder_is_invisible(name: str, side: str) -> None:
    model = masked_model(**PATTERNS[name])
    ids, mask, real = padded_batch(side)
    whole = model(ids, attention_mask=mask).logits
    torch.testing.assert_close(model(ids[1:, real]).logits[0], whole[1, real], atol=1e-12, rtol=0)
    torch.testing.assert_close(model(ids[:1]).logits[0], whole[0], atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("causal", [True, False])
def test_texts_without_a_token_are_zeros(name: str, causal: bool) -> None:
    model: Any = language_model(**PATTERNS[name]) if causal else masked_model(**PATTERNS[name])
    attention = (model.model.decoder if causal else model.model.encoder).layers[0].self_attn
    attention.out_proj = torch.nn.Identity()
    for length in (0, 1, 9):
        output, _ = attention(torch.randn(2, length, 24).double(), torch.zeros(2, length))
        assert torch.equal(output, torch.zeros(2, length, 24, dtype=torch.float64))
    ids = torch.randint(3, 23, (2, 9))
    inputs = torch.zeros(2, 9, 24, dtype=torch.float64, requires_grad=True)
    model(inputs_embeds=inputs, attention_mask=torch.zeros_like(ids)).logits.sum().backward()
    assert inputs.grad is not None
    assert inputs.grad.isfinite().all()


@pytest.mark.parametrize("name", KERNELS)
def test_the_state_does_not_grow(name: str) -> None:
    model = language_model(**PATTERNS[name])
    ids = torch.randint(3, 23, (2, 9))
    cache = model(ids, use_cache=True).past_key_values
    cache.reset()
    assert torch.equal(model(ids, past_key_values=cache).logits, model(ids).logits)
    sizes = []
    for number in (2, 40):
        generated = model.generate(torch.tensor([[3, 4]]), max_new_tokens=number, return_dict_in_generate=True)
        assert generated.past_key_values.get_seq_length() == number + 1
        sizes.append([tensor.shape for layer in generated.past_key_values.layers for tensor in layer.state])
    assert sizes[0] == sizes[1]


def test_no_matrix_of_all_pairs_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_kernels, "CHUNK", 64)
    length = 4096
    for model in (language_model(pattern="linear"), masked_model(pattern="linear")):
        with Largest() as largest, torch.no_grad():
            model(torch.randint(3, 23, (1, length)))
        assert largest.elements <= length * 24 * 2


@pytest.mark.parametrize("name", KERNELS)
def test_half_precision_is_computed_in_float32(name: str) -> None:
    """The sums of a long text, of which bfloat16 would round the increments away."""
    model: Any = language_model(**PATTERNS[name])
    attention = model.model.decoder.layers[0].self_attn.to(torch.bfloat16)
    hidden = torch.randn(1, 2000, 24).to(torch.bfloat16)
    output, _ = attention(hidden)
    expected, _ = attention.double()(hidden.double())
    with torch.autocast("cpu", torch.bfloat16):
        cast, _ = attention.float()(hidden.float())
    for found in (output, cast):
        assert found.dtype == torch.bfloat16
        assert (found.double() - expected)[:, 100:].norm() < 0.02 * expected[:, 100:].norm()


@pytest.mark.parametrize("name", KERNELS)
def test_a_translator_with_kernels_in_both_stacks(name: str) -> None:
    torch.manual_seed(0)
    fields = {f"{stack}_{key}": value for stack in ("encoder", "decoder") for key, value in PATTERNS[name].items()}
    config = VaswaniConfig(**SMALL, **fields, eos_token_id=None)
    model = VaswaniForConditionalGeneration(config).double().eval()
    ids, mask, _ = padded_batch("right", 9, 3)
    generated = [
        model.generate(ids, attention_mask=mask, max_new_tokens=12, num_beams=2, use_cache=cached)
        for cached in (True, False)
    ]
    assert torch.equal(*generated)


@pytest.mark.parametrize("name", KERNELS)
def test_gradient_checkpointing_changes_no_gradient(name: str) -> None:
    ids, mask, _ = padded_batch("left")
    gradients = []
    for checkpointing in (False, True):
        model = masked_model(**PATTERNS[name]).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        model(ids, attention_mask=mask, labels=ids).loss.backward()
        gradients.append({key: parameter.grad for key, parameter in model.named_parameters()})
    torch.testing.assert_close(*gradients, atol=1e-13, rtol=0)


def test_weights_of_a_layer_without_weights() -> None:
    """The layer keeps its place, and a record of all layers is refused in one sentence."""
    sentence = (
        "Layer {} computed no attention weights, and a record has those of all layers; load the model with "
        'attn_implementation="eager", pass implicit_weights=True if the pattern of the layer is a kernel or gated, '
        "or use a model with other patterns."
    )
    ids = torch.randint(3, 23, (1, 7))
    for layer, pattern in enumerate((["linear", "full"], ["full", "linear"])):
        model = language_model("eager", pattern=pattern)
        outputs = model(ids, output_attentions=True)
        heads = [weights.shape for weights in outputs.attentions]
        assert heads[layer] == (1, 0, 7, 7)
        assert heads[1 - layer] == (1, 2, 7, 7)
        with pytest.raises(ValueError, match=f"^{sentence.format(layer)}$"):
            alignment(outputs, input_ids=ids)
        generated = model.generate(ids, max_new_tokens=3, return_dict_in_generate=True, output_attentions=True)
        assert [weights[layer].shape for weights in generated.attentions] == [(1, 0, 7, 7), (1, 0, 1, 8), (1, 0, 1, 9)]
        with pytest.raises(ValueError, match=f"^{sentence.format(layer)}$"):
            alignment(generated, eos_token_id=[])
    torch.manual_seed(0)
    translator = VaswaniForConditionalGeneration(VaswaniConfig(**SMALL, decoder_pattern="linear")).eval()
    translator.set_attn_implementation("eager")
    outputs = translator(ids, decoder_input_ids=ids, output_attentions=True)
    assert isinstance(alignment(outputs, input_ids=ids, labels=ids), AttentionRecord)  # to the source
    with pytest.raises(ValueError, match=f"^{sentence.format(0)}$"):
        alignment(outputs, kind="decoder", decoder_input_ids=ids)


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "score": (
        {"decoder_pattern": "linear", "self_attention_score": "additive"},
        "The pattern 'linear' has a kernel instead of a score and a distribution, and self_attention_score is "
        "'additive'; leave it out, or write the pattern 'full'.",
    ),
    "distribution": (
        {"encoder_pattern": ["full", "linear"], "self_attention_distribution": "entmax"},
        "The pattern 'linear' has a kernel instead of a score and a distribution, and self_attention_distribution is "
        "'entmax'; leave it out, or write the pattern 'full'.",
    ),
    "performer": (
        {"encoder_pattern": "performer", "self_attention_score": "dot"},
        "The pattern 'performer' has a kernel instead of a score and a distribution, and self_attention_score is "
        "'dot'; leave it out, or write the pattern 'full'.",
    ),
    "features": (
        {"encoder_pattern": "performer", "encoder_pattern_options": {"features": 0}},
        "features is 0; write a whole number of at least 1.",
    ),
    "redraw": (
        {"decoder_pattern": "performer", "decoder_pattern_options": {"redraw": True}},
        "redraw is True; write a whole number of at least 0.",
    ),
    "option": (
        {"encoder_pattern": "linear", "encoder_pattern_options": {"window": 3}},
        "'window' is not an option of encoder_pattern 'linear'; there is none.",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_configuration_is_one_sentence(name: str) -> None:
    fields, sentence = MISTAKES[name]
    with pytest.raises(StrictDataclassError) as error:
        VaswaniConfig(**SMALL, **fields)
    assert str(error.value.__cause__) == sentence


def test_what_a_state_cannot_do_is_one_sentence() -> None:
    model = language_model(pattern=["full", "linear"])
    ids = torch.randint(3, 23, (1, 6))
    cache = model(ids, use_cache=True).past_key_values
    with pytest.raises(ValueError, match=r"^implicit_weights needs all keys, .*; pass the whole text, with use_cache="):
        model(ids, past_key_values=cache, implicit_weights=True)
    with pytest.raises(ValueError, match=r"^A recurrent cache cannot be cropped .*; run the model on the shorter text"):
        cache.crop(-1)
    with pytest.raises(ValueError, match="pass 1 for tokens and 0 for padding"):
        model(ids, attention_mask=torch.ones(1, 1, 6, 6))
    filled = DynamicCache()
    filled.update(torch.zeros(1, 2, 3, 12), torch.zeros(1, 2, 3, 12), 0)
    with pytest.raises(ValueError, match="a pattern of attention has a cache of its own"):
        model(ids, past_key_values=filled)
