"""Distillation of a pretrained Transformer into a recurrent classifier of sentences."""

from pathlib import Path
from typing import Any

from .claim import Claim, Measurement, Statement
from .recipe_runs import QUIET, ROOT, sst2, train

RUNS = ROOT / "runs" / "claims" / "text_distillation"
WITH, WITHOUT = VARIANTS = ("teacher and labels", "labels alone")
ALPHAS = {WITH: 0.5, WITHOUT: 0}  # weights of the teacher
ACCURACY, NATS = "accuracy", "nats per sentence"
SPLIT = {"data.split_seed": 1}  # the validation part of the students is that of the teacher


def teacher(data: Path) -> Path:
    """Return the run folder of the teacher of all students, which is trained with seed 1."""
    fields = {"model.name": str(data / "models" / "all-MiniLM-L6-v2"), "training.seed": 1}
    train("classification", "sst2_minilm", {**QUIET, **SPLIT, **sst2(data), **fields}, RUNS / "teacher")
    return RUNS / "teacher"


def fields(variant: str, seed: int, data: Path) -> dict[str, Any]:
    """Return the fields of a student's run that its configuration does not have."""
    own = {"teacher.name": str(teacher(data)), "distillation.alpha": ALPHAS[variant], "training.seed": seed}
    return {**QUIET, **SPLIT, **sst2(data), **own}


def measure(variant: str, seed: int, data: Path) -> Measurement:
    out = RUNS / f"{ALPHAS[variant]}-{seed}"
    results = train("distillation", "sst2_bilstm", fields(variant, seed, data), out)
    scores = results["metrics"]["test"]
    values = {ACCURACY: scores["accuracy"], NATS: scores["nats_per_example"]}
    return Measurement(values, {}, results["training"]["steps"])


CLAIM = Claim(
    "A student that learns from a teacher's probabilities too is better than one that learns from the labels alone",
    "Hinton et al. 2015, section 3; Tang et al. 2019, table 1",
    "A bidirectional LSTM with attention (1.8 million parameters) on the phrases of SST-2 with `sst2_bilstm` of the "
    "recipe distillation; the teacher is MiniLM, fine-tuned once on the same phrases with `sst2_minilm` of the recipe "
    "classification. Both students train for 6,000 steps from the same weights, and their checkpoints are chosen on "
    "10% of the training sentences; the values are of GLUE's 872 validation sentences. Tang et al. also train on "
    "generated phrases, which the teacher labels; these runs do not.",
    VARIANTS,
    measure,
    (Statement(ACCURACY, WITH, "above", WITHOUT), Statement(NATS, WITH, "below", WITHOUT)),
    (),
)
