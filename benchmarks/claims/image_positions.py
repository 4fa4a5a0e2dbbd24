"""Positions of the patches of an image: none, learned and sinusoidal."""

from pathlib import Path

import torch

from .claim import Claim, Measurement, Panel, Statement
from .images import BATCH, LAYERS, PATCH, RATE, STEPS, WARM_UP, WIDTH, accuracy, fashion, fit, vision_transformer

VARIANTS = {
    "no positions": "none",
    "learned": "learned",
    "sinusoidal": "sinusoidal",
    "sinusoidal, 2-D": "sinusoidal_2d",
}


def measure(variant: str, seed: int, data: Path) -> Measurement:
    pixels, labels, test_pixels, test_labels = fashion(data)
    torch.manual_seed(seed)
    model = vision_transformer(positions=VARIANTS[variant])
    curve = fit(model, pixels, labels, seed, augments=False)
    return Measurement({"accuracy": accuracy(model, test_pixels, test_labels)}, {"loss": curve}, STEPS)


CLAIM = Claim(
    "A vision Transformer needs positions, and it does not matter which",
    "Dosovitskiy et al. 2021, appendix D.4, table 8",
    "Fashion-MNIST, 60,000 images; accuracy on the 10,000 test images. `vaswani_vision` with "
    f"{LAYERS} layers of width {WIDTH}, 4 heads and {(28 // PATCH) ** 2} patches of {PATCH} × {PATCH}, {STEPS:,} steps "
    f"of {BATCH} images, Adam at {RATE:g} with a linear warm-up of {WARM_UP} steps and a linear decay. The paper "
    "reports 0.614 without positions, and 0.640 to 0.642 with learned positions of one or two dimensions or relative "
    "ones. The sinusoidal positions of Vaswani et al. 2017 count the patches row by row; those of two dimensions have "
    "half of their features for the row, and half for the column.",
    tuple(VARIANTS),
    measure,
    (
        Statement("accuracy", "no positions", "below", "learned"),
        Statement("accuracy", "no positions", "below", "sinusoidal"),
        Statement("accuracy", "learned", "equal to", "sinusoidal", tolerance=0.01),
        Statement("accuracy", "sinusoidal, 2-D", "equal to", "sinusoidal", tolerance=0.01),
    ),
    (Panel("loss", "step", "training nats"),),
)
