"""Load models and tokenizers from a folder or from the Hub, with one-sentence errors; save translators."""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
import transformers
from huggingface_hub import hf_hub_download, metadata_load, try_to_load_from_cache
from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import HfHubHTTPError, StrictDataclassError
from safetensors import SafetensorError
from transformers import (
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils import cached_file, find_adapter_config_file
from yaml import YAMLError

from . import models  # noqa: F401  (registers the classes)
from .clean_process import ADAPTER, OWN_CONFIG, adapted_class, auto_class, auto_classes
from .errors import UserError
from .extras import optional, require
from .fields import LARGEST, one_of
from .files import read_json_object
from .hub_access import hub_errors, is_id, model_folder
from .models.strict_config import unknown_name_message

if TYPE_CHECKING:
    from transformers import BaseImageProcessor, PreTrainedModel

# A model, the tokenizer of its input, and the tokenizer of its output if that has a vocabulary of its own.
Translator = tuple["PreTrainedModel", PreTrainedTokenizerBase, PreTrainedTokenizerBase | None]

_NAME = "pretrained_model_name_or_path"  # the name of a model among the arguments of from_pretrained
# The files that are read.
_CONFIG = "config.json"
_CARD = "README.md"
_TOKENIZER = "tokenizer.json and tokenizer_config.json"
_PROCESSOR = "preprocessor_config.json"
_MODEL = "config.json, generation_config.json and the weights"
# Numbers in generation_config.json, whose types transformers does not check.
_WHOLE = ("max_length", "max_new_tokens", "min_length", "min_new_tokens", "num_beams", "num_return_sequences", "top_k")
_REAL = ("length_penalty", "max_time", "min_p", "repetition_penalty", "temperature", "top_p", "typical_p")
_TOKEN_IDS = ("bos_token_id", "decoder_start_token_id", "eos_token_id", "forced_bos_token_id", "pad_token_id")
_GENERATION: dict[str, Any] = {
    **dict.fromkeys((*_WHOLE, *_TOKEN_IDS, "no_repeat_ngram_size"), int),
    **dict.fromkeys(_REAL, int | float),
}
_ATTENTION = "attn_implementation"  # an argument of from_pretrained that is not in config.json


# What a model of each Auto class is, and the command that uses it.
_KINDS = {
    "AutoModelForSeq2SeqLM": ("a translator", "hfattn translate"),
    "AutoModelForCausalLM": ("a language model", "hfattn generate"),
    "AutoModelForMaskedLM": ("a masked language model", "hfattn attend"),
    "AutoModelForSequenceClassification": ("a classifier", "hfattn evaluate"),
    "AutoModelForTokenClassification": ("a token classifier", "hfattn attend"),
    "AutoModelForQuestionAnswering": ("a question-answering model", "hfattn attend"),
    "AutoModelForImageClassification": ("a classifier of images", "hfattn predict"),
    "AutoModel": ("a model without a head", "hfattn attend"),
}

# Start and end tokens, which a tokenizer.json does not name.
_START_AND_END = (("<|endoftext|>", "<|endoftext|>"), ("<s>", "</s>"))


@strict
@dataclass
class ModelLocation:
    """Where a model is, and how to load it: the section ``model`` of a recipe that starts from a pretrained model."""

    section: ClassVar[str] = "model"  # name used in messages

    name: str = ""  # path of a model folder, or id on the Hub
    revision: str | None = None  # branch, tag or commit of a model on the Hub
    trust_remote_code: bool = False  # whether code in the repository may run here; read it first
    options: dict[str, Any] = field(default_factory=dict)  # fields of the model's configuration to change

    def validate_name(self) -> None:
        if not self.name.strip():
            raise ValueError("name is empty; write the path of a model folder, or the id of a model on the Hub.")

    def precision(self, skip: Callable[[], list[str]]) -> dict[str, Any]:
        """Return the arguments of ``from_pretrained`` that say in which precision the weights are loaded.

        Args:
            skip: function that returns the modules that are never quantized.
        """
        return {"dtype": torch.float32}


@strict
@dataclass
class BaseModel(ModelLocation):
    """A pretrained model that a recipe trains: the section ``model`` if it has a ``name``."""

    dtype: str = one_of(("float32", "bfloat16", "float16"), "float32")  # of the weights in memory, and as saved
    # The frozen linear layers in fewer bits, with tuning.method lora: 4bit (NF4, Dettmers et al. 2023) or 8bit.
    quantization: str | None = one_of(("4bit", "8bit"), None)
    base_model: str | None = None  # id on the Hub of the model in a local folder, which the card then names

    def validate_base_model(self) -> None:
        if self.base_model is not None and not (is_id(self.base_model) and "/" in self.base_model):
            raise ValueError(f"base_model is {self.base_model!r}; write the id of a model on the Hub, user/name.")

    def precision(self, skip: Callable[[], list[str]]) -> dict[str, Any]:
        dtype = getattr(torch, self.dtype)
        if self.quantization is None:
            return {"dtype": dtype}
        require("quantization", "bitsandbytes")
        if self.quantization == "8bit":
            quantization = BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=skip())
        else:
            quantization = BitsAndBytesConfig(
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=True,
                bnb_4bit_compute_dtype=dtype,
                llm_int8_skip_modules=skip(),
            )
        return {"dtype": dtype, "quantization_config": quantization}


class Loaded(NamedTuple):
    """A pretrained model, the names of its missing weights, which were initialized at random, and what was changed."""

    model: "PreTrainedModel"
    new_weights: list[str]
    changed: bool = False  # whether its configuration says what the one on the Hub does not, so that both are needed


def base_model_name(location: ModelLocation) -> str:
    """Return the Hub id of a model or the last part of its local path, so that no full local path is published."""
    if isinstance(location, BaseModel) and location.base_model is not None:
        return location.base_model
    folder = model_folder(location.name)
    return location.name if folder is None else folder.resolve().name


def commit_of(location: ModelLocation) -> str | None:
    """Return the commit of a model on the Hub that was loaded from the cache; None for a local folder."""
    if model_folder(location.name) is not None:
        return None
    path = try_to_load_from_cache(location.name, _CONFIG, revision=location.revision or "main")
    return Path(path).parent.name if isinstance(path, str) else None


def base_facts(location: ModelLocation | None) -> dict[str, str | None]:
    """Return name, commit and license of a pretrained model, for ``results.json``; None for a model from scratch."""
    if location is None:
        return dict.fromkeys(("base_model", "commit", "base_license"))
    return {
        "base_model": base_model_name(location),
        "commit": commit_of(location),
        "base_license": license_of(location),
    }


def license_of(location: ModelLocation) -> str | None:
    """Return the identifier of the license in the card of a model; None if it has no card, or the card states none."""
    folder = model_folder(location.name)
    try:
        if folder is None:
            card = Path(hf_hub_download(location.name, _CARD, revision=location.revision))
        else:
            card = folder / _CARD
        stated = (metadata_load(card) or {}).get("license") if card.is_file() else None
    except (HfHubHTTPError, OSError, ValueError, YAMLError):
        return None
    return stated if isinstance(stated, str) else None


def load_model_config(location: ModelLocation, **fields: Any) -> PreTrainedConfig:
    """Load the configuration of a model.

    Args:
        location: where the model is, and the options to change.
        fields: other fields to set, such as ``id2label``.

    Raises:
        UserError: there is no such model, the Hub cannot be reached, or an option is not a field of the configuration.
    """
    with loading_errors(location, files=_CONFIG):
        config = AutoConfig.from_pretrained(**_where(location))
    known = {*config.to_dict(), *config.attribute_map, _ATTENTION}
    for name in location.options:
        if name not in known:
            raise UserError(f"{location.section}.options: {unknown_name_message(name, known, type(config).__name__)}")
    for name, value in {**location.options, **fields}.items():
        if name != _ATTENTION:
            try:
                setattr(config, name, value)
            except (ValueError, TypeError) as error:
                reason = " ".join(str(error.__cause__ or error).split())
                raise UserError(f"{location.section}.options.{name}: {reason}") from error
    return config


def load_tokenizer(location: ModelLocation) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model, or a ``tokenizer.json`` alone.

    A tokenizer without a padding token (GPT's) pads with its end token.

    Raises:
        UserError: there is no such model, it has no tokenizer, or the Hub cannot be reached.
    """
    file = Path(os.path.expanduser(location.name))
    if file.is_file():
        return _read_tokenizer(file)
    where = _where(location)
    with loading_errors(location, "tokenizer", _TOKENIZER):
        try:
            tokenizer = AutoTokenizer.from_pretrained(**where)
            tokenizer("")  # compares the values of tokenizer_config.json, such as model_max_length
        except ValueError as error:
            if "trust_remote_code" in str(error) or (Path(where[_NAME]) / "tokenizer.json").is_file():
                raise
            raise _without_tokenizer(location) from error
    if not len(tokenizer):  # for a folder without a tokenizer, transformers returns an empty one
        raise _without_tokenizer(location)
    if tokenizer.pad_token is None and tokenizer.eos_token is not None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_image_processor(location: ModelLocation, size: int | Sequence[int] | None = None) -> "BaseImageProcessor":
    """Load the image processor of a model.

    Args:
        location: where it is.
        size: height and width to which it resizes whole images, in pixels, as one number or as two; None: it resizes
            and crops as it was saved. The processor of ConvNeXt and ResNet crops the center nevertheless.

    Raises:
        UserError: there is no such model, it has no image processor, its processor cannot make images of this size, or
            the Hub cannot be reached.
    """
    from PIL import Image
    from transformers import AutoImageProcessor, ConvNextImageProcessorPil  # slow to import

    def load(**fields: Any) -> "BaseImageProcessor":
        with loading_errors(location, "image processor", _PROCESSOR):
            processor: BaseImageProcessor = AutoImageProcessor.from_pretrained(
                **_where(location), **fields, backend="pil"
            )
        return processor

    if size is None:
        return load()
    height, width = (size, size) if isinstance(size, int) else size
    processor = load(size={"height": height, "width": width}, do_center_crop=False)
    if isinstance(processor, ConvNextImageProcessorPil):  # it reads no other key
        processor = load(size={"shortest_edge": height}, do_center_crop=False)
    made = processor([Image.new("RGB", (2 * width, height))], return_tensors="np")["pixel_values"].shape[-2:]
    if made != (height, width):
        raise UserError(
            f"The image processor of {location.name} makes images of {made[0]} x {made[1]} pixels when "
            f"{height} x {width} are asked for; write another size, or null."
        )
    return processor


def weights_digest(model: "torch.nn.Module", described: str) -> str:
    """Return the SHA-256 of a description and of the names and values of all weights of a model."""
    found = hashlib.sha256(described.encode())
    for name, tensor in sorted(model.state_dict().items()):
        found.update(name.encode())
        found.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return found.hexdigest()


def reads_images(model: "PreTrainedModel") -> bool:
    """Return whether the input of a model is an image alone."""
    return bool(model.main_input_name == "pixel_values")


def _read_tokenizer(file: Path) -> PreTrainedTokenizerBase:
    try:
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file), model_input_names=["input_ids", "attention_mask"])
    except Exception as error:  # the Rust library raises plain Exception
        raise UserError(f"{file.name} is not a tokenizer.json ({error}); write another tokenizer.") from error
    vocabulary = tokenizer.get_vocab()
    for start, end in _START_AND_END:
        if start in vocabulary and end in vocabulary:
            tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token = start, end, end
            break
    return tokenizer


def load_model(auto_class: Any, location: ModelLocation, **fields: Any) -> Loaded:
    """Load a pretrained model with the head of an Auto class; missing weights are initialized at random.

    It is loaded in float32, if a ``BaseModel`` does not say otherwise. The head and the embeddings are not quantized.

    Args:
        auto_class: Auto class of transformers, such as ``AutoModelForSequenceClassification``.
        location: where the model is.
        fields: fields of its configuration to set, such as ``id2label``.

    Raises:
        UserError: there is no such model, the Hub cannot be reached, the model's type has no such head, or weights of
            its body are missing or do not have the shape that its configuration requires.
    """
    config = load_model_config(location, **fields)
    attention = {name: value for name, value in location.options.items() if name == _ATTENTION}
    with loading_errors(location), quiet():
        try:
            model, info = auto_class.from_pretrained(
                config=config,
                **location.precision(lambda: _heads(auto_class, config)),
                use_safetensors=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                **attention,
                **_where(location),
            )
        except ValueError as error:
            if "Unrecognized configuration class" not in str(error):
                raise
            task = auto_class.__name__.removeprefix("AutoModelFor").removeprefix("AutoModel")
            raise UserError(
                f"{location.name} is a model of type {config.model_type}, which transformers does not support for "
                f"{task}; choose another {location.section}.name."
            ) from error
    mismatched = {name for name, *_ in info["mismatched_keys"]}
    body = f"{model.base_model_prefix}."
    new = sorted({*info["missing_keys"], *mismatched})
    # A pooler is a head that some models keep in their body.
    lost = [name for name in new if name.startswith(body) and "pooler" not in name]
    if lost or (new and not any(name.startswith(body) for name, _ in model.named_parameters())):
        raise UserError(
            f"{location.name} has no weight {(lost or new)[0]} of the shape that its configuration says; choose "
            f"another {location.section}.name, or remove the {location.section}.options that change its shape."
        )
    return Loaded(model, new)


def _heads(auto_class: Any, config: PreTrainedConfig) -> list[str]:
    """Return the modules of a model outside of its body, and the pooler of the body."""
    with torch.device("meta"):
        model = auto_class.from_config(config)
    return [*(name for name, _ in model.named_children() if name != model.base_model_prefix), "pooler"]


def max_positions(config: PreTrainedConfig) -> int | None:
    """Return the maximum number of tokens that a model can read at once, or None if there is no limit."""
    text = config.get_text_config()
    fields, limits = text.to_dict(), []
    if fields.get("positions", "learned") == "learned":  # VaswaniConfig: sinusoidal has no limit
        limits.append(fields.get(text.attribute_map.get("max_position_embeddings", "max_position_embeddings")))
    linformer = fields.get("encoder_pattern_options", {}).get("max_length")
    limits += linformer if isinstance(linformer, list) else [linformer]
    tokens = fields.get("subsampling") or 1  # of a position
    return min((limit * tokens for limit in limits if limit is not None), default=None)


def reads_backward(config: PreTrainedConfig) -> bool:
    """Return whether a language model predicts the previous token, not the next (char_rnn, direction backward)."""
    return config.to_dict().get("direction") == "backward"


def check_embedded(model: "PreTrainedModel", ids: torch.Tensor) -> None:
    """Check that a model has an embedding for each of these token ids.

    Raises:
        UserError: an id is larger than the embedding, as with the tokenizer of another model.
    """
    embeddings = model.get_input_embeddings().num_embeddings
    if ids.numel() and int(ids.max()) >= embeddings:
        raise UserError(
            f"The tokenizer gives the token {int(ids.max())}, and the model has {embeddings} embeddings; put its own "
            "tokenizer beside it."
        )


def load_language_model(name: str) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """Load a causal language model and its tokenizer from a folder or from the Hub, for evaluation.

    The classes of this package and of transformers are used; code from a repository is never run.

    Raises:
        UserError: there is no such folder or repository, it has no causal language model with a tokenizer, or the model
            needs a vector for each text.
    """
    model, tokenizer = _load(name, lambda config: AutoModelForCausalLM, "language model")
    if model.config.to_dict().get("conditioning_size") is not None:
        raise UserError(
            f"{name} needs a vector for each text; use it in Python, with model.generate(conditioning=...)."
        )
    return model, tokenizer


def load_translation_model(name: str) -> Translator:
    """Load an encoder-decoder as ``load_language_model`` does.

    Returns:
        The model, the tokenizer of its input, and the tokenizer of its output, which is None if they are the same.
    """
    return _with_target_tokenizer(*_load(name, lambda config: AutoModelForSeq2SeqLM, "translation model"))


def load_captioner(name: str) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase, BaseImageProcessor]":
    """Load a model that captions images, its tokenizer and its image processor.

    Raises:
        UserError: there is no such model, or it reads texts.
    """
    model, tokenizer = _load(name, lambda config: AutoModelForImageTextToText, "captioner")
    return model, tokenizer, load_image_processor(ModelLocation(name=name))


def load_reading_model(name: str | ModelLocation) -> Translator:
    """Load a model to inspect its attention, as ``load_translation_model`` does.

    An encoder-decoder is loaded with its output layer, because it generates a translation or a caption. Any other model
    is loaded without a head.

    Args:
        name: folder or Hub id, or the section of a configuration that says where the model is.
    """

    def choose(config: PreTrainedConfig) -> Any:
        if not config.is_encoder_decoder:
            return AutoModel
        captions = type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
        return AutoModelForImageTextToText if captions else AutoModelForSeq2SeqLM

    return _with_target_tokenizer(*_load(name, choose, "model"))


def load_any_model(name: str) -> Translator:
    """Load a model with the head that its configuration names, as ``load_translation_model`` does."""
    return _with_target_tokenizer(*_load(name, lambda config: getattr(transformers, auto_class(config)), "model"))


def save_translator(
    folder: str | os.PathLike[str],
    model: "PreTrainedModel",
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
) -> None:
    """Save an encoder-decoder with its tokenizers.

    ``pipeline("attn-translation", model=folder, trust_remote_code=True)`` loads the folder, locally or from the Hub,
    and translates. It does not need hfattn.

    Args:
        folder: folder to write. The model and the tokenizer are saved at its top level, where ``AutoTokenizer`` finds
            the tokenizer.
        model: an encoder-decoder.
        tokenizer: tokenizer of both sides, or of the source side.
        target_tokenizer: tokenizer of the target side, if it has its own vocabulary; saved in the subfolder ``target``,
            which the model's configuration records.

    Raises:
        ValueError: two tokenizers are given to a model with one embedding for both sides.
    """
    from .models.pipeline_attn_translation import TARGET_FOLDER, record_target_tokenizer

    record_target_tokenizer(model, target_tokenizer)
    if target_tokenizer is not None:
        target_tokenizer.save_pretrained(Path(folder) / TARGET_FOLDER)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _load(place: str | ModelLocation, choose: Callable[[Any], Any], what: str) -> "tuple[PreTrainedModel, Any]":
    """Load a model and its tokenizer, or, of a model of images, its image processor."""
    name = place if isinstance(place, str) else place.name
    model_folder(name)  # raises an error if the name is empty
    location = ModelLocation(name=name) if isinstance(place, str) else place
    adapter = adapter_config(location)
    base = location if adapter is None else base_location(location, adapter)
    own = None if adapter is None else _own_config(location)
    config = own or load_model_config(base)
    chosen = choose(config)
    if chosen is not AutoModel:
        _check_kind(name, config, chosen.__name__, what)
    whole = chosen if adapter is None else getattr(transformers, adapted_class(adapter))
    with loading_errors(base, what), quiet():
        # The head of the base model may have another size; that of the adapter replaces it.
        attention = {option: value for option, value in base.options.items() if option == _ATTENTION}
        model = whole.from_pretrained(
            config=config, ignore_mismatched_sizes=own is not None, **attention, **_where(base)
        )
    _check_generation(name, model)
    if adapter is not None:
        model = with_adapter(model, location)
        model = model.base_model if chosen is AutoModel else model
    has_processor_alone = reads_images(model) and not config.is_encoder_decoder
    return model.eval(), (load_image_processor if has_processor_alone else load_tokenizer)(location)


def adapter_config(location: ModelLocation) -> dict[str, Any] | None:
    """Return the ``adapter_config.json`` of an adapter that is saved without its base model; None for a whole model."""
    folder = model_folder(location.name)
    if folder is not None and not (folder / ADAPTER).is_file():
        return None
    where = _where(location)
    with loading_errors(location, files=ADAPTER):
        path = find_adapter_config_file(where[_NAME], revision=where["revision"])
        if path is None or (folder is not None and (folder / "config.json").is_file()):
            return None
        return read_json_object(Path(path))


def _own_config(location: ModelLocation) -> PreTrainedConfig | None:
    """Return the configuration that is saved with an adapter, with the labels of its head; None if there is none."""
    where = _where(location)
    file = f"{OWN_CONFIG}/{_CONFIG}"
    with loading_errors(location, files=file):
        if cached_file(where[_NAME], file, revision=where["revision"], _raise_exceptions_for_missing_entries=False):
            return AutoConfig.from_pretrained(**where, subfolder=OWN_CONFIG)
    return None


def base_location(location: ModelLocation, adapter: Mapping[str, Any]) -> ModelLocation:
    """Return where the base model of an adapter is.

    Args:
        location: where the adapter is, which errors name.
        adapter: its ``adapter_config.json``.

    Raises:
        UserError: it names no base model.
    """
    name, revision = adapter.get("base_model_name_or_path"), adapter.get("revision")
    if not isinstance(name, str) or not name.strip() or not isinstance(revision, str | None):
        raise UserError(f"{ADAPTER} of {location.name} names no base model; save the adapter again with peft.")
    return ModelLocation(name=name, revision=revision)


def with_adapter(model: "PreTrainedModel", location: ModelLocation) -> "PreTrainedModel":
    """Return a base model with the updates of an adapter merged into its weights.

    Raises:
        UserError: peft is not installed, or the adapter does not fit the model.
    """
    peft = optional("recipes", "peft")
    where = _where(location)
    with loading_errors(location, "PEFT adapter", f"{ADAPTER} and adapter_model.safetensors"), quiet():
        return peft.PeftModel.from_pretrained(model, where[_NAME], revision=where["revision"]).merge_and_unload()


def _check_generation(name: str, model: "PreTrainedModel") -> None:
    """Raise a ``UserError`` for a value of generation_config.json that no generation can use."""
    if not model.can_generate():
        return
    settings = model.generation_config.to_dict()
    for key, kind in _GENERATION.items():
        value = settings.get(key)
        values = value if isinstance(value, list) and key.endswith("_token_id") else [value]
        for each in values:
            if each is None or (isinstance(each, kind) and not isinstance(each, bool) and abs(each) <= LARGEST):
                continue
            advice = "a whole number" if kind is int else "a number"
            raise UserError(f"{key} in generation_config.json of {name} is {value!r}; write {advice}, or null.")


def _check_kind(name: str, config: PreTrainedConfig, wanted: str, what: str) -> None:
    """Raise a ``UserError`` if a configuration names an architecture that only other Auto classes load."""
    try:
        found = auto_classes(config)
    except ValueError:  # a head that no Auto class has, such as GPT2DoubleHeadsModel: from_pretrained decides
        return
    if wanted not in found:
        first = next((name for name in _KINDS if name in found), found[0])
        kind, command = _KINDS.get(first, (f"a model for {first}", "transformers"))
        raise UserError(f"{name} is {kind} ({config.architectures[0]}), not a {what}; use {command}.")


@contextmanager
def quiet() -> Iterator[None]:
    """Switch off the progress bars and the load report of transformers."""
    verbosity, bars = transformers.logging.get_verbosity(), transformers.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        if bars:
            transformers.logging.enable_progress_bar()


def _with_target_tokenizer(model: "PreTrainedModel", tokenizer: PreTrainedTokenizerBase) -> Translator:
    from .models.pipeline_attn_translation import load_target_tokenizer

    try:
        return model, tokenizer, load_target_tokenizer(model)
    except ValueError as error:
        raise UserError(str(error)) from error


def _where(location: ModelLocation) -> dict[str, Any]:
    folder = model_folder(location.name)
    return {
        _NAME: location.name if folder is None else str(folder),
        "revision": location.revision or "main",
        "trust_remote_code": location.trust_remote_code,
    }


@contextmanager
def loading_errors(location: ModelLocation, what: str = "model", files: str = _MODEL) -> Iterator[None]:
    """Convert an exception raised by transformers while loading a model to a one-sentence ``UserError``.

    Args:
        location: where the model is.
        what: what is loaded.
        files: names of the files that are read.
    """
    name = location.name
    try:
        with hub_errors(name, revision=location.revision):
            yield
    except UserError:
        raise
    except Exception as error:  # for a value of the wrong type, transformers and tokenizers raise errors of any class
        reason = " ".join(str(error).split()).rstrip(".")
        if not isinstance(error, (OSError, ValueError, RuntimeError, SafetensorError, StrictDataclassError)):
            reason = f"{type(error).__name__}: {reason}"
        if isinstance(error, ImportError) and "SentencePiece" in reason:
            raise UserError(
                f"The tokenizer of {name} needs sentencepiece, which is not installed; run: pip install sentencepiece"
            ) from error
        if "trust_remote_code" in reason:
            raise UserError(
                f"{name} has code of its own; read it with hfattn inspect {name}, and to run it in a recipe write "
                f"{location.section}.trust_remote_code: true."
            ) from error
        raise UserError(
            f"{name} does not load as a {what} ({reason}); correct {files}, or choose another model."
        ) from error


def _without_tokenizer(location: ModelLocation) -> UserError:
    return UserError(f"{location.name} has no tokenizer; save the one it was trained with beside its weights.")


__all__ = [
    "BaseModel",
    "Loaded",
    "ModelLocation",
    "Translator",
    "adapter_config",
    "base_facts",
    "base_location",
    "base_model_name",
    "check_embedded",
    "commit_of",
    "license_of",
    "load_any_model",
    "load_captioner",
    "load_image_processor",
    "load_language_model",
    "load_model",
    "load_model_config",
    "load_reading_model",
    "load_tokenizer",
    "load_translation_model",
    "loading_errors",
    "max_positions",
    "reads_backward",
    "reads_images",
    "save_translator",
    "weights_digest",
    "with_adapter",
]
