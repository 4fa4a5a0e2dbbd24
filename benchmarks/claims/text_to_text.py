"""Whether one small text-to-text model does its tasks as well as a model for each, and what span corruption gains."""

import json
from pathlib import Path
from statistics import mean
from typing import Any

from .claim import Claim, Measurement, Panel, Statement
from .recipe_runs import QUIET, ROOT, train, wikitext2

RUNS = ROOT / "runs" / "claims" / "text_to_text"
POINT = 1.0  # of accuracy, correlation or exact match in percent, or of BLEU; a difference up to it counts as none

# The tasks of mixture.yaml, the score of each, and what a point is of it.
TASKS = {
    "translate": ("bleu", 1.0),
    "sst2": ("accuracy", 100.0),
    "sick": ("accuracy", 100.0),
    "relatedness": ("spearman", 100.0),
    "dates": ("exact_match", 100.0),
}
FILES = {
    "translate.dataset": "spa-eng.txt",
    "sst2.dataset": "sst2.train.tsv",
    "sst2.test": "sst2.dev.tsv",
    "sick.dataset": "sick.txt",
    "relatedness.dataset": "sick.txt",
}
ONE, EACH = "one model", "a model for each task"
PRETRAINED, EACH_PRETRAINED = "one model, pretrained", "a model for each task, pretrained"
VARIANTS = (ONE, EACH, PRETRAINED, EACH_PRETRAINED)
# Each task has the weight of one point in the mean.
MEAN = "mean over the tasks"


def value_of(task: str) -> str:
    """Return the name of the value of a task."""
    return f"{task}: test {TASKS[task][0].replace('_', ' ')}"


def pretrained(data: Path) -> Path:
    """Train with span corruption on WikiText-2, unless that is done, and return the folder of the run."""
    folder = RUNS / "spans"
    more = [str(data / name) for name in sorted({*FILES.values()} - {"sst2.dev.tsv"})]
    train(
        "text_to_text",
        "wikitext2_spans",
        {**QUIET, **wikitext2(data, "data.tasks.spans"), "tokenizer.more_texts": more},
        folder,
    )
    return folder


def fields(tasks: list[str], seed: int, data: Path, start: Path | None) -> dict[str, Any]:
    """Return the fields of a run of ``mixture`` for some of its tasks, from a pretrained model or from scratch."""
    places: dict[str, Any] = {f"data.tasks.{name}": str(data / file) for name, file in FILES.items()}
    own = {} if start is None else {"model": {"name": str(start)}, "tokenizer": None}
    return {**QUIET, **places, **own, "data.only": tasks, "training.seed": seed}


def measure(variant: str, seed: int, data: Path) -> Measurement:
    """Train one model for all tasks, or one for each."""
    start = pretrained(data) if variant in (PRETRAINED, EACH_PRETRAINED) else None
    groups = [[task] for task in TASKS] if variant in (EACH, EACH_PRETRAINED) else [list(TASKS)]
    values, curves, steps = {}, [], 0
    for tasks in groups:
        name = f"{'all' if len(tasks) > 1 else tasks[0]}{'' if start is None else '-pretrained'}-{seed}"
        results = train("text_to_text", "mixture", fields(tasks, seed, data, start), RUNS / name)
        steps += results["training"]["steps"]
        for task in tasks:
            score, points = TASKS[task]
            values[value_of(task)] = points * results["metrics"]["test"]["tasks"][task][score]
        curves.append(validation_curve(RUNS / name))
    values[MEAN] = mean(values.values())
    epochs = set.intersection(*map(set, curves))
    curve = [(epoch, mean(each[epoch] for each in curves)) for epoch in sorted(epochs)]
    return Measurement(values, {"validation": curve}, steps)


def validation_curve(folder: Path) -> dict[float, float]:
    """Return the mean score of the tasks on validation after each epoch of a run."""
    from hfattn.training import last_complete_checkpoint

    checkpoint = last_complete_checkpoint(folder / "checkpoints")
    history = json.loads((checkpoint / "trainer_state.json").read_text())["log_history"] if checkpoint else []
    return {float(round(entry["epoch"], 1)): entry["eval_score"] for entry in history if "eval_score" in entry}


CLAIM = Claim(
    "One text-to-text model does its tasks as well as a model for each, and span corruption helps it",
    "Raffel et al. 2020, sections 3.5.2 and 3.1.4",
    "`mixture` of the recipe text_to_text: a Transformer of width 256 for English-Spanish translation (BLEU, beam "
    "search), SST-2 (accuracy on the dev set), SICK's entailment (accuracy) and relatedness (Spearman), and dates "
    "(exact match). *A model for each task* has the same layers, at most as many subwords, and reads as many examples "
    "of its task as the one model does (`--data.only [sst2]`), so all of them together have the budget of the one. "
    "*Pretrained* models start from span corruption on WikiText-2 (`wikitext2_spans`), which is done once. Scores are "
    "in percent; an output that is not a label is wrong.",
    VARIANTS,
    measure,
    (
        *(Statement(value_of(task), ONE, "not below", EACH, POINT) for task in TASKS),
        *(Statement(value_of(task), PRETRAINED, "not below", EACH_PRETRAINED, POINT) for task in TASKS),
        Statement(MEAN, PRETRAINED, "above", ONE),
        Statement(MEAN, EACH_PRETRAINED, "above", EACH),
    ),
    (Panel("validation", "epoch", "mean score on validation"),),
)
