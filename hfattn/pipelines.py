"""The pipeline task "attn-translation" for any encoder-decoder model of transformers.

The models of this package bring it along; for another one, importing this module registers the task.
"""

from .models.pipeline_attn_translation import AttnTranslationPipeline

__all__ = ["AttnTranslationPipeline"]
