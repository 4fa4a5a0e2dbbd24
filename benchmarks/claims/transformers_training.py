"""Norm, initialization and warm-up of a Transformer of six layers: four claims that share runs."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hfattn import VaswaniConfig, VaswaniForCausalLM
from hfattn.training.schedules import exponential_warmup, linear_warmup

from .claim import Claim, Measurement, Panel, Statement
from .tasks import characters, next_loss, train, windows

LAYERS, WIDTH, STEPS, RATE, BETA2 = 6, 32, 300, 5e-3, 0.99
DECADES = range(-9, 1)  # of a histogram of gradients, as powers of ten
LINEAR, EXPONENTIAL = 2 / (1 - BETA2), 1 / (1 - BETA2)  # tau of the untuned warm-ups

VARIANTS: dict[str, dict[str, Any]] = {
    "post, Adam": {"norm": "post"},
    "post, linear warm-up": {"norm": "post", "factor": lambda step: linear_warmup(step, LINEAR)},
    "post, exponential warm-up": {"norm": "post", "factor": lambda step: exponential_warmup(step, EXPONENTIAL)},
    "post, RAdam": {"norm": "post", "optimizer": torch.optim.RAdam},
    "pre, linear warm-up": {"norm": "pre", "factor": lambda step: linear_warmup(step, LINEAR)},
    "T-Fixup, Adam": {"norm": "none"},
    "no norm, Adam": {"norm": "none", "glorot": True},
}


def make(norm: str, vocab_size: int, glorot: bool) -> VaswaniForCausalLM:
    """Return the model; ``glorot`` replaces the initialization of T-Fixup by that of the other norms."""
    config = VaswaniConfig(
        vocab_size=vocab_size,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        decoder_layers=LAYERS,
        num_attention_heads=4,
        dropout=0.0,
        norm=norm,
    )
    model = VaswaniForCausalLM(config)
    if glorot:
        for module in model.modules():
            if "gain" in vars(module):  # the layers that T-Fixup scales
                nn.init.xavier_uniform_(module.weight)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=WIDTH**-0.5)
    return model


def gradient_by_layer(model: VaswaniForCausalLM) -> list[tuple[float, float]]:
    """Return (layer from 1, norm of the gradient of the second matrix of its feed-forward network)."""
    weights = [weight for name, weight in model.named_parameters() if name.endswith("fc2.weight")]
    return [(float(number), gradient(weight).norm().item()) for number, weight in enumerate(weights, 1)]


def gradient(parameter: nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad


def slope(norms: list[tuple[float, float]]) -> float:
    """Return log10 of the last layer's norm divided by the first layer's."""
    return math.log10(max(norms[-1][1], 1e-30) / max(norms[0][1], 1e-30))


def measure(variant: str, seed: int, data: Path) -> Measurement:
    settings = VARIANTS[variant]
    text, held_out, vocab_size = characters(data)
    torch.manual_seed(seed)
    model = make(settings["norm"], vocab_size, settings.get("glorot", False))
    generator = torch.Generator().manual_seed(seed)
    norms: dict[str, list[tuple[float, float]]] = {}
    sizes: list[torch.Tensor] = []

    def loss(step: int) -> torch.Tensor:
        batch = windows(text, 33, 16, generator)
        return next_loss(model(input_ids=batch[:, :-1], use_cache=False).logits, batch)

    def look(step: int) -> None:
        if step == 1:
            norms["initial"] = gradient_by_layer(model)
        if step == STEPS:
            norms["trained"] = gradient_by_layer(model)
        if 2 <= step <= 10:  # gradients after the first updates
            sizes.append(
                torch.cat([gradient(each).abs().flatten() for each in model.model.decoder.layers.parameters()])
            )

    factor: Callable[[int], float] = settings.get("factor", lambda step: 1.0)
    optimizer = settings.get("optimizer", torch.optim.Adam)
    parameters = list(model.parameters())
    curve = train(parameters, loss, STEPS, RATE, factor, optimizer, (0.9, BETA2), clip=None, after_backward=look)
    decades = torch.cat(sizes).clamp(min=10.0 ** DECADES[0]).log10().nan_to_num(0.0)
    counts = torch.histc(decades.clamp(DECADES[0], DECADES[-1]), bins=20, min=DECADES[0], max=DECADES[-1])
    model.eval()
    with torch.no_grad():
        batch = windows(held_out, 33, 512, torch.Generator().manual_seed(0))
        nats = next_loss(model(input_ids=batch[:, :-1], use_cache=False).logits, batch).item()
    values = {
        "held-out nats": nats if math.isfinite(nats) else 100.0,
        "log10 median gradient, steps 2 to 10": decades.median().item(),
        "initial slope": slope(norms["initial"]),
        "trained slope": slope(norms["trained"]),
    }
    width = (DECADES[-1] - DECADES[0]) / len(counts)
    histogram = [
        (DECADES[0] + (bin_ + 0.5) * width, share) for bin_, share in enumerate((counts / counts.sum()).tolist())
    ]
    return Measurement(values, {"loss": curve, "histogram": histogram, **norms}, STEPS)


SETTING = (
    f"`vaswani` as a character language model on tiny Shakespeare (the last 10% held out): {LAYERS} layers of width "
    f"{WIDTH}, {STEPS} steps of 16 windows of 32 characters, Adam with rate {RATE:g} and beta2 {BETA2:g}, "
    f"no dropout, no "
    "clipping. "
)
LOSS = Panel("loss", "step", "training nats per character")


def _claim(
    title: str, source: str, setting: str, variants: tuple[str, ...], statements: tuple[Statement, ...], *panels: Panel
) -> Claim:
    return Claim(title, source, SETTING + setting, variants, measure, statements, panels, "transformers_training")


CLAIMS = {
    "warmup": _claim(
        "A post-norm Transformer needs warm-up with Adam; untuned warm-up trains as well as RAdam",
        "Ma & Yarats 2019, sections 4 and 5; Xiong et al. 2020, section 3; Liu et al. 2020 (RAdam)",
        f"The untuned warm-ups take {LINEAR:.0f} (linear) and {EXPONENTIAL:.0f} (exponential) steps from beta2.",
        ("post, Adam", "post, linear warm-up", "post, exponential warm-up", "post, RAdam"),
        (
            Statement("held-out nats", "post, Adam", "above", "post, linear warm-up"),
            Statement("held-out nats", "post, linear warm-up", "equal to", "post, RAdam", 0.05),
            Statement("held-out nats", "post, exponential warm-up", "equal to", "post, RAdam", 0.05),
        ),
        LOSS,
    ),
    "tfixup": _claim(
        "With T-Fixup, a Transformer without layer norm and warm-up trains as well",
        "Huang et al. 2020, sections 3 and 4",
        "The control has neither norm, nor T-Fixup, nor warm-up.",
        ("post, linear warm-up", "pre, linear warm-up", "T-Fixup, Adam", "no norm, Adam"),
        (
            Statement("held-out nats", "T-Fixup, Adam", "not above", "post, linear warm-up", 0.05),
            Statement("held-out nats", "T-Fixup, Adam", "not above", "pre, linear warm-up", 0.05),
            Statement("held-out nats", "T-Fixup, Adam", "below", "no norm, Adam"),
        ),
        LOSS,
    ),
    "histograms": _claim(
        "Without warm-up, the gradients vanish in the first steps; with warm-up or T-Fixup they do not",
        "Huang et al. 2020, figure 2; Liu et al. 2020, figure 2",
        "The histogram is of the absolute gradients of all layers in steps 2 to 10, after the first updates.",
        ("post, Adam", "post, linear warm-up", "T-Fixup, Adam"),
        (
            Statement("log10 median gradient, steps 2 to 10", "post, Adam", "below", "post, linear warm-up"),
            Statement("log10 median gradient, steps 2 to 10", "post, Adam", "below", "T-Fixup, Adam"),
        ),
        Panel("histogram", "log10 of the absolute gradient", "share of the parameters"),
    ),
    "depth": _claim(
        "The gradient norm is flat over depth with post-norm and falls with pre-norm, which trains worse",
        "Shleifer et al. 2021 (NormFormer), section 1; for post-norm, Xiong et al. 2020, theorem 1, expect a "
        "norm that grows "
        "towards the output",
        "The slope is log10 of the gradient norm of W_2 in the last layer divided by that in the first "
        "layer; 0 is flat. It "
        f"is measured in step 1 and in step {STEPS}.",
        ("post, linear warm-up", "pre, linear warm-up"),
        (
            Statement("initial slope", "post, linear warm-up", "equal to", 0.0, 0.1),
            Statement("initial slope", "pre, linear warm-up", "below", 0.0),
            Statement("trained slope", "post, linear warm-up", "equal to", 0.0, 0.1),
            Statement("trained slope", "pre, linear warm-up", "below", 0.0),
            Statement("held-out nats", "pre, linear warm-up", "above", "post, linear warm-up"),
        ),
        Panel("initial", "layer", "gradient norm, step 1", log_y=True),
        Panel("trained", "layer", f"gradient norm, step {STEPS}", log_y=True),
    ),
}
