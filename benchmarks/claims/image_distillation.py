"""Distillation of a vision Transformer from a convolutional network, through a token of its own or without it."""

from functools import lru_cache
from pathlib import Path

import torch
from torch import nn

from hfattn.training.image_classification import ImageDistillationConfig, distilled_losses

from .claim import Claim, Measurement, Panel, Statement
from .images import (
    BATCH,
    LAYERS,
    PATCH,
    RATE,
    STEPS,
    WARM_UP,
    WIDTH,
    ConvolutionalNetwork,
    accuracy,
    as_input,
    augmented,
    fashion,
    fit,
    logits_of,
    vision_transformer,
)
from .tasks import train, warm_up_and_decay

SIZES = (2000, 60_000)
# Teacher, kind of distillation, and whether the student has a distillation token.
WAYS: dict[str, tuple[str | None, str, bool]] = {
    "labels": (None, "hard", False),
    "soft": ("CNN", "soft", False),
    "hard": ("CNN", "hard", False),
    "hard, token": ("CNN", "hard", True),
    "hard, token, ViT teacher": ("ViT", "hard", True),
}
VARIANTS = {f"{size:,} images, {way}": (size, *setting) for size in SIZES for way, setting in WAYS.items()}


@lru_cache
def teacher(kind: str, size: int, seed: int, data: Path) -> nn.Module:
    """Return a teacher that was trained on the student's images."""
    pixels, labels, *_ = chosen(size, seed, data)
    torch.manual_seed(100 + seed)
    model = ConvolutionalNetwork() if kind == "CNN" else vision_transformer()
    fit(model, pixels, labels, 100 + seed, augments=True)
    return model.eval()


def chosen(size: int, seed: int, data: Path) -> tuple[torch.Tensor, ...]:
    """Return images and labels of training and of the test."""
    pixels, labels, test_pixels, test_labels = fashion(data)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    order = order[:size]
    return pixels[order], labels[order], test_pixels, test_labels


def measure(variant: str, seed: int, data: Path) -> Measurement:
    size, kind, way, has_token = VARIANTS[variant]
    pixels, labels, test_pixels, test_labels = chosen(size, seed, data)
    taught_by = None if kind is None else teacher(kind, size, seed, data)
    torch.manual_seed(seed)
    model = vision_transformer(distillation_token=has_token)
    generator = torch.Generator().manual_seed(seed)
    config = ImageDistillationConfig(kind=way)

    def loss(step: int) -> torch.Tensor:
        batch = torch.randint(len(labels), (BATCH,), generator=generator)
        images = as_input(augmented(pixels[batch], generator))
        outputs = model(images)
        if taught_by is None:
            return nn.functional.cross_entropy(outputs.logits, labels[batch])
        with torch.no_grad():
            taught = logits_of(taught_by, images)
        heads = (outputs.cls_logits, outputs.distillation_logits) if has_token else (outputs.logits, outputs.logits)
        return distilled_losses(*heads, labels[batch], taught, config).mean()

    curve = train(list(model.parameters()), loss, STEPS, RATE, warm_up_and_decay(WARM_UP, STEPS))
    scores = {"accuracy": accuracy(model, test_pixels, test_labels)}
    if taught_by is not None:
        scores["accuracy of the teacher"] = accuracy(taught_by, test_pixels, test_labels)
    return Measurement(scores, {"loss": curve}, STEPS)


def _statements(size: int) -> tuple[Statement, ...]:
    pairs = (
        ("hard", "labels"),
        ("hard", "soft"),
        ("hard, token", "hard"),
        ("hard, token", "hard, token, ViT teacher"),
    )
    return tuple(
        Statement("accuracy", f"{size:,} images, {better}", "above", f"{size:,} images, {worse}")
        for better, worse in pairs
    )


CLAIM = Claim(
    "A vision Transformer learns from a convolutional teacher, best from hard labels and through a token of its own",
    "Touvron et al. 2021 (DeiT), sections 4 and 5.2, tables 2 and 3",
    "Fashion-MNIST; accuracy on the 10,000 test images. Student and teacher see the same training images, mirrored and "
    f"shifted, for {STEPS:,} steps of {BATCH} each, with Adam at {RATE:g}, a linear warm-up of {WARM_UP} steps and a "
    f"linear decay. The student is `vaswani_vision` with {LAYERS} layers of width {WIDTH} and patches of "
    f"{PATCH} × {PATCH} (161,000 parameters), the teacher a CNN of 163,000 parameters, or another ViT of the "
    "student's size. *Hard*: half of the loss is the cross-entropy with the teacher's class; *soft*: 0.1 of it, with a "
    "temperature of 3. With a token, the logits of both heads are averaged. In the paper, teachers are larger than "
    "students.",
    tuple(VARIANTS),
    measure,
    tuple(statement for size in SIZES for statement in _statements(size)),
    (Panel("loss", "step", "nats"),),
)
