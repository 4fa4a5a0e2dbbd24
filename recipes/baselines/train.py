"""Fit a classical classifier to labeled texts, and write a folder that can be published.

accelerate launch recipes/baselines/train.py --config recipes/baselines/reviews_es.yaml
accelerate launch recipes/baselines/train.py --config recipes/baselines/imdb_tfidf_svm.yaml \\
    --data.dataset my.jsonl --data.test null --data.labels null
accelerate launch recipes/baselines/train.py --config recipes/baselines/reviews_es.yaml --classifier.kind naive_bayes
"""

import os
import time
from dataclasses import asdict, dataclass, field

from huggingface_hub.dataclasses import strict

from hfattn.baselines import (
    BaselineClassifier,
    ClassifierConfig,
    CleaningConfig,
    EncoderConfig,
    FeaturesConfig,
    VectorsConfig,
)
from hfattn.data import LabeledDataConfig, LabeledTexts, check_columns, fingerprints
from hfattn.errors import UserError, one_sentence
from hfattn.fields import at_least
from hfattn.generated import reviews_es
from hfattn.hub import texts_to_publish, vocabulary_texts
from hfattn.metrics import ClassifierEvaluationConfig, class_predictions, read_swaps
from hfattn.publish_sections import CardConfig, PublishConfig
from hfattn.reports.base import publish_facts
from hfattn.reports.baselines import report
from hfattn.training import RecipeCommand, finishing, load_config, parse_command

RECIPE = "baselines"


# Configuration


@strict
@dataclass
class DataConfig(LabeledDataConfig):
    """The section ``data``. ``dataset`` is also "reviews_es", fourteen reviews in Spanish."""

    generated = ("reviews_es",)

    dataset: str = "reviews_es"
    training_examples: int | None = at_least(1, None)  # training texts to draw from a dataset; null: all

    def validate_pairs(self) -> None:
        if self.pair_column is not None:
            raise ValueError("pair_column is for the recipe classification; a baseline reads one text, so remove it.")

    def generate(self, seed: int) -> dict[str, LabeledTexts]:
        return reviews_es(seed)


@strict
@dataclass
class FitConfig:
    seed: int = 0  # for the split, the subset, the vectors and the solver of the SVM

    def validate_seed(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed is {self.seed}; write a number from 0 to 2**32 - 1.")


@strict
@dataclass
class SampleConfig:
    mistakes: int = at_least(1, 10)  # the most confident ones shown
    features: int = at_least(1, 20)  # n-grams shown per class, with the highest weights
    neighbours: list[str] = field(
        default_factory=list
    )  # words whose nearest words are shown, with features.kind vectors


@strict
@dataclass
class Config:
    data: DataConfig = field(default_factory=DataConfig)
    cleaning: CleaningConfig = field(default_factory=CleaningConfig)
    features: FeaturesConfig = field(default_factory=FeaturesConfig)
    vectors: VectorsConfig = field(default_factory=VectorsConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    classifier: ClassifierConfig = field(default_factory=ClassifierConfig)
    training: FitConfig = field(default_factory=FitConfig)
    evaluation: ClassifierEvaluationConfig = field(default_factory=ClassifierEvaluationConfig)
    sample: SampleConfig = field(default_factory=SampleConfig)
    card: CardConfig = field(default_factory=CardConfig)
    publish: PublishConfig = field(default_factory=PublishConfig)


def validate(config: Config) -> BaselineClassifier:
    """Check what can be checked without the data (``hfattn recipes validate``); return the classifier, not yet fitted.

    Raises:
        UserError: a section is invalid, two do not go together, or a package is missing.
    """
    read_swaps(config.evaluation.swaps)
    if config.sample.neighbours and config.features.kind != "vectors":
        raise UserError("sample.neighbours needs word vectors; write features.kind: vectors, or remove it.")
    return BaselineClassifier(config.cleaning, config.features, config.vectors, config.classifier, config.encoder)


def main(command: RecipeCommand) -> None:
    config = load_config(Config, command.config, command.overrides)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("A baseline is fitted by one process; launch it with --num_processes 1.")
    classifier = validate(config)
    command.check_run()

    # Data

    seed = config.training.seed
    parts = config.data.read_parts(seed, command.datasets)
    check_columns(config.evaluation.columns, parts["train"])
    if config.data.training_examples is not None:
        parts["train"] = parts["train"].sample(config.data.training_examples, seed)
    texts = {part: [item.text for item in examples] for part, examples in parts.items()}
    right = {part: [item.label for item in examples] for part, examples in parts.items()}

    # Training

    start = time.perf_counter()
    logits = {
        "train": classifier.fit(
            list(vocabulary_texts(config, texts["train"])), right["train"], parts["train"].labels, seed
        )
    }
    seconds = time.perf_counter() - start

    # Evaluation

    logits |= {part: classifier.logits(texts[part]) for part in parts if part != "train"}
    outputs = {part: class_predictions(logits[part], right[part]) for part in parts}

    # Output files: a folder without a pickle, results, pictures and a card

    command.claim_run(config, texts=fingerprints(parts))
    command.report_data(config, parts)
    with finishing(command.run, advice="give the same command with another --output_dir"):
        report(
            command,
            asdict(config),
            classifier,
            parts,
            outputs,
            seconds,
            config.evaluation,
            seed=seed,
            mistakes=config.sample.mistakes,
            features=config.sample.features,
            words=config.sample.neighbours,
            publish=publish_facts(config, texts_to_publish(config)),
        )


if __name__ == "__main__":
    with one_sentence():
        main(parse_command(RECIPE, __doc__ or ""))
