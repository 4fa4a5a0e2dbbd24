"""Configuration of the bidirectional language model of ELMo."""

from .strict_config import StrictConfig  # isort: skip  (first, because it refuses an older transformers)

from dataclasses import field

from huggingface_hub.dataclasses import strict


def _auto_map() -> dict[str, str]:
    return {
        "AutoConfig": "configuration_bilm.BiLMConfig",
        "AutoModel": "modeling_bilm.BiLMModel",
        "AutoModelForCausalLM": "modeling_bilm.BiLMForCausalLM",
    }


@strict
class BiLMConfig(StrictConfig):
    """Configuration of a bidirectional language model (Peters et al. 2018, section 3.1).

    A forward language model predicts the next token from those before, a backward one the previous token from those
    after, and both have the same embedding and the same output layer. The paper has a convolution over characters, two
    LSTM layers of 4,096 units with a projection to 512, and a residual connection between them; here, the tokens are
    those of any tokenizer, and a layer is as wide as the embedding.

    Args:
        vocab_size: number of tokens in the vocabulary, special ones included (V).
        hidden_size: width of a token's representation h_j = [h→_j; h←_j] (W). The embeddings and the layers of one
            direction have half of it.
        num_hidden_layers: number of layers of each direction (L).
        cell: "elman", "jordan", "lstm", "gru" or "gru_reset_before", as in char_rnn.
        residual: add the input of each layer but the first to its output.
        embedding_row_dropout: dropout probability on rows of the embedding: a dropped token is zero wherever it occurs
            in the batch (Gal & Ghahramani 2016).
        embedding_dropout: dropout probability on the embeddings.
        dropout: dropout probability between two layers.
        output_dropout: dropout probability on the last layer's output, before the output layer.
        weight_dropout: dropout probability on the weights from the state to the gates (DropConnect), with one mask for
            a batch (Merity et al. 2018, section 2).
        variational_dropout: use one mask for all steps of a text in embedding_dropout, dropout and output_dropout,
            instead of one for each step (Gal & Ghahramani 2016).
        tie_word_embeddings: share the embedding with the output layer (Press & Wolf 2017).
        initializer_range: standard deviation of the embeddings at initialization; the other weights are initialized
            by Glorot & Bengio (2010).

    Raises:
        ValueError: a field does not exist; the message suggests a correction.
        StrictDataclassError: a field is out of range; the message suggests a correction.
    """

    model_type = "bilm"
    # The evaluation of a causal language model scores the forward direction.
    keys_to_ignore_at_inference = ["past_key_values", "backward_logits"]
    _class_fields = ("cell",)

    vocab_size: int = 8000
    hidden_size: int = 512
    num_hidden_layers: int = 2
    cell: str = "lstm"
    residual: bool = True
    embedding_row_dropout: float | int = 0.0
    embedding_dropout: float | int = 0.0
    dropout: float | int = 0.0
    output_dropout: float | int = 0.0
    weight_dropout: float | int = 0.0
    variational_dropout: bool = False
    initializer_range: float | int = 0.05
    tie_word_embeddings: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    auto_map: dict[str, str] = field(default_factory=_auto_map)

    @property
    def direction_size(self) -> int:
        """Width of one direction, and of the embeddings."""
        return self.hidden_size // 2

    def validate_fields(self) -> None:
        """Check ranges and combinations (run by ``@strict`` when the configuration is made)."""
        # Imported here because registering the configuration with AutoConfig should not import transformers' models.
        from .recurrent_cells import find_cell

        self._check_positive("vocab_size", "hidden_size", "num_hidden_layers")
        self._check_probability("dropout", "embedding_row_dropout", "embedding_dropout", "output_dropout")
        self._check_probability("weight_dropout")
        find_cell(self.cell)
        self._check_above_zero("initializer_range", example="0.05")
        self._check_token_ids("pad_token_id", vocab_size=self.vocab_size)
        if self.hidden_size % 2:
            raise ValueError(
                f"hidden_size is {self.hidden_size}, and each direction has half of it; write an even number."
            )
        if self.dropout > 0 and self.num_hidden_layers == 1:
            raise ValueError(
                "dropout is applied between layers, and there is only one; write num_hidden_layers: 2 or more, or use "
                "embedding_dropout or output_dropout."
            )


BiLMConfig.register_for_auto_class()
