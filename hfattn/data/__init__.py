"""From a text to batches, in constant memory."""

from .batches import PermutationSampler, Streams, Windows
from .text import EncodedText, Text, check_split, encode_text, open_text, split_positions

__all__ = [
    "EncodedText",
    "PermutationSampler",
    "Streams",
    "Text",
    "Windows",
    "check_split",
    "encode_text",
    "open_text",
    "split_positions",
]
