"""Configuration of the recurrent encoder-decoders (Sutskever 2014, Bahdanau 2015, Luong 2015)."""

from .configuration_recurrent_decoder import RecurrentDecoderConfig  # isort: skip  (first: refuses an older transformers)

from dataclasses import field
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict


def _auto_map() -> dict[str, str]:
    return {
        "AutoConfig": "configuration_bahdanau.BahdanauConfig",
        "AutoModel": "modeling_bahdanau.BahdanauModel",
        "AutoModelForSeq2SeqLM": "modeling_bahdanau.BahdanauForConditionalGeneration",
    }


# Luong et al. 2015, section 4.1: four layers of 1,000 cells, source reversed, input feeding, dropout 0.2.
_LUONG_2015 = {
    "vocab_size": 50_000,
    "source_vocab_size": 50_000,
    "share_embeddings": False,
    "embedding_size": 1000,
    "encoder_hidden_size": 1000,
    "hidden_size": 1000,
    "encoder_layers": 4,
    "decoder_layers": 4,
    "cell": "lstm",
    "encoder_direction": "backward",
    "initial_state": "final",
    "attention_position": "after",
    "input_feeding": True,
    "output_layer": "attentional",
    "dropout": 0.2,
}


@strict
class BahdanauConfig(RecurrentDecoderConfig):
    """Configuration of a recurrent encoder-decoder, with or without attention.

    The models of three papers are settings of one architecture. In **Sutskever et al. 2014**, the decoder reads only
    the encoder's last state (``attention_score=None``). In **Bahdanau et al. 2015**, it attends before each step, with
    its previous state as the query (``attention_position="before"``). In **Luong et al. 2015**, it attends after the
    step, with the new state (``attention_position="after"``). ``BahdanauConfig.preset(name)`` returns the settings of
    the papers: ``bahdanau2015``, ``luong2015_dot``, ``luong2015_general``, ``luong2015_concat``, ``luong2015_local_p``,
    ``sutskever2014``, and ``luong_small`` (a bidirectional LSTM with Luong's attention that trains on a laptop).

    Args:
        vocab_size: number of tokens in the vocabulary of the target (V), and of the source unless
            ``source_vocab_size`` is given.
        source_vocab_size: number of tokens in the vocabulary of the source, if it has its own.
        target_tokenizer: sub-folder of a saved model with the tokenizer of the target, if it has its own
            (``save_translator`` writes both); None if both sides share one tokenizer.
        share_embeddings: use one embedding matrix for source and target; requires one vocabulary.
        tie_word_embeddings: share the target's embedding with the output layer (Press & Wolf 2017); needs
            ``output_size == embedding_size``.
        embedding_size: width of the embeddings (D).
        encoder_hidden_size: width of one direction of an encoder layer. The annotations h_j have this width, or twice
            this width if the encoder is bidirectional.
        hidden_size: width of the decoder's state (H).
        encoder_layers, decoder_layers: number of stacked recurrent layers.
        cell: "elman", "jordan" (recurrence from the output, Jordan 1986), "lstm", "gru" (reset after, as in cuDNN) or
            "gru_reset_before" (the GRU of Bahdanau 2015).
        encoder_direction: "forward", "backward" (the reversed source of Sutskever 2014) or "bidirectional".
        initial_state: "projection" for s_0 = tanh(W_s h←_1) (Bahdanau 2015, A.2.2), from the backward state of the last
            layer, or from its only state; "final" to start each decoder layer from the last state of the encoder layer,
            with both directions concatenated.
        attention_score: a name in ``hfattn.attention.SCORES``, or None for no attention.
        attention_score_options: options of the score, such as ``{"hidden_size": 500}`` for "additive".
        attention_distribution: a name in ``hfattn.attention.DISTRIBUTIONS``.
        attention_distribution_options: options of the distribution, such as ``{"alpha": 1.3}`` for "entmax".
        attention_gate: "scalar" to multiply c_i by β_i = sigmoid(f_β(query)), one number for each step, with f_β linear
            (Xu 2015, section 4.2.1), or "none".
        attention_position: "before" the cell, with the query s_{i-1}, or "after" it, with s_i.
        attention_window: "global", "local_m" or "local_p" (Luong 2015, section 3.2).
        attention_window_size: half-width D of a local window, in source positions.
        input_feeding: concatenate the previous attentional vector to the decoder's input (Luong 2015, section 3.3).
        output_layer: input of the output layer: "maxout" of s_i, the embedding of y_{i-1} and c_i, in two pieces
            (Bahdanau 2015, A.2.2, with s_i instead of the printed s_{i-1}); "deep" for
            tanh(E y_{i-1} + L_h s_i + L_z c_i) (Xu 2015, eq. 7; the tanh is in the authors' code); "attentional" for
            tanh(W_c [c_i; s_i]) (Luong 2015, eq. 5); "context" for tanh(W_c c_i), which reads the state only through
            the attention; "state" for s_i.
        output_size: width of the output layer's input; default ``hidden_size``, or ``embedding_size`` for "deep".
        dropout: dropout probability between two recurrent layers, not over time (Zaremba et al. 2014).
        embedding_dropout: dropout probability on the embeddings.
        output_dropout: dropout probability on the output layer's input.
        initializer_range: standard deviation of the embeddings at initialization; the other weights are initialized
            by Glorot & Bengio (2010).
        use_cache: return the decoder's state as ``past_key_values``.

    Raises:
        ValueError: a field does not exist; the message suggests a correction.
        StrictDataclassError: a field is out of range; the message suggests a correction.
    """

    model_type = "bahdanau"

    _presets: ClassVar[dict[str, dict[str, Any]]] = {
        # Section 4.2 and appendix A.2.3: 30,000 words, m = 620, n = n' = 1000, l = 500; a GRU in each direction.
        "bahdanau2015": {
            "vocab_size": 30_000,
            "source_vocab_size": 30_000,
            "share_embeddings": False,
            "embedding_size": 620,
            "encoder_hidden_size": 1000,
            "hidden_size": 1000,
            "cell": "gru_reset_before",
            "encoder_direction": "bidirectional",
            "initial_state": "projection",
            "attention_score": "additive",
            "attention_position": "before",
            "output_layer": "maxout",
            "output_size": 500,
        },
        "luong2015_dot": {**_LUONG_2015, "attention_score": "dot"},
        "luong2015_general": {**_LUONG_2015, "attention_score": "general"},
        "luong2015_concat": {**_LUONG_2015, "attention_score": "additive"},
        "luong2015_local_p": {
            **_LUONG_2015,
            "attention_score": "general",
            "attention_window": "local_p",
            "attention_window_size": 10,
        },
        # Section 3.4: four layers of 1,000 cells, embeddings of 1,000, 160,000 words into 80,000, source reversed.
        "sutskever2014": {
            "vocab_size": 80_000,
            "source_vocab_size": 160_000,
            "share_embeddings": False,
            "embedding_size": 1000,
            "encoder_hidden_size": 1000,
            "hidden_size": 1000,
            "encoder_layers": 4,
            "decoder_layers": 4,
            "cell": "lstm",
            "encoder_direction": "backward",
            "initial_state": "final",
            "attention_score": None,
            "output_layer": "state",
        },
        "luong_small": {
            "vocab_size": 1000,
            "source_vocab_size": 1000,
            "share_embeddings": False,
            "embedding_size": 128,
            "encoder_hidden_size": 256,
            "hidden_size": 512,
            "cell": "lstm",
            "encoder_direction": "bidirectional",
            "initial_state": "final",
            "attention_score": "dot",
            "attention_position": "after",
            "output_layer": "attentional",
        },
    }

    source_vocab_size: int | None = None
    target_tokenizer: str | None = None
    share_embeddings: bool = True
    encoder_hidden_size: int = 128
    encoder_layers: int = 1
    encoder_direction: str = "bidirectional"
    initial_state: str = "projection"
    attention_position: str = "before"
    attention_window: str = "global"
    attention_window_size: int = 10
    input_feeding: bool = False
    auto_map: dict[str, str] = field(default_factory=_auto_map)

    def __post_init__(self, **kwargs: Any) -> None:
        for name, default in (("scheduled_sampling", 0.0), ("sampled_softmax", None)):
            if kwargs.pop(name, default) != default:  # older models were saved with the defaults
                raise ValueError(
                    f"{name} is now a setting of the training; remove it from the model's configuration and write "
                    f"training.{name} in the recipe."
                )
        super().__post_init__(**kwargs)

    @property
    def annotation_size(self) -> int:
        """Width of an annotation h_j."""
        return self.encoder_hidden_size * (2 if self.encoder_direction == "bidirectional" else 1)

    @property
    def final_state_size(self) -> int:
        """Width of h←_1, or of the only final state, which s_0 is projected from."""
        return self.encoder_hidden_size

    def validate_fields(self) -> None:
        """Check ranges and combinations (run by ``@strict`` when the configuration is made)."""
        self._check_decoder()
        self._check_positive("encoder_hidden_size", "encoder_layers", "attention_window_size")
        self._check_choice("encoder_direction", ("forward", "backward", "bidirectional"))
        self._check_choice("initial_state", ("projection", "final"))
        self._check_choice("attention_position", ("before", "after"))
        self._check_choice("attention_window", ("global", "local_m", "local_p"))
        self._check_vocabulary()
        self._check_states()
        self._check_attention()

    def _check_vocabulary(self) -> None:
        self._check_vocabularies()
        smaller = min(self.vocab_size, self.source_vocab_size or self.vocab_size)  # both sides have padding
        self._check_token_ids("pad_token_id", vocab_size=smaller)

    def _check_states(self) -> None:
        if self.dropout > 0 and self.encoder_layers == 1 and self.decoder_layers == 1:
            raise ValueError(
                "dropout is applied between recurrent layers, and each side has only one; write encoder_layers or "
                "decoder_layers: 2 or more, or use embedding_dropout or output_dropout."
            )
        if self.initial_state != "final":
            if self.attention_score is None and self.encoder_direction == "bidirectional":
                raise ValueError(
                    "Without attention, initial_state 'projection' reads only the backward direction, so the forward "
                    "one has no effect; write initial_state: final, or encoder_direction: backward."
                )
            return
        if self.encoder_layers != self.decoder_layers:
            raise ValueError(
                "initial_state 'final' starts each decoder layer from an encoder layer, but encoder_layers is "
                f"{self.encoder_layers} and decoder_layers is {self.decoder_layers}; make them equal, or write "
                "initial_state: projection."
            )
        if self.annotation_size != self.hidden_size:
            raise ValueError(
                f"initial_state 'final' passes states of width {self.annotation_size} to a decoder of hidden_size "
                f"{self.hidden_size}; write hidden_size: {self.annotation_size}, or initial_state: projection."
            )

    def _check_attention(self) -> None:
        if self.attention_score is None:
            unusable = {
                "attention_window": self.attention_window != "global",
                "input_feeding": self.input_feeding,
                "output_layer": self.output_layer in ("attentional", "context"),
                "attention_score_options": bool(self.attention_score_options),
                "attention_distribution": self.attention_distribution != "softmax",
                "attention_distribution_options": bool(self.attention_distribution_options),
                "attention_gate": self.attention_gate != "none",
            }
            for name, set_ in unusable.items():
                if set_:
                    raise ValueError(
                        f"{name} {getattr(self, name)!r} needs attention, but attention_score is null; name a score, "
                        f"such as 'additive', or change {name}."
                    )
        self._check_attention_module()
        self._check_estimator("attention_distribution_options")
        if self.output_layer == "context" and self.attention_position == "before":
            raise ValueError(
                "output_layer 'context' reads only c_i, which does not depend on y_{i-1} if the attention precedes the "
                "cell; write attention_position: after, or output_layer: attentional."
            )
        attentional = self.output_layer in ("attentional", "context")
        if self.input_feeding and (self.attention_position == "before" or not attentional):
            raise ValueError(
                "input_feeding feeds the attentional vector of the previous step; write attention_position: after and "
                "output_layer: attentional (or context)."
            )


BahdanauConfig.register_for_auto_class()
