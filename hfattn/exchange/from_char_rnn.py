"""A character model after Karpathy's char-rnn, as ports to PyTorch have it: embedding or one-hot, layers, linear."""

from typing import Any

import torch

from ..errors import UserError
from ..models.configuration_char_rnn import CharRNNConfig
from ..models.modeling_char_rnn import CharRNNForCausalLM
from .checkpoint import Checkpoint
from .names import Row, Table, count_layers, expand, load_ours, width, without_absent
from .source import Converted, Source, make_config
from .vocabulary import character_tokenizer, check_size, read_vocabulary, symbols_of

EMBEDDING: Table = {"encoder.weight": "model.embed_tokens.weight"}
LAYER: Table = {
    "rnn.weight_ih_l#": "model.layers.#.rnn.weight_ih_l0",
    "rnn.weight_hh_l#": "model.layers.#.rnn.weight_hh_l0",
    "rnn.bias_ih_l#": "model.layers.#.rnn.bias_ih_l0",
    "rnn.bias_hh_l#": "model.layers.#.rnn.bias_hh_l0",
}
OUTPUT: Table = {"decoder.*": "lm_head.*"}

# What other ports call the three parts.
ALIASES = {
    "encoder": ("embedding", "embed", "emb"),
    "rnn": ("lstm", "gru"),
    "decoder": ("fc", "linear", "out"),
}
CHARACTERS = ("chars", "tokens")  # where ports keep the characters in the checkpoint
CELLS = {1: "elman", 3: "gru", 4: "lstm"}  # by the number of gates that a matrix stacks, in torch's order
BIASES = (r"^rnn\.bias_",)  # bias=False leaves them all out


def char_rnn_rows(num_layers: int) -> list[Row]:
    """The table of a model."""
    return [*expand(EMBEDDING), *expand(LAYER, num_layers), *expand(OUTPUT)]


def from_char_rnn(source: Source) -> Converted:
    """A ``CharRNNForCausalLM``. A GRU of torch is that of cuDNN ("gru"); one-hot vectors are an embedding that is the
    identity matrix.

    Raises:
        UserError: the weights are not those of such a model.
    """
    source.refuse_target_vocabulary()
    checkpoint = source.checkpoint
    _rename_aliases(checkpoint)
    vocab_size, hidden_size = width(checkpoint, "decoder.weight", 0), width(checkpoint, "rnn.weight_hh_l0", 1)
    stacked = width(checkpoint, "rnn.weight_hh_l0", 0)
    cell = CELLS.get(stacked // hidden_size) if stacked % hidden_size == 0 else None
    if cell is None:
        raise UserError(
            f"rnn.weight_hh_l0 of {checkpoint.path} has the shape {(stacked, hidden_size)}, which is no Elman network, "
            "GRU or LSTM; convert one of these."
        )
    if (activation := _told(source, "nonlinearity")) not in (None, "tanh"):
        raise UserError(f"{checkpoint.path} has the nonlinearity {activation}; only tanh can be converted.")
    one_hot = "encoder.weight" not in checkpoint.tensors
    told: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "embedding_size": vocab_size if one_hot else width(checkpoint, "encoder.weight", 1),
        "num_hidden_layers": count_layers(checkpoint, LAYER),
        "cell": cell,
        "tie_word_embeddings": False,
    }
    tokenizer = _tokenizer(source, vocab_size)
    if tokenizer is not None and tokenizer.pad_token_id is not None:
        told["pad_token_id"] = tokenizer.pad_token_id
    model = CharRNNForCausalLM(make_config(CharRNNConfig, told, source.settings))
    if one_hot:
        checkpoint.tensors["encoder.weight"] = torch.eye(vocab_size)
    rows, zeros = without_absent(checkpoint, char_rnn_rows(told["num_hidden_layers"]), BIASES)
    load_ours(model, checkpoint, rows, zeros)
    assumed = {"nonlinearity": "tanh"} if cell == "elman" and activation is None else {}
    return Converted(model, tokenizer, assumed=assumed)


def _rename_aliases(checkpoint: Checkpoint) -> None:
    for part, aliases in ALIASES.items():
        if not any(name.startswith(f"{part}.") for name in checkpoint.tensors):
            for alias in aliases:
                if any(name.startswith(f"{alias}.") for name in checkpoint.tensors):
                    checkpoint.rename({alias: part})
                    break


def _told(source: Source, name: str) -> Any:
    return source.config.get(name, source.checkpoint.extras.get(name))


def _tokenizer(source: Source, vocab_size: int) -> Any:
    if source.vocabulary is not None:
        where, symbols = str(source.vocabulary), read_vocabulary(source.vocabulary)
    else:
        where = str(source.checkpoint.path)
        found = [source.checkpoint.extras[name] for name in CHARACTERS if name in source.checkpoint.extras]
        if not found:
            return None
        symbols = symbols_of(found[0], where)
    check_size(symbols, vocab_size, where)
    return character_tokenizer(symbols, where)
