"""Convert models that use ``torch.nn.Transformer``, ``TransformerEncoder`` or ``TransformerDecoder``.

These modules contain no embeddings and no output layer. Each author names them differently; ``--rename`` maps their
names to the ones in this file.
"""

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedModel

from ..errors import UserError
from ..models.modeling_vaswani import VaswaniForCausalLM, VaswaniForSequenceClassification
from .checkpoint import Checkpoint, Converted
from .names import Table
from .vaswani import Stack, load_transformer, load_translator
from .vocabulary import FIELDS, check_size, find_specials, read_vocabulary, word_tokenizer
from .weights import Weights

_ATTENTION = ("q_proj", "k_proj", "v_proj")  # as in_proj stacks them


def _layer(stack: str, norms: tuple[str, ...], crosses: bool) -> Table:
    layer = f"{stack}.layers.#"
    attentions = {"self_attn": "self_attn", **({"multihead_attn": "cross_attn"} if crosses else {})}
    table: dict[str, str | tuple[str, ...]] = {
        f"{layer}.linear1.*": "feed_forward.fc1.*",
        f"{layer}.linear2.*": "feed_forward.fc2.*",
    }
    for theirs, ours in attentions.items():
        table[f"{layer}.{theirs}.in_proj_*"] = tuple(f"{ours}.{part}.*" for part in _ATTENTION)
        table[f"{layer}.{theirs}.out_proj.*"] = f"{ours}.out_proj.*"
    for number, ours in enumerate(norms, start=1):
        table[f"{layer}.norm{number}.*"] = f"{ours}_residual.norm.*"
    return table


ENCODER_LAYER = _layer("encoder", ("self_attn", "feed_forward"), crosses=False)
DECODER_LAYER = _layer("decoder", ("self_attn", "cross_attn", "feed_forward"), crosses=True)

ENCODER = Stack("model.encoder", ENCODER_LAYER, "encoder.norm", "source_embedding.weight", "source_positions")
DECODER = Stack("model.decoder", DECODER_LAYER, "decoder.norm", "target_embedding.weight", "target_positions")
# A language model in torch is an encoder with a causal mask, because the decoder of torch requires an encoder's output.
ALONE = {"norm": "encoder.norm", "embedding": "embedding.weight", "positions": "positions"}
CLASSIFIER = Stack("model.encoder", ENCODER_LAYER, **ALONE)
LANGUAGE_MODEL = Stack("model.decoder", ENCODER_LAYER, **ALONE)

GENERATOR: Table = {"generator.*": "lm_head.*"}
CLASSES: Table = {"classifier.*": "classifier.*"}

BOTH = {  # one matrix or table that both stacks read
    "embedding.weight": ("source_embedding.weight", "target_embedding.weight"),
    "positions": ("source_positions", "target_positions"),
}
BIASES = (r"^(encoder|decoder)\..*bias$",)  # absent in all layers with bias=False
# Settings that the weights do not determine, with the defaults of torch.
UNTOLD = {
    "norm": "post",
    "activation": "relu",
    "layer_norm_eps": 1e-5,
    "positions": "sinusoidal",
    "scale_embedding": True,
}
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def from_torch_transformer(checkpoint: Checkpoint) -> Converted:
    """Convert an encoder and a decoder of torch to ``VaswaniForConditionalGeneration``.

    Raises:
        UserError: the weights do not belong to such a model, or the number of heads is unknown.
    """
    _spread(checkpoint.weights)
    settings, assumed = _settings(checkpoint, DECODER)
    converted = load_translator(checkpoint, (ENCODER, DECODER), GENERATOR, {}, settings, IDS, BIASES)
    converted.assumed = assumed | converted.assumed
    return converted


def from_torch_lm(checkpoint: Checkpoint) -> Converted:
    """Convert an encoder of torch with a causal mask to ``VaswaniForCausalLM``.

    Raises:
        UserError: the weights do not belong to such a model, or the number of heads is unknown.
    """
    return _alone(checkpoint, LANGUAGE_MODEL, GENERATOR, VaswaniForCausalLM, {})


def from_torch_classifier(checkpoint: Checkpoint) -> Converted:
    """Convert an encoder of torch to ``VaswaniForSequenceClassification``.

    Raises:
        UserError: the weights do not belong to such a model, or the number of heads is unknown.
    """
    weight = checkpoint.weights.tensors.get("classifier.weight")
    labels = {} if weight is None else {"num_labels": len(weight)}
    return _alone(checkpoint, CLASSIFIER, CLASSES, VaswaniForSequenceClassification, labels)


def _alone(
    checkpoint: Checkpoint, stack: Stack, output: Table, model_class: type[PreTrainedModel], told: Mapping[str, Any]
) -> Converted:
    settings, assumed = _settings(checkpoint, stack)
    if model_class is VaswaniForSequenceClassification:
        assumed |= {} if "classifier_pooling" in settings else {"classifier_pooling": "mean"}
    tokens = [] if checkpoint.vocabulary is None else read_vocabulary(checkpoint.vocabulary)
    if checkpoint.vocabulary is None and "pad_token_id" not in settings:
        assumed["pad_token_id"] = settings["pad_token_id"] = IDS["pad_token_id"]
    specials = find_specials(tokens)
    for role, field in FIELDS.items():
        settings.setdefault(field, tokens.index(specials[role]) if role in specials else None)
    settings["decoder_start_token_id"] = None
    model = load_transformer(checkpoint, (stack,), output, model_class, told, settings, BIASES)
    tokenizer = None
    if checkpoint.vocabulary is not None:
        check_size(tokens, model.config.vocab_size, str(checkpoint.vocabulary))
        tokenizer = word_tokenizer(tokens, specials, closes=False)
    return Converted(model, tokenizer, assumed=assumed)


def _spread(weights: Weights) -> None:
    for shared, names in BOTH.items():
        if shared in weights.tensors:
            tensor = weights.tensors.pop(shared)
            if clash := [name for name in names if name in weights.tensors]:
                raise UserError(f"{weights.path} has both {shared} and {clash[0]}; rename one of them.")
            weights.tensors.update(dict.fromkeys(names, tensor))


def _settings(checkpoint: Checkpoint, stack: Stack) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings from --config and --set completed by defaults, and the defaults that were assumed."""
    settings = {**checkpoint.config, **checkpoint.settings}
    told = {*settings, *({"positions"} if stack.positions in checkpoint.weights.tensors else {})}
    assumed = {name: value for name, value in UNTOLD.items() if name not in told}
    return {**settings, **assumed}, assumed
