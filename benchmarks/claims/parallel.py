"""Time of a training step against the length of the text."""

import math
import statistics
import time
from pathlib import Path

import torch

from hfattn import CharRNNConfig, CharRNNForCausalLM, VaswaniConfig, VaswaniForCausalLM

from .claim import Claim, Measurement, Panel, Statement
from .tasks import next_loss

LENGTHS = (8, 16, 32, 64, 128, 256)
WIDTH, VOCABULARY, TIMES = 64, 64, 7


def measure(variant: str, seed: int, data: Path) -> Measurement:
    torch.manual_seed(seed)
    model: torch.nn.Module
    if variant == "Transformer":
        model = VaswaniForCausalLM(
            VaswaniConfig(
                vocab_size=VOCABULARY,
                hidden_size=WIDTH,
                intermediate_size=4 * WIDTH,
                decoder_layers=1,
                num_attention_heads=4,
            )
        )
    else:
        model = CharRNNForCausalLM(
            CharRNNConfig(
                vocab_size=VOCABULARY, embedding_size=WIDTH, hidden_size=WIDTH, cell=variant.lower().replace("-", "_")
            )
        )
    curve = []
    for length in LENGTHS:
        text = torch.randint(3, VOCABULARY, (1, length + 1))
        times = []
        for _ in range(TIMES):
            start = time.process_time()
            next_loss(model(input_ids=text[:, :-1], use_cache=False).logits, text).backward()
            times.append(1000 * (time.process_time() - start))
        curve.append((float(length), statistics.median(times[1:])))
    slope, _ = statistics.linear_regression(*([math.log(part) for part in each] for each in zip(*curve, strict=True)))
    values = {"exponent": slope, f"time at {LENGTHS[-1]} / at {LENGTHS[0]}": curve[-1][1] / curve[0][1]}
    return Measurement(values, {"time": curve})


CLAIM = Claim(
    "Transformers train in parallel over time, recurrent networks serially",
    "Vaswani et al. 2017, table 1",
    f"One layer of width {WIDTH}, one text: CPU time of a forward and a backward pass, the median of "
    f"{TIMES - 1}, against "
    "the length n. The exponent is fitted to time = c n^a. One thread executes everything serially: it "
    "shows how much of "
    "the time is that of single operations (a low exponent: the positions share matrix products) and not "
    "the speed-up of "
    "a parallel machine. *GRU-reset-before* runs step by step in Python; torch runs LSTM in one call, "
    "also step by step.",
    ("Transformer", "LSTM", "GRU-reset-before"),
    measure,
    (
        Statement("exponent", "Transformer", "below", "LSTM"),
        Statement("exponent", "Transformer", "below", "GRU-reset-before"),
        Statement("exponent", "GRU-reset-before", "equal to", 1.0, 0.2),
    ),
    (Panel("time", "length", "CPU ms", log_x=True, log_y=True),),
)
