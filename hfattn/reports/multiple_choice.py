"""The report of the recipe multiple_choice."""

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers.trainer_utils import PredictionOutput

from ..data import Choices, EncodedChoices
from ..data.choices import Choice
from ..hub.fingerprints import synthetic_text
from ..metrics import Accuracy, ClassResults, class_results, column_slices, length_slices, scores_by_slice
from ..training import scores_of_part
from .base import TrainedRun, leave_behind, shown_part

LONGEST_SHOWN = 200  # characters of a text in a table


def report(
    run: TrainedRun,
    encoded: Mapping[str, EncodedChoices],
    outputs: Mapping[str, PredictionOutput],
    tuning: Mapping[str, Any],
    mistakes: int,
) -> None:
    """Save the model and write all other output files of the run.

    Args:
        run: the finished run.
        encoded: the questions of each part, training included.
        outputs: predictions for the other parts.
        tuning: facts about the model and what was trained, for ``results.json``.
        mistakes: number of mistakes to show.
    """
    shown = shown_part(encoded)
    run.save()
    metrics = {part: part_scores(encoded[part].questions, output, part) for part, output in outputs.items()}
    samples = confident_mistakes(
        encoded[shown], class_results(outputs[shown]), mistakes if run.texts == "samples" else 0
    )
    item = min(encoded[shown].questions, key=lambda item: len(" ".join((item.context, *item.choices))))
    if run.texts != "samples":
        text = synthetic_text(run.tokenizer)
        item = Choice(text, (text, text[:-1]), 0)
    probabilities = choice_probabilities(run, item.context, item.choices)
    sections = {
        "data": {
            "name": encoded["train"].questions.name,
            "max_length": encoded["train"].max_length,
            "choices": dict(sorted(Counter(str(len(each.choices)) for each in encoded["train"].questions).items())),
            "distractors": run.config.data.distractors,  # type: ignore[attr-defined]
            "parts": {
                part: {"questions": len(each), "sha256": each.questions.fingerprint} for part, each in encoded.items()
            },
        },
        "model": {"model_type": run.model.config.model_type, **tuning},
        "metrics": metrics,
        "training": run.training_facts("questions", len(encoded["train"])),
        "samples": samples,
        "own_code": any(run.folder.glob("modeling_*.py")),
        "example": {
            "context": item.context,
            "choices": list(item.choices),
            "chosen": item.choices[int(np.argmax(probabilities))],
            "probability": round(max(probabilities), 4),
        },
    }
    lines = ["", f"{'':16}{'questions':>10}{'accuracy':>10}{'chance':>10}{'nats/question':>15}"]
    lines += [
        f"{part:16}{score['examples']:10d}{score['accuracy']:10.4f}{score['chance']:10.4f}{score['nats_per_example']:15.4f}"
        for part, score in metrics.items()
    ]
    summary = "\n".join([*lines, "", f"Model, results, curve and table: {run.folder}"])
    texts = [(item.context, choice) for choice in item.choices[:2]]
    leave_behind(run, sections, summary, texts, loss="nats_per_example", loss_unit="nats per question")


@torch.inference_mode()
def choice_probabilities(run: TrainedRun, context: str, choices: Sequence[str]) -> list[float]:
    """Return the probability of each choice: the softmax of their scores."""
    inputs = run.tokenizer([context] * len(choices), list(choices), truncation=True, padding=True, return_tensors="pt")
    scores = run.model(**inputs.to(run.model.device)).logits[:, 0].float()
    probabilities: list[float] = scores.softmax(0).tolist()
    return probabilities


def part_scores(questions: Choices, output: PredictionOutput, part: str) -> dict[str, Any]:
    """Return accuracy, likelihood and chance of a part, and the accuracy by length and by number of choices."""
    results, items = class_results(output), questions.items
    slices = length_slices([item.context for item in items])
    slices |= column_slices("choices", [len(item.choices) for item in items])
    scores = {name: value for name, value in scores_of_part(output.metrics or {}, part).items() if name != "f1"}
    return {
        **scores,
        "chance": questions.chance,
        "by_slice": scores_by_slice(Accuracy(), results.predicted.tolist(), results.right.tolist(), slices),
    }


def confident_mistakes(dataset: EncodedChoices, results: ClassResults, number: int) -> list[dict[str, str]]:
    """Return wrongly answered questions whose right choice had the lowest probability, the lowest first."""
    wrong = np.flatnonzero(results.predicted != results.right)
    samples = []
    for i in wrong[np.argsort(-results.nats[wrong], kind="stable")][:number].tolist():
        item = dataset.questions.items[i]
        texts = {
            "context": item.context,
            "right": item.choices[item.label],
            "chosen": item.choices[results.predicted[i]],
        }
        samples.append(
            {
                "place": dataset.questions.place(i),
                **{name: textwrap.shorten(text, LONGEST_SHOWN, placeholder=" …") for name, text in texts.items()},
                "probability of the right choice": f"{np.exp(-results.nats[i]):.2g}",
            }
        )
    return samples
