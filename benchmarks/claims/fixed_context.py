"""A fixed context fails on long sequences, attention does not."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from hfattn import BahdanauConfig, BahdanauForConditionalGeneration

from .claim import Claim, Measurement, Panel, Statement
from .tasks import train

SYMBOLS, LONGEST, STEPS = 10, 20, 1000
LENGTHS = (4, 8, 12, 16, 20)

_LSTM = {"cell": "lstm", "initial_state": "final", "encoder_hidden_size": 64, "encoder_direction": "backward"}
VARIANTS: dict[str, dict[str, Any]] = {
    "fixed context": {**_LSTM, "attention_score": None, "output_layer": "state"},
    "Bahdanau": {
        "encoder_hidden_size": 32,
        "attention_score": "additive",
        "attention_score_options": {"hidden_size": 32},
    },
    "Luong, input feeding": {
        **_LSTM,
        "attention_score": "general",
        "attention_position": "after",
        "input_feeding": True,
        "output_layer": "attentional",
    },
}


def texts(number: int, length: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(3, 3 + SYMBOLS, (number, length), generator=generator)


def logits(model: BahdanauForConditionalGeneration, text: torch.Tensor) -> torch.Tensor:
    """Return logits (B, T, V) of the text itself, with teacher forcing."""
    starts = torch.full_like(text[:, :1], model.config.decoder_start_token_id)
    return model(input_ids=text, decoder_input_ids=torch.cat([starts, text[:, :-1]], dim=1), use_cache=False).logits


def measure(variant: str, seed: int, data: Path) -> Measurement:
    torch.manual_seed(seed)
    model = BahdanauForConditionalGeneration(
        BahdanauConfig(vocab_size=3 + SYMBOLS, embedding_size=32, hidden_size=64, **VARIANTS[variant])
    )
    generator = torch.Generator().manual_seed(seed)

    def loss(step: int) -> torch.Tensor:
        length = int(torch.randint(1, LONGEST + 1, (1,), generator=generator))
        text = texts(32, length, generator)
        return nn.functional.cross_entropy(logits(model, text).flatten(0, 1), text.flatten())

    curve = train(list(model.parameters()), loss, STEPS, lr=3e-3)
    model.eval()
    accuracies = []
    with torch.no_grad():
        for length in LENGTHS:
            text = texts(256, length, generator)
            accuracies.append((float(length), (logits(model, text).argmax(-1) == text).float().mean().item()))
    values = {f"accuracy at length {LENGTHS[0]}": accuracies[0][1], f"accuracy at length {LONGEST}": accuracies[-1][1]}
    return Measurement(values, {"length": accuracies, "loss": curve}, STEPS)


CLAIM = Claim(
    "A fixed context fails on long sequences, attention does not",
    "Bahdanau et al. 2015, section 5.1 and figure 2; Sutskever et al. 2014; Luong et al. 2015, section 5.2",
    f"`bahdanau` with decoders of 64 units copies random texts of {SYMBOLS} symbols with lengths drawn "
    f"from 1 to {LONGEST}, "
    f"{STEPS:,} steps of 32, Adam at 0.003; accuracy of a symbol with teacher forcing, on new texts; a "
    f"guess is right in "
    f"{1 / SYMBOLS:.0%}. This is a generated task; the next claim is about sentences.",
    tuple(VARIANTS),
    measure,
    (
        Statement("accuracy at length 20", "fixed context", "below", "Bahdanau"),
        Statement("accuracy at length 20", "fixed context", "below", "Luong, input feeding"),
        Statement("accuracy at length 20", "fixed context", "below", 0.9),
        Statement("accuracy at length 20", "Bahdanau", "above", 0.9),
        Statement("accuracy at length 20", "Luong, input feeding", "above", 0.9),
    ),
    (Panel("length", "length", "accuracy"), Panel("loss", "step", "training loss, nats")),
)
