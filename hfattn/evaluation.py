"""What a trained model says of texts: their likelihood, or their classes."""

from collections.abc import Callable
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .data import PackedBlocks, Streams, mean_of_windows, pack
from .errors import UserError
from .metrics import LanguageModelScores, class_probabilities, text_scores, token_statistics
from .pretrained import positions_of


@torch.inference_mode()
def score_ids(
    model: PreTrainedModel,
    ids: np.ndarray,
    window: int | None = None,
    stride: int | None = None,
    unit: str = "character",
    rows: int = 8,
) -> dict[str, float]:
    """Predict each token of a text but the first, once.

    Args:
        model: a causal language model in evaluation mode, with a recurrent cache if ``window`` is None.
        ids: (n,) ids of the text.
        window: read the text in windows of this length, each from nothing; None reads it as one, the state carried.
        stride: tokens from the start of a window to that of the next, whose own predictions begin where those of the
            one before end; None is the window, so that none overlap.
        unit: what a token is, for the names of the scores.
        rows: windows of a batch.

    Returns:
        accuracy, perplexity, bits and nats per unit, and the number of predictions.

    Raises:
        UserError: the text is shorter than one window, or the stride longer.
    """
    scores = LanguageModelScores(unit)
    if window is None:
        dataset: PackedBlocks | Streams = Streams(ids, min(2048, len(ids) - 1), num_streams=1, keep_tail=True)
        rows = 1
    else:
        dataset = PackedBlocks(ids, window, window if stride is None else stride)
    cache = None
    for start in range(0, len(dataset), rows):
        batch = dataset.__getitems__(range(start, min(start + rows, len(dataset))))
        inputs = batch["input_ids"].to(model.device)
        labels = batch["labels"][:, -inputs.shape[1] :].to(model.device)
        outputs = model(inputs, past_key_values=cache, use_cache=window is None)
        cache = outputs.past_key_values
        statistics = SimpleNamespace(predictions=token_statistics(outputs.logits, labels), label_ids=labels)
        result = scores(statistics, compute_result=start + rows >= len(dataset))
    return result


def score_text(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    window: int | None = None,
    stride: int | None = None,
) -> dict[str, float]:
    """Predict each token of a text, once, with the start token before it.

    Args:
        model: a causal language model in evaluation mode.
        tokenizer: its tokenizer, of any tokens.
        text: at least as long as one window.
        window, stride: as in ``score_ids``; no window is as many tokens as the model has positions for.

    Returns:
        The scores of ``score_ids`` per token, and those of ``text_scores``.

    Raises:
        UserError: there is no window, and the model's positions do not say one, or too few; or as ``score_ids``.
    """
    positions = positions_of(model.config)
    if window is None and positions is None:
        raise UserError("The model says nothing of how many tokens it can read at once; give a window.")
    if window is not None and positions is not None and window > positions:
        raise UserError(f"A window of {window} tokens is more than the model's {positions} positions; give fewer.")
    packed = pack([text], tokenizer)
    window = min(positions, len(packed) - 1) if window is None and positions is not None else window
    scores = score_ids(model, packed.ids, window, stride, unit="token")
    return scores | text_scores(scores["nats_per_token"] * scores["tokens"], **asdict(packed.size))


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


__all__ = ["predict_classes", "score_ids", "score_text"]
