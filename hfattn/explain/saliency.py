"""Saliency: how much the answer of a model depends on each token, from the gradient of the answer.

The answer is measured by its log-odds, F = log(p / (1 - p)), in nats. The probability itself saturates when a model is
sure, and its gradient vanishes; for a linear classifier of two classes, the log-odds are linear in the input.

- "gradient_x_input": s_j = Σ_d x_jd ∂F/∂x_jd with the embedding x_j of token j (Denil et al. 2014; Shrikumar et al.
  2016, section 3.2). It needs one backward pass. It is a first-order approximation, which is exact if F is linear in x.
- "integrated_gradients": s_j = Σ_d (x_jd - x'_jd) ∫_0^1 ∂F/∂x_jd (x' + α (x - x')) dα (Sundararajan et al. 2017,
  equation 1), computed by captum. The baseline x' is zero, as in the paper for text (section 3). The method is
  complete: the scores of all tokens, including special tokens, add up to F(x) - F(x'), up to the numerical error of the
  integral (``ScoredText.gap``).

Saliency scores describe the model near this input, or along the path from the baseline to it. They do not show what the
answer would be without a word, because the model was not trained on texts with missing words.

Shapes: B batch, S tokens, D embedding width, C classes, T target tokens, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..errors import UserError
from ..extras import require
from ..generation import evaluation_mode
from ..loading import check_embedded, max_positions
from ..models.alignment import token_names
from .scored import ScoredText, score_tokens

METHODS = {"gradient_x_input": "gradient × input", "integrated_gradients": "integrated gradients"}
STEPS = 64
_ROWS = 16  # points of the integral in one batch
_UNIT = "nats of log-odds"

Function = Callable[[torch.Tensor], torch.Tensor]


def attribute(
    function: Function, inputs: torch.Tensor, method: str = "gradient_x_input", steps: int = STEPS
) -> torch.Tensor:
    """Return the saliency of each position of one input, for any function.

    Args:
        function: maps (B, S, D) to (B,), each row independently, for any B.
        inputs: (1, S, D).
        method: "gradient_x_input" or "integrated_gradients".
        steps: number of points of the integral (Gauss-Legendre).

    Returns:
        (S,), detached.

    Raises:
        ValueError: if there is no such method, or ``steps`` is below 1.
        UserError: if integrated gradients are requested and captum is not installed.
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
        require("explain", "captum")
        from captum.attr import IntegratedGradients

        scores = IntegratedGradients(function).attribute(
            inputs, torch.zeros_like(inputs), n_steps=steps, internal_batch_size=_ROWS
        )
        return scores.sum(-1)[0].to(inputs.dtype).detach()


def log_odds(logits: torch.Tensor, target: int) -> torch.Tensor:
    """Return log(p / (1 - p)) of one class of a softmax, in nats: its logit minus the log-sum-exp of the others.

    Args:
        logits: (..., C), at least two classes.
        target: index of the class.

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
    """Return how much the answer of a model depends on each token of a text.

    The model reads ``inputs_embeds`` instead of ids; no hooks are used, so several threads may call this at once.

    Args:
        model: a text classifier, a causal language model or an encoder-decoder, of hfattn or of transformers. It is run
            in evaluation mode, and its mode is restored afterwards.
        tokenizer: tokenizer of the text.
        text: at least one token.
        method: "gradient_x_input" or "integrated_gradients".
        target: the answer to explain; by default, the model's answer. For a classifier, the index or the name of a
            class. For a language model, the id or the text of the next token. For an encoder-decoder, the index of a
            token in its translation; the default is the sum over all tokens.
        translation: translation to explain, for an encoder-decoder; by default, the model's own.
        target_tokenizer: tokenizer of an encoder-decoder's target, if it has its own vocabulary.
        steps: number of points of the integral.
        by_word: whether to sum the scores of each word, as ``ScoredText.by_word`` does.

    Returns:
        Scores in nats of log-odds. ``output`` is F(x), and ``baseline`` is F(0), with all embeddings zero. For a
        regression, F is the predicted number, in its own unit.

    Raises:
        ValueError: if there is no such method, class, token or index, or gradients overflow, which float16 can cause.
        UserError: if the text is empty or too long for the model, or the model has no suitable head.
    """
    encoded = tokenizer(text, return_tensors="pt", return_attention_mask=True)
    ids, mask = (encoded[name].to(model.device) for name in ("input_ids", "attention_mask"))
    positions = max_positions(model.config)
    length = int(mask.sum())
    if not text.strip() or length == 0:
        raise UserError("The text is empty; give at least one character.")
    if positions is not None and length > positions:
        raise UserError(f"The text has {length} tokens, and the model has {positions} positions; shorten the text.")
    check_embedded(model, ids)
    with evaluation_mode(model):
        embeddings = model.get_input_embeddings()(ids).detach()
        # The other inputs, expanded to the number of rows that are computed at once.
        others = {"attention_mask": mask, **_sentences(model, ids)}

        def read(rows: torch.Tensor, **more: Any) -> torch.Tensor:
            inputs = {name: value.expand(len(rows), -1) for name, value in (others | more).items()}
            options = {"use_cache": False} if model.can_generate() else {}
            outputs = model(inputs_embeds=rows, **inputs, **options)
            if outputs.get("logits") is None:
                raise UserError("The model has no head, so it gives no answer to explain; load it with a head.")
            return outputs.logits.float() if outputs.logits.dtype != torch.float64 else outputs.logits

        unit = _UNIT
        with torch.no_grad():
            if model.config.is_encoder_decoder and model.can_generate():
                writer = target_tokenizer or tokenizer
                function, name = _translation(read, *_decoded(model, ids, mask, writer, translation), writer, target)
            elif model.can_generate():
                function, name = _next_token(read, embeddings, int(mask[0].nonzero().max()), tokenizer, target)
            else:
                function, name, unit = _class(read, embeddings, model, target)
            output, baseline = (float(function(each)) for each in (embeddings, torch.zeros_like(embeddings)))
        scores = attribute(function, embeddings, method, steps)
    if not scores.isfinite().all():
        raise ValueError(
            f"The gradients contain NaN or infinity in {str(model.dtype).removeprefix('torch.')}; if the weights are "
            "finite, use model.float()."
        )
    scored = score_tokens(
        text, tokenizer, scores, METHODS[method], target=name, unit=unit, output=output, baseline=baseline
    )
    return scored.by_word() if by_word else scored


def _sentences(model: PreTrainedModel, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the sentence ids of a hierarchical model, which it cannot derive from embeddings."""
    ends = getattr(model.config, "sentence_end_token_ids", None)
    if not ends or getattr(model.config, "pooling", None) != "hierarchical":
        return {}
    end = torch.isin(ids, torch.tensor(ends, device=ids.device))
    starts = torch.zeros_like(end)
    starts[:, 1:] = end[:, :-1] & ~end[:, 1:]
    return {"sentence_ids": starts.cumsum(-1)}


def _class(
    read: Callable[..., torch.Tensor], embeddings: torch.Tensor, model: PreTrainedModel, target: int | str | None
) -> tuple[Function, str, str]:
    """Return F of a class, its name, and the unit of F."""
    logits = read(embeddings)
    if logits.ndim != 2:
        raise UserError(
            "The model gives an answer for each token, so there is no single answer to explain; load a text "
            "classifier, a causal language model or an encoder-decoder."
        )
    names = {str(name): number for number, name in model.config.id2label.items()}
    number = int(logits[0].argmax()) if target is None else names.get(target) if isinstance(target, str) else target
    if number is None or not 0 <= number < logits.shape[1]:
        raise ValueError(f"target is {target!r}, which is not a class; write one of {', '.join(names)}, or its index.")
    sigmoid = model.config.problem_type == "multi_label_classification"
    single = sigmoid or logits.shape[1] == 1  # the logit is already the log-odds, or the prediction of a regression

    def function(rows: torch.Tensor) -> torch.Tensor:
        return read(rows)[:, number] if single else log_odds(read(rows), number)

    name = str(model.config.id2label.get(number, number))
    return function, name, "" if single and not sigmoid else _UNIT


def _next_token(
    read: Callable[..., torch.Tensor],
    embeddings: torch.Tensor,
    last: int,
    tokenizer: PreTrainedTokenizerBase,
    target: int | str | None,
) -> tuple[Function, str]:
    """Return F of the token after position ``last``, and its name."""
    logits = read(embeddings)[0, last]
    if target is None:
        number = int(logits.argmax())
    elif isinstance(target, str):
        ids = tokenizer(target, add_special_tokens=False).input_ids
        if len(ids) != 1:
            raise ValueError(f"target is {target!r}, which is {len(ids)} tokens; write one token, or its id.")
        (number,) = ids
    else:
        number = target
    if not 0 <= number < len(logits):
        raise ValueError(f"target is {number}; the vocabulary has {len(logits)} tokens: write 0 to {len(logits) - 1}.")

    def function(rows: torch.Tensor) -> torch.Tensor:
        return log_odds(read(rows)[:, last], number)

    (name,) = token_names([number], tokenizer)
    return function, name


def _decoded(
    model: PreTrainedModel,
    ids: torch.Tensor,
    mask: torch.Tensor,
    tokenizer: PreTrainedTokenizerBase,
    translation: str | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the inputs and the labels (1, T) of the decoder."""
    if translation is None:
        sequence = model.generate(input_ids=ids, attention_mask=mask)
        return sequence[:, :-1], sequence[:, 1:]
    labels = tokenizer(text_target=translation, return_tensors="pt").input_ids.to(ids.device)
    if labels.shape[1] == 0:
        raise UserError("The translation is empty; give at least one character.")
    return model.prepare_decoder_input_ids_from_labels(labels=labels), labels


def _translation(
    read: Callable[..., torch.Tensor],
    decoder_ids: torch.Tensor,
    labels: torch.Tensor,
    tokenizer: PreTrainedTokenizerBase,
    target: int | str | None,
) -> tuple[Function, str]:
    """Return F of a translation, or of one of its tokens, and its name."""
    written: Sequence[int] = labels[0].tolist()
    names = token_names(written, tokenizer)
    if target is not None and (isinstance(target, str) or not 0 <= target < len(written)):
        raise ValueError(
            f"target is {target!r}; write the index of a token in the translation, 0 to {len(written) - 1}: "
            f"{' '.join(names)}"
        )
    places = range(len(written)) if target is None else [int(target)]

    def function(rows: torch.Tensor) -> torch.Tensor:
        logits = read(rows, decoder_input_ids=decoder_ids)
        return torch.stack([log_odds(logits[:, place], written[place]) for place in places]).sum(0)

    name = tokenizer.decode(written, skip_special_tokens=True) if target is None else names[places[0]]
    return function, str(name)
