"""Random vectors of an attention, which are saved with the model and drawn again in training."""

import torch
from transformers import initialization as init

from .attention_scores import Parametric
from .modeling_vaswani import check_whole


class RandomDirections(Parametric):
    """Mixin for a self-attention with random directions; it comes before ``VaswaniAttention`` among the base classes.

    Attributes:
        directions: the vectors, (..., d).
        passes: forward passes in training with these directions.
    """

    head_dim: int
    directions: torch.Tensor
    passes: torch.Tensor

    def hold_directions(self, redraw: int, **sizes: int) -> None:
        """Make room for directions of width d, of the shape that the sizes have in their order.

        Args:
            redraw: number of forward passes in training after which the directions are drawn again; 0 keeps them.
            sizes: numbers of directions, by the names of the options.

        Raises:
            ValueError: a number is out of range.
        """
        check_whole(1, **sizes)
        check_whole(0, redraw=redraw)
        self.redraw = redraw
        self.register_buffer("directions", torch.empty(*sizes.values(), self.head_dim))
        self.register_buffer("passes", torch.zeros((), dtype=torch.long))

    def drawn(self) -> torch.Tensor:
        """Return random directions, of the shape of ``directions``."""
        raise NotImplementedError

    def initialize_(self) -> None:
        """Draw directions, if they were not loaded from a checkpoint."""
        init.copy_(self.directions, self.drawn().to(self.directions))
        init.zeros_(self.passes)

    def start_pass(self) -> None:
        """Count a pass in training. Gradient checkpointing runs a layer twice in one."""
        if self.training and self.redraw:
            self._count_pass()

    @torch.compiler.disable
    def _count_pass(self) -> None:
        if self.passes >= self.redraw:
            self.directions.copy_(self.drawn())
            self.passes.zero_()
        self.passes += 1


__all__: list[str] = []
