"""The report of the recipe baselines."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from transformers.trainer_utils import PredictionOutput

from ..baselines import BaselineClassifier, EncoderFeatures, TextVectors, neighbours
from ..data import LabeledTexts
from ..hub.card import stated
from ..metrics import ClassifierEvaluationConfig, class_results
from ..training import RecipeCommand, publish_run, run_facts
from .base import shown_part
from .classification import (
    confident_mistakes,
    confusion_picture,
    fairness_scores,
    part_facts,
    scores_of_parts,
    summary,
    threshold_choice,
)

PACKAGES = ("scikit-learn", "gensim", "snowballstemmer", "simplemma", "stop-words")


def report(
    command: RecipeCommand,
    configuration: Mapping[str, Any],
    classifier: BaselineClassifier,
    parts: Mapping[str, LabeledTexts],
    outputs: Mapping[str, PredictionOutput],
    seconds: float,
    evaluation: ClassifierEvaluationConfig,
    *,
    seed: int,
    mistakes: int,
    features: int,
    publish: Mapping[str, Any],
    words: Sequence[str],
) -> None:
    """Save the classifier and write all other output files of the run.

    Args:
        command: the command line.
        configuration: the recipe's configuration as a dictionary.
        classifier: the fitted classifier.
        parts: the texts of each part.
        outputs: the predictions for each part, training included.
        seconds: duration of the fit.
        evaluation: the slices, the counterfactual tests and the share of the texts to answer.
        seed: seed of the run.
        mistakes: number of the most confident mistakes to show.
        features: number of n-grams to show per class.
        publish: which texts the folder quotes, as ``publish_facts`` returns it.
        words: words whose nearest words to show, for a classifier on word vectors.
    """
    quoted = publish["texts"] == "samples"
    run, train, shown = command.run, parts["train"], shown_part(parts)
    title = f"{command.recipe}: {command.config.stem}"
    metrics = scores_of_parts(parts, outputs, evaluation)
    classifier.threshold = metrics.get("validation", {}).get("abstaining", {}).get("threshold")
    classifier.save_pretrained(run)
    languages = stated({"configuration": configuration})["language"]
    metrics[shown] |= fairness_scores(
        parts[shown], evaluation, classifier.predict, metrics[shown], languages, quoted=quoted
    )
    samples = confident_mistakes(parts[shown], class_results(outputs[shown]), mistakes if quoted else 0)
    telling = classifier.telling(features) if quoted else {}
    kind = configuration["features"]["kind"]
    sections = {name: configuration[name] for name in ("cleaning", "classifier")}
    if isinstance(classifier.features, EncoderFeatures):
        sections = {"classifier": sections["classifier"], "encoder": asdict(classifier.features.published)}
    else:
        name = "vectors" if kind == "vectors" else "features"
        sections[name] = configuration[name]
    results = {
        **run_facts(command.recipe, command.config, configuration, seed, command.argv),
        "publish": dict(publish),
        "selection": {"checkpoint": None, "settings": command.chosen_settings, **threshold_choice(metrics)},
        "data": {"name": train.name, "labels": train.labels, "parts": part_facts(parts)},
        "model": {
            "features": kind,
            "dimensions": classifier.weights.shape[1],
            "parameters": classifier.parameters,
            "sections": sections,
        },
        "metrics": metrics,
        "training": {
            "steps": classifier.iterations,  # iterations of the solver
            "wall_time_seconds": round(seconds, 2),  # includes cleaning and features
            "texts_per_second": round(len(train) / seconds),
        },
        "telling": telling,
        "neighbours": neighbours(classifier.features.keyed_vectors, words)
        if isinstance(classifier.features, TextVectors) and publish["texts"] != "none"
        else {},
        "samples": samples,
        "short_text": min((item.text for item in parts[shown]), key=len) if quoted else "This is an example.",
    }
    results["versions"] |= {name: version(name) for name in PACKAGES}
    pictures = [confusion_picture(metrics[shown], train.labels, title)]
    publish_run(command, results, summary(run, metrics), pictures=pictures)
