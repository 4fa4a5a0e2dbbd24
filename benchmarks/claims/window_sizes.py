"""Windows that grow from the lowest layer to the highest, against equal and shrinking ones."""

import math
from pathlib import Path

import torch

from hfattn import VaswaniConfig, VaswaniForCausalLM

from .claim import Claim, Measurement, Panel, Statement
from .tasks import characters, next_loss, train, warm_up_and_decay, windows

WINDOWS = {"growing": [16, 32, 64, 128], "equal": [60] * 4, "shrinking": [128, 64, 32, 16]}
WIDTH, LENGTH, BATCH, STEPS, RATE, WARM_UP = 64, 256, 4, 500, 3e-3, 100


def measure(variant: str, seed: int, data: Path) -> Measurement:
    text, held_out, vocab_size = characters(data)
    torch.manual_seed(seed)
    model = VaswaniForCausalLM(
        VaswaniConfig(
            vocab_size=vocab_size,
            hidden_size=WIDTH,
            intermediate_size=4 * WIDTH,
            decoder_layers=len(WINDOWS[variant]),
            num_attention_heads=4,
            norm="pre",
            dropout=0.0,
            positions="rotary",
            decoder_pattern="window",
            decoder_pattern_options={"window": WINDOWS[variant]},
        )
    )
    generator = torch.Generator().manual_seed(seed)

    def loss(step: int) -> torch.Tensor:
        batch = windows(text, LENGTH + 1, BATCH, generator)
        return next_loss(model(input_ids=batch[:, :-1], use_cache=False).logits, batch)

    factor = warm_up_and_decay(WARM_UP, STEPS)
    curve = train(list(model.parameters()), loss, STEPS, RATE, factor, betas=(0.9, 0.98))
    model.eval()
    with torch.no_grad():
        batch = windows(held_out, LENGTH + 1, 128, torch.Generator().manual_seed(0))
        nats = next_loss(model(input_ids=batch[:, :-1], use_cache=False).logits, batch).item()
    return Measurement({"held-out bits per character": nats / math.log(2)}, {"loss": curve}, STEPS)


CLAIM = Claim(
    "Windows that grow from layer to layer are better than equal ones, and shrinking ones are worse",
    "Beltagy et al. 2020 (Longformer), section 4.2.2",
    f"`vaswani` as a character language model on tiny Shakespeare (the last 10% held out): 4 pre-norm layers of width "
    f"{WIDTH} with rotary positions and windows of 16, 32, 64 and 128 characters, of 60 in each layer (the same "
    f"number in all), or of 128, 64, 32 and 16; {STEPS} steps of {BATCH} windows of {LENGTH} characters, Adam at "
    f"{RATE:g} with a linear warm-up of {WARM_UP} steps and a linear decay to zero.",
    tuple(WINDOWS),
    measure,
    (
        Statement("held-out bits per character", "growing", "below", "equal"),
        Statement("held-out bits per character", "growing", "below", "shrinking"),
        Statement("held-out bits per character", "equal", "below", "shrinking"),
    ),
    (Panel("loss", "step", "training nats per character"),),
)
