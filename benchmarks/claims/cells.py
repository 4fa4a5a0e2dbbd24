"""A GRU is faster than an LSTM with as many parameters, and as good."""

import time
from pathlib import Path

import torch

from hfattn import CharRNNConfig, CharRNNForCausalLM

from .claim import Claim, Measurement, Panel, Statement
from .tasks import characters, next_loss, train, windows

UNITS = {"LSTM": 96, "LSTM, no oneDNN": 96, "GRU": 112}  # 49,000 parameters each
STEPS = 600


def measure(variant: str, seed: int, data: Path) -> Measurement:
    with torch.backends.mkldnn.flags(enabled="no oneDNN" not in variant):
        return _measure(variant, seed, data)


def _measure(variant: str, seed: int, data: Path) -> Measurement:
    text, held_out, vocab_size = characters(data)
    torch.manual_seed(seed)
    cell = variant.partition(",")[0].lower()
    model = CharRNNForCausalLM(CharRNNConfig(vocab_size=vocab_size, hidden_size=UNITS[variant], cell=cell))
    generator = torch.Generator().manual_seed(seed)

    def loss(step: int) -> torch.Tensor:
        batch = windows(text, 65, 32, generator)
        return next_loss(model(input_ids=batch[:, :-1], use_cache=False).logits, batch)

    start = time.process_time()
    curve = train(list(model.parameters()), loss, STEPS, lr=5e-3)
    seconds = time.process_time() - start
    model.eval()
    with torch.no_grad():
        batch = windows(held_out, 65, 512, torch.Generator().manual_seed(0))
        nats = next_loss(model(input_ids=batch[:, :-1], use_cache=False).logits, batch).item()
    values = {
        "held-out nats per character": nats,
        "CPU ms per step": 1000 * seconds / STEPS,
        "parameters": float(model.num_parameters()),
    }
    return Measurement(values, {"loss": curve}, STEPS)


CLAIM = Claim(
    "A GRU is faster than an LSTM of the same size, and as good",
    "Chung et al. 2014, sections 4 and 5",
    f"`char_rnn` with equal numbers of parameters on tiny Shakespeare (the last 10% held out), {STEPS} "
    f"steps of 32 windows "
    "of 64 characters, Adam at 0.005. Time is that of the process on one thread, which other processes "
    "on the machine can "
    "lengthen. On a CPU, torch runs an LSTM with a kernel of oneDNN, which a GRU does not have; in the variant without "
    "oneDNN, added after the first results, neither has one.",
    tuple(UNITS),
    measure,
    (
        Statement("CPU ms per step", "GRU", "below", "LSTM"),
        Statement("CPU ms per step", "GRU", "below", "LSTM, no oneDNN"),
        Statement("held-out nats per character", "GRU", "not above", "LSTM", 0.02),
    ),
    (Panel("loss", "step", "training nats per character"),),
)
