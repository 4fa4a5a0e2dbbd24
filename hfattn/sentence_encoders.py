"""Sentence encoders: an encoder of transformers, a pooling and a normalization, as sentence-transformers saves them.

The folder of such a model is that of its encoder, with ``modules.json``, which lists what is done with its outputs, and
a folder for each of these modules (Reimers & Gurevych 2019, arXiv 1908.10084).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import LocalEntryNotFoundError
from torch.nn import functional
from transformers.utils import cached_file

from .errors import UserError
from .files import read_json, read_json_object, write_json
from .hub_access import hub_errors, model_folder
from .loading import ModelLocation, load_reading_model, loading_errors, max_positions
from .pooling import pool
from .retrieval import UNLIMITED, vectors_of_texts

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MODULES = "modules.json"
_POOLING, _NORMALIZE, _READING = "1_Pooling", "2_Normalize", "sentence_bert_config.json"
_PROMPTS = "config_sentence_transformers.json"
# The names of the poolings in sentence-transformers, in its files of today and, with a prefix, in older ones.
_NAMES = {"first": "cls", "mean": "mean", "max": "max", "mean_sqrt": "mean_sqrt_len_tokens"}
_OLD_NAMES = {"first": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "mean_sqrt": "mean_sqrt_len_tokens"}


@dataclass(frozen=True)
class SentenceModules:
    """What a sentence encoder does with the outputs of its model.

    Attributes:
        pooling: one of ``hfattn.pooling.POOLINGS``.
        normalize: whether the vectors have length 1.
        max_length: maximum number of tokens of a text; None: what the tokenizer states.
    """

    pooling: str = "mean"
    normalize: bool = True
    max_length: int | None = None

    def vectors(self, hidden_states: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the vectors (B, D) of texts from the outputs (B, T, D) at their tokens (B, T)."""
        pooled = pool(hidden_states, attention_mask, self.pooling)
        return functional.normalize(pooled, dim=-1) if self.normalize else pooled


def write_modules(folder: Path, modules: SentenceModules, width: int) -> None:
    """Write what sentence-transformers reads beside a model: ``modules.json`` and the folders of the modules.

    The files are those that all its versions since 2.0 read.

    Args:
        folder: the folder of the model.
        modules: the pooling, the normalization, and the length at which texts are cut.
        width: width D of the vectors.
    """
    names = ["Transformer", "Pooling", *(["Normalize"] if modules.normalize else [])]
    paths = ["", _POOLING, _NORMALIZE]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (name, path) in enumerate(zip(names, paths, strict=False))
    ]
    write_json(folder / MODULES, listed)
    (folder / _POOLING).mkdir(exist_ok=True)
    modes = {f"pooling_mode_{old}": name == modules.pooling for name, old in _OLD_NAMES.items()}
    write_json(folder / _POOLING / "config.json", {"word_embedding_dimension": width, **modes})
    if modules.normalize:
        (folder / _NORMALIZE).mkdir(exist_ok=True)
        write_json(folder / _NORMALIZE / "config.json", {})  # a folder without a file is not published
    write_json(folder / _READING, {"max_seq_length": modules.max_length, "do_lower_case": False})


def read_modules(location: ModelLocation) -> SentenceModules | None:
    """Return what ``modules.json`` of a model says; None if there is none.

    Raises:
        UserError: the model has a module that hfattn does not have, such as a dense layer, it lowercases texts or puts
            a prompt before them, a file is damaged, or the Hub cannot be reached.
    """
    listed = _json(location, MODULES)
    if listed is None:
        return None
    if not isinstance(listed, list) or not all(isinstance(each, dict) and "type" in each for each in listed):
        raise UserError(f"{MODULES} of {location.name} is not a list of modules; copy it again.")
    found = {str(each["type"]).rpartition(".")[2]: str(each.get("path", "")) for each in listed}
    if unknown := [name for name in found if name not in ("Transformer", "Pooling", "Normalize")]:
        raise UserError(
            f"{location.name} has the module {unknown[0]}, and hfattn reads Transformer, Pooling and Normalize; use it "
            "with sentence-transformers."
        )
    if "Transformer" not in found or "Pooling" not in found:
        raise UserError(f"{MODULES} of {location.name} has no Transformer with a Pooling; choose another model.")
    stated: Any = _json(location, f"{found['Pooling']}/config.json")
    reading: Any = _json(location, _READING)
    if isinstance(reading, dict) and reading.get("do_lower_case") is True:
        raise UserError(
            f"{location.name} lowercases texts before they are tokenized (do_lower_case), which hfattn does not; use "
            "it with sentence-transformers."
        )
    prompts: Any = _json(location, _PROMPTS)
    if isinstance(prompts, dict) and (name := prompts.get("default_prompt_name")) is not None:
        raise UserError(
            f"{location.name} puts the prompt {name!r} before each text (default_prompt_name), which hfattn does not; "
            "use it with sentence-transformers."
        )
    length = reading.get("max_seq_length") if isinstance(reading, dict) else None
    return SentenceModules(
        _pooling(stated if isinstance(stated, dict) else {}, location.name),
        "Normalize" in found,
        length if isinstance(length, int) and length > 0 else None,
    )


def _pooling(stated: dict[str, Any], name: str) -> str:
    mode = stated.get("pooling_mode")
    modes = [mode] if isinstance(mode, str) else list(mode or [])
    modes += [each.removeprefix("pooling_mode_") for each, value in stated.items() if value is True]
    names = {**{each: own for own, each in _OLD_NAMES.items()}, **{each: own for own, each in _NAMES.items()}}
    found = [names.get(str(each)) for each in modes if str(each) != "include_prompt"]
    if len(found) != 1 or found[0] is None:
        raise UserError(
            f"{name} pools by {' and '.join(map(str, modes)) or 'nothing that its files name'}, and hfattn by one of "
            f"{', '.join(_NAMES.values())}; use it with sentence-transformers."
        )
    return found[0]


def has_modules(name: str) -> bool:
    """Return whether a folder or a repository on the Hub has ``modules.json``; False if the Hub cannot be reached."""
    folder = model_folder(name)
    if folder is not None:
        return (folder / MODULES).is_file()
    absent = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
    with loading_errors(ModelLocation(name=name), files=MODULES), hub_errors(name):
        return cached_file(name, MODULES, **absent) is not None


def _json(location: ModelLocation, file: str) -> Any:
    """Return the content of a JSON file of a model; None if it has no such file."""
    folder = model_folder(location.name)
    if folder is not None:
        return (
            (read_json if file == MODULES else read_json_object)(folder / file) if (folder / file).is_file() else None
        )
    with loading_errors(location, files=file), hub_errors(location.name, revision=location.revision):
        revision = location.revision or "main"
        path = cached_file(location.name, file, revision=revision, _raise_exceptions_for_missing_entries=False)
        # Without a connection, the result is None too.
        if path is None and file == MODULES and try_to_load_from_cache(location.name, file, revision=revision) is None:
            raise LocalEntryNotFoundError(file)
    return None if path is None else read_json(Path(path))


@dataclass(frozen=True)
class SentenceEncoder:
    """A model that maps texts to vectors (N, D).

    Attributes:
        model: the encoder.
        tokenizer: its tokenizer.
        modules: what is done with its outputs.
    """

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    modules: SentenceModules

    def embed(self, texts: Sequence[str], rows: int = 64) -> torch.Tensor:
        """Return the vectors (N, D) of texts, in float32; longer texts are cut.

        Args:
            rows: number of texts that the model reads at once; those of similar length share a batch.
        """

        def read(attention_mask: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor:
            outputs = self.model(attention_mask=attention_mask, **inputs)
            return self.modules.vectors(outputs.last_hidden_state, attention_mask)

        return vectors_of_texts(self.model, self.tokenizer, texts, read, rows, self.max_length)

    @property
    def max_length(self) -> int | None:
        """Number of tokens at which texts are cut; None: what the tokenizer states."""
        limits = (self.modules.max_length, max_positions(self.model.config), self.tokenizer.model_max_length)
        return min((limit for limit in limits if limit is not None and limit < UNLIMITED), default=None)


def load_sentence_encoder(place: str | ModelLocation) -> SentenceEncoder:
    """Load a sentence encoder from a folder or from the Hub: one of the recipe sentence_encoder, or of
    sentence-transformers.

    The classes of this package and of transformers are used. Code from a repository runs only where a
    ``ModelLocation`` trusts it.

    Raises:
        UserError: there is no such model, it has no ``modules.json``, or a module that hfattn does not have.
    """
    location = ModelLocation(name=place) if isinstance(place, str) else place
    name, modules = location.name, read_modules(location)
    if modules is None:
        raise UserError(
            f"{name} has no {MODULES}, which says how a text becomes a vector; give a sentence encoder, as the recipe "
            "sentence_encoder trains it, or one of sentence-transformers (a dual encoder searches a folder of images)."
        )
    model, tokenizer, _ = load_reading_model(location)
    if model.config.is_encoder_decoder:
        raise UserError(f"{name} is an encoder-decoder, whose encoder alone hfattn does not load; choose another one.")
    return SentenceEncoder(model, tokenizer, modules)


def sentence_encoder_of(name: str, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> SentenceEncoder:
    """Return the sentence encoder of a model that is loaded; if it is loaded with a head, it is loaded again without.

    Raises:
        UserError: as ``load_sentence_encoder``.
    """
    modules = read_modules(ModelLocation(name=name))
    if modules is None or model.base_model is not model or model.config.is_encoder_decoder:
        return load_sentence_encoder(name)
    return SentenceEncoder(model, tokenizer, modules)
