"""Whether a classifier of long texts gains from reading more of each, with local attention or with latents."""

from pathlib import Path
from typing import Any

from .claim import Claim, Measurement, Statement
from .recipe_runs import QUIET, ROOT, train

RUNS = ROOT / "runs" / "claims" / "context_length"
EPOCHS = 2
# The layers compute with the latents instead of the positions, and need no window.
NO_WINDOW = {"model.encoder_pattern": "full", "model.encoder_pattern_options": {}}
VARIANTS: dict[str, dict[str, Any]] = {
    "512 bytes": {"data.max_length": 512},
    "1,024 bytes": {"data.max_length": 1024},
    "4,096 bytes": {},
    "4,096 bytes, 64 latents": {"model.latents": 64, **NO_WINDOW},
    "4,096 bytes, 256 latents": {"model.latents": 256, **NO_WINDOW},
}
ALL, SHORT, MIDDLE, LONG = "accuracy", "accuracy, 51-100 words", "accuracy, 201-400 words", "accuracy, 401+ words"


def fields(variant: str, seed: int, data: Path) -> dict[str, Any]:
    """Return the fields of a run that its configuration does not have."""
    return {
        **QUIET,
        "data.dataset": str(data / "imdb.train.jsonl"),
        "data.test": str(data / "imdb.test.jsonl"),
        **VARIANTS[variant],
        "training.num_train_epochs": EPOCHS,
        "training.seed": seed,
    }


def measure(variant: str, seed: int, data: Path) -> Measurement:
    name = variant.replace(",", "").replace(" ", "-")
    results = train("classification", "imdb_bytes_window", fields(variant, seed, data), RUNS / f"{name}-{seed}")
    scores = results["metrics"]["test"]
    values = {ALL: scores["accuracy"]}
    values |= {each: scores["by_slice"][each.removeprefix("accuracy, ")]["accuracy"] for each in (SHORT, MIDDLE, LONG)}
    return Measurement(values, {}, results["training"]["steps"])


CLAIM = Claim(
    "A classifier that reads more of each document is more accurate on long documents",
    "Beltagy et al. 2020, section 6; Jaegle et al. 2021, section 3",
    "Film reviews of IMDb as bytes, with `imdb_bytes_window` of the recipe classification for "
    f"{EPOCHS} epochs: the first 512, 1,024 or 4,096 bytes of each review, four bytes to a position, local attention "
    "to 64 positions on either side and a global first position; or latents that read all positions instead. A hundred "
    "words are about 570 bytes: half of the reviews fit into 1,024 bytes, and those of more than 400 words have more "
    "than 1,900. The checkpoint is chosen on a tenth of the training reviews. The papers classify documents of "
    "thousands of subwords with pretrained models. On the same test reviews, a linear support vector machine on the "
    "TF-IDF of words and pairs of words has 0.903 (`imdb_tfidf_svm` of the recipe baselines).",
    tuple(VARIANTS),
    measure,
    (
        Statement(LONG, "4,096 bytes", "above", "1,024 bytes"),
        Statement(LONG, "1,024 bytes", "above", "512 bytes"),
        Statement(MIDDLE, "1,024 bytes", "above", "512 bytes"),
        Statement(SHORT, "4,096 bytes", "equal to", "512 bytes", 0.02),
        Statement(ALL, "4,096 bytes", "above", "512 bytes"),
        Statement(ALL, "4,096 bytes, 256 latents", "not below", "4,096 bytes", 0.02),
        Statement(ALL, "4,096 bytes, 256 latents", "not below", "4,096 bytes, 64 latents"),
    ),
    (),
)
