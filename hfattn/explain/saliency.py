"""Saliency: how much each token counts for an answer, by the gradient of the answer.

The answer is measured by its log-odds, F = log p / (1 - p), in nats: the probability itself hardly moves where a model
is sure, and its gradient vanishes there. Of a linear classifier of two classes they are linear in the input.

- "gradient_x_input": s_j = Σ_d x_jd ∂F/∂x_jd with the embedding x_j of token j (Denil et al. 2014; Shrikumar et al.
  2016, section 3.2). One backward pass; exact where F is linear in x, else only to the first order.
- "integrated_gradients": s_j = Σ_d (x_jd - x'_jd) ∫_0^1 ∂F/∂x_jd (x' + α (x - x')) dα (Sundararajan et al. 2017,
  equation 1), through captum. The baseline x' is zero, as the paper takes it for text (section 3). It is complete: the
  scores of all tokens, special symbols included, add up to F(x) - F(x'), up to the error of the integral's sum, which
  ``ScoredText.gap`` tells.

A saliency says what the answer depends on near this input (or on the way to it from nothing), not what it would be
without a word: texts with holes are none that the model was trained on.

Shapes: B batch, S tokens, D embedding width, C classes, T target tokens, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..errors import UserError
from ..loading import max_positions
from ..models.alignment import token_names
from .scored import ScoredText, score_text

METHODS = {"gradient_x_input": "gradient × input", "integrated_gradients": "integrated gradients"}
STEPS = 64
_ROWS = 16  # points of the integral that are computed at a time
_UNIT = "nats of log-odds"

Function = Callable[[torch.Tensor], torch.Tensor]


def attribute(
    function: Function, inputs: torch.Tensor, method: str = "gradient_x_input", steps: int = STEPS
) -> torch.Tensor:
    """The saliency of each position of one input under any function.

    Args:
        function: (B, S, D) -> (B,), each row by itself, for any B.
        inputs: (1, S, D).
        method: a name of ``METHODS``.
        steps: points of the integral (Gauss-Legendre).

    Returns:
        (S,), without a gradient.

    Raises:
        ValueError: there is no such method, or no step.
        UserError: captum, which integrated gradients are computed with, is not installed.
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; write one of {', '.join(map(repr, METHODS))}.")
    if steps < 1:
        raise ValueError(f"steps is {steps}; write a whole number of at least 1.")
    inputs = inputs.detach()
    # The fused recurrent layers of CUDA have no backward pass in evaluation mode.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=not inputs.is_cuda):
        if method == "gradient_x_input":
            inputs.requires_grad_()
            (gradient,) = torch.autograd.grad(function(inputs).sum(), inputs)
            return (inputs.detach() * gradient).sum(-1)[0]
        try:
            from captum.attr import IntegratedGradients
        except ModuleNotFoundError as error:
            message = "Integrated gradients need captum, which is not installed; run: pip install 'hfattn[explain]'"
            raise UserError(message) from error
        scores = IntegratedGradients(function).attribute(
            inputs, torch.zeros_like(inputs), n_steps=steps, internal_batch_size=_ROWS
        )
        return scores.sum(-1)[0].to(inputs.dtype).detach()


def log_odds(logits: torch.Tensor, target: int) -> torch.Tensor:
    """log p / (1 - p) of one class of a softmax, in nats: its logit less the log-sum-exp of the others.

    Args:
        logits: (..., C), two classes or more.
        target: which class.

    Returns:
        (...).
    """
    others = torch.cat([logits[..., :target], logits[..., target + 1 :]], dim=-1)
    return logits[..., target] - others.logsumexp(-1)


def saliency(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    *,
    method: str = "gradient_x_input",
    target: int | str | None = None,
    translation: str | None = None,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
    steps: int = STEPS,
    by_word: bool = False,
) -> ScoredText:
    """How much each token of a text counts for what a model makes of it.

    The model takes ``inputs_embeds`` in the place of the ids, so nothing is hooked and several threads may ask at once.

    Args:
        model: of this package or of transformers: a classifier of texts, a causal language model, or an encoder-decoder
            that writes. It is left in the mode (training or evaluation) it was in, and read in evaluation mode.
        tokenizer: of the text.
        text: at least one token.
        method: "gradient_x_input" or "integrated_gradients".
        target: what is explained. Of a classifier, the number or the name of a class; default the most probable. Of a
            language model, the next token, by its number or as text; default the most probable. Of an encoder-decoder,
            the place of a token in its translation, counted from 0; default all of them, the sum of their log-odds.
        translation: of an encoder-decoder, what it is to have written; default its own translation.
        target_tokenizer: of an encoder-decoder whose target has a vocabulary of its own.
        steps: points of the integral.
        by_word: sum the scores of the pieces of a word, as ``ScoredText.by_word``.

    Returns:
        Scores in nats of log-odds, with ``output`` F(x) and ``baseline`` F(0), the embedding of each token being zero.
        Of a regression, F is its number, in its own unit.

    Raises:
        ValueError: there is no such method, class, token or place; or gradients overflow, as they do in float16.
        UserError: the text is empty or too long for the model, or the model has no such head.
    """
    encoded = tokenizer(text, return_tensors="pt")
    ids, mask = (encoded[name].to(model.device) for name in ("input_ids", "attention_mask"))
    positions = max_positions(model.config)
    length = int(mask.sum())
    if not text.strip() or length == 0:
        raise UserError("The text is empty; give at least one character.")
    if positions is not None and length > positions:
        raise UserError(f"The text has {length} tokens, and the model has {positions} positions; shorten it.")
    training = model.training
    model.eval()
    try:
        embeddings = model.get_input_embeddings()(ids).detach()
        # All the inputs beside the embeddings, for as many rows as are computed at a time.
        beside = {"attention_mask": mask, **_sentences(model, ids)}

        def read(rows: torch.Tensor, **more: Any) -> torch.Tensor:
            inputs = {name: value.expand(len(rows), -1) for name, value in (beside | more).items()}
            options = {"use_cache": False} if model.can_generate() else {}
            outputs = model(inputs_embeds=rows, **inputs, **options)
            if outputs.get("logits") is None:
                raise UserError("The model has no head, so it gives no answer to explain; load it with one.")
            return outputs.logits.float() if outputs.logits.dtype != torch.float64 else outputs.logits

        unit = _UNIT
        if model.config.is_encoder_decoder and model.can_generate():
            with torch.no_grad():
                decoder_ids, labels = _translated(model, ids, mask, target_tokenizer or tokenizer, translation)
            function, name = _of_translation(read, decoder_ids, labels, target_tokenizer or tokenizer, target)
        elif model.can_generate():
            last = int(mask[0].nonzero().max())
            with torch.no_grad():
                logits = read(embeddings)[0, last]
            number = int(logits.argmax()) if target is None else _token(tokenizer, target, len(logits))
            (name,) = token_names([number], tokenizer)

            def function(rows: torch.Tensor) -> torch.Tensor:
                return log_odds(read(rows)[:, last], number)
        else:
            with torch.no_grad():
                logits = read(embeddings)
            if logits.ndim != 2:
                raise UserError(
                    "The model answers for each token by itself, so there is no one answer to explain; load a "
                    "classifier of texts, a causal language model or an encoder-decoder."
                )
            number = _class(model, target, logits[0])
            name = str(model.config.id2label.get(number, number))
            sigmoid = model.config.problem_type == "multi_label_classification"
            alone = sigmoid or logits.shape[1] == 1  # a logit that is the log-odds already, or a regression
            unit = "" if alone and not sigmoid else _UNIT

            def function(rows: torch.Tensor) -> torch.Tensor:
                return read(rows)[:, number] if alone else log_odds(read(rows), number)

        with torch.no_grad():
            output, baseline = (float(function(each)) for each in (embeddings, torch.zeros_like(embeddings)))
        scores = attribute(function, embeddings, method, steps)
    finally:
        model.train(training)
    if not scores.isfinite().all():
        raise ValueError(
            f"The gradients of this model in {str(model.dtype).removeprefix('torch.')} are no finite numbers; where "
            "its weights are finite, model.float() helps."
        )
    scored = score_text(
        text, tokenizer, scores, METHODS[method], target=name, unit=unit, output=output, baseline=baseline
    )
    return scored.by_word() if by_word else scored


def _sentences(model: PreTrainedModel, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """The sentences of a hierarchical model, which it cannot find without the ids."""
    ends = getattr(model.config, "sentence_end_token_ids", None)
    if not ends or getattr(model.config, "pooling", None) != "hierarchical":
        return {}
    end = torch.isin(ids, torch.tensor(ends, device=ids.device))
    starts = torch.zeros_like(end)
    starts[:, 1:] = end[:, :-1] & ~end[:, 1:]
    return {"sentence_ids": starts.cumsum(-1)}


def _class(model: PreTrainedModel, target: int | str | None, logits: torch.Tensor) -> int:
    if target is None:
        return int(logits.argmax())
    names = {str(name): number for number, name in model.config.id2label.items()}
    number = names.get(target) if isinstance(target, str) else target
    if number is None or not 0 <= number < len(logits):
        raise ValueError(f"target is {target!r}, which is no class; write one of {', '.join(names)}, or its number.")
    return number


def _token(tokenizer: PreTrainedTokenizerBase, target: int | str, size: int) -> int:
    if isinstance(target, str):
        ids = tokenizer(target, add_special_tokens=False).input_ids
        if len(ids) != 1:
            raise ValueError(f"target is {target!r}, which is {len(ids)} tokens; write one token, or its number.")
        return ids[0]
    if not 0 <= target < size:
        raise ValueError(f"target is {target}; the vocabulary has {size} tokens: write 0 to {size - 1}.")
    return target


def _translated(
    model: PreTrainedModel,
    ids: torch.Tensor,
    mask: torch.Tensor,
    tokenizer: PreTrainedTokenizerBase,
    translation: str | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What the decoder reads, and what it writes for it, (1, T) each."""
    if translation is None:
        sequence = model.generate(input_ids=ids, attention_mask=mask)
        return sequence[:, :-1], sequence[:, 1:]
    labels = tokenizer(text_target=translation, return_tensors="pt").input_ids.to(ids.device)
    if labels.shape[1] == 0:
        raise UserError("The translation is empty; give at least one character.")
    return model.prepare_decoder_input_ids_from_labels(labels=labels), labels


def _of_translation(
    read: Callable[..., torch.Tensor],
    decoder_ids: torch.Tensor,
    labels: torch.Tensor,
    tokenizer: PreTrainedTokenizerBase,
    target: int | str | None,
) -> tuple[Function, str]:
    """F of a translation, or of one of its tokens, and what that is called."""
    written: Sequence[int] = labels[0].tolist()
    names = token_names(written, tokenizer)
    if target is not None and (isinstance(target, str) or not 0 <= target < len(written)):
        raise ValueError(
            f"target is {target!r}; write the place of a token in the translation, 0 to {len(written) - 1}: "
            f"{' '.join(names)}"
        )
    places = range(len(written)) if target is None else [int(target)]

    def function(rows: torch.Tensor) -> torch.Tensor:
        logits = read(rows, decoder_input_ids=decoder_ids)
        return torch.stack([log_odds(logits[:, place], written[place]) for place in places]).sum(0)

    name = tokenizer.decode(written, skip_special_tokens=True) if target is None else names[places[0]]
    return function, str(name)


__all__ = ["METHODS", "attribute", "log_odds", "saliency"]
