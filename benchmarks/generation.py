"""Compare generate() in lean steps with the loop of transformers, and with Marian of the same weights.

    python -m benchmarks generation [--threads 1] [--device cpu] [--rounds 5] [--only TABLE ...] [--write]

- *transformer*: a translator of width 256 with 3 + 3 layers, 8 heads and 8,000 tokens, sources of 32 tokens.
- *bahdanau*: a translator with a GRU of width 256, a bidirectional encoder of 2 x 128, additive attention and 8,000
  tokens, sources of 32 tokens.
- *char_rnn*: a GRU with 100 characters, one text.

Translators write 64 tokens, character models 500. The weights are random, and no text ends early. Before a group is
timed, the texts of all rows are compared. ``--write`` writes docs/records/generation.json and the tables of
docs/speed.md.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from transformers import MarianConfig, MarianMTModel, set_seed
from transformers.utils import logging

from benchmarks.harness import ROOT, Benchmark, Group, Record, circumstances, run, times_table
from hfattn import (
    BahdanauConfig,
    BahdanauForConditionalGeneration,
    CharRNNConfig,
    CharRNNForCausalLM,
    VaswaniConfig,
    VaswaniForConditionalGeneration,
)

V, WIDTH, SOURCE, WRITTEN, CHARACTERS = 8000, 256, 32, 64, 500
LOOP, LEAN, MARIAN = "hfattn, loop of transformers", "hfattn, lean steps", "Marian"
PARTS = {  # of the name of a parameter here, and of Marian
    "self_attn_residual.norm": "self_attn_layer_norm",
    "cross_attn_residual.norm": "encoder_attn_layer_norm",
    "feed_forward_residual.norm": "final_layer_norm",
    "cross_attn": "encoder_attn",
    "feed_forward.": "",
}
TITLES = {
    "transformer": "Transformer translator",
    "bahdanau": "Bahdanau translator",
    "char_rnn": "Character model",
}


def marian_of(ours: VaswaniForConditionalGeneration) -> MarianMTModel:
    """Return a Marian model with the weights of a Transformer, and its interleaved sines and cosines of positions."""
    fields: dict[str, Any] = {}
    for stack in ("encoder", "decoder"):
        fields |= {f"{stack}_layers": 3, f"{stack}_ffn_dim": 4 * WIDTH, f"{stack}_attention_heads": 8}
    config = MarianConfig(
        vocab_size=V, d_model=WIDTH, scale_embedding=True, activation_function="relu", max_position_embeddings=256,
        pad_token_id=0, decoder_start_token_id=1, eos_token_id=None, forced_eos_token_id=None, **fields,
    )  # fmt: skip
    marian = MarianMTModel(config).eval()
    weights = {}
    for name, weight in ours.state_dict().items():
        for part, other in PARTS.items():
            name = name.replace(part, other)
        weights[name] = weight
    missing, unexpected = marian.load_state_dict(weights, strict=False)
    assert not unexpected, unexpected
    assert all("embed_positions" in name or "shared" in name or "final_logits_bias" in name for name in missing), (
        missing
    )
    for stack in ("encoder", "decoder"):
        positions = torch.arange(256, dtype=torch.float32)[:, None]
        angles = positions * 10_000 ** -(torch.arange(0, WIDTH, 2) / WIDTH)
        table = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
        getattr(marian.model, stack).embed_positions.weight.data.copy_(table)
    return marian


def group(column: str, rows: dict[str, Callable[[], torch.Tensor]]) -> Group:
    def check() -> None:
        texts = [write() for write in rows.values()]
        assert all(torch.equal(text, texts[0]) for text in texts), column

    return Group(column, dict(rows), check)


def ours(model: Any, inputs: dict[str, torch.Tensor], options: dict[str, Any]) -> dict[str, Callable[[], torch.Tensor]]:
    """Return the rows of a model of hfattn."""

    def write(lean: bool) -> torch.Tensor:
        model.fast_generation = lean
        set_seed(0)
        ids: torch.Tensor = model.generate(**inputs, **options)
        return ids

    return {LOOP: lambda: write(False), LEAN: lambda: write(True)}


def translators(model: Any, marian: Any, device: torch.device) -> Iterator[Group]:
    for rows, beams in ((1, 1), (1, 4), (32, 1), (32, 4)):
        ids = torch.randint(3, V, (rows, SOURCE), device=device)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        options = {"max_new_tokens": WRITTEN, "num_beams": beams, "do_sample": False}
        functions = ours(model, inputs, options)
        if marian is not None:
            functions = {MARIAN: partial(marian.generate, **inputs, **options), **functions}
        yield group(f"batch {rows}, {'greedy' if beams == 1 else f'{beams} beams'}", functions)


def transformer(device: torch.device) -> Iterator[Group]:
    fields = {"encoder_layers": 3, "decoder_layers": 3, "num_attention_heads": 8}
    config = VaswaniConfig(
        vocab_size=V, hidden_size=WIDTH, intermediate_size=4 * WIDTH, eos_token_id=None, lm_head_bias=False, **fields
    )
    model = VaswaniForConditionalGeneration(config).eval().to(device)
    yield from translators(model, marian_of(model).to(device), device)


def bahdanau(device: torch.device) -> Iterator[Group]:
    config = BahdanauConfig(
        vocab_size=V, embedding_size=WIDTH, encoder_hidden_size=WIDTH // 2, hidden_size=WIDTH, eos_token_id=None
    )
    yield from translators(BahdanauForConditionalGeneration(config).eval().to(device), None, device)


def char_rnn(device: torch.device) -> Iterator[Group]:
    for width in (128, 512):
        config = CharRNNConfig(vocab_size=100, embedding_size=16, hidden_size=width, eos_token_id=None)
        model = CharRNNForCausalLM(config).eval().to(device)
        inputs = {"input_ids": torch.randint(1, 100, (1, 10), device=device)}
        ways: dict[str, dict[str, Any]] = {"greedy": {"do_sample": False}, "sampling": {"do_sample": True, "top_k": 0}}
        for name, options in ways.items():
            yield group(
                f"hidden size {width}, {name}",
                ours(model, inputs, {"max_new_tokens": CHARACTERS, "pad_token_id": 0, **options}),
            )


def report(record: Record) -> str:
    parts = [
        f"**{title}, milliseconds (and ratio to the first row)**\n\n{times_table(record, table, 'generate()')}\n"
        f"{circumstances(record, table)}\n"
        for table, title in TITLES.items()
        if table in record.columns
    ]
    return "\n".join(parts)


BENCHMARK = Benchmark(
    "generation",
    ROOT / "docs" / "speed.md",
    {"transformer": transformer, "bahdanau": bahdanau, "char_rnn": char_rnn},
    report,
)

if __name__ == "__main__":
    logging.set_verbosity_error()
    run(BENCHMARK, __doc__)
