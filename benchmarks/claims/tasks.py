"""Text and training shared by the claims."""

import csv
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn


def characters(data: Path) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return the lower-cased tiny Shakespeare as ids from 3 up: the first 90%, the rest, and the vocabulary's size."""
    text = (data / "tinyshakespeare.txt").read_text().lower()
    ids = {character: number for number, character in enumerate(sorted(set(text)), start=3)}
    encoded = torch.tensor([ids[character] for character in text])
    cut = len(encoded) * 9 // 10
    return encoded[:cut], encoded[cut:], len(ids) + 3


def windows(text: torch.Tensor, length: int, number: int, generator: torch.Generator) -> torch.Tensor:
    """Return random windows (number, length)."""
    starts = torch.randint(len(text) - length + 1, (number, 1), generator=generator)
    return text[starts + torch.arange(length)]


def reviews(data: Path, length: int, words: int = 4000) -> tuple[list[tuple[torch.Tensor, torch.Tensor]], int]:
    """Return ids (N, length), padded on the right with 0, and labels (N,) of SST-2's phrases of eight words and more,
    then of its development sentences; and the size of the vocabulary (1 is an unknown word)."""
    parts = []
    for part in ("train", "dev"):
        with (data / f"sst2.{part}.tsv").open() as file:
            rows = [
                (row["sentence"].split(), int(row["label"])) for row in csv.DictReader(file, delimiter="\t", quoting=3)
            ]
        parts.append([(text, label) for text, label in rows if part == "dev" or len(text) >= 8])
    counts = Counter(word for text, _ in parts[0] for word in text)
    ids = {word: number for number, (word, _) in enumerate(counts.most_common(words), start=2)}
    encoded = []
    for rows in parts:
        padded = torch.zeros(len(rows), length, dtype=torch.long)
        for row, (text, _) in zip(padded, rows, strict=True):
            known = torch.tensor([ids.get(word, 1) for word in text[:length]])
            row[: len(known)] = known
        encoded.append((padded, torch.tensor([label for _, label in rows])))
    return encoded, words + 2


def next_loss(logits: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy (nats) of the next character, of logits (B, T, V) and text (B, T + 1)."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())


def warm_up_and_decay(warm_up: int, steps: int) -> Callable[[int], float]:
    """Return the factor of the rate in a step, counted from 1: a linear warm-up, then a line to zero."""
    return lambda step: min(step / warm_up, (steps - step) / (steps - warm_up))


def train(
    parameters: list[nn.Parameter],
    loss: Callable[[int], torch.Tensor],
    steps: int,
    lr: float,
    factor: Callable[[int], float] = lambda step: 1.0,
    optimizer: type[torch.optim.Optimizer] = torch.optim.Adam,
    betas: tuple[float, float] = (0.9, 0.999),
    clip: float | None = 1.0,
    after_backward: Callable[[int], None] = lambda step: None,
) -> list[tuple[float, float]]:
    """Minimize ``loss(step)`` for ``steps`` steps, counted from 1, with the rate ``lr * factor(step)``.

    Returns:
        (step, mean training loss of the last twentieth of the run) twenty times.
    """
    made = optimizer(parameters, lr=lr, betas=betas)  # type: ignore[call-arg]
    scheduler = torch.optim.lr_scheduler.LambdaLR(made, lambda done: factor(done + 1))
    losses, curve = [], []
    for step in range(1, steps + 1):
        made.zero_grad()
        value = loss(step)
        value.backward()
        after_backward(step)
        if clip is not None:
            nn.utils.clip_grad_norm_(parameters, clip)
        made.step()
        scheduler.step()
        losses.append(value.item())
        if len(losses) == max(1, steps // 20):
            curve.append((float(step), sum(losses) / len(losses)))
            losses = []
    return curve
