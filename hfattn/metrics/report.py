"""What a classifier's run says of its scores: class by class, slice by slice, its worst mistakes."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from huggingface_hub.dataclasses import strict
from transformers.trainer_utils import PredictionOutput

from ..errors import UserError
from .classification import Accuracy, ConfusionMatrix
from .slices import column_slices, length_slices, scores_by_slice, word_slices

if TYPE_CHECKING:
    from ..data import LabelledTexts

LONGEST_SHOWN = 400  # characters of a text in a table


@strict
@dataclass
class ClassifierEvaluationConfig:
    """The section ``evaluation`` of recipes for classifiers."""

    columns: list[str] = field(default_factory=list)  # of the data: a slice for each value
    words: list[str] = field(default_factory=list)  # a slice for the texts that hold the word
    counterfactual_texts: int = 2000  # in which words are swapped that should not matter; 0 is none
    swaps: str | None = None  # a YAML file of your own with kinds of words to swap; null: gender, country, name

    def validate_sizes(self) -> None:
        if self.counterfactual_texts < 0:
            raise ValueError(
                f"counterfactual_texts is {self.counterfactual_texts}; write a whole number, or 0 for none."
            )


def check_columns(columns: Sequence[str], texts: "LabelledTexts") -> None:
    """Make sure that the data have the columns that are to be evaluated value by value.

    Raises:
        UserError: they lack one.
    """
    known = texts.items[0].fields
    for column in columns:
        if column not in known:
            raise UserError(
                f"evaluation.columns names {column!r}, and beside text and label {texts.name} has "
                f"{', '.join(known) or 'no column'}; write one of these, or leave it out."
            )


class ClassResults(NamedTuple):
    """Of each of n texts the predicted and the right class (n,), and the latter's negative log-likelihood (n,)."""

    predicted: np.ndarray
    right: np.ndarray
    nats: np.ndarray


def class_results(output: PredictionOutput) -> ClassResults:
    """Take a ``Trainer.predict`` with ``class_statistics`` apart."""
    predicted, nats = (np.asarray(each) for each in output.predictions[:2])
    return ClassResults(predicted.astype(int), np.asarray(output.label_ids).reshape(-1).astype(int), nats)


def classification_report(
    texts: "LabelledTexts", results: ClassResults, evaluation: ClassifierEvaluationConfig
) -> dict[str, Any]:
    """``confusion``, and the accuracy ``by_slice``: of the length, of the class, of columns and of words.

    Args:
        texts: n of them.
        results: of these.
        evaluation: which columns and words.
    """
    predicted, right = results.predicted.tolist(), results.right.tolist()
    joined = [" ".join(texts.texts(item)) for item in texts]
    slices = length_slices(joined) | column_slices("class", [texts.labels[label] for label in right])
    for column in evaluation.columns:
        slices |= column_slices(column, [item.fields[column] for item in texts])
    slices |= word_slices(joined, evaluation.words)
    confusion = ConfusionMatrix().compute(predictions=predicted, references=right, num_classes=len(texts.labels))
    return {
        "confusion": confusion["confusion_matrix"],
        "by_slice": scores_by_slice(Accuracy(), predicted, right, slices),
    }


def confident_mistakes(texts: "LabelledTexts", results: ClassResults, number: int) -> list[dict[str, Any]]:
    """The texts whose right class the model thought least of, the worst first.

    Args:
        texts: n of them.
        results: of these.
        number: how many to return.
    """
    predicted, right, nats = results
    wrong = np.flatnonzero(predicted != right)
    return [
        {
            "place": texts.place(i),
            "text": " | ".join(
                textwrap.shorten(text, LONGEST_SHOWN, placeholder=" …") for text in texts.texts(texts.items[i])
            ),
            "right": texts.labels[right[i]],
            "predicted": texts.labels[predicted[i]],
            "probability of the right class": f"{np.exp(-nats[i]):.2g}",
        }
        for i in wrong[np.argsort(-nats[wrong], kind="stable")][:number].tolist()
    ]


def classification_summary(run: Path, results: Mapping[str, Any]) -> str:
    """The end of a run in words: its scores, where they are lowest, what moves it that should not, where it is."""
    lines = ["", f"{'':16}{'texts':>8}{'accuracy':>10}{'F1':>10}{'nats/text':>11}"]
    for part, score in results["metrics"].items():
        lines.append(
            f"{part:16}{score['examples']:8d}{score['accuracy']:10.4f}{score['f1']:10.4f}{score['nats_per_example']:11.4f}"
        )
    shown = results["metrics"].get("test") or results["metrics"]["validation"]
    lines += ["", f"{'slice':24}{'texts':>8}{'accuracy':>10}"]
    lines += [
        f"{name:24}{score['examples']:8d}{score['accuracy']:10.4f}"
        for name, score in shown["by_slice"].items()
        if score["examples"]
    ]
    for kind, moved in shown.get("counterfactual", {}).items():
        if moved["texts"]:
            lines.append(
                f"{kind} swapped in {moved['texts']} texts: {moved['flipped']:.2%} of the predictions flip, "
                f"their probabilities move by {moved['mean_shift']:.4f}"
            )
    return "\n".join([*lines, "", f"Model, results, curve and pictures: {run}"])


__all__ = [
    "LONGEST_SHOWN",
    "ClassResults",
    "ClassifierEvaluationConfig",
    "check_columns",
    "class_results",
    "classification_report",
    "classification_summary",
    "confident_mistakes",
]
