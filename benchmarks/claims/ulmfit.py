"""What pretraining a recurrent language model gains with few labels (ULMFiT), and what its three techniques add."""

import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import yaml

from .claim import Claim, Measurement, Panel, Statement
from .recipe_runs import QUIET, ROOT, train, wikitext2

RUNS = ROOT / "runs" / "claims" / "ulmfit"
SIZES = (100, 500, 2500)  # labels, with every seed
COMPARED_WITHOUT = SIZES[:2]  # labels without one of the techniques
FROM_SCRATCH_TOO = 10_000  # labels of the classifier from scratch that 100 labels are compared with
ALL = 24_500  # labels, with the first seed of some variants; the others of the 25,000 are for validation
VALIDATION, TEST = 500, 5000  # reviews
EPOCHS = {100: 20, 500: 15, 2500: 8}  # of the recurrent classifiers; 5 with more labels
MAX_TOKENS = 4000  # of a batch, about 16 reviews, up to 2,500 labels
MARGIN = 0.01  # of the error; less is called as good

FULL, STAGE_2, NO_STAGE_2, SCRATCH = "stages 1 + 2 + 3", "stages 2 + 3", "stages 1 + 3", "from scratch"
SVM, MINILM = "TF-IDF + SVM", "MiniLM"
WITHOUT: dict[str, dict[str, Any]] = {
    "without discriminative rates": {"tuning.layer_decay": 1.0},
    "without slanted triangles": {
        "schedule": {"name": None},
        "training.lr_scheduler_type": "constant",
    },
    "without gradual unfreezing": {"tuning.gradual_unfreezing": False},
}
VARIANTS = (SCRATCH, NO_STAGE_2, STAGE_2, FULL, MINILM, SVM, *WITHOUT)
COMPARED_WITH_ALL = (SCRATCH, FULL, MINILM, SVM)  # variants that are trained with all labels too
# A classifier from scratch has no layers to protect.
PLAIN = {"tuning.layer_decay": 1.0, "tuning.gradual_unfreezing": False}
LAST = {  # no checkpoint is chosen: a choice would need labels that a small training set does not have
    **QUIET,
    "training.load_best_model_at_end": False,
    "training.metric_for_best_model": None,
    "training.eval_strategy": "no",
    "training.save_strategy": "no",
    "evaluation.counterfactual_texts": 20,
    "sample.mistakes": 1,
}


def error_at(labels: int) -> str:
    return f"error, {labels:,} labels"


REDUCTION, COMPARED = "error / error from scratch, 2,500 labels", "error with 100 labels, from scratch with 10,000"


@cache
def reviews(data: Path, part: str) -> list[dict[str, Any]]:
    with (data / f"imdb.{part}.jsonl").open(encoding="utf-8") as lines:  # reviews contain other line separators
        return [json.loads(line) for line in lines]


def drawn(rows: list[dict[str, Any]], number: int, random: Random) -> list[dict[str, Any]]:
    """Return a random sample with as many rows of each class, in random order."""
    chosen = []
    for label in (0, 1):
        chosen += random.sample([row for row in rows if row["label"] == label], number // 2)
    return random.sample(chosen, len(chosen))


def subsets(data: Path, labels: int, seed: int) -> dict[str, Any]:
    """Write the reviews of a run, and return the fields of ``data`` that name them.

    Validation and test are the same for all runs; the training reviews depend on the seed, and those of a larger set
    include those of a smaller one only by chance.
    """
    held = drawn(reviews(data, "train"), VALIDATION, Random(0))
    known = {row["text"] for row in held}
    others = [row for row in reviews(data, "train") if row["text"] not in known]
    chosen = others if labels >= len(others) or labels == ALL else drawn(others, labels, Random(seed))
    parts = {"dataset": chosen, "validation": held, "test": drawn(reviews(data, "test"), TEST, Random(0))}
    fields: dict[str, Any] = {}
    for part, rows in parts.items():
        file = RUNS / "data" / (f"{labels}-{seed}.jsonl" if part == "dataset" else f"{part}.jsonl")
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps({"text": row["text"], "label": row["label"]}, ensure_ascii=False) for row in rows)
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        fields[f"data.{part}"] = str(file)
    return fields


def language_model(data: Path, stages: str) -> Path:
    """Return the folder of a language model after the stages "1", "2" or "1 + 2", or untrained ("0")."""
    folder = RUNS / f"language-model-{stages.replace(' + ', '-')}"
    own = {"data.dataset": str(data / "imdb.train.jsonl")}
    if stages == "1":
        train("causal_lm", "wikitext2_ulmfit", {**QUIET, **wikitext2(data)}, folder)
    elif stages == "1 + 2":
        train("causal_lm", "imdb_ulmfit_lm", {**QUIET, **own, "model.name": str(language_model(data, "1"))}, folder)
    elif stages == "2":  # as stage 1, on the texts of stage 2, for as many epochs as these are read there
        second = yaml.safe_load((ROOT / "recipes" / "causal_lm" / "imdb_ulmfit_lm.yaml").read_text(encoding="utf-8"))
        epochs = second["training"]["num_train_epochs"]
        first = {"tokenizer": {"name": str(language_model(data, "1"))}, "training.num_train_epochs": epochs}
        rows = {"data.document_start": None, "data.validation": None, "data.test": None, "data.split": [0.98, 0.02]}
        train("causal_lm", "wikitext2_ulmfit", {**QUIET, **own, **rows, **first}, folder)
    elif not (folder / "config.json").exists():
        from transformers import AutoModelForCausalLM, set_seed

        from hfattn.loading import load_language_model

        trained, tokenizer = load_language_model(str(language_model(data, "1")))
        set_seed(1)
        AutoModelForCausalLM.from_config(trained.config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


STAGES = {SCRATCH: "0", NO_STAGE_2: "1", STAGE_2: "2"}  # the other variants: 1 + 2


def run(variant: str, labels: int, seed: int, data: Path) -> dict[str, Any]:
    """Train and test one variant with a number of labels, and return the results of the run."""
    name = variant.replace(" + ", "-").replace(" ", "-").lower()
    out = RUNS / name / f"{labels}-{seed}"
    if (out / "results.json").exists():
        return json.loads((out / "results.json").read_text())
    return train(*fields(variant, labels, seed, data), out)


def fields(variant: str, labels: int, seed: int, data: Path) -> tuple[str, str, dict[str, Any]]:
    """Return the recipe, the configuration and the fields of a run."""
    common = {**subsets(data, labels, seed), "training.seed": seed}
    if variant == SVM:
        return "baselines", "imdb_tfidf_svm", {**common, "features.min_texts": 1 if labels < 1000 else 2}
    if variant == MINILM:
        steps = {"training.num_train_epochs": {100: 10, 500: 5, 2500: 2}.get(labels, 1), "training.warmup_steps": 5}
        pretrained = {"model.name": str(data / "models" / "all-MiniLM-L6-v2")}
        return "classification", "imdb_minilm", {**common, **LAST, **pretrained, **steps}
    start = {"model.name": str(language_model(data, STAGES.get(variant, "1 + 2")))}
    steps = {"training.num_train_epochs": EPOCHS.get(labels, 5)}
    if labels in EPOCHS:
        steps["max_tokens"] = MAX_TOKENS
    own = PLAIN if variant == SCRATCH else WITHOUT.get(variant, {})
    return "classification", "imdb_ulmfit", {**common, **LAST, **start, **steps, **own}


def measure(variant: str, seed: int, data: Path) -> Measurement:
    sizes = [*(COMPARED_WITHOUT if variant in WITHOUT else SIZES)]
    if variant == SCRATCH:
        sizes.append(FROM_SCRATCH_TOO)
    if seed == 1 and variant in COMPARED_WITH_ALL:
        sizes.append(ALL)
    errors, steps = {}, 0
    for labels in sizes:
        results = run(variant, labels, seed, data)
        errors[labels] = 1 - results["metrics"]["test"]["accuracy"]
        steps += results.get("training", {}).get("steps", 0)
    values = {error_at(labels): error for labels, error in errors.items()}
    if variant == FULL:
        scratch = run(SCRATCH, SIZES[-1], seed, data)["metrics"]["test"]["accuracy"]
        values[REDUCTION] = errors[SIZES[-1]] / (1 - scratch)
        values[COMPARED] = errors[SIZES[0]]
    elif variant == SCRATCH:
        values[COMPARED] = errors[FROM_SCRATCH_TOO]
    return Measurement(values, {"error": [(float(labels), error) for labels, error in errors.items()]}, steps)


CLAIM = Claim(
    "A pretrained language model needs far fewer labels, and each of ULMFiT's stages and techniques lowers the error",
    "Howard & Ruder 2018, sections 3 to 5",
    f"`imdb_ulmfit` of the recipe classification, forward only, on IMDb with {SIZES[0]}, {SIZES[1]} and {SIZES[2]:,} "
    f"labels, drawn anew for each seed. The variants {', '.join(COMPARED_WITH_ALL)} also have all {ALL:,} labels, with "
    f"one seed. All variants read the same reviews. *Stages 1 + 2 + 3* start from WikiText-2 (`wikitext2_ulmfit`), go "
    f"on with the training reviews without "
    f"labels (`imdb_ulmfit_lm`) and end with the labels. *Stages 1 + 3* leave the second out, *stages 2 + 3* the "
    f"first, and *from scratch* starts from random weights, with the same architecture and subwords, one rate for all "
    f"layers, and all layers trained from the first epoch on. No checkpoint is chosen: the weights are those of the "
    f"last epoch. The error is that on {TEST:,} reviews of the test set. The rows *without* change one field of stages "
    f"1 + 2 + 3, with {COMPARED_WITHOUT[0]} and {COMPARED_WITHOUT[1]} labels. Each language model is trained once.",
    VARIANTS,
    measure,
    (
        *(Statement(error_at(labels), FULL, "below", SCRATCH) for labels in SIZES),
        *(Statement(error_at(labels), FULL, "below", NO_STAGE_2) for labels in SIZES),
        *(Statement(error_at(labels), FULL, "below", STAGE_2) for labels in SIZES),
        Statement(REDUCTION, FULL, "equal to", 0.79, 0.03),  # 18 to 24 % less
        Statement(COMPARED, FULL, "not above", SCRATCH, MARGIN),
        Statement(error_at(SIZES[0]), FULL, "below", SVM),
        *(Statement(error_at(labels), FULL, "below", variant) for variant in WITHOUT for labels in COMPARED_WITHOUT),
    ),
    (Panel("error", "labels", "test error", log_x=True),),
)
