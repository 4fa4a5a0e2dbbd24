"""All claims by name, in the order of the page."""

from . import (
    cells,
    direction,
    efficient_attention,
    extrapolation,
    fixed_context,
    forgetting,
    hashing_rounds,
    multi30k,
    padding,
    parallel,
    random_features,
    sparsity,
    stateful,
    transformer_xl,
    transformers_training,
    widths,
    window_sizes,
)
from .claim import Claim

CLAIMS: dict[str, Claim] = {
    "fixed_context": fixed_context.CLAIM,
    "forgetting": forgetting.CLAIM,
    "cells": cells.CLAIM,
    "direction": direction.CLAIM,
    "stateful": stateful.CLAIM,
    "padding": padding.CLAIM,
    **transformers_training.CLAIMS,
    "parallel": parallel.CLAIM,
    "sparsity": sparsity.CLAIM,
    "widths": widths.CLAIM,
    "extrapolation": extrapolation.CLAIM,
    **multi30k.CLAIMS,
    **efficient_attention.CLAIMS,
    "random_features": random_features.CLAIM,
    "window_sizes": window_sizes.CLAIM,
    **transformer_xl.CLAIMS,
    "hashing_rounds": hashing_rounds.CLAIM,
}
