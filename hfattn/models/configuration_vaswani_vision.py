"""Configuration of the Vision Transformer, with or without a distillation token."""

from .configuration_layers import LayersConfig  # isort: skip  (first, because it refuses an older transformers)

from dataclasses import field
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict

VISION_POSITION_NAMES = ("learned", "sinusoidal", "sinusoidal_2d", "none")
VISION_POOLING_NAMES = ("first", "mean")


def _auto_map() -> dict[str, str]:
    return {
        "AutoConfig": "configuration_vaswani_vision.VaswaniVisionConfig",
        "AutoModel": "modeling_vaswani_vision.VaswaniVisionModel",
        "AutoModelForImageClassification": "modeling_vaswani_vision.VaswaniVisionForImageClassification",
    }


# Touvron et al. 2021, table 1.
_TINY = {"hidden_size": 192, "intermediate_size": 768, "num_attention_heads": 3}
_SMALL = {"hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 6}
_BASE = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}


@strict
class VaswaniVisionConfig(LayersConfig):
    """The encoder of the Transformer on the patches of an image.

    This is ViT (Dosovitskiy et al. 2021, "An image is worth 16x16 words") and, with ``distillation_token``, DeiT
    (Touvron et al. 2021, "Training data-efficient image transformers & distillation through attention").

    Except for the number of classes, the defaults are those of ViT-B/16. The presets of
    ``VaswaniVisionConfig.preset(name)`` are ``vit_tiny``, ``vit_small`` and ``vit_base``, and the same with a
    distillation token, ``deit_tiny``, ``deit_small`` and ``deit_base`` (Touvron et al. 2021, table 1).
    ``hfattn convert transformers`` and ``hfattn export transformers`` exchange the weights of ViT and DeiT.

    The arguments are these and those of ``LayersConfig``.

    Args:
        image_size: height and width of an image in pixels, as one number or as [height, width].
        patch_size: height and width of a patch in pixels (P), as one number or as [height, width]; they divide
            ``image_size``.
        num_channels: number of channels of an image (C). Pipelines of transformers make images with 3.
        positions: "learned" (E_pos, eq. 1), "sinusoidal" (Vaswani et al. 2017, section 3.5; the patches counted row by
            row), "sinusoidal_2d" (half of the features for the row and half for the column), or "none". The last three
            have no weights, and are defined for images of any size.
        distillation_token: add a second token beside the class token, with a classifier of its own, which a teacher
            trains (Touvron et al. 2021, section 4).
        classifier_pooling: "first" adds a class token, whose output is ``pooler_output`` (eq. 4); "mean" has no such
            token and takes the mean of all outputs (appendix D.3).
        embedding_std: standard deviation of the initial tokens, positions and latents; default ``hidden_size ** -0.5``.
            For short trainings, about 0.5 is better: projected patches have a variance of about 1, and beside them
            smaller positions are hardly seen.
        latents: number of learned vectors that read the patches, and that the layers compute with instead (Perceiver,
            Jaegle et al. 2021); with ``patch_size=1``, they read pixels. Needs ``classifier_pooling="mean"``.

    Raises:
        ValueError: a field does not exist; the message suggests a correction.
        StrictDataclassError: a field is out of range; the message suggests a correction.
    """

    model_type = "vaswani_vision"
    _presets: ClassVar[dict[str, dict[str, Any]]] = {
        "vit_tiny": _TINY,
        "vit_small": _SMALL,
        "vit_base": _BASE,
        "deit_tiny": {**_TINY, "distillation_token": True},
        "deit_small": {**_SMALL, "distillation_token": True},
        "deit_base": {**_BASE, "distillation_token": True},
    }

    image_size: int | list[int] = 224
    patch_size: int | list[int] = 16
    num_channels: int = 3
    distillation_token: bool = False
    classifier_pooling: str = "first"
    embedding_std: float | int | None = None
    hidden_size: int = 768
    intermediate_size: int = 3072
    encoder_layers: int = 12
    num_attention_heads: int = 12
    activation: str = "gelu"
    dropout: float | int = 0.0
    norm: str = "pre"
    layer_norm_eps: float | int = 1e-6
    positions: str = "learned"
    auto_map: dict[str, str] = field(default_factory=_auto_map)

    @property
    def num_hidden_layers(self) -> int:
        """Number of layers."""
        return self.encoder_layers

    @num_hidden_layers.setter
    def num_hidden_layers(self, number: int) -> None:
        self.encoder_layers = number

    @property
    def patch_shape(self) -> tuple[int, int]:
        """Height and width of a patch in pixels."""
        return _pair(self.patch_size)

    @property
    def grid(self) -> tuple[int, int]:
        """Number of rows and columns of patches."""
        height, width = _pair(self.image_size)
        return height // self.patch_shape[0], width // self.patch_shape[1]

    @property
    def num_prefix_tokens(self) -> int:
        """Number of tokens before the patches: the class token and the distillation token."""
        return int(self.classifier_pooling == "first") + int(self.distillation_token)

    def validate_fields(self) -> None:
        """Check ranges and combinations (run by ``@strict`` when the configuration is made)."""
        self._check_positive("num_channels")
        if self.embedding_std is not None:
            self._check_above_zero("embedding_std", example="0.5")
        self._check_choice("positions", VISION_POSITION_NAMES)
        self._check_choice("classifier_pooling", VISION_POOLING_NAMES)
        for name in ("image_size", "patch_size"):
            value = getattr(self, name)
            if (isinstance(value, list) and len(value) != 2) or min(_pair(value)) < 1:
                raise ValueError(f"{name} is {value}; write a number of pixels, or [height, width].")
        if any(size % patch for size, patch in zip(_pair(self.image_size), self.patch_shape, strict=True)):
            raise ValueError(
                f"image_size {self.image_size} does not divide into patches of {self.patch_size} pixels; write a "
                "multiple of patch_size, or a patch_size that divides it."
            )
        if self.distillation_token and self.classifier_pooling != "first":
            raise ValueError(
                "distillation_token is true, and its output is averaged with that of a class token; write "
                "classifier_pooling: first, or leave distillation_token out."
            )
        if self.latents is not None and self.classifier_pooling != "mean":
            raise ValueError(
                f"latents is {self.latents}, and no latent belongs to a class token; write classifier_pooling: mean, "
                "or leave latents out."
            )
        if self.positions == "sinusoidal_2d" and self.hidden_size % 4:
            raise ValueError(
                f"sinusoidal_2d positions are a sine and a cosine for rows and for columns, but hidden_size is "
                f"{self.hidden_size}; write a multiple of 4, or positions: learned."
            )
        super().validate_fields()


def _pair(size: int | list[int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[-1])


VaswaniVisionConfig.register_for_auto_class()
