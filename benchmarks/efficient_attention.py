"""Compare patterns of self-attention with dense attention, and a layer with a window with those of transformers.

    python -m benchmarks efficient_attention [--threads 1] [--device cpu] [--rounds 5] [--only TABLE ...] [--write]

- *causal* and *encoder*: attention alone, that is, the self-attention of a layer whose projections of queries, keys,
  values and outputs are identities, over the number of tokens n; forward, and forward and backward (*training*).
- *layer*: an encoder of one layer with its projections and feed-forward network, from embeddings to hidden states.
- *decoding*: one step of a decoder of one layer after n tokens, with its cache.

Before a group is timed, the outputs are compared: of patterns, with dense attention under their mask, with their kernel
or with float64; of the layers, with BERT's and Longformer's of the same weights; of a step, with the whole text.
``--write`` writes docs/records/efficient_attention.json and the tables of docs/efficient.md.
"""

import copy
import math
import statistics
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    BigBirdConfig,
    BigBirdModel,
    FNetConfig,
    FNetModel,
    LongformerConfig,
    LongformerModel,
    ModernBertConfig,
    ModernBertModel,
    NystromformerConfig,
    NystromformerModel,
    PreTrainedModel,
    ReformerConfig,
    ReformerModel,
)
from transformers.utils import logging

from hfattn import VaswaniConfig, VaswaniForCausalLM
from hfattn.models.attention_kernels import LinearAttention, PerformerAttention, log_features
from hfattn.models.attention_scores import FEATURE_MAPS
from hfattn.models.attention_windows import LayoutAttention
from hfattn.models.modeling_vaswani import TokenMixer, VaswaniDecoder, VaswaniEncoder, boolean_mask

from .harness import ROOT, Benchmark, Function, Group, Record, circumstances, markdown, run, three_digits, times_table
from .lengths import crossings, exponents, lengths, memory_exponent

WIDTH, HEADS, INNER = 512, 8, 2048
CHECKED = 600  # tokens of the comparison of outputs, no multiple of a block
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")

Reference = Callable[[Any, torch.Tensor, bool], torch.Tensor]


@dataclass(frozen=True)
class Sizes:
    """Numbers of tokens in each table."""

    causal: tuple[int, ...] = (256, 512, 1024, 2048, 4096, 8192, 16_384)
    encoder: tuple[int, ...] = (256, 512, 1024, 2048, 4096, 8192)
    layer: tuple[int, ...] = (1024, 4096, 8192)
    layer_training: tuple[int, ...] = (1024, 4096)
    decoding: tuple[int, ...] = (100, 1000, 10_000)


def split(hidden: torch.Tensor) -> torch.Tensor:
    return hidden.unflatten(-1, (HEADS, -1)).transpose(1, 2)  # (B, T, H) -> (B, h, T, d)


def dense(mixer: TokenMixer, hidden: torch.Tensor, causal: bool) -> torch.Tensor:
    heads = split(hidden)
    return nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=causal).transpose(1, 2).flatten(-2)


def under_mask(mixer: LayoutAttention, hidden: torch.Tensor, causal: bool) -> torch.Tensor:
    """Dense attention under the mask of a layout."""
    heads, positions = split(hidden), torch.arange(hidden.shape[1], device=hidden.device)
    ((layout, _),) = mixer.layouts
    mask = layout.sees(positions[:, None], positions)
    mask = mask.tril() if causal else mask
    return nn.functional.scaled_dot_product_attention(heads, heads, heads, mask).transpose(1, 2).flatten(-2)


def kernel(mixer: LinearAttention | PerformerAttention, hidden: torch.Tensor, causal: bool) -> torch.Tensor:
    """Dense attention with the weights of a kernel, without a maximum that keeps the features in range."""
    heads = split(hidden)
    if isinstance(mixer, PerformerAttention):
        features = log_features(heads * heads.shape[-1] ** -0.25, mixer.directions).exp()
    else:
        features = FEATURE_MAPS["elu"](heads)
    weights = features @ features.transpose(-1, -2)
    weights = weights.tril() if causal else weights
    return (weights / weights.sum(-1, keepdim=True) @ heads).transpose(1, 2).flatten(-2)


def itself(mixer: TokenMixer, hidden: torch.Tensor, causal: bool) -> torch.Tensor:
    """The same module, which is in float64 as all references."""
    output: torch.Tensor = mixer(hidden)[0]
    return output


@dataclass(frozen=True)
class Row:
    """A pattern with its options.

    Attributes:
        pattern: "full", or a name of ``PATTERNS``.
        options: of the pattern.
        reference: what its output is compared with, in float64.
        implementation: of "full" attention.
        longest: largest number of tokens that is measured.
    """

    pattern: str
    options: dict[str, Any] = field(default_factory=dict)
    reference: Reference = itself
    implementation: str = "sdpa"
    longest: int = 10**9


# A further pattern is one more entry. The first row of a table is what the others are compared with.
FULL = Row("full", {}, dense)
LINEAR = Row("linear", {}, kernel)
CAUSAL = {
    "full": FULL,
    "full, eager": Row("full", {}, dense, "eager", longest=2048),
    "window, 256 keys": Row("window", {"window": 256}, under_mask),
    "block_local, 129 to 256 keys": Row("block_local", {"block": 128}, under_mask),
    "linear": LINEAR,
    "performer, 64 features": Row("performer", {"features": 64}, kernel),
    "performer, 256 features": Row("performer", {"features": 256}, kernel),
    "strided, 128 keys and each 128th": Row("strided", {"stride": 128}, under_mask),
    "fixed, up to 128 keys and each 128th": Row("fixed", {"block": 128}, under_mask),
    "memory, 129 to 256 keys": Row("memory", {"segment_length": 128, "memory_length": 128}),
    "lsh, 2 rounds": Row("lsh", {"buckets": 16, "keys": 64, "rounds": 2}),
}
ENCODER = {
    "full": FULL,
    "window, 511 keys": Row("window", {"window": 256}, under_mask),
    "linear": LINEAR,
    "performer, 256 features": Row("performer", {"features": 256}, kernel),
    "linformer, rank 256": Row("linformer", {"rank": 256, "max_length": 8192}),
    "fastformer": Row("fastformer"),
    "fourier": Row("fourier"),
}
DECODING = {
    "full": FULL,
    "window, 256 keys": CAUSAL["window, 256 keys"],
    "block_local, 129 to 256 keys": CAUSAL["block_local, 129 to 256 keys"],
    "linear": LINEAR,
    "performer, 256 features": CAUSAL["performer, 256 features"],
    "memory, 129 to 256 keys": CAUSAL["memory, 129 to 256 keys"],
    # Not in CAUSAL: they also project the gates, so their attention cannot be measured without projections.
    "gated_linear": Row("gated_linear"),
    "gated_delta": Row("gated_delta"),
}


def configuration(row: Row, causal: bool, **fields: Any) -> VaswaniConfig:
    """Return the configuration of one layer with a pattern."""
    stack = "decoder" if causal else "encoder"
    layer = {f"{stack}_layers": 1, f"{stack}_pattern": row.pattern, f"{stack}_pattern_options": row.options}
    sizes = {"vocab_size": 100, "hidden_size": WIDTH, "intermediate_size": INNER, "num_attention_heads": HEADS}
    config = VaswaniConfig(**sizes, **layer, is_encoder_decoder=False, is_decoder=causal, dropout=0.0, **fields)
    config._attn_implementation = row.implementation
    return config


def attention_alone(row: Row, causal: bool, device: torch.device) -> TokenMixer:
    """Return the self-attention of a layer, without its projections."""
    config = configuration(row, causal)
    stack = VaswaniDecoder(config) if causal else VaswaniEncoder(config)
    mixer = stack.mixers[0].eval().to(device)
    for name, _ in list(mixer.named_children()):
        if name in PROJECTIONS:
            setattr(mixer, name, nn.Identity())
    return mixer


def forward(mixer: TokenMixer, hidden: torch.Tensor) -> torch.Tensor:
    # The implementation "eager" of full attention has no causal mask of its own.
    eager = mixer.is_causal and not mixer.takes_padding_mask and mixer.config._attn_implementation == "eager"
    output: torch.Tensor = mixer(hidden, boolean_mask(hidden, None, causal=True) if eager else None)[0]
    return output


def passes(function: Function, module: nn.Module, inputs: torch.Tensor, training: bool) -> Function:
    """Return a function that runs another one forward, or forward and backward."""
    if not training:
        return torch.no_grad()(function)
    inputs.requires_grad_()

    def step() -> None:
        module.zero_grad()
        inputs.grad = None
        output = function()
        output.backward(output.detach())  # the gradient of half of its square

    return step


def patterns(
    rows: dict[str, Row], numbers: tuple[int, ...], causal: bool, training: bool, device: torch.device
) -> Iterator[Group]:
    """Make the groups of attention alone."""
    for length in numbers:
        measured = {name: row for name, row in rows.items() if length <= row.longest}
        mixers = {name: attention_alone(row, causal, device) for name, row in measured.items()}
        hidden = torch.randn(1, length, WIDTH, device=device)

        def check(mixers: dict[str, TokenMixer] = mixers, hidden: torch.Tensor = hidden) -> None:
            start = hidden[:, :CHECKED].detach()
            for name, mixer in mixers.items():
                with torch.no_grad():
                    expected = rows[name].reference(copy.deepcopy(mixer).double(), start.double(), causal)
                    torch.testing.assert_close(forward(mixer, start), expected.float(), rtol=1e-3, atol=1e-3)

        functions: dict[str, Function] = {}
        for name, mixer in mixers.items():
            functions[name] = passes(partial(forward, mixer, hidden), mixer, hidden, training)
        yield Group(f"{length:,}", functions, check)


# An encoder of one layer

BERT = {
    **{"vocab_size": 100, "hidden_size": WIDTH, "intermediate_size": INNER, "num_attention_heads": HEADS},
    **{"num_hidden_layers": 1, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
}
SIZES_OF_REFORMER = {
    **{"vocab_size": 100, "hidden_size": WIDTH, "feed_forward_size": INNER, "num_attention_heads": HEADS},
    **{"attention_head_size": WIDTH // HEADS, "attn_layers": ["local"], "axial_pos_embds": False},
    **{"local_attn_chunk_length": 256, "hidden_dropout_prob": 0.0, "local_attention_probs_dropout_prob": 0.0},
}


def ours(row: Row, length: int) -> VaswaniEncoder:
    """Return an encoder of one layer with the layer of BERT (post-norm, GELU), but the pattern."""
    fields = {"positions": "learned", "max_position_embeddings": length, "embedding_norm": True}
    return VaswaniEncoder(
        configuration(row, False, **fields, activation="gelu", layer_norm_eps=1e-12, scale_embedding=False)
    )


def longformer(length: int, window: int = 512) -> LongformerModel:
    config = LongformerConfig(
        **BERT, max_position_embeddings=length + window, attention_window=window, pad_token_id=0, layer_norm_eps=1e-12
    )
    return LongformerModel(config, add_pooling_layer=False)


# With the number of tokens that they are made for.
LAYERS: dict[str, Callable[[int], PreTrainedModel]] = {
    "BERT, SDPA": lambda length: BertModel(
        BertConfig(**BERT, max_position_embeddings=length, attn_implementation="sdpa"), add_pooling_layer=False
    ),
    "hfattn, full": lambda length: ours(FULL, length),
    "hfattn, window, 511 keys": lambda length: ours(ENCODER["window, 511 keys"], length),
    "Longformer, 513 keys": longformer,
    "BigBird, block sparse": lambda length: BigBirdModel(
        BigBirdConfig(**BERT, max_position_embeddings=length, attention_type="block_sparse"), add_pooling_layer=False
    ),
    "ModernBERT, local, 513 keys": lambda length: ModernBertModel(
        ModernBertConfig(
            vocab_size=100,
            hidden_size=WIDTH,
            intermediate_size=INNER,
            num_attention_heads=HEADS,
            num_hidden_layers=1,
            layer_types=["sliding_attention"],
            local_attention=512,
            max_position_embeddings=length,
            pad_token_id=0,
            attn_implementation="sdpa",
        )
    ),
    "Nyströmformer, 64 landmarks": lambda length: NystromformerModel(
        NystromformerConfig(**BERT, max_position_embeddings=length, segment_means_seq_len=length)
    ),
    "FNet": lambda length: FNetModel(
        FNetConfig(
            vocab_size=100,
            hidden_size=WIDTH,
            intermediate_size=INNER,
            num_hidden_layers=1,
            hidden_dropout_prob=0.0,
            max_position_embeddings=length,
        ),
        add_pooling_layer=False,
    ),
    "Reformer, local, up to 512 keys": lambda length: ReformerModel(
        ReformerConfig(**SIZES_OF_REFORMER, max_position_embeddings=length)
    ),
}
# Names of the layer of BERT, Longformer and BigBird, by those of vaswani.
NAMES = {
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "self_attn_residual.norm": "attention.output.LayerNorm",
    "feed_forward.fc1": "intermediate.dense",
    "feed_forward.fc2": "output.dense",
    "feed_forward_residual.norm": "output.LayerNorm",
}


def hidden_states(model: PreTrainedModel, embeddings: torch.Tensor) -> torch.Tensor:
    output: torch.Tensor = model(inputs_embeds=embeddings).last_hidden_state
    return output


def check_layer(theirs: PreTrainedModel, model: VaswaniEncoder, embeddings: torch.Tensor) -> None:
    """Compare an encoder with one of transformers that has the same weights, without positions."""
    with torch.no_grad():
        model.embed_positions.weight.zero_()
        theirs.embeddings.position_embeddings.weight.zero_()
        theirs.embeddings.token_type_embeddings.weight.zero_()
        for own, their in NAMES.items():
            for kind in ("weight", "bias"):
                parameter = theirs.encoder.layer[0].get_parameter(f"{their}.{kind}")
                model.layers[0].get_parameter(f"{own}.{kind}").copy_(parameter)
        states = [hidden_states(each.eval(), embeddings) for each in (model, theirs)]
        torch.testing.assert_close(*states, rtol=1e-3, atol=1e-4)


def layers(numbers: tuple[int, ...], training: bool, device: torch.device) -> Iterator[Group]:
    """Make the groups of encoders of one layer."""
    for length in numbers:
        embeddings = torch.randn(1, length, WIDTH, device=device)
        models = {name: make(length).to(device).train(training) for name, make in LAYERS.items()}

        def check(length: int = length, embeddings: torch.Tensor = embeddings) -> None:
            embeddings = embeddings[:, :CHECKED].detach()
            as_longformer = ours(Row("window", {"window": 257}), length)  # 513 keys
            check_layer(LAYERS["BERT, SDPA"](length).to(device), ours(FULL, length).to(device), embeddings)
            check_layer(longformer(length).to(device), as_longformer.to(device), embeddings)

        functions: dict[str, Function] = {}
        for name, model in models.items():
            functions[name] = passes(partial(hidden_states, model, embeddings), model, embeddings, training)
        yield Group(f"{length:,}", functions, check)


# Decoding


@torch.no_grad()
def step(model: VaswaniForCausalLM, token: torch.Tensor, cache: Any) -> tuple[torch.Tensor, Any]:
    """Decode a token; the cache stays as it is, because its layers replace their tensors."""
    cache = copy.copy(cache)
    cache.layers = [copy.copy(layer) for layer in cache.layers]
    outputs = model(token, past_key_values=cache, use_cache=True)
    return outputs.logits, cache


def cache_size(cache: Any) -> int:
    """Return the bytes that the tensors of a cache keep in memory."""
    storages = {}
    for layer in cache.layers:
        for value in vars(layer).values():
            for tensor in value if isinstance(value, tuple) else [value]:
                if isinstance(tensor, torch.Tensor):
                    storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return sum(storages.values())


def decoding(rows: dict[str, Row], numbers: tuple[int, ...], device: torch.device) -> Iterator[Group]:
    """Make the groups of steps of a decoder."""
    models = {name: VaswaniForCausalLM(configuration(row, True)).eval().to(device) for name, row in rows.items()}
    for length in numbers:
        ids = torch.randint(3, 100, (1, length + 1), device=device)
        last = ids[:, -1:]
        caches = {}
        for name, model in models.items():
            with torch.no_grad():
                cache = model(ids[:, :-2], use_cache=True, logits_to_keep=1).past_key_values
            caches[name] = step(model, ids[:, -2:-1], cache)[1]  # as in the middle of a text

        def check(ids: torch.Tensor = ids, last: torch.Tensor = last, caches: dict[str, Any] = caches) -> None:
            for name, model in models.items():
                logits, _ = step(model, last, caches[name])
                with torch.no_grad():
                    whole = model(ids, use_cache=False, logits_to_keep=1).logits
                torch.testing.assert_close(logits, whole, rtol=1e-3, atol=1e-3)

        def sizes(last: torch.Tensor = last, caches: dict[str, Any] = caches) -> dict[str, int]:
            return {name: cache_size(step(models[name], last, cache)[1]) for name, cache in caches.items()}

        functions: dict[str, Function] = {
            name: partial(step, model, last, caches[name]) for name, model in models.items()
        }
        yield Group(f"{length:,}", functions, check, sizes)


def tables(sizes: Sizes = Sizes()) -> dict[str, Callable[[torch.device], Iterator[Group]]]:
    return {
        "decoding": partial(decoding, DECODING, sizes.decoding),
        "layer, forward": partial(layers, sizes.layer, False),
        "layer, training": partial(layers, sizes.layer_training, True),
        "causal, forward": partial(patterns, CAUSAL, sizes.causal, True, False),
        "causal, training": partial(patterns, CAUSAL, sizes.causal, True, True),
        "encoder, forward": partial(patterns, ENCODER, sizes.encoder, False, False),
        "encoder, training": partial(patterns, ENCODER, sizes.encoder, False, True),
    }


# Report


TITLES = {
    "causal, forward": "Attention alone in a decoder, forward, ms",
    "causal, training": "Attention alone in a decoder, forward and backward, ms",
    "encoder, forward": "Attention alone in an encoder, forward, ms",
    "encoder, training": "Attention alone in an encoder, forward and backward, ms",
    "layer, forward": "An encoder of one layer, forward, ms",
    "layer, training": "An encoder of one layer, forward and backward, ms",
    "decoding": "One step of a decoder of one layer after n tokens, ms",
}


def with_exponents(record: Record, table: str) -> str:
    """Return the table of times with the exponents of n as the last column."""
    head, line, *rows = times_table(record, table, "n").splitlines()
    found = [exponents(record, table, row) for row in record.rows(table)]
    cells = [f"{statistics.mean(each):.2f}" if each else "–" for each in found]
    lines = [f"{head} exponent |", f"{line}---|", *(f"{row} {cell} |" for row, cell in zip(rows, cells, strict=True))]
    return "\n".join(lines) + "\n"


def megabytes(record: Record, table: str) -> str:
    """Return a table of memory, with the exponents of n if there are any."""
    columns = record.columns[table]
    rows, found = [], []
    for name in record.rows(table):
        cells = [three_digits(each.sizes[name] / 1e6) if name in each.sizes else "–" for each in columns.values()]
        exponent = memory_exponent(record, table, name)
        found.append("–" if math.isnan(exponent) else f"{exponent:.2f}")
        rows.append([name, *cells])
    if set(found) == {"–"}:
        return markdown(["n", *columns], rows)
    return markdown(["n", *columns, "exponent"], [[*row, cell] for row, cell in zip(rows, found, strict=True)])


def rounded(length: float, measured: list[int]) -> str:
    if length == 0:
        return f"{measured[0]:,} or less"
    return f"more than {measured[-1]:,}" if math.isinf(length) else f"{float(f'{length:.2g}'):,.0f}"


def pays(record: Record) -> str:
    """Return the table of the lengths from which patterns are faster than full attention."""
    tables = [name for name in TITLES if name.split(",")[0] in ("causal", "encoder") and name in record.columns]
    rows = dict.fromkeys(row for table in tables for row in record.rows(table) if not row.startswith("full"))
    lines = []
    for row in rows:
        cells = []
        for table in tables:
            known = row in record.rows(table)
            cells.append(
                rounded(statistics.median(crossings(record, table, row)), lengths(record, table)) if known else "–"
            )
        lines.append([row, *cells])
    return markdown(["faster than full attention from n =", *(_heading(table) for table in tables)], lines)


def which(record: Record) -> str:
    """Return the table of the fastest patterns for each length, with their time as a part of that of full attention."""
    tables = [name for name in TITLES if name.split(",")[0] in ("causal", "encoder") and name in record.columns]
    columns = dict.fromkeys(name for table in tables for name in record.columns[table])
    lines = []
    for name in columns:
        cells = []
        for table in tables:
            column = record.columns[table].get(name)
            if column is None:
                cells.append("–")
                continue
            ratios = sorted((column.ratio(row), row) for row in column.times if not row.startswith("full"))
            cells.append("; ".join(f"{row} **{ratio:.2f}**" for ratio, row in ratios if ratio < 0.95) or "full")
        lines.append([name, *cells])
    return markdown(["n", *(_heading(table) for table in tables)], lines)


def _heading(table: str) -> str:
    kind, way = table.split(", ")
    return f"{'decoder' if kind == 'causal' else kind}, {way}"


def report(record: Record) -> str:
    parts = []
    if any(table.startswith("causal") for table in record.columns):
        parts.append(f"**Faster than full attention for n tokens, with the ratio of the times**\n\n{which(record)}")
        parts.append(f"**From which length each is faster**\n\n{pays(record)}")
    for table, title in TITLES.items():
        if table not in record.columns:
            continue
        alone = table.split(",")[0] in ("causal", "encoder")
        text = with_exponents(record, table) if alone else times_table(record, table, "n")
        parts.append(f"**{title}**\n\n{text}\n{circumstances(record, table)}\n")
        if table == "causal, training":
            parts.append(f"**Memory of the same, MB**\n\n{megabytes(record, table)}")
        if table == "decoding":
            parts.append(f"**Cache after the step, MB**\n\n{megabytes(record, table)}")
    return "\n".join(parts)


BENCHMARK = Benchmark("efficient_attention", ROOT / "docs" / "efficient.md", tables(), report)

if __name__ == "__main__":
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    run(BENCHMARK, __doc__)
