"""Saliency: how much the answer of a model depends on each token, from its gradient or without the token.

The answer is measured by its log-odds, F = log(p / (1 - p)), in nats. The probability itself saturates when a model is
sure, and its gradient vanishes; for a linear classifier of two classes, the log-odds are linear in the input.

- "gradient_x_input": s_j = Σ_d x_jd ∂F/∂x_jd with the embedding x_j of token j (Denil et al. 2014; Shrikumar et al.
  2016, section 3.2). It needs one backward pass. It is a first-order approximation, which is exact if F is linear in x.
- "integrated_gradients": s_j = Σ_d (x_jd - x'_jd) ∫_0^1 ∂F/∂x_jd (x' + α (x - x')) dα (Sundararajan et al. 2017,
  equation 1), computed by captum. The baseline x' is zero, as in the paper for text (section 3). The method is
  complete: the scores of all tokens, including special tokens, add up to F(x) - F(x'), up to the numerical error of the
  integral (``ScoredText.gap``).
- "occlusion": s_j = F(x) - F(x with token j replaced) (Zeiler & Fergus 2014, section 4.2; Li et al. 2016), computed by
  captum. A token is replaced by the first that the tokenizer has of the mask token, the unknown token and the padding
  token, otherwise by a zero embedding. The attention mask stays, so the text keeps its length.

A contrast explains why the answer is X rather than Y (Yin & Neubig 2022): F = log p(X) - log p(Y), the difference of
two logits.

Scores of gradients describe the model near this input, or along the path from the baseline to it; occlusion describes
inputs that differ in one word. The model was trained on neither.

Shapes: B batch, S tokens, D embedding width, C classes, T target tokens, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..errors import UserError
from ..extras import require
from ..generation import evaluation_mode, length_arguments
from ..loading import check_embedded, max_positions
from ..models.alignment import token_names
from ..models.pipeline_attn_translation import source_prefix
from .scored import ScoredText, score_tokens, word_groups

METHODS = {
    "gradient_x_input": "gradient × input",
    "integrated_gradients": "integrated gradients",
    "occlusion": "occlusion",
}
STEPS = 64
_ROWS = 16  # points of the integral in one batch
UNIT, _CONTRAST_UNIT = "nats of log-odds", "nats of log-probability"

Function = Callable[[torch.Tensor], torch.Tensor]


def attribute(
    function: Function,
    inputs: torch.Tensor,
    method: str = "gradient_x_input",
    steps: int = STEPS,
    *,
    replacement: torch.Tensor | None = None,
    groups: Sequence[int] | None = None,
) -> torch.Tensor:
    """Return the saliency of each position of one input, for any function.

    Args:
        function: maps (B, S, D) to (B,), each row independently, for any B.
        inputs: (1, S, D).
        method: "gradient_x_input", "integrated_gradients" or "occlusion".
        steps: number of points of the integral (Gauss-Legendre).
        replacement: (D,), for occlusion, what takes the place of a position; default zeros.
        groups: for occlusion, the group of each position, numbered from 0. The positions of a group are replaced
            together, and the first of them gets the score; default each position alone.

    Returns:
        (S,), detached.

    Raises:
        ValueError: if there is no such method, or ``steps`` is below 1.
        UserError: if integrated gradients or occlusion are requested and captum is not installed.
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
        from captum.attr import FeatureAblation, IntegratedGradients

        if method == "occlusion":
            length = inputs.shape[1]
            mask = torch.tensor(list(range(length)) if groups is None else list(groups), device=inputs.device)
            blank = torch.zeros_like(inputs) if replacement is None else replacement.expand_as(inputs)
            with torch.no_grad():
                changes = FeatureAblation(function).attribute(
                    inputs,
                    blank,
                    feature_mask=mask[None, :, None].expand_as(inputs),
                    perturbations_per_eval=_ROWS,
                )[0, :, 0]
            first = torch.tensor([place == 0 or mask[place] != mask[place - 1] for place in range(length)])
            return torch.where(first.to(changes.device), changes, 0).to(inputs.dtype)
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
    contrast: int | str | None = None,
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
        method: "gradient_x_input", "integrated_gradients" or "occlusion".
        target: the answer to explain; by default, the model's answer. For a classifier, the index or the name of a
            class. For a language model, the id or the text of the next token. For an encoder-decoder, the index of a
            token in its translation; the default is the sum over all tokens.
        contrast: explain why the answer is the target rather than this class or token, given as its index, id or text.
            For an encoder-decoder, it is a token instead of the one at index ``target``.
        translation: translation to explain, for an encoder-decoder; by default, the model's own.
        target_tokenizer: tokenizer of an encoder-decoder's target, if it has its own vocabulary.
        steps: number of points of the integral.
        by_word: whether to score words. The scores of the tokens of a word are summed, as ``ScoredText.by_word`` does;
            occlusion replaces all tokens of a word at once.

    Returns:
        Scores in nats of log-odds, or of the difference of two log-probabilities. ``output`` is F(x), and ``baseline``
        is F(0), with all embeddings zero, or None for occlusion. For a regression, F is the predicted number, in its
        own unit.

    Raises:
        ValueError: if there is no such method, class, token or index, or gradients overflow, which float16 can cause.
        UserError: if the text is empty or too long for the model, or the model has no suitable head or no answers to
            contrast.
    """
    (scored,) = _explained(
        model, tokenizer, text, method, steps, by_word, target, contrast, translation, target_tokenizer
    )
    return scored


def saliency_rows(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    *,
    method: str = "gradient_x_input",
    translation: str | None = None,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
    steps: int = STEPS,
    by_word: bool = False,
) -> list[ScoredText]:
    """Return how much each token of a translation depends on each token of its source, a ``ScoredText`` for each.

    Row i explains the log-odds of token i of the translation, given the tokens before it; with integrated gradients,
    each row is complete.

    Args:
        model: an encoder-decoder, as for ``saliency``.
        tokenizer: as for ``saliency``.
        text: as for ``saliency``.
        method: as for ``saliency``.
        translation: as for ``saliency``.
        target_tokenizer: as for ``saliency``.
        steps: as for ``saliency``.
        by_word: as for ``saliency``; it is about the words of the source.

    Raises:
        ValueError: as ``saliency``.
        UserError: as ``saliency``; or the model is not an encoder-decoder.
    """
    if not (model.config.is_encoder_decoder and model.can_generate()):
        raise UserError("Rows are for the tokens of a translation, and the model does not translate; use saliency.")
    return _explained(
        model, tokenizer, text, method, steps, by_word, None, None, translation, target_tokenizer, each=True
    )


def _explained(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    method: str,
    steps: int,
    by_word: bool,
    target: int | str | None,
    contrast: int | str | None,
    translation: str | None,
    target_tokenizer: PreTrainedTokenizerBase | None,
    each: bool = False,
) -> list[ScoredText]:
    """Return the scores of the answer, or of each token of the translation."""
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; write one of {', '.join(map(repr, METHODS))}.")
    if text.strip():
        text = source_prefix(model.config) + text
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

        with torch.no_grad():
            if model.config.is_encoder_decoder and model.can_generate():
                writer = target_tokenizer or tokenizer
                decoded = _decoded(model, ids, mask, writer, translation)
                places = range(decoded[1].shape[1]) if each else [target]
                answers = [_translation(read, *decoded, writer, place, contrast) for place in places]
            elif model.can_generate():
                last = int(mask[0].nonzero().max())
                answers = [_next_token(read, embeddings, last, tokenizer, target, contrast)]
            else:
                answers = [class_answer(read, embeddings, model, target, contrast)]
        name, replacement, groups = METHODS[method], None, None
        if method == "occlusion":
            blank, replacement = _replacement(model, tokenizer)
            name, groups = f"{name} (by {blank})", word_groups(text, tokenizer) if by_word else None
        rows = []
        for function, answer, unit in answers:
            scores = attribute(function, embeddings, method, steps, replacement=replacement, groups=groups)
            if not scores.isfinite().all():
                raise ValueError(
                    f"The gradients contain NaN or infinity in {str(model.dtype).removeprefix('torch.')}; if the "
                    "weights are finite, use model.float()."
                )
            with torch.no_grad():
                output = float(function(embeddings))
                baseline = None if method == "occlusion" else float(function(torch.zeros_like(embeddings)))
            row = score_tokens(
                text, tokenizer, scores, name, target=answer, unit=unit, output=output, baseline=baseline
            )
            rows.append(row.by_word() if by_word else row)
    return rows


def _replacement(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[str, torch.Tensor | None]:
    """Return the name and the embedding (D,) of what occlusion puts in the place of a token; None is zero."""
    table = model.get_input_embeddings()
    for number in (tokenizer.mask_token_id, tokenizer.unk_token_id, tokenizer.pad_token_id):
        if number is not None and number < table.num_embeddings:
            (name,) = token_names([number], tokenizer)
            return name, table(torch.tensor(number, device=model.device)).detach()
    return "zero", None


def _sentences(model: PreTrainedModel, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the sentence ids of a hierarchical model, which it cannot derive from embeddings."""
    ends = getattr(model.config, "sentence_end_token_ids", None)
    if not ends or getattr(model.config, "pooling", None) != "hierarchical":
        return {}
    end = torch.isin(ids, torch.tensor(ends, device=ids.device))
    starts = torch.zeros_like(end)
    starts[:, 1:] = end[:, :-1] & ~end[:, 1:]
    return {"sentence_ids": starts.cumsum(-1)}


def class_answer(
    read: Callable[..., torch.Tensor],
    embeddings: torch.Tensor,
    model: PreTrainedModel,
    target: int | str | None,
    contrast: int | str | None,
) -> tuple[Function, str, str]:
    """Return F of a class, its name, and the unit of F."""
    logits = read(embeddings)
    if logits.ndim != 2:
        raise UserError(
            "The model gives an answer for each token, so there is no single answer to explain; load a text "
            "classifier, a causal language model or an encoder-decoder."
        )
    names = {str(name): number for number, name in model.config.id2label.items()}

    def numbered(option: str, answer: int | str) -> int:
        number = names.get(answer) if isinstance(answer, str) else answer
        if number is None or not 0 <= number < logits.shape[1]:
            raise ValueError(
                f"{option} is {answer!r}, which is not a class; write one of {', '.join(names)}, or its index."
            )
        return number

    number = int(logits[0].argmax()) if target is None else numbered("target", target)
    sigmoid = model.config.problem_type == "multi_label_classification"
    single = sigmoid or logits.shape[1] == 1  # the logit is already the log-odds, or the prediction of a regression

    name = str(model.config.id2label.get(number, number))
    if contrast is not None:
        if single:
            raise UserError("A contrast needs classes of which one is right; remove contrast.")
        other = numbered("contrast", contrast)
        return _contrasted(read, number, other, name, str(model.config.id2label.get(other, other)))

    def function(rows: torch.Tensor) -> torch.Tensor:
        return read(rows)[:, number] if single else log_odds(read(rows), number)

    return function, name, "" if single and not sigmoid else UNIT


def _contrasted(
    read: Callable[[torch.Tensor], torch.Tensor], number: int, other: int, name: str, other_name: str
) -> tuple[Function, str, str]:
    """Return F, the difference of the log-probabilities of two answers from logits (B, C), its name and its unit."""
    if number == other:
        raise ValueError(f"contrast is {other_name!r}, which is the answer itself; write another one.")

    def function(rows: torch.Tensor) -> torch.Tensor:
        logits = read(rows)
        return logits[:, number] - logits[:, other]

    return function, f"{name} rather than {other_name}", _CONTRAST_UNIT


def _token(option: str, answer: int | str, tokenizer: PreTrainedTokenizerBase, size: int) -> int:
    """Return the id of a token that is given as its id or its text."""
    if isinstance(answer, str):
        ids = tokenizer(answer, add_special_tokens=False).input_ids
        if len(ids) != 1:
            raise ValueError(f"{option} is {answer!r}, which is {len(ids)} tokens; write one token, or its id.")
        (answer,) = ids
    number = int(answer)
    if not 0 <= number < size:
        raise ValueError(f"{option} is {number}; the vocabulary has {size} tokens: write 0 to {size - 1}.")
    return number


def _next_token(
    read: Callable[..., torch.Tensor],
    embeddings: torch.Tensor,
    last: int,
    tokenizer: PreTrainedTokenizerBase,
    target: int | str | None,
    contrast: int | str | None,
) -> tuple[Function, str, str]:
    """Return F of the token after position ``last``, its name, and the unit of F."""
    logits = read(embeddings)[0, last]
    number = int(logits.argmax()) if target is None else _token("target", target, tokenizer, len(logits))
    (name,) = token_names([number], tokenizer)
    if contrast is not None:
        other = _token("contrast", contrast, tokenizer, len(logits))
        return _contrasted(lambda rows: read(rows)[:, last], number, other, name, *token_names([other], tokenizer))

    def function(rows: torch.Tensor) -> torch.Tensor:
        return log_odds(read(rows)[:, last], number)

    return function, name, UNIT


def _decoded(
    model: PreTrainedModel,
    ids: torch.Tensor,
    mask: torch.Tensor,
    tokenizer: PreTrainedTokenizerBase,
    translation: str | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the inputs and the labels (1, T) of the decoder."""
    if translation is None:
        sequence = model.generate(input_ids=ids, attention_mask=mask, **length_arguments(model))
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
    contrast: int | str | None,
) -> tuple[Function, str, str]:
    """Return F of a translation, or of one of its tokens, its name, and the unit of F."""
    written: Sequence[int] = labels[0].tolist()
    names = token_names(written, tokenizer)
    if target is not None and (isinstance(target, str) or not 0 <= target < len(written)):
        raise ValueError(
            f"target is {target!r}; write the index of a token in the translation, 0 to {len(written) - 1}: "
            f"{' '.join(names)}"
        )
    places = range(len(written)) if target is None else [int(target)]
    if contrast is not None:
        if target is None:
            raise ValueError(
                f"A contrast needs target, the index of a token in the translation, 0 to {len(written) - 1}: "
                f"{' '.join(names)}"
            )
        other, place = _token("contrast", contrast, tokenizer, len(tokenizer)), places[0]
        return _contrasted(
            lambda rows: read(rows, decoder_input_ids=decoder_ids)[:, place],
            written[place],
            other,
            names[place],
            *token_names([other], tokenizer),
        )

    def function(rows: torch.Tensor) -> torch.Tensor:
        logits = read(rows, decoder_input_ids=decoder_ids)
        return torch.stack([log_odds(logits[:, place], written[place]) for place in places]).sum(0)

    name = tokenizer.decode(written, skip_special_tokens=True) if target is None else names[places[0]]
    return function, str(name), UNIT
