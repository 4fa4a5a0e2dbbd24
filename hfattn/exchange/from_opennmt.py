"""Convert Transformers of OpenNMT-py: pre-norm, with scaled embeddings if positions are added."""

from typing import Any

from ..errors import UserError
from .checkpoint import Checkpoint, Converted
from .names import Table
from .vaswani import Stack, attention_table, load_translator, supported_activation
from .vocabulary import tokens_of

PROJECTIONS = ("linear_query", "linear_keys", "linear_values", "final_linear")
ENCODER_LAYER: Table = {
    **attention_table("encoder.transformer.#.self_attn", "self_attn", PROJECTIONS),
    "encoder.transformer.#.layer_norm.*": "self_attn_residual.norm.*",
    "encoder.transformer.#.feed_forward.layer_norm.*": "feed_forward_residual.norm.*",
    "encoder.transformer.#.feed_forward.w_1.*": "feed_forward.fc1.*",
    "encoder.transformer.#.feed_forward.w_2.*": "feed_forward.fc2.*",
}
DECODER_LAYER: Table = {
    **attention_table("decoder.transformer_layers.#.self_attn", "self_attn", PROJECTIONS),
    "decoder.transformer_layers.#.layer_norm_1.*": "self_attn_residual.norm.*",
    **attention_table("decoder.transformer_layers.#.context_attn", "cross_attn", PROJECTIONS),
    "decoder.transformer_layers.#.layer_norm_2.*": "cross_attn_residual.norm.*",
    "decoder.transformer_layers.#.feed_forward.layer_norm.*": "feed_forward_residual.norm.*",
    "decoder.transformer_layers.#.feed_forward.w_1.*": "feed_forward.fc1.*",
    "decoder.transformer_layers.#.feed_forward.w_2.*": "feed_forward.fc2.*",
}
EMBEDDING, POSITIONS = "embeddings.make_embedding.emb_luts.0.weight", "embeddings.make_embedding.pe.pe"
ENCODER = Stack("model.encoder", ENCODER_LAYER, "encoder.layer_norm", f"encoder.{EMBEDDING}", f"encoder.{POSITIONS}")
DECODER = Stack("model.decoder", DECODER_LAYER, "decoder.layer_norm", f"decoder.{EMBEDDING}", f"decoder.{POSITIONS}")
OUTPUT: Table = {"generator.*": "lm_head.*"}

BIASES = (r"\.(linear_\w+|final_linear)\.bias$", r"\.w_[12]\.bias$")  # add_qkvbias, add_ffnbias
ACTIVATIONS = {"relu": "relu", "gelu": "gelu"}
# Options that change the computation, each with the only value that ``VaswaniConfig`` supports.
ONLY = {
    "encoder_type": "transformer",
    "decoder_type": "transformer",
    "self_attn_type": "scaled-dot",
    "max_relative_positions": 0,
    "layer_norm": "standard",
    "parallel_residual": False,
    "num_kv": 0,
    "copy_attn": False,
    "generator_function": "softmax",
    "sliding_window": 0,
    "num_experts": 0,
}
IDS = {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}  # they follow <unk>


def from_opennmt(checkpoint: Checkpoint) -> Converted:
    """Convert to ``VaswaniForConditionalGeneration``, with options and vocabularies from the checkpoint or from files.

    Raises:
        UserError: the options are missing or describe another architecture, or the weights do not match them.
    """
    weights = checkpoint.weights
    for name, tensor in (weights.extras.get("generator") or {}).items():
        weights.tensors[f"generator.{name}"] = tensor
    if "generator.0.weight" in weights.tensors:  # releases whose generator is a Sequential with a softmax
        weights.rename({"generator.0": "generator"})
    options = _options(checkpoint)
    for name, value in ONLY.items():
        if options.get(name, value) != value:
            raise UserError(f"The model has {name}={options[name]}, but our models support only {value}.")
    vocabularies = None
    if checkpoint.vocabulary is None and isinstance(found := weights.extras.get("vocab"), dict):
        vocabularies = (tokens_of(found.get("src"), "vocab.src"), tokens_of(found.get("tgt"), "vocab.tgt"))
        start = found.get("decoder_start_token")
        if start in vocabularies[1]:
            checkpoint.settings.setdefault("decoder_start_token_id", vocabularies[1].index(start))
    return load_translator(
        checkpoint,
        (ENCODER, DECODER),
        OUTPUT,
        _told(options),
        checkpoint.settings,
        IDS,
        BIASES,
        vocabularies,
        closes=False,
    )


def _options(checkpoint: Checkpoint) -> dict[str, Any]:
    options = checkpoint.config or checkpoint.weights.extras.get("opt", {})
    options = options if isinstance(options, dict) else vars(options)
    if "heads" not in options:
        raise UserError(
            f"{checkpoint.weights.path} does not contain its training options, such as heads; add --config "
            "with them, in YAML."
        )
    return options


def _told(options: dict[str, Any]) -> dict[str, Any]:
    """Return fields of ``VaswaniConfig`` that the training options of OpenNMT-py set."""
    activation = options.get("pos_ffn_activation_fn", "relu")
    adds_positions = options.get("position_encoding", False)
    dropout, attention_dropout = (_first(options.get(name, 0.0)) for name in ("dropout", "attention_dropout"))
    told = {
        "num_attention_heads": options["heads"],
        "activation": supported_activation(activation, ACTIVATIONS),
        "norm": "pre",
        "final_norm": True,
        "layer_norm_eps": options.get("norm_eps", 1e-6),
        "scale_embedding": adds_positions,
        "dropout": dropout,
        "activation_dropout": dropout,
        "attention_dropout": attention_dropout,
    }
    if not adds_positions:
        return told | {"positions": "none"}
    interleaved = options.get("position_encoding_type", "SinusoidalInterleaved") == "SinusoidalInterleaved"
    # Concatenated sines and cosines are a different table; the one in the checkpoint is kept as learned positions.
    return told | {"positions": "sinusoidal" if interleaved else "learned"}


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) else value
