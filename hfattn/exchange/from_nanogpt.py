"""Convert nanoGPT checkpoints to GPT-2 of transformers, whose matrices are the transposes of nanoGPT's."""

from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from ..errors import UserError
from .checkpoint import Checkpoint, Converted, make_config
from .names import Row, Table, count_layers, expand, load_ours, width, without_absent
from .vocabulary import character_tokenizer, read_vocabulary
from .weights import Weights

OUTER: Table = {
    "transformer.wte.weight": "transformer.wte.weight",
    "transformer.wpe.weight": "transformer.wpe.weight",
    "transformer.ln_f.*": "transformer.ln_f.*",
}
LAYER: Table = {
    "transformer.h.#.ln_1.*": "transformer.h.#.ln_1.*",
    "transformer.h.#.attn.c_attn.*": "transformer.h.#.attn.c_attn.*",
    "transformer.h.#.attn.c_proj.*": "transformer.h.#.attn.c_proj.*",
    "transformer.h.#.ln_2.*": "transformer.h.#.ln_2.*",
    "transformer.h.#.mlp.c_fc.*": "transformer.h.#.mlp.c_fc.*",
    "transformer.h.#.mlp.c_proj.*": "transformer.h.#.mlp.c_proj.*",
}
OUTPUT: Table = {"lm_head.weight": "lm_head.weight"}
TRANSPOSED = {f"transformer.h.#.{matrix}.weight" for matrix in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")}
BIASES = (r"\.bias$",)  # all absent with bias=False
MASK = "transformer.h.#.attn.bias"  # a buffer with the causal mask, saved by torch versions without fused attention
END_OF_TEXT = 50_256  # of GPT-2's vocabulary, which nanoGPT pads to 50,304


def nanogpt_rows(num_layers: int, tied: bool) -> list[Row]:
    """Return the table of names of a model; without an output layer if its weight is tied to the embedding."""
    return [*expand(OUTER), *expand(LAYER, num_layers, TRANSPOSED), *([] if tied else expand(OUTPUT))]


def from_nanogpt(checkpoint: Checkpoint) -> Converted:
    """Convert to ``GPT2LMHeadModel`` with the exact GELU (before 2023: ``--set activation_function=gelu_new``).

    Raises:
        UserError: the weights do not belong to such a model, or the number of heads is unknown.
    """
    weights = checkpoint.weights
    num_layers = count_layers(weights, LAYER)
    vocab_size, positions = (width(weights, f"transformer.{name}.weight", 0) for name in ("wte", "wpe"))
    _check_masks(weights, num_layers, positions)
    embedding = weights.tensors["transformer.wte.weight"]
    settings, assumed = dict(checkpoint.settings), {}
    output = weights.tensors.get("lm_head.weight", embedding if settings.get("tie_word_embeddings") else None)
    tied = output is not None and output.shape == embedding.shape and torch.equal(output, embedding)
    arguments = checkpoint.config or weights.extras.get("model_args", {})
    told = {
        "vocab_size": vocab_size,
        "n_positions": positions,
        "n_embd": width(weights, "transformer.wte.weight", 1),
        "n_layer": num_layers,
        "n_inner": width(weights, "transformer.h.0.mlp.c_fc.weight", 0),
        "tie_word_embeddings": tied,
        "layer_norm_epsilon": 1e-5,
    }
    for name, value in _of_arguments(arguments, told, weights).items():
        settings.setdefault(name, value)
    heads = settings.get("n_head")
    if not isinstance(heads, int) or heads < 1 or told["n_embd"] % heads:
        raise UserError(
            f"The weights of {weights.path} do not determine the number of heads; write --set n_head=N, where N "
            f"divides {told['n_embd']}."
        )
    end = END_OF_TEXT if vocab_size > END_OF_TEXT and checkpoint.vocabulary is None else None
    for name, value in {"activation_function": "gelu", "bos_token_id": end, "eos_token_id": end}.items():
        if name not in settings:
            assumed[name] = settings[name] = value
    model = GPT2LMHeadModel(make_config(GPT2Config, told, settings))
    rows, zeros = without_absent(weights, nanogpt_rows(num_layers, tied), () if arguments.get("bias") else BIASES)
    if tied:
        weights.tensors.pop("lm_head.weight", None)
    load_ours(model, weights, rows, zeros)
    tokenizer = None
    if checkpoint.vocabulary is not None:
        tokens = read_vocabulary(checkpoint.vocabulary)
        tokenizer = character_tokenizer(tokens, vocab_size, str(checkpoint.vocabulary))
    return Converted(model, tokenizer, assumed={name: value for name, value in assumed.items() if value is not None})


def _of_arguments(arguments: dict[str, Any], told: dict[str, Any], weights: Weights) -> dict[str, Any]:
    """Return fields of ``GPT2Config`` from nanoGPT's ``model_args``, checked against the weights."""
    theirs = {"n_layer": "n_layer", "n_embd": "n_embd", "block_size": "n_positions", "vocab_size": "vocab_size"}
    for name, ours in theirs.items():
        if name in arguments and arguments[name] != told[ours]:
            raise UserError(
                f"model_args of {weights.path} say {name}={arguments[name]}, but its weights {told[ours]}; give the "
                "arguments of this model."
            )
    settings = {name: arguments[name] for name in ("n_head",) if name in arguments}
    if "dropout" in arguments:
        settings |= dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), arguments["dropout"])
    return settings


def _check_masks(weights: Weights, num_layers: int, positions: int) -> None:
    causal = torch.ones(positions, positions).tril()[None, None]
    for row in expand({MASK: MASK}, num_layers):
        mask = weights.tensors.pop(row.theirs, None)
        if mask is not None and not (mask.shape == causal.shape and torch.equal(mask.to(causal.dtype), causal)):
            raise UserError(f"{row.theirs} of {weights.path} is not a causal mask, which GPT-2 requires.")
