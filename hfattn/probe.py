"""What the units of a language model know: a linear probe on its states, and a single unit (Radford et al. 2017).

"Learning to generate reviews and discovering sentiment" trains a recurrent model to predict the next byte of product
reviews. Its state at the end of a text then tells good reviews from bad ones, and most of that is in one unit.

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

from .data import EncodedTexts, LabelledTexts, TokenBatches
from .errors import UserError
from .explain.units import unit_states
from .tokenizers import uncovered_characters

# The strengths that the paper's code tries: the inverse of the weight of the L1 term.
STRENGTHS = tuple(2.0**exponent for exponent in range(-8, 1))


def fold_texts(texts: LabelledTexts, tokenizer: PreTrainedTokenizerBase) -> tuple[LabelledTexts, dict[str, int]]:
    """Texts in the characters that a character model knows, each after the newline that ended the text before it.

    A character that its tokenizer neither encodes (lower-cased first, where it does that) nor has a symbol for becomes
    a space, or nothing where the model knows no space. The newline is left out of a model that knows none.

    Returns:
        The texts, and how often each character was replaced, the most frequent first.
    """
    missing = set(uncovered_characters(tokenizer, [*texts.counts, "\n", " "]))
    table = str.maketrans(dict.fromkeys(missing, "" if " " in missing else " "))
    begin = "" if "\n" in missing else "\n"
    items = [item._replace(text=begin + item.text.translate(table)) for item in texts]
    replaced = {character: count for character, count in texts.counts.most_common() if character in missing}
    return replace(texts, items=items), replaced


@torch.inference_mode()
def final_states(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: LabelledTexts, max_tokens: int = 65_536
) -> np.ndarray:
    """The units of each text's last state (``unit_states``), the layers one beside the other.

    Args:
        model: a char_rnn, in evaluation mode.
        tokenizer: its tokenizer; it has to know all characters (``fold_texts``).
        texts: N texts.
        max_tokens: characters that are read at a time, padding included; more where a text is longer.

    Returns:
        (N, U) in float32, U = layers * hidden size.
    """
    encoded = EncodedTexts(texts, tokenizer, max_length=sys.maxsize)
    collate = DataCollatorWithPadding(tokenizer)
    states = np.empty((len(texts), model.config.num_hidden_layers * model.config.hidden_size), np.float32)
    for indices in TokenBatches(encoded.lengths, max(max_tokens, encoded.lengths.max()), seed=0):
        batch = collate([{"input_ids": encoded.ids[i]} for i in indices]).to(model.device)
        cache = model.base_model(**batch, use_cache=True).past_key_values
        states[indices] = unit_states(cache)
    return states


class Probed(NamedTuple):
    """The states of texts, and which of two classes each text is of."""

    states: np.ndarray  # (N, U)
    labels: np.ndarray  # (N,)


@dataclass(frozen=True)
class Probe:
    """A logistic regression on all units, and the unit of its largest weight with a threshold of its own.

    Args:
        weights: (U,), and ``bias``: class 1 is predicted where ``states @ weights + bias`` is above 0.
        strength: the C that was chosen.
        validation: accuracy on the validation texts for each C.
        unit: the unit whose weight is furthest from 0.
        threshold: of that unit: above it a text is of class ``above``.
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
        """Number of units that the regression reads."""
        return int((self.weights != 0).sum())

    def predict(self, states: np.ndarray) -> np.ndarray:
        """Classes (N,) from all units."""
        return (states @ self.weights + self.bias > 0).astype(np.int64)

    def predict_by_unit(self, states: np.ndarray) -> np.ndarray:
        """Classes (N,) from the one unit."""
        return np.where(states[:, self.unit] > self.threshold, self.above, 1 - self.above)


def fit_probe(train: Probed, validation: Probed, seed: int, strengths: Sequence[float] = STRENGTHS) -> Probe:
    """Fit a logistic regression with an L1 penalty, as strong as is best on the validation texts (section 3.2).

    Args:
        train: what the weights and the threshold are fitted on.
        validation: what the strength is chosen on; the strongest of equals.
        seed: of the solver.
        strengths: values of C, the inverse of the penalty's weight, from the strongest penalty to the weakest.

    Raises:
        UserError: the training texts are all of one class, or no unit carries a weight.
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
        raise UserError("No unit tells the classes apart better than none at all; give more texts, or another model.")
    unit = int(np.abs(weights).argmax())
    threshold, above = best_threshold(train.states[:, unit], train.labels)
    return Probe(weights, float(fits[best].intercept_[0]), best, scores, unit, threshold, above)


def best_threshold(values: np.ndarray, labels: np.ndarray) -> tuple[float, int]:
    """The threshold that tells two classes apart best by one number, and the class above it.

    Args:
        values: (N,).
        labels: (N,) 0 or 1.
    """
    order = np.argsort(values, kind="stable")
    values, labels = values[order], labels[order]
    # A cut before each value, and one after the last; only between values that differ.
    ones_below = np.concatenate([[0], np.cumsum(labels)])
    below = np.arange(len(labels) + 1)
    right = (below - ones_below) + (labels.sum() - ones_below)  # where class 1 is above
    distinct = np.concatenate([[True], values[1:] > values[:-1], [True]])
    edges = np.concatenate([[values[0] - 1], (values[1:] + values[:-1]) / 2, [values[-1] + 1]])
    above_one, above_zero = np.where(distinct, right, -1), np.where(distinct, len(labels) - right, -1)
    if above_one.max() >= above_zero.max():
        return float(edges[above_one.argmax()]), 1
    return float(edges[above_zero.argmax()]), 0


def plot_unit(
    path: Path, values: np.ndarray, labels: np.ndarray, names: Sequence[str], threshold: float, title: str
) -> None:
    """Draw how the values of a unit are spread in each class, as PNG (figure 3 of the paper).

    Args:
        path: the PNG file.
        values: (N,).
        labels: (N,) numbers of the classes.
        names: of the classes.
        threshold: drawn as a line.
        title: a line above.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    edges = np.linspace(values.min(), values.max(), 61).tolist()
    style: dict[str, Any] = {"parse_math": False}  # a label may spell "$x"
    for number, name in enumerate(names):
        axes.hist(values[labels == number], edges, alpha=0.6, label=name)
    axes.axvline(threshold, color="0.3", linestyle="--", linewidth=1, label="threshold")
    axes.set(xlabel="value of the unit at the end of a text", ylabel="texts")
    axes.set_title(title, **style)
    for text in axes.legend().get_texts():
        text.set_parse_math(False)
    figure.savefig(path, dpi=150)


__all__ = ["STRENGTHS", "Probe", "Probed", "best_threshold", "final_states", "fit_probe", "fold_texts", "plot_unit"]
