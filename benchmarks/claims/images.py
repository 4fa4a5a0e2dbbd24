"""Images shared by the claims, and how much data vision Transformers need beside convolutional networks."""

from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from hfattn import VaswaniVisionConfig, VaswaniVisionForImageClassification
from hfattn.data import read_images

from .claim import Claim, Measurement, Panel, Statement
from .tasks import train, warm_up_and_decay

WIDTH, LAYERS, PATCH, BATCH, STEPS, RATE, WARM_UP, SHIFT = 64, 3, 7, 64, 1000, 1e-3, 100, 2
SIZES = (500, 2000, 8000, 60_000)


@lru_cache
def fashion(data: Path) -> tuple[torch.Tensor, ...]:
    """Return images (N, 3, 28, 28) from -1 to 1 and labels (N,) of Fashion-MNIST, of training and of the test."""
    parts = []
    for split in ("train", "test"):
        images = read_images(str(data / "fashion_mnist"), split=split)
        pixels = torch.from_numpy(np.stack([np.asarray(item.image) for item in images]))
        parts += [pixels, torch.tensor([item.label for item in images])]
    return tuple(parts)


def as_input(pixels: torch.Tensor) -> torch.Tensor:
    """Return pixel values (B, 3, 28, 28) from -1 to 1 of gray images (B, 28, 28) from 0 to 255."""
    return (pixels.float() / 127.5 - 1)[:, None].expand(-1, 3, -1, -1)


def augmented(pixels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Mirror half of the images (B, 28, 28), and shift all by up to two pixels, with black borders."""
    number, side = len(pixels), pixels.shape[-1]
    flipped = torch.rand(number, generator=generator) < 0.5
    pixels = torch.where(flipped[:, None, None], pixels.flip(-1), pixels)
    padded = nn.functional.pad(pixels, [SHIFT] * 4)
    rows, columns = torch.randint(2 * SHIFT + 1, (2, number, 1), generator=generator) + torch.arange(side)
    return padded[torch.arange(number)[:, None, None], rows[:, :, None], columns[:, None]]


def vision_transformer(**fields: Any) -> VaswaniVisionForImageClassification:
    """Return an untrained ViT of about 160,000 parameters."""
    config = VaswaniVisionConfig(
        image_size=28,
        patch_size=PATCH,
        hidden_size=WIDTH,
        intermediate_size=4 * WIDTH,
        encoder_layers=LAYERS,
        num_attention_heads=4,
        num_labels=10,
        dropout=0.0,
        **fields,
    )
    return VaswaniVisionForImageClassification(config)


class ConvolutionalNetwork(nn.Module):
    """Three blocks of two convolutions, the first with stride 2, and a linear layer on the mean."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        widths = (3, 24, 48, 96)
        for before, width in pairwise(widths):
            for channels, stride in ((before, 2), (width, 1)):
                convolution = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
                layers += [convolution, nn.BatchNorm2d(width), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10))

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layers(pixel_values)
        return logits


def logits_of(model: nn.Module, pixel_values: torch.Tensor) -> torch.Tensor:
    """Return the logits (B, 10) of one of the two models."""
    outputs = model(pixel_values)
    return outputs if isinstance(outputs, torch.Tensor) else outputs.logits


def accuracy(model: nn.Module, pixels: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the share of images whose class a model predicts."""
    model.eval()
    with torch.no_grad():
        predicted = torch.cat([logits_of(model, as_input(part)).argmax(-1) for part in pixels.split(500)])
    return (predicted == labels).float().mean().item()


def fit(
    model: nn.Module, pixels: torch.Tensor, labels: torch.Tensor, seed: int, augments: bool
) -> list[tuple[float, float]]:
    """Train a classifier on images, and return its training loss."""
    generator = torch.Generator().manual_seed(seed)

    def loss(step: int) -> torch.Tensor:
        batch = torch.randint(len(labels), (BATCH,), generator=generator)
        images = augmented(pixels[batch], generator) if augments else pixels[batch]
        return nn.functional.cross_entropy(logits_of(model, as_input(images)), labels[batch])

    return train(list(model.parameters()), loss, STEPS, RATE, warm_up_and_decay(WARM_UP, STEPS))


def name_of(size: int, augments: bool) -> str:
    """Return the name of a variant."""
    return f"{size:,} images" + (", augmented" if augments else "")


VARIANTS = {name_of(size, augments): (size, augments) for augments in (False, True) for size in SIZES}


def measure(variant: str, seed: int, data: Path) -> Measurement:
    size, augments = VARIANTS[variant]
    pixels, labels, test_pixels, test_labels = fashion(data)
    chosen = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))[:size]
    scores, curves = {}, {}
    for name, make in (("ViT", vision_transformer), ("CNN", ConvolutionalNetwork)):
        torch.manual_seed(seed)
        model = make()
        curves[f"loss of the {name}"] = fit(model, pixels[chosen], labels[chosen], seed, augments)
        scores[f"accuracy of the {name}"] = accuracy(model, test_pixels, test_labels)
    scores["CNN - ViT"] = scores["accuracy of the CNN"] - scores["accuracy of the ViT"]
    return Measurement(scores, curves, STEPS)


CLAIM = Claim(
    "A vision Transformer needs more images than a convolutional network",
    "Dosovitskiy et al. 2021, section 4.3, figures 3 and 4",
    "Fashion-MNIST, the first images of a random order for each seed; accuracy on the 10,000 test images. The ViT is "
    f"`vaswani_vision` with {LAYERS} layers of width {WIDTH}, 4 heads and patches of {PATCH} × {PATCH}; the CNN has "
    "three blocks of two convolutions. They have 161,000 and 163,000 parameters. Each is trained for "
    f"{STEPS:,} steps of {BATCH} images, whatever their number, by Adam at {RATE:g} with a linear warm-up of {WARM_UP} "
    "steps and a linear decay. *Augmented*: half of the images are mirrored, and all are shifted by up to "
    f"{SHIFT} pixels. The paper has up to 300 million images and models of 86 million parameters and more.",
    tuple(VARIANTS),
    measure,
    (
        Statement("CNN - ViT", name_of(500, False), "above", 0.0),
        Statement("CNN - ViT", name_of(500, False), "above", name_of(60_000, False)),
        Statement("CNN - ViT", name_of(2000, False), "above", name_of(60_000, False)),
        Statement("CNN - ViT", name_of(60_000, False), "not above", 0.0, tolerance=0.01),
        Statement("CNN - ViT", name_of(2000, True), "below", name_of(2000, False)),
        Statement("accuracy of the ViT", name_of(60_000, True), "above", name_of(60_000, False)),
    ),
    (Panel("loss of the ViT", "step", "nats, ViT"), Panel("loss of the CNN", "step", "nats, CNN")),
)
