"""Models within a model: the towers of a dual encoder, the image model of a captioner, the encoder of a classifier.

A part is a model of transformers, or one of hfattn, whose code is then saved with the whole model.
"""

from .strict_config import StrictConfig  # isort: skip  (first, because it refuses an older transformers)

from typing import TYPE_CHECKING, Any

from transformers import AutoConfig, PreTrainedConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class WholeConfig(StrictConfig):
    """A configuration with those of its parts in the fields ``sub_configs``."""

    def _make_parts(self, **default_types: str) -> None:
        """Make configurations of the parts that are given as dictionaries.

        Args:
            default_types: the model type of a field that names none.

        Raises:
            ValueError: a field is not a configuration or names no model type, or the code of a part could not be saved
                with the model.
        """
        for name in self.sub_configs:
            part = getattr(self, name)
            if part is None and name in default_types:
                part = {}
            if isinstance(part, dict):
                fields = {"model_type": default_types.get(name), **part}
                if fields["model_type"] is None:
                    raise ValueError(f"{name} has no model_type; write that of a model, such as 'bert' or 'vit'.")
                code = fields.get("auto_map")
                make = AutoConfig.for_model if code is None else self.custom_classes.find(code["AutoConfig"])
                # The version says that the fields were saved, so that those of another release are admitted.
                part = make(**{"transformers_version": self.transformers_version, **fields})
                setattr(self, name, part)
            if part is not None and not isinstance(part, PreTrainedConfig):
                raise ValueError(
                    f"{name} is {part!r}; write the fields of a configuration, such as {{model_type: bert}}."
                )
            if part is not None and _code(part) and not _is_ours(part):
                raise ValueError(
                    f"{name} is a {type(part).__name__}, whose code would not be saved with the model; use a model of "
                    "transformers or of hfattn."
                )

    def _class_names(self) -> set[str]:
        names = super()._class_names()
        for name in self.sub_configs:
            part = getattr(self, name)
            if part is not None and _is_ours(part):
                names |= {_code(part)["AutoConfig"], _code(part)["AutoModel"]} | part._class_names()
        return names


def make_part(config: Any) -> "PreTrainedModel":
    """Return a new model of the configuration of a part."""
    from transformers import AutoModel  # slow to import, and not needed for a configuration

    if not _code(config):
        return AutoModel.from_config(config)
    kind: Any = StrictConfig.custom_classes.find(_code(config)["AutoModel"])
    part: PreTrainedModel = kind(config)
    return part


def _code(config: PreTrainedConfig) -> dict[str, str]:
    """Return the classes of a model that transformers does not have, by Auto class."""
    classes: dict[str, str] = config.to_dict().get("auto_map") or {}
    return classes


def _is_ours(config: PreTrainedConfig) -> bool:
    # By name, because transformers may run the files of a saved model again, which makes other classes.
    return any(kind.__name__ == StrictConfig.__name__ for kind in type(config).__mro__)


__all__ = ["WholeConfig", "make_part"]
