"""What a model attended to: records of its attention, and pictures of them."""

from ..models.alignment import AttentionRecord, alignment

__all__ = ["AttentionRecord", "alignment"]
