"""All claims by name, in the order of the page."""

from . import (
    cells,
    direction,
    extrapolation,
    fixed_context,
    forgetting,
    multi30k,
    padding,
    parallel,
    sparsity,
    stateful,
    transformers_training,
    widths,
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
}
