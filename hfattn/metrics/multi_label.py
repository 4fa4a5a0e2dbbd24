"""Metrics of multi-label classification: each text has any number of labels."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.metrics import f1_score, precision_recall_fscore_support
from transformers import EvalPrediction

from .classification import Accuracy
from .slices import column_slices, length_slices, scores_by_slice, word_slices

if TYPE_CHECKING:
    from ..data import LabeledTexts


def label_logits(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the logits (B, C) in float32; a ``preprocess_logits_for_metrics`` for several labels."""
    return logits.float()


def label_probabilities(logits: np.ndarray) -> np.ndarray:
    """Return the probability (n, C) of each label, the sigmoid of its logit, in float64."""
    return torch.from_numpy(np.asarray(logits, dtype=np.float64)).sigmoid().numpy()


def multi_label_scores(logits: np.ndarray, right: np.ndarray, thresholds: np.ndarray | float = 0.5) -> dict[str, Any]:
    """Return the scores of n texts.

    Args:
        logits: (n, C).
        right: (n, C) of 1 for each label of a text and 0 for the others.
        thresholds: (C,), or one for all: a label is predicted if its probability reaches it.

    Returns:
        ``accuracy``, the share of the texts whose labels are all predicted and no other; ``f1``, over all pairs of a
        text and a label (micro); ``macro_f1``, the mean over the labels, where a label without correct predictions has
        0; ``nats_per_example``, the negative log-likelihood of all C decisions on a text; and the number of
        ``examples``.
    """
    targets = torch.from_numpy(np.asarray(right, dtype=np.float64))
    wide = torch.from_numpy(np.asarray(logits, dtype=np.float64))
    nats = torch.nn.functional.binary_cross_entropy_with_logits(wide, targets, reduction="sum")
    predicted, hot = label_probabilities(logits) >= thresholds, np.asarray(right) > 0.5
    return {
        "accuracy": float((predicted == hot).all(1).mean()),
        "f1": float(f1_score(hot, predicted, average="micro", zero_division=0)),
        "macro_f1": float(f1_score(hot, predicted, average="macro", zero_division=0)),
        "nats_per_example": float(nats) / len(hot),
        "examples": len(hot),
    }


class MultiLabelScores:
    """A ``compute_metrics`` for several labels, evaluated with ``label_logits``.

    For ``TrainingArguments(batch_eval_metrics=True)``: collects the logits of the batches and returns, at the last one,
    ``multi_label_scores`` with the threshold 0.5.
    """

    def __init__(self) -> None:
        self.logits: list[np.ndarray] = []
        self.right: list[np.ndarray] = []

    def __call__(self, prediction: EvalPrediction, compute_result: bool) -> dict[str, float]:
        self.logits.append(np.asarray(prediction.predictions))
        self.right.append(np.asarray(prediction.label_ids))
        if not compute_result:
            return {}
        scores = multi_label_scores(np.concatenate(self.logits), np.concatenate(self.right))
        self.logits, self.right = [], []
        return scores


def best_thresholds(logits: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return for each label the threshold (C,) of its probability that has the highest F1.

    Choose them on texts that are not reported. A threshold is in the middle between two probabilities that occur; of
    several with the same F1 it is the highest. It is 0.5 for a label that no text has.

    Args:
        logits, right: as in ``multi_label_scores``.
    """
    probabilities, thresholds = label_probabilities(logits), []
    for of_label, hot in zip(probabilities.T, np.asarray(right).T > 0.5, strict=True):
        order = np.argsort(-of_label, kind="stable")
        found, hits = np.append(of_label[order], 0.0), hot[order].cumsum()
        f1 = 2 * hits / (np.arange(1, len(hits) + 1) + hot.sum())
        f1[found[:-1] == found[1:]] = -1.0  # no threshold is between equal probabilities
        best = int(f1.argmax())
        thresholds.append((found[best] + found[best + 1]) / 2 if hot.any() else 0.5)
    return np.array(thresholds)


def multi_label_report(
    texts: "LabeledTexts",
    logits: np.ndarray,
    thresholds: np.ndarray,
    columns: Sequence[str] = (),
    words: Sequence[str] = (),
) -> dict[str, Any]:
    """Return ``multi_label_scores``, the scores ``by_label``, and the accuracy ``by_slice``: by length, columns, words.

    Args:
        texts: n texts with several labels.
        logits: (n, C) for these texts.
        thresholds: (C,).
        columns, words: columns of the data and words that define slices.

    Returns:
        The scores; ``by_label`` has the number of ``examples`` with the label, ``predicted`` ones, ``precision``,
        ``recall`` and ``f1``, of which those without a denominator are 0.
    """
    right = np.array([item.target for item in texts])
    predicted, hot = label_probabilities(logits) >= thresholds, right > 0.5
    precision, recall, f1, examples = precision_recall_fscore_support(hot, predicted, average=None, zero_division=0)
    joined = [" ".join(texts.texts(item)) for item in texts]
    slices = length_slices(joined) | word_slices(joined, words)
    for column in columns:
        slices |= column_slices(column, [item.fields[column] for item in texts])
    exact = (predicted == hot).all(1).astype(int).tolist()
    return {
        **multi_label_scores(logits, right, thresholds),
        "by_label": {
            label: {
                "examples": int(examples[i]),
                "predicted": int(predicted[:, i].sum()),
                "precision": float(precision[i]),
                "recall": float(recall[i]),
                "f1": float(f1[i]),
            }
            for i, label in enumerate(texts.labels)
        },
        "by_slice": scores_by_slice(Accuracy(), exact, [1] * len(exact), slices),
    }
