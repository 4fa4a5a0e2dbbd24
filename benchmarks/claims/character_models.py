"""A character language model of tiny Shakespeare whose layers have a pattern."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hfattn import VaswaniConfig, VaswaniForCausalLM
from hfattn.models.modeling_vaswani import penalized

from .tasks import characters, next_loss, train, warm_up_and_decay, windows

BITS = "held-out bits per character"
LAYERS, WIDTH, RATE, WARM_UP = 4, 64, 3e-3, 100
EVALUATED = 128 * 256  # held-out characters


@dataclass(frozen=True)
class Budget:
    """Training: ``steps`` batches of ``batch`` windows of ``length`` characters."""

    length: int
    batch: int
    steps: int

    def __str__(self) -> str:
        return (
            f"{self.steps} steps of {self.batch} windows of {self.length} characters, Adam at {RATE:g} with a linear "
            f"warm-up of {WARM_UP} steps and a linear decay to zero"
        )


def trained(
    pattern: str, options: dict[str, Any], budget: Budget, seed: int, data: Path
) -> tuple[VaswaniForCausalLM, float, list[tuple[float, float]]]:
    """Train a model with a pattern, and return it with its held-out bits per character and its curve."""
    text, held_out, vocab_size = characters(data)
    torch.manual_seed(seed)
    model = VaswaniForCausalLM(
        VaswaniConfig(
            vocab_size=vocab_size,
            hidden_size=WIDTH,
            intermediate_size=4 * WIDTH,
            decoder_layers=LAYERS,
            num_attention_heads=4,
            norm="pre",
            dropout=0.0,
            positions="rotary",
            decoder_pattern=pattern,
            decoder_pattern_options=options,
        )
    )
    generator = torch.Generator().manual_seed(seed)

    def loss(step: int) -> torch.Tensor:
        batch = windows(text, budget.length + 1, budget.batch, generator)
        return penalized(model, next_loss(model(input_ids=batch[:, :-1], use_cache=False).logits, batch))

    factor = warm_up_and_decay(WARM_UP, budget.steps)
    curve = train(list(model.parameters()), loss, budget.steps, RATE, factor, betas=(0.9, 0.98))
    model.eval()
    with torch.no_grad():
        number = EVALUATED // budget.length
        batch = windows(held_out, budget.length + 1, number, torch.Generator().manual_seed(0))
        logits = torch.cat([model(input_ids=part[:, :-1], use_cache=False).logits for part in batch.split(8)])
        nats = next_loss(logits, batch).item()
    return model, nats / math.log(2), curve
