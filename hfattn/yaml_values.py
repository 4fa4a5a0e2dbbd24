"""Read YAML 1.2, and write values as overrides of its fields."""

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """Loader with the scalars of YAML 1.2: 1e-3 is a number; ``no``, ``off`` and ``yes`` are strings."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if not tag.endswith((":float", ":bool", ":int"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|false|False)$"), list("tTfF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9]\d*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\.inf|\.nan)$"),
    list("-+.0123456789"),
)


def load_yaml(text: str) -> Any:
    """Return the value of a YAML text.

    Raises:
        yaml.YAMLError: the text is not valid YAML.
    """
    return yaml.load(text, _Loader)


def override_words(fields: Mapping[str, Any]) -> list[str]:
    """Return the command-line arguments ``--section.field value`` that give fields of a recipe these values."""
    words = []
    for name, value in fields.items():
        words += [f"--{name}", value if isinstance(value, str) else json.dumps(value)]
    return words
