"""Patterns whose weights are kernels: y_i = Σ_j κ(q_i, k_j) v_j / Σ_j κ(q_i, k_j) with κ(q, k) = φ(q)·φ(k).

The sums S = Σ_j φ(k_j) v_jᵀ and z = Σ_j φ(k_j) do not depend on the query, so that y_i = φ(q_i)ᵀ S / φ(q_i)ᵀ z costs
O(S m d) for all queries together, and a causal decoder only stores S and z of the keys so far. The weights
κ(q_i, k_j) / Σ_j κ(q_i, k_j) are computed only for ``model(..., output_attentions=True, implicit_weights=True)``.

Shapes: B batch, h heads, T queries, S keys, d width of a head, m features φ.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, CacheLayerMixin

from .attention_scores import FEATURE_MAPS
from .cache_recurrent import RecurrentCacheLayer, State
from .configuration_layers import STANDARD_ATTENTION, LayersConfig
from .modeling_vaswani import VaswaniAttention
from .random_directions import RandomDirections
from .score_kernels import full_precision, widen

CHUNK = 128  # steps of a causal decoder that are computed together


def causal_kernel(query: torch.Tensor, key: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return φ(q_i)·φ(k_j) e^{-M_i} for j ≤ i, and 0 for j > i, as (…, T, T).

    Args:
        query: φ(q_i), (…, T, m).
        key: φ(k_j) e^{-M_j}, (…, T, m).
        scale: M, (…, T), which does not decrease.
    """
    rescaling = (scale[..., None, :] - scale[..., None]).tril().exp()  # e^{M_j - M_i} ≤ 1
    return (query @ key.transpose(-1, -2) * rescaling).tril()


def causal_sums(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: torch.Tensor,
    state: State | None,
    chunk: int | None,
) -> tuple[torch.Tensor, State]:
    """Return Σ_{j ≤ i} φ(q_i)·φ(k_j) e^{-M_i} v_j, in O(T (m d + chunk (m + d))).

    Pairs of a query and a key of the same chunk are compared with each other; keys of earlier chunks are in the state.

    Args:
        query: φ(q_i), (…, T, m), at least one.
        key: φ(k_j) e^{-M_j}, (…, T, m).
        value: v_j, (…, T, d).
        scale: M, (…, T), which does not decrease.
        state: Σ_j φ(k_j) e^{-M} v_jᵀ over earlier keys, (…, m, d), and the last M, (…, 1).
        chunk: number of positions; None: all.

    Returns:
        (…, T, d), and the state after these keys.
    """
    if state is None:
        state = key.new_zeros(*key.shape[:-2], key.shape[-1], value.shape[-1]), scale[..., :1]
    sums, before = state
    outputs = []
    chunks: Iterable[tuple[torch.Tensor, ...]] = [(query, key, value, scale)]
    if chunk is not None:
        vectors = (tensor.split(chunk, -2) for tensor in (query, key, value))
        chunks = zip(*vectors, scale.split(chunk, -1), strict=True)
    for q, k, v, m in chunks:
        earlier = (before - m).exp()[..., None] * (q @ sums)
        outputs.append(earlier + causal_kernel(q, k, m) @ v)
        last = m[..., -1:]
        rescaled = k * (m - last).exp()[..., None]
        sums = (before - last).exp()[..., None] * sums + rescaled.transpose(-1, -2) @ v
        before = last
    return torch.cat(outputs, -2), (sums, before)


class KernelAttention(VaswaniAttention):
    """Self-attention with a kernel φ(q)·φ(k); base of the patterns of this file.

    In half precision, it is computed in float32. ``attention_dropout`` has no effect, because there are no weights.

    Args:
        config, layer_idx, kind, is_causal, gain: see ``VaswaniAttention``.

    Raises:
        ValueError: the configuration names a score or a distribution.
    """

    takes_padding_mask = True

    def __init__(self, config: LayersConfig, layer_idx: int, kind: str, is_causal: bool, gain: float) -> None:
        super().__init__(config, layer_idx, kind, is_causal, gain)
        for part, given in config.attention_parts(kind).items():
            if given != STANDARD_ATTENTION[part]:
                name, _ = config.layer_pattern("decoder" if is_causal else "encoder", layer_idx)
                raise ValueError(
                    f"The pattern {name!r} has a kernel instead of a score and a distribution, and {kind}_attention_"
                    f"{part} is {given!r}; leave it out, or write the pattern 'full'."
                )

    def features(
        self, query: torch.Tensor, key: torch.Tensor, real: torch.Tensor | None, last_scale: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return φ(q_i), up to a factor for each query, φ(k_j) e^{-M_j}, and M.

        Args:
            query, key: (B, h, T, d).
            real: boolean, (B, 1, T), False at padding, where φ(k_j) is zero.
            last_scale: M of the last earlier key, (B, h or 1, 1).

        Returns:
            (B, h, T, m) twice, and (B, h or 1, T). If the attention is not causal, all M are the same.
        """
        raise NotImplementedError

    def cache_layer(self) -> CacheLayerMixin:
        return RecurrentCacheLayer()

    def _keys_and_values(
        self,
        hidden_states: torch.Tensor,
        key_value_states: torch.Tensor | None,
        past_key_values: Cache | None,
        rotation: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return those of the current steps, without the cache, which has a state instead of earlier ones."""
        return super()._keys_and_values(hidden_states, None, None, rotation)

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        past_key_values: Cache | None = None,
        implicit_weights: bool = False,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend as in ``VaswaniAttention``, to the keys of these steps and those in the state of the cache.

        Args:
            implicit_weights: compute the weights, in O(T²). Otherwise the weights are None or, so that the outputs have
                some for each layer, those of no head, (B, 0, T, S).

        Raises:
            ValueError: ``implicit_weights`` needs keys that are no longer stored.
        """
        key, value = self.repeated(key, value)
        num_steps = total = key.shape[-2]
        layer = self.cache_of(past_key_values)
        earlier = None if layer is None else layer.state
        real = None  # (B, 1, T)
        if attention_mask is not None:
            real = attention_mask[:, None, attention_mask.shape[1] - num_steps :].bool()
        context, state = self._context(query, key, value, real, earlier)
        if layer is not None and state is not None:
            layer.update(state, num_steps)
            total = layer.get_seq_length()
        weights = None
        if implicit_weights:
            if earlier is not None:
                raise ValueError(
                    "implicit_weights needs all keys, and the cache has only their sums; pass the whole text, with "
                    "use_cache=False."
                )
            identity = torch.eye(num_steps, dtype=query.dtype, device=query.device)
            weights, _ = self._context(query, key, identity.expand(*key.shape[:-1], -1), real, None)
        elif self.needs_weights(**kwargs):
            weights = query.new_zeros(query.shape[0], 0, num_steps, total)
        return context.transpose(1, 2), weights

    def _context(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        real: torch.Tensor | None,
        state: State | None,
    ) -> tuple[torch.Tensor, State | None]:
        """Return the context (B, h, T, d), and the state after these keys."""
        if key.shape[-2] == 0:  # texts without a token
            return torch.zeros_like(value), state
        dtype = query.dtype
        with full_precision(query):
            query, key, scale = self.features(widen(query), widen(key), real, None if state is None else state[1])
            # With a column of ones, the last column of Σ φ(k_j) v_jᵀ is z = Σ φ(k_j).
            value = nn.functional.pad(widen(value), (0, 1), value=1.0)
            if self.is_causal:
                # A graph for texts of any length cannot depend on the number of chunks.
                chunk = None if torch.compiler.is_exporting() else CHUNK
                sums, state = causal_sums(query, key, value, scale, state, chunk)
            else:
                sums = query @ (key.transpose(-1, -2) @ value)
            total = sums[..., -1:]
            return (sums[..., :-1] / torch.where(total > 0, total, 1)).to(dtype), state  # zero without a key


class LinearAttention(KernelAttention):
    """The pattern "linear": φ(x) = elu(x) + 1 (Katharopoulos et al. 2020, section 3, eq. 7)."""

    def features(
        self, query: torch.Tensor, key: torch.Tensor, real: torch.Tensor | None, last_scale: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        feature_map = FEATURE_MAPS["elu"]
        key = feature_map(key)
        if real is not None:
            key = key * real[..., None]
        return feature_map(query), key, key.new_zeros(key.shape[0], 1, key.shape[-2])


def orthogonal_directions(number: int, width: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Draw m vectors from N(0, I_d), of which any d in a block are orthogonal (Choromanski et al. 2021, section 2.4).

    Args:
        number: m; the last block may be incomplete.
        width: d.

    Returns:
        (m, d).
    """
    blocks = torch.randn(-(-number // width), width, width, dtype=dtype)
    orthogonal, triangular = torch.linalg.qr(blocks)
    # With a positive diagonal of R, Q is uniform over the orthogonal matrices (Mezzadri 2007, section 5).
    orthogonal = orthogonal * triangular.diagonal(dim1=-2, dim2=-1).sign()[:, None]
    lengths = torch.randn(number, width, dtype=dtype).norm(dim=-1, keepdim=True)  # those of independent vectors
    return orthogonal.flatten(0, 1)[:number] * lengths


def log_features(vectors: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
    """Return w_l·x - ‖x‖² / 2, the logarithms of √m φ(x)_l (Choromanski et al. 2021, lemma 1).

    With directions from N(0, I_d), φ(x)·φ(y) is an unbiased estimate of exp(x·y).

    Args:
        vectors: x, (…, d).
        directions: w_l, (m, d).

    Returns:
        (…, m).
    """
    return vectors @ directions.T - vectors.square().sum(-1, keepdim=True) / 2


class PerformerAttention(RandomDirections, KernelAttention):
    """The pattern "performer": φ(x)_l = exp(w_l·x - ‖x‖² / 2) / √m, so that φ(q / d^(1/4))·φ(k / d^(1/4)) estimates the
    exp(q·k / √d) of softmax (FAVOR+, Choromanski et al. 2021, sections 2.3 and 2.4).

    The heads of a layer share the directions w_l, which are saved with the model. Factors that cancel in the ratio of
    the sums keep the features in range: for a query, its largest feature; for the keys, M_i, the largest logarithm of
    a feature of the keys up to i. (A maximum over all keys would depend on later ones.)

    Args:
        config, layer_idx, kind, is_causal, gain: see ``VaswaniAttention``.
        features: m.
        redraw: number of forward passes in training after which the directions are drawn again; 0 keeps them.

    Raises:
        ValueError: an option is out of range, or the configuration names a score or a distribution.
    """

    def __init__(
        self,
        config: LayersConfig,
        layer_idx: int,
        kind: str,
        is_causal: bool,
        gain: float,
        *,
        features: int = 256,
        redraw: int = 1000,
    ) -> None:
        super().__init__(config, layer_idx, kind, is_causal, gain)
        self.hold_directions(redraw, features=features)

    def drawn(self) -> torch.Tensor:
        number, width = self.directions.shape
        return orthogonal_directions(number, width, widen(self.directions).dtype)

    def features(
        self, query: torch.Tensor, key: torch.Tensor, real: torch.Tensor | None, last_scale: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        # A copy, so that drawing others leaves the graph of this pass unchanged.
        directions = self.directions.to(query.dtype, copy=True)
        query, key = (log_features(heads * self.head_dim**-0.25, directions) for heads in (query, key))
        if real is not None:
            key = key.masked_fill(~real[..., None], -torch.inf)
        largest = key.detach().amax(-1).clamp(min=torch.finfo(key.dtype).min)  # finite if all are padding
        if self.is_causal:
            before = largest[..., :0] if last_scale is None else last_scale
            scale = torch.cat([before, largest], -1).cummax(-1).values[..., before.shape[-1] :]
        else:
            scale = largest.amax(-1, keepdim=True).expand_as(largest)
        return (query - query.detach().amax(-1, keepdim=True)).exp(), (key - scale[..., None]).exp(), scale
