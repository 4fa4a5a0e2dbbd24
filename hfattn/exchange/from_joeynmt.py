"""Convert Transformers of JoeyNMT, with the ``config.yaml`` and the vocabularies that training wrote."""

from typing import Any

from ..errors import UserError
from .checkpoint import Checkpoint, Converted
from .names import Table
from .vaswani import Stack, attention_table, load_translator, supported_activation

PROJECTIONS = ("q_layer", "k_layer", "v_layer", "output_layer")
ENCODER_LAYER: Table = {
    **attention_table("encoder.layers.#.src_src_att", "self_attn", PROJECTIONS),
    "encoder.layers.#.layer_norm.*": "self_attn_residual.norm.*",
    "encoder.layers.#.feed_forward.layer_norm.*": "feed_forward_residual.norm.*",
    "encoder.layers.#.feed_forward.pwff_layer.0.*": "feed_forward.fc1.*",
    "encoder.layers.#.feed_forward.pwff_layer.3.*": "feed_forward.fc2.*",
}
DECODER_LAYER: Table = {
    **attention_table("decoder.layers.#.trg_trg_att", "self_attn", PROJECTIONS),
    "decoder.layers.#.x_layer_norm.*": "self_attn_residual.norm.*",
    **attention_table("decoder.layers.#.src_trg_att", "cross_attn", PROJECTIONS),
    "decoder.layers.#.dec_layer_norm.*": "cross_attn_residual.norm.*",
    "decoder.layers.#.feed_forward.layer_norm.*": "feed_forward_residual.norm.*",
    "decoder.layers.#.feed_forward.pwff_layer.0.*": "feed_forward.fc1.*",
    "decoder.layers.#.feed_forward.pwff_layer.3.*": "feed_forward.fc2.*",
}
ENCODER = Stack("model.encoder", ENCODER_LAYER, "encoder.layer_norm", "src_embed.lut.weight", "encoder.pe.pe")
DECODER = Stack("model.decoder", DECODER_LAYER, "decoder.layer_norm", "trg_embed.lut.weight", "decoder.pe.pe")
OUTPUT: Table = {"decoder.output_layer.weight": "lm_head.weight"}

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "tanh": "tanh"}
IDS = {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}  # they follow <unk>


def from_joeynmt(checkpoint: Checkpoint) -> Converted:
    """Convert to ``VaswaniForConditionalGeneration``.

    Raises:
        UserError: the configuration is missing or describes another architecture, or the weights do not match it.
    """
    try:
        model = checkpoint.config["model"]
        sides = [model["encoder"], model["decoder"]]
        told = [_told(side) for side in sides]
    except (KeyError, TypeError) as error:
        raise UserError(
            f"The weights of {checkpoint.weights.path} do not determine the whole model, and model.encoder or "
            "model.decoder is missing; add --config with the config.yaml of the training."
        ) from error
    for name, value in told[0].items():
        if told[1][name] != value:
            raise UserError(f"Encoder and decoder differ in {name} ({value}, {told[1][name]}); our models do not.")
    # Only pre-norm has a final norm. The weights decide, because the default of JoeyNMT depends on its release.
    pre = f"{ENCODER.norm}.weight" in checkpoint.weights.tensors
    norm = "pre" if pre else "post"
    if any(side.get("layer_norm", norm) != norm for side in sides):
        raise UserError(
            f"The configuration says layer_norm: {sides[0].get('layer_norm')}, but the weights are {norm}-norm."
        )
    fields = {**told[0], "norm": norm, "layer_norm_eps": 1e-6}
    return load_translator(checkpoint, (ENCODER, DECODER), OUTPUT, fields, checkpoint.settings, IDS)


def _told(side: dict[str, Any]) -> dict[str, Any]:
    """Return fields of ``VaswaniConfig`` that the encoder or decoder section of JoeyNMT's configuration sets."""
    if side.get("type", "recurrent") != "transformer":
        raise UserError(
            f"The configuration has the type {side.get('type', 'recurrent')}; only transformer can be converted."
        )
    if side.get("alpha", 1.0) != 1.0:
        raise UserError(f"The configuration scales residuals by alpha={side['alpha']}; our models support only 1.")
    activation = side.get("activation", "relu")
    dropout = side.get("dropout", 0.0)
    return {
        "num_attention_heads": side["num_heads"],
        "activation": supported_activation(activation, ACTIVATIONS),
        "scale_embedding": side["embeddings"].get("scale", False),
        "dropout": dropout,
        "attention_dropout": dropout,
        "activation_dropout": dropout,
        "embedding_dropout": side["embeddings"].get("dropout", dropout),
        "positions": "sinusoidal",
    }
