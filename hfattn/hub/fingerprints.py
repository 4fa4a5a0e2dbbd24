"""Fingerprints: texts and the outputs of a model for them, stored with its weights to check copies of the model."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..clean_process import FINGERPRINTS, encode_texts, fingerprint_logits, greedy_continuation
from ..errors import UserError
from ..generation import evaluation_mode


@torch.no_grad()
def store_fingerprints(
    folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str | Sequence[str]]
) -> None:
    """Write ``fingerprints.safetensors``, which ``verify`` compares with the outputs in a clean process.

    Args:
        folder: folder of the saved model.
        model: a model with a head; it stays on its device and in its mode (training or evaluation).
        tokenizer: the tokenizer of its input.
        texts: one or two texts, or pairs of texts, of the kind that the model was trained on.

    Raises:
        UserError: there is no text.
    """
    rows = [[text] if isinstance(text, str) else list(text) for text in texts]
    if not rows:
        raise UserError("There is no text to store the model's outputs for; give one or two.")
    if tokenizer.pad_token_id is None:
        rows = rows[:1]  # without a padding token, a batch needs texts of one length
    # Accelerate wraps forward for mixed precision, but a loaded model computes in float32.
    mixed = vars(model).pop("forward", None)
    try:
        with evaluation_mode(model):
            encoded = encode_texts(tokenizer, rows, model)
            inputs = {name: ids.to(model.device) for name, ids in encoded.items()}
            tensors = {}
            if model.can_generate():
                tensors["generated"] = greedy_continuation(model, inputs)
            if model.config.is_encoder_decoder:
                inputs["decoder_input_ids"] = tensors["generated"].to(model.device)
            tensors["logits"] = fingerprint_logits(model, inputs)
    finally:
        if mixed is not None:
            vars(model)["forward"] = mixed
    tensors |= {f"inputs.{name}": ids.cpu().clone() for name, ids in inputs.items()}
    save_file(tensors, folder / FINGERPRINTS, {"format": "pt", "texts": json.dumps(rows, ensure_ascii=False)})
