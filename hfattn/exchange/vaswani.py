"""Names and configuration of a Transformer, derived from the weights of another project."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel

from ..errors import UserError
from ..loading import max_positions
from ..models.configuration_vaswani import VaswaniConfig
from ..models.modeling_vaswani import sinusoidal_positions
from ..models.modeling_vaswani_translation import VaswaniForConditionalGeneration
from .checkpoint import Checkpoint, Converted, make_config
from .names import Row, Table, count_layers, expand, load_ours, width, without_absent
from .vocabulary import FIELDS, check_size, find_specials, read_vocabulary, word_tokenizer
from .weights import Weights

LONGEST = 256  # tokens of a translation


class Stack(NamedTuple):
    """The encoder or decoder of a Transformer.

    Attributes:
        ours: its module here.
        layer: table of a layer; our names are relative to ``ours``.
        norm: their module of the last layer norm, which may be absent.
        embedding, positions: their embedding, and table of positions, which may be absent.
    """

    ours: str
    layer: Table
    norm: str
    embedding: str
    positions: str

    @property
    def layers(self) -> Table:
        """The table of a layer, with the full names on our side."""

        def whole(name: str) -> str:
            return f"{self.ours}.layers.#.{name}"

        return {
            theirs: whole(ours) if isinstance(ours, str) else tuple(map(whole, ours))
            for theirs, ours in self.layer.items()
        }

    def rows(self, num_layers: int, final_norm: bool, learned: bool) -> list[Row]:
        """The table of the stack."""
        table = {self.embedding: f"{self.ours}.embed_tokens.weight"}
        if learned:
            table[self.positions] = f"{self.ours}.embed_positions.weight"
        if final_norm:
            table[f"{self.norm}.*"] = f"{self.ours}.norm.*"
        return [*expand(table), *expand(self.layers, num_layers)]


def attention_table(theirs: str, ours: str, projections: Sequence[str]) -> Table:
    """Return the table of an attention module from their names of its query, key, value and output projections."""
    own = ("q_proj", "k_proj", "v_proj", "out_proj")
    return {f"{theirs}.{their}.*": f"{ours}.{our}.*" for their, our in zip(projections, own, strict=True)}


def supported_activation(name: str, activations: Mapping[str, str]) -> str:
    """Return our name of an activation.

    Raises:
        UserError: the activation is not among ``activations``, our names by theirs.
    """
    if name not in activations:
        known = ", ".join(activations)
        raise UserError(f"The model has the activation {name}, which is not supported; use one of {known}.")
    return activations[name]


def transformer_rows(
    stacks: Sequence[Stack], output: Table, config: VaswaniConfig, output_bias: bool = True
) -> list[Row]:
    """Return the table of names of a whole Transformer.

    Args:
        output: table of the output layer.
        output_bias: whether it adds a bias.
    """
    outer, inner = expand(output), []
    for stack in stacks:
        number = config.decoder_layers if stack.ours.endswith("decoder") else config.encoder_layers
        inner += stack.rows(number, config.has_final_norm, config.positions == "learned")
    biased = [row for rows, bias in ((outer, output_bias), (inner, config.bias)) if bias for row in rows]
    return [row for row in (*outer, *inner) if row in biased or not row.theirs.endswith("bias")]


def load_transformer(
    checkpoint: Checkpoint,
    stacks: Sequence[Stack],
    output: Table,
    model_class: type[PreTrainedModel],
    told: Mapping[str, Any],
    settings: Mapping[str, Any],
    biases: Sequence[str] = (),
) -> PreTrainedModel:
    """Load the weights of a checkpoint into a new model.

    Args:
        checkpoint: the checkpoint; sinusoidal position tables are removed from its weights.
        stacks: encoder and decoder, or the only one of them.
        output: table of the output layer.
        model_class: a class of ``modeling_vaswani``.
        told: fields of the configuration that the other project stores in its own configuration.
        settings: other fields; ``tie_word_embeddings`` and ``share_embeddings`` restore a matrix that the file omits.
        biases: regular expressions of biases that are present or absent together.

    Raises:
        UserError: the weights do not belong to such a model.
    """
    weights = checkpoint.weights
    tensors, last = weights.tensors, stacks[-1]
    (output_weight,) = [row.theirs for row in expand(output) if row.theirs.endswith("weight")]
    hidden_size = width(weights, last.embedding, 1)
    if settings.get("share_embeddings"):
        tensors.setdefault(stacks[0].embedding, tensors[last.embedding])
    fields: dict[str, Any] = {
        "vocab_size": width(weights, last.embedding, 0),
        "hidden_size": hidden_size,
        "intermediate_size": width(weights, _inner(stacks[0]), 0),
        "final_norm": _has_final_norm(weights, stacks),
    }
    names: list[str] = []
    for stack in stacks:
        side = "decoder_layers" if stack.ours.endswith("decoder") else "encoder_layers"
        fields[side] = count_layers(weights, stack.layers)
        names += [row.theirs for row in stack.rows(fields[side], fields["final_norm"], learned=False)]
    fields["bias"] = any(name.endswith("bias") and name in tensors for name in names)
    output_bias = output_weight.replace("weight", "bias") in tensors
    if any(row.ours == ("lm_head.weight",) for row in expand(output)):
        if settings.get("tie_word_embeddings"):
            tensors.setdefault(output_weight, tensors[last.embedding])
        width(weights, output_weight, 0)
        fields["tie_word_embeddings"] = _equal(tensors[output_weight], tensors[last.embedding])
        fields["lm_head_bias"] = output_bias
    if len(stacks) > 1:
        width(weights, stacks[0].embedding, 0)
        fields["share_embeddings"] = _equal(*(tensors[stack.embedding] for stack in stacks))
        fields["source_vocab_size"] = None if fields["share_embeddings"] else len(tensors[stacks[0].embedding])
    fields |= _positions(weights, stacks, hidden_size)
    for name, value in told.items():
        if fields.setdefault(name, value) != value:
            raise UserError(
                f"The configuration of {weights.path} says {name}={value}, but its weights {fields[name]}; "
                "give that of this model."
            )
    heads = fields.get("num_attention_heads", settings.get("num_attention_heads"))
    if heads is None:
        raise UserError(
            f"The weights of {weights.path} do not determine the number of heads; write --set "
            f"num_attention_heads=N, where N divides {hidden_size}."
        )
    model = model_class(make_config(VaswaniConfig, fields, settings))
    rows = transformer_rows(stacks, output, model.config, output_bias)
    load_ours(model, weights, *without_absent(weights, rows, biases))
    return model


def load_translator(
    checkpoint: Checkpoint,
    stacks: Sequence[Stack],
    output: Table,
    told: Mapping[str, Any],
    settings: Mapping[str, Any],
    ids: Mapping[str, int],
    biases: Sequence[str] = (),
    vocabularies: tuple[list[str], list[str]] | None = None,
    *,
    closes: bool = True,
) -> Converted:
    """Load an encoder-decoder with ``load_transformer``, and its tokenizers.

    Args:
        ids: usual ids of the special tokens in the other project, for a checkpoint without a vocabulary.
        vocabularies: tokens of source and target; None reads the files of ``checkpoint``, if any.
        closes: whether the source text ends with the end token.

    Raises:
        UserError: the weights do not belong to such a model, or a vocabulary does not fit it or lacks a special token.
    """
    assumed = {name: id_ for name, id_ in ids.items() if name not in settings}
    settings = {**settings, **assumed}
    settings.setdefault("decoder_start_token_id", settings["bos_token_id"])
    model = load_transformer(checkpoint, stacks, output, VaswaniForConditionalGeneration, told, settings, biases)
    # By default, generate() stops after 20 tokens.
    model.generation_config.max_new_tokens = min(LONGEST, max_positions(model.config) or LONGEST)
    vocabularies = vocabularies or _read_vocabularies(checkpoint)
    if vocabularies is None:
        return Converted(model, assumed=assumed)
    config, own = model.config, vocabularies[0] != vocabularies[1]
    sizes = (config.vocab_size if config.source_vocab_size is None else config.source_vocab_size, config.vocab_size)
    for tokens, size in zip(vocabularies, sizes, strict=True):
        check_size(tokens, size, str(checkpoint.weights.path))
    if own and config.share_embeddings:
        raise UserError(f"{checkpoint.weights.path} has one embedding for source and target; give one vocabulary.")
    specials = [find_specials(tokens) for tokens in vocabularies]
    for role, field in FIELDS.items():
        if role not in specials[1]:
            raise UserError(f"The vocabulary of the target has no {role} token, such as <{role}>; give it whole.")
        setattr(config, field, checkpoint.settings.get(field, vocabularies[1].index(specials[1][role])))
        setattr(model.generation_config, field, getattr(config, field))
    pad = vocabularies[1].index(specials[1]["pad"])
    if vocabularies[0][pad] != specials[0].get("pad"):
        raise UserError("The vocabularies have different padding ids; a model must have the same one for both.")
    config.decoder_start_token_id = checkpoint.settings.get("decoder_start_token_id", config.bos_token_id)
    model.generation_config.decoder_start_token_id = config.decoder_start_token_id
    reader = word_tokenizer(vocabularies[0], specials[0], closes)
    writer = word_tokenizer(vocabularies[1], specials[1], closes=True) if own else None
    return Converted(model, reader, writer)


def _read_vocabularies(checkpoint: Checkpoint) -> tuple[list[str], list[str]] | None:
    """Read the vocabulary files of source and target; None if none are given."""
    if checkpoint.vocabulary is None:
        if checkpoint.target_vocabulary is not None:
            raise UserError("--target-vocabulary requires the source's --vocabulary; give both.")
        return None
    tokens = read_vocabulary(checkpoint.vocabulary)
    return tokens, tokens if checkpoint.target_vocabulary is None else read_vocabulary(checkpoint.target_vocabulary)


def _inner(stack: Stack) -> str:
    """Return their name for the first matrix of the first feed-forward network."""
    (name,) = [theirs for theirs, ours in stack.layer.items() if ours == "feed_forward.fc1.*"]
    return name.replace("#", "0").replace("*", "weight")


def _has_final_norm(weights: Weights, stacks: Sequence[Stack]) -> bool:
    found = [f"{stack.norm}.weight" in weights.tensors for stack in stacks]
    if len(set(found)) > 1:
        raise UserError(f"{weights.path} has a final layer norm in one stack only; our models have it in both.")
    return found[0]


def _positions(weights: Weights, stacks: Sequence[Stack], hidden_size: int) -> dict[str, Any]:
    """Return the fields that follow from tables of positions.

    A table that is not the sinusoids of the paper is kept as learned positions with the same values.
    """
    tables = {stack.positions: weights.tensors.pop(stack.positions, None) for stack in stacks}
    found = {name: table.reshape(-1, table.shape[-1]) for name, table in tables.items() if table is not None}
    if not found:
        return {}
    if any(table.shape[-1] != hidden_size for table in found.values()):
        raise UserError(f"{next(iter(found))} of {weights.path} is not as wide as the embeddings, {hidden_size}.")
    if all(map(_is_sinusoidal, found.values())):
        return {"positions": "sinusoidal"}
    if len(found) < len(tables) or len({len(table) for table in found.values()}) > 1:
        raise UserError(
            f"{weights.path} has different positions in its encoder and decoder; our models have one kind and "
            "number of them."
        )
    weights.tensors.update(found)
    return {"positions": "learned", "max_position_embeddings": len(next(iter(found.values())))}


def _is_sinusoidal(table: torch.Tensor) -> bool:
    """Return whether a table equals the sinusoids up to rounding, which grows with the position."""
    if table.shape[1] % 2:
        return False
    positions = torch.arange(len(table), dtype=torch.float64)
    exact = sinusoidal_positions(positions, table.shape[1], torch.float64)
    rounding = torch.finfo(torch.promote_types(table.dtype, torch.float32)).eps * (positions + 1)[:, None]
    if table.dtype in (torch.float16, torch.bfloat16):
        rounding = rounding + torch.finfo(table.dtype).eps
    return bool(((table.double() - exact).abs() <= 4 * rounding).all())


def _equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.shape == second.shape and torch.equal(first, second)
