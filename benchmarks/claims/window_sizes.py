"""Windows that grow from the lowest layer to the highest, against equal and shrinking ones."""

from pathlib import Path

from .character_models import BITS, LAYERS, WIDTH, Budget, trained
from .claim import Claim, Measurement, Panel, Statement

WINDOWS = {"growing": [16, 32, 64, 128], "equal": [60] * LAYERS, "shrinking": [128, 64, 32, 16]}
BUDGET = Budget(length=256, batch=4, steps=500)


def measure(variant: str, seed: int, data: Path) -> Measurement:
    _, bits, curve = trained("window", {"window": WINDOWS[variant]}, BUDGET, seed, data)
    return Measurement({BITS: bits}, {"loss": curve}, BUDGET.steps)


CLAIM = Claim(
    "Windows that grow from layer to layer are better than equal ones, and shrinking ones are worse",
    "Beltagy et al. 2020 (Longformer), section 4.2.2",
    f"`vaswani` as a character language model on tiny Shakespeare (the last 10% held out): {LAYERS} pre-norm layers of "
    f"width {WIDTH} with rotary positions and windows of 16, 32, 64 and 128 characters, of 60 in each layer (the same "
    f"number in all), or of 128, 64, 32 and 16; {BUDGET}.",
    tuple(WINDOWS),
    measure,
    (
        Statement(BITS, "growing", "below", "equal"),
        Statement(BITS, "growing", "below", "shrinking"),
        Statement(BITS, "equal", "below", "shrinking"),
    ),
    (Panel("loss", "step", "training nats per character"),),
)
