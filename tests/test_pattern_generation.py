"""Generation with the patterns of attention, against literal loops."""

from collections.abc import Callable
from typing import Any

import pytest
from generation_tests import GenerationTests, sharpen
from test_vaswani import make

from hfattn import VaswaniForCausalLM

# Every pattern of a decoder is in one of the models.
MIXTURES: dict[str, dict[str, Any]] = {
    "windows": {
        "decoder_pattern": ["window", "block_local", "adaptive_span"],
        "decoder_pattern_options": {"window": 3, "block": 2, "span": 6, "ramp": 2},
    },
    "sparse": {
        "decoder_pattern": ["strided", "fixed", "lsh"],
        "decoder_pattern_options": {"stride": 3, "block": 4, "buckets": 4, "keys": 3},
    },
    "states": {
        "decoder_pattern": ["linear", "performer", "gated_linear", "gated_delta"],
        "decoder_pattern_options": {"features": 8},
    },
    "memory": {
        "decoder_pattern": ["memory", "full"],
        "decoder_pattern_options": {"segment_length": 3, "memory_length": 4},
        "positions": "relative_sinusoidal",
    },
}


class TestPatternGeneration(GenerationTests):
    @pytest.fixture(params=MIXTURES.values(), ids=list(MIXTURES))
    def make(self, request: pytest.FixtureRequest) -> Callable[..., Any]:
        layers = len(request.param["decoder_pattern"])
        mixture = {**request.param, "decoder_layers": layers, "vocab_size": 12}
        return lambda **fields: sharpen(make(VaswaniForCausalLM, **{**mixture, **fields}), 3)
