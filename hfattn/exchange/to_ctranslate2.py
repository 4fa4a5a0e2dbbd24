"""Export a translation Transformer to the inference engine CTranslate2, and check the result."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..errors import UserError
from ..extras import require
from ..models.configuration_layers import POSITION_BIASES, STANDARD_ATTENTION
from ..models.modeling_vaswani import sinusoidal_positions
from ..models.modeling_vaswani_translation import VaswaniForConditionalGeneration

QUANTIZATIONS = ("float32", "int8")
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_new": "GELUTanh", "silu": "SWISH", "tanh": "Tanh"}
# Rows of the position table, which replaces our function: the longest text that the engine can read.
LONGEST = 2048
_TOLERANCE = 1e-3  # nats


def export_ctranslate2(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase | None,
    folder: Path,
    quantization: str = "float32",
) -> None:
    """Write a model and its vocabularies in the format of CTranslate2.

    Its sources are the tokens of ``tokenizer``, including the end token if the tokenizer adds it.

    Args:
        model: a ``VaswaniForConditionalGeneration``.
        tokenizer, target_tokenizer: tokenizer of both sides, or one for each side.
        folder: folder to create.
        quantization: a value in ``QUANTIZATIONS``.

    Raises:
        UserError: the package is missing, the engine does not support the model, or its probabilities differ.
    """
    require("export", "ctranslate2")
    if quantization not in QUANTIZATIONS:
        raise UserError(f"{quantization!r} is not a quantization; write {' or '.join(QUANTIZATIONS)}.")
    if (what := unsupported(model)) is not None:
        raise UserError(f"This model cannot be exported to CTranslate2: {what}; export it to safetensors instead.")
    model = model.float().eval()
    writer = target_tokenizer or tokenizer
    vocabularies = [vocabulary(tokenizer), vocabulary(writer)]
    sizes = (model.get_encoder().embed_tokens.num_embeddings, model.config.vocab_size)
    for tokens, size in zip(vocabularies, sizes, strict=True):
        if len(tokens) != size:
            raise UserError(f"The tokenizer has {len(tokens)} tokens and the model {size}; give the model its own.")
    with TemporaryDirectory() as scratch:
        exact = Path(scratch) / "exact"
        _write(model, vocabularies, writer, exact, None)
        _check(model, vocabularies, exact)
    _write(model, vocabularies, writer, folder, None if quantization == "float32" else quantization)


def unsupported(model: PreTrainedModel) -> str | None:
    """Return why CTranslate2 cannot hold a model, in a few words, or None if it can."""
    if not isinstance(model, VaswaniForConditionalGeneration):
        return f"it is a {type(model).__name__}, not a VaswaniForConditionalGeneration"
    config = model.config
    unlike = {
        'norm "none"': config.norm == "none",
        f"{config.norm_type} norms": config.norm_type != "layer",
        "gated feed-forward networks": config.gated_feed_forward,
        "bias: false": not config.bias,
        f"the pattern {min(config.pattern_names, default='full')}": bool(config.pattern_names),
        min(config.option_names, default=""): bool(config.option_names),
        "embedding_norm": config.embedding_norm,
        "scale_decoder_outputs": config.scale_decoder_outputs,
        f"{config.positions} positions": config.positions == "rotary" or config.positions in POSITION_BIASES,
        f"num_key_value_heads {config.num_key_value_heads}": config.key_value_heads != config.num_attention_heads,
        f"head_dim {config.head_dim}": config.head_width * config.num_attention_heads != config.hidden_size,
        **{
            f"{kind}-attention with the score {config.attention_parts(kind)['score']} and the distribution "
            f"{config.attention_parts(kind)['distribution']}": config.attention_parts(kind) != STANDARD_ATTENTION
            for kind in ("self", "cross")
        },
        "several end tokens": not isinstance(config.eos_token_id, int),
        "no token that starts a target": config.decoder_start_token_id is None,
    }
    what = next((what for what, present in unlike.items() if present), None)
    return None if what is None else f"the engine has no Transformer with {what}"


def vocabulary(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return the tokens of a tokenizer in the order of their ids."""
    return list(tokenizer.convert_ids_to_tokens(range(len(tokenizer))))


def _write(
    model: VaswaniForConditionalGeneration,
    vocabularies: Sequence[list[str]],
    writer: PreTrainedTokenizerBase,
    folder: Path,
    quantization: str | None,
) -> None:
    from ctranslate2.converters import Converter

    class OwnConverter(Converter):
        def _load(self) -> Any:
            return _spec(model, vocabularies, writer)

    OwnConverter().convert(str(folder), quantization=quantization)


def _spec(
    model: VaswaniForConditionalGeneration, vocabularies: Sequence[list[str]], writer: PreTrainedTokenizerBase
) -> Any:
    """Return the model as a specification of CTranslate2."""
    from ctranslate2.specs import TransformerSpec, common_spec

    config, encoder, decoder = model.config, model.get_encoder(), model.get_decoder()
    spec = TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.num_attention_heads,
        pre_norm=True,  # its specification has an optional final norm
        no_final_norm=not config.has_final_norm,
        activation=getattr(common_spec.Activation, ACTIVATIONS[config.activation]),
    )
    for stack, ours in ((spec.encoder, encoder), (spec.decoder, decoder)):
        (embeddings,) = stack.embeddings if isinstance(stack.embeddings, list) else [stack.embeddings]
        embeddings.weight = _array(ours.embed_tokens.weight)
        stack.pre_norm = config.norm == "pre"
        stack.scale_embeddings = config.scale_embedding
        stack.position_encodings.encodings = _array(_positions(ours, config))
        if config.has_final_norm:
            _set_norm(stack.layer_norm, ours.norm)
        for layer, own in zip(stack.layer, ours.layers, strict=True):
            attention = own.self_attn
            _set_linear(layer.self_attention.linear[0], attention.q_proj, attention.k_proj, attention.v_proj)
            _set_linear(layer.self_attention.linear[1], attention.out_proj)
            _set_norm(layer.self_attention.layer_norm, own.self_attn_residual.norm)
            if stack is spec.decoder:
                attention = own.cross_attn
                _set_linear(layer.attention.linear[0], attention.q_proj)
                _set_linear(layer.attention.linear[1], attention.k_proj, attention.v_proj)
                _set_linear(layer.attention.linear[2], attention.out_proj)
                _set_norm(layer.attention.layer_norm, own.cross_attn_residual.norm)
            _set_linear(layer.ffn.linear_0, own.feed_forward.fc1)
            _set_linear(layer.ffn.linear_1, own.feed_forward.fc2)
            _set_norm(layer.ffn.layer_norm, own.feed_forward_residual.norm)
    _set_linear(spec.decoder.projection, model.lm_head)
    spec.register_source_vocabulary(vocabularies[0])
    spec.register_target_vocabulary(vocabularies[1])
    target = vocabularies[1]
    spec.config.eos_token = target[config.eos_token_id]
    spec.config.bos_token = target[config.decoder_start_token_id]
    spec.config.decoder_start_token = target[config.decoder_start_token_id]
    # The engine requires an unknown token; it is never used if the tokenizer has none.
    spec.config.unk_token = writer.unk_token or spec.config.bos_token
    spec.config.layer_norm_epsilon = config.layer_norm_eps
    return spec


def _positions(stack: Any, config: Any) -> torch.Tensor:
    """Return the vectors (P, H) that are added at each position."""
    if config.positions == "learned":
        return stack.embed_positions.weight
    if config.positions == "none":
        return torch.zeros(LONGEST, config.hidden_size)  # without a table, the engine would add its own positions
    return sinusoidal_positions(torch.arange(LONGEST), config.hidden_size)


def _set_linear(spec: Any, *layers: nn.Linear) -> None:
    """Set the weights of a specification to those of one layer, or of several with the same input, stacked."""
    spec.weight = _array(torch.cat([layer.weight for layer in layers]))
    if layers[0].bias is not None:
        spec.bias = _array(torch.cat([layer.bias for layer in layers]))


def _set_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: torch.Tensor) -> Any:
    return tensor.detach().float().contiguous().clone().numpy()


def _check(model: VaswaniForConditionalGeneration, vocabularies: Sequence[list[str]], folder: Path) -> None:
    """Compare the scores of the model and of the engine on random pairs of several lengths."""
    import ctranslate2

    config, random = model.config, torch.Generator().manual_seed(0)
    special = {config.pad_token_id, config.eos_token_id, config.decoder_start_token_id}
    ids = [[i for i in range(len(tokens)) if i not in special] for tokens in vocabularies]
    longest = config.max_position_embeddings - 1 if config.positions == "learned" else LONGEST

    def drawn(side: int, length: int) -> list[int]:
        return [ids[side][int(i)] for i in torch.randint(len(ids[side]), (min(length, longest),), generator=random)]

    sources, targets = [drawn(0, length) for length in (6, 1, 3)], [drawn(1, length) for length in (2, 5, 1)]
    engine = ctranslate2.Translator(str(folder), inter_threads=1, intra_threads=1, compute_type="float32")
    results = engine.score_batch(
        [[vocabularies[0][i] for i in source] for source in sources],
        [[vocabularies[1][i] for i in target] for target in targets],
    )
    for source, target, result in zip(sources, targets, results, strict=True):
        written = torch.tensor([[config.decoder_start_token_id, *target]])
        expected = torch.tensor([*target, config.eos_token_id])
        with torch.no_grad():
            scores = model(torch.tensor([source]), decoder_input_ids=written).logits[0].log_softmax(-1)
        difference = (scores[torch.arange(len(expected)), expected] - torch.tensor(result.log_probs)).abs().max()
        if not difference <= _TOLERANCE * scores.abs().max().clamp(min=1):
            raise UserError(
                f"The probabilities of CTranslate2 and the model differ by {float(difference):.2g} nats; "
                "nothing was kept."
            )
