"""Scores of tasks whose answers are written as text (Raffel et al. 2020, section 2.3)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.metrics import f1_score, mean_squared_error
from transformers import EvalPrediction, PreTrainedTokenizerBase

from ..data.pairs import Pair
from ..data.tasks import LIKELIHOOD
from ..errors import UserError
from ..extras import optional
from .checks import check_examples
from .language_model import IGNORED, perplexity
from .regression import correlations
from .translation import corpus_scores, decode_generated

ROUGE = ("rouge1", "rouge2", "rougeL")
MAIN_ROUGE = "rouge2"  # as in Raffel et al. 2020
NO_NUMBER = -1.0  # what an output that is not a number counts as (in the authors' code)


def number_of(text: str) -> float | None:
    """Return the number that a text is, or None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def task_scores(
    metric: str, outputs: Sequence[str], references: Sequence[str], labels: Sequence[str] = ()
) -> dict[str, Any]:
    """Score the outputs of a task.

    Args:
        metric: "accuracy", "spearman", "bleu", "rouge" or "exact_match".
        outputs, references: (n,) texts.
        labels: the outputs that are answers, for "accuracy".

    Returns:
        For "accuracy": ``accuracy``, the share of outputs that are the right label, macro ``f1`` over the labels that
        occur, and ``invalid``, the share of outputs that are not a label. For "spearman": ``spearman`` and ``pearson``
        of the numbers, ``mean_squared_error``, and ``invalid``; an output that is not a number counts as -1. For
        "rouge": those of ``rouge_scores``. For "bleu": ``bleu``, ``chrf`` and their ``signatures``. For the last three,
        ``exact_match``.

    Raises:
        UserError: the arguments differ in length or are empty.
    """
    check_examples(outputs=outputs, references=references)
    right = sum(output == reference for output, reference in zip(outputs, references, strict=True)) / len(references)
    if metric == "accuracy":
        known, written = set(labels), {*outputs, *references}
        occurring = [label for label in labels if label in written]
        return {
            "accuracy": right,
            "f1": float(f1_score(references, outputs, labels=occurring, average="macro", zero_division=0)),
            "invalid": sum(output not in known for output in outputs) / len(outputs),
        }
    if metric == "spearman":
        found = [number_of(output) for output in outputs]
        predicted = [NO_NUMBER if number is None else number for number in found]
        truth = [float(reference) for reference in references]
        return {
            **correlations(predicted, truth),
            "mean_squared_error": float(mean_squared_error(truth, predicted)),
            "invalid": found.count(None) / len(found),
        }
    if metric == "exact_match":
        return {"exact_match": right}
    if metric == "rouge":
        return {**rouge_scores(outputs, references), "exact_match": right}
    scores, signatures = corpus_scores(outputs, [references])
    return {"signatures": signatures, **scores, "exact_match": right}


def rouge_scores(outputs: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return ROUGE-1, ROUGE-2 and ROUGE-L (Lin 2004): the shared words, pairs of words and longest subsequence.

    They are computed by rouge-score with Porter's stemmer for English: a word is made of the letters a to z and digits.

    Args:
        outputs, references: (n,) texts.

    Returns:
        ``rouge1``, ``rouge2`` and ``rougeL``, each the mean of the F1 of the texts, from 0 to 1.
    """
    scorer = optional("rouge", "rouge_score.rouge_scorer").RougeScorer(ROUGE, use_stemmer=True)
    found = [scorer.score(reference, output) for output, reference in zip(outputs, references, strict=True)]
    return {name: sum(scores[name].fmeasure for scores in found) / len(found) for name in ROUGE}


def check_answers(tokenizer: PreTrainedTokenizerBase, answers: Mapping[str, Sequence[str]]) -> None:
    """Check that a tokenizer can write the labels of tasks, with which outputs are compared.

    Args:
        tokenizer: the tokenizer.
        answers: the labels of each task whose metric is accuracy.

    Raises:
        UserError: it writes a label otherwise, so that no output would be right.
    """
    for name, labels in answers.items():
        for label in labels:
            written = tokenizer.decode(tokenizer(label).input_ids, skip_special_tokens=True)
            if written != label:
                raise UserError(
                    f"The tokenizer writes the label {label!r} of {name} as {written!r}, so no output would be right; "
                    f"write another name for it (data.tasks.{name}.rename_labels), or another tokenizer."
                )


def main_score(metric: str, scores: Mapping[str, Any]) -> float:
    """Return the score of a task as a number of at most 1: BLEU / 100, and the token accuracy of a likelihood."""
    if metric == "bleu":
        return float(scores["bleu"]) / 100
    return float(scores[{LIKELIHOOD: "token_accuracy", "rouge": MAIN_ROUGE}.get(metric, metric)])


class TaskScores:
    """A ``compute_metrics`` for ``ReliableSeq2SeqTrainer`` with ``TrainingArguments(batch_eval_metrics=True)``.

    Returns ``nats_per_token``, ``perplexity`` and ``token_accuracy`` of all examples and, with its name as a prefix, of
    each task; if the trainer generates (``predict_with_generate``), also the scores of each task and ``score``, the
    mean of their main scores.

    Args:
        tokenizer: the tokenizer.
        metrics: the metric of each task.
        labels: the answers of each task whose metric is accuracy.

    Attributes:
        examples: the examples of the dataset that is evaluated next, in order; the kind of each is its task. Outputs
            are compared with their targets as they are, and not as the tokenizer writes them.
        of_tasks: the scores of each task in the last evaluation.
        outputs: the generated texts of each task in the last evaluation, in order; none if nothing was generated.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, metrics: Mapping[str, str], labels: Mapping[str, Sequence[str]]
    ) -> None:
        self.tokenizer, self.metrics, self.labels = tokenizer, metrics, labels
        self.examples: Sequence[Pair] = ()
        self.of_tasks: dict[str, dict[str, Any]] = {}
        self.outputs: dict[str, list[str]] = {}
        self._reset()

    def _reset(self) -> None:
        self.counts: list[tuple[float, int, int]] = []  # nats, right tokens and tokens of each example
        self.texts: list[str] = []

    def __call__(self, prediction: EvalPrediction, compute_result: bool) -> dict[str, float]:
        labels = torch.as_tensor(prediction.label_ids)
        predicted, nats, *generated = (torch.as_tensor(tensor) for tensor in prediction.predictions)
        real = labels != IGNORED
        each = (torch.where(real, nats.double(), 0.0).sum(1), ((predicted == labels) & real).sum(1), real.sum(1))
        self.counts += zip(*(column.tolist() for column in each), strict=True)
        if generated:
            self.texts += decode_generated(self.tokenizer, generated[0].cpu())
        if not compute_result:
            return {}
        self.of_tasks, self.outputs = {}, {}
        counts = np.array(self.counts)
        for task in dict.fromkeys(pair.kind for pair in self.examples):
            rows = [i for i, pair in enumerate(self.examples) if pair.kind == task]
            scores: dict[str, Any] = _likelihood(counts[rows])
            self.outputs[task] = [self.texts[i] for i in rows] if self.texts else []
            if self.texts and self.metrics[task] != LIKELIHOOD:
                targets = [self.examples[i].target for i in rows]
                scores |= task_scores(self.metrics[task], self.outputs[task], targets, self.labels.get(task, ()))
            self.of_tasks[task] = {**scores, "examples": len(rows)}
        found = _likelihood(counts)
        if self.texts or {self.metrics[task] for task in self.of_tasks} == {LIKELIHOOD}:
            mains = [main_score(self.metrics[task], scores) for task, scores in self.of_tasks.items()]
            found["score"] = sum(mains) / len(mains)
        self._reset()
        flat = {
            f"{task}_{name}": value
            for task, scores in self.of_tasks.items()
            for name, value in scores.items()
            if isinstance(value, float)
        }
        return {**flat, **found}


def _likelihood(counts: np.ndarray) -> dict[str, float]:
    """Return the scores of the right tokens from the counts (n, 3) of examples."""
    nats, right, tokens = counts.sum(0).tolist()
    mean = nats / tokens
    return {"nats_per_token": mean, "perplexity": perplexity(mean), "token_accuracy": right / tokens}
