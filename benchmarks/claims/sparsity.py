"""Trained attention is sparse and has a low rank."""

from pathlib import Path

import torch
from torch import nn

from hfattn import VaswaniConfig, VaswaniForMaskedLM

from .claim import Claim, Measurement, Panel, Statement
from .tasks import characters, train, windows

LENGTH, STEPS, MASK = 64, 400, 1


def effective_rank(matrices: torch.Tensor) -> torch.Tensor:
    """Return exp of the entropy of the normalized singular values of matrices (..., T, S) (Roy & Vetterli 2007)."""
    values = torch.linalg.svdvals(matrices)
    shares = values / values.sum(-1, keepdim=True)
    return torch.special.entr(shares).sum(-1).exp()


def share_of_mass(weights: torch.Tensor, part: float) -> torch.Tensor:
    """Return the share of attention weights (..., S) that the largest ``part`` of the keys has."""
    return weights.topk(max(1, round(part * weights.shape[-1])), dim=-1).values.sum(-1)


def measure(variant: str, seed: int, data: Path) -> Measurement:
    text, held_out, vocab_size = characters(data)
    torch.manual_seed(seed)
    model = VaswaniForMaskedLM(
        VaswaniConfig(
            vocab_size=vocab_size,
            hidden_size=64,
            intermediate_size=128,
            encoder_layers=2,
            num_attention_heads=4,
            norm="pre",
            dropout=0.0,
        )
    )
    generator = torch.Generator().manual_seed(seed)

    def loss(step: int) -> torch.Tensor:
        batch = windows(text, LENGTH, 16, generator)
        hidden = torch.rand(batch.shape, generator=generator) < 0.15
        logits = model(input_ids=batch.masked_fill(hidden, MASK)).logits
        return nn.functional.cross_entropy(logits[hidden], batch[hidden])

    steps = STEPS if variant == "trained" else 0
    curve = train(list(model.parameters()), loss, steps, lr=3e-3)
    model.eval()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        batch = windows(held_out, LENGTH, 32, torch.Generator().manual_seed(0))
        weights = torch.stack(model(input_ids=batch, output_attentions=True).attentions)  # (layers, B, h, T, T)
    masses = [(part / 100, share_of_mass(weights, part / 100).mean().item()) for part in (2, 5, 10, 20, 30, 50, 100)]
    values = {
        "effective rank / length": effective_rank(weights).mean().item() / LENGTH,
        "mass of the top 10% of keys": masses[2][1],
    }
    return Measurement(values, {"mass": masses, "loss": curve}, steps)


CLAIM = Claim(
    "Trained attention is sparse and has a low rank",
    "Wang et al. 2020 (Linformer), section 3 and figure 1; Child et al. 2019, section 4.1",
    f"`vaswani` as a masked character model (two pre-norm layers of width 64, four heads) on tiny "
    f"Shakespeare, windows of "
    f"{LENGTH}, {STEPS} steps of 16, Adam at 0.003, and the same model before training as a control. The "
    f"effective rank is "
    "exp of the entropy of the normalized singular values (Roy & Vetterli 2007); equal weights have rank "
    "1 and 10% of the "
    "mass in 10% of the keys. Low is below half of the length; sparse is more than half of the mass in "
    "10% of the keys.",
    ("trained", "untrained"),
    measure,
    (
        Statement("effective rank / length", "trained", "below", 0.5),
        Statement("effective rank / length", "trained", "below", "untrained"),
        Statement("mass of the top 10% of keys", "trained", "above", 0.5),
        Statement("mass of the top 10% of keys", "trained", "above", "untrained"),
    ),
    (Panel("mass", "share of the keys, largest weights first", "share of the mass"),),
)
