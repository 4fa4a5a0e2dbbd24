"""Show the fields of configuration classes as constructor arguments on the API pages."""

from typing import Any

import griffe

BASES = ("StrictConfig", "LayersConfig")


class ConfigurationFields(griffe.Extension):
    """Add the generated constructor to classes that derive from ``StrictConfig``, with the fields of their bases."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        for module in pkg["models"].modules.values():
            for cls in module.classes.values():
                if not cls.is_alias and any(str(base) in BASES for base in cls.bases):
                    add_constructor(cls)


def add_constructor(cls: griffe.Class) -> None:
    """Add the constructor of a configuration class: its own fields, then those of its bases."""
    members = {**cls.members}
    for base in cls.resolved_bases:
        if base.name in BASES[1:]:
            members |= {name: member for name, member in base.members.items() if name not in members}
    fields = [
        griffe.Parameter(
            name,
            annotation=member.annotation,
            default=member.value,
            kind=griffe.ParameterKind.keyword_only,
        )
        for name, member in members.items()
        if isinstance(member, griffe.Attribute)
        and member.annotation is not None
        and not name.startswith("_")
        and name != "auto_map"
        and "property" not in member.labels
    ]
    cls.set_member("__init__", griffe.Function("__init__", parameters=griffe.Parameters(*fields), parent=cls))
