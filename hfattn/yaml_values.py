"""YAML as its second version reads it."""

import re
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """YAML 1.2's scalars: 1e-3 is a number, and ``no``, ``off`` and ``yes`` are words."""


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
    """The value that a text of YAML holds.

    Raises:
        yaml.YAMLError: it is none.
    """
    return yaml.load(text, _Loader)


__all__ = ["load_yaml"]
