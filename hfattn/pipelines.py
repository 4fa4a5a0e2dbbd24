"""The pipeline task "attn-translation" for any encoder-decoder model of transformers.

Saved models of this package include it; for other models, importing this module registers the task.
"""

from .models.pipeline_attn_translation import AttnTranslationPipeline

__all__ = ["AttnTranslationPipeline"]
