"""Attention as mathematics: ``attend`` and every score, distribution and pattern, by name and as modules.

The code lives in ``hfattn.models``, so that it ships with the models that use it.
"""

from .models import attention, attention_distributions, attention_patterns, attention_scores
from .models.attention import *  # noqa: F403
from .models.attention_distributions import *  # noqa: F403
from .models.attention_patterns import *  # noqa: F403
from .models.attention_scores import *  # noqa: F403

__all__ = sorted(
    attention.__all__ + attention_distributions.__all__ + attention_patterns.__all__ + attention_scores.__all__
)
