"""Stateful training learns longer patterns than stateless training."""

from pathlib import Path

import torch
from torch import nn

from hfattn import CharRNNConfig, CharRNNForCausalLM

from .claim import Claim, Measurement, Panel, Statement
from .tasks import characters, train

SYMBOLS, LAG, STREAMS = 4, 12, 32
WINDOW = {"copy": 8, "Shakespeare": 16}
STEPS = {"copy": 2000, "Shakespeare": 800}


def streams(task: str, seed: int, data: Path) -> tuple[torch.Tensor, ...]:
    """Return inputs and targets (32, T) for training, then held-out ones."""
    if task == "copy":  # the target is the symbol of 12 steps ago
        generator = torch.Generator().manual_seed(seed)
        text = torch.randint(SYMBOLS, (2, STREAMS, 20_000), generator=generator)
        return text[0], text[0].roll(LAG, dims=-1), text[1, :, :400], text[1].roll(LAG, dims=-1)[:, :400]
    train_text, held_out, _ = characters(data)
    parts = []
    for part, length in ((train_text, len(train_text) // STREAMS), (held_out, 401)):
        stream = part[: STREAMS * length].view(STREAMS, length)
        parts += [stream[:, :-1], stream[:, 1:]]
    return tuple(parts)


def measure(variant: str, seed: int, data: Path) -> Measurement:
    task, way = variant.split(", ")
    inputs, targets, held_in, held_out = streams(task, seed, data)
    torch.manual_seed(seed)
    model = CharRNNForCausalLM(CharRNNConfig(vocab_size=int(inputs.max()) + 1, hidden_size=64))
    width, cache = WINDOW[task], None

    def loss(step: int) -> torch.Tensor:
        nonlocal cache
        start = (step - 1) * width % (inputs.shape[1] // width * width)
        if way == "stateless" or start == 0:
            cache = None
        here = slice(start, start + width)
        outputs = model(input_ids=inputs[:, here], past_key_values=cache, use_cache=True)
        cache = outputs.past_key_values.detach()  # no gradient beyond the window
        return nn.functional.cross_entropy(outputs.logits.flatten(0, 1), targets[:, here].flatten())

    curve = train(list(model.parameters()), loss, STEPS[task], lr=5e-3)
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=held_in, use_cache=False).logits[:, LAG:]  # one long text, for both
        nats = nn.functional.cross_entropy(logits.flatten(0, 1), held_out[:, LAG:].flatten()).item()
    return Measurement({"held-out nats": nats}, {"loss": curve}, STEPS[task])


CLAIM = Claim(
    "Stateful training learns longer patterns than stateless training",
    "Mikolov et al. 2010, section 2 (truncated backpropagation); Karpathy 2015",
    f"`char_rnn`, a GRU of 64 units, 32 streams, Adam at 0.005. *Copy*: name the symbol, of {SYMBOLS}, "
    f"that was read {LAG} "
    f"steps ago, in windows of {WINDOW['copy']} ({STEPS['copy']:,} steps); a guess costs 1.386 nats. "
    f"*Shakespeare*: the "
    f"next character, in windows of {WINDOW['Shakespeare']} ({STEPS['Shakespeare']} steps). Stateful training starts a "
    "window from the last state of the one before, without its gradient. Both are evaluated on texts of "
    "400 steps with the "
    "state kept.",
    ("copy, stateful", "copy, stateless", "Shakespeare, stateful", "Shakespeare, stateless"),
    measure,
    (
        Statement("held-out nats", "copy, stateful", "below", "copy, stateless"),
        Statement("held-out nats", "copy, stateful", "below", 1.3),
        Statement("held-out nats", "Shakespeare, stateful", "below", "Shakespeare, stateless"),
    ),
    (Panel("loss", "step", "training nats"),),
)
