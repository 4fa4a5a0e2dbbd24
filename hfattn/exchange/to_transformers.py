"""Export models whose block is that of a model of transformers as this model, and check the result."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import BaseImageProcessor, PreTrainedModel, PreTrainedTokenizerBase

from ..errors import UserError
from ..models.configuration_layers import LayersConfig
from ..models.configuration_vaswani import VaswaniConfig
from ..models.configuration_vaswani_vision import VaswaniVisionConfig
from ..models.modeling_vaswani import LayersPreTrainedModel
from ..models.strict_config import own_fields
from .from_transformers import COUNTERPARTS, Counterpart, our_fields
from .names import to_theirs

_TOLERANCE = 1e-4  # fraction of the largest logit

# Fields that change no output, or that ``_computed`` has in another form.
_IGNORED = {
    "target_tokenizer", "share_positions", "classifier_pooling", "use_cache", "is_encoder_decoder", "is_decoder",
    "final_norm", "num_key_value_heads", "rope_theta", "local_rope_theta", "encoder_layers", "decoder_layers",
    "feed_forward_chunk", "embedding_std", "initialization", "lm_head_transform",
}  # fmt: skip
_IGNORED_PREFIXES = ("encoder_pattern", "decoder_pattern", "encoder_attention", "decoder_attention")
# Fields that change no output of a single stack.
_OF_BOTH = {"source_vocab_size", "share_embeddings", "decoder_start_token_id"}
_OF_BOTH_PREFIXES = ("cross_attention",)


def export_transformers(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | BaseImageProcessor | None, folder: Path
) -> None:
    """Write a model as one of transformers, which loads where hfattn is not installed and runs no code of the folder.

    Args:
        model: a ``VaswaniForCausalLM`` with the block of LLaMA, a ``VaswaniForMaskedLM`` with that of ModernBERT or
            Longformer, a ``VaswaniForConditionalGeneration`` with that of T5, or a
            ``VaswaniVisionForImageClassification`` with that of ViT, with or without the distillation token of DeiT.
        tokenizer: its tokenizer or image processor, if there is one.
        folder: existing folder.

    Raises:
        UserError: these models of transformers do not have what the model has, or compute something else.
    """
    candidates = [each for each in COUNTERPARTS.values() if each.to_theirs is not None and type(model) is each.ours]
    # Of several models with the same output layer, that with the same positions and tokens.
    candidates.sort(key=lambda each: _telling(each.config.preset(each.preset)) != _telling(model.config))
    counterpart = next(iter(candidates), None)
    if counterpart is None or not isinstance(model, LayersPreTrainedModel):
        raise UserError(
            f"{type(model).__name__} has no counterpart in transformers; export a VaswaniForCausalLM, a "
            "VaswaniForMaskedLM, a VaswaniForConditionalGeneration or a VaswaniVisionForImageClassification, or share "
            "the folder itself, which transformers loads with trust_remote_code=True."
        )
    theirs = counterpart.theirs(_their_config(counterpart, model.config)).to(model.dtype).eval()
    if (output := theirs.get_output_embeddings()) is not None and not model.config.tie_word_embeddings:
        output.weight = nn.Parameter(output.weight.detach().clone())  # T5 ties them, whatever its configuration says
    theirs.load_state_dict(counterpart.write(theirs.config, to_theirs(model, counterpart.rows(model))))
    _check(counterpart, model, theirs)
    theirs.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)


def _telling(config: LayersConfig) -> object:
    """Return what tells apart the counterparts with the same output layer."""
    return config.distillation_token if isinstance(config, VaswaniVisionConfig) else config.positions


def _their_config(counterpart: Counterpart, config: LayersConfig) -> Any:
    """Return their configuration.

    Raises:
        UserError: a field does not survive the way there and back.
    """
    assert counterpart.to_theirs is not None
    name = counterpart.theirs.__name__
    same = {theirs: getattr(config, ours) for ours, theirs in counterpart.fields.items()}
    biases = dict.fromkeys(counterpart.biases, config.bias)
    options = {name: value for name, value in {**same, **biases}.items() if name not in counterpart.untrained}
    theirs = counterpart.their_config(**{**options, **counterpart.to_theirs(config)})
    if isinstance(config, VaswaniConfig):
        theirs.tie_word_embeddings = config.tie_word_embeddings  # T5Config takes this argument for another field
    back = _computed(counterpart.config(**our_fields(counterpart, theirs)), [*counterpart.layers])
    for field, value in _computed(config, [*counterpart.layers]).items():
        if value != back[field]:
            raise UserError(
                f"{name} of transformers has {field}={back[field]}, but this model has {value}; it is another model, "
                "and its folder loads with trust_remote_code=True."
            )
    return theirs


def _computed(config: LayersConfig, stacks: Sequence[str]) -> dict[str, Any]:
    """Return the fields on which the outputs of a model with these stacks depend; dropout is not one of them."""
    ignored: set[str] = _IGNORED
    prefixes: tuple[str, ...] = _IGNORED_PREFIXES
    if len(stacks) == 1:
        ignored, prefixes = ignored | _OF_BOTH, (*prefixes, *_OF_BOTH_PREFIXES)
    names = [field.name for field in own_fields(type(config))]
    found = {
        name: getattr(config, name)
        for name in names
        if name not in ignored and not name.endswith("dropout") and not name.startswith(prefixes)
    }
    found |= {"final_norm": config.has_final_norm, "num_key_value_heads": config.key_value_heads}
    if isinstance(config, VaswaniConfig):
        found["lm_head_transform"] = config.lm_head_transform and [*stacks] == ["encoder"]
    else:
        found["classifier_pooling"] = config.classifier_pooling
    for stack in stacks:
        layers = range(getattr(config, f"{stack}_layers"))
        patterns = [config.layer_pattern(stack, index) for index in layers]
        found[f"{stack}_layers"] = len(layers)
        found[f"{stack}_pattern"] = [(name, {} if name == "full" else options) for name, options in patterns]
        found[f"{stack}_attention_groups"] = config.attention_groups("self", stack == "decoder")
        if isinstance(config, VaswaniConfig):
            found[f"{stack}_rope_theta"] = [config.layer_rope_theta(stack, index) for index in layers]
    return found


def _check(counterpart: Counterpart, model: PreTrainedModel, theirs: PreTrainedModel) -> None:
    """Compare the logits of both models on texts of two lengths, or on images."""
    random = torch.Generator().manual_seed(0)
    if isinstance(model.config, VaswaniVisionConfig):
        sizes = (side * number for side, number in zip(model.config.patch_shape, model.config.grid, strict=True))
        pixel_values = torch.randn(2, model.config.num_channels, *sizes, generator=random).to(model.dtype)
        with torch.no_grad():
            _compare(*(each(pixel_values).logits.float() for each in (model, theirs)))
        return
    ids = torch.randint(model.config.vocab_size, (2, 9), generator=random)
    if (padding := model.config.pad_token_id) is not None:  # which some models do not count, whatever the mask says
        ids[ids == padding] = (padding + 1) % model.config.vocab_size
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    target = {"decoder_input_ids": ids.flip(1)} if model.config.is_encoder_decoder else {}
    real = torch.ones_like(mask) if target else mask
    with torch.no_grad():
        ours, other = (
            each(ids, attention_mask=mask, **target, **inputs).logits[real.bool()].float()
            for each, inputs in ((model, {}), (theirs, counterpart.inputs(model.config, mask)))
        )
    _compare(ours, other)


def _compare(ours: torch.Tensor, other: torch.Tensor) -> None:
    difference = (ours - other).abs().max()
    if not difference <= _TOLERANCE * ours.abs().max().clamp(min=1):
        raise UserError(f"The logits of both models differ by {float(difference):.2g}; nothing was kept.")
