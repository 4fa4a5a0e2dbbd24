"""Recipe configurations: a YAML file with overrides from the command line, checked before anything else happens."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import yaml
from huggingface_hub.errors import StrictDataclassError

from ..errors import UserError
from ..fields import refusal
from ..models.strict_config import StrictConfig, unknown_name_message
from ..yaml_values import load_yaml, read_yaml

Schema = TypeVar("Schema")


def load_config(schema: type[Schema], path: str | Path, overrides: list[str] | None = None) -> Schema:
    """Read the YAML file of a recipe into its dataclass.

    Args:
        schema: dataclass whose fields are values, dictionaries or dataclasses (sections).
        path: the YAML file.
        overrides: command-line arguments ``--section.field value`` or ``--section.field=value``. The value of a text
            field is taken literally (``null`` means None where the field allows it); any other value is read as YAML.

    Raises:
        UserError: the file is missing or not YAML, or a field is unknown, mistyped or out of range.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"The configuration file {path} was not found; hfattn recipes list shows those that exist.")
    values = read_yaml(path)
    values = {} if values is None else values
    if not isinstance(values, dict):
        raise UserError(
            f"{path.name} is not a mapping of fields; write lines such as 'data:' and below it '  max_length: 100'."
        )
    values.pop("recipe", None)  # names the train.py that reads the file
    for name, text in split_overrides(overrides or []):
        try:
            value = _value(text, _type(schema, name))
        except yaml.YAMLError:
            raise UserError(f"The value {text!r} of --{name} is not valid YAML; put it in quotes.") from None
        _set(values, name, value)
    return build_section(schema, values, prefix="")


def split_overrides(words: list[str]) -> list[tuple[str, str]]:
    """Return the names and values of ``--section.field value`` or ``--section.field=value``, in order.

    Raises:
        UserError: an argument has neither form.
    """
    overrides, rest = [], iter(words)
    for word in rest:
        name, equals, value = word.removeprefix("--").partition("=")
        following = value if equals else next(rest, None)
        if not word.startswith("--") or following is None:
            raise UserError(f"Cannot read {' '.join(words)!r}; override fields as --section.field value.")
        overrides.append((name, following))
    return overrides


def _value(text: str, declared: Any) -> Any:
    if declared is str:
        return text
    if set(get_args(declared)) == {str, type(None)}:
        return None if text == "null" else text
    return load_yaml(text)


def _type(schema: Any, dotted: str) -> Any:
    """Return the declared type of a field; None inside a dictionary, whose fields are not declared."""
    for name in dotted.split("."):
        if not dataclasses.is_dataclass(schema):
            return None
        schema = get_type_hints(schema).get(name)
    return schema


def _set(values: dict[str, Any], dotted: str, value: Any) -> None:
    *sections, name = dotted.split(".")
    for i, section in enumerate(sections):
        if values.get(section) is None:
            values[section] = {}
        values = values[section]
        if not isinstance(values, dict):
            field = ".".join(sections[: i + 1])
            raise UserError(f"--{dotted} names a field of {field!r}, which is a value; write --{field} VALUE.")
    values[name] = value


def first_changed(config: Any, names: Iterable[str]) -> str | None:
    """Return the first of these fields, such as ``data.labels``, that does not have its default value, or None."""
    default = type(config)()
    return next((name for name in names if attrgetter(name)(config) != attrgetter(name)(default)), None)


def build_section(schema: type[Schema], values: dict[str, Any], prefix: str) -> Schema:
    """Create the dataclass of a section from its values.

    Args:
        schema: the dataclass.
        values: its fields by name.
        prefix: name of the section in messages, with a dot at the end, or empty for a whole configuration.

    Raises:
        UserError: a field is unknown, mistyped or out of range.
    """
    names = {field.name for field in dataclasses.fields(schema)}  # type: ignore[arg-type]
    hints = get_type_hints(schema)
    arguments = {}
    for name, value in values.items():
        if name not in names:
            raise UserError(unknown_name_message(f"{prefix}{name}", {prefix + known for known in names}, "this recipe"))
        if dataclasses.is_dataclass(hints[name]):
            if not isinstance(value, dict | None):
                raise UserError(
                    f"{prefix}{name} is a section; write its fields below it, such as {prefix}{name}.FIELD."
                )
            value = build_section(hints[name], value or {}, prefix=f"{prefix}{name}.")
        arguments[name] = {} if value is None and hints[name] == dict[str, Any] else value
    return checked(schema, arguments, prefix)


def checked(schema: Callable[..., Schema], arguments: dict[str, Any], prefix: str = "") -> Schema:
    """Create a dataclass or a model configuration; its errors become one-sentence ``UserError``.

    Raises:
        UserError: ``schema`` rejects a value.
    """
    try:
        return schema(**arguments)
    except StrictDataclassError as error:
        reason = refusal(error)
    except (ValueError, TypeError, ImportError, RuntimeError) as error:
        reason = str(error)
    reason = " ".join(reason.split())
    raise UserError(f"{prefix.rstrip('.')}: {reason}" if prefix else reason)


def model_config(config_class: type[StrictConfig], fields: dict[str, Any], **from_data: Any) -> StrictConfig:
    """Create a model configuration from the section ``model`` and values that follow from the data.

    ``preset`` in the section names a published setting of the class; the other fields override those of the preset.

    Raises:
        UserError: the section sets a value that follows from the data, or the configuration class rejects a field.
    """
    for name in from_data:
        if name in fields:
            raise UserError(f"model.{name} follows from the data; leave it out.")
    fields = {**fields, **from_data}
    preset = fields.pop("preset", None)
    return checked(config_class if preset is None else partial(config_class.preset, preset), fields, prefix="model.")


def family_config(
    families: Mapping[str, type[StrictConfig]], section: Mapping[str, Any], **from_data: Any
) -> StrictConfig:
    """Create the configuration of the model family given by ``model_type`` in the section ``model``.

    Args:
        families: configuration classes of the models that the recipe trains, by ``model_type``.
        section: the section ``model``.
        from_data: values that follow from the data, such as the vocabulary size and token ids.

    Raises:
        UserError: the section names another family, or ``model_config`` rejects it.
    """
    fields = dict(section)
    family = fields.pop("model_type", None)
    if not isinstance(family, str) or family not in families:
        raise UserError(f"model.model_type is {family!r}; write one of {', '.join(families)}.")
    return model_config(families[family], fields, **from_data)
