"""What a run of the masked language model reports: its scores, and the words that it fills in."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..errors import UserError

BLANK = "[MASK]"  # the gap in sample.sentences, whatever the tokenizer's own mask token is


@torch.inference_mode()
def fill_in(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str], number: int, max_length: int
) -> list[list[dict[str, Any]]]:
    """Return the ``number`` most probable tokens for the gap of each sentence, with their probabilities.

    Raises:
        UserError: a sentence is longer than ``max_length`` tokens.
    """
    was_training = model.training
    model.eval()
    filled = []
    for sentence in sentences:
        inputs = tokenizer(sentence.replace(BLANK, tokenizer.mask_token), return_tensors="pt").to(model.device)
        if inputs.input_ids.shape[1] > max_length:
            raise UserError(f"sample.sentences has {sentence!r}, longer than data.max_length; write a shorter one.")
        logits = model(**inputs)[0]  # (1, T, V); the field's name differs between classes
        probabilities = logits[inputs.input_ids == tokenizer.mask_token_id][0].float().softmax(-1)
        top = probabilities.topk(number)
        filled.append(
            [
                {"token": tokenizer.decode([i]), "probability": round(probability, 4)}
                for i, probability in zip(top.indices.tolist(), top.values.tolist(), strict=True)
            ]
        )
    model.train(was_training)
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
    """Return what the run prints at its end: scores, which weights were new, and the words filled in."""
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
