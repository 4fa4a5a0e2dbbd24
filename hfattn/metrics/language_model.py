"""Metrics of language models.

A model's negative log-likelihood of the right token, in nats, is the one quantity behind perplexity and bits per
character.
"""

import math
from typing import Any

import datasets
import evaluate
import numpy as np
import torch
from transformers import EvalPrediction

from .classification import Accuracy

IGNORED = -100  # label of a position without a target, as in torch and transformers


class NextCharacterAccuracy(Accuracy):
    """Share of positions at which the most probable character is the right one.

    ``compute(predictions=ids, references=ids)`` returns ``{"accuracy": ...}``, from 0 to 1.
    """

    description = "Share of positions at which the most probable next character is the right one."


class Perplexity(evaluate.Metric):
    """Perplexity per token: the exponential of the mean negative log-likelihood.

    ``compute(predictions=nats)`` returns ``{"perplexity": ...}``; ``predictions`` holds the negative log-likelihood of
    each right token in nats.
    """

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description="Exponential of the mean negative log-likelihood of the right tokens.",
            citation="",
            inputs_description="predictions: negative log-likelihood of each right token, in nats.",
            features=datasets.Features({"predictions": datasets.Value("float32")}),
        )

    def _compute(self, predictions: Any) -> dict[str, float]:
        return {"perplexity": perplexity(float(np.mean(predictions, dtype=np.float64)))}


class BitsPerCharacter(evaluate.Metric):
    """Negative log-likelihood of a text per character, in bits and in nats.

    ``compute(predictions=nats, references=characters)`` returns ``{"bits_per_character": ..., "nats_per_character":
    ...}``; ``references`` holds the number of characters of each token, so that models with other tokens compare.
    """

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description="Negative log-likelihood of the text per character.",
            citation="",
            inputs_description="predictions: negative log-likelihood of each right token, in nats; "
            "references: number of characters of each token.",
            features=datasets.Features(
                {"predictions": datasets.Value("float32"), "references": datasets.Value("int32")}
            ),
        )

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        nats = float(np.sum(predictions, dtype=np.float64) / np.sum(references))
        return {"bits_per_character": nats / math.log(2), "nats_per_character": nats}


def token_statistics(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What the metrics need of the logits (B, T, V): predicted ids (B, T) and negative log-likelihoods (B, T) in nats.

    A ``preprocess_logits_for_metrics`` for labels (B, T) that are aligned with the logits; it keeps an evaluation from
    holding V numbers for each character.
    """
    logits = logits.float()
    nats = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, ignore_index=IGNORED, reduction="none")
    return logits.argmax(-1), nats


def perplexity(nats: float) -> float:
    """exp(nats), infinite where that is too large for a number."""
    with np.errstate(over="ignore"):
        return float(np.exp(nats))


class LanguageModelScores:
    """A ``compute_metrics`` for a character-level model evaluated with ``token_statistics``, in constant memory.

    For ``TrainingArguments(batch_eval_metrics=True)``: it adds up what each batch contributes and returns, at the last
    one, the scores of the metrics above and ``characters``, the number of predictions they rest on.
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self.characters, self.right, self.nats = 0, 0, 0.0

    def __call__(self, prediction: EvalPrediction, compute_result: bool) -> dict[str, float]:
        labels = torch.as_tensor(prediction.label_ids)
        scored = labels != IGNORED
        predicted, nats = (torch.as_tensor(tensor)[scored] for tensor in prediction.predictions)
        self.characters += int(scored.sum())
        self.right += int((predicted == labels[scored]).sum())
        self.nats += float(nats.double().sum())
        if not compute_result:
            return {}
        mean = self.nats / self.characters
        scores = {
            "accuracy": self.right / self.characters,
            "perplexity": perplexity(mean),
            "bits_per_character": mean / math.log(2),
            "nats_per_character": mean,
            "characters": self.characters,
        }
        self._reset()
        return scores
