"""Attention as mathematics: ``attend`` and every score, distribution and pattern, by name and as modules.

The code lives in ``hfattn.models``, so that it ships with the models that use it.
"""

from .models.attention import Attention, attend
from .models.attention_distributions import DISTRIBUTIONS
from .models.attention_scores import SCORES

__all__ = ["DISTRIBUTIONS", "SCORES", "Attention", "attend"]
