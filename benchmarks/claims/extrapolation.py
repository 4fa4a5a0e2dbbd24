"""Sinusoidal and learned positions, within the trained length and beyond it."""

from pathlib import Path

import torch
from torch import nn

from hfattn import VaswaniConfig, VaswaniForCausalLM

from .claim import Claim, Measurement, Panel, Statement
from .tasks import characters, next_loss, train, windows

LENGTH, STEPS = 32, 500


def measure(variant: str, seed: int, data: Path) -> Measurement:
    text, held_out, vocab_size = characters(data)
    torch.manual_seed(seed)
    model = VaswaniForCausalLM(
        VaswaniConfig(
            vocab_size=vocab_size,
            hidden_size=64,
            intermediate_size=128,
            decoder_layers=2,
            num_attention_heads=4,
            norm="pre",
            dropout=0.0,
            positions=variant,
            max_position_embeddings=2 * LENGTH,
        )
    )
    generator = torch.Generator().manual_seed(seed)

    def loss(step: int) -> torch.Tensor:
        batch = windows(text, LENGTH + 1, 16, generator)
        return next_loss(model(input_ids=batch[:, :-1], use_cache=False).logits, batch)

    curve = train(list(model.parameters()), loss, STEPS, lr=3e-3)
    model.eval()
    with torch.no_grad():
        batch = windows(held_out, 2 * LENGTH + 1, 512, torch.Generator().manual_seed(0))
        logits = model(input_ids=batch[:, :-1], use_cache=False).logits
    nats = nn.functional.cross_entropy(logits.transpose(1, 2), batch[:, 1:], reduction="none").mean(0)
    values = {"nats within": nats[LENGTH // 2 : LENGTH].mean().item(), "nats beyond": nats[LENGTH:].mean().item()}
    values["beyond - within"] = values["nats beyond"] - values["nats within"]
    places = [(float(place), value) for place, value in enumerate(nats.tolist(), 1)]
    return Measurement(values, {"places": places, "loss": curve}, STEPS)


CLAIM = Claim(
    "Sinusoidal and learned positions perform the same, and sinusoidal positions extrapolate",
    "Vaswani et al. 2017, section 3.5 and table 3, row E",
    f"`vaswani` as a character language model on tiny Shakespeare (the last 10% held out; two pre-norm layers of width "
    f"64), trained on windows of {LENGTH} ({STEPS} steps of 16, Adam at 0.003) and evaluated on windows "
    f"of {2 * LENGTH}: "
    f"*within* are positions {LENGTH // 2 + 1} to {LENGTH}, *beyond* are {LENGTH + 1} to {2 * LENGTH}, "
    f"whose learned vectors "
    "are untrained.",
    ("sinusoidal", "learned"),
    measure,
    (
        Statement("nats within", "learned", "equal to", "sinusoidal", 0.05),
        Statement("nats beyond", "sinusoidal", "below", "learned"),
        Statement("beyond - within", "sinusoidal", "not above", 0.0, 0.05),
    ),
    (Panel("places", "position", "held-out nats per character"),),
)
