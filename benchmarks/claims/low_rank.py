"""Linformer's keys and values of low rank against all of them, in a masked language model."""

from pathlib import Path

import torch
from torch import nn

from hfattn import VaswaniConfig, VaswaniForMaskedLM

from .claim import Claim, Measurement, Panel, Statement
from .tasks import characters, train, warm_up_and_decay, windows

LENGTH, BATCH, STEPS, RATE, WARM_UP, EVALUATED = 512, 4, 800, 3e-3, 100, 64
LAYERS, WIDTH, SHARE, MASK = 3, 64, 0.15, 1
FULL = "all keys"
RANKS = {"rank 16": 16, "rank 64": 64, "rank 128": 128, "rank 256": 256}
LOSS = "held-out nats per masked character"


def masked(text: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return text (B, T) with characters masked at random, and which ones are, (B, T)."""
    chosen = torch.rand(text.shape, generator=generator) < SHARE
    return text.masked_fill(chosen, MASK), chosen


def measure(variant: str, seed: int, data: Path) -> Measurement:
    text, held_out, vocab_size = characters(data)
    torch.manual_seed(seed)
    pattern = {} if variant == FULL else {"encoder_pattern": "linformer"}
    options = {} if variant == FULL else {"encoder_pattern_options": {"rank": RANKS[variant], "max_length": LENGTH}}
    model = VaswaniForMaskedLM(
        VaswaniConfig(
            vocab_size=vocab_size,
            hidden_size=WIDTH,
            intermediate_size=4 * WIDTH,
            encoder_layers=LAYERS,
            num_attention_heads=4,
            norm="pre",
            dropout=0.0,
            positions="learned",
            max_position_embeddings=LENGTH,
            **pattern,
            **options,
        )
    )
    generator = torch.Generator().manual_seed(seed)

    def loss_of(batch: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        inputs, chosen = masked(batch, generator)
        return nn.functional.cross_entropy(model(input_ids=inputs).logits[chosen], batch[chosen])

    def loss(step: int) -> torch.Tensor:
        return loss_of(windows(text, LENGTH, BATCH, generator), generator)

    curve = train(list(model.parameters()), loss, STEPS, RATE, warm_up_and_decay(WARM_UP, STEPS), betas=(0.9, 0.98))
    model.eval()
    same = torch.Generator().manual_seed(0)  # the same characters are masked for every variant and seed
    with torch.no_grad():
        nats = loss_of(windows(held_out, LENGTH, EVALUATED, same), same).item()
    return Measurement({LOSS: nats}, {"loss": curve}, STEPS)


CLAIM = Claim(
    "A masked language model needs few combinations of its keys and values: 128 of 512 are as good as all",
    "Wang et al. 2020 (Linformer), section 5.1, figure 3",
    f"`vaswani` as a masked language model of characters on tiny Shakespeare (the last 10% held out), {SHARE:.0%} of "
    f"them masked: {LAYERS} pre-norm layers of width {WIDTH} with 4 heads and learned positions; {STEPS} steps of "
    f"{BATCH} windows of {LENGTH} characters, Adam at {RATE:g} with a linear warm-up of {WARM_UP} steps and a linear "
    "decay to zero. A rank is the number of combinations of keys, and of values, in each layer. (The paper masks "
    "tokens of words, trains much longer, and shows perplexities for ranks of 32 to 256.)",
    (FULL, *RANKS),
    measure,
    (
        Statement(LOSS, "rank 128", "not above", FULL, 0.02),
        Statement(LOSS, "rank 256", "not above", FULL, 0.02),
        Statement(LOSS, "rank 256", "below", "rank 16"),
    ),
    (Panel("loss", "step", "training nats per masked character"),),
)
