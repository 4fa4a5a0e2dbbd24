"""Score texts with language models: the likelihood of each token."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_outputs import CausalLMOutputWithPast

from .data import EncodedDemonstrations, PackedBlocks, Streams, Text, encode_text, pack
from .data.batches import check_stride
from .data.stored import StoredArrays
from .errors import UserError
from .loading import max_positions, reads_backward
from .metrics import LanguageModelScores, text_scores, token_statistics
from .metrics.language_model import IGNORED
from .models import BiLMForCausalLM, CharRNNForCausalLM, VaswaniForCausalLM
from .tokenizers import is_character_tokenizer


@torch.inference_mode()
def score_ids(
    model: PreTrainedModel,
    ids: np.ndarray,
    window: int | None = None,
    stride: int | None = None,
    unit: str = "character",
    rows: int = 8,
    streams: int | None = None,
) -> dict[str, float]:
    """Score each token of a text except the first, once.

    Args:
        model: a causal language model in evaluation mode, with a recurrent cache if ``window`` is None.
        ids: (n,) ids of the text.
        window: length in tokens of independent windows; None reads the whole text and carries the state.
        stride: tokens between the starts of two windows. Tokens that a window shares with the previous one are context
            only. The default is ``window``, without overlap.
        unit: name of a token, such as "character", for the names of the scores.
        rows: windows per batch.
        streams: if given, the text is cut into so many parts, which are read side by side in windows of ``window``, and
            the state is carried from window to window.

    Returns:
        accuracy, perplexity, bits and nats per unit, and the number of predictions.

    Raises:
        UserError: the text is shorter than one window or than two tokens, or the stride is longer than the window or
            given without one.
    """
    return score_rows(model, _dataset(ids, window, stride, unit, streams), unit, rows)


def _dataset(
    ids: np.ndarray, window: int | None, stride: int | None, unit: str = "token", streams: int | None = None
) -> PackedBlocks | Streams:
    if window is None and stride is not None:
        raise UserError(
            f"A stride of {stride} is for windows, and the whole text is read with the state of the model; give a "
            "window, or no stride."
        )
    if len(ids) < 2:
        raise UserError(
            f"The text has fewer than two {unit}s, and each is predicted from those before it; give a longer text."
        )
    if window is None:
        window, streams = min(2048, len(ids) - 1), 1
    if streams is None:
        return PackedBlocks(ids, window, window if stride is None else stride)
    return Streams(ids, window, num_streams=streams, keep_tail=True)


@torch.inference_mode()
def score_rows(
    model: Any, dataset: PackedBlocks | Streams | EncodedDemonstrations, unit: str = "token", rows: int = 8
) -> dict[str, float]:
    """Score each target of a dataset for language models.

    Args:
        model: a causal language model in evaluation mode.
        dataset: its rows are read in their order; from one batch of ``Streams`` to the next, the state is carried.
        unit, rows: see ``score_ids``; the rows of a batch of ``Streams`` are its streams.

    Returns:
        What ``score_ids`` returns.
    """
    scores = LanguageModelScores(unit)
    for statistics, last in _statistics(model, dataset, rows):
        result = scores(statistics, compute_result=last)
    return result


def _statistics(
    model: Any, dataset: PackedBlocks | Streams | EncodedDemonstrations, rows: int
) -> Iterator[tuple[Any, bool]]:
    """Yield ``token_statistics`` and labels of each batch, and whether it is the last."""
    cache, stateful = None, isinstance(dataset, Streams)
    if isinstance(dataset, Streams):
        rows = dataset.num_streams
    for start in range(0, len(dataset), rows):
        batch = dataset.__getitems__(range(start, min(start + rows, len(dataset))))
        inputs = {name: batch[name].to(model.device) for name in batch if name not in ("labels", "shift_labels")}
        labels = batch["labels"][:, -inputs["input_ids"].shape[1] :].to(model.device)
        outputs = model(**inputs, past_key_values=cache, use_cache=stateful)
        cache = outputs.past_key_values
        statistics = SimpleNamespace(predictions=token_statistics(outputs.logits, labels), label_ids=labels)
        yield statistics, start + rows >= len(dataset)


class BackwardDirection:
    """The backward language model of a bilm, which reads texts from their last token to their first.

    Args:
        model: a bilm in evaluation mode.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model, self.device = model, model.device

    def __call__(self, input_ids: torch.Tensor, **kwargs: Any) -> CausalLMOutputWithPast:
        """Predict the next token of reversed texts (B, T), which is the previous one of the texts."""
        return CausalLMOutputWithPast(logits=self.model(input_ids.flip(1)).backward_logits.flip(1))


def score_text(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    window: int | None = None,
    stride: int | None = None,
) -> dict[str, float]:
    """Score each token of a text once, with the start token before the first.

    Args:
        model: a causal language model in evaluation mode.
        tokenizer: its tokenizer.
        text: text of at least one window.
        window, stride: see ``score_ids``; the default window is the number of positions of the model. A recurrent model
            or one of memory layers reads the whole text by default and carries its state.

    Returns:
        The scores of ``score_ids`` per token, and those of ``text_scores``.

    Raises:
        UserError: no window is given and the model has no maximum length, the window exceeds it, or ``score_ids``
            raises it.
    """
    _check_window(model, window)
    packed = pack([text], tokenizer, reads_backward(model.config))
    if not packed.size.words:
        raise UserError("The text has no words that are predicted; give a longer text.")
    positions = max_positions(model.config)
    window = min(positions, len(packed) - 1) if window is None and positions is not None else window
    scores = score_ids(model, packed.ids, window, stride, unit="token")
    return scores | text_scores(scores["nats_per_token"] * scores["tokens"], **asdict(packed.size))


@torch.inference_mode()
def score_documents(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    documents: Sequence[str],
    window: int | None = None,
    stride: int | None = None,
) -> dict[str, Any]:
    """Score each token of documents once, which are read one by one, each with the start token before its first token.

    The loss by distance shows how much context a model uses: it falls as long as more of it helps (Dai et al. 2019,
    section 4.3, measure the same by context lengths).

    Args:
        model, tokenizer, window, stride: see ``score_text``; a document that is shorter than a window is read at once.
        documents: the texts. Those of a single token are left out if the tokenizer has no start token.

    Returns:
        The scores of ``score_text`` over the tokens of all documents; "documents", the number of documents; and
        "by_distance", a list of ranges of the number of tokens of its document that are read before a token (the later
        ones, if the model reads backward): "from" and "to" (both included), "tokens" (their number) and
        "nats_per_token" (their mean loss).

    Raises:
        UserError: as in ``score_text``.
    """
    _check_window(model, window)
    window = max_positions(model.config) if window is None else window
    if window is not None and stride is not None:
        check_stride(window, stride, "tokens")
    sizes = []

    def ids() -> Iterator[np.ndarray]:
        for text in documents:
            packed = pack([text], tokenizer, reads_backward(model.config))
            if len(packed) > 1 and packed.size.words:
                sizes.append(packed.size)
                yield packed.ids

    read = StoredArrays(ids(), np.int32)
    if not sizes:
        raise UserError("No document has a word that can be predicted; give longer documents.")
    scores, nats = LanguageModelScores("token"), []
    for i, each in enumerate(read):
        longest = None if window is None else min(window, len(each) - 1)
        dataset = _dataset(each, longest, stride if stride is None or longest is None else min(stride, longest))
        for statistics, last in _statistics(model, dataset, rows=8):
            result = scores(statistics, compute_result=last and i == len(read) - 1)
            nats.append(statistics.predictions[1][statistics.label_ids != IGNORED].double().cpu().numpy())
    size = {name: sum(getattr(each, name) for each in sizes) for name in ("characters", "bytes", "words")}
    starts = tokenizer.bos_token_id is not None or tokenizer.eos_token_id is not None
    preceding = np.concatenate([np.arange(length - 1) for length in read.lengths]) + (0 if starts else 1)
    return {
        "documents": len(read),
        **result,
        **text_scores(result["nats_per_token"] * result["tokens"], **size),
        "by_distance": _by_distance(preceding, np.concatenate(nats)),
    }


def _by_distance(preceding: np.ndarray, nats: np.ndarray) -> list[dict[str, float]]:
    """Return the mean loss of tokens in ranges of the number of tokens before them: to 63, then each twice as long.

    Args:
        preceding: (n,) number of tokens that are read before each token.
        nats: (n,) the loss of each.

    Returns:
        For each range that has tokens, "from" and "to" (both included), "tokens" and "nats_per_token".
    """
    bounds = 64 * 2 ** np.arange(40)
    ranges = np.digitize(preceding, bounds)
    return [
        {
            "from": int(bounds[k - 1]) if k else 0,
            "to": int(bounds[k]) - 1,
            "tokens": int((ranges == k).sum()),
            "nats_per_token": float(nats[ranges == k].mean()),
        }
        for k in np.unique(ranges)
    ]


def _check_window(model: PreTrainedModel, window: int | None) -> None:
    """Check that a model can read a window, or a whole text without one."""
    positions = max_positions(model.config)
    carries_state = isinstance(model, BiLMForCausalLM | CharRNNForCausalLM)
    if isinstance(model, VaswaniForCausalLM):
        layers = range(model.config.decoder_layers)
        carries_state = all(model.config.layer_pattern("decoder", k)[0] == "memory" for k in layers)
    if window is None and positions is None and not carries_state:
        raise UserError(
            "The model says nothing of how many tokens it can read at once; give a window (hfattn score has --window)."
        )
    if window is not None and positions is not None and window > positions:
        raise UserError(f"A window of {window} tokens is more than the model's {positions} positions; give fewer.")


def score_opened(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    opened: Text,
    skip: float = 0.0,
    window: int | None = None,
    stride: int | None = None,
) -> dict[str, float]:
    """Return ``score_ids`` of a character model without a maximum length, else ``score_text``, after the first ``skip``
    (0 to 1) of the text."""
    if is_character_tokenizer(tokenizer) and max_positions(model.config) is None:
        ids = encode_text(opened, tokenizer).ids
        ids = ids[int(skip * len(ids)) :]
        return score_ids(model, ids[::-1].copy() if reads_backward(model.config) else ids, window, stride)
    whole = "".join(opened.pieces())
    return score_text(model, tokenizer, whole[int(skip * len(whole)) :], window, stride)


__all__ = [
    "BackwardDirection",
    "score_documents",
    "score_ids",
    "score_opened",
    "score_rows",
    "score_text",
]
