"""Self-distillation without labels collapses without centering or without sharpening."""

import math
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from hfattn import VaswaniVisionConfig, VaswaniVisionModel
from hfattn.data import read_digits
from hfattn.metrics import neighbor_accuracy
from hfattn.training import DinoConfig, DinoModel, cosine_schedule, dino_losses, image_features

from .claim import Claim, Measurement, Panel, Statement

SIDE, LOCAL, BATCH, STEPS, RATE, WARM_UP, MOMENTUM, PROTOTYPES = 8, 4, 64, 1000, 1e-3, 100, 0.99, 256
TRAINING = 1200  # images; the others are classified by their neighbors among these
LAST = 50  # steps whose means are the values
GLOBAL, LOCAL_SCALE = (0.6, 1.0), (0.3, 0.6)
STUDENT, TEACHER = 0.1, 0.04  # temperatures
# Whether the teacher's outputs are centered, and the temperature of the teacher.
VARIANTS = {
    "centering and sharpening": (True, TEACHER),
    "no centering": (False, TEACHER),
    "no sharpening": (True, STUDENT),
    "neither": (False, STUDENT),
}


def crops(pixels: torch.Tensor, scale: tuple[float, float], side: int, generator: torch.Generator) -> torch.Tensor:
    """Cut a random square of each image (B, height, width), and return them as pixel values (B, 3, side, side)."""
    number = len(pixels)
    share = torch.empty(number).uniform_(*scale, generator=generator).sqrt()
    centers = (torch.rand(2, number, generator=generator) * 2 - 1) * (1 - share)
    affine = torch.zeros(number, 2, 3)
    affine[:, 0, 0] = affine[:, 1, 1] = share
    affine[:, 0, 2], affine[:, 1, 2] = centers
    grid = functional.affine_grid(affine, [number, 1, side, side], align_corners=False)
    found = functional.grid_sample(pixels[:, None], grid, padding_mode="border", align_corners=False)
    return found.expand(-1, 3, -1, -1)


def distill(
    model: DinoModel, pixels: torch.Tensor, seed: int, steps: int, momentum: float, temperature: float, side: int
) -> tuple[list[float], list[float]]:
    """Train a student and a teacher on two global and two local crops of gray images (N, height, width).

    Args:
        momentum: of the teacher at the start; it grows to 1 by a cosine.
        temperature: of the teacher.
        side: pixels of a side of a global crop; those of a local one are ``model.dino.local_size``.

    Returns:
        the entropy of the teacher as a share of ln K, and the divergence of the student from it in nats, of each step.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, weight_decay=0.04)
    generator = torch.Generator().manual_seed(seed)
    entropies, divergences = [], []
    for step in range(steps):
        batch = pixels[torch.randint(len(pixels), (BATCH,), generator=generator)]
        large = torch.stack([crops(batch, GLOBAL, side, generator) for _ in range(2)], dim=1)
        small = torch.stack([crops(batch, LOCAL_SCALE, model.dino.local_size, generator) for _ in range(2)], dim=1)
        outputs = model(large, small)
        losses = dino_losses(outputs.student, outputs.teacher, model.center, STUDENT, temperature)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min((step + 1) / WARM_UP, cosine_schedule(1.0, 0.0, step / steps))
        optimizer.zero_grad()
        losses.loss.mean().backward()
        torch.nn.utils.clip_grad_norm_(trained, 3.0)
        optimizer.step()
        model.update_teacher(cosine_schedule(momentum, 1.0, step / steps))
        model.update_center(outputs.teacher.flatten(0, 1).mean(0))
        entropies.append(losses.entropy.mean().item() / math.log(model.dino.prototypes))
        divergences.append(losses.divergence.mean().item())
    return entropies, divergences


def measure(variant: str, seed: int, data: Path) -> Measurement:
    centers, temperature = VARIANTS[variant]
    digits = read_digits()
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(seed))
    pixels = torch.from_numpy(np.stack([np.asarray(item.image) for item in digits])).float()[order] / 127.5 - 1
    labels = torch.tensor([item.label for item in digits])[order]
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "encoder_layers": 2, "num_attention_heads": 4}
    config = DinoConfig(
        prototypes=PROTOTYPES,
        head_size=64,
        bottleneck_size=32,
        local_size=LOCAL,
        center_momentum=0.9 if centers else 1.0,
    )
    backbone = VaswaniVisionModel(VaswaniVisionConfig(image_size=SIDE, patch_size=2, dropout=0.0, **sizes))
    model = DinoModel(backbone, config).train()
    entropies, divergences = distill(model, pixels[:TRAINING], seed, STEPS, MOMENTUM, temperature, SIDE)
    with torch.inference_mode():
        features = image_features(model.teacher, pixels[:, None].expand(-1, 3, -1, -1))
    accuracy = neighbor_accuracy(features[TRAINING:], labels[TRAINING:], features[:TRAINING], labels[:TRAINING])
    values = {
        "entropy": sum(entropies[-LAST:]) / LAST,
        "divergence": sum(divergences[-LAST:]) / LAST,
        "accuracy": accuracy,
    }
    curves = {
        name: [(float(end), sum(series[end - LAST : end]) / LAST) for end in range(LAST, STEPS + 1, LAST)]
        for name, series in (("entropy", entropies), ("divergence", divergences))
    }
    return Measurement(values, curves, STEPS)


CLAIM = Claim(
    "Self-distillation without labels collapses without centering or without sharpening",
    "Caron et al. 2021, section 5.3, figure 7",
    f"The digits of scikit-learn (8 × 8 pixels), {TRAINING:,} of them to train on. `vaswani_vision` with 2 layers of "
    "width 32, 4 heads and patches of 2 × 2; two global crops and two local ones; "
    f"{PROTOTYPES} outputs, {STEPS:,} steps of {BATCH} images, AdamW at {RATE:g} with a warm-up of {WARM_UP} steps and "
    f"a cosine decay. The student has the temperature {STUDENT:g}; the teacher has {TEACHER:g}, and {STUDENT:g} "
    f"without sharpening. *Entropy*: mean entropy of the teacher's outputs over the last {LAST} steps as a share of "
    "ln K; 0 is one output for all images, 1 is uniform. *Divergence*: of the student from the teacher, in nats. "
    "*Accuracy*: of the other images by their 20 nearest neighbors. The paper trains a ViT-S on ImageNet.",
    tuple(VARIANTS),
    measure,
    (
        Statement("entropy", "no centering", "equal to", 0.0, tolerance=0.01),
        Statement("entropy", "no sharpening", "equal to", 1.0, tolerance=0.01),
        Statement("entropy", "centering and sharpening", "above", 0.01),
        Statement("entropy", "centering and sharpening", "below", 0.99),
        Statement("accuracy", "centering and sharpening", "above", "no centering"),
        Statement("accuracy", "centering and sharpening", "above", "no sharpening"),
        Statement("accuracy", "centering and sharpening", "above", "neither"),
    ),
    (Panel("entropy", "step", "entropy / ln K"), Panel("divergence", "step", "nats")),
)
