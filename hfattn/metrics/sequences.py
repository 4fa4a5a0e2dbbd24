"""Metrics of generated sequences: translations, in the widest sense."""

from typing import Any

import datasets
import evaluate
import numpy as np
import torch
from sacrebleu.metrics import BLEU, CHRF
from transformers import EvalPrediction, PreTrainedTokenizerBase

from .checks import PairedMetric
from .language_model import IGNORED, perplexity
from .overlap import CorpusScore


class ExactMatch(PairedMetric):
    """Share of the predicted texts that are the right ones, character for character.

    ``compute(predictions=texts, references=texts)`` returns ``{"exact_match": ...}``, from 0 to 1.
    """

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description="Share of the predicted texts that are the right ones, character for character.",
            citation="",
            inputs_description="predictions: generated texts; references: right texts.",
            features=datasets.Features(
                {"predictions": datasets.Value("string"), "references": datasets.Value("string")}
            ),
        )

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        right = sum(prediction == reference for prediction, reference in zip(predictions, references, strict=True))
        return {"exact_match": right / len(references)}


class TokenAccuracy(evaluate.Metric):
    """Share of tokens that are predicted rightly when those before them are given; padding does not count.

    ``compute(predictions=rows, references=rows)`` returns ``{"token_accuracy": ...}``, from 0 to 1. The rows hold ids;
    where a reference is -100 there is nothing to predict.
    """

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description="Share of tokens that are predicted rightly, padding left out.",
            citation="",
            inputs_description="predictions: predicted ids; references: right ids, -100 at padding.",
            features=datasets.Features(
                {
                    "predictions": datasets.Sequence(datasets.Value("int64")),
                    "references": datasets.Sequence(datasets.Value("int64")),
                }
            ),
        )

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        right = tokens = 0
        for predicted, reference in zip(predictions, references, strict=True):
            scored = np.asarray(reference) != IGNORED
            right += int((np.asarray(predicted) == np.asarray(reference))[scored].sum())
            tokens += int(scored.sum())
        return {"token_accuracy": right / tokens}


def decode_generated(tokenizer: PreTrainedTokenizerBase, ids: Any) -> list[str]:
    """Texts of generated ids or of labels (B, T), padded with -100 or the tokenizer's own padding, or a mix of both."""
    ids = np.asarray(ids)
    return tokenizer.batch_decode(np.where(ids == IGNORED, tokenizer.pad_token_id, ids), skip_special_tokens=True)


class TranslationScores:
    """A ``compute_metrics`` for ``ReliableSeq2SeqTrainer``, in constant memory.

    For ``TrainingArguments(batch_eval_metrics=True)``: it adds up what each batch contributes and returns, at the last
    one, token accuracy, perplexity and nats per token, and the numbers of ``tokens`` and ``pairs`` they rest on. Where
    the trainer generates (``predict_with_generate``), exact match, ``bleu`` and ``chrf`` are among them.

    Args:
        tokenizer: of the targets.

    Attributes:
        signatures: sacreBLEU's of ``bleu`` and ``chrf``, from the first evaluation on that has them.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self.signatures: dict[str, str] = {}
        self._reset()

    def _reset(self) -> None:
        self.tokens, self.right, self.nats, self.pairs, self.exact = 0, 0, 0.0, 0, 0
        self.overlap = {"bleu": CorpusScore(BLEU()), "chrf": CorpusScore(CHRF())}

    def __call__(self, prediction: EvalPrediction, compute_result: bool) -> dict[str, float]:
        labels = torch.as_tensor(prediction.label_ids)
        scored = labels != IGNORED
        predicted, nats, *generated = (torch.as_tensor(tensor) for tensor in prediction.predictions)
        self.tokens += int(scored.sum())
        self.right += int((predicted == labels)[scored].sum())
        self.nats += float(nats[scored].double().sum())
        self.pairs += len(labels)
        if generated:
            texts, references = (decode_generated(self.tokenizer, ids.cpu()) for ids in (generated[0], labels))
            self.exact += sum(text == reference for text, reference in zip(texts, references, strict=True))
            for score in self.overlap.values():
                score.add(texts, references)
        if not compute_result:
            return {}
        mean = self.nats / self.tokens
        scores: dict[str, float] = {
            "token_accuracy": self.right / self.tokens,
            "perplexity": perplexity(mean),
            "nats_per_token": mean,
            "tokens": self.tokens,
            "pairs": self.pairs,
        }
        if generated:
            scores["exact_match"] = self.exact / self.pairs
            for name, score in self.overlap.items():
                scores[name], self.signatures[name] = score.compute()
        self._reset()
        return scores
