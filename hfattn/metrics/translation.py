"""Metrics of translations: exact match, and BLEU and chrF by sacreBLEU.

BLEU is defined by Papineni et al. 2002, chrF by Popović 2015. Scores are comparable only between runs with the same
signature, which describes their computation (Post 2018, "A Call for Clarity in Reporting BLEU Scores").
"""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import datasets
import numpy as np
import torch
from sacrebleu.metrics import BLEU, CHRF
from transformers import EvalPrediction, PreTrainedTokenizerBase

from ..errors import UserError
from .checks import PairedMetric, check_examples
from .language_model import IGNORED, LanguageModelScores
from .slices import SENTENCE_EDGES, length_groups

RESAMPLES = 1000  # bootstrap samples for a confidence interval

References = Sequence[str] | Sequence[Sequence[str]]


class ExactMatch(PairedMetric):
    """Fraction of predicted texts that equal their reference exactly.

    ``compute(predictions=texts, references=texts)`` returns ``{"exact_match": ...}``, from 0 to 1.
    """

    prediction = datasets.Value("string")
    reference = datasets.Value("string")

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        correct = sum(prediction == reference for prediction, reference in zip(predictions, references, strict=True))
        return {"exact_match": correct / len(references)}


def reference_lists(references: References) -> list[list[str]]:
    """Return the references of each prediction as a list, even if each has only one.

    Raises:
        UserError: a prediction has no reference.
    """
    lists = [[one] if isinstance(one, str) else list(one) for one in references]
    if [] in lists:
        raise UserError(f"Prediction {lists.index([]) + 1} has no reference; give at least one for each.")
    return lists


def _columns(references: References) -> list[Any]:
    """Arrange references for sacreBLEU: the first of all predictions, then the second; None if one is missing."""
    return list(zip_longest(*reference_lists(references)))


def bleu_by_length(
    sources: Sequence[str],
    predictions: Sequence[str],
    references: References,
    edges: Sequence[int] = SENTENCE_EDGES,
) -> list[dict[str, Any]]:
    """Compute BLEU for groups of pairs with sources of similar length, as in figure 2 of Bahdanau et al. 2015.

    Args:
        sources: (n,) texts.
        predictions: (n,) their translations.
        references: (n,) their references, or a list of references for each.
        edges: smallest number of words of each group, ascending; words are separated by white space.

    Returns:
        For each group that is not empty: ``from`` and ``to`` in words (``to`` is None in the last group), the number of
        ``pairs``, and ``bleu`` from 0 to 100.

    Raises:
        UserError: the arguments differ in length or are empty, or a source belongs to no group.
    """
    check_examples(sources=sources, predictions=predictions, references=references)
    rows = []
    for low, high, mask in length_groups(sources, edges):
        kept = np.flatnonzero(mask).tolist()
        score = BLEU().corpus_score([predictions[i] for i in kept], _columns([references[i] for i in kept]))
        rows.append({"from": low, "to": high, "pairs": len(kept), "bleu": score.score})
    return rows


def corpus_scores(
    predictions: Sequence[str], columns: Sequence[Sequence[str]], metrics: Mapping[str, Any] | None = None
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the scores of predictions by sacreBLEU, from 0 to 100, and their signatures.

    Args:
        predictions: (n,) texts.
        columns: the references, a list (n,) for each of the references that a prediction has.
        metrics: the metrics, by name; by default "bleu" and "chrf".
    """
    metrics = {"bleu": BLEU(), "chrf": CHRF()} if metrics is None else metrics
    scores = {name: metric.corpus_score(predictions, columns).score for name, metric in metrics.items()}
    return scores, {name: str(metric.get_signature()) for name, metric in metrics.items()}


def translation_report(sources: Sequence[str], predictions: Sequence[str], references: References) -> dict[str, Any]:
    """Score the translations of a finished system.

    Args:
        sources, predictions, references: see ``bleu_by_length``.

    Returns:
        ``bleu`` and ``bleu_interval``, its 95% confidence interval by sacreBLEU's bootstrap (Koehn 2004, "Statistical
        Significance Tests for Machine Translation Evaluation", section 3); ``bleu_lowercase``, with both sides in
        lowercase, which is usual for Multi30k; ``chrf``; ``exact_match``, the fraction of predictions that equal one of
        their references; ``pairs``; ``signatures`` of the three scores; and ``by_source_length``, the rows of
        ``bleu_by_length``. Scores are from 0 to 100, ``exact_match`` from 0 to 1.

    Raises:
        UserError: see ``bleu_by_length``.
    """
    check_examples(sources=sources, predictions=predictions, references=references)
    columns = _columns(references)
    metrics = {"bleu": BLEU(), "bleu_lowercase": BLEU(lowercase=True), "chrf": CHRF()}
    scores, signatures = corpus_scores(predictions, columns, metrics)
    report: dict[str, Any] = {**scores}
    resampled = BLEU().corpus_score(predictions, columns, n_bootstrap=RESAMPLES)
    report["bleu_interval"] = [max(0.0, resampled._mean - resampled._ci), min(100.0, resampled._mean + resampled._ci)]
    correct = [one in several for one, several in zip(predictions, reference_lists(references), strict=True)]
    return {
        **report,
        "exact_match": sum(correct) / len(correct),
        "pairs": len(correct),
        "signatures": signatures,
        "by_source_length": bleu_by_length(sources, predictions, references),
    }


def decode_generated(tokenizer: PreTrainedTokenizerBase, ids: Any) -> list[str]:
    """Decode generated ids or labels (B, T) that are padded with -100, the tokenizer's padding token, or both."""
    ids = np.asarray(ids)
    return tokenizer.batch_decode(np.where(ids == IGNORED, tokenizer.pad_token_id, ids), skip_special_tokens=True)


class TranslationScores:
    """A ``compute_metrics`` for ``ReliableSeq2SeqTrainer`` with ``TrainingArguments(batch_eval_metrics=True)``.

    Adds up the contributions of the batches and returns, at the last one, token accuracy, perplexity and nats per
    token, and the numbers of ``tokens`` and ``pairs`` from which they are computed. If the trainer generates
    (``predict_with_generate``), it also returns exact match, ``bleu`` and ``chrf``; the texts are stored until the last
    batch.

    Args:
        tokenizer: tokenizer of the targets.

    Attributes:
        signatures: sacreBLEU's signatures of ``bleu`` and ``chrf``, after an evaluation that has them.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self.signatures: dict[str, str] = {}
        self._reset()

    def _reset(self) -> None:
        self.token_scores = LanguageModelScores("token")
        self.pairs = 0
        self.texts: list[str] = []
        self.references: list[str] = []

    def __call__(self, prediction: EvalPrediction, compute_result: bool) -> dict[str, float]:
        labels = torch.as_tensor(prediction.label_ids)
        predicted, nats, *generated = (torch.as_tensor(tensor) for tensor in prediction.predictions)
        of_tokens = self.token_scores(EvalPrediction((predicted, nats), labels), compute_result)
        self.pairs += len(labels)
        if generated:
            self.texts += decode_generated(self.tokenizer, generated[0].cpu())
            self.references += decode_generated(self.tokenizer, labels.cpu())
        if not compute_result:
            return {}
        scores = {
            "token_accuracy": of_tokens["accuracy"],
            "perplexity": of_tokens["perplexity"],
            "nats_per_token": of_tokens["nats_per_token"],
            "tokens": of_tokens["tokens"],
            "pairs": self.pairs,
        }
        if generated:
            pairs = zip(self.texts, self.references, strict=True)
            scores["exact_match"] = sum(text == reference for text, reference in pairs) / self.pairs
            found, self.signatures = corpus_scores(self.texts, [self.references])
            scores |= found
        self._reset()
        return scores
