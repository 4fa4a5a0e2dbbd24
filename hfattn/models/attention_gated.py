"""Patterns of a decoder that are recurrences with gates: S stores keys with their values, and forgets.

    gated_linear    S_i = diag(α_i) S_{i-1} + k_i v_iᵀ
    gated_delta     S_i = α_i (I - β_i k_i k_iᵀ) S_{i-1} + β_i k_i v_iᵀ

with the output o_i = S_iᵀ q_i. Steps are computed together in chunks, and a decoder stores only the last S.

A product of gates is the exponential of the sum of their logarithms over the steps between two positions, so it is at
most 1. Each sum is computed from these steps: as a difference of two longer sums, it would be inexact in float32 if a
gate before them is close to 0.

Shapes: B batch, T steps, H hidden width, h heads, g groups of heads that share keys and values, d_k and d_v widths of a
key and a value, C steps of a chunk, n chunks, K steps of a convolution.
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import nn
from transformers import initialization as init
from transformers.cache_utils import Cache, CacheLayerMixin

from .attention_scoreless import ScorelessMixer
from .attention_scores import Parametric
from .cache_recurrent import RecurrentCacheLayer, State
from .configuration_vaswani import VaswaniConfig
from .modeling_vaswani import check_whole, projection
from .score_kernels import full_precision, widen

CHUNK = 64  # steps that are computed together; a power of 2


def in_chunks(tensor: torch.Tensor, chunk: int) -> torch.Tensor:
    """(…, T, width) -> (…, n, C, width), with zeros after the last step."""
    num_chunks = -(-tensor.shape[-2] // chunk)
    padding = num_chunks * chunk - tensor.shape[-2]
    return nn.functional.pad(tensor, (0, 0, 0, padding)).unflatten(-2, (num_chunks, chunk))


def sums_after(tensor: torch.Tensor) -> torch.Tensor:
    """Return Σ_{m > j} x_m for each step j of (…, C, width)."""
    return nn.functional.pad(tensor[..., 1:, :], (0, 0, 0, 1)).flip(-2).cumsum(-2).flip(-2)


def gated_products(query: torch.Tensor, key: torch.Tensor, log_gate: torch.Tensor) -> torch.Tensor:
    """Return q_iᵀ diag(α_{j+1} ⋯ α_i) k_j for j ≤ i, and 0 for j > i, as (…, C, C).

    Queries of the second half are compared with keys of the first half by a matrix product: the gates in between are
    split in the middle. The halves are compared with themselves in the same way.

    Args:
        query, key: (…, C, d_k); C is a power of 2.
        log_gate: log α, (…, C, d_k).
    """
    size = query.shape[-2]
    if size == 1:
        return query @ key.transpose(-1, -2)
    halves = [tensor.unflatten(-2, (2, size // 2)) for tensor in (query, key, log_gate)]
    first, second = gated_products(*halves).unbind(-3)
    (_, later), (earlier, _), (before, after) = (half.unbind(-3) for half in halves)
    key_to_middle = earlier * sums_after(before).exp()
    across = (later * after.cumsum(-2).exp()) @ key_to_middle.transpose(-1, -2)
    rows = torch.cat([first, torch.zeros_like(first)], -1), torch.cat([across, second], -1)
    return torch.cat(rows, -2)


def gated_linear_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    log_gate: torch.Tensor,
    state: torch.Tensor | None,
    chunk: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run S_i = diag(α_i) S_{i-1} + k_i v_iᵀ (Yang et al. 2023, section 4; chunks: section 4.2).

    Args:
        query, key: (…, T, d_k), with at least one step.
        value: (…, T, d_v).
        log_gate: log α, (…, T, d_k).
        state: S_0, (…, d_k, d_v); None is zero.
        chunk: C, a power of 2; it is smaller if there are fewer steps.

    Returns:
        S_iᵀ q_i, (…, T, d_v), and S_T.
    """
    num_steps = query.shape[-2]
    while chunk >= 2 * num_steps:
        chunk //= 2
    if state is None:
        state = value.new_zeros(*key.shape[:-2], key.shape[-1], value.shape[-1])
    query, key, value, log_gate = (in_chunks(tensor, chunk) for tensor in (query, key, value, log_gate))
    within = gated_products(query, key, log_gate) @ value
    updates = (key * sums_after(log_gate).exp()).transpose(-1, -2) @ value  # (…, n, d_k, d_v)
    decays = log_gate.sum(-2).exp()[..., None]  # (…, n, d_k, 1)
    states = [state]
    for decay, update in zip(decays.unbind(-3), updates.unbind(-3), strict=True):
        states.append(decay * states[-1] + update)
    output = within + (query * log_gate.cumsum(-2).exp()) @ torch.stack(states[:-1], -3)
    return output.flatten(-3, -2)[..., :num_steps, :], states[-1]


def gated_delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    log_gate: torch.Tensor,
    rate: torch.Tensor,
    state: torch.Tensor | None,
    chunk: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run S_i = α_i (I - β_i k_i k_iᵀ) S_{i-1} + β_i k_i v_iᵀ (Yang et al. 2024, section 3.1, eq. 10).

    With u_i = β_i (v_i - α_i S_{i-1}ᵀ k_i), it is S_i = α_i S_{i-1} + k_i u_iᵀ, linear attention with other values. The
    u_i of a chunk solve a triangular system, which does not depend on S_0 but for a term that is linear in it: the WY
    form (section 3.3).

    Args:
        query, key: (…, T, d_k), with at least one step; keys have a length of at most 1.
        value: (…, T, d_v).
        log_gate: log α, (…, T, 1).
        rate: β, (…, T, 1).
        state: S_0, (…, d_k, d_v); None is zero.
        chunk: C, a power of 2; it is smaller if there are fewer steps.

    Returns:
        S_iᵀ q_i, (…, T, d_v), and S_T.
    """
    num_steps = query.shape[-2]
    while chunk >= 2 * num_steps:
        chunk //= 2
    if state is None:
        state = value.new_zeros(*key.shape[:-2], key.shape[-1], value.shape[-1])
    query, key, value, log_gate, rate = (in_chunks(tensor, chunk) for tensor in (query, key, value, log_gate, rate))
    gates = log_gate.expand(*log_gate.shape[:-1], chunk).tril(-1).cumsum(-2).exp().tril()  # α_{j+1} ⋯ α_i
    from_start = log_gate.cumsum(-2).exp()  # α_1 ⋯ α_i
    # u_i + β_i Σ_{j < i} α_{j+1} ⋯ α_i (k_i·k_j) u_j = β_i (v_i - α_1 ⋯ α_i S_0ᵀ k_i)
    system = rate * (key @ key.transpose(-1, -2)) * gates
    right = rate * torch.cat([value, from_start * key], -1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    written, read = solved.split([value.shape[-1], key.shape[-1]], -1)  # u = written - read S_0
    products = query @ key.transpose(-1, -2) * gates
    queries, keys = query * from_start, (key * sums_after(log_gate).exp()).transpose(-1, -2)
    decays = log_gate.sum(-2, keepdim=True).exp()
    outputs = []
    parts = (tensor.unbind(-3) for tensor in (written, read, products, queries, keys, decays))
    for w, r, p, q, k, decay in zip(*parts, strict=True):
        update = w - r @ state
        outputs.append(q @ state + p @ update)
        state = decay * state + k @ update
    return torch.cat(outputs, -2)[..., :num_steps, :], state


def short_convolution(
    inputs: torch.Tensor, weight: torch.Tensor, state: torch.Tensor, real: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return Σ_l w_l x_{i-K+1+l}, a causal convolution of each feature over the tokens, without padding between them.

    Args:
        inputs: x, (B, T, width).
        weight: w, (width, K).
        state: the last K - 1 inputs before these, (B, K - 1, width).
        real: (B, T), True at tokens; by default, all are.

    Returns:
        (B, T, width), and the last K - 1 inputs.
    """
    num_steps, num_earlier = inputs.shape[1], weight.shape[1] - 1
    if real is None:
        line = torch.cat([state, inputs], 1)
        last = line[:, num_steps:]
    else:
        number = real.long().cumsum(-1)  # of tokens up to each position
        places = torch.where(real, num_earlier - 1 + number, num_earlier + num_steps)  # padding goes to the end
        line = nn.functional.pad(state, (0, 0, 0, num_steps + 1))
        line = line.scatter(1, places[..., None].expand_as(inputs), inputs)
        places = real.sum(-1, keepdim=True) + torch.arange(num_earlier, device=inputs.device)
        last = line.gather(1, places[..., None].expand_as(state))
    outputs = torch.zeros_like(inputs)
    for lag in range(num_earlier + 1):
        outputs = outputs + weight[:, lag] * line[:, lag : lag + num_steps]
    if real is not None:
        outputs = outputs.gather(1, (number - 1).clamp(min=0)[..., None].expand_as(inputs))
    return outputs, last


class GatedMixer(ScorelessMixer):
    """Base of the patterns of this file: y = (norm(o) * Swish(x W_r)) W_O, with a norm of each head.

    The norm is RMSNorm, as in the authors' code of both patterns. In half precision, the recurrence and the norm are
    computed in float32. Rotary positions, which other layers may have, are not used.

    Args:
        config, layer_idx, kind, is_causal, gain: see ``VaswaniAttention``. With ``num_key_value_heads``, the heads of a
            group share S.
        expand_k, expand_v: d_k and d_v as multiples of ``head_dim``.

    Raises:
        ValueError: the layer is in an encoder, or an option is out of range; also see ``ScorelessMixer``.
    """

    rule: ClassVar[Callable[..., tuple[torch.Tensor, torch.Tensor]]]

    def __init__(
        self,
        config: VaswaniConfig,
        layer_idx: int,
        kind: str,
        is_causal: bool,
        gain: float,
        expand_k: float,
        expand_v: float,
    ) -> None:
        super().__init__(config, layer_idx, kind, is_causal, gain)
        if not is_causal:
            raise ValueError(
                f"The pattern {self.pattern!r} reads a text from left to right, so it is for decoders only; leave it "
                "out of encoder_pattern, or write linear."
            )
        self.key_width = _width("expand_k", expand_k, config.head_width)
        self.value_width = _width("expand_v", expand_v, config.head_width)
        num_heads, self.num_groups = config.num_attention_heads, config.key_value_heads
        self.group_size = num_heads // self.num_groups
        width, bias = config.hidden_size, config.bias
        self.q_proj = projection(width, num_heads * self.key_width, bias)
        self.k_proj = projection(width, self.num_groups * self.key_width, bias)
        self.v_proj = projection(width, self.num_groups * self.value_width, bias)
        self.gate_proj = projection(width, num_heads * self.value_width, bias)
        self.norm = nn.RMSNorm(self.value_width, eps=config.layer_norm_eps)
        self.out_proj = projection(num_heads * self.value_width, width, bias)

    def cache_layer(self) -> CacheLayerMixin:
        return RecurrentCacheLayer()

    def inputs(
        self, hidden_states: torch.Tensor, real: torch.Tensor | None, stored: State
    ) -> tuple[list[torch.Tensor], State]:
        """Return queries, keys, values and gates, and what the cache stores beside S after these steps.

        Args:
            hidden_states: (B, T, H).
            real: (B, T), True at tokens; by default, all are.
            stored: what the cache has beside S; nothing before the first step.

        Returns:
            Queries (B, g, h / g, T, d_k), keys, values and gates (B, g, 1, T, width), not in half precision; those of
            padding are not used.
        """
        raise NotImplementedError

    def heads(self, projected: torch.Tensor, number: int = 1) -> torch.Tensor:
        """(B, T, g number width) -> (B, g, number, T, width), in float32 instead of half precision."""
        return widen(projected).unflatten(-1, (self.num_groups, number, -1)).permute(0, 2, 3, 1, 4)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        implicit_weights: bool = False,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read (B, T, H), with an ``attention_mask`` (B, S) or None, after the steps in the state of the cache.

        Args:
            implicit_weights: compute the a_ij of o_i = Σ_j a_ij v_j, in O(T²). They may be negative, and their sum is
                not 1. Otherwise, the weights are those of no head.

        Returns:
            (B, T, H), and (B, h or 0, T, S).

        Raises:
            ValueError: ``implicit_weights`` needs keys that are no longer stored.
        """
        num_steps = total = hidden_states.shape[1]
        layer = self.cache_of(past_key_values)
        earlier = None if layer is None else layer.state
        if implicit_weights and earlier is not None:
            raise ValueError(
                "implicit_weights needs all keys, and the cache has only their sums; pass the whole text, with "
                "use_cache=False."
            )
        if num_steps == 0:  # texts without a token
            return hidden_states, hidden_states.new_zeros(len(hidden_states), 0, 0, 0)
        real = None if attention_mask is None else attention_mask[:, attention_mask.shape[1] - num_steps :].bool()
        (query, key, value, *gates), stored = self.inputs(hidden_states, real, () if earlier is None else earlier[1:])
        query = query * self.key_width**-0.5
        if real is not None:  # padding leaves S as it is
            visible = real[:, None, None, :, None]
            key, *gates = (tensor * visible for tensor in (key, *gates))
        with full_precision(hidden_states):
            start = None if earlier is None else earlier[0][:, :, None]
            context, state = self.rule(query, key, value, *gates, start, CHUNK)
            context = context.flatten(1, 2).transpose(1, 2)  # (B, T, h, d_v)
            context = nn.functional.rms_norm(context, context.shape[-1:], widen(self.norm.weight), self.norm.eps)
            weights = None
            if implicit_weights:
                identity = torch.eye(num_steps, dtype=value.dtype, device=value.device)
                weights, _ = self.rule(query, key, identity.expand(*key.shape[:-1], -1), *gates, None, CHUNK)
        if layer is not None:
            layer.update((state[:, :, 0], *stored), num_steps)  # S is (B, g, d_k, d_v)
            total = layer.get_seq_length()
        gate = nn.functional.silu(self.gate_proj(hidden_states))
        output = self.out_proj(context.flatten(-2).to(gate.dtype) * gate)
        if weights is None:
            return output, output.new_zeros(len(output), 0, num_steps, total)
        return output, weights.flatten(1, 2).to(output.dtype)


def _width(name: str, factor: float, head_dim: int) -> int:
    """Return a multiple of the width of a head.

    Raises:
        ValueError: it is not a whole number.
    """
    is_number = isinstance(factor, int | float) and not isinstance(factor, bool)
    width = round(factor * head_dim) if is_number else 0
    if width < 1 or abs(width - factor * head_dim) > 1e-6:
        raise ValueError(
            f"{name} is {factor!r} and head_dim {head_dim}; write a number whose product with head_dim is a whole "
            "number of at least 1."
        )
    return width


class GatedLinearMixer(GatedMixer):
    """The pattern "gated_linear" (Gated Linear Attention, Yang et al. 2023, section 4):

        S_i = diag(α_i) S_{i-1} + k_i v_iᵀ,  o_i = S_iᵀ q_i / √d_k

    α_i = sigmoid(x_i W_1 W_2 + b)^{1/τ} has a value for each feature of a key (section 4.4).

    Args:
        config, layer_idx, kind, is_causal, gain, expand_k, expand_v: see ``GatedMixer``.
        gate_low_rank_dim: number of columns of W_1.
        gate_logit_normalizer: τ; a larger one forgets more slowly.

    Raises:
        ValueError: an option is out of range; also see ``GatedMixer``.
    """

    pattern = "gated_linear"
    rule = staticmethod(gated_linear_rule)

    def __init__(
        self,
        config: VaswaniConfig,
        layer_idx: int,
        kind: str,
        is_causal: bool,
        gain: float,
        *,
        expand_k: float = 0.5,
        expand_v: float = 1.0,
        gate_low_rank_dim: int = 16,
        gate_logit_normalizer: float = 16,
    ) -> None:
        super().__init__(config, layer_idx, kind, is_causal, gain, expand_k, expand_v)
        check_whole(1, gate_low_rank_dim=gate_low_rank_dim)
        is_number = isinstance(gate_logit_normalizer, int | float) and not isinstance(gate_logit_normalizer, bool)
        if not is_number or not 0 < gate_logit_normalizer < math.inf:
            raise ValueError(f"gate_logit_normalizer is {gate_logit_normalizer!r}; write a number above 0.")
        self.gate_logit_normalizer = gate_logit_normalizer
        self.forget_in = projection(config.hidden_size, gate_low_rank_dim, bias=False)
        self.forget_out = projection(gate_low_rank_dim, self.num_groups * self.key_width, bias=True)

    def inputs(
        self, hidden_states: torch.Tensor, real: torch.Tensor | None, stored: State
    ) -> tuple[list[torch.Tensor], State]:
        query = self.heads(self.q_proj(hidden_states), self.group_size)
        key, value = self.heads(self.k_proj(hidden_states)), self.heads(self.v_proj(hidden_states))
        logits = self.heads(self.forget_out(self.forget_in(hidden_states)))
        return [query, key, value, nn.functional.logsigmoid(logits) / self.gate_logit_normalizer], ()


class GatedDeltaMixer(GatedMixer, Parametric):
    """The pattern "gated_delta" (Gated DeltaNet, Yang et al. 2024, section 3):

        S_i = α_i (I - β_i k_i k_iᵀ) S_{i-1} + β_i k_i v_iᵀ,  o_i = S_iᵀ q_i / √d_k

    q, k and v are SiLU(convolution(x W)), and q and k are divided by their length (section 3.4). Each head has one
    α_i = exp(-A softplus(x_i w_α + b)), as in Mamba-2 (Dao & Gu 2024), and one β_i = sigmoid(x_i w_β).

    Args:
        config, layer_idx, kind, is_causal, gain, expand_k, expand_v: see ``GatedMixer``.
        conv_size: K, the number of steps of the convolution; 0 leaves it out.

    Raises:
        ValueError: an option is out of range; also see ``GatedMixer``.
    """

    pattern = "gated_delta"
    rule = staticmethod(gated_delta_rule)

    A_log: torch.Tensor
    dt_bias: torch.Tensor
    convolution: torch.Tensor

    def __init__(
        self,
        config: VaswaniConfig,
        layer_idx: int,
        kind: str,
        is_causal: bool,
        gain: float,
        *,
        expand_k: float = 0.75,
        expand_v: float = 1.5,
        conv_size: int = 4,
    ) -> None:
        super().__init__(config, layer_idx, kind, is_causal, gain, expand_k, expand_v)
        check_whole(0, conv_size=conv_size)
        self.forget_proj = projection(config.hidden_size, self.num_groups, bias=False)
        self.rate_proj = projection(config.hidden_size, self.num_groups, bias=False)
        self.conv_size = conv_size
        self._parameter("A_log", self.num_groups)
        self._parameter("dt_bias", self.num_groups)
        if conv_size:
            width = sum(linear.out_features for linear in (self.q_proj, self.k_proj, self.v_proj))
            self._parameter("convolution", width, conv_size)

    def initialize_(self) -> None:
        """Draw A from U(0, 16), softplus(b) log-uniformly from [0.001, 0.1], as in the authors' code, and the
        convolution as ``nn.Conv1d``."""
        number = widen(self.A_log.new_empty(self.num_groups))
        init.copy_(self.A_log, number.uniform_(0, 16).clamp(min=1e-4).log())
        steps = number.uniform_(math.log(0.001), math.log(0.1)).exp()
        init.copy_(self.dt_bias, steps + (-(-steps).expm1()).log())  # softplus of it is the step
        if self.conv_size:
            init.uniform_(self.convolution, -(self.conv_size**-0.5), self.conv_size**-0.5)

    def inputs(
        self, hidden_states: torch.Tensor, real: torch.Tensor | None, stored: State
    ) -> tuple[list[torch.Tensor], State]:
        projected = [project(hidden_states) for project in (self.q_proj, self.k_proj, self.v_proj)]
        mixed = widen(torch.cat(projected, -1))
        if self.conv_size:
            before = stored[0] if stored else mixed.new_zeros(len(mixed), self.conv_size - 1, mixed.shape[-1])
            mixed, last = short_convolution(mixed, widen(self.convolution), before, real)
            stored = (last,)
        parts = nn.functional.silu(mixed).split([tensor.shape[-1] for tensor in projected], -1)
        query, key, value = (self.heads(*each) for each in zip(parts, (self.group_size, 1, 1), strict=True))
        query, key = (tensor * (tensor.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for tensor in (query, key))
        bias, A_log = (widen(parameter)[:, None, None, None] for parameter in (self.dt_bias, self.A_log))
        log_gate = -A_log.exp() * nn.functional.softplus(self.heads(self.forget_proj(hidden_states)) + bias)
        return [query, key, value, log_gate, self.heads(self.rate_proj(hidden_states)).sigmoid()], stored


__all__: list[str] = []
