"""Classical text classification beside the neural models: words, counted or as vectors, and a linear classifier.

scikit-learn, gensim, snowballstemmer, simplemma and stop-words do the work (``pip install 'hfattn[baselines]'``), each
imported where it is needed.
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
