"""Configuration of the Transformer: encoder-decoder, encoder alone or decoder alone."""

from .configuration_layers import LayersConfig  # isort: skip  (first, because it refuses an older transformers)

from dataclasses import field
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict

POSITION_NAMES = ("sinusoidal", "learned", "rotary", "alibi", "relative_buckets", "relative_sinusoidal", "none")
POOLING_NAMES = ("mean", "first", "last")


# The base model of Devlin et al. (2019).
_BERT = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "encoder_layers": 12,
    "num_attention_heads": 12,
    "embedding_norm": True,
    "activation": "gelu",
    "attention_dropout": 0.1,
    "positions": "learned",
    "max_position_embeddings": 512,
    "scale_embedding": False,
    "lm_head_bias": True,
    "lm_head_transform": True,
    "decoder_start_token_id": None,
}

# The base model of Raffel et al. (2020).
_T5 = {
    "vocab_size": 32_128,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "encoder_layers": 12,
    "decoder_layers": 12,
    "num_attention_heads": 12,
    "head_dim": 64,
    "norm": "pre",
    "norm_type": "rms",
    "layer_norm_eps": 1e-6,
    "bias": False,
    "attention_dropout": 0.1,
    "activation_dropout": 0.1,
    "output_dropout": 0.1,
    "positions": "relative_buckets",
    "self_attention_score": "dot",
    "cross_attention_score": "dot",
    "initialization": "t5",
    "scale_embedding": False,
    "scale_decoder_outputs": True,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}


def _auto_map() -> dict[str, str]:
    return {
        "AutoConfig": "configuration_vaswani.VaswaniConfig",
        "AutoModel": "modeling_vaswani.VaswaniModel",
        "AutoModelForSeq2SeqLM": "modeling_vaswani_translation.VaswaniForConditionalGeneration",
        "AutoModelForCausalLM": "modeling_vaswani.VaswaniForCausalLM",
        "AutoModelForMaskedLM": "modeling_vaswani.VaswaniForMaskedLM",
        "AutoModelForSequenceClassification": "modeling_vaswani.VaswaniForSequenceClassification",
    }


@strict
class VaswaniConfig(LayersConfig):
    """The Transformer (Vaswani et al. 2017, "Attention is all you need"), and its usual variants.

    One configuration is used for every class: ``VaswaniForConditionalGeneration`` has ``encoder_layers`` and
    ``decoder_layers``; ``VaswaniForCausalLM`` has only decoder layers, without cross-attention; ``VaswaniForMaskedLM``
    and ``VaswaniForSequenceClassification`` have only encoder layers. Except for the vocabulary, the defaults are those
    of the base model in the paper. The presets of ``VaswaniConfig.preset(name)`` are ``base2017`` and ``big2017``
    (table 3), ``small`` (two layers of width 128, eight heads of width 16), ``small_wide_heads`` (the same with heads
    of width 128) and ``wide_layer`` (one layer of width 256, eight heads of width 256, 19,960,216 parameters).
    ``llama`` is the block of LLaMA (Touvron et al. 2023) with the sizes of its smallest model, for
    ``VaswaniForCausalLM``; ``bert``, ``longformer`` and ``modernbert`` are those of BERT (Devlin et al. 2019),
    Longformer (Beltagy et al. 2020) and ModernBERT (Warner et al. 2024) with the sizes of the base models, for
    ``VaswaniForMaskedLM``; ``t5`` and ``t5_v1_1`` are the base models of T5 (Raffel et al. 2020; version 1.1 has a
    gated feed-forward network and an output layer of its own). ``hfattn convert transformers`` and ``hfattn export
    transformers`` exchange their weights.

    The arguments are these and those of ``LayersConfig``.

    Args:
        vocab_size: number of tokens in the vocabulary of the target, and of the source unless ``source_vocab_size`` is
            given (V).
        source_vocab_size: number of tokens in the vocabulary of the source, if it has its own.
        target_tokenizer: sub-folder of a saved model with the tokenizer of the target; None if source and target share
            one. ``save_translator`` writes both.
        share_embeddings: use one embedding matrix for source and target; requires one vocabulary.
        tie_word_embeddings: share the embedding with the output layer (Press & Wolf 2017); with ``share_embeddings``,
            all three matrices are the same, as in section 3.4.
        lm_head_bias: add a bias in the output layer.
        lm_head_transform: in ``VaswaniForMaskedLM``, a linear layer with the activation and a norm before the output
            layer (Devlin et al. 2019, in the authors' code).
        decoder_layers: number of layers of the decoder (N).
        output_dropout: dropout probability of the input of ``lm_head`` (``dropout`` is used for a classifier's input).
        positions: "sinusoidal" (section 3.5; for any length), "learned" (up to ``max_position_embeddings``), "rotary"
            (RoPE, Su et al. 2021: the score of a self-attention compares queries and keys that are rotated by their
            positions), "none", or a bias that is added to the energies of self-attention and depends on the distance of
            query and key: "alibi" (Press et al. 2022), "relative_buckets" (T5, Raffel et al. 2020: one table for all
            layers of a stack) or "relative_sinusoidal" (Transformer-XL, Dai et al. 2019, section 3.3). ``position_ids``
            do not change a bias.
        rope_theta: base of the wavelengths of rotary positions.
        local_rope_theta: another base for the layers whose pattern is not "full"; default ``rope_theta``.
        max_position_embeddings: number of learned positions.
        num_buckets: number of buckets of distances, for "relative_buckets".
        max_distance: distance from which on all are in the last of these buckets.
        subsampling: number of tokens of a block, by default none. A convolution makes one position of each block, so
            that the layers of the encoder compute with fewer of them (Clark et al. 2022, section 3.2). It is meant for
            bytes and characters, in classifiers and translators.
        share_positions: use one table of learned positions for source and target.
        scale_embedding: multiply the embeddings by sqrt(hidden_size) (section 3.4).
        scale_decoder_outputs: multiply the output of the decoder by 1 / sqrt(hidden_size) before the output layer (T5,
            Raffel et al. 2020, in the authors' code).
        decoder_pattern, decoder_pattern_options, decoder_attention_groups: as those of the encoder, for the decoder;
            its patterns are also "memory", "gated_linear" and "gated_delta". The layers of a group cache only values
            of their own.
        cross_attention_groups: sizes of groups of decoder layers whose cross-attention has the output of the first
            layer of the group, before W^O.
        classifier_pooling: input of a classifier: the "mean" of the positions that are not padding, or the "first" or
            the "last" of them; a decoder has read the whole text at the last one.
        use_cache: return keys and values as ``past_key_values``.

    Raises:
        ValueError: a field does not exist; the message suggests a correction.
        StrictDataclassError: a field is out of range; the message suggests a correction.
    """

    model_type = "vaswani"
    keys_to_ignore_at_inference = ["past_key_values"]
    _stacks = ("encoder", "decoder")
    _groupable = (("self", False), ("self", True), ("cross", True))

    _presets: ClassVar[dict[str, dict[str, Any]]] = {
        # Section 5.1: about 37,000 subwords for both languages. The epsilon is the one in the authors' code.
        "base2017": {"vocab_size": 37_000, "layer_norm_eps": 1e-6},
        "big2017": {
            "vocab_size": 37_000,
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_attention_heads": 16,
            "dropout": 0.3,
            "layer_norm_eps": 1e-6,
        },
        "small": {
            "vocab_size": 8000,
            "hidden_size": 128,
            "intermediate_size": 128,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "num_attention_heads": 8,
        },
        "small_wide_heads": {  # ``small`` with heads as wide as the model
            "vocab_size": 8000,
            "hidden_size": 128,
            "intermediate_size": 128,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "num_attention_heads": 8,
            "head_dim": 128,
        },
        # 15,000 words in each language, with separate embeddings, and sentences of at most 20 words.
        "wide_layer": {
            "vocab_size": 15_000,
            "source_vocab_size": 15_000,
            "share_embeddings": False,
            "tie_word_embeddings": False,
            "lm_head_bias": True,
            "hidden_size": 256,
            "intermediate_size": 2048,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "num_attention_heads": 8,
            "head_dim": 256,
            "dropout": 0.0,
            "output_dropout": 0.5,  # the only dropout
            "positions": "learned",
            "max_position_embeddings": 20,
            "scale_embedding": False,
        },
        "llama": {
            "vocab_size": 32_000,
            "hidden_size": 4096,
            "intermediate_size": 11_008,
            "decoder_layers": 32,
            "num_attention_heads": 32,
            "norm": "pre",
            "norm_type": "rms",
            "layer_norm_eps": 1e-6,
            "activation": "silu",
            "gated_feed_forward": True,
            "bias": False,
            "dropout": 0.0,
            "positions": "rotary",
            "max_position_embeddings": 2048,
            "scale_embedding": False,
            "tie_word_embeddings": False,
            "pad_token_id": None,
            "decoder_start_token_id": None,
        },
        "modernbert": {
            "vocab_size": 50_368,
            "hidden_size": 768,
            "intermediate_size": 1152,
            "encoder_layers": 22,
            "num_attention_heads": 12,
            "norm": "pre",
            "embedding_norm": True,
            "layer_norm_eps": 1e-5,
            "activation": "gelu",
            "gated_feed_forward": True,
            "bias": False,
            "dropout": 0.0,
            "embedding_dropout": 0.0,
            "positions": "rotary",
            "rope_theta": 160_000,
            "local_rope_theta": 10_000,
            "max_position_embeddings": 8192,
            # Every third layer reads the whole text, the others 64 tokens on either side.
            "encoder_pattern": ["full" if index % 3 == 0 else "window" for index in range(22)],
            "encoder_pattern_options": {"window": 65},
            "scale_embedding": False,
            "lm_head_bias": True,
            "lm_head_transform": True,
            "pad_token_id": 50_283,
            "bos_token_id": 50_281,
            "eos_token_id": 50_282,
            "decoder_start_token_id": None,
        },
        "bert": {**_BERT, "vocab_size": 30_522, "layer_norm_eps": 1e-12, "bos_token_id": None, "eos_token_id": None},
        "longformer": {
            **_BERT,
            "vocab_size": 50_265,
            "max_position_embeddings": 4096,
            # 256 tokens on either side.
            "encoder_pattern": "window",
            "encoder_pattern_options": {"window": 257, "global_tokens": 1},
            "pad_token_id": 1,
            "bos_token_id": 0,
            "eos_token_id": 2,
        },
        "t5": _T5,
        "t5_v1_1": {
            **_T5,
            "intermediate_size": 2048,
            "activation": "gelu_new",
            "gated_feed_forward": True,
            "tie_word_embeddings": False,
            "scale_decoder_outputs": False,
        },
    }

    vocab_size: int = 32_000
    source_vocab_size: int | None = None
    target_tokenizer: str | None = None
    share_embeddings: bool = True
    tie_word_embeddings: bool = True
    lm_head_bias: bool = False
    lm_head_transform: bool = False
    decoder_layers: int = 6
    output_dropout: float | int = 0.0
    rope_theta: float | int = 10_000
    local_rope_theta: float | int | None = None
    max_position_embeddings: int = 1024
    num_buckets: int = 32
    max_distance: int = 128
    subsampling: int | None = None
    share_positions: bool = False
    scale_embedding: bool = True
    scale_decoder_outputs: bool = False
    decoder_pattern: str | list[str] = "full"
    decoder_pattern_options: dict[str, Any] = field(default_factory=dict)
    decoder_attention_groups: list[int] | None = None
    cross_attention_groups: list[int] | None = None
    classifier_pooling: str = "mean"
    use_cache: bool = True
    is_encoder_decoder: bool = True
    is_decoder: bool = False
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 1
    auto_map: dict[str, str] = field(default_factory=_auto_map)

    @property
    def option_names(self) -> set[str]:
        """Names of those of ``OPTIONS`` that are used."""
        return super().option_names | ({"subsampling"} if self.subsampling is not None else set())

    def layer_rope_theta(self, stack: str, layer_idx: int) -> float:
        """Return the base of the rotary positions in a layer of the "encoder" or the "decoder"."""
        is_full = self.layer_pattern(stack, layer_idx)[0] == "full"
        return float(self.rope_theta if is_full or self.local_rope_theta is None else self.local_rope_theta)

    @property
    def num_hidden_layers(self) -> int:
        """Number of layers of the only stack, or of the encoder if there are two."""
        return self.decoder_layers if self.is_decoder and not self.is_encoder_decoder else self.encoder_layers

    @num_hidden_layers.setter
    def num_hidden_layers(self, number: int) -> None:
        if self.is_decoder and not self.is_encoder_decoder:
            self.decoder_layers = number
        else:
            self.encoder_layers = number

    def validate_fields(self) -> None:
        """Check ranges and combinations (run by ``@strict`` when the configuration is made)."""
        self._check_positive("vocab_size", "decoder_layers", "max_position_embeddings")
        self._check_probability("output_dropout")
        self._check_choice("positions", POSITION_NAMES)
        self._check_choice("classifier_pooling", POOLING_NAMES)
        if self.subsampling is not None and self.subsampling < 2:
            raise ValueError(f"subsampling is {self.subsampling}; write a whole number of at least 2, or null.")
        self._check_above_zero("rope_theta", example="10000")
        if self.local_rope_theta is not None:
            self._check_above_zero("local_rope_theta", example="10000")
        if self.num_buckets < 4 or self.num_buckets % 4:
            raise ValueError(f"num_buckets is {self.num_buckets}; write a multiple of 4, such as 32.")
        if self.max_distance <= self.num_buckets // 2:
            raise ValueError(
                f"max_distance is {self.max_distance}, and half of the {self.num_buckets} buckets are for shorter "
                f"distances, each of them for one; write a number above {self.num_buckets // 2}, such as "
                f"{4 * self.num_buckets}."
            )
        if self.share_positions and self.positions != "learned":
            raise ValueError(
                f"share_positions shares a table of learned positions, but positions is {self.positions!r}, which has "
                "none; write positions: learned, or leave share_positions out."
            )
        self._check_token_ids("pad_token_id", "bos_token_id", "decoder_start_token_id", vocab_size=self.vocab_size)
        self._check_vocabularies()
        self._check_groups("decoder", "decoder", self.decoder_layers)
        self._check_groups("cross", "decoder", self.decoder_layers)
        super().validate_fields()
        if self.positions == "rotary" and self.head_width % 2:
            raise ValueError(
                f"rotary positions rotate pairs of features, but head_dim is {self.head_dim}; write an even head_dim, "
                "or other positions."
            )
        self._check_pattern("decoder", self.decoder_layers)


VaswaniConfig.register_for_auto_class()
