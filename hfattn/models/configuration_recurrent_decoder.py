"""Configuration that the models with the recurrent decoder share: translators and captioners."""

from .strict_config import StrictConfig  # isort: skip  (first, because it refuses an older transformers)

from dataclasses import field
from typing import Any, ClassVar

import torch
from huggingface_hub.dataclasses import strict


@strict
class RecurrentDecoderConfig(StrictConfig):
    """The fields of ``BahdanauDecoder`` that every model with it has; ``BahdanauConfig`` documents them.

    A subclass also defines ``initial_state``, ``attention_position``, ``attention_window``, ``attention_window_size``
    and ``input_feeding``, as fields or as constants, and the widths ``annotation_size`` and ``final_state_size``.
    """

    keys_to_ignore_at_inference = ["past_key_values"]
    _class_fields = ("cell", "attention_score", "attention_distribution")
    _output_layers: ClassVar[tuple[str, ...]] = ("maxout", "deep", "attentional", "context", "state")

    vocab_size: int = 65
    tie_word_embeddings: bool = False
    embedding_size: int = 128
    hidden_size: int = 128
    decoder_layers: int = 1
    cell: str = "gru"
    attention_score: str | None = "additive"
    attention_score_options: dict[str, Any] = field(default_factory=dict)
    attention_distribution: str = "softmax"
    attention_distribution_options: dict[str, Any] = field(default_factory=dict)
    attention_gate: str = "none"
    output_layer: str = "maxout"
    output_size: int | None = None
    dropout: float | int = 0.0
    embedding_dropout: float | int = 0.0
    output_dropout: float | int = 0.0
    initializer_range: float | int = 0.05
    use_cache: bool = True
    is_encoder_decoder: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 1

    @property
    def annotation_size(self) -> int:
        """Width of an annotation h_j."""
        raise NotImplementedError

    @property
    def final_state_size(self) -> int:
        """Width of the vector of the encoder that s_0 is projected from."""
        raise NotImplementedError

    @property
    def output_width(self) -> int:
        """Width of the output layer's input."""
        if self.output_size is not None:
            return self.output_size
        return self.embedding_size if self.output_layer == "deep" else self.hidden_size

    def _check_decoder(self) -> None:
        # Imported here because registering the configuration with AutoConfig should not import transformers' models.
        from .recurrent_cells import find_cell

        self._check_positive("vocab_size", "embedding_size", "hidden_size", "decoder_layers")
        self._check_probability("dropout", "embedding_dropout", "output_dropout")
        find_cell(self.cell)
        self._check_choice("attention_gate", ("none", "scalar"))
        self._check_choice("output_layer", self._output_layers)
        self._check_above_zero("initializer_range", example="0.05")
        self._check_token_ids("bos_token_id", "eos_token_id", "decoder_start_token_id", vocab_size=self.vocab_size)
        fixed = {"state": "hidden_size", "deep": "embedding_size"}.get(self.output_layer)
        if fixed is not None and self.output_width != getattr(self, fixed):
            raise ValueError(
                f"output_layer {self.output_layer!r} has the width of {fixed}, which is {getattr(self, fixed)}; remove "
                "output_size."
            )
        if self.tie_word_embeddings and self.embedding_size != self.output_width:
            raise ValueError(
                f"tie_word_embeddings needs one width for both matrices, but embedding_size is {self.embedding_size} "
                f"and the output layer's input is {self.output_width} wide; write output_size: {self.embedding_size} "
                '(hidden_size if output_layer is "state") or tie_word_embeddings: false.'
            )

    def _check_attention_module(self) -> None:
        """Build the attention on the meta device, which checks names, options and widths."""
        from .attention import Attention

        if self.attention_score is None:
            return
        with torch.device("meta"):
            Attention(
                self.hidden_size,
                self.annotation_size,
                score=self.attention_score,
                distribution=self.attention_distribution,
                score_options=self.attention_score_options,
                distribution_options=self.attention_distribution_options,
            )
