"""What a model says of a few texts where it was trained, kept beside its weights: by this a copy is recognised."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..clean_process import PROBES, probe_encoding, probe_generation, probe_logits
from ..errors import UserError


@torch.no_grad()
def store_probes(
    folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str | Sequence[str]]
) -> None:
    """Write the probes of a model folder, with which ``verify`` compares what a clean process computes.

    Args:
        folder: where the model is saved.
        model: with a head; it is left in the mode (training or evaluation) and on the device where it was.
        tokenizer: of what it reads.
        texts: a text or two, or pairs of texts, of the kind that it was trained on.

    Raises:
        UserError: there is no text.
    """
    rows = [[text] if isinstance(text, str) else list(text) for text in texts]
    if not rows:
        raise UserError("There is no text to store the model's logits of; give one or two.")
    if tokenizer.pad_token_id is None:
        rows = rows[:1]  # nothing to fill a shorter one up with
    training = model.training
    model.eval()
    # Accelerate lays mixed precision around forward; whoever loads the folder computes in float32.
    mixed = vars(model).pop("forward", None)
    try:
        encoded = probe_encoding(tokenizer, rows, model)
        inputs = {name: ids.to(model.device) for name, ids in encoded.items()}
        tensors = {}
        if model.can_generate():
            tensors["generated"] = probe_generation(model, inputs)
        if model.config.is_encoder_decoder:
            inputs["decoder_input_ids"] = tensors["generated"].to(model.device)
        tensors["logits"] = probe_logits(model, inputs)
    finally:
        if mixed is not None:
            vars(model)["forward"] = mixed
        model.train(training)
    tensors |= {f"inputs.{name}": ids.cpu().clone() for name, ids in inputs.items()}
    save_file(tensors, folder / PROBES, {"format": "pt", "texts": json.dumps(rows, ensure_ascii=False)})
