"""Configuration of the captioner of Xu et al. 2015, "Show, attend and tell"."""

from .configuration_recurrent_decoder import RecurrentDecoderConfig  # isort: skip  (first: refuses an older transformers)

from dataclasses import field
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig

from .parts import WholeConfig

# Of REINFORCE, as in the paper's equation 12 and the authors' code.
_REINFORCE = {"reinforce_weight": 0.1, "entropy_weight": 0.002, "baseline_decay": 0.9, "expected_attention": 0.5}


def _auto_map() -> dict[str, str]:
    return {
        "AutoConfig": "configuration_show_attend_tell.ShowAttendTellConfig",
        "AutoModel": "modeling_show_attend_tell.ShowAttendTellModel",
        "AutoModelForImageTextToText": "modeling_show_attend_tell.ShowAttendTellForConditionalGeneration",
    }


@strict
class ShowAttendTellConfig(RecurrentDecoderConfig, WholeConfig):
    """Configuration of an image captioner with visual attention (Xu et al. 2015).

    An encoder maps an image to annotations, one for each cell of a grid, and the decoder of ``BahdanauConfig`` attends
    to them before each word. The fields that are not listed here are those of ``BahdanauConfig``; the query is always
    the previous state, over the whole grid, and s_0 is projected from the mean annotation (f_init).

    Args:
        vision_config: configuration of the encoder, if it is an image model that ``AutoModel`` builds and that returns
            a vector for each patch (ViT, DINOv2, ``vaswani_vision``) or a feature map (ResNet). None is a CNN of three
            convolutions, each of which halves the grid. The code of a model of hfattn is saved with the captioner.
        freeze_vision: keep the weights of that model as they are, and run it in evaluation mode without gradients.
        annotation_size: width D of an annotation, a multiple of 4. The outputs of an image model are projected to it.
        channels: channels of the first two convolutions of the CNN; the third has D.
        num_channels: channels of an image.
        doubly_stochastic: weight λ of Σ_i (1 - Σ_t α_ti)², which asks the decoder to look at every annotation equally
            (eq. 14), per caption; the sum over t has the steps with a label only. The paper uses 1.
        attention_distribution: "softmax" is soft attention (section 4.2), "hard" is hard attention (section 4.1). The
            estimator of ``attention_distribution_options`` is then "straight_through", or "score_function" for
            REINFORCE. In evaluation, hard attention selects the largest weight.
        word_detection: weight of a loss that the annotations alone have: a linear layer says of each word whether it is
            in the caption, by its largest logit of all annotations (Oquab et al. 2015, section 3). So a CNN from
            scratch learns to recognize things at their place before the decoder can describe them. 0 leaves the layer
            out.
        reinforce_weight: λ_r of REINFORCE (eq. 12).
        entropy_weight: λ_e of the entropy of the attention, which is maximized (eq. 12).
        baseline_decay: decay of the moving baseline, b_k = 0.9 b_{k-1} + 0.1 log p(y | s_k, a).
        expected_attention: probability with which an image is read with α instead of a sample (section 4.1).

    Raises:
        ValueError: a field does not exist; the message suggests a correction.
        StrictDataclassError: a field is out of range; the message suggests a correction.
    """

    model_type = "show_attend_tell"
    sub_configs: ClassVar[dict[str, Any]] = {"vision_config": AutoConfig}
    keys_to_ignore_at_inference = ["past_key_values", "grid", "doubly_stochastic", "doubly_stochastic_floor"]
    # The decoder reads these as fields of a configuration. Here they are constants.
    initial_state: ClassVar[str] = "projection"
    attention_position: ClassVar[str] = "before"
    attention_window: ClassVar[str] = "global"
    attention_window_size: ClassVar[int] = 1
    input_feeding: ClassVar[bool] = False

    _presets: ClassVar[dict[str, dict[str, Any]]] = {
        # Section 3.1 and the defaults of the authors' code for COCO: an LSTM of 1,800 with words of 512.
        "xu2015_soft": {"vocab_size": 10_000, "embedding_size": 512, "hidden_size": 1800, "annotation_size": 512},
        "xu2015_hard": {
            "vocab_size": 10_000,
            "embedding_size": 512,
            "hidden_size": 1800,
            "annotation_size": 512,
            "attention_gate": "none",
            "attention_distribution": "hard",
            "attention_distribution_options": {"estimator": "score_function"},
        },
    }

    vision_config: dict[str, Any] | PreTrainedConfig | None = None
    freeze_vision: bool = False
    annotation_size: int = 128
    channels: list[int] = field(default_factory=lambda: [32, 64])
    num_channels: int = 3
    cell: str = "lstm"
    attention_gate: str = "scalar"
    output_layer: str = "deep"
    doubly_stochastic: float | int = 1.0
    word_detection: float | int = 0.0
    reinforce_weight: float | int = _REINFORCE["reinforce_weight"]
    entropy_weight: float | int = _REINFORCE["entropy_weight"]
    baseline_decay: float | int = _REINFORCE["baseline_decay"]
    expected_attention: float | int = _REINFORCE["expected_attention"]
    auto_map: dict[str, str] = field(default_factory=_auto_map)

    def __post_init__(self, **kwargs: Any) -> None:
        self._make_parts()
        super().__post_init__(**kwargs)

    @property
    def final_state_size(self) -> int:
        """Width of the mean annotation, from which s_0 is projected."""
        return self.annotation_size

    @property
    def vision_size(self) -> int | None:
        """Width of the outputs of the image model."""
        assert isinstance(self.vision_config, PreTrainedConfig)
        fields = self.vision_config.to_dict()
        return fields.get("hidden_size") or next(reversed(fields.get("hidden_sizes") or []), None)

    @property
    def estimator(self) -> str | None:
        """Estimator of hard attention; None for soft attention."""
        if self.attention_distribution != "hard":
            return None
        return self.attention_distribution_options.get("estimator", "straight_through")

    def validate_fields(self) -> None:
        """Check ranges and combinations (run by ``@strict`` when the configuration is made)."""
        self._check_decoder()
        self._check_token_ids("pad_token_id", vocab_size=self.vocab_size)
        self._check_encoder()
        if self.attention_score is None:
            raise ValueError("attention_score is null, and a captioner attends; name a score, such as 'additive'.")
        self._check_attention_module()
        for name in ("doubly_stochastic", "word_detection", "reinforce_weight", "entropy_weight"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name)}; write a number of at least 0, such as 0.1.")
        for name in ("baseline_decay", "expected_attention"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; write a number from 0 to 1, such as 0.5.")
        for name, default in _REINFORCE.items():
            if self.estimator != "score_function" and getattr(self, name) != default:
                raise ValueError(
                    f"{name} is a setting of REINFORCE; write attention_distribution: hard and "
                    f"attention_distribution_options: {{estimator: score_function}}, or remove {name}."
                )

    def _check_encoder(self) -> None:
        self._check_positive("annotation_size", "num_channels")
        if self.annotation_size % 4:
            raise ValueError(
                f"annotation_size is {self.annotation_size}; write a multiple of 4, because sines and "
                "cosines of the row and of the column are added to each annotation."
            )
        if len(self.channels) != 2 or min(self.channels) < 1:
            raise ValueError(f"channels is {self.channels}; write two whole numbers of at least 1, such as [32, 64].")
        if self.vision_config is None:
            if self.freeze_vision:
                raise ValueError("freeze_vision keeps a pretrained encoder as it is; name one in vision_config.")
            return
        assert isinstance(self.vision_config, PreTrainedConfig)
        if self.vision_size is None:
            raise ValueError(
                f"vision_config is a {type(self.vision_config).__name__}, which names no width of its outputs "
                "(hidden_size or hidden_sizes); use an image model such as 'vit', 'dinov2' or 'resnet'."
            )


ShowAttendTellConfig.register_for_auto_class()
