"""Read YAML 1.2, and write values as overrides of its fields."""

import json
import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from .errors import UserError

_DEEPEST = 50  # levels of nested lists and mappings
_UNREADABLE = re.compile("[\0\ud800-\udfff]")  # characters that neither a path nor a UTF-8 file can hold


class _Loader(yaml.SafeLoader):
    """Loader with the scalars of YAML 1.2: 1e-3 is a number; ``no``, ``off``, ``yes`` and 2024-01-01 are strings.

    Tags and aliases are errors: a configuration needs neither, and a few nested aliases stand for a value of any size.
    So are a key that occurs twice, and a value that is nested very deeply.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise _error(event, f"the alias *{event.anchor} is not supported; write the value again")
        if getattr(event, "tag", None) is not None:
            raise _error(event, f"the tag {event.tag} is not supported; write the value without it")
        if self._depth == _DEEPEST:
            raise _error(event, f"values are nested deeper than {_DEEPEST} levels")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        if isinstance(node, yaml.ScalarNode) and (found := _UNREADABLE.search(node.value)):
            raise _error(node, f"a text contains {found[0]!r}; remove that character")
        return super().construct_scalar(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise _error(key, f"the key {key.value!r} occurs twice; remove one")
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        try:
            return super().construct_yaml_int(node)
        except ValueError:  # more digits than Python converts
            raise _error(node, f"a number has {len(node.value)} digits; write a smaller one") from None


def _error(place: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=place.start_mark)


_REPLACED = (":float", ":bool", ":int", ":timestamp", ":merge", ":value")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if not tag.endswith(_REPLACED)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
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
        yaml.YAMLError: the text is not valid YAML, or has tags, aliases, a key twice or very deeply nested values.
    """
    return yaml.load(text, _Loader)


def read_yaml(path: Path) -> Any:
    """Return the value of a YAML file.

    Raises:
        UserError: the file is not UTF-8, or as ``load_yaml``.
    """
    try:
        return load_yaml(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        reason = f"{error.problem or error.context}{place}"
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
    raise UserError(f"{path.name} is not valid YAML: {reason}.")


def override_words(fields: Mapping[str, Any]) -> list[str]:
    """Return the command-line arguments ``--section.field value`` that give fields of a recipe these values."""
    words = []
    for name, value in fields.items():
        words += [f"--{name}", value if isinstance(value, str) else json.dumps(value)]
    return words
