"""Scores, distributions, positions, norms and groups of layers, in translators that a recipe trains on Multi30k."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from hfattn import VaswaniConfig, VaswaniForConditionalGeneration
from hfattn.yaml_values import override_words

from ..harness import Column, Group
from ..harness import measure as time_in_turn
from .claim import Claim, Measurement, Panel, Statement

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes" / "translation"
RUNS = ROOT / "runs" / "claims"
TOLERANCE = 1.0  # BLEU; results that differ by less are called equal
GROUPED = ("decoder_attention_groups", "cross_attention_groups")
BLEU, SPEED = "test BLEU", "speed / speed of six dense layers"
PARTS = {"dataset": "train", "validation": "val", "test": "test_2016_flickr"}

BUDGET = {
    "evaluation.num_beams": "null",
    "sample.translations": 1,
    "sample.alignments": 1,
    "training.report_to": "none",
    "training.save_total_limit": 1,
    "training.per_device_eval_batch_size": 256,
}
SHORT = {  # all other fields are those of the configurations
    "max_tokens": 4096,
    "tokenizer.lowercase": "false",
    "tokenizer.vocab_size": 5000,
    "training.num_train_epochs": 8,
    "training.eval_strategy": "epoch",
    "training.save_strategy": "epoch",
}
RECURRENT = {
    **BUDGET,
    **SHORT,
    "model.hidden_size": 256,
    "model.encoder_hidden_size": 128,
    "model.embedding_size": 128,
    "model.output_size": 128,
    "model.attention_score_options": "{}",
    "model.embedding_dropout": 0.3,
    "model.output_dropout": 0.3,
    "tokenizer.sampling": 0,
    "averaging.ema": 0.995,
    "training.learning_rate": 1.5e-3,
}
TRANSFORMER = {
    **BUDGET,
    **SHORT,
    "model.encoder_layers": 3,
    "model.decoder_layers": 3,
    "model.dropout": 0.2,
    "averaging.ema": "null",
    "training.learning_rate": 2e-3,
}
WITH_WARMUP: dict[str, Any] = {"training.warmup_steps": 400}
WITHOUT: dict[str, Any] = {"training.warmup_steps": 0}

# The recipe configuration, the overrides that the runs of a table share, and those of each variant.
TABLES: dict[str, tuple[str, dict[str, Any], dict[str, dict[str, Any]]]] = {
    "scores": (
        "multi30k_en_de_bahdanau",
        RECURRENT,
        {
            "dot": {"model.attention_score": "dot"},
            "general": {"model.attention_score": "general"},
            "additive": {"model.attention_score": "additive"},
        },
    ),
    "distributions": (
        "multi30k_en_de_bahdanau",
        RECURRENT | {"model.attention_score": "general"},
        {
            "softmax": {"model.attention_distribution": "softmax"},
            "1.5-entmax": {"model.attention_distribution": "entmax"},
            "sparsemax": {"model.attention_distribution": "sparsemax"},
        },
    ),
    "positions": (
        "multi30k_en_de_transformer",
        TRANSFORMER | WITH_WARMUP,
        {
            "sinusoidal": {"model.positions": "sinusoidal"},
            "learned": {"model.positions": "learned", "model.max_position_embeddings": 80},
        },
    ),
    "norms": (
        "multi30k_en_de_transformer",
        TRANSFORMER,
        {
            "pre, warm-up": {"model.norm": "pre", **WITH_WARMUP},
            "pre": {"model.norm": "pre", **WITHOUT},
            "post, warm-up": {"model.norm": "post", **WITH_WARMUP},
            "post": {"model.norm": "post", **WITHOUT},
            "T-Fixup, warm-up": {"model.norm": "none", **WITH_WARMUP},
            "T-Fixup": {"model.norm": "none", **WITHOUT},
        },
    ),
    "attention_groups": (
        "multi30k_en_de_transformer",
        TRANSFORMER | WITH_WARMUP | {"max_tokens": 2048, "model.decoder_layers": 6, "training.num_train_epochs": 6},
        {
            "dense": {},
            "groups": {"model.decoder_attention_groups": "[2, 4]", "model.cross_attention_groups": "[2, 4]"},
            "three layers": {"model.decoder_layers": 3},
        },
    ),
}


def fields(table: str, variant: str, seed: int, data: Path) -> dict[str, Any]:
    """Return the fields of the recipe that a run sets; ``data`` contains ``multi30k/{train,val,...}.{en,de}``."""
    _, common, variants = TABLES[table]
    places = {f"data.{part}": f"{data}/multi30k/{file}.{{en,de}}" for part, file in PARTS.items()}
    return {**places, **common, **variants[variant], "training.seed": seed}


def run_folder(table: str, variant: str, seed: int) -> Path:
    return RUNS / table / f"{variant.replace(', ', '-').replace(' ', '-').lower()}-{seed}"


def measure(table: str, variant: str, seed: int, data: Path) -> Measurement:
    """Train with the command of the recipe; an interrupted run is resumed.

    Raises:
        CalledProcessError: the run failed or diverged; its log is beside the folder of the run.
    """
    from hfattn.training import last_complete_checkpoint

    out = run_folder(table, variant, seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    if not (out / "results.json").exists():
        command = [sys.executable, str(RECIPE / "train.py"), "--config", str(RECIPE / f"{TABLES[table][0]}.yaml")]
        words = override_words(fields(table, variant, seed, data))
        with out.with_name(f"{out.name}.log").open("w") as log:  # with_suffix would cut a name that contains a dot
            subprocess.run([*command, "--output_dir", str(out), "--resume", *words], stdout=log, stderr=log, check=True)
    results = json.loads((out / "results.json").read_text())
    checkpoint = last_complete_checkpoint(out / "checkpoints")
    history = json.loads((checkpoint / "trainer_state.json").read_text())["log_history"] if checkpoint else []
    curves = {
        name: [(float(entry["step"]), entry[key]) for entry in history if key in entry]
        for name, key in (("loss", "loss"), ("validation", "eval_nats_per_token"))
    }
    validation = results["metrics"]["validation"]
    values = {
        "validation nats per token": validation["nats_per_token"],
        "token accuracy": validation["token_accuracy"],
        BLEU: results["metrics"]["test"]["bleu"],
        "parameters": float(results["model"]["parameters"]),
    }
    return Measurement(values, curves, results["training"]["steps"])


def measure_with_speed(table: str, variant: str, seed: int, data: Path) -> Measurement:
    """Measure the score, and the speed of generation beside that of a model with dense layers."""
    trained = measure(table, variant, seed, data)
    model = VaswaniForConditionalGeneration.from_pretrained(run_folder(table, variant, seed))
    layers = {"decoder_layers": TABLES[table][1]["model.decoder_layers"]}
    dense = VaswaniForConditionalGeneration._from_config(
        VaswaniConfig(**model.config.to_diff_dict() | dict.fromkeys(GROUPED) | layers),
        attn_implementation=model.config._attn_implementation,
    ).eval()
    source = torch.randint(10, model.config.vocab_size, (32, 16), generator=torch.Generator().manual_seed(seed))
    models = {"dense": dense, "trained": model}
    functions: dict[str, Callable[[], object]] = {
        name: partial(each.generate, source, num_beams=4, min_new_tokens=16, max_new_tokens=16)
        for name, each in models.items()
    }
    group = Group("", functions, check=lambda: None)
    times = Column(time_in_turn(group, rounds=5, threads=1, device=torch.device("cpu"))["cpu"])
    trained.values[SPEED] = times.ratio("dense", to="trained")
    return trained


def _claim(
    table: str,
    title: str,
    source: str,
    *statements: Statement,
    more: str = "",
    measured_by: Callable[[str, str, int, Path], Measurement] = measure,
) -> Claim:
    config, common, variants = TABLES[table]
    words = " ".join(f"--{field} {value}" for field, value in common.items() if field not in BUDGET)
    return Claim(
        title,
        source,
        f"`{config}` of the recipe translation on Multi30k, with `{words}`. BLEU is cased, with greedy search, on "
        f"test_2016_flickr. {more}".rstrip(),
        tuple(variants),
        lambda variant, seed, data: measured_by(table, variant, seed, data),
        statements,
        (Panel("loss", "step", "training loss"), Panel("validation", "step", "validation nats per token")),
    )


CHANGED = "The settings were changed once, after runs of four epochs with one seed."

CLAIMS = {
    "scores": _claim(
        "scores",
        "Dot and general scores give better translations than the additive score; additive is better than an "
        "unscaled dot",
        "Luong et al. 2015, section 5.3; Vaswani et al. 2017, section 3.2.1",
        Statement(BLEU, "dot", "above", "additive"),
        Statement(BLEU, "general", "above", "additive"),
        Statement(BLEU, "additive", "above", "dot"),
        more=CHANGED,
    ),
    "distributions": _claim(
        "distributions",
        "Sparsemax and 1.5-entmax translate at least as well as softmax",
        "Martins & Astudillo 2016; Peters et al. 2019",
        Statement(BLEU, "1.5-entmax", "not below", "softmax", TOLERANCE),
        Statement(BLEU, "sparsemax", "not below", "softmax", TOLERANCE),
        more=CHANGED,
    ),
    "positions": _claim(
        "positions",
        "Sinusoidal and learned positions translate equally well",
        "Vaswani et al. 2017, table 3, row E",
        Statement(BLEU, "learned", "equal to", "sinusoidal", TOLERANCE),
        more=CHANGED,
    ),
    "norms": _claim(
        "norms",
        "A post-norm translator needs warm-up, pre-norm and T-Fixup do not",
        "Xiong et al. 2020; Huang et al. 2020",
        Statement(BLEU, "post, warm-up", "above", "post"),
        Statement(BLEU, "pre", "not below", "pre, warm-up", TOLERANCE),
        Statement(BLEU, "T-Fixup", "not below", "pre, warm-up", TOLERANCE),
        more=CHANGED,
    ),
    "attention_groups": _claim(
        "attention_groups",
        "A decoder whose layers share attention in groups is 1.3 times as fast, and translates as well",
        "Xiao et al. 2019, sections 3 and 5",
        Statement(BLEU, "groups", "not below", "dense", TOLERANCE),
        Statement(BLEU, "groups", "above", "three layers"),
        Statement(SPEED, "groups", "equal to", 1.3, 0.15),
        more="*Groups* are `decoder_attention_groups` and `cross_attention_groups` of `[2, 4]`. The speed is that of "
        "generating 16 tokens for each of 32 sources with 4 beams, on one thread, beside six dense layers with random "
        "weights; the criterion is 1.3, within 0.15.",
        measured_by=measure_with_speed,
    ),
}
