"""Transformers' own model tests on stacks whose layers have patterns of self-attention."""

import unittest
from typing import Any

from common_tests import LayersTests
from test_vaswani_common import SIZES

from hfattn import (
    VaswaniConfig,
    VaswaniForCausalLM,
    VaswaniForMaskedLM,
    VaswaniForSequenceClassification,
    VaswaniModel,
)


class PatternTests(LayersTests):
    config_class = VaswaniConfig

    @unittest.skip("patterns compute the context in blocks or from sums; the weights are made beside it")
    def test_retain_grad_hidden_states_attentions(self) -> None: ...


class WithoutWeightsTests(PatternTests):
    """Of patterns without weights, in whose place are those of no head, (B, 0, T, S)."""

    @unittest.skip("the weights are those of no head")
    def test_attention_outputs(self) -> None: ...

    @unittest.skip("upstream takes the largest difference of tensors, and those of no head are empty")
    def test_model_outputs_equivalence(self) -> None: ...


class RandomTests(WithoutWeightsTests):
    """Of patterns of which one has directions that are drawn when a model is made."""

    @unittest.skip("upstream compares the buffers of two models, and these are random")
    def test_init_weights_can_init_buffers(self) -> None: ...


def decoder(*patterns: str, positions: str = "learned", **options: Any) -> dict[str, Any]:
    fields = {"is_encoder_decoder": False, "is_decoder": True, "norm": "pre", "tie_word_embeddings": False}
    pattern = {"decoder_pattern": list(patterns), "decoder_pattern_options": options}
    return {**SIZES, **fields, "positions": positions, **pattern}


def encoder(*patterns: str, **options: Any) -> dict[str, Any]:
    pattern = {"encoder_pattern": list(patterns), "encoder_pattern_options": options}
    return {**SIZES, "is_encoder_decoder": False, "norm": "pre", **pattern}


DECODERS: tuple[type, ...] = (VaswaniModel, VaswaniForCausalLM)
ENCODERS: tuple[type, ...] = (VaswaniModel, VaswaniForMaskedLM, VaswaniForSequenceClassification)


class WindowDecoderTest(PatternTests, unittest.TestCase):
    all_model_classes = DECODERS
    fields = decoder("window", "block_local", window=3, block=3)


class SparseDecoderTest(PatternTests, unittest.TestCase):
    all_model_classes = DECODERS
    fields = decoder("strided", "fixed", stride=3, block=3)


class MemoryDecoderTest(PatternTests, unittest.TestCase):
    all_model_classes = DECODERS
    fields = decoder("memory", "memory", positions="relative_sinusoidal", segment_length=3, memory_length=2)


class SpanDecoderTest(PatternTests, unittest.TestCase):
    all_model_classes = DECODERS
    fields = decoder("adaptive_span", "window", span=4, ramp=2, window=3)

    # Whether a span has a gradient depends on the tokens at its ramp, and upstream compares two steps of training.
    test_training_gradient_checkpointing = None
    test_training_gradient_checkpointing_use_reentrant_false = None
    test_training_gradient_checkpointing_use_reentrant_true = None


class LSHDecoderTest(RandomTests, unittest.TestCase):
    all_model_classes = DECODERS
    fields = decoder("lsh", "full", buckets=4, keys=3)


class KernelDecoderTest(RandomTests, unittest.TestCase):
    all_model_classes = DECODERS
    fields = decoder("linear", "performer", features=8)


class GatedDecoderTest(WithoutWeightsTests, unittest.TestCase):
    all_model_classes = DECODERS
    fields = decoder("gated_linear", "gated_delta")


class WindowEncoderTest(PatternTests, unittest.TestCase):
    all_model_classes = ENCODERS
    fields = encoder("window", "block_local", window=3, block=3)


class SparseEncoderTest(PatternTests, unittest.TestCase):
    all_model_classes = ENCODERS
    fields = encoder("strided", "fixed", stride=3, block=3)


class KernelEncoderTest(RandomTests, unittest.TestCase):
    all_model_classes = ENCODERS
    fields = encoder("linear", "performer", features=8)


class MixerEncoderTest(WithoutWeightsTests, unittest.TestCase):
    all_model_classes = ENCODERS
    fields = encoder("fourier", "fastformer")


class LowRankEncoderTest(WithoutWeightsTests, unittest.TestCase):
    all_model_classes = ENCODERS
    fields = encoder("linformer", "full", rank=4, max_length=64)
