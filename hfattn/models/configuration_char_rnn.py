"""Configuration of the char-RNN language model, and of a classifier that starts from it."""

from .strict_config import StrictConfig  # isort: skip  (first, because it refuses an older transformers)

from dataclasses import field

from huggingface_hub.dataclasses import strict

POOLINGS = ("last", "mean", "max", "concat")


def _auto_map() -> dict[str, str]:
    return {
        "AutoConfig": "configuration_char_rnn.CharRNNConfig",
        "AutoModel": "modeling_char_rnn.CharRNNModel",
        "AutoModelForCausalLM": "modeling_char_rnn.CharRNNForCausalLM",
        "AutoModelForSequenceClassification": "modeling_char_rnn.CharRNNForSequenceClassification",
    }


@strict
class CharRNNConfig(StrictConfig):
    """Configuration of a char-RNN: embedding, recurrent layers, and a linear layer that predicts the next character.

    The model follows Mikolov et al. (2010) and Karpathy (2015). The defaults are one GRU layer of 128 units over
    embeddings of 16. With words or subwords as tokens and the dropouts of Merity et al. (2018), it is the language
    model of ULMFiT (Howard & Ruder 2018), from which a classifier starts.

    Args:
        vocab_size: number of characters and special tokens in the vocabulary (V).
        embedding_size: width of the embeddings (D).
        hidden_size: width of the recurrent layers (H).
        last_hidden_size: width of the last recurrent layer, such as ``embedding_size`` for tied embeddings; default H.
        num_hidden_layers: number of stacked recurrent layers.
        cell: "elman", "jordan" (recurrence from the output, Jordan 1986), "lstm", "gru" (reset after, as in cuDNN) or
            "gru_reset_before" (Cho et al. 2014).
        conditioning_size: width of a vector that conditions each text, such as the features of an image; the initial
            states of all layers are projected from it (one-to-many: Karpathy & Fei-Fei 2015; Xu et al. 2015, section
            3.1.2). By default, the initial states are zeros.
        dropout: dropout probability between two recurrent layers, not over time (Zaremba et al. 2014).
        embedding_row_dropout: dropout probability on rows of the embedding: a dropped token is zero wherever it occurs
            in the batch (Gal & Ghahramani 2016).
        embedding_dropout: dropout probability on the embeddings.
        output_dropout: dropout probability on the last layer's output, before the output layer of a language model.
        weight_dropout: dropout probability on the weights from the state to the gates (DropConnect), with one mask for
            a batch (Merity et al. 2018, section 2).
        variational_dropout: use one mask for all steps of a text in embedding_dropout, dropout and output_dropout,
            instead of one for each step (Gal & Ghahramani 2016).
        bptt_steps: in training, number of steps after which the gradient of the state ends, while the state is carried
            on (BPT3C, Howard & Ruder 2018, section 3.3); default no limit.
        direction: the order in which the tokens of a text are read, "forward" or "backward". A classifier turns its
            inputs itself. A language model is given them in this order, so that it predicts the previous token.
        pooling: for a classifier: "last" is the state after the last token read, "mean" and "max" are over the tokens,
            and "concat" is all three side by side (Howard & Ruder 2018, section 3.3).
        classifier_hidden_size: units of a hidden layer with ReLU in the classifier, with batch norm and dropout before
            each of the two linear layers; 50 in Howard & Ruder 2018. By default, the classifier is one linear layer.
        classifier_dropout: dropout probability on the classifier's input, and on its hidden layer if it has one.
        tie_word_embeddings: share the embedding with the output layer (Press & Wolf 2017); needs
            ``embedding_size`` equal to the width of the last recurrent layer.
        initializer_range: standard deviation of the embeddings at initialization; the other weights are initialized
            by Glorot & Bengio (2010).
        use_cache: return the recurrent state as ``past_key_values``.

    Raises:
        ValueError: a field does not exist; the message suggests a correction.
        StrictDataclassError: a field is out of range; the message suggests a correction.
    """

    model_type = "char_rnn"
    keys_to_ignore_at_inference = ["past_key_values"]
    _class_fields = ("cell",)

    vocab_size: int = 65
    embedding_size: int = 16
    hidden_size: int = 128
    last_hidden_size: int | None = None
    num_hidden_layers: int = 1
    cell: str = "gru"
    conditioning_size: int | None = None
    dropout: float | int = 0.0
    embedding_row_dropout: float | int = 0.0
    embedding_dropout: float | int = 0.0
    output_dropout: float | int = 0.0
    weight_dropout: float | int = 0.0
    variational_dropout: bool = False
    bptt_steps: int | None = None
    direction: str = "forward"
    pooling: str = "last"
    classifier_hidden_size: int | None = None
    classifier_dropout: float | int = 0.0
    initializer_range: float | int = 0.05
    use_cache: bool = True
    tie_word_embeddings: bool = False
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    auto_map: dict[str, str] = field(default_factory=_auto_map)

    @property
    def layer_sizes(self) -> list[int]:
        """Width of each recurrent layer."""
        sizes = [self.hidden_size] * self.num_hidden_layers
        return sizes if self.last_hidden_size is None else [*sizes[:-1], self.last_hidden_size]

    @property
    def pooled_size(self) -> int:
        """Width of a text's vector."""
        return self.layer_sizes[-1] * (3 if self.pooling == "concat" else 1)

    def validate_fields(self) -> None:
        """Check ranges and combinations (run by ``@strict`` when the configuration is made)."""
        # Imported here because registering the configuration with AutoConfig should not import transformers' models.
        from .recurrent_cells import find_cell

        self._check_positive("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers")
        for name in ("conditioning_size", "last_hidden_size", "bptt_steps", "classifier_hidden_size"):
            if getattr(self, name) is not None:
                self._check_positive(name)
        self._check_probability("dropout", "embedding_row_dropout", "embedding_dropout", "output_dropout")
        self._check_probability("weight_dropout", "classifier_dropout")
        self._check_choice("direction", ("forward", "backward"))
        self._check_choice("pooling", POOLINGS)
        find_cell(self.cell)
        self._check_above_zero("initializer_range", example="0.05")
        self._check_token_ids("pad_token_id", vocab_size=self.vocab_size)
        if self.dropout > 0 and self.num_hidden_layers == 1:
            raise ValueError(
                "dropout is applied between recurrent layers, and there is only one; write num_hidden_layers: 2 or "
                "more, or use embedding_dropout or output_dropout."
            )
        width = self.layer_sizes[-1]
        if self.tie_word_embeddings and self.embedding_size != width:
            raise ValueError(
                f"tie_word_embeddings needs one width for both matrices, but embedding_size is {self.embedding_size} "
                f"and the last layer has {width} units; write embedding_size: {width} or "
                f"tie_word_embeddings: false, or last_hidden_size: {self.embedding_size}."
            )


CharRNNConfig.register_for_auto_class()
