"""Elman networks forget; LSTM and GRU do not."""

from pathlib import Path

import torch

from hfattn import RNNEncoderConfig, RNNEncoderForSequenceClassification
from hfattn.models.recurrent_cells import RecurrentCell

from .claim import Claim, Measurement, Panel, Statement
from .tasks import train

KEYS, NOISE, LONGEST, STEPS = 8, 8, 50, 1500
LAGS = (1, 5, 10, 20, 30, 40, 50)


def texts(number: int, lag: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return texts (N, lag + 1), whose first symbol is the label (N,) and whose others are noise."""
    key = torch.randint(KEYS, (number,), generator=generator)
    noise = torch.randint(KEYS, KEYS + NOISE, (number, lag), generator=generator)
    return torch.cat([key[:, None], noise], dim=1) + 1, key


def gradient_norms(model: RNNEncoderForSequenceClassification, text: torch.Tensor) -> list[tuple[float, float]]:
    """Return (lag, norm of the derivative of v . h_T with respect to the state at T - lag), v ~ N(0, I).

    The mean of the square over v is the squared Frobenius norm of the Jacobian. The state of an LSTM is (h, c).
    """
    (cell,) = [module for module in model.modules() if isinstance(module, RecurrentCell)]
    inputs = cell.project(model.model.embed_tokens(text)).detach().unbind(1)  # T times (B, G H)
    states = [tuple(torch.zeros(len(text), model.config.hidden_size) for _ in range(cell.num_states))]
    with torch.no_grad():
        for projected in inputs:
            states.append(cell.step(projected, states[-1]))
    first, *others = states[-1]
    gradient = [torch.randn(first.shape, generator=torch.Generator().manual_seed(0)), *map(torch.zeros_like, others)]
    norms = []
    for lag, (projected, before) in enumerate(zip(reversed(inputs[1:]), reversed(states[1:-1]), strict=True), 1):
        # Each step alone: in the graph of all steps, the gradient of c_t would contain that of h_t.
        leaves = tuple(part.requires_grad_() for part in before)
        gradient = list(torch.autograd.grad(cell.step(projected, leaves), leaves, gradient))
        norms.append((float(lag), torch.cat(gradient, dim=-1).square().sum(-1).mean().sqrt().item()))
    return norms


def measure(variant: str, seed: int, data: Path) -> Measurement:
    torch.manual_seed(seed)
    cell, _, start = variant.lower().partition(", ")
    config = RNNEncoderConfig(
        vocab_size=KEYS + NOISE + 1, embedding_size=16, hidden_size=32, cell=cell, num_labels=KEYS
    )
    model = RNNEncoderForSequenceClassification(config)
    if start == "uniform":
        for name, weight in model.named_parameters():
            if "weight_hh" in name:
                torch.nn.init.uniform_(weight, -(config.hidden_size**-0.5), config.hidden_size**-0.5)
    generator = torch.Generator().manual_seed(seed)

    def loss(step: int) -> torch.Tensor:
        lag = int(torch.randint(1, LONGEST + 1, (1,), generator=generator))
        text, key = texts(64, lag, generator)
        return model(input_ids=text, labels=key).loss

    train(list(model.parameters()), loss, STEPS, lr=3e-3)
    model.eval()
    recall = []
    with torch.no_grad():
        for lag in LAGS:
            text, key = texts(512, lag, generator)
            recall.append((float(lag), (model(input_ids=text).logits.argmax(-1) == key).float().mean().item()))
    norms = gradient_norms(model, texts(64, LONGEST, generator)[0])
    decay = torch.tensor(norms[-1][1] / norms[0][1]).clamp(min=1e-30).log10().item()
    values = {"recall at lag 5": recall[1][1], "recall at lag 50": recall[-1][1], "gradient decay": decay}
    return Measurement(values, {"recall": recall, "gradient": norms}, STEPS)


CLAIM = Claim(
    "Elman networks forget, LSTM and GRU do not",
    "Bengio et al. 1994, section 4; Hochreiter & Schmidhuber 1997, section 3; Cho et al. 2014, section 2.3",
    f"`rnn_encoder` with 32 units names the first of up to {LONGEST + 1} symbols, with {KEYS} classes and lags drawn "
    f"from 1 to {LONGEST}, {STEPS:,} steps of 64 texts, Adam at 0.003, gradients clipped at norm 1. The decay is log10 "
    "of the norm of the derivative of the last h with respect to the state 50 steps before, divided by "
    "that of one step "
    "before. Recurrent matrices start orthogonal (Saxe et al. 2014), which helps an Elman network to "
    "remember. In the variant "
    "*uniform*, added after the first results, its matrix starts in U(-1/√32, 1/√32), as in torch.",
    ("Elman", "Elman, uniform", "LSTM", "GRU"),
    measure,
    (
        Statement("recall at lag 50", "Elman", "below", 0.5),
        Statement("recall at lag 50", "Elman, uniform", "below", 0.5),
        Statement("recall at lag 50", "LSTM", "above", 0.9),
        Statement("recall at lag 50", "GRU", "above", 0.9),
        Statement("gradient decay", "LSTM", "above", "Elman"),
        Statement("gradient decay", "GRU", "above", "Elman"),
    ),
    (Panel("recall", "lag", "recall"), Panel("gradient", "lag", "gradient norm", log_y=True)),
)
