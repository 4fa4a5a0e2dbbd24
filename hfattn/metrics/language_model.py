"""Metrics of language models.

Perplexity and bits per character are both computed from the negative log-likelihood of the correct tokens, in nats.
"""

import math
from typing import Any

import numpy as np
import torch
from transformers import EvalPrediction

IGNORED = -100  # label of a position without a target, as in torch and transformers


def token_statistics(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return predicted ids (B, T) and negative log-likelihoods (B, T) in nats, given logits (B, T, V).

    A ``preprocess_logits_for_metrics``, which avoids storing V numbers for each token during an evaluation. Labels are
    as in ``token_loss``.
    """
    logits, labels = logits.float(), following_tokens(labels, logits.shape[1])
    # Flattened first: along a transposed axis of 50,000 tokens, this is six times slower.
    nats = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none"
    )
    return logits.argmax(-1), nats.view_as(labels)


def following_tokens(labels: torch.Tensor, num_steps: int) -> torch.Tensor:
    """Return what a language model predicts (B, T): at each step, the token after the one read last.

    Args:
        labels: (B, T), or (B, T + 1) of ``PackedBlocks``, which start one token earlier.
        num_steps: T.
    """
    return labels[:, -num_steps:]


def preceding_tokens(labels: torch.Tensor, num_steps: int) -> torch.Tensor:
    """Return what a backward language model predicts (B, T): at each step, the token before the one read last.

    Args:
        labels: (B, T + 1) of ``PackedBlocks``, which start with the first token that the model reads.
        num_steps: T.
    """
    return torch.nn.functional.pad(labels[:, : num_steps - 1], (1, 0), value=IGNORED)


def token_loss(
    outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None, label_smoothing: float = 0.0
) -> torch.Tensor:
    """Return the mean negative log-likelihood of the labels in nats: a ``compute_loss_func`` for ``Trainer``.

    The mean is over all labels of a training step. Most models return the mean over a batch, which gives a label more
    weight in a batch with few labels; for ``PackedBlocks``, causal models have one target fewer than the tokens that
    they read.

    A bidirectional language model also has ``backward_logits`` (B, T, V), each of the token before the one that it has
    read last; their negative log-likelihood is added (Peters et al. 2018, section 3.1). The tokens before and after a
    block are not predicted backward.

    Args:
        outputs: output of a model, with logits (B, T, V).
        labels: (B, T), aligned with the logits, or (B, T + 1) of ``PackedBlocks``, which start one token earlier; -100
            at positions without a label.
        num_items_in_batch: number of labels in all batches of the step; by default, those of this batch.
        label_smoothing: part of the probability that is distributed evenly over all V classes.
    """

    def total(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(),
            targets.flatten(),
            ignore_index=IGNORED,
            reduction="sum",
            label_smoothing=label_smoothing,
        )

    logits, backward_logits = outputs["logits"], outputs.get("backward_logits")
    targets = following_tokens(labels, logits.shape[1])
    nats = total(logits, targets)
    if backward_logits is not None:
        nats = nats + total(backward_logits, preceding_tokens(labels, logits.shape[1]))
    return nats / ((targets != IGNORED).sum() if num_items_in_batch is None else num_items_in_batch)


def text_scores(nats: float, characters: int, bytes: int, words: int) -> dict[str, Any]:
    """Return scores of a text that are comparable between models with different tokens.

    Args:
        nats: negative log-likelihood of the whole text.
        characters, bytes, words: length of the text; words are separated by white space, as in WikiText.
    """
    return {
        "nats_per_character": nats / characters,
        "bits_per_character": nats / characters / math.log(2),
        "bits_per_byte": nats / bytes / math.log(2),
        "perplexity_per_word": perplexity(nats / words),
        "characters": characters,
        "bytes": bytes,
        "words": words,
    }


def perplexity(nats: float) -> float:
    """Return exp(nats), or infinity if that overflows."""
    with np.errstate(over="ignore"):
        return float(np.exp(nats))


class LanguageModelScores:
    """A ``compute_metrics`` for a language model evaluated with ``token_statistics``, in constant memory.

    For ``TrainingArguments(batch_eval_metrics=True)``: adds up the contributions of the batches and returns, at the
    last one, ``accuracy``, ``perplexity``, ``bits_per_character``, ``nats_per_character``, and ``characters``, the
    number of predictions.

    Args:
        unit: predicted unit, ``"character"`` or ``"token"``, used in the names of the scores.
    """

    def __init__(self, unit: str = "character") -> None:
        self.unit = unit
        self._reset()

    def _reset(self) -> None:
        self.predictions, self.right, self.nats = 0, 0, 0.0

    def __call__(self, prediction: EvalPrediction, compute_result: bool) -> dict[str, float]:
        labels = following_tokens(torch.as_tensor(prediction.label_ids), prediction.predictions[0].shape[1])
        scored = labels != IGNORED
        predicted, nats = (torch.as_tensor(tensor)[scored] for tensor in prediction.predictions)
        self.predictions += int(scored.sum())
        self.right += int((predicted == labels[scored]).sum())
        self.nats += float(nats.double().sum())
        if not compute_result:
            return {}
        mean = self.nats / self.predictions
        scores = {
            "accuracy": self.right / self.predictions,
            "perplexity": perplexity(mean),
            f"bits_per_{self.unit}": mean / math.log(2),
            f"nats_per_{self.unit}": mean,
            f"{self.unit}s": self.predictions,
        }
        self._reset()
        return scores
