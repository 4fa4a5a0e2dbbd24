"""Compare a training step of the Transformer with those of Marian, BART, nn.Transformer and others of the same weights.

    python -m benchmarks train_transformer [--threads 1] [--device cpu] [--rounds 5] [--write]

The translator is that of ``python -m benchmarks generation``, in float32: width 256, 3 + 3 layers, 8 heads and 8,000
tokens, one matrix for both embeddings and the output layer, and dropout 0.1 of the embeddings and of each sub-layer.
One row of hfattn has the loss in chunks, as the recipes on a CPU (docs/speed.md); the others have all logits. A step
reads 64 pairs of 32 + 32 tokens without padding, and consists of the loss, its gradient, and AdamW. Before it is timed,
the losses and the norms of the gradients of all rows are compared, without dropout; of x-transformers and Keras, which
``pip install 'hfattn[bench]'`` installs, the losses alone, and that of BART without the norm after its embeddings,
which the others do not have.

The second table has an epoch over 512 pairs of mixed lengths, about 15 + 15 tokens: in random batches of 64 pairs,
padded to the longest, or in batches of similar lengths with at most 2,048 tokens on a side, as ``max_tokens`` of
the recipes makes them. The losses over all pairs are compared first. The third table has both in mixed precision
(autocast), beside float32, and on a CPU beside float32 whose products of matrices oneDNN computes (``matmul: on``); it
is left out on hardware that has no bfloat16 arithmetic. ``--write`` writes docs/records/train_transformer.json and the
tables of docs/speed.md.
"""

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import BartForConditionalGeneration, PreTrainedModel
from transformers.utils import logging

from benchmarks.generation import LAYERS, WIDTH, V, marian_of, transformer_model
from benchmarks.harness import ROOT, Benchmark, Group, run, titled_tables
from benchmarks.peers import XTransformersTranslator, bart_of, keras_peer
from hfattn import BahdanauForConditionalGeneration, VaswaniForConditionalGeneration
from hfattn.data import TokenBatches
from hfattn.exchange.from_torch import DECODER, ENCODER, GENERATOR
from hfattn.exchange.names import to_theirs
from hfattn.exchange.vaswani import transformer_rows
from hfattn.metrics.language_model import IGNORED
from hfattn.models.modeling_vaswani import sinusoidal_positions
from hfattn.training import nats_for_logits
from hfattn.training.arguments import computes_bfloat16
from hfattn.training.matrix_products import onednn_products

PAIRS, TOKENS = 64, 32
MARIAN, SDPA, EAGER, TORCH = "Marian, sdpa", "hfattn, sdpa", "hfattn, eager", "nn.Transformer"
BART, X_TRANSFORMERS, KERAS = "BART, sdpa", "x-transformers", "Keras on JAX"
CHUNKED, MARIAN_EAGER = "hfattn, sdpa, loss in chunks", "Marian, eager"
MIXED, LONGEST = 512, 60  # pairs of mixed lengths, and tokens of the longest
RANDOM, BY_TOKENS = "random batches", "batches by tokens"
FLOAT, BFLOAT = "float32", "bfloat16"
ONEDNN = "float32 by oneDNN"  # as the field matmul of the recipes selects it


class TorchTranslator(nn.Module):
    """The layers of ``nn.Transformer`` between embeddings and an output layer, as others write it.

    Its dropouts of the weights of attention and of the inner layers are off, which the other models do not have.
    """

    def __init__(self, ours: VaswaniForConditionalGeneration) -> None:
        super().__init__()
        config = ours.config
        options: dict[str, Any] = {"dropout": config.dropout, "batch_first": True}
        sizes = (WIDTH, config.num_attention_heads, config.intermediate_size)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(*sizes, **options), LAYERS, enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(*sizes, **options), LAYERS)
        self.source_embedding = self.target_embedding = nn.Embedding(V, WIDTH)
        self.generator = nn.Linear(WIDTH, V, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        self.load_state_dict(to_theirs(ours, transformer_rows((ENCODER, DECODER), GENERATOR, config, False)))
        self.generator.weight = self.target_embedding.weight
        for module in self.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout = nn.Dropout(0.0)
        self.register_buffer("positions", sinusoidal_positions(torch.arange(TOKENS), WIDTH))
        self.register_buffer("causal", nn.Transformer.generate_square_subsequent_mask(TOKENS))
        self.start = config.decoder_start_token_id

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        written = torch.cat([torch.full_like(labels[:, :1], self.start), labels[:, :-1]], dim=1)
        read, written = (
            self.dropout(self.source_embedding(ids) * WIDTH**0.5 + self.positions) for ids in (input_ids, written)
        )
        states = self.decoder(written, self.encoder(read), tgt_mask=self.causal, tgt_is_causal=True)
        return nn.functional.cross_entropy(self.generator(states).flatten(0, 1), labels.flatten())


class ChunkedTranslator(nn.Module):
    """A translator whose loss is computed without its logits, as ``ReliableTrainer`` does."""

    def __init__(self, model: BahdanauForConditionalGeneration | VaswaniForConditionalGeneration) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, labels: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        written = self.model.prepare_decoder_input_ids_from_labels(labels)
        with nats_for_logits(self.model.lm_head, labels):
            outputs: Any = self.model(input_ids, attention_mask, decoder_input_ids=written, use_cache=False)
        nats: torch.Tensor = outputs.logits
        return nats / labels.ne(IGNORED).sum()


def models(device: torch.device) -> dict[str, nn.Module]:
    """Return the models by the names of the rows."""
    ours = transformer_model()
    eager = deepcopy(ours)
    eager.set_attn_implementation("eager")
    found: dict[str, nn.Module] = {
        MARIAN: marian_of(ours),
        CHUNKED: ChunkedTranslator(deepcopy(ours)),
        SDPA: ours,
        EAGER: eager,
        TORCH: TorchTranslator(ours),
    }
    return {row: model.to(device) for row, model in found.items()}


def loss_of(model: nn.Module, batch: dict[str, torch.Tensor], precision: str = FLOAT) -> torch.Tensor:
    with torch.autocast(batch["labels"].device.type, torch.bfloat16, enabled=precision == BFLOAT):
        outputs: Any = model(**batch, use_cache=False) if isinstance(model, PreTrainedModel) else model(**batch)
    loss: torch.Tensor = outputs.loss if isinstance(model, PreTrainedModel) else outputs
    return loss


def trained(model: nn.Module, *batches: dict[str, torch.Tensor], precision: str = FLOAT) -> Callable[[], None]:
    """Return a function that does a step for each batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def steps() -> None:
        model.train()
        for batch in batches:
            with onednn_products() if precision == ONEDNN else nullcontext():
                loss_of(model, batch, precision).backward()
            optimizer.step()
            optimizer.zero_grad()

    return steps


def without_embedding_norms(bart: BartForConditionalGeneration) -> BartForConditionalGeneration:
    """Return a copy of BART that has the layers of the other models."""
    bart = deepcopy(bart)
    bart.model.encoder.layernorm_embedding = bart.model.decoder.layernorm_embedding = nn.Identity()
    return bart


def full_batch(device: torch.device) -> dict[str, torch.Tensor]:
    """Return a batch without padding."""
    ids = torch.randint(3, V, (2, PAIRS, TOKENS), device=device)
    return {"input_ids": ids[0], "labels": ids[1]}


def check_gradients(rows: Mapping[str, nn.Module], batch: dict[str, torch.Tensor]) -> None:
    """Check that all models have the loss of the first one, and the norm of its gradient, without dropout."""
    found = {}
    for row, model in rows.items():
        loss = loss_of(model.eval(), batch)
        loss.backward()
        gradients = [each.grad.double() for each in model.parameters() if each.grad is not None]
        found[row] = torch.stack([loss.detach().double(), torch.cat([each.flatten() for each in gradients]).norm()])
        model.zero_grad()
    first = next(iter(found.values()))
    for row, values in found.items():
        torch.testing.assert_close(values, first, rtol=1e-4, atol=1e-4, msg=f"{row}: {values}, {first}")


def groups(device: torch.device) -> Iterator[Group]:
    rows, batch = models(device), full_batch(device)
    ours: Any = rows[SDPA]
    functions = {row: trained(model, batch) for row, model in rows.items()}
    bart = bart_of(marian_of(ours)).to(device)
    functions[BART] = trained(bart, batch)
    losses: dict[str, Callable[[], float]] = {
        SDPA: lambda: loss_of(ours.eval(), batch).item(),
        BART: lambda: loss_of(without_embedding_norms(bart).eval(), batch).item(),
    }
    if importlib.util.find_spec("x_transformers"):
        other = XTransformersTranslator(ours).to(device)
        functions[X_TRANSFORMERS] = trained(other, batch)
        losses[X_TRANSFORMERS] = lambda: loss_of(other.eval(), batch).item()
    if device.type == "cpu" and importlib.util.find_spec("keras") and importlib.util.find_spec("jax"):
        losses[KERAS], functions[KERAS] = keras_peer(ours, batch)

    def check() -> None:
        check_gradients(rows, batch)
        expected = losses[SDPA]()
        for row, loss in losses.items():
            assert abs(loss() / expected - 1) < 1e-5, f"{row}: {loss()}, {expected}"

    yield Group(f"{PAIRS} x {TOKENS} tokens", functions, check)


def mixed_lengths(number: int, generator: np.random.Generator) -> np.ndarray:
    """Return numbers of tokens of sources and targets, (number, 2): log-normal, and a fifth apart at most."""
    source = np.exp(generator.normal(2.5, 0.6, number))
    target = source * generator.uniform(0.8, 1.2, number)
    return np.clip(np.stack([source, target], 1).round(), 3, LONGEST).astype(np.int64)


def padded(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Return a batch of pairs of token ids, padded to the longest."""
    sources, targets = map(list, zip(*pairs, strict=True))
    input_ids = pad_sequence(sources, batch_first=True)
    labels = pad_sequence(targets, batch_first=True, padding_value=IGNORED)
    return {"input_ids": input_ids, "attention_mask": input_ids.ne(0).long(), "labels": labels}


def mixed_batches(device: torch.device) -> tuple[int, dict[str, list[dict[str, torch.Tensor]]]]:
    """Return the number of tokens of an epoch of pairs of mixed lengths, and its batches in each order."""
    lengths = mixed_lengths(MIXED, np.random.default_rng(0))
    sources, targets = ([torch.randint(3, V, (n,), device=device) for n in side] for side in lengths.T.tolist())
    pairs = list(zip(sources, targets, strict=True))
    orders: dict[str, list[list[int]]] = {
        RANDOM: [order.tolist() for order in torch.randperm(MIXED).split(PAIRS)],
        BY_TOKENS: list(TokenBatches(lengths, PAIRS * TOKENS, seed=0)),
    }
    batches = {name: [padded([pairs[i] for i in batch]) for batch in order] for name, order in orders.items()}
    return int(lengths.sum()), batches


def nats_of(model: nn.Module, batches: list[dict[str, torch.Tensor]], precision: str = FLOAT) -> float:
    """Return the loss of all tokens, in nats, without dropout."""
    model.eval()
    with onednn_products() if precision == ONEDNN else nullcontext():
        return sum(loss_of(model, each, precision).item() * int(each["labels"].ne(IGNORED).sum()) for each in batches)


def check_nats(rows: Mapping[str, tuple[Any, ...]], tolerance: float) -> None:
    """Check that all rows, each with the arguments of ``nats_of``, have the loss of the first one."""
    nats = {row: nats_of(*of) for row, of in rows.items()}
    first = next(iter(nats.values()))
    for row, value in nats.items():
        assert abs(value / first - 1) < tolerance, f"{row}: {value}, {first}"


def mixed(device: torch.device) -> Iterator[Group]:
    tokens, batches = mixed_batches(device)
    found = models(device)
    rows = {
        f"{row}, {name}": (found[row], batches[name])
        for row, name in ((MARIAN, RANDOM), (SDPA, RANDOM), (CHUNKED, RANDOM), (CHUNKED, BY_TOKENS))
    }

    functions = {row: trained(model, *read) for row, (model, read) in rows.items()}
    yield Group(f"{tokens:,} tokens", functions, partial(check_nats, rows, 1e-5))


def bfloat16(device: torch.device) -> Iterator[Group]:
    if not computes_bfloat16():
        return
    found: dict[str, Any] = {**models(device)}
    found[MARIAN_EAGER] = deepcopy(found[MARIAN])
    found[MARIAN_EAGER].set_attn_implementation("eager")
    full, (tokens, batches) = [full_batch(device)], mixed_batches(device)
    for column, in_order, by_tokens in (
        (f"{PAIRS} x {TOKENS} tokens", full, []),
        (f"{MIXED} pairs, {tokens:,} tokens", batches[RANDOM], batches[BY_TOKENS]),
    ):
        rows = {
            f"{row}, {precision}": (found[row], in_order, precision)
            for row in (MARIAN, MARIAN_EAGER, CHUNKED)
            for precision in (FLOAT, BFLOAT, *((ONEDNN,) if device.type == "cpu" and row != MARIAN else ()))
        }
        if by_tokens:
            rows[f"{CHUNKED}, {BY_TOKENS}, {BFLOAT}"] = (found[CHUNKED], by_tokens, BFLOAT)

        functions = {row: trained(model, *read, precision=of) for row, (model, read, of) in rows.items()}
        # Numbers in bfloat16 are rounded by up to 4e-3.
        yield Group(column, functions, partial(check_nats, rows, 5e-3))


TITLES = {
    "train_transformer": ("Transformer translator", "training step"),
    "mixed": ("Pairs of mixed lengths", "an epoch of 512 pairs"),
    "bfloat16": ("Mixed precision", "a training step, or an epoch"),
}


BENCHMARK = Benchmark(
    "train_transformer",
    ROOT / "docs" / "speed.md",
    {"train_transformer": groups, "mixed": mixed, "bfloat16": bfloat16},
    partial(titled_tables, titles=TITLES),
    ("x_transformers", "keras", "jax"),
)

if __name__ == "__main__":
    logging.set_verbosity_error()
    run(BENCHMARK, __doc__)
