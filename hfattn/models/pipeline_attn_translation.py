"""The pipeline tasks "attn-translation" and "text-to-text": a text, its log-probability and its alignment."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, Pipeline, PreTrainedModel, PreTrainedTokenizerBase
from transformers.pipelines import PIPELINE_REGISTRY

from .alignment import GenerationPath, alignment
from .encoder_decoder import PaddedBeams

TASK = "attn-translation"
TEXT_TO_TEXT = "text-to-text"  # also the key of its settings in task_specific_params of a configuration
PREFIX = "translation"  # the task whose prefix, in task_specific_params of a configuration, precedes each source
TARGET_FOLDER = "target"  # subfolder of a saved model with the tokenizer of a separate target vocabulary
_MAX_NEW_TOKENS = 256  # the default of transformers, 20 tokens, would truncate sentences


def record_target_tokenizer(model: PreTrainedModel, target_tokenizer: PreTrainedTokenizerBase | None) -> None:
    """Record in the configuration of a model, before it is saved, where ``load_target_tokenizer`` finds the tokenizer.

    Args:
        model: model whose configuration records the subfolder of the tokenizer.
        target_tokenizer: tokenizer of the target, to be saved in the subfolder ``TARGET_FOLDER``; None if both sides
            share the tokenizer of the source.

    Raises:
        ValueError: if the model shares one embedding, and so one vocabulary, between both sides.
    """
    if target_tokenizer is not None and model.config.to_dict().get("share_embeddings"):
        raise ValueError(
            "The model shares one embedding, and so one vocabulary, between source and target; remove target_tokenizer."
        )
    model.config.target_tokenizer = None if target_tokenizer is None else TARGET_FOLDER


def load_target_tokenizer(model: PreTrainedModel) -> PreTrainedTokenizerBase | None:
    """Load the tokenizer of the target from the subfolder that the configuration names as ``target_tokenizer``.

    Returns:
        The tokenizer, or None if both sides share one tokenizer, so that the configuration names no subfolder.

    Raises:
        ValueError: if the subfolder contains no tokenizer, or the model was not loaded from a folder or the Hub.
    """
    subfolder = model.config.to_dict().get("target_tokenizer")  # other models do not have this field
    if subfolder is None:
        return None
    if not model.name_or_path:
        raise ValueError(
            "The model has a separate target vocabulary but was not loaded from a folder, so its tokenizer cannot be "
            "found; pass target_tokenizer."
        )
    options = vars(model).get("loading_options", {})  # set by TranslationMixin
    try:
        return AutoTokenizer.from_pretrained(
            model.name_or_path, subfolder=subfolder, trust_remote_code=False, **options
        )
    except Exception as error:  # the Rust library raises plain Exception
        raise ValueError(
            f"No tokenizer loads from the subfolder {subfolder!r} of {model.name_or_path}, where its configuration "
            "puts that of the target; save it there, or pass target_tokenizer."
        ) from error


def source_prefix(config: Any) -> str:
    """Return what a model reads before each source, such as the task of T5; empty if nothing."""
    return ((config.to_dict().get("task_specific_params") or {}).get(PREFIX) or {}).get("prefix", "")


class AttnTranslationPipeline(Pipeline):
    """Translate texts, and return the attention weights of each translation.

    ``pipeline("attn-translation", model=folder, trust_remote_code=True)("I like football")`` returns a dict:

    - ``translation_text``: the translation;
    - ``score``: its log-probability log p(y | x) under the model, the sum over its tokens including the end token, in
      nats. It does not depend on the decoding method;
    - ``alignment``: an ``AttentionRecord`` of the cross-attention, or None if the model has none, or if its encoder has
      latents or blocks, which are not tokens.

    For a list of texts, it returns a list. With ``num_return_sequences`` above 1, each text has a list of translations,
    the best first. ``batch_size`` translates several texts at once; all other arguments are passed to ``generate()``.

    Args:
        target_tokenizer: tokenizer of the target; default the one saved with the model, if it has a separate target
            vocabulary.
    """

    _load_tokenizer = True
    text_name = "translation_text"  # of the text in what the pipeline returns

    def __init__(self, *args: Any, target_tokenizer: PreTrainedTokenizerBase | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.target_tokenizer = load_target_tokenizer(self.model) if target_tokenizer is None else target_tokenizer

    def save_pretrained(self, save_directory: str | os.PathLike[str], **kwargs: Any) -> None:
        """Save the pipeline as transformers does, with the tokenizer of a separate target vocabulary."""
        record_target_tokenizer(self.model, self.target_tokenizer)
        if self.target_tokenizer is not None:
            self.target_tokenizer.save_pretrained(Path(save_directory) / TARGET_FOLDER)
        super().save_pretrained(save_directory, **kwargs)

    def _sanitize_parameters(self, **generate_kwargs: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        return {}, generate_kwargs, {}

    def preprocess(self, input_: str, **preprocess_parameters: Any) -> dict[str, torch.Tensor]:
        """Return ids and mask (1, S). A text that is longer than the tokenizer states is cut, as in evaluation.

        Raises:
            ValueError: if the input is empty, not a string, or has characters that the tokenizer does not know.
        """
        if not isinstance(input_, str) or not input_:
            raise ValueError(f"Cannot translate {input_!r}; give a text of at least one character.")
        try:
            source = source_prefix(self.model.config) + input_
            cut = self.tokenizer.model_max_length < 10**9  # transformers states more if a tokenizer has no limit
            encoded = self.tokenizer(source, return_tensors="pt", return_attention_mask=True, truncation=cut)
        except Exception as error:  # tokenizers raises this class itself
            unknown = ", ".join(map(repr, sorted(set(input_).difference(*self.tokenizer.get_vocab()))))
            raise ValueError(
                f"The tokenizer cannot encode {input_!r}: it does not know {unknown}; remove them."
            ) from error
        return {name: encoded[name] for name in ("input_ids", "attention_mask")}

    def _forward(self, input_tensors: dict[str, torch.Tensor], **generate_kwargs: Any) -> dict[str, Any]:
        model = self.model
        config = generate_kwargs.get("generation_config") or model.generation_config
        # As in generate(), what a configuration of the call does not say is that of the model.
        given = {**model.generation_config.to_diff_dict(), **config.to_diff_dict(), **generate_kwargs}
        if not given.keys() & {"max_length", "max_new_tokens", "generation_config"}:
            positions = model.config.to_dict().get("max_position_embeddings", _MAX_NEW_TOKENS)
            generate_kwargs = {**generate_kwargs, "max_new_tokens": min(_MAX_NEW_TOKENS, positions)}
        implementation = model.config._attn_implementation
        model.set_attn_implementation("eager")  # other implementations do not return weights
        try:
            outputs = model.generate(
                **input_tensors,
                **generate_kwargs,
                return_dict_in_generate=True,
                output_attentions=True,
                output_logits=True,
            )
        finally:
            model.set_attn_implementation(implementation)

        ends = [] if given.get("eos_token_id") is None else given["eos_token_id"]
        num_texts = len(input_tensors["input_ids"])
        count = len(outputs.sequences) // num_texts
        return {
            "translations": [
                [self._translation(outputs, index, hypothesis, input_tensors, ends) for hypothesis in range(count)]
                for index in range(num_texts)
            ]
        }

    def _translation(
        self, outputs: Any, index: int, hypothesis: int, inputs: dict[str, torch.Tensor], ends: int | list[int]
    ) -> dict[str, Any]:
        num_texts = len(inputs["input_ids"])
        path = GenerationPath.of(outputs, len(outputs.logits), index, hypothesis, num_texts, ends)
        record = None
        fields = self.model.config.to_dict()
        reads_tokens = fields.get("latents") is None and fields.get("subsampling") is None
        if outputs.cross_attentions and outputs.cross_attentions[0] and reads_tokens:
            record = alignment(
                outputs,
                index,
                hypothesis=hypothesis,
                tokenizer=self.tokenizer,
                target_tokenizer=self.target_tokenizer,
                eos_token_id=ends,
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
            )
        writer = self.tokenizer if self.target_tokenizer is None else self.target_tokenizer
        text = writer.decode(path.sequence, skip_special_tokens=True)
        return {self.text_name: text, "score": path.log_probability(outputs.logits), "alignment": record}

    def postprocess(self, model_outputs: dict[str, Any], **postprocess_parameters: Any) -> Any:
        translations = model_outputs["translations"]
        if isinstance(translations[0], list):  # a batch of one text
            (translations,) = translations
        return translations[0] if len(translations) == 1 else translations


class TextToTextPipeline(AttnTranslationPipeline):
    """Answer texts, each of which says in its words which task it is, such as "sst2 sentence: a good film".

    ``pipeline("text-to-text", model=folder, trust_remote_code=True)("sst2 sentence: a good film")`` returns a dict with
    the ``generated_text``, and ``score`` and ``alignment`` as in ``AttnTranslationPipeline``.

    A text can also be a dict with the name of a ``task`` of the model and the columns of its template, such as
    ``{"task": "sst2", "sentence": "a good film"}``.
    """

    text_name = "generated_text"

    def preprocess(self, input_: str | Mapping[str, Any], **preprocess_parameters: Any) -> dict[str, torch.Tensor]:
        """Return ids and mask (1, S).

        Raises:
            ValueError: as in ``AttnTranslationPipeline``; or the model has no such task, or a column is missing.
        """
        if isinstance(input_, Mapping):
            input_ = task_source(self.model.config, input_)
        return super().preprocess(input_, **preprocess_parameters)


def task_source(config: Any, columns: Mapping[str, Any]) -> str:
    """Return the text that a model reads for the columns of one of its tasks.

    Args:
        config: configuration of the model, with the templates of its tasks.
        columns: the name of the ``task``, and the columns of its template.

    Raises:
        ValueError: the model has no such task, or a column is missing.
    """
    tasks = ((config.to_dict().get("task_specific_params") or {}).get(TEXT_TO_TEXT) or {}).get("tasks", {})
    if (name := columns.get("task")) not in tasks:
        known = ", ".join(tasks) or "none"
        raise ValueError(f"The model has no task {name!r}; its tasks are {known}, and a whole text needs no task.")
    template: str = tasks[name]
    if missing := [column for column in re.findall(r"\{([^{}]+)\}", template) if column not in columns]:
        raise ValueError(f"The task {name!r} reads {template!r}, and {missing[0]!r} is not given; add it.")
    return re.sub(r"\{([^{}]+)\}", lambda found: str(columns[found[1]]), template)


class TranslationMixin(PaddedBeams):
    """A model that is saved with its pipeline, for ``pipeline("attn-translation", ...)`` without hfattn.

    If its configuration has settings for "text-to-text", it is saved with that pipeline instead.
    """

    config: Any
    loading_options: dict[str, Any]

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """Load the model as transformers does, and keep the revision, from which the target tokenizer is loaded too.

        The access token is not kept, because a model may be pickled.
        """
        loaded = super().from_pretrained(*args, **kwargs)  # type: ignore[misc]
        model = loaded[0] if kwargs.get("output_loading_info") else loaded
        names = ("revision", "cache_dir", "local_files_only")
        model.loading_options = {name: kwargs[name] for name in names if name in kwargs}
        return loaded

    def save_pretrained(self, save_directory: str | os.PathLike[str], *args: Any, **kwargs: Any) -> Any:
        """Save the model as transformers does, with the name of its pipeline in the configuration."""
        has_tasks = TEXT_TO_TEXT in (self.config.to_dict().get("task_specific_params") or {})
        task = TEXT_TO_TEXT if has_tasks else TASK
        implementation = f"{__name__.rpartition('.')[2]}.{PIPELINES[task].__name__}"
        entry = {"impl": implementation, "pt": [AutoModelForSeq2SeqLM.__name__], "type": "text"}
        self.config.custom_pipelines = {task: entry}
        return super().save_pretrained(save_directory, *args, **kwargs)  # type: ignore[misc]


PIPELINES: dict[str, type[AttnTranslationPipeline]] = {
    TASK: AttnTranslationPipeline,
    TEXT_TO_TEXT: TextToTextPipeline,
}
# Another copy of this module may have registered them, and that of another release one of them.
if TASK not in PIPELINE_REGISTRY.get_supported_tasks():
    PIPELINE_REGISTRY.register_pipeline(TASK, AttnTranslationPipeline, pt_model=AutoModelForSeq2SeqLM, type="text")
if TEXT_TO_TEXT not in PIPELINE_REGISTRY.get_supported_tasks():
    PIPELINE_REGISTRY.register_pipeline(TEXT_TO_TEXT, TextToTextPipeline, pt_model=AutoModelForSeq2SeqLM, type="text")
