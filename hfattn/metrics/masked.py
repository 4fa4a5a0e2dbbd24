"""Metrics of masked language models and of next sentence prediction."""

from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import EvalPrediction

from .language_model import LanguageModelScores, token_statistics


def masked_statistics(logits: Any, labels: Any) -> tuple[torch.Tensor, ...]:
    """Reduce logits to the inputs of ``MaskedScores``: a ``preprocess_logits_for_metrics``.

    Args:
        logits: (B, T, V), or for next sentence prediction a tuple of these and logits (B, 2).
        labels: (B, T), -100 at positions without a target, or a tuple of these and classes (B,).

    Returns:
        The result of ``token_statistics``, and with next sentence prediction the predicted classes (B,) and the
        negative log-likelihoods of the right ones (B,), in nats.
    """
    if isinstance(logits, torch.Tensor):
        return token_statistics(logits, labels)
    tokens, relations = logits
    nats = cross_entropy(relations.float(), labels[1], reduction="none")
    return *token_statistics(tokens, labels[0]), relations.argmax(-1), nats


class MaskedScores:
    """A ``compute_metrics`` for a masked language model evaluated with ``masked_statistics``, in constant memory.

    For ``TrainingArguments(batch_eval_metrics=True)``: at the last batch it returns ``masked_accuracy``, the fraction
    of masked tokens that are predicted correctly; ``nats_per_masked_token``, their mean negative log-likelihood;
    ``pseudo_perplexity``, the exponential of that; and ``masked_tokens``, their number. Because many tokens are masked
    at once, the pseudo-perplexity is neither a perplexity of the text nor that of Salazar et al. (2020), who mask one
    token at a time.

    For pairs of sentences, it also returns ``next_sentence_accuracy``, ``nats_per_pair``, the number of ``pairs``, and
    ``pretraining_loss``: the mean over all masked tokens plus the mean over all pairs (Devlin et al. 2019, appendix
    A.2). ``Trainer``'s own ``loss`` is a mean of the losses of batches, which depends on their size.
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self.token_scores = LanguageModelScores("token")
        self.pairs, self.right_pairs, self.nats_of_pairs = 0, 0, 0.0

    def __call__(self, prediction: EvalPrediction, compute_result: bool) -> dict[str, float]:
        labels = prediction.label_ids
        if isinstance(labels, tuple | list):
            labels, relations = labels
            self.pairs += len(relations)
            _, _, classes, nats = map(torch.as_tensor, prediction.predictions)
            self.right_pairs += int((classes == torch.as_tensor(relations)).sum())
            self.nats_of_pairs += float(nats.double().sum())
        of_tokens = self.token_scores(EvalPrediction(prediction.predictions[:2], labels), compute_result)
        if not compute_result:
            return {}
        scores = {
            "masked_accuracy": of_tokens["accuracy"],
            "nats_per_masked_token": of_tokens["nats_per_token"],
            "pseudo_perplexity": of_tokens["perplexity"],
            "masked_tokens": of_tokens["tokens"],
        }
        if self.pairs:
            nats_per_pair = self.nats_of_pairs / self.pairs
            scores |= {
                "next_sentence_accuracy": self.right_pairs / self.pairs,
                "nats_per_pair": nats_per_pair,
                "pairs": self.pairs,
                "pretraining_loss": scores["nats_per_masked_token"] + nats_per_pair,
            }
        self._reset()
        return scores
