"""Cache of the recurrent models, and of attention that is computed as a recurrence, returned as ``past_key_values``.

Unlike an attention cache, a recurrent cache does not grow with the text: it stores the last state of each layer, so a
step takes the same time and memory at any position.
"""

from collections.abc import Callable
from typing import Any

import torch
from transformers import GenerationMixin
from transformers.cache_utils import Cache, CacheLayerMixin

State = tuple[torch.Tensor, ...]


class RecurrentCacheLayer(CacheLayerMixin):
    """State of one recurrent layer: a tuple of tensors (B, H), ``(h,)`` for Elman and GRU, ``(h, c)`` for LSTM; for
    attention, the sums over the earlier keys.

    The batch is dimension 0, as beam search and ``num_return_sequences`` expect.
    """

    is_sliding = True  # the mask of all pairs, for other layers of the model, is not made from the length of this one

    def __init__(self) -> None:
        super().__init__()
        self.state: State | None = None
        self.seq_length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Do nothing: before the first step there is no state to allocate."""

    def update(self, state: State, num_steps: int) -> State:
        """Replace the state with the state after ``num_steps`` more steps."""
        self.state = state
        self.seq_length += num_steps
        self.is_initialized = True
        return state

    def restore(self, state: State, num_steps: int) -> None:
        """Set the ``state`` of an empty cache, after a number of steps."""
        self.update(state, num_steps)

    def get_seq_length(self) -> int:
        return self.seq_length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.seq_length + query_length, 0

    def get_max_length(self) -> int:
        return -1

    def _apply(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        if self.state is not None:
            self.state = tuple(function(tensor) for tensor in self.state)

    def reset(self) -> None:
        self.state, self.seq_length, self.is_initialized = None, 0, False

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        self._apply(lambda tensor: tensor.index_select(0, beam_idx.to(tensor.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._apply(lambda tensor: tensor.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        self._apply(lambda tensor: tensor[indices])

    def detach(self) -> None:
        self._apply(torch.Tensor.detach)

    def crop(self, tokens_to_remove: int) -> None:
        """Raise an error: a recurrent state cannot be shortened, because earlier states are not stored."""
        raise ValueError(
            "A recurrent cache cannot be cropped because it stores the last state only; run the model on the shorter "
            "text, and leave assistant_model and prompt_lookup_num_tokens out of generate()."
        )


class RecurrentCache(Cache):
    """The states of all layers of a recurrent model and, for a decoder, the prepared keys of its attention.

    Args:
        num_hidden_layers: number of recurrent layers.

    Attributes:
        source: tensors (B, ...) computed once per source, the prepared keys of an attention; empty before the first
            step and without attention. All hypotheses of a beam have the same source, so reordering does not change it.
    """

    def __init__(self, num_hidden_layers: int) -> None:
        super().__init__(layers=[RecurrentCacheLayer() for _ in range(num_hidden_layers)])
        self.source: tuple[torch.Tensor, ...] = ()

    def get_state(self, layer_idx: int) -> State | None:
        """Return the state of layer ``layer_idx``, or None before the first step."""
        return self.layers[layer_idx].state

    def update_state(self, state: State, layer_idx: int, num_steps: int) -> None:
        """Store the state of layer ``layer_idx`` after ``num_steps`` more steps."""
        self.layers[layer_idx].update(state, num_steps)

    def reset(self) -> None:
        super().reset()
        self.source = ()

    def batch_repeat_interleave(self, repeats: int) -> None:
        super().batch_repeat_interleave(repeats)
        self.source = tuple(tensor.repeat_interleave(repeats, dim=0) for tensor in self.source)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        super().batch_select_indices(indices)
        self.source = tuple(tensor[indices] for tensor in self.source)

    def detach(self) -> "RecurrentCache":
        """Detach the states from the graph (truncated backpropagation through time), and return the cache."""
        for layer in self.layers:
            layer.detach()
        self.source = tuple(tensor.detach() for tensor in self.source)
        return self


def check_recurrent(cache: Any) -> None:
    """Check that ``past_key_values`` is a recurrent cache.

    Raises:
        ValueError: it is a cache of keys and values, such as that of prefix tuning.
    """
    if not isinstance(cache, RecurrentCache):
        raise ValueError(
            f"past_key_values is a {type(cache).__name__}, and a recurrent model has no keys; pass a RecurrentCache."
        )


class RecurrentGenerationMixin(GenerationMixin):
    """``generate()`` with a recurrent cache.

    Attributes:
        num_cache_layers: number of layers of the cache, set by the model.
    """

    num_cache_layers: int

    def empty_cache(self) -> RecurrentCache:
        """Return the cache of no steps."""
        return RecurrentCache(self.num_cache_layers)

    def _prepare_cache_for_generation(
        self,
        generation_config: Any,
        model_kwargs: dict[str, Any],
        generation_mode: Any,
        batch_size: int,
        max_cache_length: int,
    ) -> None:
        if generation_config.cache_implementation is not None:
            raise ValueError(
                f"cache_implementation={generation_config.cache_implementation!r} is for models with self-attention; "
                "remove it for a recurrent model."
            )
        cache = model_kwargs.get("past_key_values")
        if cache is None:
            if generation_config.use_cache is not False:
                model_kwargs["past_key_values"] = self.empty_cache()
            return
        check_recurrent(cache)
        state = cache.get_state(0)
        rows = max(generation_config.num_beams, generation_config.num_return_sequences)
        if rows > 1 and state is not None and state[0].shape[0] == batch_size:
            cache.batch_repeat_interleave(rows)  # as generate() repeats the texts


__all__ = ["RecurrentCache", "RecurrentCacheLayer", "RecurrentGenerationMixin", "check_recurrent"]
