"""Convert models of transformers whose blocks are options of ``VaswaniConfig`` or ``VaswaniVisionConfig``."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    BaseImageProcessor,
    BertConfig,
    BertForMaskedLM,
    DeiTConfig,
    DeiTForImageClassificationWithTeacher,
    LlamaConfig,
    LlamaForCausalLM,
    LongformerConfig,
    LongformerForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    RobertaConfig,
    RobertaForMaskedLM,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)

from ..errors import UserError
from ..loading import ModelLocation, load_image_processor, load_tokenizer
from ..models.configuration_layers import LayersConfig
from ..models.configuration_vaswani import VaswaniConfig
from ..models.configuration_vaswani_vision import VaswaniVisionConfig
from ..models.modeling_vaswani import LayersPreTrainedModel, VaswaniForCausalLM, VaswaniForMaskedLM
from ..models.modeling_vaswani_translation import VaswaniForConditionalGeneration
from ..models.modeling_vaswani_vision import VaswaniVisionForImageClassification
from ..models.strict_config import unknown_message
from .checkpoint import Checkpoint, Converted, make_config
from .names import Row, Table, expand, load_ours

Tensors = dict[str, torch.Tensor]


class Counterpart(NamedTuple):
    """A model of transformers that a ``vaswani`` or ``vaswani_vision`` model can equal.

    Attributes:
        preset: its preset of our configuration.
        theirs, their_config: its classes.
        ours: our class.
        fields: fields with the same meaning: our names, and theirs.
        biases: their fields that say where biases are; here, ``bias`` says it for all places.
        untrained: their fields that change only training, in a way of their own, unless they are 0.
        to_ours, to_theirs: the other fields, from their configuration to ours and back; None if the model is not
            exported.
        outer: table of the names outside of the layers.
        layers: table of the names in a layer, for each stack, "encoder" or "decoder".
        replaceable: our fields for which the user may set another value than the model has.
        read: from their weights to those that the tables name, for a model of ours.
        write: from the weights that the tables name to theirs, for their configuration.
        inputs: further inputs of their model, for a model of ours and an attention mask (B, T).
    """

    preset: str
    theirs: type[PreTrainedModel]
    their_config: type[PreTrainedConfig]
    ours: type[LayersPreTrainedModel]
    fields: Mapping[str, str]
    biases: tuple[str, ...]
    untrained: tuple[str, ...]
    to_ours: Callable[[Any], dict[str, Any]]
    to_theirs: Callable[[Any], dict[str, Any]] | None
    outer: Table
    layers: Mapping[str, Table]
    replaceable: tuple[str, ...] = ()
    read: Callable[[Any, Any, Tensors], Tensors] = lambda theirs, config, tensors: tensors
    write: Callable[[Any, Tensors], Tensors] = lambda theirs, tensors: tensors
    inputs: Callable[[Any, torch.Tensor], dict[str, torch.Tensor]] = lambda config, mask: {}

    @property
    def config(self) -> type[LayersConfig]:
        """Our configuration class."""
        config_class: type[LayersConfig] = self.ours.config_class
        return config_class

    def rows(self, model: LayersPreTrainedModel) -> list[Row]:
        """Return the table of names of a model; biases and norms that it does not have are left out."""
        state = model.state_dict()
        found = expand(self.outer)
        for stack, table in self.layers.items():
            found += expand(table, getattr(model.config, f"{stack}_layers"))
        return [row for row in found if row.ours[0] in state]


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


def _bert(theirs: Any) -> dict[str, Any]:
    if theirs.is_decoder or theirs.add_cross_attention:
        raise UserError("The model is a decoder; only encoders of this kind are supported.")
    return {}


def _num_unused_positions(theirs: Any) -> int:
    """Return how many rows of a table of positions come before that of the first token."""
    return 0 if isinstance(theirs, BertConfig) else theirs.pad_token_id + 1


def _roberta(theirs: Any) -> dict[str, Any]:
    if theirs.hidden_act != "gelu":
        raise UserError(
            f"The model has hidden_act={theirs.hidden_act}, and gelu before its output layer; our models have one "
            "activation."
        )
    return {"max_position_embeddings": theirs.max_position_embeddings - _num_unused_positions(theirs)}


def _longformer(theirs: Any) -> dict[str, Any]:
    numbers = theirs.attention_window
    # Theirs is the number of tokens on both sides together.
    windows = [number // 2 + 1 for number in (numbers if isinstance(numbers, list) else [numbers])]
    options = {"window": windows if len(set(windows)) > 1 else windows[0]}
    # In transformers, an input says which tokens are global; the field is ours.
    if global_tokens := theirs.to_dict().get("global_tokens", 1):
        options["global_tokens"] = global_tokens
    return {**_roberta(theirs), "encoder_pattern": "window", "encoder_pattern_options": options}


def _to_longformer(config: VaswaniConfig) -> dict[str, Any]:
    if config.pad_token_id is None:
        raise UserError("LongformerForMaskedLM of transformers needs a pad_token_id, and this model has none.")
    options = [config.layer_pattern("encoder", index)[1] for index in range(config.encoder_layers)]
    # For other layers, a number that makes the configurations differ.
    sides = [window - 1 if isinstance(window := each.get("window"), int) else 2 for each in options]
    if min(sides) < 2 or any(max(sides) % number for number in sides):
        raise UserError(
            "LongformerForMaskedLM of transformers needs windows of at least 3, and w - 1 of the largest must be a "
            f"multiple of that of the others; this model has the windows {[number + 1 for number in sides]}."
        )
    return {
        "attention_window": [2 * number for number in sides],
        "global_tokens": options[0].get("global_tokens", 0),
        "max_position_embeddings": config.max_position_embeddings + config.pad_token_id + 1,
        "type_vocab_size": 1,
    }


def _read_bert(theirs: Any, config: VaswaniConfig, tensors: Tensors) -> Tensors:
    """Prepare the weights of a BERT, RoBERTa or Longformer.

    The vector of the first token type, which each token of a single text has, is added to the positions. If the model
    is to have more positions, they are repeated (Beltagy et al. 2020, section 5). Layers for other tasks are left out.
    """
    old = {r"LayerNorm\.gamma$": "LayerNorm.weight", r"LayerNorm\.beta$": "LayerNorm.bias"}
    for pattern, name in old.items():
        tensors = {re.sub(pattern, name, key): tensor for key, tensor in tensors.items()}
    unused = r"\w+\.pooler\..*|cls\.seq_relationship\..*|.*\.(position|token_type)_ids"
    tensors = {name: tensor for name, tensor in tensors.items() if not re.fullmatch(unused, name)}
    for head in ("cls.predictions", "lm_head"):
        if f"{head}.bias" in tensors:  # stored once, or twice
            tensors.setdefault(f"{head}.decoder.bias", tensors.pop(f"{head}.bias"))
    prefix = f"{theirs.model_type}.embeddings"
    positions = tensors.get(f"{prefix}.position_embeddings.weight")
    types = tensors.pop(f"{prefix}.token_type_embeddings.weight", None)
    if positions is not None and types is not None:
        dtype = torch.promote_types(positions.dtype, torch.float32)
        positions = positions[_num_unused_positions(theirs) :].to(dtype) + types[0].to(dtype)
        times = -(-config.max_position_embeddings // len(positions))
        tensors[f"{prefix}.position_embeddings.weight"] = positions.repeat(times, 1)[: config.max_position_embeddings]
    options = [config.layer_pattern("encoder", index)[1] for index in range(config.encoder_layers)]
    for name in [*tensors]:
        found = re.fullmatch(r"(.*\.layer\.(\d+)\.attention\.self\.(?:query|key|value))(_global)?(\..*)", name)
        if found is None or int(found[2]) >= len(options):
            continue
        is_global = options[int(found[2])].get("global_tokens", 0) > 0
        if is_global and not found[3]:
            tensors.setdefault(f"{found[1]}_global{found[4]}", tensors[name])
        if found[3] and not is_global:  # computes nothing if no token is global
            del tensors[name]
    return tensors


def _write_longformer(theirs: Any, tensors: Tensors) -> Tensors:
    """Add what their model has beside ours: positions of padding, token types, and the bias a second time."""
    name = "longformer.embeddings.{}_embeddings.weight"
    positions = tensors[name.format("position")]
    unused = positions.new_zeros(_num_unused_positions(theirs), theirs.hidden_size)
    copies = {
        re.sub(r"(query|key|value)(\.\w+)$", r"\1_global\2", key): tensor
        for key, tensor in tensors.items()
        if ".self." in key and "_global" not in key
    }
    return {
        **copies,  # if no token is global
        **tensors,
        name.format("position"): torch.cat([unused, positions]),
        name.format("token_type"): positions.new_zeros(theirs.type_vocab_size, theirs.hidden_size),
        "lm_head.bias": tensors["lm_head.decoder.bias"],
    }


def _global_mask(config: VaswaniConfig, mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the input that makes the first tokens global in transformers."""
    number = config.layer_pattern("encoder", 0)[1].get("global_tokens", 0)
    return {"global_attention_mask": ((mask.cumsum(-1) <= number) & mask.bool()).long()}


def _vit(theirs: Any) -> dict[str, Any]:
    if not theirs.qkv_bias:
        raise UserError("The model has qkv_bias=False; our models have biases in all places or in none.")
    return {"id2label": theirs.id2label, "problem_type": theirs.problem_type}


def _to_vit(config: VaswaniVisionConfig) -> dict[str, Any]:
    labels = {"id2label": config.id2label, "label2id": config.label2id, "problem_type": config.problem_type}
    stride = config.patch_shape[0]  # of a decoder that this model does not have
    return {**labels, "qkv_bias": config.bias, "encoder_stride": stride}


def _read_vit(theirs: Any, config: VaswaniVisionConfig, tensors: Tensors) -> Tensors:
    """Prepare the weights of a ViT or a DeiT: the names of older files, and the shapes of our embeddings.

    Layers for other tasks are left out.
    """
    renames: dict[str, str | Callable[[re.Match[str]], str]] = {
        r"\.encoder\.layer\.": ".layers.",
        r"\.attention\.attention\.(query|key|value)\.": lambda found: f".attention.{found[1][0]}_proj.",
        r"\.attention\.output\.dense\.": ".attention.o_proj.",
        r"\.intermediate\.dense\.": ".mlp.fc1.",
        r"(\.layers\.\d+)\.output\.dense\.": r"\1.mlp.fc2.",
    }
    for pattern, name in renames.items():
        tensors = {re.sub(pattern, name, key): tensor for key, tensor in tensors.items()}
    unused = r"\w+\.pooler\..*|\w+\.embeddings\.mask_token|decoder\..*"
    tensors = {name: tensor for name, tensor in tensors.items() if not re.fullmatch(unused, name)}
    prefix = f"{theirs.model_type}.embeddings"
    tokens = [tensors.pop(f"{prefix}.{name}", None) for name in ("cls_token", "distillation_token")]
    if given := [token.flatten(0, -2) for token in tokens if token is not None]:
        tensors[f"{prefix}.cls_token"] = torch.cat(given)  # of both tokens
    for name, dimensions in (("position_embeddings", (0, 1)), ("patch_embeddings.projection.weight", (1, -1))):
        if (tensor := tensors.get(f"{prefix}.{name}")) is not None and tensor.ndim > 2:
            tensors[f"{prefix}.{name}"] = tensor.flatten(*dimensions)
    return tensors


def _write_vit(theirs: Any, tensors: Tensors) -> Tensors:
    """Give the embeddings their names and shapes."""
    prefix = f"{theirs.model_type}.embeddings"
    tokens = tensors[f"{prefix}.cls_token"][:, None, None]
    names = [f"{prefix}.{name}" for name in ("cls_token", "distillation_token")]
    positions, weight = f"{prefix}.position_embeddings", f"{prefix}.patch_embeddings.projection.weight"
    side = theirs.patch_size
    patch = (theirs.num_channels, *((side, side) if isinstance(side, int) else side))
    return {
        **tensors,
        **dict(zip(names, tokens, strict=False)),
        positions: tensors[positions][None],
        weight: tensors[weight].unflatten(1, patch),
    }


_SHARED = (
    "vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "max_position_embeddings",
    "tie_word_embeddings", "pad_token_id", "bos_token_id", "eos_token_id",
)  # fmt: skip
_LLAMA, _MODERNBERT = "model.decoder.layers.#", "model.encoder.layers.#"
_BERT_FIELDS = {
    **{name: name for name in _SHARED},
    "encoder_layers": "num_hidden_layers",
    "activation": "hidden_act",
    "layer_norm_eps": "layer_norm_eps",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}


def _bert_tables(model: str, head: str, transform: tuple[str, str]) -> tuple[Table, dict[str, Table]]:
    """Return the tables of names of BERT and of the models that follow it, that outside of the layers first.

    Args:
        model, head: prefixes of the encoder and of the output layer.
        transform: names of the linear layer and of the norm before the output layer.
    """
    layer, ours = f"{model}.encoder.layer.#", "model.encoder.layers.#"
    projections = {"query": "q_proj", "key": "k_proj", "value": "v_proj"}
    outer = {
        f"{model}.embeddings.word_embeddings.weight": "model.encoder.embed_tokens.weight",
        f"{model}.embeddings.position_embeddings.weight": "model.encoder.embed_positions.weight",
        f"{model}.embeddings.LayerNorm.*": "model.encoder.embedding_norm.*",
        f"{transform[0]}.*": "lm_head_transform.dense.*",
        f"{transform[1]}.*": "lm_head_transform.norm.*",
        f"{head}.decoder.*": "lm_head.*",
    }
    names: Table = {
        **{f"{layer}.attention.self.{name}.*": f"{ours}.self_attn.{own}.*" for name, own in projections.items()},
        **{
            f"{layer}.attention.self.{name}_global.*": f"{ours}.self_attn.global_{own}.*"
            for name, own in projections.items()
        },
        f"{layer}.attention.output.dense.*": f"{ours}.self_attn.out_proj.*",
        f"{layer}.attention.output.LayerNorm.*": f"{ours}.self_attn_residual.norm.*",
        f"{layer}.intermediate.dense.*": f"{ours}.feed_forward.fc1.*",
        f"{layer}.output.dense.*": f"{ours}.feed_forward.fc2.*",
        f"{layer}.output.LayerNorm.*": f"{ours}.feed_forward_residual.norm.*",
    }
    return outer, {"encoder": names}


_VIT_FIELDS = {
    **{name: name for name in ("hidden_size", "intermediate_size", "num_attention_heads")},
    **{name: name for name in ("image_size", "patch_size", "num_channels", "layer_norm_eps")},
    "encoder_layers": "num_hidden_layers",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}


def _vit_tables(model: str, classifier: str) -> tuple[Table, dict[str, Table]]:
    """Return the tables of names of ViT and DeiT, that outside of the layers first."""
    layer, ours = f"{model}.layers.#", "model.layers.#"
    outer = {
        f"{model}.embeddings.cls_token": "model.embeddings.prefix.weight",
        f"{model}.embeddings.position_embeddings": "model.embeddings.positions.weight",
        f"{model}.embeddings.patch_embeddings.projection.*": "model.embeddings.projection.*",
        f"{model}.layernorm.*": "model.norm.*",
        f"{classifier}.*": "classifier.*",
        "distillation_classifier.*": "distillation_classifier.*",
    }
    names: Table = {
        **{f"{layer}.attention.{part}_proj.*": f"{ours}.self_attn.{part}_proj.*" for part in "qkv"},
        f"{layer}.attention.o_proj.*": f"{ours}.self_attn.out_proj.*",
        f"{layer}.layernorm_before.*": f"{ours}.self_attn_residual.norm.*",
        f"{layer}.mlp.fc1.*": f"{ours}.feed_forward.fc1.*",
        f"{layer}.mlp.fc2.*": f"{ours}.feed_forward.fc2.*",
        f"{layer}.layernorm_after.*": f"{ours}.feed_forward_residual.norm.*",
    }
    return outer, {"encoder": names}


def _t5(theirs: Any) -> dict[str, Any]:
    stated = theirs.to_dict()  # these two are not fields of the class
    return {
        "bos_token_id": stated.get("bos_token_id"),
        "decoder_start_token_id": stated.get("decoder_start_token_id", theirs.pad_token_id),
        "gated_feed_forward": theirs.is_gated_act,
        **dict.fromkeys(("attention_dropout", "activation_dropout", "output_dropout"), theirs.dropout_rate),
    }


def _to_t5(config: VaswaniConfig) -> dict[str, Any]:
    name = {"gelu_new": "gelu"}.get(config.activation, config.activation)  # gated-gelu is the tanh approximation
    ids = {field: getattr(config, field) for field in ("bos_token_id", "decoder_start_token_id")}
    return {
        **{field: value for field, value in ids.items() if value is not None},
        "feed_forward_proj": f"gated-{name}" if config.gated_feed_forward else config.activation,
    }


def _read_t5(theirs: Any, config: VaswaniConfig, tensors: Tensors) -> Tensors:
    """Leave out copies of the embedding, and a table that older files have and no layer uses; name gates alike."""
    unused = r"(encoder|decoder)\.embed_tokens\.weight|.*\.EncDecAttention\.relative_attention_bias\.weight"
    return {
        name.replace(".wi_0.", ".wi."): tensor for name, tensor in tensors.items() if not re.fullmatch(unused, name)
    }


def _write_t5(theirs: Any, tensors: Tensors) -> Tensors:
    """Add the other names of the embedding, and the name of the first matrix of a gated network."""
    copies = {f"{stack}.embed_tokens.weight": tensors["shared.weight"] for stack in ("encoder", "decoder")}
    if theirs.is_gated_act:
        tensors = {name.replace(".wi.", ".wi_0."): tensor for name, tensor in tensors.items()}
    return {**tensors, **copies}


def _t5_layer(stack: str) -> Table:
    """Return the table of names of a layer of T5: numbered sub-layers, each with its norm."""
    theirs, ours = f"{stack}.block.#.layer", f"model.{stack}.layers.#"
    attentions = {"self_attn": "SelfAttention", "cross_attn": "EncDecAttention"}
    if stack == "encoder":
        del attentions["cross_attn"]
    names: dict[str, str | tuple[str, ...]] = {}
    for index, (own, name) in enumerate(attentions.items()):
        projections = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
        names |= {f"{theirs}.{index}.{name}.{part}.*": f"{ours}.{own}.{our}.*" for part, our in projections.items()}
        names[f"{theirs}.{index}.layer_norm.*"] = f"{ours}.{own}_residual.norm.*"
    last = len(attentions)
    for name, own in (("wi", "fc1"), ("wi_1", "fc3"), ("wo", "fc2")):
        names[f"{theirs}.{last}.DenseReluDense.{name}.*"] = f"{ours}.feed_forward.{own}.*"
    names[f"{theirs}.{last}.layer_norm.*"] = f"{ours}.feed_forward_residual.norm.*"
    return names


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
        outer={
            "model.embed_tokens.weight": "model.decoder.embed_tokens.weight",
            "model.norm.weight": "model.decoder.norm.weight",
            "lm_head.weight": "lm_head.weight",
        },
        layers={"decoder": {
            **{f"model.layers.#.self_attn.{part}_proj.*": f"{_LLAMA}.self_attn.{part}_proj.*" for part in "qkv"},
            "model.layers.#.self_attn.o_proj.*": f"{_LLAMA}.self_attn.out_proj.*",
            "model.layers.#.mlp.gate_proj.*": f"{_LLAMA}.feed_forward.fc1.*",
            "model.layers.#.mlp.up_proj.*": f"{_LLAMA}.feed_forward.fc3.*",
            "model.layers.#.mlp.down_proj.*": f"{_LLAMA}.feed_forward.fc2.*",
            "model.layers.#.input_layernorm.weight": f"{_LLAMA}.self_attn_residual.norm.weight",
            "model.layers.#.post_attention_layernorm.weight": f"{_LLAMA}.feed_forward_residual.norm.weight",
        }},
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
        outer={
            "model.embeddings.tok_embeddings.weight": "model.encoder.embed_tokens.weight",
            "model.embeddings.norm.*": "model.encoder.embedding_norm.*",
            "model.final_norm.*": "model.encoder.norm.*",
            "head.dense.*": "lm_head_transform.dense.*",
            "head.norm.*": "lm_head_transform.norm.*",
            "decoder.*": "lm_head.*",
        },
        layers={"encoder": {
            "model.layers.#.attn_norm.*": f"{_MODERNBERT}.self_attn_residual.norm.*",
            "model.layers.#.attn.Wqkv.*": tuple(f"{_MODERNBERT}.self_attn.{part}_proj.*" for part in "qkv"),
            "model.layers.#.attn.Wo.*": f"{_MODERNBERT}.self_attn.out_proj.*",
            "model.layers.#.mlp_norm.*": f"{_MODERNBERT}.feed_forward_residual.norm.*",
            "model.layers.#.mlp.Wi.*": tuple(f"{_MODERNBERT}.feed_forward.{name}.*" for name in ("fc1", "fc3")),
            "model.layers.#.mlp.Wo.*": f"{_MODERNBERT}.feed_forward.fc2.*",
        }},
    ),
    "longformer": Counterpart(
        "longformer", LongformerForMaskedLM, LongformerConfig, VaswaniForMaskedLM,
        _BERT_FIELDS, (), (), _longformer, _to_longformer,
        *_bert_tables("longformer", "lm_head", ("lm_head.dense", "lm_head.layer_norm")),
        replaceable=("encoder_pattern_options",),
        read=_read_bert,
        write=_write_longformer,
        inputs=_global_mask,
    ),
    "bert": Counterpart(
        "bert", BertForMaskedLM, BertConfig, VaswaniForMaskedLM,
        _BERT_FIELDS, (), (), _bert, None,
        *_bert_tables(
            "bert", "cls.predictions", ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm")
        ),
        read=_read_bert,
    ),
    "roberta": Counterpart(
        "bert", RobertaForMaskedLM, RobertaConfig, VaswaniForMaskedLM,
        _BERT_FIELDS, (), (), lambda theirs: {**_bert(theirs), **_roberta(theirs)}, None,
        *_bert_tables("roberta", "lm_head", ("lm_head.dense", "lm_head.layer_norm")),
        read=_read_bert,
    ),
    "t5": Counterpart(
        "t5", T5ForConditionalGeneration, T5Config, VaswaniForConditionalGeneration,
        fields={
            **{name: name for name in ("vocab_size", "scale_decoder_outputs", "tie_word_embeddings")},
            **{name: name for name in ("pad_token_id", "eos_token_id")},
            "hidden_size": "d_model",
            "intermediate_size": "d_ff",
            "encoder_layers": "num_layers",
            "decoder_layers": "num_decoder_layers",
            "num_attention_heads": "num_heads",
            "head_dim": "d_kv",
            "num_buckets": "relative_attention_num_buckets",
            "max_distance": "relative_attention_max_distance",
            "activation": "dense_act_fn",
            "layer_norm_eps": "layer_norm_epsilon",
            "dropout": "dropout_rate",
        },
        biases=(),
        untrained=(),
        to_ours=_t5,
        to_theirs=_to_t5,
        outer={
            "shared.weight": "model.decoder.embed_tokens.weight",
            "lm_head.weight": "lm_head.weight",
            **{f"{stack}.final_layer_norm.weight": f"model.{stack}.norm.weight" for stack in ("encoder", "decoder")},
            **{
                f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight":
                f"model.{stack}.position_bias.table.weight"
                for stack in ("encoder", "decoder")
            },
        },
        layers={stack: _t5_layer(stack) for stack in ("encoder", "decoder")},
        read=_read_t5,
        write=_write_t5,
    ),
    "vit": Counterpart(
        "vit_base", ViTForImageClassification, ViTConfig, VaswaniVisionForImageClassification,
        _VIT_FIELDS, (), (), _vit, _to_vit,
        *_vit_tables("vit", "classifier"),
        read=_read_vit,
        write=_write_vit,
    ),
    "deit": Counterpart(
        "deit_base", DeiTForImageClassificationWithTeacher, DeiTConfig, VaswaniVisionForImageClassification,
        _VIT_FIELDS, (), (), _vit, _to_vit,
        *_vit_tables("deit", "cls_classifier"),
        read=_read_vit,
        write=_write_vit,
    ),
}  # fmt: skip


def our_fields(counterpart: Counterpart, theirs: Any) -> dict[str, Any]:
    """Return the fields of our configuration that make the model with theirs.

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
    bias = {"bias": any(biases.values())} if biases else {}
    return {**counterpart.config._presets[counterpart.preset], **same, **bias, **counterpart.to_ours(theirs)}


def from_transformers(checkpoint: Checkpoint) -> Converted:
    """Convert a model of ``COUNTERPARTS``: language models to ``VaswaniForCausalLM`` or ``VaswaniForMaskedLM``, T5 to
    ``VaswaniForConditionalGeneration``, classifiers of images to ``VaswaniVisionForImageClassification``.

    A model without an output layer, such as a sentence encoder, becomes a ``VaswaniModel`` or ``VaswaniVisionModel``.

    The checkpoint is a folder with ``config.json`` and weights, and a tokenizer or an image processor if there is one.
    The settings may give a model of texts with learned positions more of them, and a dense one windows.

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
    if _has_own_output(counterpart, weights.tensors):
        told["tie_word_embeddings"] = False
    free = {
        field: told.pop(field) for field in [*told] if field.endswith("dropout") or field in counterpart.replaceable
    }
    number = checkpoint.settings.get("max_position_embeddings")
    has_more = "max_position_embeddings" in told and told["positions"] == "learned"
    if has_more and isinstance(number, int) and number > told["max_position_embeddings"]:
        told["max_position_embeddings"] = number
    model: PreTrainedModel = counterpart.ours(make_config(counterpart.config, told, {**free, **checkpoint.settings}))
    rows = counterpart.rows(model)
    # Angles that earlier versions stored.
    tensors = {name: tensor for name, tensor in weights.tensors.items() if not name.endswith(".inv_freq")}
    prefix = f"{counterpart.theirs.base_model_prefix}."
    has_prefix = any(row.theirs.startswith(prefix) for row in rows)  # T5 has none
    has_output = not has_prefix or any(name.startswith(prefix) for name in tensors)
    if not has_output:  # names without the prefix are those of a model that was saved by itself
        tensors = {f"{prefix}{name}": tensor for name, tensor in tensors.items()}
    tensors = counterpart.read(theirs, model.config, tensors)
    if has_output and isinstance(model.config, VaswaniConfig) and model.config.tie_word_embeddings:
        (embedding,) = (row.theirs for row in rows if row.ours[0].endswith("embed_tokens.weight"))
        (output,) = (row.theirs for row in rows if row.ours[0] == "lm_head.weight")
        if embedding in tensors:
            tensors[output] = tensors[embedding]
    if not has_output:
        model, rows = model.base_model, _of_the_base(rows, f"{model.base_model_prefix}.")
    weights.tensors = tensors
    load_ours(model, weights, rows)
    tokenizer = _tokenizer(checkpoint)
    if tokenizer is not None and told["positions"] == "learned" and number is not None:
        tokenizer.model_max_length = number
    return Converted(model, tokenizer, processor=_processor(checkpoint))


def _has_own_output(counterpart: Counterpart, tensors: Tensors) -> bool:
    """Return whether the output layer has weights other than the embedding, whatever the configuration says.

    That of T5 always says that they are tied.
    """
    names = {row.ours[0]: row.theirs for row in expand(counterpart.outer)}
    output = tensors.get(names.get("lm_head.weight", ""))
    embedding = next((tensors.get(name) for ours, name in names.items() if ours.endswith("embed_tokens.weight")), None)
    return output is not None and embedding is not None and not torch.equal(output, embedding)


def _of_the_base(rows: list[Row], prefix: str) -> list[Row]:
    """Return the rows of the base model, with our names in it."""
    inside = [row for row in rows if row.ours[0].startswith(prefix)]
    return [row._replace(ours=tuple(name.removeprefix(prefix) for name in row.ours)) for row in inside]


def _tokenizer(checkpoint: Checkpoint) -> PreTrainedTokenizerBase | None:
    folder = checkpoint.weights.path
    if any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json")):
        return load_tokenizer(ModelLocation(name=str(folder)))
    return None


def _processor(checkpoint: Checkpoint) -> BaseImageProcessor | None:
    folder = checkpoint.weights.path
    if (folder / "preprocessor_config.json").is_file():
        return load_image_processor(ModelLocation(name=str(folder)))
    return None
