"""Pretrained encoder-decoders that are fine-tuned to translate: their languages, their prefix and how they generate."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    DataCollatorForSeq2Seq,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainingArguments,
)
from transformers.models.m2m_100.modeling_m2m_100 import shift_tokens_right

from ..data import Pair, Pairs, check_model, check_positions
from ..errors import UserError
from ..evaluation import evaluate_translator
from ..generation import evaluation_mode, store_for_task
from ..loading import Loaded, load_model, load_model_config, load_tokenizer
from ..models.pipeline_attn_translation import PREFIX, TEXT_TO_TEXT, load_target_tokenizer
from .translator_config import TranslatorLocation

_LANGUAGE = re.compile(r"[a-z]{2,3}_[A-Za-z]{2,4}")  # eng_Latn, en_XX
_MARIAN_LANGUAGE = re.compile(r">>[^<>]+<<")
# What a pretrained model's generation configuration says about its tokens; how to search, the recipe says.
_OF_TOKENS = (
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "decoder_start_token_id",
    "eos_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "pad_token_id",
    "suppress_tokens",
)


def load_translator(
    location: TranslatorLocation, max_source_length: int, max_target_length: int
) -> tuple[Loaded, PreTrainedTokenizerBase, PreTrainedTokenizerBase]:
    """Load a pretrained encoder-decoder for a pair of languages, and its tokenizers, which may be one object.

    Languages and prefix are stored in the tokenizer and in the configurations of the model, and saved with them.

    Args:
        location: the model, its languages and its prefix.
        max_source_length, max_target_length: numbers of tokens that the model must be able to read and write.

    Raises:
        UserError: the model cannot be loaded, is not an encoder-decoder, or has too few positions; or its tokenizer
            does not know a language.
    """
    config = load_model_config(location)
    if not config.is_encoder_decoder:
        raise UserError(
            f"{location.name} is a model of type {config.model_type}, not an encoder-decoder; write the model.name of "
            "one, such as Helsinki-NLP/opus-mt-en-de, or fine-tune a language model with the recipe causal_lm."
        )
    tokenizer = load_tokenizer(location)
    _set_languages(tokenizer, location)
    loaded = load_model(AutoModelForSeq2SeqLM, location)
    model = loaded.model
    check_model(model, tokenizer, max_source_length, "data.max_source_length")
    check_positions(model.config, max_target_length, "data.max_target_length")
    if _languages(tokenizer):
        _begin_with_language(model, tokenizer)
    # Of a model that the recipe text_to_text has trained; its templates are those of other tasks.
    store_for_task(model, TEXT_TO_TEXT, None)
    if location.prefix is not None:
        _check_prefix(tokenizer, location)
        store_for_task(model, PREFIX, {"prefix": location.prefix})
    # Its configurations are saved with the model, for which LoRA's updates alone have no place.
    return loaded._replace(changed=True), tokenizer, load_target_tokenizer(model) or tokenizer


def set_decoding(model: PreTrainedModel, max_new_tokens: int, num_beams: int) -> None:
    """Replace the search in a model's generation configuration, and keep what it says of tokens."""
    own = {name: getattr(model.generation_config, name, None) for name in _OF_TOKENS}
    model.generation_config = GenerationConfig(max_new_tokens=max_new_tokens, num_beams=num_beams, **own)


def scores_before(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase,
    pairs: Mapping[str, list[Pair]],
    arguments: Seq2SeqTrainingArguments,
) -> dict[str, dict[str, Any]]:
    """Return the scores of the greedy translations of a pretrained model by part, before it is trained.

    They are not computed with the trainer, which does not prepare a model for several processes once it has evaluated
    it.
    """
    rows = arguments.eval_batch_size
    with evaluation_mode(model), torch.autocast(arguments.device.type, torch.bfloat16, enabled=arguments.bf16):
        return {
            part: evaluate_translator(model, tokenizer, target_tokenizer, Pairs(part, items), num_beams=1, rows=rows)
            for part, items in pairs.items()
        }


class Seq2SeqCollator(DataCollatorForSeq2Seq):
    """A ``DataCollatorForSeq2Seq`` that shifts the labels for every model: M2M100 has no method for it."""

    def __call__(self, features: Any, return_tensors: Any = None) -> Any:
        batch = super().__call__(features, return_tensors)
        if "decoder_input_ids" not in batch:
            start = self.model.config.decoder_start_token_id
            batch["decoder_input_ids"] = shift_tokens_right(batch["labels"], self.tokenizer.pad_token_id, start)
        return batch


def _set_languages(tokenizer: PreTrainedTokenizerBase, location: TranslatorLocation) -> None:
    """Set the languages of a tokenizer.

    Raises:
        UserError: it has none or does not know one, or it has several and none is given.
    """
    known = _languages(tokenizer)
    stored = (tokenizer.src_lang, tokenizer.tgt_lang) if known and tokenizer.tgt_lang is not None else (None, None)
    given = {"source": location.source_language or stored[0], "target": location.target_language or stored[1]}
    if not known:
        for name, code in given.items():
            if code is not None:
                raise UserError(
                    f"The tokenizer of {location.name} has no language codes; remove model.{name}_language, or write a "
                    "model.prefix."
                )
        return
    for name, code in given.items():
        if code is None:
            raise UserError(
                f"{location.name} translates between {len(known)} languages; write model.{name}_language, such as "
                f"{known[0]}."
            )
        if code not in known:
            raise _unknown(f"model.{name}_language", code, known, location)
    tokenizer.src_lang, tokenizer.tgt_lang = given["source"], given["target"]


def _languages(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return the language codes of a tokenizer; none if it does not encode languages."""
    if not hasattr(tokenizer, "src_lang"):
        return []
    if codes := getattr(tokenizer, "lang_code_to_token", None):  # M2M100, whose tokens are __en__
        return sorted(codes)
    return sorted(filter(_LANGUAGE.fullmatch, map(str, tokenizer.all_special_tokens)))


def _begin_with_language(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Let translations begin with the token of the target language, where the labels of training have it.

    The labels of NLLB, M2M100 and mBART-50 begin with the language. Those of mBART end with it, and its decoder begins
    with the last label.
    """
    labels = tokenizer(text_target="").input_ids
    (token,) = set(labels) - {tokenizer.eos_token_id}
    if labels[0] == token:
        model.generation_config.forced_bos_token_id = token
    else:
        model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = token
        model.generation_config.forced_bos_token_id = None


def _check_prefix(tokenizer: PreTrainedTokenizerBase, location: TranslatorLocation) -> None:
    """Raise a ``UserError`` if a prefix such as ``>>spa<<`` is a language that the tokenizer does not know."""
    code = _MARIAN_LANGUAGE.match(location.prefix or "")
    if code is not None and code[0] not in (vocabulary := tokenizer.get_vocab()):
        raise _unknown("model.prefix", code[0], sorted(filter(_MARIAN_LANGUAGE.fullmatch, vocabulary)), location)


def _unknown(field: str, code: str, known: list[str], location: TranslatorLocation) -> UserError:
    near = get_close_matches(code, known, n=3, cutoff=0.5) or known[:10]
    advice = f"write one such as {', '.join(near)}" if near else "it has no languages, so remove it"
    return UserError(f"{field} is {code!r}, which the tokenizer of {location.name} does not know; {advice}.")
