"""Translate with CTranslate2, which writes the tokens of ``generate()`` in less time on a CPU."""

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from huggingface_hub.constants import HF_HOME
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .errors import UserError
from .extras import require
from .files import writing
from .generation import encode_sources, search_arguments
from .loading import load_translation_model, weights_digest

if TYPE_CHECKING:
    from .explaining.reading import Translation

ENGINES = ("torch", "ctranslate2")
KEPT = "hfattn/ctranslate2"  # folder of the exports, in HF_HOME
# Fields of a generation configuration that the engine follows, or that do not change which tokens a search finds.
_FOLLOWED = {
    *("_from_model_config", "transformers_version", "use_cache"),
    *("bos_token_id", "decoder_start_token_id", "eos_token_id", "pad_token_id"),
    *("early_stopping", "length_penalty", "max_length", "max_new_tokens", "num_beams", "num_return_sequences"),
    *("do_sample", "epsilon_cutoff", "eta_cutoff", "temperature", "top_k", "top_p", "typical_p"),
    *("output_attentions", "output_hidden_states", "output_logits", "output_scores", "return_dict_in_generate"),
}
# Values of other fields that change nothing, beside None and False.
_NEUTRAL = {
    **dict.fromkeys(("diversity_penalty", "encoder_no_repeat_ngram_size", "min_length", "no_repeat_ngram_size"), 0),
    **dict.fromkeys(("encoder_repetition_penalty", "num_beam_groups", "repetition_penalty"), 1),
}


class Hypothesis(NamedTuple):
    """A translation.

    Attributes:
        ids: its tokens after the start token, with the end token if it has ended.
        score: its log-probability, the sum over ``ids``, in nats.
    """

    ids: list[int]
    score: float


class EngineTranslator:
    """A translator that CTranslate2 runs on the CPU, with as many threads as torch has.

    With "float32", the tokens are those of ``model.generate(do_sample=False)``, greedy or by beams. The model is
    exported once. The export is kept in ``hfattn/ctranslate2`` of ``HF_HOME``, under a name that depends on its
    weights, configuration and vocabularies.

    Args:
        name: of the model, for messages.
        model, tokenizer, target_tokenizer: as ``load_translation_model`` returns them. The weights become float32.
        quantization: "float32", or "int8" for smaller weights and other, nearly equal, probabilities.

    Raises:
        UserError: the package is missing, or the engine does not have such a model or such a search.
    """

    def __init__(
        self,
        name: str,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        target_tokenizer: PreTrainedTokenizerBase | None = None,
        quantization: str | None = None,
    ) -> None:
        require("export", "ctranslate2")
        import ctranslate2

        from .exchange.to_ctranslate2 import LONGEST, unsupported, vocabulary

        if (what := unsupported(model) or _other_search(model)) is not None:
            raise UserError(f"CTranslate2 cannot run {name}: {what}; leave out the engine.")
        self.name, self.model, self.tokenizer = name, model, tokenizer
        self.writer = tokenizer if target_tokenizer is None else target_tokenizer
        quantization = quantization or "float32"
        folder = _exported(model, tokenizer, target_tokenizer, quantization)
        self._engine = ctranslate2.Translator(
            str(folder), inter_threads=1, intra_threads=torch.get_num_threads(), compute_type=quantization
        )
        self._source, self._target = vocabulary(tokenizer), vocabulary(self.writer)
        self._ids = {token: i for i, token in enumerate(self._target)}
        learned = model.config.positions == "learned"
        self._longest = model.config.max_position_embeddings if learned else LONGEST

    def generate(
        self,
        sources: Sequence[Sequence[int]],
        num_beams: int | None = None,
        max_new_tokens: int | None = None,
        num_return_sequences: int = 1,
    ) -> list[list[Hypothesis]]:
        """Return translations of each source, the best first.

        Args:
            sources: token ids of each source, without padding.
            num_beams, max_new_tokens: None selects the default of the model.
            num_return_sequences: number of translations of each source.

        Raises:
            UserError: a source has no token or too many, or the engine would search in another way than ``generate()``.
        """
        settings = self.model.generation_config
        given = search_arguments(self.model, num_beams, max_new_tokens, num_return_sequences)
        limit = given.get("max_new_tokens") or settings.max_length - 1
        if given["num_beams"] > 1 and settings.early_stopping is not True:
            raise UserError(
                "CTranslate2 ends a beam search when as many translations as beams have ended, and generate() of "
                f"{self.name} does not; write num_beams: {given['num_beams']} and early_stopping: true into its "
                "generation_config.json, ask for one beam, or leave out the engine."
            )
        lengths = [len(source) for source in sources]
        if not all(lengths):
            raise UserError("CTranslate2 reads no text without a token; remove it, or leave out the engine.")
        longest = max(lengths, default=0)
        if max(longest, limit) > self._longest:
            raise UserError(
                f"CTranslate2 has {self._longest} positions for {self.name}, and a text has {longest} tokens and a "
                f"translation up to {limit}; shorten them, or leave out the engine."
            )
        penalty = 1.0 if settings.length_penalty is None else settings.length_penalty
        results = self._engine.translate_batch(
            [[self._source[i] for i in source] for source in sources],
            beam_size=given["num_beams"],
            num_hypotheses=num_return_sequences,
            length_penalty=penalty,
            max_input_length=0,  # it would cut sources
            max_decoding_length=limit,
            min_decoding_length=0,
            end_token=_ends(settings),
            return_end_token=True,  # generate() counts it in the length that the penalty divides by
            return_scores=True,
        )
        return [
            [
                Hypothesis([self._ids[token] for token in tokens], score * len(tokens) ** penalty)
                for tokens, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result in results
        ]

    def translate(
        self,
        texts: Sequence[str],
        num_beams: int | None = None,
        max_new_tokens: int | None = None,
        hypotheses: int = 1,
    ) -> list[list[tuple[str, float]]]:
        """Return translations of each text with their log-probabilities, the best first; see ``generate``."""
        encoded = encode_sources(self.model, self.tokenizer, texts)
        masks = encoded["attention_mask"].bool()
        sources = [ids[mask].tolist() for ids, mask in zip(encoded["input_ids"], masks, strict=True)]
        return [
            [(self.writer.decode(each.ids, skip_special_tokens=True), each.score) for each in found]
            for found in self.generate(sources, num_beams, max_new_tokens, hypotheses)
        ]

    def read(
        self,
        text: str,
        num_beams: int | None = None,
        max_new_tokens: int | None = None,
        hypotheses: int = 1,
    ) -> "list[Translation]":
        """Return translations of a text with their attention to it, the best first; see ``generate``.

        The engine writes the translations, and ``model`` reads them once, for the attention.
        """
        from .explaining.reading import Translation, attention_to_source

        encoded = encode_sources(self.model, self.tokenizer, [text])
        (found,) = self.generate(encoded["input_ids"].tolist(), num_beams, max_new_tokens, hypotheses)
        translator = (self.model, self.tokenizer, self.writer)
        records = attention_to_source(translator, encoded, [each.ids for each in found])
        texts = self.writer.batch_decode([each.ids for each in found], skip_special_tokens=True)
        return [Translation(*each) for each in zip(texts, (each.score for each in found), records, strict=True)]


def open_engine(name: str, quantization: str | None = None) -> EngineTranslator:
    """Load a translator from a folder or from the Hub, to be run by CTranslate2.

    Raises:
        UserError: as ``load_translation_model`` and ``EngineTranslator``.
    """
    require("export", "ctranslate2")
    return EngineTranslator(name, *load_translation_model(name), quantization)


def check_engine(engine: str, quantization: str | None) -> None:
    """Check the names of an engine and of its quantization.

    Raises:
        UserError: there is no such engine, or it has no quantization.
    """
    if engine not in ENGINES:
        raise UserError(f"{engine!r} is not an engine; write {' or '.join(ENGINES)}.")
    if quantization is not None and engine == "torch":
        raise UserError("quantization is for the engine ctranslate2; name it, or remove the quantization.")


def _ends(settings: Any) -> list[int]:
    ends = settings.eos_token_id
    return [] if ends is None else list(ends) if isinstance(ends, list) else [ends]


def _other_search(model: PreTrainedModel) -> str | None:
    """Return what generate() of a model does and the engine does not, in a few words, or None."""
    settings = model.generation_config
    for name, value in settings.to_diff_dict().items():
        if name not in _FOLLOWED and value is not None and value is not False and value != _NEUTRAL.get(name):
            return f"its generation_config.json has {name}"
    start = settings.bos_token_id if settings.decoder_start_token_id is None else settings.decoder_start_token_id
    if start not in (None, model.config.decoder_start_token_id):
        return "its generation_config.json has another decoder_start_token_id than its config.json"
    return None if _ends(settings) else "it has no end token"


def _exported(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase | None,
    quantization: str,
) -> Path:
    """Return the folder of the exported model, which is written if there is none of these weights."""
    from . import __version__
    from .exchange.to_ctranslate2 import export_ctranslate2, vocabulary

    writer = tokenizer if target_tokenizer is None else target_tokenizer
    described = [__version__, quantization, model.config.to_dict(), vocabulary(tokenizer), vocabulary(writer)]
    folder = Path(HF_HOME) / KEPT / weights_digest(model, json.dumps(described, sort_keys=True, default=str))
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (
            writing(folder.parent, "free some space, or set HF_HOME to another folder"),
            TemporaryDirectory(dir=folder.parent, prefix=".new-") as scratch,
        ):
            new = Path(scratch) / "new"
            export_ctranslate2(model, tokenizer, target_tokenizer, new, quantization)
            if not folder.is_dir():  # another process may have been faster
                new.rename(folder)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"{folder.parent} cannot be written ({reason}); set HF_HOME to a folder that can.") from error
    return folder


__all__ = ["ENGINES", "EngineTranslator", "Hypothesis", "check_engine", "open_engine"]
