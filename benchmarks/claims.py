"""Test claims from the literature: train variants that differ in one setting, and write a page of the results.

    python benchmarks/claims.py run scores --data 'multi30k/{part}.{en,de}' [--seeds 1 2 3] [--runs runs/claims]
    python benchmarks/claims.py write [--runs runs/claims]

``run`` trains the missing runs of a table one after the other, with the command of the recipe; an interrupted run is
resumed. ``write`` generates docs/claims.md from all finished runs, with a chart for each table. In the data path,
{part} stands for train, val and test_2016_flickr.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hfattn.yaml_values import override_words

ROOT = Path(__file__).parent.parent
RECIPE = ROOT / "recipes" / "translation"
PAGE = ROOT / "docs" / "claims.md"


@dataclass(frozen=True)
class Table:
    """A claim and the runs that test it.

    Attributes:
        claim: the claim and its source.
        config: name of the recipe configuration that all runs start from.
        common: overrides that all runs share.
        variants: further overrides of each variant, by name.
        statements: what the claim says of two variants, each as (variant, relation, other variant); the relations are
            those of ``verdict``.
    """

    claim: str
    config: str
    common: dict[str, Any]
    variants: dict[str, dict[str, Any]]
    statements: list[tuple[str, str, str]]


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

TABLES = {
    "scores": Table(
        "The dot and general scores give better results than the additive score (Luong et al. 2015, section "
        "5.3). At large widths, the additive score gives better results than an unscaled dot product (Vaswani "
        "et al. 2017, section 3.2.1).",
        "multi30k_en_de_bahdanau",
        RECURRENT,
        {
            "dot": {"model.attention_score": "dot"},
            "general": {"model.attention_score": "general"},
            "additive": {"model.attention_score": "additive"},
        },
        [
            ("dot", "better than", "additive"),
            ("general", "better than", "additive"),
            ("additive", "better than", "dot"),
        ],
    ),
    "distributions": Table(
        "Sparsemax (Martins & Astudillo 2016) and 1.5-entmax (Peters et al. 2019) give results at least as "
        "good as softmax.",
        "multi30k_en_de_bahdanau",
        RECURRENT | {"model.attention_score": "general"},
        {
            "softmax": {"model.attention_distribution": "softmax"},
            "1.5-entmax": {"model.attention_distribution": "entmax"},
            "sparsemax": {"model.attention_distribution": "sparsemax"},
        },
        [("1.5-entmax", "as good as", "softmax"), ("sparsemax", "as good as", "softmax")],
    ),
    "positions": Table(
        "Sinusoidal and learned positions give nearly the same results (Vaswani et al. 2017, table 3, row E).",
        "multi30k_en_de_transformer",
        TRANSFORMER | WITH_WARMUP,
        {
            "sinusoidal": {"model.positions": "sinusoidal"},
            "learned": {"model.positions": "learned", "model.max_position_embeddings": 80},
        },
        [("learned", "equal to", "sinusoidal")],
    ),
    "norms": Table(
        "A post-norm Transformer needs warm-up and a pre-norm Transformer does not (Xiong et al. 2020). With "
        "T-Fixup, a Transformer trains equally well without layer norm and without warm-up (Huang et al. "
        "2020).",
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
        [
            ("post, warm-up", "better than", "post"),
            ("pre", "as good as", "pre, warm-up"),
            ("T-Fixup", "as good as", "pre, warm-up"),
        ],
    ),
}


def folder(runs: Path, table: str, variant: str, seed: int) -> Path:
    return runs / table / f"{variant.replace(', ', '-').replace(' ', '-').lower()}-{seed}"


def log_of(run: Path) -> Path:
    return run.with_name(f"{run.name}.log")  # with_suffix would cut a name that contains a dot


def run(name: str, data: str, seeds: list[int], runs: Path) -> None:
    table = TABLES[name]
    parts = {"dataset": "train", "validation": "val", "test": "test_2016_flickr"}
    places = {f"data.{part}": data.replace("{part}", file) for part, file in parts.items()}
    for seed in seeds:
        for variant, overrides in table.variants.items():
            out = folder(runs, name, variant, seed)
            if (out / "results.json").exists():
                continue
            fields = {**places, **table.common, **overrides, "training.seed": seed}
            words = override_words(fields)
            command = [sys.executable, str(RECIPE / "train.py"), "--config", str(RECIPE / f"{table.config}.yaml")]
            print(f"{name}: {variant}, seed {seed}", flush=True)
            out.parent.mkdir(parents=True, exist_ok=True)
            with log_of(out).open("w") as log:
                code = subprocess.call(
                    [*command, "--output_dir", str(out), "--resume", *words],
                    stdout=log,
                    stderr=log,
                    env=dict(os.environ),
                )
            if code:  # a run that diverges is a result; the error is in the log
                print(f"  ended with exit code {code}: {log_of(out)}", flush=True)


TOLERANCE = 1.0  # BLEU; results that differ by less are called equal
CONFIDENCE = 0.95


def verdict(relation: str, left: list[float], right: list[float]) -> str:
    """Judge a statement about two variants by Student's confidence interval of the difference of their mean BLEU.

    Args:
        relation: "better than" (the difference is positive), "as good as" (it is not below -TOLERANCE) or "equal to"
            (it is between -TOLERANCE and TOLERANCE).
        left, right: test BLEU of the runs of the first and of the second variant.

    Returns:
        "supported" if the whole interval agrees with the relation; "refuted" if the interval excludes 0 and lies where
        the relation does not hold, even in part; "undecided" otherwise; "not tested" with fewer than two runs of a
        variant. The difference and the interval follow.
    """
    from scipy.stats import ttest_ind

    if min(len(left), len(right)) < 2:
        return "not tested: two runs of each are needed"
    interval = ttest_ind(left, right).confidence_interval(CONFIDENCE)
    low, high = float(interval.low), float(interval.high)
    smallest, largest = {
        "better than": (0.0, math.inf),
        "as good as": (-TOLERANCE, math.inf),
        "equal to": (-TOLERANCE, TOLERANCE),
    }[relation]
    word = "undecided"
    if smallest <= low and high <= largest:
        word = "supported"
    elif (high < 0 and low < smallest) or (low > 0 and high > largest):
        word = "refuted"
    difference = statistics.mean(left) - statistics.mean(right)
    return f"{word} ({difference:+.1f} BLEU, {low:+.1f} to {high:+.1f})"


def measured(values: list[float]) -> str:
    """Return the mean, with the standard deviation if there are several runs."""
    spread = f" ± {statistics.stdev(values):.3g}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.4g}{spread}"


def runs_of(name: str, variant: str, runs: Path) -> list[Path]:
    """Return the run folders of a variant, one for each seed."""
    stem = folder(runs, name, variant, 0).name.removesuffix("0")
    return sorted((runs / name).glob(f"{stem}[0-9]*"))


def results_of(name: str, variant: str, runs: Path) -> list[dict[str, Any]]:
    """Return the results of the finished runs of a variant."""
    paths = [run / "results.json" for run in runs_of(name, variant, runs)]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def rows(name: str, found: dict[str, list[dict[str, Any]]], runs: Path) -> list[str]:
    lines = []
    for variant, results in found.items():
        if not results:
            begun = "did not finish" if runs_of(name, variant, runs) else "not run"
            lines.append(f"| {variant} | {begun} | | | | | |")
            continue
        validation = [each["metrics"]["validation"] for each in results]
        nats, right = ([each[score] for each in validation] for score in ("nats_per_token", "token_accuracy"))
        bleu = [each["metrics"]["test"]["bleu"] for each in results]
        facts = (len(results), results[0]["training"]["steps"], f"{results[0]['model']['parameters']:,}")
        lines.append(f"| {' | '.join([variant, *map(measured, (nats, right, bleu)), *map(str, facts)])} |")
    return lines


def logged(run: Path) -> list[dict[str, Any]]:
    """Return the log history of a run up to its last checkpoint."""
    from hfattn.training import last_complete_checkpoint

    checkpoint = last_complete_checkpoint(run / "checkpoints")
    return json.loads((checkpoint / "trainer_state.json").read_text())["log_history"] if checkpoint else []


def draw(name: str, runs: Path) -> Path | None:
    """Draw training and validation loss of a table: one color for each variant, one line for each seed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    panels = figure.subplots(1, 2)
    lines = []
    for number, variant in enumerate(TABLES[name].variants):
        label = variant
        for run in runs_of(name, variant, runs):
            for axes, key, style in zip(panels, ("loss", "eval_nats_per_token"), ("-", "o-"), strict=True):
                points = [(entry["step"], entry[key]) for entry in logged(run) if key in entry]
                if points:
                    lines += axes.plot(*zip(*points, strict=True), style, color=f"C{number}", label=label, markersize=4)
                    label = "_"  # one legend entry for all lines of a variant
    if not lines:
        return None
    for axes, title in zip(panels, ("training loss", "validation, nats per token"), strict=True):
        axes.set(xlabel="step", title=title)
        axes.grid(alpha=0.25)
    named = [line for line in lines if not str(line.get_label()).startswith("_")]
    figure.legend(handles=named, loc="outside lower center", ncols=min(6, len(named)), frameon=False)
    path = PAGE.parent / "assets" / f"claims-{name}.png"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=150)
    return path


def write(runs: Path) -> None:
    measurements = {
        name: {variant: results_of(name, variant, runs) for variant in table.variants} for name, table in TABLES.items()
    }
    every = [results for found in measurements.values() for several in found.values() for results in several]
    machines = sorted({each["hardware"].get("gpu", each["hardware"]["cpu"]) for each in every})
    lines = [
        "# Claims from the literature",
        "",
        "Each table tests one claim: its rows differ in one setting and share the data, the order of the data and",
        "the number of steps. `python benchmarks/claims.py write` generates this page from the `results.json` of",
        "the runs. BLEU is cased, with greedy search, on test_2016_flickr of Multi30k; ± is the standard deviation",
        "over seeds. The models are small and the runs are short, so the tables test each claim in that setting",
        "only. Below each table, statements about two rows are judged by the 95% confidence interval of the difference",
        "of their mean BLEU (Student's t over the seeds). A statement is supported if the whole interval agrees with",
        "it, refuted if the interval excludes zero and does not agree with it, and undecided otherwise. A difference",
        f"below {TOLERANCE:g} BLEU counts as equal.",
        f"Hardware: {', '.join(machines)}.",
    ]
    for name, table in TABLES.items():
        common = " ".join(f"--{field} {value}" for field, value in table.common.items() if field not in BUDGET)
        lines += [
            "",
            f"## {name.capitalize()}",
            "",
            table.claim,
            "",
            f"Setting: `{table.config}` with `{common}`.",
            "",
            "| | validation nats per token | token accuracy | test BLEU | seeds | steps | parameters |",
            "|---|---|---|---|---|---|---|",
            *rows(name, measurements[name], runs),
        ]
        if chart := draw(name, runs):
            lines += ["", f"![Training and validation loss of the {name}](assets/{chart.name})"]
        lines.append("")
        bleu = {
            variant: [each["metrics"]["test"]["bleu"] for each in results]
            for variant, results in measurements[name].items()
        }
        for left, relation, right in table.statements:
            lines.append(f"- {left} is {relation} {right}: {verdict(relation, bleu[left], bleu[right])}")
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"Written: {PAGE}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("run", "write"))
    parser.add_argument("tables", nargs="*", choices=[*TABLES, []], help="tables to run (default: all)")
    parser.add_argument("--data", default="multi30k/{part}.{en,de}", help="path of the parallel files")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--runs", type=Path, default=Path("runs/claims"))
    arguments = parser.parse_args()
    if arguments.action == "write":
        write(arguments.runs)
    for name in arguments.tables or list(TABLES) if arguments.action == "run" else ():
        run(name, arguments.data, arguments.seeds, arguments.runs)


if __name__ == "__main__":
    main()
