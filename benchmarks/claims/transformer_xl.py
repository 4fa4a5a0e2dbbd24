"""Transformer-XL: memory and relative positions, and the cost of a context for each character."""

import math
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from transformers.cache_utils import Cache

from hfattn import VaswaniConfig, VaswaniForCausalLM

from ..harness import clock
from .claim import Claim, Measurement, Panel, Statement
from .tasks import characters, next_loss, train, warm_up_and_decay

SEGMENT, STREAMS, STEPS, RATE, WARM_UP = 64, 16, 1000, 2e-3, 100
MEMORIES = (64, 128, 256, 512, 1024)  # in evaluation
HELD_OUT = (8, 100 * SEGMENT + 1)  # streams, and characters of each
# Positions of the model that reads a context for each character.
CONTEXTS = {"relative positions": "relative_sinusoidal", "absolute positions": "sinusoidal"}
BITS, LONGER = "held-out bits per character", "bits added by a memory of twice the length in evaluation"
LENGTHS = (800, 1800, 2800, 3800)  # of a context, as in table 9 of the paper


def make(vocab_size: int, positions: str, memory_length: int) -> VaswaniForCausalLM:
    return VaswaniForCausalLM(
        VaswaniConfig(
            vocab_size=vocab_size,
            hidden_size=128,
            intermediate_size=512,
            decoder_layers=4,
            num_attention_heads=4,
            norm="pre",
            dropout=0.0,
            positions=positions,
            decoder_pattern="memory",
            decoder_pattern_options={"segment_length": SEGMENT, "memory_length": memory_length},
        )
    )


def cut(text: torch.Tensor, streams: int, length: int) -> torch.Tensor:
    """Return the first streams (N, T) of a text, which follow each other."""
    return text[: streams * length].view(streams, length)


def read(model: VaswaniForCausalLM, segment: torch.Tensor, cache: Cache | None) -> tuple[torch.Tensor, Cache]:
    """Return the loss of a segment (B, T + 1) after those in the cache, and the cache.

    Absolute positions begin again in each segment.
    """
    inputs = segment[:, :-1]
    positions = torch.arange(inputs.shape[1]).expand_as(inputs)
    outputs = model(input_ids=inputs, position_ids=positions, past_key_values=cache, use_cache=True)
    return next_loss(outputs.logits, segment), outputs.past_key_values


@torch.no_grad()
def bits_per_character(model: VaswaniForCausalLM, streams: torch.Tensor, has_memory: bool) -> float:
    """Read streams (N, T + 1) segment after segment."""
    cache, losses = None, []
    for start in range(0, streams.shape[1] - 1, SEGMENT):
        loss, cache = read(model, streams[:, start : start + SEGMENT + 1], cache if has_memory else None)
        losses.append(loss.item())
    return statistics.mean(losses) / math.log(2)


def measure(variant: str, seed: int, data: Path) -> Measurement:
    has_memory = not variant.startswith("no memory")
    positions = "relative_sinusoidal" if variant.endswith("relative") else "sinusoidal"
    text, held_out, vocab_size = characters(data)
    torch.manual_seed(seed)
    model = make(vocab_size, positions, SEGMENT)
    streams = cut(text, STREAMS, len(text) // STREAMS)
    cache = None

    def loss(step: int) -> torch.Tensor:
        nonlocal cache
        start = (step - 1) % (streams.shape[1] // SEGMENT) * SEGMENT
        value, cache = read(model, streams[:, start : start + SEGMENT + 1], cache if has_memory and start > 0 else None)
        return value

    factor = warm_up_and_decay(WARM_UP, STEPS)
    curve = train(list(model.parameters()), loss, STEPS, RATE, factor, betas=(0.9, 0.98))
    evaluated = cut(held_out, *HELD_OUT)
    bits = {0: bits_per_character(model.eval(), evaluated, has_memory=False)}
    for length in MEMORIES:
        longer = make(vocab_size, positions, length).eval()
        longer.load_state_dict(model.state_dict())
        bits[length] = bits_per_character(longer, evaluated, has_memory=True)
    values = {
        BITS: bits[SEGMENT if has_memory else 0],
        LONGER: bits[2 * SEGMENT] - bits[SEGMENT],
    }
    return Measurement(values, {"loss": curve, "memory": [(float(m), value) for m, value in bits.items()]}, STEPS)


def seconds(run: Callable[[int], object], calls: int) -> float:
    """Return the median CPU time of calls after the first one."""
    times = [clock(partial(run, call), 1, torch.device("cpu"))[0] for call in range(calls)]
    return statistics.median(times[1:])


@torch.no_grad()
def cost(variant: str, seed: int, data: Path) -> Measurement:
    """Divide the CPU time of a character that has a context of its own by that of one that is read with a memory."""
    generator = torch.Generator().manual_seed(seed)
    ratios = []
    for length in LENGTHS:
        model = make(40, "relative_sinusoidal", length).eval()
        fields = model.config.to_diff_dict() | {"decoder_pattern": "full", "decoder_pattern_options": {}}
        alone = VaswaniForCausalLM(VaswaniConfig(**fields | {"positions": CONTEXTS[variant]})).eval()
        text = torch.randint(3, 40, (1, length + 5 * SEGMENT), generator=generator)
        cache = model(input_ids=text[:, :length], use_cache=True).past_key_values
        segments = text[:, length:].split(SEGMENT, dim=1)

        def read_segment(call: int) -> None:
            model(input_ids=segments[call], past_key_values=cache, use_cache=True)  # noqa: B023

        def read_context(call: int) -> None:
            alone(input_ids=text[:, call : call + length], use_cache=False, logits_to_keep=1)  # noqa: B023

        ratios.append(seconds(read_context, 4) / seconds(read_segment, 5) * SEGMENT)
    slope, _ = statistics.linear_regression([math.log(n) for n in LENGTHS], [math.log(ratio) for ratio in ratios])
    values = {f"ratio of times, {n:,} characters": ratio for n, ratio in zip(LENGTHS, ratios, strict=True)}
    points = [(float(n), ratio) for n, ratio in zip(LENGTHS, ratios, strict=True)]
    return Measurement({**values, "exponent of the ratio": slope}, {"ratio": points})


VARIANTS = ("memory, relative", "memory, absolute", "no memory, relative", "no memory, absolute")
CLAIMS = {
    "memory": Claim(
        "A memory of earlier segments improves a language model, if positions are relative",
        "Dai et al. 2019 (Transformer-XL), sections 3.2 and 3.3, tables 6 and 7",
        "`vaswani` as a character language model on tiny Shakespeare (the last 10% held out): 4 pre-norm layers of "
        f"width 128, {STEPS:,} steps of {STREAMS} segments of {SEGMENT} characters that continue those of the step "
        f"before, Adam at {RATE:g} with a linear warm-up of {WARM_UP} steps and a linear decay to zero. *Memory*: a "
        f"segment sees the states of the {SEGMENT} characters before it, in training and in evaluation. *Relative* "
        "positions are those of the paper; *absolute* ones are sinusoidal and begin again in each segment. The "
        "right chart evaluates the same weights with memories of other lengths; at 0, there is no memory.",
        VARIANTS,
        measure,
        (
            Statement(BITS, "memory, relative", "below", "no memory, relative"),
            Statement(BITS, "memory, relative", "below", "memory, absolute"),
            Statement(BITS, "memory, relative", "below", "no memory, absolute"),
            Statement(BITS, "no memory, relative", "below", "no memory, absolute"),
            Statement(LONGER, "memory, relative", "below", 0.0),
            Statement(LONGER, "memory, absolute", "not below", 0.0),
        ),
        (
            Panel("loss", "step", "training nats per character"),
            Panel("memory", "length of the memory in evaluation", "held-out bits per character"),
        ),
    ),
    "context_cost": Claim(
        "Reading a text with a memory is hundreds of times faster than a context of its own for each character, in "
        "proportion to the length of the context",
        "Dai et al. 2019 (Transformer-XL), section 4.5, table 9",
        "CPU time of a character, one thread, with the model of the section before (weights are random; a round is a "
        f"seed). With a memory of n characters, the text is read in segments of {SEGMENT}. Without, the n characters "
        "before each character are read again, by the same model with one dense segment (*relative positions*, whose "
        "bias is a matrix of all pairs) or with *absolute positions*, which fused attention has. The value is the "
        "ratio of the two times, and the exponent a is fitted to ratio = c n^a. The paper's ratios are 363, 773, "
        "1,409 and 1,874. Relative positions were added after a first measurement with absolute ones.",
        tuple(CONTEXTS),
        cost,
        (
            *(Statement(f"ratio of times, {LENGTHS[0]:,} characters", each, "above", 100.0) for each in CONTEXTS),
            *(Statement("exponent of the ratio", each, "equal to", 1.05, 0.15) for each in CONTEXTS),
        ),
        (Panel("ratio", "n", "time without a memory / with it", log_x=True, log_y=True),),
    ),
}
