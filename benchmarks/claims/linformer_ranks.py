"""How many combinations of the keys masked characters need (Linformer)."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hfattn import VaswaniConfig, VaswaniForMaskedLM

from .claim import Claim, Measurement, Panel, Statement
from .tasks import characters, train, warm_up_and_decay, windows

LAYERS, WIDTH, LENGTH, BATCH, STEPS, RATE, WARM_UP = 4, 64, 512, 4, 1000, 3e-3, 100
MASK, SHARE = 1, 0.15
EVALUATED = 64  # held-out windows
RANKS = (16, 64, 128, 256)
FULL, BITS = "full", "held-out bits per masked character"
RANK = {rank: f"rank {rank}" for rank in RANKS}
NEAR = 0.05  # bits that count as none


def masked_loss(model: VaswaniForMaskedLM, batch: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return the mean cross-entropy (nats) of the characters of windows (B, T) that are masked, a share of 0.15."""
    masked = torch.rand(batch.shape, generator=generator) < SHARE
    logits = model(input_ids=batch.masked_fill(masked, MASK)).logits
    return nn.functional.cross_entropy(logits[masked], batch[masked])


def measure(variant: str, seed: int, data: Path) -> Measurement:
    text, held_out, vocab_size = characters(data)
    pattern: dict[str, Any] = {}
    if variant != FULL:
        options = {"rank": int(variant.removeprefix("rank ")), "max_length": LENGTH}
        pattern = {"encoder_pattern": "linformer", "encoder_pattern_options": options}
    torch.manual_seed(seed)
    model = VaswaniForMaskedLM(
        VaswaniConfig(
            vocab_size=vocab_size,
            hidden_size=WIDTH,
            intermediate_size=4 * WIDTH,
            encoder_layers=LAYERS,
            num_attention_heads=4,
            is_encoder_decoder=False,
            norm="pre",
            dropout=0.0,
            **pattern,
        )
    )
    generator = torch.Generator().manual_seed(seed)
    curve = train(
        list(model.parameters()),
        lambda step: masked_loss(model, windows(text, LENGTH, BATCH, generator), generator),
        STEPS,
        RATE,
        warm_up_and_decay(WARM_UP, STEPS),
        betas=(0.9, 0.98),
    )
    model.eval()
    generator = torch.Generator().manual_seed(0)
    batch = windows(held_out, LENGTH, EVALUATED, generator)
    with torch.no_grad():
        nats = sum(masked_loss(model, part, generator).item() * len(part) for part in batch.split(8)) / EVALUATED
    return Measurement({BITS: nats / math.log(2)}, {"loss": curve}, STEPS)


CLAIM = Claim(
    "A quarter as many combinations of keys as keys predict masked tokens nearly as well as all keys",
    "Wang et al. 2020 (Linformer), section 5.1",
    f"`vaswani` as a masked language model of characters on tiny Shakespeare (the last 10% held out): {LAYERS} "
    f"pre-norm layers of width {WIDTH} with sinusoidal positions, windows of {LENGTH} characters of which 15% are "
    f"masked; {STEPS} steps of {BATCH}, Adam at {RATE:g}, a linear warm-up of {WARM_UP} steps and a linear decay to "
    "zero. Rank k replaces the keys and values of a layer by k learned combinations of them. Near is within 0.05 bits. "
    "The paper has 12 layers, words and 250,000 steps.",
    (FULL, *RANK.values()),
    measure,
    (
        Statement(BITS, RANK[128], "not above", FULL, NEAR),
        Statement(BITS, RANK[256], "not above", FULL, NEAR),
        Statement(BITS, RANK[128], "below", RANK[16]),
        Statement(BITS, RANK[256], "not above", RANK[64], NEAR),
    ),
    (Panel("loss", "step", "training nats per masked character"),),
)
