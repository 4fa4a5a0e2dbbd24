"""Classical text classification as a baseline: counts or vectors of words, and a linear classifier.

Built on scikit-learn, gensim, snowballstemmer, simplemma and stop-words (``pip install 'hfattn[baselines]'``), which
are imported only when needed.
"""

from .classifier import BaselineClassifier, ClassifierConfig
from .cleaning import Cleaner, CleaningConfig
from .counts import Counts, FeaturesConfig
from .vectors import TextVectors, VectorsConfig

__all__ = [
    "BaselineClassifier",
    "ClassifierConfig",
    "Cleaner",
    "CleaningConfig",
    "Counts",
    "FeaturesConfig",
    "TextVectors",
    "VectorsConfig",
]
