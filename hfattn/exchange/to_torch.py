"""Export weights under the names of other projects, with the inverse of the tables for ``convert``."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel

from ..errors import UserError
from ..files import write_json
from ..models.configuration_layers import POSITION_BIASES, STANDARD_ATTENTION
from ..models.modeling_char_rnn import CharRNNForCausalLM
from ..models.modeling_vaswani import VaswaniForCausalLM, VaswaniForSequenceClassification, VaswaniPreTrainedModel
from ..models.modeling_vaswani_translation import VaswaniForConditionalGeneration
from .from_char_rnn import char_rnn_rows
from .from_nanogpt import nanogpt_rows
from .from_torch import CLASSES, CLASSIFIER, DECODER, ENCODER, GENERATOR, IDS, LANGUAGE_MODEL, UNTOLD
from .names import to_theirs
from .vaswani import transformer_rows

WEIGHTS, SETTINGS, VOCABULARY = "weights.safetensors", "settings.json", "vocabulary.json"

_TRANSFORMERS = {
    VaswaniForConditionalGeneration: ((ENCODER, DECODER), GENERATOR),
    VaswaniForCausalLM: ((LANGUAGE_MODEL,), GENERATOR),
    VaswaniForSequenceClassification: ((CLASSIFIER,), CLASSES),
}


def export_torch(model: PreTrainedModel, tokenizer: Any, target_tokenizer: Any, folder: Path) -> None:
    """Write the weights, the settings and the vocabulary of a model in the format of another project.

    The format is that of char-rnn ports for a character model, of nanoGPT for GPT-2, and of ``torch.nn.Transformer``
    for a Transformer of hfattn.

    Args:
        model: a model of one of these kinds.
        tokenizer, target_tokenizer: tokenizer of both sides, or one for each side; None if there is no tokenizer.
        folder: existing folder.

    Raises:
        UserError: no project has such a model.
    """
    if isinstance(model, CharRNNForCausalLM):
        state, settings = _char_rnn(model)
    elif isinstance(model, GPT2LMHeadModel):
        state, settings = _nanogpt(model)
    elif type(model) in _TRANSFORMERS and isinstance(model, VaswaniPreTrainedModel):
        state, settings = _transformer(model)
    else:
        raise UserError(
            f"{type(model).__name__} cannot be exported to another project; export a character "
            "model, a GPT-2, or a Transformer of ours."
        )
    # A safetensors file cannot store a matrix under two names, but these projects expect both.
    save_file({name: tensor.detach().clone() for name, tensor in state.items()}, folder / WEIGHTS)
    write_json(folder / SETTINGS, settings)
    for name, own in ((VOCABULARY, tokenizer), (f"target_{VOCABULARY}", target_tokenizer)):
        if own is not None:
            write_json(folder / name, own.convert_ids_to_tokens(range(len(own))))


def _char_rnn(model: CharRNNForCausalLM) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    if model.config.cell not in ("elman", "lstm", "gru"):
        raise UserError(f"torch has no layer with the cell {model.config.cell}; export an elman, lstm or gru.")
    if model.config.conditioning_size is not None:
        raise UserError("char-rnn has no vector that conditions a text; export a model without conditioning_size.")
    if len(set(model.config.layer_sizes)) > 1:
        raise UserError("torch stacks layers of one width; export a model without last_hidden_size.")
    state = to_theirs(model, char_rnn_rows(model.config.num_hidden_layers))
    embedding = state["encoder.weight"]
    if embedding.shape[0] == embedding.shape[1] and torch.equal(embedding, torch.eye(len(embedding)).to(embedding)):
        del state["encoder.weight"]  # the layers read one-hot vectors
    return state, {"nonlinearity": "tanh"} if model.config.cell == "elman" else {}


def _nanogpt(model: GPT2LMHeadModel) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    config, usual = model.config, GPT2Config()
    only = {
        "activation_function": "gelu",
        "tie_word_embeddings": True,
        "layer_norm_epsilon": 1e-5,
        **{name: getattr(usual, name) for name in ("scale_attn_weights", "scale_attn_by_inverse_layer_idx")},
    }
    for name, value in only.items():
        if getattr(config, name) != value:
            raise UserError(f"nanoGPT supports only {name}={value}, but this model has {getattr(config, name)}.")
    if config.n_inner not in (None, 4 * config.n_embd):
        raise UserError(f"nanoGPT supports only n_inner={4 * config.n_embd} here, but this model has {config.n_inner}.")
    state = to_theirs(model, nanogpt_rows(config.n_layer, tied=False))
    biases = [name for name in state if name.endswith(".bias")]
    biased = any(state[name].any() for name in biases)
    if not biased:
        state = {name: tensor for name, tensor in state.items() if name not in biases}
    return state, {
        "n_layer": config.n_layer, "n_head": config.n_head, "n_embd": config.n_embd, "block_size": config.n_positions,
        "bias": biased, "vocab_size": config.vocab_size, "dropout": config.resid_pdrop,
    }  # fmt: skip


def _transformer(model: VaswaniPreTrainedModel) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    config = model.config
    if config.norm == "none":
        raise UserError('torch has no Transformer without layer norms; export one with norm "post" or "pre".')
    if any(config.attention_parts(kind) != STANDARD_ATTENTION for kind in ("self", "cross")):
        raise UserError("torch has only scaled_dot attention with softmax; export a model with these.")
    if config.norm_type != "layer":
        raise UserError(f'torch has no Transformer with {config.norm_type} norms; export one with norm_type "layer".')
    if config.gated_feed_forward:
        raise UserError("torch has no Transformer with gated feed-forward networks; export one without.")
    if config.pattern_names:
        raise UserError(f"torch has no Transformer with the pattern {min(config.pattern_names)}; export one without.")
    if config.option_names:
        raise UserError(f"torch has no Transformer with {min(config.option_names)}; export one without.")
    if config.embedding_norm:
        raise UserError("torch has no Transformer with a norm of the embeddings; export one without embedding_norm.")
    if config.scale_decoder_outputs:
        raise UserError("torch has no scale of the decoder's output; export one without scale_decoder_outputs.")
    if config.positions == "rotary" or config.positions in POSITION_BIASES:
        raise UserError(f"torch has no Transformer with {config.positions} positions; export one with other positions.")
    if config.key_value_heads != config.num_attention_heads:
        raise UserError("torch has no Transformer whose heads share keys; export one without num_key_value_heads.")
    if config.head_width * config.num_attention_heads != config.hidden_size:
        raise UserError(
            f"torch has no heads of width {config.head_width} here; export a model whose heads divide hidden_size."
        )
    stacks, output = _TRANSFORMERS[type(model)]
    bias = any(name in ("lm_head.bias", "classifier.bias") for name in model.state_dict())
    state = to_theirs(model, transformer_rows(stacks, output, config, bias))
    known = ("num_attention_heads", *UNTOLD, *IDS, "decoder_start_token_id", "dropout", "attention_dropout")
    settings = {name: getattr(config, name) for name in (*known, "activation_dropout", "embedding_dropout")}
    if isinstance(model, VaswaniForSequenceClassification):
        settings["classifier_pooling"] = config.classifier_pooling
    return state, settings
