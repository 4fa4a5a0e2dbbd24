"""What a trained model says of texts: their likelihood, or their classes."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from .data import Streams, Windows, mean_of_windows
from .metrics import LanguageModelScores, class_probabilities, token_statistics


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


@torch.inference_mode()
def predict_classes(model: PreTrainedModel, dataset: Any, collate: Callable[..., Any], rows: int = 128) -> np.ndarray:
    """Probabilities (n, C) of the classes of n texts, which are read in the order of their lengths.

    Args:
        model: a classifier.
        dataset: ``EncodedTexts`` or ``FittedTexts``.
        collate: makes batches of its examples; of several windows of a text the mean of their logits counts.
        rows: texts of a batch.
    """
    model.eval()
    order = np.argsort(dataset.lengths[:, 0], kind="stable")
    probabilities = []
    for start in range(0, len(order), rows):
        batch = collate([dataset[int(i)] for i in order[start : start + rows]])
        inputs = {name: tensor.to(model.device) for name, tensor in batch.items() if name not in ("labels", "windows")}
        logits = model(**inputs).logits.float()
        if "windows" in batch:
            logits = mean_of_windows(logits, batch["windows"].to(logits.device))
        probabilities.append(class_probabilities(logits).cpu())
    return torch.cat(probabilities).numpy()[np.argsort(order)]


__all__ = ["predict_classes", "score_ids"]
