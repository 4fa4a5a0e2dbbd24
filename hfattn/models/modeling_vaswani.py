"""The Transformer (Vaswani et al. 2017): its layers, and the models with a single stack of layers.

The translator, which has both stacks, is in ``modeling_vaswani_translation.py``, so that a classifier or a language
model is saved without the pipeline of translators.

Shapes: B batch, T steps of the target or of the queries, S steps of the source or of the keys, H hidden width, h heads,
d width of a head, V vocabulary.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    CausalLMOutputWithPast,
    MaskedLMOutput,
    Seq2SeqModelOutput,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention import Attention, is_faster_unfused
from .attention_scores import Parametric, options_of, required_options
from .classifier_output import PooledClassifierOutput, classification_loss
from .configuration_layers import OPTIONS, PATTERNS, POSITION_BIASES, STANDARD_ATTENTION, LayersConfig
from .configuration_vaswani import VaswaniConfig
from .encoder_decoder import SourceAndTargetEmbeddings, TiesOfModel
from .penalties import Penalized, penalized, share_of_batch
from .strict_config import StrictConfig, class_by_name, unknown_message


def sinusoidal_positions(positions: torch.Tensor, width: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i/H)), PE(p, 2i+1) = cos of the same (section 3.5), for positions of any shape (...).

    It is a function instead of a table, so there is no largest position and no tensor to save or load.

    Returns:
        (..., width).
    """
    # In half precision, the rounding error of a large angle exceeds a period.
    precision = torch.float64 if dtype == torch.float64 else torch.float32
    exponents = torch.arange(0, width, 2, device=positions.device, dtype=precision) / width
    angles = positions[..., None].to(precision) * 10_000**-exponents  # (..., width / 2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2).to(dtype)


def rotary_angles(positions: torch.Tensor, width: int, theta: float, dtype: torch.dtype) -> torch.Tensor:
    """p / theta^(2i/d) for each position p and each pair i of features of a head (Su et al. 2021, eq. 15).

    Args:
        positions: (B or 1, T).
        width: d.

    Returns:
        Cosines and sines, (2, B or 1, 1, T, d / 2).
    """
    precision = torch.float64 if dtype == torch.float64 else torch.float32
    exponents = torch.arange(0, width, 2, device=positions.device, dtype=precision) / width
    angles = positions[:, None, :, None].to(precision) * (1.0 / theta**exponents)  # (B, 1, T, d / 2)
    return torch.stack((angles.cos(), angles.sin())).to(dtype)


def rotate(heads: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    """Rotate the pairs of features (i, i + d/2) of queries or keys (B, h, T, d) by the angles of their positions.

    The paper pairs neighboring features; pairing the halves is the same up to their order, and is what LLaMA, GPT-NeoX
    and most other models in transformers do.
    """
    cos, sin = rotation
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def positions_of(
    embeddings: torch.Tensor, padding_mask: torch.Tensor | None, past_length: int | torch.Tensor
) -> torch.Tensor:
    """Return the position of each step, (1, T) or (B, T): the number of preceding steps that are not padding."""
    num_steps = embeddings.shape[1]
    if padding_mask is not None and padding_mask.ndim == 2:
        return (padding_mask.long().cumsum(-1) - 1).clamp(min=0)[:, -num_steps:]
    return (torch.arange(num_steps, device=embeddings.device) + past_length)[None]


def boolean_mask(
    query: torch.Tensor,
    padding_mask: torch.Tensor | None,
    causal: bool = False,
    cache: Cache | None = None,
    layer_idx: int = 0,
) -> torch.Tensor | None:
    """Return the mask for ``Attention``: (B or 1, 1, T or 1, S), True where a query may attend.

    Args:
        query: (B, T, ...); only its shape matters.
        padding_mask: (B, S), 0 at padding; or a complete mask (B, 1, T, S), boolean or to be added to energies.
        causal: hide the keys after a query.
        cache: cache with the keys of earlier steps.
        layer_idx: layer of the cache that has them all.
    """
    if padding_mask is not None and padding_mask.ndim == 4:
        return padding_mask if padding_mask.dtype == torch.bool else padding_mask == 0
    mask = None if padding_mask is None else padding_mask.bool()[:, None, None]
    if not causal:
        return mask
    num_steps = query.shape[1]
    past_length, num_keys = (
        (0, num_steps) if cache is None else (cache.get_seq_length(), cache.get_mask_sizes(num_steps, layer_idx)[0])
    )
    steps = torch.arange(num_steps, device=query.device) + past_length
    behind = (torch.arange(num_keys, device=query.device) <= steps[:, None])[None, None]
    if mask is None:
        return behind
    # A static cache has unused keys after the query.
    return behind & nn.functional.pad(mask, (0, num_keys - mask.shape[-1]))


def projection(in_features: int, out_features: int, bias: bool, gain: float = 1.0) -> nn.Linear:
    """Return a linear layer with the attribute ``gain``, a factor of its initial weights, such as that of T-Fixup.

    Without layer normalization, updates of a stack of N layers stay bounded if the initial weights of W^V, W^O and the
    feed-forward network are scaled: by 0.67 N^(-1/4) in the encoder, by (9N)^(-1/4) in the decoder (Huang et al. 2020,
    section 3.2). The layer is not of a class of its own, because quantization replaces layers of ``nn.Linear`` only.
    """
    linear = nn.Linear(in_features, out_features, bias)
    linear.gain = gain  # type: ignore[assignment]
    return linear


def copied_projection(linear: nn.Linear) -> nn.Linear:
    """Return a linear layer that starts as a copy of another one, unless a checkpoint has weights for it."""
    new = copy.deepcopy(linear)
    new.source = (linear,)  # type: ignore[assignment]  # in a tuple, it is not a sub-module
    return new


def _gain(config: Any, in_decoder: bool) -> float:
    if config.norm != "none":
        return 1.0
    return (9 * config.decoder_layers) ** -0.25 if in_decoder else 0.67 * config.encoder_layers**-0.25


def _embedding_gain(config: LayersConfig) -> float:
    """Return T-Fixup's factor for the embeddings; it is the same for source and target, which may share a matrix."""
    num_layers: int = config.decoder_layers if config.is_encoder_decoder else config.num_hidden_layers
    return (9 * num_layers) ** -0.25 if config.norm == "none" else 1.0


def is_fused(config: LayersConfig, kind: str, is_causal: bool = False) -> bool:
    """Return whether the configured implementation (with its own mask format) computes this attention.

    It returns no weights, which layers share in self-attention. ``Attention`` adds the bias of positions, on fused
    kernels too.
    """
    if kind == "self" and (config.attention_groups(kind, is_causal) or config.positions in POSITION_BIASES):
        return False
    return config._attn_implementation != "eager" and config.attention_parts(kind) == STANDARD_ATTENTION


def of_self_attention(cache: Cache) -> Cache:
    """Return the part of a cache that is of self-attention."""
    return cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache


class TokenMixer(Penalized):
    """Base class of what exchanges information between the positions of a layer: attention, or what replaces it.

    Arguments: see ``VaswaniAttention``. A self-attention with a pattern is a subclass whose further arguments, all
    keyword-only, are the options of the pattern.

    Attributes:
        takes_padding_mask: whether ``attention_mask`` is that of the tokens, (B, S), instead of a mask of all pairs of
            queries and keys.
        takes_bias: whether it adds the bias of positions to its energies.
        reads_states: whether its output depends on the hidden states that it is given.
        shared_parameters: names of parameters of which there is one for all layers of this class.
    """

    takes_padding_mask = False
    takes_bias = False
    reads_states = True
    shared_parameters: tuple[str, ...] = ()

    def __init__(self, config: LayersConfig, layer_idx: int, kind: str, is_causal: bool, gain: float) -> None:
        super().__init__()
        self.config, self.layer_idx, self.kind, self.is_causal = config, layer_idx, kind, is_causal
        self.num_key_value_groups = config.num_attention_heads // config.key_value_heads  # transformers reads it too

    def cache_layer(self) -> CacheLayerMixin:
        """Return an empty cache for this self-attention."""
        return DynamicLayer()

    def cache_of(self, past_key_values: Cache | None) -> CacheLayerMixin | None:
        """Return the cache of this self-attention."""
        return None if past_key_values is None else of_self_attention(past_key_values).layers[self.layer_idx]

    def repeated(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Repeat keys or values for the queries that share them, (B, h, S, some width)."""
        number = self.num_key_value_groups
        return tensors if number == 1 else tuple(tensor.repeat_interleave(number, dim=1) for tensor in tensors)

    def start_pass(self) -> None:
        """Prepare for a forward pass of the stack. Gradient checkpointing runs a layer twice in a pass."""


class VaswaniAttention(TokenMixer):
    """Multi-head attention, MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O (section 3.2.2).

    ``scaled_dot`` with ``softmax`` runs on the attention implementation of the configuration ("sdpa",
    "flex_attention", ...). Every other combination, and "eager", runs on ``Attention``.

    Args:
        kind: "self" or "cross".
        is_causal: hide the keys after a query.
        gain: T-Fixup's factor for W^V and W^O.
    """

    def __init__(self, config: LayersConfig, layer_idx: int, kind: str, is_causal: bool, gain: float) -> None:
        super().__init__(config, layer_idx, kind, is_causal, gain)
        self.head_dim = config.head_width
        width, key_width = (heads * self.head_dim for heads in (config.num_attention_heads, config.key_value_heads))
        is_unscaled = config.initialization == "t5" and config.attention_parts(kind)["score"] == "dot"
        self.q_proj = projection(config.hidden_size, width, config.bias, self.head_dim**-0.5 if is_unscaled else 1.0)
        self.k_proj = projection(config.hidden_size, key_width, config.bias)
        self.v_proj = projection(config.hidden_size, key_width, config.bias, gain)
        self.out_proj = projection(width, config.hidden_size, config.bias, gain)
        self.attention = Attention(self.head_dim, self.head_dim, **config.attention_parts(kind))
        self.relative_positions = make_position_bias(config, is_causal, of_layer=True) if kind == "self" else None

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        key_value_states: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        rotation: torch.Tensor | None = None,
        *,
        bias: nn.Module | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend from ``hidden_states`` (B, T, H) to themselves, or to ``key_value_states`` (B, S, H).

        ``rotation`` are the ``rotary_angles`` of a self-attention, and ``bias`` is the ``PositionBias`` of the stack;
        both belong to self-attention only.

        Returns:
            (B, T, H), and the weights (B, h, T, S), or None if they were not requested or the implementation does not
            return them.
        """
        if self.kind == "cross":
            rotation = bias = None
        query = self._heads(self.q_proj(hidden_states))  # (B, h, T, d)
        if rotation is not None:
            query = rotate(query, rotation)
        if self.relative_positions is not None:
            bias = self.relative_positions
            query = bias(query, method="with_u")
        key, value = self._keys_and_values(hidden_states, key_value_states, past_key_values, rotation)
        if bias is not None:
            kwargs["bias"] = bias
        context, weights = self.attend(query, key, value, attention_mask, past_key_values, **kwargs)  # (B, T, h, d)
        if (
            weights is None
            and self.is_among_patterns
            and kwargs.get("output_attentions", self.config.output_attentions)
        ):
            # transformers drops None, and the weights of later layers would seem to be those of this one.
            weights = query.new_empty(len(query), 0, query.shape[2], key.shape[2])
        return self.out_proj(context.flatten(-2)), weights

    @property
    def is_among_patterns(self) -> bool:
        """Whether this is a self-attention of a stack in which a layer may have another pattern."""
        pattern = self.config.decoder_pattern if self.is_causal else self.config.encoder_pattern
        return self.kind == "self" and pattern != "full"

    @property
    def weight_dropout(self) -> float:
        """Probability of dropping a weight now."""
        return float(self.config.attention_dropout) if self.training else 0.0

    def needs_weights(self, **kwargs: Any) -> bool:
        """Return whether weights are computed when they are not needed for the context."""
        eager = self.config._attn_implementation == "eager"
        return eager or bool(kwargs.get("output_attentions", self.config.output_attentions))

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        past_key_values: Cache | None,
        *,
        bias: nn.Module | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend with queries (B, h, T, d) through prepared keys to values (B, h or fewer, S, d).

        ``past_key_values`` has been updated with the current keys. ``bias`` is given if positions are one.

        Returns:
            (B, T, h, d), and the weights (B, h, T, S) or None.
        """
        dropout, implementation = self.weight_dropout, self.config._attn_implementation
        fused = is_fused(self.config, self.kind, self.is_causal)
        unfused = fused and implementation == "sdpa" and is_faster_unfused(query, key, self.training, dropout)
        if fused and not unfused:
            attend = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, None)
            scaling = self.head_dim**-0.5
            if 0 in (query.shape[2], key.shape[2]):  # texts without a token
                context, weights = torch.zeros_like(query).transpose(1, 2), None
            else:
                if query.requires_grad and query.device.type == "cpu" and implementation == "flex_attention":
                    raise ValueError(
                        "flex_attention of torch has no backward pass on a CPU; load the model with "
                        "attn_implementation='sdpa', or compute without gradients, under torch.no_grad()."
                    )
                # It repeats heads itself, after a paged cache has stored them.
                context, weights = attend(
                    self, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
                )
                if isinstance(attention_mask, torch.Tensor) and attention_mask.dtype == torch.bool:
                    # Where all keys are padding, the context is zero, as in ``Attention``.
                    context = context * attention_mask.any(-1).transpose(1, 2)[..., None]
        else:
            key, value = self.repeated(key, value)
            energies_bias, num_queries, num_keys = None, query.shape[2], key.shape[2]
            if unfused:  # None is the causal mask of texts without padding
                is_causal = self.is_causal and attention_mask is None and num_queries == num_keys
                attention_mask = boolean_mask(query[:, 0], attention_mask, causal=is_causal)
            if bias is not None:
                energies_bias = bias(query, num_keys, self.num_so_far(num_keys, past_key_values) - num_queries)
            context, weights = self.attention(
                query,
                self.split(key),
                value,
                attention_mask,
                self.needs_weights(**kwargs),
                dropout=dropout,
                bias=energies_bias,
            )
            context = context.to(query.dtype).transpose(1, 2)
        return context, weights

    def num_so_far(self, num_keys: int, past_key_values: Cache | None) -> int:
        """Return the number of keys until now, with those that the updated cache has dropped."""
        layer = self.cache_of(past_key_values)
        return num_keys if layer is None else layer.get_seq_length()

    def _heads(self, projected: torch.Tensor) -> torch.Tensor:
        return projected.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # (B, T, h d) -> (B, h, T, d)

    def split(self, prepared: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Split prepared keys (B, h, S, some width) into those of the score and those of the distribution."""
        width = self.attention.distribution.prepared_width
        return prepared.split([prepared.shape[-1] - width, width], dim=-1) if width else (prepared,)

    def _keys_and_values(
        self,
        hidden_states: torch.Tensor,
        key_value_states: torch.Tensor | None,
        past_key_values: Cache | None,
        rotation: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return prepared keys and values of the cached steps and of the current step."""
        cache = past_key_values
        if isinstance(past_key_values, EncoderDecoderCache):
            cross = self.kind == "cross"
            if cross and past_key_values.is_updated.get(self.layer_idx):  # the source is unchanged
                layer = past_key_values.cross_attention_cache.layers[self.layer_idx]
                return layer.keys, layer.values
            cache = past_key_values.cross_attention_cache if cross else past_key_values.self_attention_cache
            if cross:
                past_key_values.is_updated[self.layer_idx] = True
        source = hidden_states if key_value_states is None else key_value_states
        key, value = self._heads(self.k_proj(source)), self._heads(self.v_proj(source))  # (B, h, S, d)
        if rotation is not None:
            key = rotate(key, rotation)
        if not is_fused(self.config, self.kind, self.is_causal):
            prepared = torch.cat(self.attention.prepare(key), dim=-1)
            key = prepared if prepared.shape[-1] else key  # a score of positions prepares none; a cache counts keys
        if cache is None:
            return key, value
        # A cache has one dtype, but a score may prepare float32 keys in a half-precision model.
        return cache.update(key, value.to(key.dtype), self.layer_idx)


def option_class(name: str) -> Any:
    """Return the class of one of ``OPTIONS``, whose file is saved only with the models that use it."""
    return StrictConfig.custom_classes.find(OPTIONS[name])


def make_attention(config: LayersConfig, layer_idx: int, kind: str, is_causal: bool, gain: float) -> TokenMixer:
    """Return the attention of a layer to all keys, or to what the layers of its group share."""
    groups = config.attention_groups(kind, is_causal)
    make = option_class("attention_groups").attention if groups else VaswaniAttention
    return make(config, layer_idx, kind, is_causal, gain)


def check_whole(least: int, /, **options: int) -> None:
    """Check that options are whole numbers of at least ``least``.

    Raises:
        ValueError: one is not.
    """
    for name, number in options.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            raise ValueError(f"{name} is {number!r}; write a whole number of at least {least}.")


def find_pattern(name: str) -> type[TokenMixer]:
    """Return the class of a pattern other than "full" by its name, or by the file and name of a custom class.

    Raises:
        ValueError: there is no such pattern.
    """
    if name not in PATTERNS and "." not in name:
        raise ValueError(unknown_message(name, ["full", *PATTERNS], "a pattern"))
    return class_by_name({}, name, TokenMixer, "a pattern", PATTERNS)


def make_self_attention(config: LayersConfig, layer_idx: int, is_causal: bool, gain: float) -> TokenMixer:
    """Return the self-attention of a layer, with the pattern that the configuration names.

    Raises:
        ValueError: the pattern is unknown, or an option is missing or out of range.
    """
    name, given = config.layer_pattern("decoder" if is_causal else "encoder", layer_idx)
    if name == "full":
        return make_attention(config, layer_idx, "self", is_causal, gain)
    kind = find_pattern(name)
    options = {option: value for option, value in given.items() if option in options_of(kind)}
    if missing := [option for option in required_options(kind) if option not in options]:
        stack = "decoder" if is_causal else "encoder"
        raise ValueError(f"The pattern {name!r} needs the option {missing[0]!r}; write it in {stack}_pattern_options.")
    if config.positions in POSITION_BIASES and not kind.takes_bias:
        raise ValueError(
            f"positions is {config.positions!r}, a bias of the energies, which the pattern {name!r} does not add; "
            "write other positions, or the pattern 'full', 'window' without global_tokens, 'block_local', "
            "'adaptive_span' or, in a decoder, 'memory'."
        )
    return kind(config, layer_idx, "self", is_causal, gain, **options)


def make_position_bias(config: LayersConfig, is_causal: bool, of_layer: bool = False) -> nn.Module | None:
    """Return the bias that the configuration names as positions, or None if its positions are not a bias.

    Args:
        is_causal: hide the keys after a query.
        of_layer: return one that belongs to a layer, or otherwise one that belongs to a stack.
    """
    if config.positions not in POSITION_BIASES or of_layer != (config.positions == "relative_sinusoidal"):
        return None
    kind = class_by_name({}, config.positions, nn.Module, "a bias", POSITION_BIASES)
    return kind(config, is_causal)


class VaswaniFeedForward(nn.Module):
    """FFN(x) = act(x W_1 + b_1) W_2 + b_2, at each position (section 3.3, eq. 2).

    Gated, (act(x W_1 + b_1) * (x W_3 + b_3)) W_2 + b_2 (Shazeer 2020, eq. 6, whose V is W_3). With
    ``feed_forward_chunk``, a piece of the sequence after the other (Kitaev et al. 2020, section 3).
    """

    def __init__(self, config: LayersConfig, gain: float) -> None:
        super().__init__()
        self.fc1 = projection(config.hidden_size, config.intermediate_size, config.bias, gain)
        self.fc2 = projection(config.intermediate_size, config.hidden_size, config.bias, gain)
        if config.gated_feed_forward:
            self.fc3 = projection(config.hidden_size, config.intermediate_size, config.bias, gain)
        self.is_gated = config.gated_feed_forward
        self.chunk = config.feed_forward_chunk
        self.activation = ACT2FN[config.activation]
        self.dropout = nn.Dropout(config.activation_dropout)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        # A graph for texts of any length cannot depend on the number of pieces.
        if self.chunk is None or hidden_states.shape[1] <= self.chunk or torch.compiler.is_compiling():
            return self._transform(hidden_states)
        pieces = hidden_states.split(self.chunk, dim=1)
        if self.training and torch.is_grad_enabled():
            # Otherwise the inner layers of all pieces would be stored for the backward pass.
            return torch.cat([checkpoint(self._transform, piece, use_reentrant=False) for piece in pieces], dim=1)
        return torch.cat([self._transform(piece) for piece in pieces], dim=1)

    def _transform(self, hidden_states: torch.Tensor) -> torch.Tensor:
        inner = self.activation(self.fc1(hidden_states))  # (B, T, F)
        if self.is_gated:
            inner = inner * self.fc3(hidden_states)
        return self.fc2(self.dropout(inner))


class AddAndNorm(nn.Module):
    """Residual connection and norm of a sub-layer f: LN(x + f(x)) (post), x + f(LN(x)) (pre), or x + f(x) (none)."""

    def __init__(self, config: LayersConfig, needs_norm: bool = True) -> None:
        super().__init__()
        self.is_pre = config.norm == "pre"
        self.norm = make_norm(config) if needs_norm or not self.is_pre else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)

    def before(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Return the input of the sub-layer."""
        return self.norm(hidden_states) if self.is_pre else hidden_states

    def after(self, hidden_states: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        """Add the sub-layer's ``output`` to ``hidden_states``."""
        hidden_states = hidden_states + self.dropout(output)
        return hidden_states if self.is_pre else self.norm(hidden_states)


def make_norm(config: LayersConfig) -> nn.Module:
    """Return a norm of vectors of width H, or the identity."""
    if config.norm == "none":
        return nn.Identity()
    if config.norm_type == "rms":
        return nn.RMSNorm(config.hidden_size, eps=config.layer_norm_eps)
    return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=config.bias)


def make_residual(config: LayersConfig, needs_norm: bool = True) -> AddAndNorm:
    """Return the residual connection of a sub-layer.

    Args:
        needs_norm: whether the sub-layer reads hidden states that have no norm yet.
    """
    return (option_class("reversible") if config.reversible else AddAndNorm)(config, needs_norm)


class VaswaniLayer(nn.Module):
    """Base of the layers: sub-layers, each with its residual connection."""

    def sublayers(
        self, *args: Any, **kwargs: Any
    ) -> Sequence[tuple[AddAndNorm, Callable[[torch.Tensor], torch.Tensor]]]:
        """Return the sub-layers with their residual connections, given the arguments of ``forward``."""
        raise NotImplementedError

    def forward(self, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        for residual, sublayer in self.sublayers(*args, **kwargs):
            hidden_states = residual.after(hidden_states, sublayer(residual.before(hidden_states)))
        return hidden_states


class VaswaniEncoderLayer(VaswaniLayer, GradientCheckpointingLayer):
    """Self-attention, then a feed-forward network (section 3.1)."""

    def __init__(self, config: LayersConfig, layer_idx: int) -> None:
        super().__init__()
        gain = _gain(config, in_decoder=False)
        self.self_attn = make_self_attention(config, layer_idx, is_causal=False, gain=gain)
        reads_embeddings = layer_idx == 0 and config.latents is None
        self.self_attn_residual = make_residual(config, not (reads_embeddings and config.embedding_norm))
        self.feed_forward = VaswaniFeedForward(config, gain)
        self.feed_forward_residual = make_residual(config)

    def sublayers(
        self, attention_mask: torch.Tensor | None = None, **kwargs: Any
    ) -> Sequence[tuple[AddAndNorm, Callable[[torch.Tensor], torch.Tensor]]]:
        return (
            (self.self_attn_residual, lambda states: self.self_attn(states, attention_mask, **kwargs)[0]),
            (self.feed_forward_residual, self.feed_forward),
        )


class VaswaniDecoderLayer(VaswaniLayer, GradientCheckpointingLayer):
    """Causal self-attention, cross-attention if there is an encoder, then a feed-forward network (section 3.1)."""

    def __init__(self, config: LayersConfig, layer_idx: int) -> None:
        super().__init__()
        gain = _gain(config, in_decoder=True)
        self.self_attn = make_self_attention(config, layer_idx, is_causal=True, gain=gain)
        self.self_attn_residual = make_residual(config, layer_idx > 0 or not config.embedding_norm)
        if config.is_encoder_decoder:
            self.cross_attn = make_attention(config, layer_idx, "cross", is_causal=False, gain=gain)
            self.cross_attn_residual = make_residual(config, self.cross_attn.reads_states)
        self.feed_forward = VaswaniFeedForward(config, gain)
        self.feed_forward_residual = make_residual(config)

    def sublayers(
        self,
        attention_mask: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> Sequence[tuple[AddAndNorm, Callable[[torch.Tensor], torch.Tensor]]]:
        def attend_to_source(states: torch.Tensor) -> torch.Tensor:
            output: torch.Tensor = self.cross_attn(
                states, encoder_attention_mask, key_value_states=encoder_hidden_states, **kwargs
            )[0]
            return output

        has_source = encoder_hidden_states is not None
        return (
            (self.self_attn_residual, lambda states: self.self_attn(states, attention_mask, **kwargs)[0]),
            *([(self.cross_attn_residual, attend_to_source)] if has_source else []),
            (self.feed_forward_residual, self.feed_forward),
        )


def shared_by_layers(stacks: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of parameters of named layers that are those of an earlier layer, with their names there."""
    first: dict[tuple[type, str], str] = {}
    names = {
        f"{stack}.{index}.self_attn.{name}": (type(layer.self_attn), name)
        for stack, layers in stacks.items()
        for index, layer in enumerate(layers)
        for name in layer.self_attn.shared_parameters
    }
    sources = {name: first.setdefault(shared, name) for name, shared in names.items()}
    return {name: source for name, source in sources.items() if name != source}


class LayersPreTrainedModel(TiesOfModel, PreTrainedModel):
    """Base of the models of these layers, which initializes their weights."""

    config: LayersConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["VaswaniEncoderLayer", "VaswaniDecoderLayer"]
    _supports_sdpa = True
    _supports_flex_attn = True
    _can_compile_fullgraph = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initialize matrices by Glorot, embeddings from N(0, 1/H) (times sqrt(H), their variance is 1), or both as
        ``initialization`` says; with T-Fixup's factors if there is no normalization."""
        of_t5, width = self.config.initialization == "t5", self.config.hidden_size
        if isinstance(module, nn.Linear) and "source" in vars(module):
            (source,) = vars(module)["source"]
            for parameter, original in zip(module.parameters(), source.parameters(), strict=True):
                init.copy_(parameter, original)
        elif isinstance(module, nn.Linear):
            gain = vars(module).get("gain", 1.0)  # the heads have none
            if of_t5:
                init.normal_(module.weight, std=gain * module.in_features**-0.5)
            else:
                init.xavier_uniform_(module.weight, gain=gain)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            std = 1.0 if of_t5 and module.embedding_dim == width else width**-0.5  # a bias has a number of each head
            init.normal_(module.weight, std=_embedding_gain(self.config) * std)
        elif isinstance(module, Parametric):
            module.initialize_()
        else:
            super()._init_weights(module)


class VaswaniPreTrainedModel(SourceAndTargetEmbeddings, LayersPreTrainedModel):
    """Base of the models of texts."""

    config: VaswaniConfig

    @property
    def output_scale(self) -> float:
        """Factor of the decoder's output before the output layer."""
        return self.config.hidden_size**-0.5 if self.config.scale_decoder_outputs else 1.0


Call = tuple[Any, tuple[Any, ...], dict[str, Any]]  # a layer and its further arguments


class VaswaniStack(LayersPreTrainedModel):
    """Base of the stacks: layers, and a norm after them."""

    layers: nn.ModuleList
    is_decoder: ClassVar[bool]
    _tied_weights_keys: dict[str, str] | None

    def __init__(self, config: LayersConfig) -> None:
        super().__init__(config)
        self.position_bias = make_position_bias(config, self.is_decoder)
        dropout = config.dropout if config.embedding_dropout is None else config.embedding_dropout
        self.embedding_dropout = nn.Dropout(dropout)
        self.embedding_norm = make_norm(config) if config.embedding_norm else nn.Identity()
        # In a pre-norm stack, the sum of the layers' outputs is normalized once, at the end.
        self.norm = make_norm(config) if config.has_final_norm else nn.Identity()
        self.gradient_checkpointing = False
        kinds = ("self", "cross") if self.is_decoder else ("self",)
        is_grouped = any(config.attention_groups(kind, self.is_decoder) for kind in kinds)
        self.reversible = option_class("reversible") if config.reversible else None
        self.groups = option_class("attention_groups") if is_grouped else None

    def add_encoder_layers(self) -> None:
        """Make the layers of an encoder, and its latents if it has any."""
        config = self.config
        self.layers = nn.ModuleList(VaswaniEncoderLayer(config, index) for index in range(config.encoder_layers))
        self.latents = option_class("latents")(config) if config.latents is not None else None
        rounds = [] if self.latents is None else self.latents.rounds
        later = {f"latents.rounds.{index}": layers for index, layers in enumerate(rounds)}
        self._tied_weights_keys = shared_by_layers({"layers": self.layers, **later})

    @property
    def mixers(self) -> list[TokenMixer]:
        """The self-attention of each layer."""
        return [layer.self_attn for layer in self.layers]  # type: ignore[misc]

    @property
    def has_patterns(self) -> bool:
        """Whether a layer has a pattern of attention, which needs a mask of the tokens only."""
        return any(mixer.takes_padding_mask for mixer in self.mixers)

    def matrix_layers(self, attention_mask: torch.Tensor | None = None) -> list[int]:
        """Return the layers whose self-attention needs a mask of all pairs of queries and keys.

        Raises:
            ValueError: ``attention_mask`` is such a mask, and another layer needs one of the tokens.
        """
        layers = [index for index, mixer in enumerate(self.mixers) if not mixer.takes_padding_mask]
        if attention_mask is not None and attention_mask.ndim != 2 and self.has_patterns:
            raise ValueError(
                f"attention_mask has the shape {tuple(attention_mask.shape)}, and a pattern of attention needs one "
                "value for each token, (B, S); pass 1 for tokens and 0 for padding."
            )
        return layers

    def source_mask(
        self, hidden_states: torch.Tensor, source: torch.Tensor, attention_mask: torch.Tensor | None
    ) -> torch.Tensor | None:
        """Return the mask of a cross-attention to ``source`` (B, S, H), whose padding is 0 in ``attention_mask``."""
        if is_fused(self.config, "cross"):
            mask: torch.Tensor | None = create_bidirectional_mask(self.config, hidden_states, attention_mask, source)
            return mask
        return boolean_mask(hidden_states, attention_mask)

    def run(self, hidden_states: torch.Tensor, calls: Sequence[Call], **kwargs: Any) -> torch.Tensor:
        """Return the output (B, T, H) of layers, each of which is called with further arguments.

        Args:
            kwargs: options of the pass. Reversible layers store their activations if there is a cache, or if their
                outputs or weights are requested.

        Raises:
            ValueError: the layers are reversible, and gradient checkpointing is on.
        """
        if self.reversible is not None and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            if self.gradient_checkpointing and self.training:
                raise ValueError(
                    "Reversible layers compute their inputs again, so gradient checkpointing has nothing to add; leave "
                    "gradient_checkpointing out, or write reversible: false."
                )
            has_weights = kwargs.get("output_attentions", self.config.output_attentions)
            has_states = kwargs.get("output_hidden_states", self.config.output_hidden_states)
            if not has_weights and not has_states and kwargs.get("past_key_values") is None:
                output: torch.Tensor = self.reversible.run(hidden_states, calls)
                return output
        for layer, args, options in calls:
            hidden_states = layer(hidden_states, *args, **options)
        return hidden_states[0] if isinstance(hidden_states, tuple) else hidden_states

    def encode(
        self,
        inputs: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        rotations: Sequence[torch.Tensor | None] | None = None,
        scale: float = 1.0,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Run the layers of an encoder, and the norm after them.

        Args:
            inputs: embeddings with positions (B, S, H).
            attention_mask: (B, S), 0 at padding.
            rotations: ``rotary_angles`` of each layer, if positions are rotary.
            scale: factor of the latents, that of the embeddings.

        Returns:
            (B, S, H), or (B, N, H) with N latents.
        """
        for mixer in self.mixers:
            mixer.start_pass()
        hidden_states, input_mask = inputs, attention_mask
        if self.latents is not None:
            hidden_states, attention_mask = self.latents.start(inputs, scale), None
        mask = None
        if self.matrix_layers(attention_mask):
            if is_fused(self.config, "self"):
                mask = create_bidirectional_mask(self.config, hidden_states, attention_mask)
            else:
                mask = boolean_mask(hidden_states, attention_mask)
        shared = {} if self.groups is None else {"shared": self.groups()}
        calls = []
        rotations = rotations or [None] * len(self.layers)
        for layer, mixer, rotation in zip(self.layers, self.mixers, rotations, strict=True):
            layer_mask = attention_mask if mixer.takes_padding_mask else mask
            given = {"rotation": rotation, "bias": self.position_bias, **shared, **kwargs}
            calls.append((layer, (layer_mask,), given))
        if self.latents is not None:
            input_mask = self.source_mask(hidden_states, inputs, input_mask)
            calls = self.latents.calls(calls, inputs, input_mask, **kwargs)
        output: torch.Tensor = self.norm(self.run(hidden_states, calls, **kwargs))
        return output


class VaswaniTextStack(VaswaniPreTrainedModel, VaswaniStack):
    """Base of encoder and decoder of texts: embeddings and positions before the layers."""

    def __init__(self, config: VaswaniConfig, vocab_size: int) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(vocab_size, config.hidden_size)
        if config.positions == "learned":
            self.embed_positions = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.embed_scale = math.sqrt(config.hidden_size) if config.scale_embedding else 1.0

    def embed(self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> torch.Tensor:
        """Return embeddings (B, T, H), without positions.

        Raises:
            ValueError: both inputs are given, or neither.
        """
        if (input_ids is None) == (inputs_embeds is None):
            prefix, source = "", ""
            if self.config.is_encoder_decoder and self.is_decoder:
                prefix, source = "decoder_", " For features of the source alone, run model.get_encoder()."
            raise ValueError(f"Pass either {prefix}input_ids or {prefix}inputs_embeds, and not both.{source}")
        if inputs_embeds is None:  # the ids of texts without a token are floats
            inputs_embeds = self.embed_tokens(input_ids.long())  # type: ignore[union-attr]
        return inputs_embeds * self.embed_scale

    def add_positions(self, hidden_states: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Add positions (1 or B, T) to embeddings (B, T, H), with dropout on the sum (section 5.4).

        Raises:
            ValueError: a position has no learned embedding. This is checked only on the CPU: on an accelerator, the
                check would synchronize with the device, which raises its own error.
        """
        if self.config.positions == "sinusoidal":
            width = self.config.hidden_size
            hidden_states = hidden_states + sinusoidal_positions(positions, width, hidden_states.dtype)
        elif self.config.positions == "learned":
            number = self.embed_positions.num_embeddings
            checkable = positions.device.type == "cpu" and not torch.compiler.is_compiling() and positions.numel() > 0
            if checkable and (last := int(positions.max())) >= number:
                raise ValueError(
                    f"The text reaches position {last} and there are {number} learned positions; cut it, or make the "
                    f"model with max_position_embeddings={last + 1} or with sinusoidal positions."
                )
            hidden_states = hidden_states + self.embed_positions(positions)
        return self.embedding_dropout(self.embedding_norm(hidden_states))

    def rotations(self, hidden_states: torch.Tensor, positions: torch.Tensor) -> list[torch.Tensor | None]:
        """Return the ``rotary_angles`` of each layer at positions (1 or B, T), or None if positions are not rotary."""
        config, stack = self.config, "decoder" if self.is_decoder else "encoder"
        if config.positions != "rotary":
            return [None] * len(self.layers)
        bases = [config.layer_rope_theta(stack, index) for index in range(len(self.layers))]
        width, dtype = config.head_width, hidden_states.dtype
        angles = {base: rotary_angles(positions, width, base, dtype) for base in dict.fromkeys(bases)}
        return [angles[base] for base in bases]


class VaswaniEncoder(VaswaniTextStack):
    """The left half of figure 1: every position of the source attends to all positions."""

    is_decoder = False
    _can_record_outputs = {
        "hidden_states": VaswaniLayer,
        "attentions": OutputRecorder(TokenMixer, index=1),
    }

    def __init__(self, config: VaswaniConfig) -> None:
        super().__init__(config, config.vocab_size if config.source_vocab_size is None else config.source_vocab_size)
        self.subsampling = option_class("subsampling")(config) if config.subsampling is not None else None
        self.add_encoder_layers()
        self.post_init()

    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        """Encode a source.

        Args:
            input_ids: (B, S).
            attention_mask: (B, S), 0 at padding, which is not counted in positions and not attended to.
            inputs_embeds: (B, S, H), instead of ``input_ids``, without scaling and positions.
            position_ids: (B, S); by default, the real steps are counted.

        Returns:
            ``last_hidden_state`` (B, S, H); ``hidden_states`` and ``attentions`` (B, h, S, S) if requested. With N
            latents, (B, N, H), and in each round first the weights of the latents over the source, (B, h, N, S), then
            those of the layers, (B, h, N, N). With ``subsampling``, S counts blocks, in ``position_ids`` too.
        """
        hidden_states = self.embed(input_ids, inputs_embeds)
        if self.subsampling is not None:
            hidden_states, attention_mask = self.subsampling(hidden_states, attention_mask)
        if position_ids is None:
            position_ids = positions_of(hidden_states, attention_mask, 0)
        hidden_states = self.add_positions(hidden_states, position_ids)
        rotations = self.rotations(hidden_states, position_ids)
        hidden_states = self.encode(hidden_states, attention_mask, rotations, self.embed_scale, **kwargs)
        return BaseModelOutput(last_hidden_state=hidden_states)

    def output_mask(self, attention_mask: torch.Tensor | None) -> torch.Tensor | None:
        """Return which outputs are not padding, given which tokens are not; None if all are outputs."""
        if self.latents is not None:
            return None
        return attention_mask if self.subsampling is None else self.subsampling.mask(attention_mask)


class VaswaniDecoder(VaswaniTextStack):
    """The right half of figure 1: target positions attend to earlier ones, themselves and the source."""

    is_decoder = True
    _can_record_outputs = {
        "hidden_states": VaswaniLayer,
        "attentions": OutputRecorder(TokenMixer, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(TokenMixer, index=1, layer_name="cross_attn"),
    }

    def __init__(self, config: VaswaniConfig) -> None:
        super().__init__(config, config.vocab_size)
        if config.latents is not None and not config.is_encoder_decoder:
            raise ValueError(
                f"latents is {config.latents}, and a decoder cannot have any, because each latent reads the whole "
                "text; leave latents out, or write a decoder_pattern."
            )
        if config.subsampling is not None and not config.is_encoder_decoder:
            raise ValueError(
                f"subsampling is {config.subsampling}, and a decoder cannot have any, because a block reads the tokens "
                "that it would predict; leave subsampling out."
            )
        self.layers = nn.ModuleList(VaswaniDecoderLayer(config, index) for index in range(config.decoder_layers))
        self._tied_weights_keys = shared_by_layers({"layers": self.layers})
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Decode a target, or its next steps.

        Args:
            input_ids: (B, T).
            attention_mask: (B, T) or, with a cache, (B, past + T): 0 at padding.
            encoder_hidden_states: (B, S, H), with ``encoder_attention_mask`` (B, S), 0 at padding.
            past_key_values: keys and values of earlier steps, and of the source, updated in place.
            inputs_embeds: (B, T, H), instead of ``input_ids``, without scaling and positions.
            position_ids: (B, T); by default, the real steps are counted.
            use_cache: return the cache; default ``config.use_cache``.

        Returns:
            ``last_hidden_state`` (B, T, H), ``past_key_values``; ``hidden_states``, ``attentions`` (B, h, T, past + T)
            and ``cross_attentions`` (B, h, T, S) if requested.

        Raises:
            ValueError: a cache is given in training with gradient checkpointing, whose layers get none.
        """
        if past_key_values is not None and self.gradient_checkpointing and self.training:
            raise ValueError("With gradient checkpointing, layers read no cache in training; leave one of them out.")
        for mixer in self.mixers:
            mixer.start_pass()
        hidden_states = self.embed(input_ids, inputs_embeds)
        is_recomputed = self.reversible is not None and self.training and torch.is_grad_enabled()
        if use_cache and past_key_values is None and not is_recomputed:
            past_key_values = DynamicCache()
        cache = None if past_key_values is None else of_self_attention(past_key_values)
        if cache is not None:
            self.use_caches_of_patterns(cache)
            if self.config.is_encoder_decoder and cache is past_key_values:
                past_key_values = EncoderDecoderCache(cache, DynamicCache())

        if position_ids is None:
            past_length = 0 if cache is None else cache.get_seq_length()
            position_ids = positions_of(hidden_states, attention_mask, past_length)
        hidden_states = self.add_positions(hidden_states, position_ids)
        rotations = self.rotations(hidden_states, position_ids)
        mask = None
        if matrix_layers := self.matrix_layers(attention_mask):
            if is_fused(self.config, "self", is_causal=True):
                mask = create_causal_mask(self.config, hidden_states, attention_mask, cache)
            else:
                mask = boolean_mask(hidden_states, attention_mask, causal=True, cache=cache, layer_idx=matrix_layers[0])
        source_mask = None
        if encoder_hidden_states is not None:
            source_mask = self.source_mask(hidden_states, encoder_hidden_states, encoder_attention_mask)
        shared = {} if self.groups is None else {"shared": self.groups()}
        calls = []
        for layer, mixer, rotation in zip(self.layers, self.mixers, rotations, strict=True):
            # The source is positional, so that gradient checkpointing passes its gradient.
            args = (attention_mask if mixer.takes_padding_mask else mask, encoder_hidden_states, source_mask)
            given = {"past_key_values": past_key_values, "rotation": rotation, "bias": self.position_bias}
            calls.append((layer, args, {**given, **shared, **kwargs}))
        hidden_states = self.run(hidden_states, calls, past_key_values=past_key_values, **kwargs)
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=self.norm(hidden_states), past_key_values=past_key_values if use_cache else None
        )

    def use_caches_of_patterns(self, cache: Cache) -> None:
        """Give an empty cache the layers of the patterns, which may store less than all keys.

        Raises:
            ValueError: the cache has no place for them.
        """
        if not self.has_patterns:
            return
        wanted = [mixer.cache_layer() for mixer in self.mixers]
        if [type(layer) for layer in cache.layers] == [type(layer) for layer in wanted]:
            return
        if not isinstance(cache, DynamicCache) or cache.get_seq_length() > 0:
            raise ValueError(
                f"past_key_values is a {type(cache).__name__} that was not made by this model, and a pattern of "
                "attention has a cache of its own; leave past_key_values out, and cache_implementation too."
            )
        cache.layers, cache.layer_class_to_replicate = wanted, None


class VaswaniModel(VaswaniPreTrainedModel):
    """Encoder and decoder, or one of them, without an output layer.

    The configuration selects both (``is_encoder_decoder``), the decoder (``is_decoder``), or the encoder (otherwise).
    """

    def __init__(self, config: VaswaniConfig) -> None:
        super().__init__(config)
        if config.is_encoder_decoder or not config.is_decoder:
            self.encoder = VaswaniEncoder(config)
        if config.is_encoder_decoder or config.is_decoder:
            self.decoder = VaswaniDecoder(config)
        if config.is_encoder_decoder:
            shared = {"embed_tokens": config.share_embeddings, "embed_positions": config.share_positions}
            ties = {f"encoder.{name}.weight": f"decoder.{name}.weight" for name, tied in shared.items() if tied}
            self._tied_weights_keys = ties
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """The embedding of ``input_ids``, which is that of the source if there is an encoder."""
        return (self.decoder if self._is_decoder_alone else self.encoder).embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        if not self._is_decoder_alone:
            self.encoder.embed_tokens = value
        if self._is_decoder_alone or (self.config.is_encoder_decoder and self.config.share_embeddings):
            self.decoder.embed_tokens = value

    @property
    def _is_decoder_alone(self) -> bool:
        return self.config.is_decoder and not self.config.is_encoder_decoder

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[torch.Tensor, ...] | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqModelOutput | BaseModelOutput | BaseModelOutputWithPastAndCrossAttentions:
        """Encode a source and decode a target, or run the only stack.

        Args:
            input_ids, attention_mask, inputs_embeds: the source, (B, S), or the only sequence.
            decoder_input_ids, decoder_attention_mask, decoder_inputs_embeds: the target, (B, T).
            encoder_outputs: output of the encoder, instead of the source.
            past_key_values, position_ids, use_cache: as in ``VaswaniDecoder``; ``position_ids`` are those of
                ``input_ids``.
        """
        inputs = {"attention_mask": attention_mask, "inputs_embeds": inputs_embeds, "position_ids": position_ids}
        if self._is_decoder_alone:
            return self.decoder(
                input_ids,
                past_key_values=past_key_values,
                use_cache=use_cache,
                return_dict=True,
                **inputs,
                **kwargs,
            )
        if encoder_outputs is None:
            encoded = self.encoder(input_ids, return_dict=True, **inputs, **kwargs)
        else:
            encoded = BaseModelOutput(*encoder_outputs) if isinstance(encoder_outputs, tuple) else encoder_outputs
        if not self.config.is_encoder_decoder:
            return encoded
        decoder_outputs = self.decoder(
            decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoded.last_hidden_state,
            encoder_attention_mask=self.encoder.output_mask(attention_mask),
            past_key_values=past_key_values,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            return_dict=True,
            **kwargs,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            past_key_values=decoder_outputs.past_key_values,
            decoder_hidden_states=decoder_outputs.hidden_states,
            decoder_attentions=decoder_outputs.attentions,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoded.last_hidden_state,
            encoder_hidden_states=encoded.hidden_states,
            encoder_attentions=encoded.attentions,
        )


def _alone(config: VaswaniConfig, is_decoder: bool) -> VaswaniConfig:
    """Return a copy of the configuration for one of the stacks, with its vocabulary."""
    config = copy.deepcopy(config)
    config.vocab_size = config.vocab_size if is_decoder else config.source_vocab_size or config.vocab_size
    config.is_encoder_decoder, config.is_decoder, config.source_vocab_size = False, is_decoder, None
    if hasattr(config, "custom_pipelines"):  # those of a translator
        del config.custom_pipelines
    return config


class PatternGenerationMixin(GenerationMixin):
    """``generate()`` with the caches of the patterns."""

    def _prepare_cache_for_generation(self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any) -> None:
        super()._prepare_cache_for_generation(generation_config, model_kwargs, *args)
        cache = model_kwargs.get("past_key_values")
        if cache is not None:  # assisted generation tells the layers to store what it may take back
            own = of_self_attention(cache)
            self.model.decoder.use_caches_of_patterns(own)
            if generation_config.is_assistant:
                own.activate_past_recording()

    def init_continuous_batching(self, *args: Any, **kwargs: Any) -> Any:
        """Make the manager of ``generate_batch()``, as in transformers.

        Raises:
            ValueError: a pattern of attention has a cache of its own, and the paged cache has all keys.
        """
        if self.model.decoder.has_patterns:
            raise ValueError(
                "Continuous batching stores all keys in pages, and a pattern of attention has a cache of its own; use "
                "generate()."
            )
        return super().init_continuous_batching(*args, **kwargs)


class VaswaniForCausalLM(VaswaniPreTrainedModel, PatternGenerationMixin):
    """The decoder alone, without cross-attention: a language model (Radford et al. 2018)."""

    def __init__(self, config: VaswaniConfig) -> None:
        config = _alone(config, is_decoder=True)
        super().__init__(config)
        self.model = VaswaniModel(config)
        self.output_dropout = nn.Dropout(config.output_dropout)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.lm_head_bias)
        if config.tie_word_embeddings:
            self._tied_weights_keys = {"lm_head.weight": "model.decoder.embed_tokens.weight"}
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        **kwargs: Unpack[TransformersKwargs],
    ) -> CausalLMOutputWithPast:
        """Predict the next token at every step.

        Args:
            input_ids, attention_mask, position_ids, past_key_values, inputs_embeds, use_cache: as in
                ``VaswaniDecoder``. Padding on the left is not counted in positions.
            labels: (B, T) ids, equal to ``input_ids`` (the loss shifts them by one), -100 at positions without a loss.
                If the target of the last step is known too, also pass ``shift_labels`` (B, T), which is not shifted.
            logits_to_keep: number of last steps, or indices of the steps, for which logits are computed; 0 is all.

        Returns:
            ``loss`` in nats per token, ``logits`` (B, T, V), ``past_key_values``; ``hidden_states`` and ``attentions``
            if requested.
        """
        outputs = self.model(
            input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            return_dict=True,
            **kwargs,
        )
        steps = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        states = outputs.last_hidden_state[:, steps] * self.output_scale
        logits = self.lm_head(self.output_dropout(states))  # (B, T, V)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
            targets = kwargs.get("shift_labels", labels[:, 1:])
            loss = penalized(self, loss, share_of_batch(targets, kwargs.get("num_items_in_batch")))
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    def empty_cache(self) -> DynamicCache:
        """Return the cache of no steps, with the layers of the patterns."""
        cache = DynamicCache()
        self.model.decoder.use_caches_of_patterns(cache)
        return cache


class OutputTransform(nn.Module):
    """norm(act(x W + b)), before the output layer of a masked language model."""

    def __init__(self, config: VaswaniConfig) -> None:
        super().__init__()
        self.dense = projection(config.hidden_size, config.hidden_size, config.bias)
        self.activation = ACT2FN[config.activation]
        self.norm = make_norm(config)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.norm(self.activation(self.dense(hidden_states)))


class VaswaniForMaskedLM(VaswaniPreTrainedModel):
    """The encoder alone, which predicts masked tokens (Devlin et al. 2019, section 3.1)."""

    def __init__(self, config: VaswaniConfig) -> None:
        config = _alone(config, is_decoder=False)
        if config.latents is not None:
            raise ValueError(
                f"latents is {config.latents}, and the outputs of latents are not positions of the text, as a masked "
                "language model needs; leave latents out."
            )
        if config.subsampling is not None:
            raise ValueError(
                f"subsampling is {config.subsampling}, and blocks are not tokens, which a masked language model "
                "predicts; leave subsampling out."
            )
        super().__init__(config)
        self.model = VaswaniModel(config)
        if config.lm_head_transform:
            self.lm_head_transform = OutputTransform(config)
        self.output_dropout = nn.Dropout(config.output_dropout)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.lm_head_bias)
        if config.tie_word_embeddings:
            self._tied_weights_keys = {"lm_head.weight": "model.encoder.embed_tokens.weight"}
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MaskedLMOutput:
        """Predict the token at every position.

        Args:
            input_ids, attention_mask, inputs_embeds: as in ``VaswaniEncoder``.
            labels: (B, S) ids of the original tokens, -100 at positions without a loss.

        Returns:
            ``loss`` in nats per token, ``logits`` (B, S, V); ``hidden_states`` and ``attentions`` if requested.
        """
        outputs = self.model(
            input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, return_dict=True, **kwargs
        )
        states = outputs.last_hidden_state
        if self.config.lm_head_transform:
            states = self.lm_head_transform(states)
        logits = self.lm_head(self.output_dropout(states))  # (B, S, V)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
            loss = penalized(self, loss, share_of_batch(labels, kwargs.get("num_items_in_batch")))
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class VaswaniForSequenceClassification(VaswaniPreTrainedModel):
    """One stack, with a linear layer on the mean of its positions, the first or the last one.

    The stack is the encoder, or the decoder of a language model (``config.is_decoder``; Radford et al. 2018).
    """

    def __init__(self, config: VaswaniConfig) -> None:
        config = _alone(config, is_decoder=config.is_decoder and not config.is_encoder_decoder)
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = VaswaniModel(config)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        output_pooled: bool = False,
        **kwargs: Any,
    ) -> PooledClassifierOutput:
        """Classify texts.

        Args:
            input_ids, attention_mask, inputs_embeds: as in ``VaswaniEncoder`` or ``VaswaniDecoder``.
            labels: depending on ``config.problem_type``, (B,) classes; (B, labels) zeros and ones for multi-label
                classification; (B,) or (B, labels) numbers for regression.
            num_items_in_batch: number of labels in all batches of a training step; ``loss`` is then the sum over this
                batch divided by it.
            output_pooled: return the pooled vectors.

        Returns:
            ``loss``, ``logits`` (B, labels); ``hidden_states``, ``attentions`` and ``pooler_output`` (B, H) if
            requested.
        """
        if self.config.is_decoder:
            kwargs["use_cache"] = False  # nothing follows the text
        outputs = self.model(
            input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, return_dict=True, **kwargs
        )
        mask = attention_mask if self.config.is_decoder else self.model.encoder.output_mask(attention_mask)
        pooled = self._pool(outputs.last_hidden_state, mask)
        logits = self.classifier(self.dropout(pooled))  # (B, labels)
        loss = None
        if labels is not None:
            loss = classification_loss(self.loss_function, logits, labels, self.config, num_items_in_batch)
            loss = penalized(self, loss, share_of_batch(labels, num_items_in_batch))
        return PooledClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            pooler_output=pooled if output_pooled else None,
        )

    def _pool(self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        """(B, S, H) -> (B, H); zeros if a text has no tokens."""
        if hidden_states.shape[1] == 0:
            return hidden_states.new_zeros(hidden_states.shape[0], hidden_states.shape[2])
        pooling = self.config.classifier_pooling
        if attention_mask is None:
            return hidden_states.mean(1) if pooling == "mean" else hidden_states[:, 0 if pooling == "first" else -1]
        if pooling != "mean":
            real = attention_mask.long()
            place = real.argmax(-1)  # the first token after padding on the left
            if pooling == "last":
                place = real.shape[1] - 1 - real.flip(1).argmax(-1)
            pooled = hidden_states[torch.arange(len(place), device=place.device), place]
            return pooled * attention_mask.bool().any(-1, keepdim=True)
        weights = attention_mask[..., None].to(hidden_states.dtype)
        return (hidden_states * weights).sum(1) / weights.sum(1).clamp(min=1)


VaswaniModel.register_for_auto_class("AutoModel")
VaswaniForCausalLM.register_for_auto_class("AutoModelForCausalLM")
VaswaniForMaskedLM.register_for_auto_class("AutoModelForMaskedLM")
VaswaniForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")

__all__ = [
    "VaswaniForCausalLM",
    "VaswaniForMaskedLM",
    "VaswaniForSequenceClassification",
    "VaswaniModel",
    "VaswaniPreTrainedModel",
]
