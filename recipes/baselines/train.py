"""Fit a classical classifier on labelled texts, and leave behind a folder that can be published.

accelerate launch recipes/baselines/train.py --config recipes/baselines/reviews_es.yaml
accelerate launch recipes/baselines/train.py --config recipes/baselines/imdb_tfidf_svm.yaml \\
    --data.source my.jsonl --data.test null --data.labels null
accelerate launch recipes/baselines/train.py --config recipes/baselines/reviews_es.yaml --classifier.kind naive_bayes
"""

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from huggingface_hub.dataclasses import strict
from transformers import EvalPrediction

from hfattn.baselines import BaselineClassifier, ClassifierConfig, CleaningConfig, FeaturesConfig, VectorsConfig
from hfattn.data import LabelledDataConfig, LabelledTexts
from hfattn.errors import UserError, one_sentence
from hfattn.generated import reviews_es
from hfattn.hub import CardConfig
from hfattn.metrics import (
    ClassificationScores,
    ClassifierEvaluationConfig,
    ClassResults,
    check_columns,
    class_statistics,
    classification_report,
    classification_summary,
    confident_mistakes,
    counterfactual,
    read_swaps,
)
from hfattn.plots import plot_confusion, plot_table
from hfattn.training import RecipeCommand, load_config, parse_command, publish_run, run_facts, writing

RECIPE = "baselines"
PACKAGES = ("scikit-learn", "gensim", "snowballstemmer", "simplemma", "stop-words")


# Configuration


@strict
@dataclass
class DataConfig(LabelledDataConfig):
    # Beside a file or the id of a data set on the Hub: "reviews_es" (fourteen reviews in Spanish).
    source: str = "reviews_es"

    def validate_source(self) -> None:
        if self.source == "reviews_es" and (self.validation is not None or self.test is not None):
            raise ValueError("reviews_es has its own test; leave validation and test out.")
        if self.pair_column is not None:
            raise ValueError("pair_column is for models that read two texts; these read one, so leave it out.")

    def read_parts(self, seed: int) -> dict[str, LabelledTexts]:
        return reviews_es(seed) if self.source == "reviews_es" else super().read_parts(seed)


@strict
@dataclass
class FitConfig:
    seed: int = 0  # of the split, the vectors and the SVM's solver

    def validate_seed(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed is {self.seed}; write a number from 0 to 2**32 - 1.")


@strict
@dataclass
class SampleConfig:
    number: int = 10  # of the most confident mistakes shown
    features: int = 20  # of the n-grams shown that speak most for each class

    def validate_sizes(self) -> None:
        for name in ("number", "features"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; write a whole number of at least 1.")


@strict
@dataclass
class Config:
    data: DataConfig = field(default_factory=DataConfig)
    cleaning: CleaningConfig = field(default_factory=CleaningConfig)
    features: FeaturesConfig = field(default_factory=FeaturesConfig)
    vectors: VectorsConfig = field(default_factory=VectorsConfig)
    classifier: ClassifierConfig = field(default_factory=ClassifierConfig)
    training: FitConfig = field(default_factory=FitConfig)
    evaluation: ClassifierEvaluationConfig = field(default_factory=ClassifierEvaluationConfig)
    sample: SampleConfig = field(default_factory=SampleConfig)
    card: CardConfig = field(default_factory=CardConfig)


def validate(config: Config) -> BaselineClassifier:
    """Check what can be checked without the data (``hfattn recipes validate``); returns the classifier, to be fitted.

    Raises:
        UserError: the sections do not go together, or a package is missing.
    """
    return BaselineClassifier(config.cleaning, config.features, config.vectors, config.classifier)


def main() -> None:
    command = parse_command(RECIPE, __doc__ or "")
    config = load_config(Config, command.config, command.overrides)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("A baseline is fitted by one process; launch it with --num_processes 1.")
    swaps = read_swaps(config.evaluation.swaps)

    # Model: to be fitted

    classifier = validate(config)
    command.check_run()

    # Data

    seed = config.training.seed
    parts = config.data.read_parts(seed)
    check_columns(config.evaluation.columns, parts["train"])

    # Training

    train = parts["train"]
    start = time.perf_counter()
    logits = {"train": classifier.fit([item.text for item in train], classes(train), train.labels, seed)}
    seconds = time.perf_counter() - start

    # Evaluation

    for part, texts in parts.items():
        if part != "train":
            logits[part] = classifier.logits([item.text for item in texts])
    command.claim_run(config, texts={part: texts.fingerprint for part, texts in parts.items()})
    with writing(command.run, advice="free some space and begin again"):
        publish(command, config, classifier, parts, logits, seconds, swaps)


def publish(
    command: RecipeCommand,
    config: Config,
    classifier: BaselineClassifier,
    parts: Mapping[str, LabelledTexts],
    logits: Mapping[str, np.ndarray],
    seconds: float,
    swaps: Mapping[str, Any],
) -> None:
    """What the run leaves behind: the classifier without a pickle, its results and pictures, its card."""
    run, train = command.run, parts["train"]
    classifier.save_pretrained(run)
    shown = "test" if "test" in parts else "validation"
    results_of = {part: class_results(parts[part], logits[part]) for part in parts}
    metrics = {part: scores(results) for part, results in results_of.items()}
    for part in parts:
        if part != "train":
            metrics[part] |= classification_report(parts[part], results_of[part], config.evaluation)
    if config.evaluation.counterfactual_texts:
        step = -(-len(parts[shown]) // config.evaluation.counterfactual_texts)
        metrics[shown]["counterfactual"] = counterfactual(
            classifier.predict, [item.text for item in parts[shown].items[::step]], swaps
        )
    title = f"{RECIPE}: {command.config.stem}"
    plot_confusion(run / "confusion.png", metrics[shown]["confusion"], train.labels, f"{title}, {shown}")
    samples = confident_mistakes(parts[shown], results_of[shown], config.sample.number)
    if samples:
        plot_table(run / "mistakes.png", list(samples[0]), [list(row.values()) for row in samples], title)
    telling = classifier.telling(config.sample.features)
    if telling:
        rows = zip_longest(*telling.values(), fillvalue=("", ""))
        cells = [[f"{name}  {weight:.3g}" if name else "" for name, weight in row] for row in rows]
        plot_table(run / "features.png", [f"{label}: n-gram, weight" for label in telling], cells, title)
    sections = ("cleaning", "classifier", "vectors" if config.features.kind == "vectors" else "features")
    results = {
        **run_facts(RECIPE, command.config, asdict(config), config.training.seed),
        "data": {
            "name": train.name,
            "labels": train.labels,
            "parts": {part: {"texts": len(texts), "sha256": texts.fingerprint} for part, texts in parts.items()},
        },
        "model": {
            "features": config.features.kind,
            "dimensions": classifier.weights.shape[1],
            "parameters": classifier.parameters,
            "sections": {name: asdict(getattr(config, name)) for name in sections},
        },
        "metrics": metrics,
        "training": {
            "steps": classifier.iterations,  # of the solver
            "wall_time_seconds": round(seconds, 2),  # from the texts on
            "texts_per_second": round(len(train) / seconds),
        },
        "telling": telling,
        "samples": samples,
        "short_text": min((item.text for item in parts[shown]), key=len),
    }
    results["versions"] |= {name: version(name) for name in PACKAGES}
    publish_run(command, results, classification_summary(run, results))


def classes(texts: LabelledTexts) -> list[int]:
    """The numbers (n,) of the right classes."""
    return [item.label for item in texts]


def class_results(texts: LabelledTexts, logits: np.ndarray) -> ClassResults:
    """What is predicted of n texts with these logits (n, C)."""
    right = torch.tensor(classes(texts))
    predicted, nats = class_statistics(torch.from_numpy(logits), right)
    return ClassResults(predicted.numpy(), right.numpy(), nats.numpy())


def scores(results: ClassResults) -> dict[str, Any]:
    """Accuracy, F1, nats per text and the number of texts."""
    prediction = EvalPrediction(predictions=(results.predicted, results.nats), label_ids=results.right)
    return dict(ClassificationScores()(prediction, compute_result=True))


if __name__ == "__main__":
    with one_sentence():
        main()
