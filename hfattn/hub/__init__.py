"""What a published repository holds beside the model."""

from .card import write_card

__all__ = ["write_card"]
