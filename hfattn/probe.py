"""Linear probe on the states of a recurrent language model, and its best single unit.

Radford et al. 2017, "Learning to generate reviews and discovering sentiment" (arXiv 1704.01444), train a recurrent
model to predict the next byte of product reviews. A linear classifier on its state at the end of a text then separates
positive from negative reviews, and a single unit is nearly sufficient.

Shapes: N texts, U units.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import DataCollatorWithPadding, PreTrainedModel, PreTrainedTokenizerBase

from .data import EncodedTexts, LabeledTexts, TokenBatches
from .errors import UserError
from .explaining.units import unit_states
from .tokenizers import uncovered_characters

# Values of C (inverse weight of the L1 term) in the code of the paper.
STRENGTHS = tuple(2.0**exponent for exponent in range(-8, 1))


def fold_texts(texts: LabeledTexts, tokenizer: PreTrainedTokenizerBase) -> tuple[LabeledTexts, dict[str, int]]:
    """Replace characters outside a character model's vocabulary, and put a newline before each text.

    An unknown character becomes a space. Spaces and newlines that are not in the vocabulary are left out.

    Returns:
        The texts, and the number of replacements of each character, the most frequent first.
    """
    missing = set(uncovered_characters(tokenizer, [*texts.counts, "\n", " "]))
    table = str.maketrans(dict.fromkeys(missing, "" if " " in missing else " "))
    begin = "" if "\n" in missing else "\n"
    items = [item._replace(text=begin + item.text.translate(table)) for item in texts]
    replaced = {character: count for character, count in texts.counts.most_common() if character in missing}
    return replace(texts, items=items), replaced


@torch.inference_mode()
def final_states(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: LabeledTexts, max_tokens: int = 65_536
) -> np.ndarray:
    """Return the units of the last state of each text (``unit_states``), layers concatenated.

    Args:
        model: a char_rnn in evaluation mode.
        tokenizer: its tokenizer.
        texts: N texts in characters of its vocabulary (``fold_texts``).
        max_tokens: characters per batch, padding included; more if one text is longer.

    Returns:
        (N, U) in float32, U = layers * hidden size.
    """
    encoded = EncodedTexts(texts, tokenizer, max_length=sys.maxsize)
    collate = DataCollatorWithPadding(tokenizer)
    states = np.empty((len(texts), sum(model.config.layer_sizes)), np.float32)
    for indices in TokenBatches(encoded.lengths, max(max_tokens, encoded.lengths.max()), seed=0):
        batch = collate([{"input_ids": encoded[i]["input_ids"]} for i in indices]).to(model.device)
        cache = model.base_model(**batch, use_cache=True).past_key_values
        states[indices] = unit_states(cache)
    return states


class Probed(NamedTuple):
    """States of texts, and the class of each text."""

    states: np.ndarray  # (N, U)
    labels: np.ndarray  # (N,)


@dataclass(frozen=True)
class Probe:
    """A logistic regression on all units, and a threshold on the unit with the largest weight.

    Args:
        weights: (U,). Class 1 is predicted where ``states @ weights + bias`` is above 0.
        bias: bias of the regression.
        strength: the chosen value of C.
        validation: accuracy on the validation texts for each C.
        unit: index of the unit with the largest absolute weight.
        threshold: threshold on the value of this unit.
        above: class of the texts above the threshold.
    """

    weights: np.ndarray
    bias: float
    strength: float
    validation: dict[float, float]
    unit: int
    threshold: float
    above: int

    @property
    def units(self) -> int:
        """Number of units with a nonzero weight."""
        return int((self.weights != 0).sum())

    def predict(self, states: np.ndarray) -> np.ndarray:
        """Return the classes (N,) predicted from all units."""
        return (states @ self.weights + self.bias > 0).astype(np.int64)

    def predict_by_unit(self, states: np.ndarray) -> np.ndarray:
        """Return the classes (N,) predicted from the best unit."""
        return np.where(states[:, self.unit] > self.threshold, self.above, 1 - self.above)


def fit_probe(train: Probed, validation: Probed, seed: int, strengths: Sequence[float] = STRENGTHS) -> Probe:
    """Fit a logistic regression with an L1 penalty, chosen on the validation texts (section 3.2).

    Args:
        train: data for the weights and the threshold.
        validation: data for the choice of C; if scores are equal, the first in ``strengths`` is chosen.
        seed: seed of the solver.
        strengths: values of C, the inverse weight of the penalty, from the strongest penalty to the weakest.

    Raises:
        UserError: the training texts are all of one class, or all weights are 0.
    """
    from sklearn.linear_model import LogisticRegression

    if len(set(train.labels.tolist())) < 2:
        raise UserError("The training texts are all of one class; give texts of both.")
    fits = {}
    for strength in strengths:
        fits[strength] = LogisticRegression(C=strength, l1_ratio=1.0, solver="liblinear", random_state=seed)
        fits[strength].fit(train.states, train.labels)
    scores = {strength: float(fit.score(validation.states, validation.labels)) for strength, fit in fits.items()}
    best = max(scores, key=scores.__getitem__)
    weights = fits[best].coef_[0]
    if not weights.any():
        raise UserError(
            "All weights of the probe are 0, so no unit separates the classes; give more texts, or another model."
        )
    unit = int(np.abs(weights).argmax())
    threshold, above = unit_threshold(train.states[:, unit], train.labels)
    return Probe(weights, float(fits[best].intercept_[0]), best, scores, unit, threshold, above)


def unit_threshold(values: np.ndarray, labels: np.ndarray) -> tuple[float, int]:
    """Return the threshold with the highest accuracy for two classes, and the class above it.

    Args:
        values: (N,).
        labels: (N,) 0 or 1.
    """
    order = np.argsort(values, kind="stable")
    values, labels = values[order], labels[order]
    # Possible thresholds: before each value that differs from the one before it, and after the last.
    ones_below = np.concatenate([[0], np.cumsum(labels)])
    below = np.arange(len(labels) + 1)
    right = (below - ones_below) + (labels.sum() - ones_below)  # accuracy if class 1 is above the threshold
    distinct = np.concatenate([[True], values[1:] > values[:-1], [True]])
    edges = np.concatenate([[values[0] - 1], (values[1:] + values[:-1]) / 2, [values[-1] + 1]])
    above_one, above_zero = np.where(distinct, right, -1), np.where(distinct, len(labels) - right, -1)
    if above_one.max() >= above_zero.max():
        return float(edges[above_one.argmax()]), 1
    return float(edges[above_zero.argmax()]), 0


def plot_unit(
    path: Path, values: np.ndarray, labels: np.ndarray, names: Sequence[str], threshold: float, title: str
) -> None:
    """Draw a histogram of the values of a unit for each class, as PNG (figure 3 of the paper).

    Args:
        path: the PNG file.
        values: (N,) values of the unit.
        labels: (N,) class indices.
        names: names of the classes.
        threshold: threshold to draw as a line.
        title: title of the picture.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    edges = np.linspace(values.min(), values.max(), 61).tolist()
    style: dict[str, Any] = {"parse_math": False}  # a label may contain "$"
    for number, name in enumerate(names):
        axes.hist(values[labels == number], edges, alpha=0.6, label=name)
    axes.axvline(threshold, color="0.3", linestyle="--", linewidth=1, label="threshold")
    axes.set(xlabel="value of the unit at the end of a text", ylabel="texts")
    axes.set_title(title, **style)
    for text in axes.legend().get_texts():
        text.set_parse_math(False)
    figure.savefig(path, dpi=150)
