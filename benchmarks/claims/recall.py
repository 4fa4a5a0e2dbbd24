"""Which kinds of attention recall the value of a key, by its distance and by the number of pairs."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from hfattn import VaswaniConfig, VaswaniForCausalLM

from .claim import Claim, Measurement, Panel, Statement
from .tasks import train, warm_up_and_decay

SYMBOLS, QUESTIONS = 32, 4  # keys, and as many values; questions of a sequence
LAYERS, WIDTH, HEADS = 2, 128, 4
BATCH, STEPS, RATE, WARM_UP, TESTED = 64, 2500, 1e-3, 100, 500
DOT, FIRST_KEY = 1, 2
MOST_PAIRS, MOST_DOTS = 16, 64
GRID = [(pairs, dots) for pairs in (4, 16) for dots in (0, 16, 64)]

FULL, LINEAR, DELTA, ALONE = "all keys", "linear", "gated_delta", "gated_delta without convolution"
# The fields of the models that differ.
VARIANTS: dict[str, dict[str, Any]] = {
    FULL: {"decoder_pattern": "full", "positions": "rotary"},
    LINEAR: {"decoder_pattern": "linear", "positions": "rotary"},
    DELTA: {"decoder_pattern": "gated_delta", "positions": "none"},
    ALONE: {
        "decoder_pattern": "gated_delta",
        "decoder_pattern_options": {"conv_size": 0},
        "positions": "sinusoidal",
    },
}


def accuracy(pairs: int, dots: int) -> str:
    """Return the name of a value."""
    return f"accuracy, {pairs} pairs, {dots} dots"


def sequences(pairs: int, dots: int, number: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return sequences (number, T) of pairs, dots, and keys with their values, and the places (4,) of these keys.

    The task is that of ``hfattn.generated.recalls``, as ids, with other numbers of pairs and dots in each step.
    """
    keys = FIRST_KEY + torch.rand(number, SYMBOLS, generator=generator).argsort(1)[:, :pairs]
    values = FIRST_KEY + SYMBOLS + torch.randint(SYMBOLS, (number, pairs), generator=generator)
    told = torch.stack([keys, values], dim=2).flatten(1)
    asked = torch.rand(number, pairs, generator=generator).argsort(1)[:, :QUESTIONS]
    questions = torch.stack([keys.gather(1, asked), values.gather(1, asked)], dim=2).flatten(1)
    places = 2 * pairs + dots + 2 * torch.arange(QUESTIONS)
    return torch.cat([told, torch.full((number, dots), DOT), questions], dim=1), places


def make(variant: str) -> VaswaniForCausalLM:
    return VaswaniForCausalLM(
        VaswaniConfig(
            vocab_size=FIRST_KEY + 2 * SYMBOLS,
            hidden_size=WIDTH,
            intermediate_size=2 * WIDTH,
            decoder_layers=LAYERS,
            num_attention_heads=HEADS,
            norm="pre",
            dropout=0.0,
            max_position_embeddings=2 * (MOST_PAIRS + QUESTIONS) + MOST_DOTS,
            **VARIANTS[variant],
        )
    )


def answers(
    model: VaswaniForCausalLM, pairs: int, dots: int, number: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits (4 · number, V) and ids (4 · number,) of the values that new sequences ask for."""
    ids, places = sequences(pairs, dots, number, generator)
    return model(ids, use_cache=False).logits[:, places].flatten(0, 1), ids[:, places + 1].flatten()


def measure(variant: str, seed: int, data: Path) -> Measurement:
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = make(variant)

    def loss(step: int) -> torch.Tensor:
        pairs = int(torch.randint(QUESTIONS, MOST_PAIRS + 1, (), generator=generator))
        dots = int(torch.randint(MOST_DOTS + 1, (), generator=generator))
        return nn.functional.cross_entropy(*answers(model, pairs, dots, BATCH, generator))

    curve = train(list(model.parameters()), loss, STEPS, RATE, warm_up_and_decay(WARM_UP, STEPS))
    model.eval()
    values = {}
    with torch.no_grad():
        for pairs, dots in GRID:
            logits, targets = answers(model, pairs, dots, TESTED, generator)
            values[accuracy(pairs, dots)] = (logits.argmax(-1) == targets).float().mean().item()
    return Measurement(values, {"loss": curve}, STEPS)


CLAIM = Claim(
    "All keys, or a state with the delta rule and a convolution, recall the value of a key over any distance; linear "
    "attention recalls less",
    "Schlag et al. 2021, sections 4.2 and 6.1; Arora et al. 2023 (Zoology), section 3",
    f"`vaswani` with {LAYERS} layers of width {WIDTH} and {HEADS} heads on sequences of pairs of a key and a value, "
    f"then dots, then {QUESTIONS} of the keys, each followed by its value: accuracy of these values. A guess among all "
    f"{SYMBOLS} values gets 0.031 right, and one among the values of the sequence 1 / number of pairs, more if those "
    f"of the earlier questions are left out. All train on {QUESTIONS} to {MOST_PAIRS} pairs and 0 to {MOST_DOTS} dots: "
    f"{STEPS:,} steps of {BATCH}, Adam at {RATE:g}, a linear warm-up of {WARM_UP} steps and a linear decay to zero. "
    "*linear* is linear attention (Katharopoulos et al. 2020), whose state is the sum of the products of keys and "
    "values. *gated_delta* also has a convolution over four tokens, which shows a value its key, and no positions; "
    "*gated_delta without convolution* has sinusoidal positions, and the other two have rotary ones, which gated "
    "layers do not use. Linear attention was not measured with a convolution. `window`, `memory` and `strided` had at "
    "most 0.55 right with the first seed and were taken out, because windows and memories do not reach back over most "
    "of the training sequences. The statements were rewritten then, before *gated_delta* was measured. The variant "
    "without the convolution and its statements were added last.",
    tuple(VARIANTS),
    measure,
    (
        *(Statement(accuracy(*each), FULL, "above", 0.95) for each in GRID),
        *(Statement(accuracy(*each), DELTA, "above", 0.95) for each in GRID),
        *(Statement(accuracy(*each), LINEAR, "below", DELTA) for each in GRID),
        *(Statement(accuracy(*each), ALONE, "above", 0.95) for each in GRID),
        *(Statement(accuracy(*each), LINEAR, "below", ALONE) for each in GRID),
    ),
    (Panel("loss", "step", "training nats per value"),),
)
