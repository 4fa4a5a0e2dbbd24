"""The likelihood of a text under a trained language model."""

from types import SimpleNamespace

import numpy as np
import torch
from transformers import PreTrainedModel

from .data import Streams, Windows
from .metrics import LanguageModelScores, token_statistics


@torch.inference_mode()
def score_ids(model: PreTrainedModel, ids: np.ndarray, window: int | None = None) -> dict[str, float]:
    """Predict each character of a text but the first, once.

    Args:
        model: a causal language model in evaluation mode, with a recurrent cache if ``window`` is None.
        ids: (n,) ids of the text.
        window: read the text in windows of this length, each from nothing; None reads it as one, the state carried.

    Returns:
        accuracy, perplexity, bits and nats per character, and ``characters``, the number of predictions.

    Raises:
        UserError: the text is shorter than one window.
    """
    scores = LanguageModelScores()
    if window is None:
        dataset: Windows | Streams = Streams(ids, min(2048, len(ids) - 1), num_streams=1, keep_tail=True)
        rows = 1
    else:
        dataset, rows = Windows(ids, window, window), 32
    cache = None
    for start in range(0, len(dataset), rows):
        batch = dataset.__getitems__(range(start, min(start + rows, len(dataset))))
        inputs, labels = batch["input_ids"].to(model.device), batch["labels"].to(model.device)
        outputs = model(inputs, past_key_values=cache, use_cache=window is None)
        cache = outputs.past_key_values
        statistics = SimpleNamespace(predictions=token_statistics(outputs.logits, labels), label_ids=labels)
        result = scores(statistics, compute_result=start + rows >= len(dataset))
    return result


__all__ = ["score_ids"]
