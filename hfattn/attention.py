"""Attention as mathematics: ``attend`` and every score, distribution and pattern, by name and as modules.

What the models use is defined in ``hfattn.models``, so that it is saved with them.
"""

from . import attention_patterns
from .attention_patterns import *  # noqa: F403
from .models import attention, attention_distributions, attention_scores
from .models import attention_patterns as model_patterns
from .models.attention import *  # noqa: F403
from .models.attention_distributions import *  # noqa: F403
from .models.attention_patterns import *  # noqa: F403
from .models.attention_scores import *  # noqa: F403

__all__ = sorted(
    attention.__all__
    + attention_distributions.__all__
    + attention_patterns.__all__
    + attention_scores.__all__
    + model_patterns.__all__
)
