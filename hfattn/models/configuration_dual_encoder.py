"""Configuration of the dual encoder of images and texts."""

from .parts import WholeConfig  # isort: skip  (first, because it refuses an older transformers)

from dataclasses import field
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig

TEXT_POOLINGS = ("mean", "pooler")


def _auto_map() -> dict[str, str]:
    return {
        "AutoConfig": "configuration_dual_encoder.DualEncoderConfig",
        "AutoModel": "modeling_dual_encoder.DualEncoderModel",
        "AutoModelForZeroShotImageClassification": "modeling_dual_encoder.DualEncoderModel",
    }


@strict
class DualEncoderConfig(WholeConfig):
    """Configuration of a dual encoder: two towers of transformers, and a projection after each.

    Args:
        vision_config: configuration of the image tower, any model of ``AutoModel`` that reads ``pixel_values`` and
            returns ``pooler_output``, such as ViT or ``vaswani_vision``.
        text_config: configuration of the text tower, any encoder of ``AutoModel``, such as BERT or ``rnn_encoder``. The
            code of a tower of hfattn is saved with the model.
        projection_dim: width of the embeddings of images and texts (D).
        projection_bias: whether the linear layers of the projections have a bias.
        text_hidden_size: width of a hidden layer with GELU in the projection of texts; null: the projection is linear,
            as that of images.
        text_pooling: "mean" over the tokens of a text, padding left out, for which sentence encoders such as MiniLM are
            trained; or "pooler", the ``pooler_output`` of the tower.
        logit_scale_init_value: logarithm t of the scale of the similarities at initialization; ln(1 / 0.07) in CLIP.
        logit_bias_init_value: bias b that is added to the similarities, for the sigmoid loss (Zhai et al. 2023, section
            3.2: -10, with t = ln 10); null: no bias.

    Raises:
        ValueError: a field does not exist, or the code of a tower could not be saved with the model.
        StrictDataclassError: a field is out of range, or a tower is not an encoder.
    """

    model_type = "dual_encoder"
    sub_configs: ClassVar[dict[str, Any]] = {"vision_config": AutoConfig, "text_config": AutoConfig}

    vision_config: Any = None
    text_config: Any = None
    projection_dim: int = 256
    projection_bias: bool = True
    text_hidden_size: int | None = None
    text_pooling: str = "mean"
    logit_scale_init_value: float | int = 2.6592
    logit_bias_init_value: float | int | None = None
    auto_map: dict[str, str] = field(default_factory=_auto_map)

    def __post_init__(self, **kwargs: Any) -> None:
        self._make_parts(vision_config="vit", text_config="bert")
        super().__post_init__(**kwargs)

    @property
    def text_size(self) -> int:
        """Width of the pooled outputs of the text tower."""
        tower = self.text_config
        if tower.model_type == "rnn_encoder":
            return int(tower.annotation_size if self.text_pooling == "mean" else tower.pooled_size)
        return int(tower.hidden_size)

    def validate_towers(self) -> None:
        """Check that the text tower is an encoder, and returns what is pooled."""
        tower = self.text_config
        if tower.is_encoder_decoder or (tower.model_type == "vaswani" and tower.is_decoder):
            raise ValueError(
                f"text_config is a {type(tower).__name__} with a decoder; write is_encoder_decoder: false and "
                "is_decoder: false, or the configuration of an encoder."
            )
        if tower.model_type == "vaswani" and self.text_pooling == "pooler":
            raise ValueError("text_pooling is 'pooler', and vaswani has no pooler; write mean.")

    def validate_projection(self) -> None:
        """Check the width, and the pooling of the texts."""
        self._check_positive("projection_dim", *(["text_hidden_size"] if self.text_hidden_size is not None else []))
        self._check_choice("text_pooling", TEXT_POOLINGS)


DualEncoderConfig.register_for_auto_class()
