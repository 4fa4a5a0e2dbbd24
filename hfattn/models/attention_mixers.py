"""Patterns of an encoder that exchange information between positions without comparing all pairs of them.

Their output depends on the number of tokens, but not on padding: the tokens of a row are moved to its front first. No
matrix of weights (T, S) exists, so a layer returns weights of zero heads, which keep its place among the layers.

Shapes: B batch, T positions, H hidden width, h heads, d width of a head, k rank.
"""

import math
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.cache_utils import Cache

from .attention_distributions import Softmax
from .attention_scoreless import ScorelessMixer
from .attention_scores import Location, Parametric
from .configuration_layers import LayersConfig
from .modeling_vaswani import VaswaniAttention, check_whole, projection
from .score_kernels import widen
from .strict_config import unknown_message

SHARED = ("none", "headwise", "kv", "layerwise")


def fourier(inputs: torch.Tensor, real: torch.Tensor | None = None) -> torch.Tensor:
    """Re(F_T x F_H), the discrete Fourier transform of both dimensions (Lee-Thorp et al. 2021, section 3).

    The transform of a row has the length of its tokens.

    Args:
        inputs: (B, T, H); half precision is computed in float32.
        real: (B, T), True at tokens; by default, all are.

    Returns:
        (B, T, H), zero at padding.
    """
    if inputs.shape[-2] == 0:
        return inputs
    features = widen(inputs)
    if real is None:
        return torch.fft.fft2(features).real.to(inputs.dtype)
    one_by_one = inputs.device.type == "cpu" and not torch.compiler.is_compiling()
    transform = _fourier_by_length if one_by_one else _fourier_at_once
    return from_front(transform(to_front(features, real), real.sum(-1)), real).to(inputs.dtype)


def _fourier_by_length(features: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Transform the first ``lengths`` (B,) vectors of each row, one length after the other.

    It is several times faster than ``_fourier_at_once`` on a CPU. An accelerator would wait for the lengths.
    """
    outputs = torch.zeros_like(features)
    for length in filter(None, lengths.unique().tolist()):
        rows = lengths == length
        outputs[rows, :length] = torch.fft.fft2(features[rows, :length]).real
    return outputs


def _fourier_at_once(features: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Transform the first ``lengths`` (B,) vectors of each row; the rest are zeros.

    By 2 n k = n² + k² - (k - n)², a transform of length N is a convolution with exp(iπ m² / N) (Bluestein 1970), and
    convolutions of all rows can have one length. Complex numbers are pairs, because products of complex numbers cannot
    be exported to ONNX.
    """
    num_steps = features.shape[-2]
    lengths = lengths.clamp(min=1)[:, None, None]
    steps = torch.arange(2 * num_steps, device=features.device)[:, None]
    differences = torch.minimum(steps, 2 * num_steps - steps)  # |k - n| modulo 2T
    angles = torch.pi / lengths.to(features.dtype) * (differences.square() % (2 * lengths))
    chirp = torch.stack((angles.cos(), angles.sin()), dim=-1)  # (B, 2T, 1, 2)
    conjugate = torch.stack((angles.cos(), -angles.sin()), dim=-1)[:, :num_steps]
    product = _product(torch.view_as_real(torch.fft.fft(features)), conjugate)  # (B, T, H, 2)
    product = nn.functional.pad(product, (0, 0, 0, 0, 0, num_steps))
    convolved = _transformed(_product(_transformed(product), _transformed(chirp)), inverse=True)
    return _product(convolved[:, :num_steps], conjugate)[..., 0]


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Multiply complex numbers (..., 2)."""
    (a, b), (c, d) = left.unbind(-1), right.unbind(-1)
    return torch.stack((a * c - b * d, a * d + b * c), dim=-1)


def _transformed(pairs: torch.Tensor, inverse: bool = False) -> torch.Tensor:
    """Return the Fourier transform of (B, T, H, 2) over T."""
    numbers = torch.view_as_complex(pairs)
    return torch.view_as_real(torch.fft.ifft(numbers, dim=1) if inverse else torch.fft.fft(numbers, dim=1))


def to_front(tensor: torch.Tensor, real: torch.Tensor, length: int | None = None) -> torch.Tensor:
    """Move the tokens of (B, ..., T, width) to the front of their row, in their order; the rest are zeros.

    Args:
        real: (B, T), True at tokens.
        length: number of positions of the result, at least that of the tokens; default T.
    """
    length = tensor.shape[-2] if length is None else length
    # Padding goes to row 0, which is cut off.
    front = tensor.new_zeros(*tensor.shape[:-2], length + 1, tensor.shape[-1])
    return front.scatter(-2, _places(tensor, real), tensor)[..., 1:, :]


def from_front(tensor: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """Undo ``to_front``; padding becomes zero."""
    return nn.functional.pad(tensor, (0, 0, 1, 0)).gather(-2, _places(tensor, real))


def _places(tensor: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """Return 1, 2, ... at the tokens and 0 at padding, in the shape of ``tensor`` (B, ..., T, width)."""
    places = real.long().cumsum(-1) * real  # (B, T)
    return places.view(len(real), *[1] * (tensor.ndim - 3), -1, 1).expand(*tensor.shape[:-2], -1, tensor.shape[-1])


def check_encoder(pattern: str, is_causal: bool) -> None:
    """Check that a layer is one of an encoder.

    Raises:
        ValueError: it is causal.
    """
    if is_causal:
        raise ValueError(
            f"The pattern {pattern!r} mixes every position with later ones, so it is for encoders only; leave it out "
            "of decoder_pattern, or write window."
        )


def no_weights(hidden_states: torch.Tensor) -> torch.Tensor:
    """Return weights of zero heads, (B, 0, T, T)."""
    batch_size, num_steps, _ = hidden_states.shape
    return hidden_states.new_zeros(batch_size, 0, num_steps, num_steps)


class EncoderMixer(ScorelessMixer):
    """Base of the patterns of an encoder that have neither a score nor a distribution.

    Raises:
        ValueError: the layer is causal; also see ``ScorelessMixer``.
    """

    def __init__(self, config: LayersConfig, layer_idx: int, kind: str, is_causal: bool, gain: float) -> None:
        check_encoder(self.pattern, is_causal)
        super().__init__(config, layer_idx, kind, is_causal, gain)


class FourierMixer(EncoderMixer):
    """The pattern "fourier": Fourier transforms instead of attention, without parameters (FNet, Lee-Thorp et al. 2021,
    section 3)."""

    pattern = "fourier"

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Transform (B, T, H), with an ``attention_mask`` (B, T) or None; return it with weights of zero heads."""
        real = None if attention_mask is None else attention_mask.bool()
        return fourier(hidden_states, real), no_weights(hidden_states)


class GlobalVector(Parametric):
    """softmax_i(w · x_i / √d)-weighted sum of the vectors x_i of a head (Wu et al. 2021, eq. 3-4 and 6).

    Parameter: w (h, d).
    """

    w: torch.Tensor

    def __init__(self, num_heads: int, width: int) -> None:
        super().__init__()
        self._parameter("w", num_heads, width)
        self.softmax = Softmax()
        self.initialize_()

    def forward(self, vectors: torch.Tensor, real: torch.Tensor | None, dropout: float = 0.0) -> torch.Tensor:
        """Pool (B, h, T, d), with a boolean mask (B, 1, 1, T) or None, to (B, h, 1, d); zeros if nothing is real."""
        energies = widen(vectors @ self.w[..., None] / math.sqrt(vectors.shape[-1])).transpose(-1, -2)
        weights = self.softmax(energies, real).to(vectors.dtype)  # (B, h, 1, T)
        return nn.functional.dropout(weights, dropout) @ vectors


class FastformerMixer(EncoderMixer):
    """The pattern "fastformer": additive attention to one global query and one global key (Wu et al. 2021, section 3).

        q = Σ α_i q_i,  α = softmax_i(w_q · q_i / √d)
        k = Σ β_i p_i,  β = softmax_i(w_k · p_i / √d),  p_i = q * k_i
        output_i = W (k * v_i) + q_i

    Args:
        config, layer_idx, kind, is_causal, gain: see ``VaswaniAttention``.
        tie_values: use W^Q as W^V, as in the paper.

    Raises:
        ValueError: the heads are not as wide as the model together, or see ``EncoderMixer``.
    """

    pattern = "fastformer"

    def __init__(
        self,
        config: LayersConfig,
        layer_idx: int,
        kind: str,
        is_causal: bool,
        gain: float,
        *,
        tie_values: bool = True,
    ) -> None:
        super().__init__(config, layer_idx, kind, is_causal, gain)
        if not isinstance(tie_values, bool):
            raise ValueError(f"tie_values is {tie_values!r}; write true or false.")
        num_heads, self.head_dim, width = config.num_attention_heads, config.head_width, config.hidden_size
        if config.num_key_value_heads not in (None, num_heads):
            raise ValueError("The pattern 'fastformer' has a key for each head; leave num_key_value_heads out.")
        if num_heads * self.head_dim != width:
            raise ValueError(
                f"The pattern 'fastformer' adds its queries to its output, but {num_heads} heads of width "
                f"{self.head_dim} are not as wide as hidden_size {width}; leave head_dim out."
            )
        self.q_proj = projection(width, width, config.bias)
        self.k_proj = projection(width, width, config.bias)
        if not tie_values:
            self.v_proj = projection(width, width, config.bias, gain)
        self.out_proj = projection(width, width, config.bias, gain)
        self.global_query = GlobalVector(num_heads, self.head_dim)
        self.global_key = GlobalVector(num_heads, self.head_dim)
        self.tie_values = tie_values

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Mix (B, T, H), with an ``attention_mask`` (B, T) or None; return it with weights of zero heads."""
        real = None if attention_mask is None else attention_mask.bool()[:, None, None]
        dropout = float(self.config.attention_dropout) if self.training else 0.0
        queries = self.q_proj(hidden_states)  # (B, T, H)
        values = queries if self.tie_values else self.v_proj(hidden_states)
        query, key, value = (
            projected.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # (B, h, T, d)
            for projected in (queries, self.k_proj(hidden_states), values)
        )
        global_key = self.global_key(self.global_query(query, real, dropout) * key, real, dropout)  # (B, h, 1, d)
        context = (global_key * value).transpose(1, 2).flatten(-2)
        return self.out_proj(context) + queries, no_weights(hidden_states)


class SequenceProjection(Parametric):
    """E of Linformer, which replaces a sequence of n vectors by k: x ↦ E x (Wang et al. 2020, eq. 7).

    Parameter: E (1 or h, k, n_max), for all heads or each of them.
    """

    E: torch.Tensor

    def __init__(self, num_heads: int, rank: int, max_length: int) -> None:
        super().__init__()
        self._parameter("E", num_heads, rank, max_length)
        self.initialize_()

    def initialize_(self) -> None:
        """Initialize each matrix by Glorot & Bengio (2010)."""
        bound = math.sqrt(6 / sum(self.E.shape[1:]))
        init.uniform_(self.E, -bound, bound)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """(B, h, n, d) -> (B, h, k, d), by the first n columns of E."""
        return self.E[..., : vectors.shape[-2]] @ vectors


class LinformerAttention(VaswaniAttention):
    """The pattern "linformer": softmax(Q (E K)ᵀ / √d) (F V), attention to k combinations of the keys (Wang et al. 2020,
    section 4), with any distribution and any score except "location".

    A text of n tokens uses the first n columns of E and F.

    Args:
        config, layer_idx, kind, is_causal, gain: see ``VaswaniAttention``.
        rank: k.
        max_length: n_max, the largest number of tokens.
        share: "none" (each head of keys and values has E and F), "headwise" (the heads of a layer share them), "kv" (F
            is E too) or "layerwise" (as "kv", with one E for all layers).

    Raises:
        ValueError: the layer is causal, an option is out of range, or layers that share E have different options.
    """

    takes_padding_mask = True

    def __init__(
        self,
        config: LayersConfig,
        layer_idx: int,
        kind: str,
        is_causal: bool,
        gain: float,
        *,
        rank: int,
        max_length: int,
        share: str = "headwise",
    ) -> None:
        super().__init__(config, layer_idx, kind, is_causal, gain)
        check_encoder("linformer", is_causal)
        check_whole(1, rank=rank, max_length=max_length)
        if share not in SHARED:
            raise ValueError(unknown_message(str(share), SHARED, "a way to share E and F (share)"))
        if isinstance(self.attention.score, Location):
            raise ValueError(
                "The score 'location' needs the index of each key, and the pattern 'linformer' replaces the keys by "
                "combinations of them; write another score, or another pattern."
            )
        if config.positions == "rotary":
            raise ValueError(
                "The pattern 'linformer' combines keys, which rotary positions rotate by different angles; write "
                "positions: sinusoidal, learned or none."
            )
        if share == "layerwise":
            layers = [config.layer_pattern("encoder", index) for index in range(config.encoder_layers)]
            sharing = [of_layer for name, of_layer in layers if name == "linformer" and of_layer["share"] == share]
            for name, number in {"rank": rank, "max_length": max_length}.items():
                if any(number != of_layer[name] for of_layer in sharing):
                    raise ValueError(
                        f"{name} is {[of_layer[name] for of_layer in sharing]} in the layers that have one E (share: "
                        "layerwise); write one value, or share: kv."
                    )
            self.shared_parameters = ("key_combinations.E",)
        self.max_length = max_length
        num_heads = config.key_value_heads if share == "none" else 1
        self.key_combinations = SequenceProjection(num_heads, rank, max_length)  # E
        self.shares_keys = share in ("kv", "layerwise")
        if not self.shares_keys:
            self.value_combinations = SequenceProjection(num_heads, rank, max_length)  # F

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        key_value_states: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        rotation: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attend from (B, T, H) to combinations of it, with an ``attention_mask`` (B, T) or None.

        Returns:
            (B, T, H), and weights of zero heads, because those of the combinations, (B, h, T, k), are none of tokens.

        Raises:
            ValueError: a text has more than n_max tokens. Where padding exceeds n_max, tokens are counted on the CPU
                only: on an accelerator, this would synchronize with the device, which raises its own error.
        """
        query, key, value = (
            self._heads(project(hidden_states)) for project in (self.q_proj, self.k_proj, self.v_proj)
        )  # (B, h, T, d); keys and values may have fewer heads
        if attention_mask is None:
            self._check_length(hidden_states.shape[1])
        else:
            real = attention_mask.bool()
            length = self.max_length
            if not torch.compiler.is_compiling():
                length = min(hidden_states.shape[1], length)
                if length < hidden_states.shape[1] and real.device.type == "cpu" and len(real) > 0:
                    self._check_length(int(real.sum(-1).max()))
            key, value = to_front(key, real, length), to_front(value, real, length)
        key = self.key_combinations(key)  # (B, h, k, d)
        value = (self.key_combinations if self.shares_keys else self.value_combinations)(value)
        key, value = self.repeated(key, value)
        context, _ = self.attention(
            query, self.attention.prepare(key), value, need_weights=False, dropout=self.weight_dropout
        )
        return self.out_proj(context.to(query.dtype).transpose(1, 2).flatten(-2)), no_weights(hidden_states)

    def _check_length(self, length: int) -> None:
        if length > self.max_length:
            raise ValueError(
                f"A text has {length} tokens and the pattern 'linformer' was made for {self.max_length}; cut it, or "
                f"make the model with max_length {length} in encoder_pattern_options."
            )


__all__: list[str] = []
