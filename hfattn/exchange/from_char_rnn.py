"""Convert checkpoints of PyTorch ports of Karpathy's char-rnn: embedding or one-hot vectors, layers, linear output."""

from typing import Any

import torch

from ..errors import UserError
from ..models.configuration_char_rnn import CharRNNConfig
from ..models.modeling_char_rnn import CharRNNForCausalLM
from .checkpoint import Checkpoint, Converted, make_config
from .names import Row, Table, count_layers, expand, load_ours, width, without_absent
from .vocabulary import character_tokenizer, read_vocabulary, tokens_of
from .weights import Weights

EMBEDDING: Table = {"encoder.weight": "model.embed_tokens.weight"}
LAYER: Table = {
    "rnn.weight_ih_l#": "model.layers.#.rnn.weight_ih_l0",
    "rnn.weight_hh_l#": "model.layers.#.rnn.weight_hh_l0",
    "rnn.bias_ih_l#": "model.layers.#.rnn.bias_ih_l0",
    "rnn.bias_hh_l#": "model.layers.#.rnn.bias_hh_l0",
}
OUTPUT: Table = {"decoder.*": "lm_head.*"}

# Names of the three parts in other ports.
ALIASES = {
    "encoder": ("embedding", "embed", "emb"),
    "rnn": ("lstm", "gru"),
    "decoder": ("fc", "linear", "out"),
}
CHARACTERS = ("chars", "tokens")  # where ports keep the characters in the checkpoint
CELLS = {1: "elman", 3: "gru", 4: "lstm"}  # by the number of gates that torch stacks in a matrix
BIASES = (r"^rnn\.bias_",)  # all absent with bias=False


def char_rnn_rows(num_layers: int) -> list[Row]:
    """Return the table of names of a model with this number of layers."""
    return [*expand(EMBEDDING), *expand(LAYER, num_layers), *expand(OUTPUT)]


def from_char_rnn(checkpoint: Checkpoint) -> Converted:
    """Convert to ``CharRNNForCausalLM``.

    The GRU of torch is the variant of cuDNN (cell "gru"). One-hot vectors become an identity matrix as embedding.

    Raises:
        UserError: the weights do not belong to such a model.
    """
    weights = checkpoint.weights
    _rename_aliases(weights)
    vocab_size, hidden_size = width(weights, "decoder.weight", 0), width(weights, "rnn.weight_hh_l0", 1)
    stacked = width(weights, "rnn.weight_hh_l0", 0)
    cell = CELLS.get(stacked // hidden_size) if stacked % hidden_size == 0 else None
    if cell is None:
        raise UserError(
            f"rnn.weight_hh_l0 of {weights.path} has the shape {(stacked, hidden_size)}, which does not fit an Elman "
            "network, GRU or LSTM; convert one of these."
        )
    activation = checkpoint.config.get("nonlinearity", weights.extras.get("nonlinearity"))
    if activation not in (None, "tanh"):
        raise UserError(f"{weights.path} has the nonlinearity {activation}; only tanh is supported.")
    one_hot = "encoder.weight" not in weights.tensors
    told: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "embedding_size": vocab_size if one_hot else width(weights, "encoder.weight", 1),
        "num_hidden_layers": count_layers(weights, LAYER),
        "cell": cell,
        "tie_word_embeddings": False,
    }
    tokenizer = _tokenizer(checkpoint, vocab_size)
    if tokenizer is not None and tokenizer.pad_token_id is not None:
        told["pad_token_id"] = tokenizer.pad_token_id
    model = CharRNNForCausalLM(make_config(CharRNNConfig, told, checkpoint.settings))
    if one_hot:
        weights.tensors["encoder.weight"] = torch.eye(vocab_size)
    rows, zeros = without_absent(weights, char_rnn_rows(told["num_hidden_layers"]), BIASES)
    load_ours(model, weights, rows, zeros)
    assumed = {"nonlinearity": "tanh"} if cell == "elman" and activation is None else {}
    return Converted(model, tokenizer, assumed=assumed)


def _rename_aliases(weights: Weights) -> None:
    for part, aliases in ALIASES.items():
        if not any(name.startswith(f"{part}.") for name in weights.tensors):
            for alias in aliases:
                if any(name.startswith(f"{alias}.") for name in weights.tensors):
                    weights.rename({alias: part})
                    break


def _tokenizer(checkpoint: Checkpoint, vocab_size: int) -> Any:
    if checkpoint.vocabulary is not None:
        return character_tokenizer(read_vocabulary(checkpoint.vocabulary), vocab_size, str(checkpoint.vocabulary))
    where, extras = str(checkpoint.weights.path), checkpoint.weights.extras
    for name in CHARACTERS:
        if name in extras:
            return character_tokenizer(tokens_of(extras[name], where), vocab_size, where)
    return None
