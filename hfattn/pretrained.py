"""Models that are already trained, and their tokenizers: from a folder or from the Hub, or why not."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from .errors import UserError
from .models.strict_config import unknown_name_message

_ATTENTION = "attn_implementation"  # an argument of loading, which no configuration file has


@strict
@dataclass
class ModelSource:
    """The section ``model`` of a recipe that begins with a pretrained model."""

    section: ClassVar[str] = "model"  # for the messages

    name: str = ""  # the path of a model's folder, or its id on the Hub
    revision: str | None = None  # of a model on the Hub: a branch, a tag or a commit
    trust_remote_code: bool = False  # whether code that lies beside the weights may run here; read it first
    options: dict[str, Any] = field(default_factory=dict)  # fields of the model's configuration to change

    def validate_name(self) -> None:
        if not self.name.strip():
            raise ValueError("name is empty; write the path of a model's folder, or its id on the Hub.")


class Loaded(NamedTuple):
    """A pretrained model, and the names of its weights that the pretrained ones lack: they begin at random."""

    model: PreTrainedModel
    new_weights: list[str]


def base_model_name(source: ModelSource) -> str:
    """The id on the Hub, or the last part of a local path: what may be published of it."""
    folder = _folder(source)
    return source.name if folder is None else folder.resolve().name


def load_config(source: ModelSource, **fields: Any) -> PreTrainedConfig:
    """Load a model's configuration.

    Args:
        source: where from, and the options to change.
        fields: others to set, such as ``id2label``.

    Raises:
        UserError: there is no such model, the Hub cannot be reached, or an option is no field of its configuration.
    """
    with _explained(source):
        config = AutoConfig.from_pretrained(source.name, **_where(source))
    known = {*config.to_dict(), *config.attribute_map, _ATTENTION}
    for name in source.options:
        if name not in known:
            raise UserError(f"{source.section}.options: {unknown_name_message(name, known, type(config).__name__)}")
    for name, value in {**source.options, **fields}.items():
        if name != _ATTENTION:
            try:
                setattr(config, name, value)
            except (ValueError, TypeError) as error:
                reason = " ".join(str(error.__cause__ or error).split())
                raise UserError(f"{source.section}.options.{name}: {reason}") from error
    return config


def load_tokenizer(source: ModelSource) -> PreTrainedTokenizerBase:
    """Load a model's tokenizer. One without a padding token (GPT's) pads with its end token.

    Raises:
        UserError: there is no such model, it has no tokenizer, or the Hub cannot be reached.
    """
    with _explained(source):
        try:
            tokenizer = AutoTokenizer.from_pretrained(source.name, **_where(source))
        except ValueError as error:
            raise _without_tokenizer(source) from error
    if not len(tokenizer):  # what transformers makes of a folder that has none
        raise _without_tokenizer(source)
    if tokenizer.pad_token is None and tokenizer.eos_token is not None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(auto_class: Any, source: ModelSource, **fields: Any) -> Loaded:
    """Load a pretrained model in float32 with the head of an Auto class; what it has no weights for begins at random.

    Args:
        auto_class: such as ``AutoModelForSequenceClassification``.
        source: where from.
        fields: of its configuration to set, such as ``id2label``.

    Raises:
        UserError: there is no such model, the Hub cannot be reached, it has no such head, or its body differs from what
            its configuration says.
    """
    config = load_config(source, **fields)
    attention = {name: value for name, value in source.options.items() if name == _ATTENTION}
    with _explained(source):
        try:
            model, info = auto_class.from_pretrained(
                source.name,
                config=config,
                dtype=torch.float32,
                use_safetensors=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                **attention,
                **_where(source),
            )
        except ValueError as error:
            if "Unrecognized configuration class" not in str(error):
                raise
            task = auto_class.__name__.removeprefix("AutoModelFor").removeprefix("AutoModel")
            raise UserError(
                f"{source.name} is a model of the type {config.model_type}, of which there is none for {task}; write "
                f"another {source.section}.name."
            ) from error
    mismatched = {name for name, *_ in info["mismatched_keys"]}
    body = f"{model.base_model_prefix}."
    new = sorted({*info["missing_keys"], *mismatched})
    # A pooler is a head that some models keep in their body.
    lost = [name for name in new if name.startswith(body) and "pooler" not in name]
    if lost or (new and not any(name.startswith(body) for name, _ in model.named_parameters())):
        raise UserError(
            f"{source.name} has no {(lost or new)[0]} of the size that its configuration says; write another "
            f"{source.section}.name, or leave out the {source.section}.options that change its shape."
        )
    return Loaded(model, new)


def positions_of(config: PreTrainedConfig) -> int | None:
    """How many tokens a model can read at once; None if there is no end to them."""
    text = config.get_text_config()
    return text.to_dict().get(text.attribute_map.get("max_position_embeddings", "max_position_embeddings"))


def _where(source: ModelSource) -> dict[str, Any]:
    return {"revision": source.revision or "main", "trust_remote_code": source.trust_remote_code}


def _folder(source: ModelSource) -> Path | None:
    """The folder that a source means, or None if it can only be an id on the Hub.

    Raises:
        UserError: there is no such folder, or it is a file, or holds no model.
    """
    name = source.name
    path = Path(os.path.expanduser(name))
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise UserError(
                f"The folder {name} holds no model: it has no config.json; write {source.section}.name: another one."
            )
        return path
    if path.exists():
        raise UserError(f"{name} is a file; write the path of a model's folder, or its id on the Hub.")
    if name.count("/") > 1 or name.startswith((".", "/", "~")):
        raise UserError(f"There is no folder {name}; write the path of a model's folder, or its id on the Hub.")
    return None


@contextmanager
def _explained(source: ModelSource) -> Iterator[None]:
    """What may be wrong with a model's place, in one sentence."""
    local = _folder(source) is not None
    try:
        yield
    except UserError:
        raise
    except (OSError, ValueError) as error:
        causes = list(_causes(error))
        if "trust_remote_code" in str(error):
            option = f"{source.section}.trust_remote_code"
            reason = f"brings code of its own; read it, and write {option}: true to let it run here"
        elif any(isinstance(cause, RevisionNotFoundError) for cause in causes):
            reason = f"has no revision {source.revision!r}; write another {source.section}.revision, or none"
        elif any(isinstance(cause, GatedRepoError) for cause in causes):
            reason = "is behind a form; accept it on its page and log in with hf auth login"
        elif any(isinstance(cause, RepositoryNotFoundError) for cause in causes):
            reason = "is no folder here and no model on the Hub that this account can see; check the name"
        elif local:
            reason = f"does not load ({' '.join(str(error).split()).rstrip('.')}); write another {source.section}.name"
        else:
            reason = (
                "is no folder here, and the Hub cannot give it (no connection, or no file of that kind there): where "
                f"there is a network, get it with hf download {source.name} --local-dir DIR, and write "
                f"{source.section}.name: DIR"
            )
        raise UserError(f"{source.name} {reason}.") from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _without_tokenizer(source: ModelSource) -> UserError:
    return UserError(f"{source.name} has no tokenizer; save the one it was trained with beside its weights.")


__all__ = ["Loaded", "ModelSource", "base_model_name", "load_config", "load_model", "load_tokenizer", "positions_of"]
