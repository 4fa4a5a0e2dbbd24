"""Options of later Transformers: each is its formula, and together they are the models that introduced them."""

import math
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from test_vaswani import HEADED, HEADS, H, V, batch, ids, make
from torch import nn

from hfattn import VaswaniConfig, VaswaniForCausalLM, VaswaniForConditionalGeneration, VaswaniForMaskedLM

# Each option away from its default.
OPTIONS: dict[str, dict[str, Any]] = {
    "rms": {"norm_type": "rms"},
    "gated": {"gated_feed_forward": True, "activation": "silu"},
    "no bias": {"bias": False},
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
            energies = [(query[t][own] @ key[s][own]).item() / math.sqrt(width) for s in range(t + 1)]
            total = sum(math.exp(energy) for energy in energies)
            context.append(torch.stack([math.exp(energies[s]) / total * value[s][own] for s in range(t + 1)]).sum(0))
        outputs.append(literal_linear(torch.cat(context), attention.out_proj, config))
    return outputs


def literal_feed_forward(x: torch.Tensor, network: Any, config: VaswaniConfig) -> torch.Tensor:
    activation = {"relu": torch.relu, "silu": lambda z: z / (1 + torch.exp(-z))}[config.activation]
    inner = activation(literal_linear(x, network.fc1, config))
    if config.gated_feed_forward:
        inner = inner * literal_linear(x, network.fc3, config)
    return literal_linear(inner, network.fc2, config)


def literal_logits(model: VaswaniForCausalLM, text: torch.Tensor) -> torch.Tensor:
    """(T) -> (T, V), for ``norm="pre"`` and sinusoidal positions."""
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
        ({"norm_type": "rms", "norm": "none"}, "write norm: pre or post, or leave norm_type out."),
        ({"gated_feed_forward": "silu"}, "expected bool, got str"),
        ({"activation": "swiglu"}, "write one of 'relu', 'gelu', 'gelu_new', 'silu', 'tanh'"),
        ({"num_layers": 3}, "'num_layers' is not a field of VaswaniConfig"),
    ],
)
def test_a_wrong_option_is_refused_with_what_to_write_instead(fields: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, StrictDataclassError)) as error:
        VaswaniConfig(**{"vocab_size": V, **fields})
    assert message in str(error.value)
