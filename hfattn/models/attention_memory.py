"""The pattern "memory": segments of a text that see the states of earlier ones (Dai et al. 2019, section 3.2).

Shapes: see ``attention_windows.py``; B batch, H hidden width.
"""

import torch
from transformers.cache_utils import Cache

from .attention_windows import Layout, LayoutAttention, RingLayer
from .configuration_vaswani import VaswaniConfig
from .modeling_vaswani import check_whole


class Segments(Layout):
    """Query i sees the keys of its segment of T positions and the M keys before the segment.

    If it is not causal, it sees the whole segment.

    Args:
        segment_length: T. The first segment begins at the first token.
        memory_length: M.
    """

    def __init__(self, *, segment_length: int, memory_length: int) -> None:
        check_whole(1, segment_length=segment_length, memory_length=memory_length)
        self.block = self.alignment = segment_length
        self.before = memory_length

    def sees(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        starts = queries.div(self.block, rounding_mode="floor") * self.block
        return (keys >= starts - self.before) & (keys < starts + self.block)


class MemoryLayer(RingLayer):
    """Cache of the last keys and values or, in training, of the states (B, 1, S, H) that they are computed from.

    Args:
        number: how many.

    Attributes:
        has_states: whether it has states; None if it is empty.
    """

    has_states: bool | None = None

    def check_mode(self, training: bool) -> None:
        """Check that it was not filled in the other mode.

        Raises:
            ValueError: it was.
        """
        if self.has_states not in (None, training):
            modes = ("training", "evaluation") if training else ("evaluation", "training")
            raise ValueError(
                f"The model is in {modes[0]} mode, and past_key_values was filled in {modes[1]} mode; begin with an "
                "empty cache."
            )
        self.has_states = training

    def reset(self) -> None:
        super().reset()
        self.has_states = None


class MemoryAttention(LayoutAttention):
    """The pattern "memory"; for its options, see ``Segments``.

    A cache stores the last M + T - 1 keys and values, the most that a query needs. In training it stores states without
    their graph instead, and keys and values are computed from them again: as in the paper, gradients reach W^K and W^V
    through the memory, but no earlier pass.

    Raises:
        ValueError: the layer belongs to an encoder, positions are learned or rotary, or an option is out of range.
    """

    layout = Segments

    def __init__(
        self,
        config: VaswaniConfig,
        layer_idx: int,
        kind: str,
        is_causal: bool,
        gain: float,
        *,
        segment_length: int,
        memory_length: int,
    ) -> None:
        super().__init__(
            config,
            layer_idx,
            kind,
            is_causal,
            gain,
            segment_length=segment_length,
            memory_length=memory_length,
        )
        if not is_causal:
            raise ValueError(
                "The pattern 'memory' passes states from one segment to the next, so it is for decoders only; leave it "
                "out of encoder_pattern, or write window."
            )
        if config.positions in ("learned", "rotary"):
            reason = "end" if config.positions == "learned" else "are part of the keys, which training computes again"
            raise ValueError(
                f"The pattern 'memory' reads texts of any length, and {config.positions} positions {reason}; write "
                "positions: relative_sinusoidal."
            )

    def cache_layer(self) -> MemoryLayer:
        return MemoryLayer(max(layout.before + layout.alignment - 1 for layout, _ in self.layouts))

    def _keys_and_values(
        self,
        hidden_states: torch.Tensor,
        key_value_states: torch.Tensor | None,
        past_key_values: Cache | None,
        rotation: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return those of the cached and the current steps."""
        layer = self.cache_of(past_key_values)
        if layer is None:
            return super()._keys_and_values(hidden_states, None, None, None)
        assert isinstance(layer, MemoryLayer)  # the stack has checked it
        layer.check_mode(self.training)
        if not self.training:
            return super()._keys_and_values(hidden_states, None, past_key_values, None)
        current = hidden_states.detach()[:, None]  # (B, 1, T, H)
        states, _ = layer.update(current, current[..., :0])
        num_earlier = states.shape[-2] - hidden_states.shape[1]
        states = torch.cat([states[:, 0, :num_earlier], hidden_states], dim=1)
        return super()._keys_and_values(states, None, None, None)


__all__ = ["Segments"]
