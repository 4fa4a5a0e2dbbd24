"""From texts, labelled texts and pairs of texts to batches."""

from .batches import PermutationSampler, Streams, TokenBatches, Windows, padding_share
from .dates import DATES, PARTS, date_pairs
from .labelled import EncodedTexts, Labelled, LabelledTexts, read_labelled, split_labelled
from .pairs import EncodedPairs, Pair, Pairs, read_pairs, split_pairs
from .reber import REBER, REBER_PARTS, is_embedded_reber, reber_texts
from .rows import Row, Rows, is_local, open_rows
from .text import EncodedText, Text, check_split, encode_text, open_text, split_positions
from .vectors import Coverage, load_embeddings

__all__ = [
    "DATES",
    "PARTS",
    "REBER",
    "REBER_PARTS",
    "Coverage",
    "EncodedPairs",
    "EncodedText",
    "EncodedTexts",
    "Labelled",
    "LabelledTexts",
    "Pair",
    "Pairs",
    "PermutationSampler",
    "Row",
    "Rows",
    "Streams",
    "Text",
    "TokenBatches",
    "Windows",
    "check_split",
    "date_pairs",
    "encode_text",
    "is_embedded_reber",
    "is_local",
    "load_embeddings",
    "open_rows",
    "open_text",
    "padding_share",
    "read_labelled",
    "read_pairs",
    "reber_texts",
    "split_labelled",
    "split_pairs",
    "split_positions",
]
