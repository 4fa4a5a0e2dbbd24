"""Base of the configurations: checks of their fields, and the custom classes that they name.

The files of a model need transformers 5.17 or newer.
"""

import difflib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import Field, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import transformers

VERSION = "0.1.0"  # of hfattn; config.json has it as hfattn_version
OLDEST_TRANSFORMERS = "5.17"
# The configuration of a model imports this file first, so an older transformers is refused before any import fails.
if tuple(map(int, transformers.__version__.split(".")[:2])) < tuple(map(int, OLDEST_TRANSFORMERS.split("."))):
    raise ImportError(
        f"This model needs transformers {OLDEST_TRANSFORMERS} or newer, and {transformers.__version__} is installed; "
        "run pip install --upgrade transformers."
    )

from transformers import PreTrainedConfig  # noqa: E402

Entry = TypeVar("Entry")

# Names in config.json that are not declared as fields: those that transformers passes or writes, and the version.
TRANSFORMERS_KEYS = frozenset(
    {
        "_attn_implementation", "_attn_implementation_internal", "_commit_hash", "_experts_implementation",
        "_experts_implementation_internal", "_name_or_path", "_output_attentions", "attn_implementation",
        "custom_pipelines", "experts_implementation", "hfattn_version", "model_type", "name_or_path", "num_labels",
        "output_attentions", "per_layer_config", "quantization_config", "torch_dtype", "transformers_weights",
    }
)  # fmt: skip


def unknown_message(name: str, known: Collection[str], what: str) -> str:
    """Return an error message for the unknown name ``name``, which suggests the nearest known name."""
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if nearest:
        hint = f"did you mean {nearest[0]!r}?"
    elif len(known) > 30:
        hint = "none has a name like it."
    else:
        hint = f"write one of {_listed(known)}." if known else "there is none."
    return f"{name!r} is not {what}; {hint}"


def unknown_name_message(name: str, known: Collection[str], what: str) -> str:
    """Return this error message for a field of ``what``."""
    return unknown_message(name, sorted(known), f"a field of {what}")


class CustomClasses:
    """The custom classes of a saved model, which its ``custom_classes.py`` imports."""

    @classmethod
    def find(cls, name: str) -> type:
        """Return the class of that name.

        Raises:
            ValueError: the model was saved without this class.
        """
        from .custom_classes import CLASSES

        if name not in CLASSES:
            raise ValueError(f"{name!r} was not found: this model was saved without it; save it again with hfattn.")
        return CLASSES[name]

    @classmethod
    def check(cls, names: Iterable[str]) -> None:
        """Check that the named classes can be saved with a model; classes of a saved model can."""

    @classmethod
    def copy_files(cls, names: Iterable[str], folder: Path) -> None:
        """Copy the files of classes to a folder. For a saved model, transformers has already copied them."""


def by_name(registry: Mapping[str, Entry], name: str, what: str) -> Entry:
    """Return an entry of a registry.

    Raises:
        ValueError: the registry has no such entry; the message names the nearest one.
    """
    if name not in registry:
        raise ValueError(unknown_message(name, registry, what))
    return registry[name]


def class_by_name(
    registry: Mapping[str, type[Entry]],
    name: str,
    base: type[Entry],
    what: str,
    elsewhere: Mapping[str, str] | None = None,
) -> type[Entry]:
    """Return a class of a registry by its name, or the class of a file by a name like "my_scores.LowRank".

    Args:
        base: class of which it must be a subclass.
        what: name of the kind of entry, such as "a score", used in the error message.
        elsewhere: further names, each with its file and class.

    Raises:
        ValueError: there is no such class, or it is not a subclass of ``base``.
    """
    elsewhere = elsewhere or {}
    if "." not in name and name not in elsewhere:
        if name not in registry:
            raise ValueError(unknown_message(name, [*registry, *elsewhere], what))
        return registry[name]
    name = elsewhere.get(name, name)
    kind = StrictConfig.custom_classes.find(name)
    if not issubclass(kind, base):
        module = base.__module__.rpartition(".")[2]
        raise ValueError(f"{name} is not {what}: make it a subclass of {base.__name__} (from .{module} import ...).")
    return kind


def own_fields(config_class: type[PreTrainedConfig]) -> list[Field]:
    """Return the fields that a configuration class adds to those of transformers, without ``auto_map``."""
    inherited = {field.name for field in fields(PreTrainedConfig)} | {"auto_map"}
    return [field for field in fields(config_class) if field.name not in inherited]


def _listed(names: Collection[str]) -> str:
    return ", ".join(map(repr, names))


class StrictConfig(PreTrainedConfig):
    """A configuration that rejects unknown fields, which transformers would store.

    If the configuration was saved by transformers, only misspelled fields are rejected, because another release may
    have written fields that do not exist in this one. If a later hfattn saved it, all unknown fields are.
    """

    # hfattn replaces it with a class that searches sys.path
    custom_classes: ClassVar[type[CustomClasses]] = CustomClasses
    _presets: ClassVar[dict[str, dict[str, Any]]] = {}
    _class_fields: ClassVar[tuple[str, ...]] = ()  # fields that hold the name of a class

    auto_map: dict[str, str] = field(default_factory=dict)

    @classmethod
    def preset(cls, name: str, **fields: Any) -> Self:
        """Return a preset, with ``fields`` overriding its values.

        Raises:
            ValueError: there is no preset with that name; the message lists all presets.
        """
        if name not in cls._presets:
            nearest = difflib.get_close_matches(name, cls._presets, n=1, cutoff=0.5)
            hint = f"did you mean {nearest[0]!r}? " if nearest else ""
            raise ValueError(f"{name!r} is not a preset of {cls.__name__}; {hint}write one of {_listed(cls._presets)}.")
        return cls(**{**cls._presets[name], **fields})

    def __post_init__(self, **kwargs: Any) -> None:
        own = {field.name for field in own_fields(type(self))}
        saved = self.transformers_version is not None
        version = str(kwargs.get("hfattn_version", VERSION))
        later = [*map(int, re.findall(r"\d+", version)[:2])] > [*map(int, VERSION.split(".")[:2])]
        for name in sorted(kwargs.keys() - TRANSFORMERS_KEYS):
            if later:
                raise ValueError(f"{name!r} is a field of hfattn {version}, and this is {VERSION}; update hfattn.")
            misspelt = difflib.get_close_matches(name, own, n=1, cutoff=0.8)
            if misspelt or not saved:
                raise ValueError(unknown_name_message(name, own, type(self).__name__))
        super().__post_init__(**kwargs)

    def _class_names(self) -> set[str]:
        """Return the names of the classes that the fields name."""
        return {getattr(self, name) for name in self._class_fields} - {None}

    def save_pretrained(self, save_directory: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        """Save as in transformers, with the custom classes that the fields name.

        ``auto_map`` is saved with the classes whose files are in the folder, so that a classifier, which is saved
        without the files of a translator, does not name its classes.

        Raises:
            ValueError: a class is not one of hfattn and has no file that can be saved.
        """
        folder, auto_map = Path(save_directory), self.auto_map
        self.hfattn_version = VERSION
        names = sorted(self._class_names())
        self.custom_classes.check(names)
        saved = {path.stem for path in folder.glob("*.py")} | {type(self).__module__.rpartition(".")[2]}
        local = {auto: reference.rpartition("--")[2] for auto, reference in auto_map.items()}  # without a Hub id
        present = {auto: reference for auto, reference in local.items() if reference.split(".")[0] in saved}
        self.auto_map = (
            present if present.keys() > {"AutoConfig"} else auto_map
        )  # all classes, if no model is saved with the configuration
        try:
            super().save_pretrained(save_directory, *args, **kwargs)
        finally:
            self.auto_map = auto_map
        self.custom_classes.copy_files(names, folder)

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

    def _check_vocabularies(self) -> None:
        """Check the source vocabulary and the target tokenizer of an encoder-decoder."""
        if self.source_vocab_size is not None:
            self._check_positive("source_vocab_size")
        if self.target_tokenizer is not None and not re.fullmatch(r"\w[\w.-]*", self.target_tokenizer):
            raise ValueError(
                f"target_tokenizer is {self.target_tokenizer!r}; write the name of the sub-folder that it is in, such "
                "as 'target', or null."
            )
        for name in ("source_vocab_size", "target_tokenizer"):
            if self.share_embeddings and getattr(self, name) is not None:
                raise ValueError(
                    f"share_embeddings needs one vocabulary, but {name} is given; write share_embeddings: false, or "
                    f"leave {name} out."
                )

    def _check_probability(self, *names: str) -> None:
        for name in names:
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(
                    f"{name} is {getattr(self, name)}; write a probability from 0 to below 1, such as 0.2."
                )

    def _check_estimator(self, name: str) -> None:
        if getattr(self, name).get("estimator") == "score_function":
            raise ValueError(
                "The estimator 'score_function' needs a term in the loss that this model does not have; write "
                f"{name}: {{estimator: straight_through}}."
            )

    def _check_choice(self, name: str, choices: Collection[str]) -> None:
        if getattr(self, name) not in choices:
            raise ValueError(f"{name} is {getattr(self, name)!r}; write one of {_listed(choices)}.")
