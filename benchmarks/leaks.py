"""Look for what efficient attention should not see: later tokens in causal models, and padding in all models.

    python -m benchmarks.leaks [--write]

Small random models in float64 read a text, and the same text with other tokens at places that must not matter: later
tokens (of a causal model; the outputs before them are compared), tokens that ``attention_mask`` hides after or before
the text, and padding after or before the text against the text alone. The models are those of transformers, as
installed, and ``vaswani`` with every pattern. A model gets ``position_ids`` that count real tokens, if it has that
argument.

The table has the largest absolute change of an output and the share of the positions that change, or the error that the
model raises. A model without ``attention_mask`` reads padding as text. Outputs are the last hidden states, and *size*
is their mean absolute value. A change below ``ROUNDING`` times the size is rounding, shown as 0. ``--write`` writes the
table into docs/efficient.md and docs/records/leaks.json.
"""

import argparse
import contextlib
import inspect
import itertools
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from huggingface_hub.errors import StrictDataclassClassValidationError
from transformers import PreTrainedModel

from benchmarks.harness import write_between
from hfattn import VaswaniConfig, VaswaniForCausalLM, VaswaniForMaskedLM
from hfattn.models.configuration_layers import PATTERNS
from hfattn.models.modeling_vaswani import find_pattern

ROOT = Path(__file__).parents[1]
PAGE, RECORD = ROOT / "docs" / "efficient.md", ROOT / "docs" / "records" / "leaks.json"
MARKER = "leaks"
TOKENS, PADDING, SYMBOLS = 128, 64, 50
ROUNDING = 1e-9
CHECKS = {
    "later": "later tokens",
    "masked_right": "masked tokens after",
    "masked_left": "masked tokens before",
    "padded_right": "padding after",
    "padded_left": "padding before",
}
SMALL = {"vocab_size": SYMBOLS, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "max_position_embeddings": 512}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
# Values of the options that a pattern needs.
OPTIONS: dict[str, Any] = {
    "window": 24,
    "block": 16,
    "stride": 16,
    "span": 64,
    "rank": 16,
    "max_length": TOKENS + PADDING,
    "buckets": 8,
    "keys": 16,
    "segment_length": 16,
    "memory_length": 24,
}

# Patterns with an option that they do not need.
VARIANTS = {"window, global tokens": ("window", {"global_tokens": 2})}

Make = Callable[[], PreTrainedModel]


@dataclass(frozen=True)
class Found:
    """What a perturbation changed.

    Attributes:
        largest: largest absolute change of an output; 0 for rounding.
        share: share of the compared positions at which an output changes.
        size: mean absolute output.
        error: the message of the model, which did not run.
    """

    largest: float = 0.0
    share: float = 0.0
    size: float = 0.0
    error: str = ""

    def __str__(self) -> str:
        if self.error:
            return self.error
        return f"**{self.largest:.2g}** ({self.share:.0%})" if self.largest else "0"


def compare(first: torch.Tensor, second: torch.Tensor) -> Found:
    """Compare outputs (T, H) at the same positions."""
    change, size = (first - second).abs().amax(-1), float(first.abs().mean())
    change = change.nan_to_num(nan=float("inf"))
    changed = change > ROUNDING * max(size, 1e-3)
    return Found(float(change.max()) if changed.any() else 0.0, float(changed.double().mean()), size)


def outputs(model: PreTrainedModel, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the last hidden states (T, H) of a text (T,) with its mask (T,), 1 at tokens."""
    known = inspect.signature(model.forward).parameters
    inputs: dict[str, Any] = {"input_ids": ids[None]}
    if "attention_mask" in known:
        inputs["attention_mask"] = mask[None]
    if "position_ids" in known:
        inputs["position_ids"] = (mask.cumsum(0) - 1).clamp(min=0)[None]
    torch.manual_seed(0)  # of hashes and of random blocks, which some models draw when they run
    np.random.seed(0)
    if "use_cache" in known and not model.config.is_encoder_decoder:
        inputs["use_cache"] = False
    with torch.no_grad():
        found = model(**inputs, output_hidden_states=True)
    return found.hidden_states[-1][0]


def padded(ids: torch.Tensor, left: bool, filler: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids with filler before or after them, and their mask."""
    parts = [(ids, torch.ones_like(ids)), (filler, torch.zeros_like(filler))]
    whole, mask = (torch.cat(tensors) for tensors in zip(*(reversed(parts) if left else parts), strict=True))
    return whole, mask


def checks(make: Make, causal: bool) -> Iterator[tuple[str, Found]]:
    """Run the checks of a model; yields the name of each and what it found."""
    ids = torch.randint(3, SYMBOLS, (TOKENS,), generator=torch.Generator().manual_seed(1))
    fillers = [torch.full((PADDING,), token) for token in (1, 2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        model = make().double().eval()
    all_real = torch.ones_like(ids)

    def later() -> Found:
        changed = torch.cat([ids[: TOKENS // 2], ids[TOKENS // 2 :].flip(0)])
        return compare(*(outputs(model, each, all_real)[: TOKENS // 2] for each in (ids, changed)))

    def masked(left: bool) -> Found:
        real = slice(PADDING, None) if left else slice(TOKENS)
        return compare(*(outputs(model, *padded(ids, left, filler))[real] for filler in fillers))

    def alone(left: bool) -> Found:
        real = slice(PADDING, None) if left else slice(TOKENS)
        filler = torch.zeros(PADDING, dtype=torch.long)
        return compare(outputs(model, ids, all_real), outputs(model, *padded(ids, left, filler))[real])

    runs = {
        "later": later,
        "masked_right": lambda: masked(False),
        "masked_left": lambda: masked(True),
        "padded_right": lambda: alone(False),
        "padded_left": lambda: alone(True),
    }
    for name, run in runs.items():
        if name == "later" and not causal:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                yield name, run()
            except (RuntimeError, ValueError, IndexError, AssertionError, TypeError) as error:
                yield name, Found(error=_sentence(error))


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split()).replace("|", "/")
    return f"{type(error).__name__}: {text[:60]}{'…' if len(text) > 60 else ''}"


# Models


def of(name: str, config: str, **fields: Any) -> Make:
    """Return a function that makes a model of transformers with random weights."""

    def make() -> PreTrainedModel:
        model: PreTrainedModel = getattr(transformers, name)(getattr(transformers, config)(**fields))
        return model

    return make


def _reformer(kind: str, causal: bool) -> Make:
    return of(
        "ReformerModel",
        "ReformerConfig",
        **{"vocab_size": SYMBOLS, "hidden_size": 32, "feed_forward_size": 64, "num_attention_heads": 2},
        **{"attention_head_size": 16, "attn_layers": [kind, kind], "is_decoder": causal, "axial_pos_embds": False},
        **{"max_position_embeddings": 512, "num_buckets": 8, "num_hashes": 2, "hash_seed": 0, "pad_token_id": 0},
        **{"lsh_attn_chunk_length": 16, "local_attn_chunk_length": 16, "hidden_dropout_prob": 0.0},
    )


_BERT = {**SMALL, **HEADS, **NO_DROPOUT}
_T5 = {
    "vocab_size": SYMBOLS,
    "d_model": 32,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 2,
    "d_kv": 16,
    "dropout_rate": 0.0,
}
_BIRD = {**_BERT, "attention_type": "block_sparse", "block_size": 8, "num_random_blocks": 2}
_MODERN = {**SMALL, **HEADS, "local_attention": 32, "global_attn_every_n_layers": 2, "pad_token_id": 0}
_XLNET = {"vocab_size": SYMBOLS, "d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 64, "dropout": 0.0}

# name: (the function that makes the model, whether it is causal)
THEIRS: dict[str, tuple[Make, bool]] = {
    "BERT (dense)": (of("BertModel", "BertConfig", **_BERT), False),
    "Longformer": (of("LongformerModel", "LongformerConfig", **_BERT, attention_window=32, pad_token_id=0), False),
    "BigBird, block sparse": (of("BigBirdModel", "BigBirdConfig", **_BIRD), False),
    "Reformer, local": (_reformer("local", causal=False), False),
    "Reformer, LSH": (_reformer("lsh", causal=False), False),
    "Nyströmformer": (
        of(
            "NystromformerModel",
            "NystromformerConfig",
            **_BERT,
            segment_means_seq_len=TOKENS + PADDING,
            num_landmarks=16,
        ),
        False,
    ),
    "FNet": (of("FNetModel", "FNetConfig", **SMALL, max_position_embeddings=512, hidden_dropout_prob=0.0), False),
    "YOSO": (of("YosoModel", "YosoConfig", **_BERT, use_expectation=True), False),
    "ModernBERT": (of("ModernBertModel", "ModernBertConfig", **_MODERN), False),
    "LongT5, local": (of("LongT5EncoderModel", "LongT5Config", **_T5, local_radius=16), False),
    "LongT5, transient global": (
        of("LongT5EncoderModel", "LongT5Config", **_T5, local_radius=16, encoder_attention_type="transient-global"),
        False,
    ),
    "XLNet": (of("XLNetModel", "XLNetConfig", **_XLNET), False),
    "GPT-2 (dense)": (of("GPT2Model", "GPT2Config", vocab_size=SYMBOLS, n_embd=32, n_layer=2, n_head=2), True),
    "Mistral, sliding window": (
        of("MistralModel", "MistralConfig", **SMALL, **HEADS, num_key_value_heads=2, sliding_window=24),
        True,
    ),
    "ModernBERT decoder": (of("ModernBertDecoderModel", "ModernBertDecoderConfig", **_MODERN), True),
    "XLNet, uni": (of("XLNetModel", "XLNetConfig", **_XLNET, attn_type="uni"), True),
    "causal Reformer, local": (_reformer("local", causal=True), True),
    "causal Reformer, LSH": (_reformer("lsh", causal=True), True),
    "causal BigBird, block sparse": (of("BigBirdForCausalLM", "BigBirdConfig", **_BIRD, is_decoder=True), True),
}


def ours(pattern: str, causal: bool, **options: int) -> Make:
    """Return a function that makes a ``vaswani`` with a pattern, and ``options`` beside those that it needs.

    Raises:
        StrictDataclassClassValidationError: the pattern is for encoders only.
    """
    stack = "decoder" if causal else "encoder"
    if pattern != "full":
        for name, each in inspect.signature(find_pattern(pattern)).parameters.items():
            if each.kind == each.KEYWORD_ONLY and each.default is each.empty:
                options[name] = OPTIONS[name]
    config = VaswaniConfig(
        **{"vocab_size": SYMBOLS, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "dropout": 0.0},
        **{f"{stack}_layers": 2, f"{stack}_pattern": pattern, f"{stack}_pattern_options": options},
        **{"pad_token_id": 0, "is_encoder_decoder": False, "is_decoder": causal},
    )
    return lambda: VaswaniForCausalLM(config) if causal else VaswaniForMaskedLM(config)


def models() -> dict[str, tuple[Make, bool]]:
    """Return every model by the name in the table, with whether it is causal."""
    found = dict(THEIRS)
    patterns = {**{name: (name, {}) for name in ("full", *PATTERNS)}, **VARIANTS}
    for causal, (name, (pattern, options)) in itertools.product((False, True), patterns.items()):
        with contextlib.suppress(StrictDataclassClassValidationError):
            found[f"{'causal ' if causal else ''}vaswani, {name}"] = (ours(pattern, causal, **options), causal)
    return found


# Table


def table(results: dict[str, dict[str, Found]]) -> str:
    """Return the results as a Markdown table."""
    lines = [f"| model | {' | '.join(CHECKS.values())} | size |", "|---" * (len(CHECKS) + 2) + "|"]
    for model, found in results.items():
        size = max((each.size for each in found.values()), default=0.0)
        cells = [str(found[name]) if name in found else "–" for name in CHECKS]
        lines.append(f"| {model} | {' | '.join(cells)} | {f'{size:.2g}' if size else '–'} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table into docs/efficient.md, and its record")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = {}
    for name, (make, causal) in models().items():
        results[name] = dict(checks(make, causal))
        print(f"{name:32}", *(f"{check}: {found};" for check, found in results[name].items()), flush=True)
    if not arguments.write:
        print(table(results))
        return
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    found = {name: {check: asdict(each) for check, each in of_model.items()} for name, of_model in results.items()}
    record = {"versions": versions, "models": found}
    RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    write_between(PAGE, MARKER, f"{table(results)}\nMeasured with {named}.\n")


if __name__ == "__main__":
    main()
