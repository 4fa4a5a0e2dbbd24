"""Text classification as a baseline: counts, word vectors or features of a frozen encoder, and a linear classifier.

Built on scikit-learn, gensim, snowballstemmer, simplemma and stop-words (``pip install 'hfattn[baselines]'``), which
are imported only when needed.
"""

from .classifier import BaselineClassifier, ClassifierConfig
from .cleaning import Cleaner, CleaningConfig
from .counts import Counts, FeaturesConfig
from .encoder import EncoderConfig, EncoderFeatures
from .vectors import TextVectors, VectorsConfig
from .words import analogy_scores, load_words, nearest_words, neighbours

__all__ = [
    "BaselineClassifier",
    "ClassifierConfig",
    "Cleaner",
    "CleaningConfig",
    "Counts",
    "EncoderConfig",
    "EncoderFeatures",
    "FeaturesConfig",
    "TextVectors",
    "VectorsConfig",
    "analogy_scores",
    "load_words",
    "nearest_words",
    "neighbours",
]
