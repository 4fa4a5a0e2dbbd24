"""Configuration of the recurrent text encoder, classifier and tagger."""

from .parts import WholeConfig  # isort: skip  (first, because it refuses an older transformers)

from dataclasses import field
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig

CONTEXTUAL = "contextual_vectors.ContextualVectors"  # the class whose file is saved only with the models that use it
PLACES = ("input", "output")
POOLINGS = ("last", "mean", "max", "concat", "attention", "hierarchical")


def _auto_map() -> dict[str, str]:
    return {
        "AutoConfig": "configuration_rnn_encoder.RNNEncoderConfig",
        "AutoModel": "modeling_rnn_encoder.RNNEncoderModel",
        "AutoModelForSequenceClassification": "modeling_rnn_encoder.RNNEncoderForSequenceClassification",
        "AutoModelForTokenClassification": "modeling_rnn_encoder.RNNEncoderForTokenClassification",
    }


# One output with a sigmoid and binary cross-entropy, which transformers treats as a multi-label problem.
_ONE_SIGMOID = {"num_labels": 1, "problem_type": "multi_label_classification"}


@strict
class RNNEncoderConfig(WholeConfig):
    """Configuration of a recurrent text encoder: embedding, recurrent layers, pooling, and a linear classifier.

    ``RNNEncoderConfig.preset(name)`` returns named settings: ``gru128`` (1,000 words, embeddings of 128, a GRU of 128
    units), ``bilstm32_glove`` (20,000 words, frozen pretrained embeddings of 100, a bidirectional LSTM of 32 units) and
    ``yang2016`` (hierarchical attention, Yang et al. 2016, section 3.3).

    Args:
        vocab_size: number of tokens in the vocabulary, special ones included (V).
        embedding_size: width of the embeddings (D).
        hidden_size: width of one direction of a recurrent layer (H). The annotations h_t have this width, or twice this
            width if the layers are bidirectional.
        num_hidden_layers: number of stacked recurrent layers over the words.
        cell: "elman", "jordan" (recurrence from the output, Jordan 1986), "lstm", "gru" (reset after, as in cuDNN) or
            "gru_reset_before" (Cho et al. 2014).
        direction: "forward", "backward" or "bidirectional".
        pooling: method that reduces the annotations of a text to one vector; a tagger does not pool. "last" is the last
            state of each direction; "mean" and "max" are over the words; "concat" is the last state, the maximum and
            the mean side by side (Howard & Ruder 2018, section 3.3); "attention" is the mean weighted by attention;
            "hierarchical" pools the words of each sentence by attention, runs one more recurrent layer over the
            sentences, and pools these by attention (Yang et al. 2016).
        attention_hidden_size: for pooling with attention, width of the learned query u and of the keys tanh(W h_t + b);
            default the width of the annotations.
        attention_score: score of u and a key, a name in ``hfattn.attention.SCORES``; "dot" in Yang et al. 2016.
        attention_score_options: options of the score, such as ``{"hidden_size": 100}`` for "additive".
        attention_distribution: a name in ``hfattn.attention.DISTRIBUTIONS``.
        attention_distribution_options: options of the distribution, such as ``{"alpha": 1.3}`` for "entmax".
        sentence_end_token_ids: for hierarchical pooling, the ids that end a sentence, such as those of ".", "!" and
            "?". Several consecutive ones end one sentence.
        embedding_row_dropout: dropout probability on rows of the embedding: a dropped token is zero wherever it occurs
            in the batch (Gal & Ghahramani 2016).
        embedding_dropout: dropout probability on the embeddings.
        dropout: dropout probability between two recurrent layers, not over time (Zaremba et al. 2014).
        weight_dropout: dropout probability on the weights from the state to the gates (DropConnect), with one mask for
            a batch (Merity et al. 2018, section 2).
        variational_dropout: use one mask for all steps of a text in embedding_dropout and dropout, instead of
            one for each step (Gal & Ghahramani 2016).
        bptt_steps: in training, number of steps after which the gradient of the state ends, while the state is carried
            on (BPT3C, Howard & Ruder 2018, section 3.3); default no limit.
        classifier_hidden_size: units of a hidden layer with ReLU in the classifier, with batch norm and dropout before
            each of the two linear layers; 50 in Howard & Ruder 2018. By default, the classifier is one linear layer.
        classifier_dropout: dropout probability on the classifier's input, and on its hidden layer if it has one.
        freeze_embeddings: do not train the embeddings.
        mask_padding: skip padding in the layers and in the pooling. If False, padding is treated as a word with a
            trained embedding, as in a model without an attention mask.
        initializer_range: standard deviation of the embeddings at initialization; the other weights are initialized
            by Glorot & Bengio (2010).
        contextual_config: configuration of a frozen encoder, any type of ``AutoModel``, whose hidden states are mixed
            to contextual vectors of the tokens (Peters et al. 2018, section 3.2). Its weights are saved with the model.
        contextual_places: where the contextual vectors stand: "input", beside the embeddings, and "output", beside the
            annotations h_t; each place has a mixture of its own (section 3.3).
        contextual_layer_norm: normalize each hidden state of the encoder before they are mixed.
        contextual_dropout: dropout probability on the contextual vectors.
        contextual_penalty: λ in the penalty λ ||w||² on the numbers w whose softmax gives the shares of the hidden
            states, which is added to the loss in training.
        contextual_pieces: most pieces that a token has in the vocabulary of the encoder; the pieces of each token are
            in a table beside the weights. By default, the tokens are those of the encoder.
        contextual_start_ids, contextual_end_ids: tokens that the encoder reads before and after the pieces of a text.
        contextual_max_length: most pieces that the encoder reads at once, with those; default no limit.

    Raises:
        ValueError: a field does not exist; the message suggests a correction.
        StrictDataclassError: a field is out of range; the message suggests a correction.
    """

    model_type = "rnn_encoder"
    sub_configs: ClassVar[dict[str, Any]] = {"contextual_config": AutoConfig}
    _class_fields = ("cell", "attention_score", "attention_distribution")

    _presets: ClassVar[dict[str, dict[str, Any]]] = {
        "gru128": {
            "vocab_size": 1000,
            "embedding_size": 128,
            "hidden_size": 128,
            **_ONE_SIGMOID,
        },
        "bilstm32_glove": {
            "vocab_size": 20_000,
            "embedding_size": 100,
            "hidden_size": 32,
            "cell": "lstm",
            "direction": "bidirectional",
            "classifier_dropout": 0.5,
            "freeze_embeddings": True,
            **_ONE_SIGMOID,
        },
        # Section 3.3: embeddings of 200, GRUs of 50 units in each direction, 100-wide queries for words and for
        # sentences. The vocabulary, all words seen more than five times, depends on the data, as do the ids that end a
        # sentence.
        "yang2016": {
            "vocab_size": 20_000,
            "embedding_size": 200,
            "hidden_size": 50,
            "direction": "bidirectional",
            "pooling": "hierarchical",
            "attention_hidden_size": 100,
        },
    }

    vocab_size: int = 1000
    embedding_size: int = 128
    hidden_size: int = 128
    num_hidden_layers: int = 1
    cell: str = "gru"
    direction: str = "forward"
    pooling: str = "last"
    attention_hidden_size: int | None = None
    attention_score: str = "dot"
    attention_score_options: dict[str, Any] = field(default_factory=dict)
    attention_distribution: str = "softmax"
    attention_distribution_options: dict[str, Any] = field(default_factory=dict)
    sentence_end_token_ids: list[int] = field(default_factory=list)
    embedding_row_dropout: float | int = 0.0
    embedding_dropout: float | int = 0.0
    dropout: float | int = 0.0
    weight_dropout: float | int = 0.0
    variational_dropout: bool = False
    bptt_steps: int | None = None
    classifier_hidden_size: int | None = None
    classifier_dropout: float | int = 0.0
    freeze_embeddings: bool = False
    mask_padding: bool = True
    initializer_range: float | int = 0.05
    contextual_config: Any = None
    contextual_places: list[str] = field(default_factory=lambda: ["input"])
    contextual_layer_norm: bool = False
    contextual_dropout: float | int = 0.5
    contextual_penalty: float | int = 0.001
    contextual_pieces: int | None = None
    contextual_start_ids: list[int] = field(default_factory=list)
    contextual_end_ids: list[int] = field(default_factory=list)
    contextual_max_length: int | None = None
    pad_token_id: int | None = 0
    auto_map: dict[str, str] = field(default_factory=_auto_map)

    def __post_init__(self, **kwargs: Any) -> None:
        self._make_parts()
        super().__post_init__(**kwargs)

    @property
    def recurrent_size(self) -> int:
        """Width of the output of a recurrent layer."""
        return self.hidden_size * (2 if self.direction == "bidirectional" else 1)

    @property
    def input_size(self) -> int:
        """Width of the input of the first layer."""
        return self.embedding_size + self._contextual_size("input")

    @property
    def annotation_size(self) -> int:
        """Width of an annotation h_t."""
        return self.recurrent_size + self._contextual_size("output")

    def _contextual_size(self, place: str) -> int:
        if self.contextual_config is None or place not in self.contextual_places:
            return 0
        return int(self.contextual_config.hidden_size)

    def _class_names(self) -> set[str]:
        own = {CONTEXTUAL} if self.contextual_config is not None else set()
        return super()._class_names() | own

    @property
    def pooled_size(self) -> int:
        """Width of a text's vector."""
        return self.annotation_size * (3 if self.pooling == "concat" else 1)

    def validate_fields(self) -> None:
        """Check ranges and combinations (run by ``@strict`` when the configuration is made)."""
        # Imported here because registering the configuration with AutoConfig should not import transformers' models.
        from .recurrent_cells import find_cell

        self._check_positive("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers")
        self._check_probability("embedding_row_dropout", "embedding_dropout", "dropout", "weight_dropout")
        self._check_probability("classifier_dropout")
        for name in ("bptt_steps", "classifier_hidden_size"):
            if getattr(self, name) is not None:
                self._check_positive(name)
        find_cell(self.cell)
        self._check_choice("direction", ("forward", "backward", "bidirectional"))
        self._check_choice("pooling", POOLINGS)
        self._check_above_zero("initializer_range", example="0.05")
        self._check_token_ids("pad_token_id", vocab_size=self.vocab_size)
        if self.dropout > 0 and self.num_hidden_layers == 1:
            raise ValueError(
                "dropout is applied between recurrent layers, and there is only one; write num_hidden_layers: 2 or "
                "more, or use embedding_dropout or classifier_dropout."
            )
        if self.attention_hidden_size is not None:
            self._check_positive("attention_hidden_size")
        self._check_estimator("attention_distribution_options")
        if self.pooling in ("attention", "hierarchical"):
            import torch

            from .attention_pooling import AttentionPooling

            with torch.device("meta"):  # checks names, options and widths
                AttentionPooling(
                    self.annotation_size,
                    self.attention_hidden_size,
                    self.attention_score,
                    self.attention_distribution,
                    self.attention_score_options,
                    self.attention_distribution_options,
                )
        self._check_sentences()
        self._check_contextual()

    def _check_contextual(self) -> None:
        for place in self.contextual_places:
            if place not in PLACES:
                raise ValueError(f"contextual_places has {place!r}; write input, output, or both.")
        if not self.contextual_places or len(set(self.contextual_places)) < len(self.contextual_places):
            raise ValueError(
                f"contextual_places is {self.contextual_places}; write [input], [output] or [input, output]."
            )
        self._check_probability("contextual_dropout")
        if not 0 <= self.contextual_penalty < float("inf"):
            raise ValueError(
                f"contextual_penalty is {self.contextual_penalty}; write a number of at least 0, such as 0.001."
            )
        encoder = self.contextual_config
        if encoder is not None:
            if encoder.is_encoder_decoder:
                raise ValueError(
                    f"contextual_config is a {type(encoder).__name__} of an encoder-decoder; write is_encoder_decoder: "
                    "false, or the configuration of an encoder."
                )
            fields = encoder.to_dict()
            for name in ("latents", "subsampling"):
                if fields.get(name) not in (None, 1):
                    raise ValueError(
                        f"contextual_config has {name}, with which the encoder has no vector for each token; leave it "
                        "out."
                    )
        for name in ("contextual_pieces", "contextual_max_length"):
            if getattr(self, name) is not None:
                self._check_positive(name)

    def _check_sentences(self) -> None:
        if self.sentence_end_token_ids and self.pooling != "hierarchical":
            raise ValueError(
                f"sentence_end_token_ids is for hierarchical pooling, but pooling is {self.pooling!r}; write pooling: "
                "hierarchical, or remove sentence_end_token_ids."
            )
        outside = [token for token in self.sentence_end_token_ids if not 0 <= token < self.vocab_size]
        if outside:
            raise ValueError(
                f"sentence_end_token_ids contains {outside[0]}; write ids from 0 to {self.vocab_size - 1}."
            )


RNNEncoderConfig.register_for_auto_class()
