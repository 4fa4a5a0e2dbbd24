"""The report of the recipe masked_lm."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..data import Documents, MaskedTexts, SentencePairs
from ..errors import UserError
from ..generation import evaluation_mode
from ..hub import texts_to_publish
from ..training.sample_config import BLANK
from .base import TrainedRun, leave_behind

Filled = list[dict[str, Any]]  # tokens with their probabilities, the most probable first


def report(
    run: TrainedRun,
    parts: Mapping[str, Documents],
    examples: Mapping[str, MaskedTexts | SentencePairs],
    metrics: Mapping[str, Mapping[str, Any]],
    weights: Mapping[str, Any],
    before: Sequence[Filled],
) -> None:
    """Save the model and write all other output files of the run.

    Args:
        run: the finished run.
        parts: the documents of each part, training included.
        examples: the examples made from them.
        metrics: scores of each part but the training part.
        weights: where the weights came from: ``base_model``, or None from scratch, and its ``new_weights``.
        before: what ``fill_in`` returned before training.
    """
    run.save()
    config, model = asdict(run.config), run.model
    data, sentences = config["data"], config["sample"]["sentences"]
    after = fill_in(model, run.tokenizer, sentences, config["sample"]["top_k"], data["max_length"])
    samples: list[dict[str, Any]] = [
        {"sentence": sentence, "before": first, "after": last}
        for sentence, first, last in zip(sentences, before, after, strict=True)
    ]
    names = ("max_length", "packing", "masked_share", "whole_words", "next_sentence")
    sections: dict[str, Any] = {
        "data": {
            "name": parts["train"].name,
            "vocabulary": len(run.tokenizer),
            "tokenizer": weights["base_model"] or config["tokenizer"]["kind"],
            **{name: data[name] for name in names},
            "parts": {
                part: {
                    "documents": len(documents),
                    "examples": len(examples[part]),
                    "tokens": int(examples[part].lengths.sum()),
                    "sha256": documents.fingerprint,
                }
                for part, documents in parts.items()
            },
        },
        "model": {"model_type": model.config.model_type, **weights, "parameters": model.num_parameters()},
        "metrics": metrics,
        "training": run.training_facts("tokens", float(examples["train"].lengths.sum())),
        "samples": samples,
        "mask_token": run.tokenizer.mask_token,
    }
    loss, unit = "nats_per_masked_token", None
    if data["next_sentence"]:
        loss, unit = "loss", "nats per masked token + nats per pair"
    leave_behind(
        run,
        sections,
        summary(run.folder, sections),
        sentences[:2],
        loss=loss,
        loss_unit=unit,
        texts=texts_to_publish(run.config, "own_words"),
    )


@torch.inference_mode()
def fill_in(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str], top_k: int, max_length: int
) -> list[Filled]:
    """Return the ``top_k`` most probable tokens for the blank of each sentence, with their probabilities.

    Raises:
        UserError: a sentence is longer than ``max_length`` tokens, or ``top_k`` is larger than the vocabulary.
    """
    filled = []
    with evaluation_mode(model):
        for sentence in sentences:
            inputs = tokenizer(sentence.replace(BLANK, tokenizer.mask_token), return_tensors="pt").to(model.device)
            if inputs.input_ids.shape[1] > max_length:
                raise UserError(f"sample.sentences has {sentence!r}, longer than data.max_length; write a shorter one.")
            logits = model(**inputs)[0]  # (1, T, V); the field's name differs between classes
            probabilities = logits[inputs.input_ids == tokenizer.mask_token_id][0].float().softmax(-1)
            if top_k > len(probabilities):
                raise UserError(
                    f"sample.top_k is {top_k}, and the model has {len(probabilities)} tokens; write at most that."
                )
            top = probabilities.topk(top_k)
            filled.append(
                [
                    {"token": tokenizer.decode([i]), "probability": round(probability, 4)}
                    for i, probability in zip(top.indices.tolist(), top.values.tolist(), strict=True)
                ]
            )
    return filled


def listed(tokens: Sequence[Mapping[str, Any]]) -> str:
    """Return tokens and their probabilities as one line."""
    return ", ".join(f"{each['token']} {each['probability']:.2f}" for each in tokens)


def initial_weights(model: Mapping[str, Any]) -> str:
    """Return a sentence that says where the weights came from before training."""
    if model["base_model"] is None:
        return "Trained from scratch."
    if not model["new_weights"]:
        return f"Initialized from {model['base_model']}."
    return (
        f"Initialized from {model['base_model']}, which has no weights for {', '.join(model['new_weights'])}: "
        "these were initialized at random."
    )


def summary(folder: Path, results: Mapping[str, Any]) -> str:
    """Return the printed summary: scores, which weights were new, and the words filled in."""
    lines = ["", f"{'':16}{'masked':>10}{'accuracy':>10}{'nats':>10}{'exp(nats)':>11}{'next sentence':>15}"]
    for part, score in results["metrics"].items():
        relation = score.get("next_sentence_accuracy")
        lines.append(
            f"{part:16}{score['masked_tokens']:10d}{score['masked_accuracy']:10.4f}{score['nats_per_masked_token']:10.4f}"
            f"{score['pseudo_perplexity']:11.2f}{'–' if relation is None else f'{relation:.4f}':>15}"
        )
    lines += ["", initial_weights(results["model"])]
    for sample in results["samples"]:
        lines += [
            "",
            sample["sentence"],
            f"  before  {listed(sample['before'])}",
            f"  after   {listed(sample['after'])}",
        ]
    return "\n".join([*lines, "", f"Model, results, curve and table: {folder}"])
