"""Configuration of the recurrent text encoder and classifier."""

from dataclasses import field
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict

from .strict_config import StrictConfig

POOLINGS = ("last", "mean", "max", "attention", "hierarchical")


def _auto_map() -> dict[str, str]:
    return {
        "AutoConfig": "configuration_rnn_encoder.RNNEncoderConfig",
        "AutoModel": "modeling_rnn_encoder.RNNEncoderModel",
        "AutoModelForSequenceClassification": "modeling_rnn_encoder.RNNEncoderForSequenceClassification",
    }


# One output with a sigmoid and binary cross-entropy: to transformers, a multi-label problem with one label.
_ONE_SIGMOID = {"num_labels": 1, "problem_type": "multi_label_classification"}


@strict
class RNNEncoderConfig(StrictConfig):
    """Words -> embedding -> recurrent layers -> one vector per text, and a linear classifier over it.

    ``RNNEncoderConfig.preset(name)`` has settings by name: ``gru128`` (1,000 words, embeddings of 128 trained
    with a GRU of 128 units), ``bilstm32_glove`` (20,000 words, frozen embeddings of 100 from a vector file, a
    bidirectional LSTM of 32 units) and ``yang2016`` (hierarchical attention, Yang et al. 2016, section 3.3).

    Args:
        vocab_size: number of symbols, special ones included (V).
        embedding_size: width of a word's embedding (D).
        hidden_size: width of one direction of a recurrent layer (H); the annotations h_t are as wide, or twice as wide
            where the layers read both ways.
        num_hidden_layers: number of recurrent layers over the words, one above the other.
        cell: "elman", "lstm", "gru" (reset after, as in cuDNN) or "gru_reset_before" (Cho et al. 2014).
        direction: "forward", "backward" or "bidirectional".
        pooling: how a text becomes one vector. "last" is the state in which each direction ended; "mean" and "max" are
            taken over the words; "attention" is the mean weighted by a score of each word; "hierarchical" pools the
            words of each sentence by attention, reads the sentences with one more recurrent layer, and pools those by
            attention (Yang et al. 2016).
        attention_hidden_size: where pooling attends, width of the learned query u and of the keys tanh(W h_t + b);
            None is the width of the annotations.
        attention_score: score of u and a key, a name of ``hfattn.attention.SCORES``; "dot" in Yang et al. 2016.
        attention_score_options: options of that score, such as ``{"hidden_size": 100}`` for "additive".
        attention_distribution: a name of ``hfattn.attention.DISTRIBUTIONS``.
        attention_distribution_options: options of that distribution, such as ``{"alpha": 1.3}`` for "entmax".
        sentence_end_token_ids: for hierarchical pooling, the ids with which a sentence ends, such as those of ".", "!"
            and "?". Ids of this kind in a row end one sentence together.
        embedding_dropout: probability of dropping an activation of the embeddings.
        dropout: the same between two recurrent layers, never in time (Zaremba et al. 2014).
        classifier_dropout: the same on the vector that the classifier reads.
        freeze_embeddings: do not train the embeddings.
        mask_padding: make padding invisible to the layers and to the pooling. False reads it as a word like any other,
            with an embedding that is trained, as a model does that was never told where the padding is.
        initializer_range: standard deviation of the embeddings at initialisation; the other weights have Glorot's.

    Raises:
        ValueError: a field that does not exist or is out of range; the message says what to write.
    """

    model_type = "rnn_encoder"
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
            "embedding_dropout": 0.5,
            "freeze_embeddings": True,
            **_ONE_SIGMOID,
        },
        # Section 3.3: embeddings of 200, GRUs of 50 units each way, 100-wide queries for words and for sentences. The
        # vocabulary, all words seen more than five times, depends on the data, as do the ids that end a sentence.
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
    embedding_dropout: float | int = 0.0
    dropout: float | int = 0.0
    classifier_dropout: float | int = 0.0
    freeze_embeddings: bool = False
    mask_padding: bool = True
    initializer_range: float | int = 0.05
    pad_token_id: int | None = 0
    auto_map: dict[str, str] = field(default_factory=_auto_map)

    @property
    def annotation_size(self) -> int:
        """Width of an annotation h_t, and of the vector of a text."""
        return self.hidden_size * (2 if self.direction == "bidirectional" else 1)

    def validate_fields(self) -> None:
        """Check ranges and combinations (run by ``@strict`` when the configuration is made)."""
        # Imported here because registering the configuration with AutoConfig should not import transformers' models.
        from .recurrent_cells import find_cell

        self._check_positive("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers")
        self._check_probability("embedding_dropout", "dropout", "classifier_dropout")
        find_cell(self.cell)
        self._check_choice("direction", ("forward", "backward", "bidirectional"))
        self._check_choice("pooling", POOLINGS)
        self._check_above_zero("initializer_range", example="0.05")
        self._check_token_ids("pad_token_id", vocab_size=self.vocab_size)
        if self.dropout > 0 and self.num_hidden_layers == 1:
            raise ValueError(
                "dropout acts between recurrent layers and there is one; write num_hidden_layers: 2 or more, or use "
                "embedding_dropout or classifier_dropout."
            )
        if self.attention_hidden_size is not None:
            self._check_positive("attention_hidden_size")
        self._check_sentences()

    def _check_sentences(self) -> None:
        if self.sentence_end_token_ids and self.pooling != "hierarchical":
            raise ValueError(
                f"sentence_end_token_ids is for hierarchical pooling, but pooling is {self.pooling!r}; write pooling: "
                "hierarchical, or leave sentence_end_token_ids out."
            )
        outside = [token for token in self.sentence_end_token_ids if not 0 <= token < self.vocab_size]
        if outside:
            raise ValueError(f"sentence_end_token_ids holds {outside[0]}; write ids from 0 to {self.vocab_size - 1}.")


RNNEncoderConfig.register_for_auto_class()

__all__ = ["POOLINGS", "RNNEncoderConfig"]
