"""Single steps of the recurrent decoder of translators and captioners, for generation.

Shapes: B sources, k hypotheses of each, N = B k rows, S source length, D embedding width, H hidden width, C width of an
annotation, V vocabulary size.
"""

import torch
from torch import nn

from .attention_local import LocalMonotonic
from .cache_recurrent import RecurrentCache
from .fast_generation import LeanLinear, unhooked
from .recurrent_decoder import BahdanauDecoder, Source
from .recurrent_steps import RecurrentSteps, are_plain, cells_of


def lean_reason(decoder: BahdanauDecoder) -> str | None:
    """Return why a decoder cannot take lean steps, in a few words, or None if it can."""
    if not unhooked(decoder, *decoder.layers, *cells_of(decoder.layers)):
        return "a module of the decoder has hooks"
    return None if are_plain(decoder.layers) else "a cell has adapters"


class DecoderSteps(RecurrentSteps):
    """One step of the decoder, as in ``BahdanauDecoder.step``; the hypotheses of a source share its keys and values.

    Args:
        decoder: the decoder.
        output: the output layer.
        cache: its cache after the prompt.
        annotations: (N, S, C), the values.
        source_mask: (N, S), 0 at padding, or None.
        num_beams: k.
    """

    def __init__(
        self,
        decoder: BahdanauDecoder,
        output: nn.Module,
        cache: RecurrentCache,
        annotations: torch.Tensor,
        source_mask: torch.Tensor | None,
        num_beams: int,
    ) -> None:
        super().__init__(cache, cells_of(decoder.layers))
        self.decoder, self.output, self.num_beams = decoder, LeanLinear(output), num_beams
        mask = None if source_mask is None else source_mask[::num_beams].bool()
        if mask is not None and mask.all():
            mask = None
        if mask is None and decoder.window is not None:
            mask = annotations.new_ones(annotations[::num_beams].shape[:2], dtype=torch.bool)
        self.source = Source(annotations[::num_beams], tuple(keys[::num_beams] for keys in cache.source), mask)
        self.position = cache.get_seq_length()

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        decoder, context = self.decoder, None
        embedded = decoder.embed_tokens(tokens[:, None])[:, 0]  # (N, D)
        read = embedded
        if decoder.attends_before:
            context = self._attend(self.states[-1][0])
            read = torch.cat([embedded, context], dim=-1)
        elif decoder.input_feeding:
            read = torch.cat([embedded, self.states[-1][0]], dim=-1)
        state = self.advance(self.projects[0](read))  # (N, H)
        if decoder.attends and not decoder.attends_before:
            context = self._attend(state)
        output = decoder._output(state, embedded, context)
        if decoder.input_feeding:
            self.states[-1] = (output,)
        self.position += 1
        return self.output(output)

    def _attend(self, query: torch.Tensor) -> torch.Tensor:
        """Return the context (N, C) of queries (N, H)."""
        grouped = query.unflatten(0, (-1, self.num_beams))  # (B, k, H)
        position: int | torch.Tensor = self.position
        if isinstance(self.decoder.window, LocalMonotonic):  # all hypotheses are at the same position
            position = torch.full(grouped.shape[:2], self.position, device=query.device)
        return self.decoder._attend(grouped, self.source, position, need_weights=False)[0].flatten(0, 1)


__all__ = ["DecoderSteps", "lean_reason"]
