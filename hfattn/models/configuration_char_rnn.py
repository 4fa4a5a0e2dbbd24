"""Configuration of the char-RNN language model."""

from .strict_config import StrictConfig  # isort: skip  (first, because it refuses an older transformers)

from dataclasses import field

from huggingface_hub.dataclasses import strict


def _auto_map() -> dict[str, str]:
    return {
        "AutoConfig": "configuration_char_rnn.CharRNNConfig",
        "AutoModel": "modeling_char_rnn.CharRNNModel",
        "AutoModelForCausalLM": "modeling_char_rnn.CharRNNForCausalLM",
    }


@strict
class CharRNNConfig(StrictConfig):
    """Configuration of a char-RNN: embedding, recurrent layers, and a linear layer that predicts the next character.

    The model follows Mikolov et al. (2010) and Karpathy (2015). The defaults are one GRU layer of 128 units over
    embeddings of 16.

    Args:
        vocab_size: number of characters and special tokens in the vocabulary (V).
        embedding_size: width of the embeddings (D).
        hidden_size: width of the recurrent layers (H).
        num_hidden_layers: number of stacked recurrent layers.
        cell: "elman", "jordan" (recurrence from the output, Jordan 1986), "lstm", "gru" (reset after, as in cuDNN) or
            "gru_reset_before" (Cho et al. 2014).
        conditioning_size: width of a vector that conditions each text, such as the features of an image; the initial
            states of all layers are projected from it (one-to-many: Karpathy & Fei-Fei 2015; Xu et al. 2015, section
            3.1.2). By default, the initial states are zeros.
        dropout: dropout probability between two recurrent layers, not over time (Zaremba et al. 2014).
        embedding_dropout: dropout probability on the embeddings.
        output_dropout: dropout probability on the last layer's output.
        tie_word_embeddings: share the embedding with the output layer (Press & Wolf 2017); needs
            ``embedding_size == hidden_size``.
        initializer_range: standard deviation of the embeddings at initialization; the other weights are initialized
            by Glorot & Bengio (2010).
        use_cache: return the recurrent state as ``past_key_values``.

    Raises:
        ValueError: a field does not exist or is out of range; the message suggests a correction.
    """

    model_type = "char_rnn"
    keys_to_ignore_at_inference = ["past_key_values"]
    _class_fields = ("cell",)

    vocab_size: int = 65
    embedding_size: int = 16
    hidden_size: int = 128
    num_hidden_layers: int = 1
    cell: str = "gru"
    conditioning_size: int | None = None
    dropout: float | int = 0.0
    embedding_dropout: float | int = 0.0
    output_dropout: float | int = 0.0
    initializer_range: float | int = 0.05
    use_cache: bool = True
    tie_word_embeddings: bool = False
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    auto_map: dict[str, str] = field(default_factory=_auto_map)

    def validate_fields(self) -> None:
        """Check ranges and combinations (run by ``@strict`` when the configuration is made)."""
        # Imported here because registering the configuration with AutoConfig should not import transformers' models.
        from .recurrent_cells import find_cell

        self._check_positive("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers")
        if self.conditioning_size is not None:
            self._check_positive("conditioning_size")
        self._check_probability("dropout", "embedding_dropout", "output_dropout")
        find_cell(self.cell)
        self._check_above_zero("initializer_range", example="0.05")
        self._check_token_ids("pad_token_id", vocab_size=self.vocab_size)
        if self.dropout > 0 and self.num_hidden_layers == 1:
            raise ValueError(
                "dropout is applied between recurrent layers, and there is only one; write num_hidden_layers: 2 or "
                "more, or use embedding_dropout or output_dropout."
            )
        if self.tie_word_embeddings and self.embedding_size != self.hidden_size:
            raise ValueError(
                f"tie_word_embeddings needs one width for both matrices, but embedding_size is {self.embedding_size} "
                f"and hidden_size is {self.hidden_size}; write embedding_size: {self.hidden_size} or "
                "tie_word_embeddings: false."
            )


CharRNNConfig.register_for_auto_class()
