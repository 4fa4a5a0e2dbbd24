"""Scaled and unscaled dot products against the additive score, over the width of queries and keys."""

from pathlib import Path

import torch
from torch import nn

from hfattn import VaswaniConfig, VaswaniForConditionalGeneration

from .claim import Claim, Measurement, Panel, Statement
from .tasks import train

SYMBOLS, LENGTH, STEPS = 10, 8, 400
SCORES = {"dot": "dot", "scaled dot": "scaled_dot", "additive": "additive"}
WIDTHS = (8, 64, 512)


def accuracy(score: str, width: int, seed: int) -> float:
    """Train a Transformer of one layer and one head of this width to reverse texts."""
    torch.manual_seed(seed)
    options = {"hidden_size": 32} if score == "additive" else {}
    model = VaswaniForConditionalGeneration(
        VaswaniConfig(
            vocab_size=3 + SYMBOLS,
            hidden_size=32,
            intermediate_size=64,
            encoder_layers=1,
            decoder_layers=1,
            num_attention_heads=1,
            head_dim=width,
            dropout=0.0,
            norm="pre",
            cross_attention_score=score,
            cross_attention_score_options=options,
        )
    )
    generator = torch.Generator().manual_seed(seed)

    def logits(text: torch.Tensor) -> torch.Tensor:
        starts = torch.ones_like(text[:, :1])
        inputs = torch.cat([starts, text.flip(1)[:, :-1]], dim=1)
        return model(input_ids=text, decoder_input_ids=inputs, use_cache=False).logits

    def loss(step: int) -> torch.Tensor:
        text = torch.randint(3, 3 + SYMBOLS, (32, LENGTH), generator=generator)
        return nn.functional.cross_entropy(logits(text).flatten(0, 1), text.flip(1).flatten())

    train(list(model.parameters()), loss, STEPS, lr=3e-3)
    model.eval()
    with torch.no_grad():
        text = torch.randint(3, 3 + SYMBOLS, (512, LENGTH), generator=generator)
        return (logits(text).argmax(-1) == text.flip(1)).float().mean().item()


def measure(variant: str, seed: int, data: Path) -> Measurement:
    curve = [(float(width), accuracy(SCORES[variant], width, seed)) for width in WIDTHS]
    return Measurement({f"accuracy at width {width:.0f}": score for width, score in curve}, {"width": curve}, STEPS)


CLAIM = Claim(
    "Additive scores beat unscaled dot products of wide queries and keys; scaling mends the dot product",
    "Vaswani et al. 2017, section 3.2.1; Britz et al. 2017, section 4.5 (over widths)",
    f"`vaswani` with one layer and one head on each side reverses texts of {LENGTH} symbols out of "
    f"{SYMBOLS}; the score of "
    f"the cross-attention and the width of the head vary. {STEPS} steps of 32, Adam at 0.003, without "
    f"dropout; accuracy of "
    "a symbol with teacher forcing, on new texts.",
    tuple(SCORES),
    measure,
    (
        Statement("accuracy at width 512", "additive", "above", "dot"),
        Statement("accuracy at width 512", "scaled dot", "above", "dot"),
        Statement("accuracy at width 8", "dot", "equal to", "additive", 0.05),
    ),
    (Panel("width", "width of queries and keys", "accuracy", log_x=True),),
)
