"""LSH attention that is trained and tested with different numbers of rounds of hashing."""

from pathlib import Path

import torch
from torch import nn

from hfattn import VaswaniConfig, VaswaniForCausalLM
from hfattn.models.random_directions import RandomDirections

from .claim import Claim, Measurement, Panel, Statement
from .tasks import train, warm_up_and_decay

SYMBOLS, LENGTH, BATCH, STEPS, RATE, WARM_UP, TESTED = 127, 32, 64, 2500, 2e-3, 100, 400
FULL = "all keys"
ROUNDS = {FULL: 1, "8 rounds": 8, "4 rounds": 4, "2 rounds": 2, "1 round": 1}
BUCKETS, KEYS = 8, 8
TRAINED = (FULL, "4 rounds", "2 rounds", "1 round")
GAIN = "accuracy with 8 rounds - accuracy with 1 round"
COPY = LENGTH // 2  # place of the second 0


def duplicates(number: int, generator: torch.Generator) -> torch.Tensor:
    """Return sequences 0 w 0 w (number, 32) with 15 symbols of 127 in w; 3 is the id of 0."""
    words = torch.randint(4, 4 + SYMBOLS, (number, COPY - 1), generator=generator)
    half = nn.functional.pad(words, (1, 0), value=3)
    return torch.cat([half, half], dim=1)


def make(rounds: str) -> VaswaniForCausalLM:
    """Return a model with a number of rounds; for ``FULL``, one whose keys are all in one bucket."""
    sees_all = rounds == FULL
    options = {"buckets": BUCKETS, "keys": LENGTH if sees_all else KEYS, "rounds": ROUNDS[rounds]}
    model = VaswaniForCausalLM(
        VaswaniConfig(
            vocab_size=SYMBOLS + 4,
            hidden_size=128,
            intermediate_size=256,
            decoder_layers=1,
            num_attention_heads=4,
            norm="pre",
            dropout=0.0,
            positions="learned",
            max_position_embeddings=LENGTH,
            decoder_pattern="lsh",
            decoder_pattern_options={**options, "redraw": 0 if sees_all else 1},
        )
    )
    if sees_all:  # with directions of length zero, all vectors have the same hash
        for module in model.modules():
            if isinstance(module, RandomDirections):
                module.directions.zero_()
    return model


def of_copies(logits: torch.Tensor, sequences: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits (N, V) and targets (N,) of the second w."""
    return logits[:, COPY:-1].flatten(0, 1), sequences[:, COPY + 1 :].flatten()


def measure(variant: str, seed: int, data: Path) -> Measurement:
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = make(variant)

    def loss(step: int) -> torch.Tensor:
        sequences = duplicates(BATCH, generator)
        return nn.functional.cross_entropy(*of_copies(model(sequences, use_cache=False).logits, sequences))

    factor = warm_up_and_decay(WARM_UP, STEPS)
    curve = train(list(model.parameters()), loss, STEPS, RATE, factor, betas=(0.9, 0.98))
    weights = {name: each for name, each in model.state_dict().items() if not name.endswith("directions")}
    sequences = duplicates(TESTED, generator)
    values = {}
    for rounds in ROUNDS:
        tested = make(rounds).eval()
        tested.load_state_dict(weights, strict=False)
        with torch.no_grad():
            logits, targets = of_copies(tested(sequences, use_cache=False).logits, sequences)
        values[f"accuracy, {rounds}"] = (logits.argmax(-1) == targets).float().mean().item()
    return Measurement(
        {**values, GAIN: values["accuracy, 8 rounds"] - values["accuracy, 1 round"]}, {"loss": curve}, STEPS
    )


CLAIM = Claim(
    "LSH attention is more accurate with more rounds of hashing in the test than in training, and fails if it sees "
    "all keys in the test only",
    "Kitaev et al. 2020 (Reformer), section 5, table 2",
    f"`vaswani` with the pattern `lsh` on sequences 0 w 0 w, with {COPY - 1} random symbols of {SYMBOLS} in w: "
    "accuracy of the second w, which a guess gets right in 0.008 of the symbols. One layer of width 128 with 4 "
    f"heads, {BUCKETS} buckets and {KEYS} keys in each round; {STEPS:,} steps of {BATCH} sequences, Adam at "
    f"{RATE:g} with a linear warm-up of {WARM_UP} steps and a linear decay to zero. A row was trained with its "
    "number of rounds, and is tested with those of the columns; *all keys* has one bucket, so that each position "
    "sees all earlier ones. (In the paper, w has 511 symbols, and all keys in the test get 0.008 of the symbols "
    "right after training with 4, 2 or 1 rounds.) The length and the steps were chosen with another seed so that "
    "each row learns; w of 63 symbols was not learned in 600 steps.",
    TRAINED,
    measure,
    (
        Statement(GAIN, "1 round", "above", 0.0),
        *(Statement("accuracy, 8 rounds", each, "above", 0.9) for each in TRAINED),
        Statement("accuracy, 1 round", "1 round", "above", FULL),
        *(Statement(f"accuracy, {FULL}", each, "below", 0.05) for each in TRAINED[1:]),
    ),
    (Panel("loss", "step", "training nats per symbol"),),
)
