"""Compare generate() in lean steps with the loop of transformers, and with Marian and CTranslate2 of the same weights.

    python -m benchmarks generation [--threads 1] [--device cpu] [--rounds 5] [--only TABLE ...] [--write]

- *transformer*: a translator of width 256 with 3 + 3 layers, 8 heads and 8,000 tokens, sources of 32 tokens.
- *bahdanau*: a translator with a GRU of width 256, a bidirectional encoder of 2 x 128, additive attention and 8,000
  tokens, sources of 32 tokens.
- *char_rnn*: a GRU with 100 characters, one text.

Translators write 64 tokens, character models 500. The weights are random, and no text ends early. Before a group is
timed, the texts of all rows but that with weights of eight bits are compared. CTranslate2 takes part on the CPU, where
it is installed. ``--write`` writes docs/records/generation.json and the tables of docs/speed.md.
"""

import importlib.util
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import MarianConfig, MarianMTModel, PreTrainedTokenizerFast, set_seed
from transformers.utils import logging

from benchmarks.harness import ROOT, Benchmark, Group, run, titled_tables
from hfattn import (
    BahdanauConfig,
    BahdanauForConditionalGeneration,
    CharRNNConfig,
    CharRNNForCausalLM,
    VaswaniConfig,
    VaswaniForConditionalGeneration,
)
from hfattn.engine import EngineTranslator

V, WIDTH, LAYERS, SOURCE, WRITTEN, CHARACTERS = 8000, 256, 3, 32, 64, 500
LOOP, LEAN, MARIAN = "hfattn, loop of transformers", "hfattn, lean steps", "Marian"
ENGINES = {"CTranslate2, float32": "float32", "CTranslate2, int8": "int8"}
PARTS = {  # of the name of a parameter here, and of Marian
    "self_attn_residual.norm": "self_attn_layer_norm",
    "cross_attn_residual.norm": "encoder_attn_layer_norm",
    "feed_forward_residual.norm": "final_layer_norm",
    "cross_attn": "encoder_attn",
    "feed_forward.": "",
}
TITLES = {
    "transformer": ("Transformer translator", "generate()"),
    "bahdanau": ("Bahdanau translator", "generate()"),
    "char_rnn": ("Character model", "generate()"),
}


def marian_of(ours: VaswaniForConditionalGeneration) -> MarianMTModel:
    """Return a Marian model with the weights of a Transformer, and its interleaved sines and cosines of positions."""
    own = ours.config
    fields: dict[str, Any] = {}
    for stack in ("encoder", "decoder"):
        fields |= {f"{stack}_layers": getattr(own, f"{stack}_layers")}
        fields |= {f"{stack}_ffn_dim": own.intermediate_size, f"{stack}_attention_heads": own.num_attention_heads}
    config = MarianConfig(
        vocab_size=own.vocab_size, d_model=own.hidden_size, scale_embedding=True, activation_function="relu",
        max_position_embeddings=256, pad_token_id=own.pad_token_id, decoder_start_token_id=own.decoder_start_token_id,
        eos_token_id=own.eos_token_id, forced_eos_token_id=None, dropout=own.dropout, **fields,
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
        angles = positions * 10_000 ** -(torch.arange(0, own.hidden_size, 2) / own.hidden_size)
        table = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
        getattr(marian.model, stack).embed_positions.weight.data.copy_(table)
    return marian


def engines_of(ours: VaswaniForConditionalGeneration) -> dict[str, EngineTranslator]:
    """Return a Transformer in CTranslate2; none where it is not installed, or the model is on another device."""
    if importlib.util.find_spec("ctranslate2") is None or ours.device.type != "cpu":
        return {}
    model = deepcopy(ours)
    # An engine has an end token. The embedding of the padding token is zero, so it is never among the best.
    model.config.eos_token_id = model.generation_config.eos_token_id = model.config.pad_token_id
    model.generation_config.early_stopping = True
    tokenizer = word_tokenizer()
    return {row: EngineTranslator(row, model, tokenizer, None, kind) for row, kind in ENGINES.items()}


def word_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer that splits at spaces, with a word for each token: "w0 w1"."""
    tokenizer = Tokenizer(WordLevel({f"w{i}": i for i in range(V)}, unk_token="w0"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="w0", unk_token="w0", bos_token="w1")


def by_engine(engine: EngineTranslator, inputs: dict[str, torch.Tensor], options: dict[str, Any]) -> torch.Tensor:
    """Return what ``generate()`` returns, the ids (B, T) of translations that do not end."""
    found = engine.generate(inputs["input_ids"].tolist(), options["num_beams"], options["max_new_tokens"])
    start = engine.model.config.decoder_start_token_id
    return torch.tensor([[start, *best.ids] for (best,) in found])


def group(column: str, rows: dict[str, Callable[[], torch.Tensor]]) -> Group:
    def check() -> None:
        texts = {name: write() for name, write in rows.items()}
        first = next(iter(texts.values()))
        same = {name: torch.equal(text, first) for name, text in texts.items() if ENGINES.get(name) != "int8"}
        assert all(same.values()), (column, same)
        assert all(text.shape == first.shape for text in texts.values()), column

    return Group(column, dict(rows), check)


def ours(model: Any, inputs: dict[str, torch.Tensor], options: dict[str, Any]) -> dict[str, Callable[[], torch.Tensor]]:
    """Return the rows of a model of hfattn."""

    def write(lean: bool) -> torch.Tensor:
        model.fast_generation = lean
        set_seed(0)
        ids: torch.Tensor = model.generate(**inputs, **options)
        return ids

    return {LOOP: lambda: write(False), LEAN: lambda: write(True)}


def translators(model: Any, marian: Any, engines: dict[str, EngineTranslator], device: torch.device) -> Iterator[Group]:
    for rows, beams in ((1, 1), (1, 4), (32, 1), (32, 4)):
        ids = torch.randint(3, V, (rows, SOURCE), device=device)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        options = {"max_new_tokens": WRITTEN, "num_beams": beams, "do_sample": False}
        functions = ours(model, inputs, options)
        if marian is not None:
            functions = {MARIAN: partial(marian.generate, **inputs, **options), **functions}
        functions |= {row: partial(by_engine, engine, inputs, options) for row, engine in engines.items()}
        yield group(f"batch {rows}, {'greedy' if beams == 1 else f'{beams} beams'}", functions)


def transformer_model() -> VaswaniForConditionalGeneration:
    fields = {"encoder_layers": LAYERS, "decoder_layers": LAYERS, "num_attention_heads": 8}
    config = VaswaniConfig(
        vocab_size=V, hidden_size=WIDTH, intermediate_size=4 * WIDTH, eos_token_id=None, lm_head_bias=False, **fields
    )
    return VaswaniForConditionalGeneration(config).eval()


def transformer(device: torch.device) -> Iterator[Group]:
    model = transformer_model().to(device)
    yield from translators(model, marian_of(model).to(device), engines_of(model), device)


def bahdanau(device: torch.device) -> Iterator[Group]:
    config = BahdanauConfig(
        vocab_size=V, embedding_size=WIDTH, encoder_hidden_size=WIDTH // 2, hidden_size=WIDTH, eos_token_id=None
    )
    yield from translators(BahdanauForConditionalGeneration(config).eval().to(device), None, {}, device)


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


BENCHMARK = Benchmark(
    "generation",
    ROOT / "docs" / "speed.md",
    {"transformer": transformer, "bahdanau": bahdanau, "char_rnn": char_rnn},
    partial(titled_tables, titles=TITLES),
    peers=("ctranslate2",),
)

if __name__ == "__main__":
    logging.set_verbosity_error()
    run(BENCHMARK, __doc__)
