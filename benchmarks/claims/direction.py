"""A bidirectional network beats a causal one where the right context matters."""

from pathlib import Path

import torch
from torch import nn

from hfattn import RNNEncoderConfig, RNNEncoderForSequenceClassification, RNNEncoderModel

from .claim import Claim, Measurement, Panel, Statement
from .tasks import characters, reviews, train, windows

UNITS = {"causal": ("forward", 48), "bidirectional": ("bidirectional", 32)}  # about as many recurrent weights
SIDE = 10  # characters on each side of the gap
STEPS = {"cloze": 800, "reviews": 300}


def cloze(variant: str, seed: int, data: Path) -> Measurement:
    direction, units = UNITS[variant]
    text, held_out, vocab_size = characters(data)
    torch.manual_seed(seed)
    model = RNNEncoderModel(
        RNNEncoderConfig(vocab_size=vocab_size, embedding_size=16, hidden_size=units, direction=direction)
    )
    head = nn.Linear(model.config.annotation_size, vocab_size)
    generator = torch.Generator().manual_seed(seed)

    def logits(batch: torch.Tensor) -> torch.Tensor:
        gap = batch.clone()
        gap[:, SIDE] = 1
        return head(model(input_ids=gap).last_hidden_state[:, SIDE])

    def loss(step: int) -> torch.Tensor:
        batch = windows(text, 2 * SIDE + 1, 64, generator)
        return nn.functional.cross_entropy(logits(batch), batch[:, SIDE])

    curve = train([*model.parameters(), *head.parameters()], loss, STEPS["cloze"], lr=5e-3)
    model.eval()
    with torch.no_grad():
        batch = windows(held_out, 2 * SIDE + 1, 4000, torch.Generator().manual_seed(0))
        accuracy = (logits(batch).argmax(-1) == batch[:, SIDE]).float().mean().item()
    return Measurement({"accuracy": accuracy}, {"loss": curve}, STEPS["cloze"])


def classification(variant: str, seed: int, data: Path) -> Measurement:
    direction, units = UNITS[variant]
    ((texts, labels), (held_out, answers)), vocab_size = reviews(data, 30)
    torch.manual_seed(seed)
    model = RNNEncoderForSequenceClassification(
        RNNEncoderConfig(
            vocab_size=vocab_size, embedding_size=32, hidden_size=units, direction=direction, embedding_dropout=0.3
        )
    )
    generator = torch.Generator().manual_seed(seed)

    def loss(step: int) -> torch.Tensor:
        chosen = torch.randint(len(texts), (64,), generator=generator)
        return model(input_ids=texts[chosen], attention_mask=(texts[chosen] > 0).long(), labels=labels[chosen]).loss

    curve = train(list(model.parameters()), loss, STEPS["reviews"], lr=3e-3)
    model.eval()
    with torch.no_grad():
        guesses = model(input_ids=held_out, attention_mask=(held_out > 0).long()).logits.argmax(-1)
    accuracy = (guesses == answers).float().mean().item()
    return Measurement({"accuracy": accuracy}, {"loss": curve}, STEPS["reviews"])


def measure(variant: str, seed: int, data: Path) -> Measurement:
    task, way = variant.split(", ")
    return (cloze if task == "cloze" else classification)(way, seed, data)


CLAIM = Claim(
    "A bidirectional network beats a causal one where the right context matters",
    "Schuster & Paliwal 1997; Graves & Schmidhuber 2005",
    f"`rnn_encoder`: a forward GRU of 48 units, or one of 32 units in each direction (about as many recurrent "
    f"weights). *Cloze*: "
    f"name the hidden character between {SIDE} others on each side, from the annotation at the gap, in "
    f"tiny Shakespeare "
    f"({STEPS['cloze']} steps of 64, Adam at 0.005; the last 10% held out). *Reviews*: SST-2 by the last states "
    f"({STEPS['reviews']} steps of 64, Adam at 0.003; accuracy on the 872 development sentences), where a "
    f"causal network "
    "has read the whole text too.",
    ("cloze, causal", "cloze, bidirectional", "reviews, causal", "reviews, bidirectional"),
    measure,
    (
        Statement("accuracy", "cloze, bidirectional", "above", "cloze, causal"),
        Statement("accuracy", "reviews, bidirectional", "above", "reviews, causal"),
    ),
    (Panel("loss", "step", "training loss, nats"),),
)
