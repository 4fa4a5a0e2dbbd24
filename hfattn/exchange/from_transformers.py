"""Convert LLaMA and ModernBERT of transformers, whose blocks are options of ``VaswaniConfig``."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from huggingface_hub.errors import StrictDataclassError
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ..errors import UserError
from ..loading import ModelLocation, load_tokenizer
from ..models.configuration_vaswani import VaswaniConfig
from ..models.modeling_vaswani import VaswaniForCausalLM, VaswaniForMaskedLM, VaswaniPreTrainedModel
from ..models.strict_config import unknown_message
from .checkpoint import Checkpoint, Converted, make_config
from .names import Row, Table, expand, load_ours


class Counterpart(NamedTuple):
    """A model of transformers that a ``vaswani`` model can equal.

    Attributes:
        preset: its preset of ``VaswaniConfig``.
        theirs, their_config: its classes.
        ours: our class.
        fields: fields with the same meaning: our names, and theirs.
        biases: their fields that say where biases are; here, ``bias`` says it for all places.
        untrained: their fields that change only training, in a way of their own, unless they are 0.
        to_ours, to_theirs: the other fields, from their configuration to ours and back.
        stack: "encoder" or "decoder".
        outer, layer: tables of names.
    """

    preset: str
    theirs: type[PreTrainedModel]
    their_config: type[PreTrainedConfig]
    ours: type[VaswaniPreTrainedModel]
    fields: Mapping[str, str]
    biases: tuple[str, ...]
    untrained: tuple[str, ...]
    to_ours: Callable[[Any], dict[str, Any]]
    to_theirs: Callable[[VaswaniConfig], dict[str, Any]]
    stack: str
    outer: Table
    layer: Table

    def rows(self, model: VaswaniPreTrainedModel) -> list[Row]:
        """Return the table of names of a model; biases and norms that it does not have are left out."""
        state = model.state_dict()
        number = getattr(model.config, f"{self.stack}_layers")
        return [row for row in (*expand(self.outer), *expand(self.layer, number)) if row.ours[0] in state]


def _rope(parameters: Mapping[str, Any]) -> float:
    """Return the base of the wavelengths.

    Raises:
        UserError: the wavelengths are scaled, as for texts longer than those of the training.
    """
    if (kind := parameters.get("rope_type", "default")) != "default":
        raise UserError(f"The model has rotary positions of the type {kind}; only default is supported.")
    return float(parameters["rope_theta"])


def _llama(theirs: Any) -> dict[str, Any]:
    return {"rope_theta": _rope(theirs.rope_parameters)}


def _to_llama(config: VaswaniConfig) -> dict[str, Any]:
    rope = {"rope_type": "default", "rope_theta": float(config.rope_theta)}
    return {"rope_parameters": rope, "num_key_value_heads": config.key_value_heads}


def _modernbert(theirs: Any) -> dict[str, Any]:
    if theirs.classifier_activation != theirs.hidden_activation:
        raise UserError(
            f"The model has classifier_activation={theirs.classifier_activation} and hidden_activation="
            f"{theirs.hidden_activation}; our models have one activation."
        )
    local = [kind == "sliding_attention" for kind in theirs.layer_types]
    return {
        "rope_theta": _rope(theirs.rope_parameters["full_attention"]),
        "local_rope_theta": _rope(theirs.rope_parameters["sliding_attention"]),
        "encoder_pattern": ["window" if is_local else "full" for is_local in local],
        # Theirs is the number of tokens on both sides together.
        "encoder_pattern_options": {"window": theirs.local_attention // 2 + 1} if any(local) else {},
    }


def _to_modernbert(config: VaswaniConfig) -> dict[str, Any]:
    patterns = [config.layer_pattern("encoder", index) for index in range(config.encoder_layers)]
    windows = [options["window"] for name, options in patterns if name == "window"]
    thetas = {"full_attention": config.rope_theta, "sliding_attention": config.local_rope_theta or config.rope_theta}
    return {
        "layer_types": ["full_attention" if name == "full" else "sliding_attention" for name, _ in patterns],
        "local_attention": 2 * (windows[0] - 1) if windows else ModernBertConfig().local_attention,
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": float(theta)} for kind, theta in thetas.items()
        },
        "classifier_activation": config.activation,
        "embedding_dropout": config.dropout if config.embedding_dropout is None else config.embedding_dropout,
        "cls_token_id": config.bos_token_id,
        "sep_token_id": config.eos_token_id if isinstance(config.eos_token_id, int) else None,
    }


_SHARED = (
    "vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "max_position_embeddings",
    "tie_word_embeddings", "pad_token_id", "bos_token_id", "eos_token_id",
)  # fmt: skip
_LLAMA, _MODERNBERT = "model.decoder.layers.#", "model.encoder.layers.#"

COUNTERPARTS = {
    "llama": Counterpart(
        "llama", LlamaForCausalLM, LlamaConfig, VaswaniForCausalLM,
        fields={
            **{name: name for name in _SHARED},
            "decoder_layers": "num_hidden_layers",
            "head_dim": "head_dim",
            "num_key_value_heads": "num_key_value_heads",
            "activation": "hidden_act",
            "layer_norm_eps": "rms_norm_eps",
            "attention_dropout": "attention_dropout",
        },
        biases=("attention_bias", "mlp_bias"),
        untrained=(),
        to_ours=_llama,
        to_theirs=_to_llama,
        stack="decoder",
        outer={
            "model.embed_tokens.weight": "model.decoder.embed_tokens.weight",
            "model.norm.weight": "model.decoder.norm.weight",
            "lm_head.weight": "lm_head.weight",
        },
        layer={
            **{f"model.layers.#.self_attn.{part}_proj.*": f"{_LLAMA}.self_attn.{part}_proj.*" for part in "qkv"},
            "model.layers.#.self_attn.o_proj.*": f"{_LLAMA}.self_attn.out_proj.*",
            "model.layers.#.mlp.gate_proj.*": f"{_LLAMA}.feed_forward.fc1.*",
            "model.layers.#.mlp.up_proj.*": f"{_LLAMA}.feed_forward.fc3.*",
            "model.layers.#.mlp.down_proj.*": f"{_LLAMA}.feed_forward.fc2.*",
            "model.layers.#.input_layernorm.weight": f"{_LLAMA}.self_attn_residual.norm.weight",
            "model.layers.#.post_attention_layernorm.weight": f"{_LLAMA}.feed_forward_residual.norm.weight",
        },
    ),
    "modernbert": Counterpart(
        "modernbert", ModernBertForMaskedLM, ModernBertConfig, VaswaniForMaskedLM,
        fields={
            **{name: name for name in _SHARED},
            "encoder_layers": "num_hidden_layers",
            "activation": "hidden_activation",
            "layer_norm_eps": "norm_eps",
            "lm_head_bias": "decoder_bias",
            "embedding_dropout": "embedding_dropout",
            "activation_dropout": "mlp_dropout",
        },
        biases=("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"),
        untrained=("attention_dropout",),
        to_ours=_modernbert,
        to_theirs=_to_modernbert,
        stack="encoder",
        outer={
            "model.embeddings.tok_embeddings.weight": "model.encoder.embed_tokens.weight",
            "model.embeddings.norm.*": "model.encoder.embedding_norm.*",
            "model.final_norm.*": "model.encoder.norm.*",
            "head.dense.*": "lm_head_transform.dense.*",
            "head.norm.*": "lm_head_transform.norm.*",
            "decoder.*": "lm_head.*",
        },
        layer={
            "model.layers.#.attn_norm.*": f"{_MODERNBERT}.self_attn_residual.norm.*",
            "model.layers.#.attn.Wqkv.*": tuple(f"{_MODERNBERT}.self_attn.{part}_proj.*" for part in "qkv"),
            "model.layers.#.attn.Wo.*": f"{_MODERNBERT}.self_attn.out_proj.*",
            "model.layers.#.mlp_norm.*": f"{_MODERNBERT}.feed_forward_residual.norm.*",
            "model.layers.#.mlp.Wi.*": tuple(f"{_MODERNBERT}.feed_forward.{name}.*" for name in ("fc1", "fc3")),
            "model.layers.#.mlp.Wo.*": f"{_MODERNBERT}.feed_forward.fc2.*",
        },
    ),
}  # fmt: skip


def our_fields(counterpart: Counterpart, theirs: Any) -> dict[str, Any]:
    """Return the fields of ``VaswaniConfig`` that make the model with their configuration.

    Raises:
        UserError: their model has what our models do not have.
    """
    biases = {name: getattr(theirs, name) for name in counterpart.biases}
    if len(set(biases.values())) > 1:
        found = " and ".join(f"{name}={value}" for name, value in biases.items())
        raise UserError(f"The model has {found}; our models have biases in all of these places or in none.")
    for name in counterpart.untrained:
        if getattr(theirs, name):
            raise UserError(f"The model has {name}={getattr(theirs, name)}; only 0 is supported.")
    same = {ours: getattr(theirs, name) for ours, name in counterpart.fields.items()}
    bias = {"bias": any(biases.values())}
    return {**VaswaniConfig._presets[counterpart.preset], **same, **bias, **counterpart.to_ours(theirs)}


def from_transformers(checkpoint: Checkpoint) -> Converted:
    """Convert a ``LlamaForCausalLM`` to ``VaswaniForCausalLM``, a ``ModernBertForMaskedLM`` to ``VaswaniForMaskedLM``.

    The checkpoint is a folder with ``config.json`` and weights, and a tokenizer if there is one.

    Raises:
        UserError: the model is of another kind, has what our models do not have, or lacks weights.
    """
    weights, name = checkpoint.weights, str(checkpoint.config.get("model_type"))
    if name not in COUNTERPARTS:
        raise UserError(unknown_message(name, COUNTERPARTS, "a model_type of transformers that can be converted"))
    counterpart = COUNTERPARTS[name]
    try:
        theirs = counterpart.their_config.from_dict(checkpoint.config)
    except (StrictDataclassError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"The configuration of {weights.path} is invalid: {' '.join(str(error).split())}") from error
    told = our_fields(counterpart, theirs)
    dropouts = {field: told.pop(field) for field in [*told] if field.endswith("dropout")}
    model = counterpart.ours(make_config(VaswaniConfig, told, {**dropouts, **checkpoint.settings}))
    rows = counterpart.rows(model)
    # Angles that earlier versions stored.
    tensors = {name: tensor for name, tensor in weights.tensors.items() if not name.endswith(".inv_freq")}
    (embedding,) = (row.theirs for row in rows if row.ours[0].endswith("embed_tokens.weight"))
    (output,) = (row.theirs for row in rows if row.ours[0] == "lm_head.weight")
    if model.config.tie_word_embeddings and embedding in tensors:
        tensors[output] = tensors[embedding]
    weights.tensors = tensors
    load_ours(model, weights, rows)
    return Converted(model, _tokenizer(checkpoint))


def _tokenizer(checkpoint: Checkpoint) -> PreTrainedTokenizerBase | None:
    folder = checkpoint.weights.path
    if any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json")):
        return load_tokenizer(ModelLocation(name=str(folder)))
    return None
