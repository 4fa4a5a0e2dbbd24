"""Configuration checks shared by the models of the package."""

import difflib
import re
from collections.abc import Collection
from dataclasses import Field, fields
from typing import Any, ClassVar, Self

from transformers import PreTrainedConfig

# Names that transformers itself passes to a configuration or writes into config.json without declaring them as fields.
TRANSFORMERS_KEYS = frozenset(
    {
        "_attn_implementation",
        "_attn_implementation_internal",
        "_commit_hash",
        "_experts_implementation",
        "_experts_implementation_internal",
        "_name_or_path",
        "_output_attentions",
        "attn_implementation",
        "custom_pipelines",
        "experts_implementation",
        "model_type",
        "name_or_path",
        "num_labels",
        "output_attentions",
        "per_layer_config",
        "quantization_config",
        "torch_dtype",
        "transformers_weights",
    }
)


def unknown_message(name: str, known: Collection[str], what: str) -> str:
    """One sentence that says that ``name`` is not ``what``, and which known name was probably meant."""
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if nearest:
        hint = f"did you mean {nearest[0]!r}?"
    elif len(known) > 30:
        hint = "none has a name like it."
    else:
        hint = f"write one of {_listed(known)}." if known else "there is none."
    return f"{name!r} is not {what}; {hint}"


def unknown_name_message(name: str, known: Collection[str], what: str) -> str:
    """The same for a field of ``what``."""
    return unknown_message(name, sorted(known), f"a field of {what}")


def own_fields(config_class: type[PreTrainedConfig]) -> list[Field]:
    """The fields that a configuration class adds to those that transformers has, ``auto_map`` left out."""
    inherited = {field.name for field in fields(PreTrainedConfig)} | {"auto_map"}
    return [field for field in fields(config_class) if field.name not in inherited]


def _listed(names: Collection[str]) -> str:
    return ", ".join(map(repr, names))


class StrictConfig(PreTrainedConfig):
    """A configuration that refuses a field that it does not have, where transformers would store it and go on.

    In a configuration that a release of transformers has saved, only a misspelling is refused: a later one may write
    names of its own that this one cannot know.
    """

    _presets: ClassVar[dict[str, dict[str, Any]]] = {}

    @classmethod
    def preset(cls, name: str, **fields: Any) -> Self:
        """A configuration by the name of a published setting; ``fields`` take the place of the preset's.

        Raises:
            ValueError: there is no preset of that name; the message lists those there are.
        """
        if name not in cls._presets:
            nearest = difflib.get_close_matches(name, cls._presets, n=1, cutoff=0.5)
            hint = f"did you mean {nearest[0]!r}? " if nearest else ""
            raise ValueError(f"{name!r} is not a preset of {cls.__name__}; {hint}write one of {_listed(cls._presets)}.")
        return cls(**{**cls._presets[name], **fields})

    def __post_init__(self, **kwargs: Any) -> None:
        own = {field.name for field in own_fields(type(self))}
        saved = self.transformers_version is not None
        for name in kwargs:
            misspelt = difflib.get_close_matches(name, own, n=1, cutoff=0.8)
            if name not in TRANSFORMERS_KEYS and (misspelt or not saved):
                raise ValueError(unknown_name_message(name, own, type(self).__name__))
        super().__post_init__(**kwargs)

    def _check_positive(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; write a whole number of at least 1.")

    def _check_above_zero(self, name: str, example: str) -> None:
        if not 0 < getattr(self, name) < float("inf"):
            raise ValueError(f"{name} is {getattr(self, name)}; write a number above 0, such as {example}.")

    def _check_token_ids(self, *names: str, vocab_size: int) -> None:
        for name in names:
            ids = getattr(self, name)
            for number in ids if isinstance(ids, list) else [ids]:
                if number is not None and not 0 <= number < vocab_size:
                    raise ValueError(f"{name} is {number}; write an id from 0 to {vocab_size - 1}, or null.")

    def _check_source_vocabulary(self) -> None:
        """Of an encoder-decoder, which has one vocabulary or two."""
        if self.source_vocab_size is None:
            return
        self._check_positive("source_vocab_size")
        if self.share_embeddings:
            raise ValueError(
                "share_embeddings needs one vocabulary, but source_vocab_size is given; write share_embeddings: "
                "false, or leave source_vocab_size out."
            )

    def _check_target_tokenizer(self) -> None:
        """Of an encoder-decoder, whose source and target have one tokenizer or two."""
        folder = self.target_tokenizer
        if folder is None:
            return
        if not re.fullmatch(r"\w[\w.-]*", folder):
            raise ValueError(
                f"target_tokenizer is {folder!r}; write the name of the sub-folder that it is in, such as 'target', or "
                "null."
            )
        if self.share_embeddings:
            raise ValueError(
                "share_embeddings needs one vocabulary, but target_tokenizer is given; write share_embeddings: false, "
                "or leave target_tokenizer out."
            )

    def _check_probability(self, *names: str) -> None:
        for name in names:
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(
                    f"{name} is {getattr(self, name)}; write a probability from 0 to below 1, such as 0.2."
                )

    def _check_choice(self, name: str, choices: Collection[str]) -> None:
        if getattr(self, name) not in choices:
            raise ValueError(f"{name} is {getattr(self, name)!r}; write one of {_listed(choices)}.")


__all__ = ["StrictConfig", "own_fields", "unknown_message", "unknown_name_message"]
