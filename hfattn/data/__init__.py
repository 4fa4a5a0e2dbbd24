"""From texts, labelled texts and pairs of texts to batches."""

from .batches import PermutationSampler, Streams, TokenBatches, Windows, padding_share
from .dates import DATES, PARTS, date_pairs
from .documents import Document, Documents, read_documents
from .fitting import FittedTexts, WindowCollator, mean_of_windows
from .labelled import EncodedTexts, Labelled, LabelledTexts, read_labelled, split_labelled, unlabelled
from .labelled_parts import LabelledDataConfig
from .masking import MaskedTexts, Masking
from .next_sentence import SentencePairs, split_sentences
from .pairs import EncodedPairs, Pair, Pairs, read_pairs, split_pairs
from .reber import REBER, REBER_PARTS, is_embedded_reber, reber_texts
from .reviews import REVIEWS_ES, reviews_es
from .rows import Row, Rows, is_local, open_rows, source_of_part
from .text import EncodedText, Text, check_split, encode_text, open_text, split_positions
from .vectors import Coverage, load_embeddings

__all__ = [
    "DATES",
    "PARTS",
    "REBER",
    "REBER_PARTS",
    "REVIEWS_ES",
    "Coverage",
    "Document",
    "Documents",
    "EncodedPairs",
    "EncodedText",
    "EncodedTexts",
    "FittedTexts",
    "Labelled",
    "LabelledDataConfig",
    "LabelledTexts",
    "MaskedTexts",
    "Masking",
    "Pair",
    "Pairs",
    "PermutationSampler",
    "Row",
    "Rows",
    "SentencePairs",
    "Streams",
    "Text",
    "TokenBatches",
    "WindowCollator",
    "Windows",
    "check_split",
    "date_pairs",
    "encode_text",
    "is_embedded_reber",
    "is_local",
    "load_embeddings",
    "mean_of_windows",
    "open_rows",
    "open_text",
    "padding_share",
    "read_documents",
    "read_labelled",
    "read_pairs",
    "reber_texts",
    "reviews_es",
    "source_of_part",
    "split_labelled",
    "split_pairs",
    "split_positions",
    "split_sentences",
    "unlabelled",
]
