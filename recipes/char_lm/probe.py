"""Fit a linear probe for sentiment to the states of a trained character model (Radford et al. 2017, arXiv 1704.01444).

accelerate launch recipes/char_lm/probe.py runs/char_lm-strong --dataset imdb.train.jsonl --test imdb.test.jsonl
accelerate launch recipes/char_lm/probe.py runs/char_lm-strong --dataset sst2.train.tsv --test sst2.dev.tsv \\
    --text_column sentence
accelerate launch recipes/char_lm/probe.py runs/char_lm-strong --dataset stanfordnlp/imdb --test test
"""

import argparse
import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import PartialState

from hfattn import CharRNNForCausalLM
from hfattn.data import LabeledDataConfig, LabeledTexts
from hfattn.errors import UserError, one_sentence
from hfattn.files import write_json, writing
from hfattn.loading import load_language_model
from hfattn.metrics import Accuracy
from hfattn.models.strict_config import own_fields
from hfattn.probe import Probe, Probed, final_states, fit_probe, fold_texts, plot_unit
from hfattn.training import run_facts
from hfattn.training.config import checked

RECIPE = "char_lm"


# Configuration


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("model", help="folder or Hub id of a trained char_lm")
    parser.add_argument("--dataset", required=True, help="labeled texts: .jsonl, .tsv with a header, or a Hub dataset")
    parser.add_argument("--validation", help="another file, or split of the Hub dataset (default: a tenth of dataset)")
    parser.add_argument("--test", required=True, help="another file, or split of the Hub dataset")
    parser.add_argument("--text_column", default="text")
    parser.add_argument("--label_column", default="label")
    parser.add_argument("--labels", nargs="+", help="names of the two classes, from class 0 on")
    parser.add_argument("--config", help="configuration of the Hub dataset")
    parser.add_argument("--hub_split", default="train", help="split of the Hub dataset to train on")
    parser.add_argument("--revision", help="revision of the Hub dataset")
    parser.add_argument("--max_tokens", type=int, default=65_536, help="characters per batch")
    parser.add_argument("--seed", type=int, default=1, help="seed of the split and the solver")
    parser.add_argument("--output_dir", type=Path, help="run folder (default runs/char_lm-probe-<model>)")
    arguments = parser.parse_args()
    if arguments.max_tokens < 1:
        raise UserError(f"max_tokens is {arguments.max_tokens}; write a whole number of at least 1.")
    arguments.output_dir = arguments.output_dir or Path("runs") / f"{RECIPE}-probe-{Path(arguments.model).name}"
    if arguments.output_dir.exists() and not (
        arguments.output_dir.is_dir() and not any(arguments.output_dir.iterdir())
    ):
        raise UserError(f"{arguments.output_dir} exists already; choose another folder with --output_dir.")
    return arguments


def read_parts(arguments: argparse.Namespace) -> dict[str, LabeledTexts]:
    """Return the labeled texts of each part: train, validation, test."""
    fields = {
        each.name: getattr(arguments, each.name)
        for each in dataclasses.fields(LabeledDataConfig)
        if each.name in arguments
    }
    # The validation texts are drawn with --seed, and not by class.
    parts = checked(LabeledDataConfig, {**fields, "split_seed": None, "stratify": False}).read_parts(arguments.seed)
    whole = parts["train"]
    if len(whole.labels) != 2:
        raise UserError(f"{whole.name} has {len(whole.labels)} classes, and the probe needs two.")
    return parts


def main() -> None:
    arguments = parse_arguments()
    state = PartialState()
    if state.num_processes > 1:
        raise UserError("The probe runs in one process; launch it with --num_processes 1.")
    started = time.perf_counter()

    # Data: labeled texts in the characters of the model's vocabulary

    parts = read_parts(arguments)
    model, tokenizer = load_language_model(arguments.model)
    if not isinstance(model, CharRNNForCausalLM):
        raise UserError(
            f"{arguments.model} is a {model.config.model_type}, not a char_rnn; train one with the recipe char_lm."
        )
    folded = {part: fold_texts(texts, tokenizer) for part, texts in parts.items()}

    # Model: its states at the end of each text

    model.to(state.device)
    probed = {
        part: Probed(
            final_states(model, tokenizer, texts, arguments.max_tokens), np.array([item.label for item in texts])
        )
        for part, (texts, _) in folded.items()
    }

    # Evaluation: all units, the best unit, and the majority class

    probe = fit_probe(probed["train"], probed["validation"], arguments.seed)
    metrics = {part: scores(probe, *probed[part]) for part in ("validation", "test")}
    facts = {
        "data": {
            "name": parts["train"].name,
            "labels": parts["train"].labels,
            "parts": {part: {"texts": len(texts), "sha256": texts.fingerprint} for part, texts in parts.items()},
            # Characters outside the vocabulary, replaced by spaces: their share, and the most frequent ones.
            "replaced": {
                part: {
                    "share": sum(replaced.values()) / sum(parts[part].counts.values()),
                    "characters": dict(list(replaced.items())[:20]),
                }
                for part, (_, replaced) in folded.items()
            },
        },
        "model": {
            "name": Path(arguments.model).name,
            "parameters": model.num_parameters(),
            **{field.name: getattr(model.config, field.name) for field in own_fields(type(model.config))},
        },
        "metrics": metrics,
        "probe": {
            "units": len(probe.weights),
            "units_not_zero": probe.units,
            "C": probe.strength,
            "validation_accuracy_by_C": {str(strength): score for strength, score in probe.validation.items()},
            "unit": {
                "layer": probe.unit // model.config.hidden_size,
                "index": probe.unit % model.config.hidden_size,
                "weight": float(probe.weights[probe.unit]),
                "threshold": probe.threshold,
                "above": parts["train"].labels[probe.above],
            },
        },
        "wall_time_seconds": round(time.perf_counter() - started, 2),
    }

    # Publish

    run = arguments.output_dir
    run.mkdir(parents=True, exist_ok=True)
    with writing(run, "free some space and start again"):
        facts = {**run_facts(RECIPE, Path("probe"), vars(arguments), arguments.seed), **facts}
        publish(run, probe, probed["test"], facts)


def scores(probe: Probe, states: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Return the accuracy of all units, of the one unit and of the majority class."""
    guesses = {
        "accuracy": probe.predict(states),
        "unit_accuracy": probe.predict_by_unit(states),
        "majority": np.full_like(labels, np.bincount(labels).argmax()),
    }
    metric = Accuracy()
    measured = {
        name: metric.compute(predictions=guess, references=labels)["accuracy"] for name, guess in guesses.items()
    }
    return {**measured, "examples": len(labels)}


def publish(run: Path, probe: Probe, test: Probed, results: Mapping[str, Any]) -> None:
    """Write the results, and a picture of the values of the unit in the test texts."""
    unit, labels = results["probe"]["unit"], results["data"]["labels"]
    title = f"layer {unit['layer']}, unit {unit['index']} of {results['model']['name']}"
    plot_unit(run / "unit.png", test.states[:, probe.unit], test.labels, labels, probe.threshold, title)
    write_json(run / "results.json", results)
    print(summary(run, results))


def summary(run: Path, results: Mapping[str, Any]) -> str:
    """Return the scores and the unit as text."""
    probe, replaced = results["probe"], results["data"]["replaced"]["test"]
    lines = ["", f"{'':12}{'texts':>8}{'all units':>12}{'one unit':>12}{'majority':>12}"]
    for part, score in results["metrics"].items():
        lines.append(
            f"{part:12}{score['examples']:8d}{score['accuracy']:12.4f}{score['unit_accuracy']:12.4f}"
            f"{score['majority']:12.4f}"
        )
    unit = probe["unit"]
    characters = " ".join(map(repr, replaced["characters"]))
    return "\n".join(
        [
            *lines,
            "",
            f"Units with a weight: {probe['units_not_zero']} of {probe['units']}, with C = {probe['C']}.",
            f"Best unit: {unit['index']} of layer {unit['layer']}, {unit['above']} above {unit['threshold']:.4f}.",
            f"Characters of the test texts outside the vocabulary: {replaced['share']:.4%} {characters}".rstrip(),
            f"Results and picture: {run}",
        ]
    )


if __name__ == "__main__":
    with one_sentence():
        main()
