"""What the loss of the language model adds beside that of the task (GPT)."""

from pathlib import Path
from typing import Any

from .claim import Claim, Measurement, Statement
from .recipe_runs import QUIET, ROOT, sst2, train

RUNS = ROOT / "runs" / "claims" / "auxiliary_loss"
WITH, WITHOUT = "λ = 0.5", "λ = 0"
WEIGHTS = {WITH: 0.5, WITHOUT: 0}
SICK, SST2, RELATEDNESS = "accuracy on SICK", "accuracy on SST-2", "rho on SICK"
TASKS = {SICK: "sick_gpt", SST2: "sst2_gpt", RELATEDNESS: "sick_relatedness_gpt"}


def fields(task: str, variant: str, seed: int, data: Path) -> dict[str, Any]:
    """Return the fields of a run that its configuration does not have."""
    files = sst2(data) if task == SST2 else {"data.dataset": str(data / "sick.txt")}
    own = {"model.name": str(data / "models" / "stories15M"), "language_model_weight": WEIGHTS[variant]}
    return {**QUIET, **files, **own, "training.seed": seed}


def measure(variant: str, seed: int, data: Path) -> Measurement:
    values, steps = {}, 0
    for task, config in TASKS.items():
        out = RUNS / config / f"{WEIGHTS[variant]}-{seed}"
        results = train("classification", config, fields(task, variant, seed, data), out)
        values[task] = results["metrics"]["test"]["spearman" if task == RELATEDNESS else "accuracy"]
        steps += results["training"]["steps"]
    return Measurement(values, {}, steps)


CLAIM = Claim(
    "The loss of the language model beside that of the task helps with many training texts, not with few",
    "Radford et al. 2018, sections 3.2 and 5",
    "A Llama of 15 million parameters, pretrained on TinyStories, fine-tuned on SICK (7,900 pairs; the class and the "
    "relatedness) and on SST-2 (62,000 phrases) with `sick_gpt`, `sick_relatedness_gpt` and `sst2_gpt` of the recipe "
    "classification; λ is the weight of the language model's loss. The paper's model has 117 million parameters.",
    (WITH, WITHOUT),
    measure,
    (
        Statement(SST2, WITH, "above", WITHOUT),
        Statement(SICK, WITH, "not above", WITHOUT, 0.01),
        Statement(RELATEDNESS, WITH, "not above", WITHOUT, 0.01),
    ),
    (),
)
