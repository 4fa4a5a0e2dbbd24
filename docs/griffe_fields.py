"""Show the fields of configuration classes as constructor arguments on the API pages."""

from typing import Any

import griffe


class ConfigurationFields(griffe.Extension):
    """Add the generated constructor to classes that derive from ``StrictConfig``."""

    def on_class_members(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        if not any(str(base) == "StrictConfig" for base in cls.bases):
            return
        fields = [
            griffe.Parameter(
                name,
                annotation=member.annotation,
                default=member.value,
                kind=griffe.ParameterKind.keyword_only,
            )
            for name, member in cls.members.items()
            if isinstance(member, griffe.Attribute)
            and member.annotation is not None
            and not name.startswith("_")
            and name != "auto_map"
            and "property" not in member.labels
        ]
        function = griffe.Function("__init__", parameters=griffe.Parameters(*fields), parent=cls)
        cls.set_member("__init__", function)
