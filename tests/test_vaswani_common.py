"""Transformers' own model tests on the Transformer's stacks, together and alone."""

import unittest

from common_tests import (
    HIDDEN_SIZE,
    NUM_HEADS,
    NUM_LAYERS,
    VOCAB_SIZE,
    ConfigTester,
    LayersTests,
    TrainingTesterMixin,
)

from hfattn import (
    VaswaniConfig,
    VaswaniForCausalLM,
    VaswaniForConditionalGeneration,
    VaswaniForMaskedLM,
    VaswaniForSequenceClassification,
    VaswaniModel,
)

SIZES = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": HIDDEN_SIZE,
    "intermediate_size": 37,
    "encoder_layers": NUM_LAYERS,
    "decoder_layers": NUM_LAYERS,
    "num_attention_heads": NUM_HEADS,
}


class VaswaniTests(LayersTests):
    config_class = VaswaniConfig


class EncoderDecoderTest(VaswaniTests, unittest.TestCase):
    all_model_classes = (VaswaniModel, VaswaniForConditionalGeneration)
    is_encoder_decoder = True
    fields = SIZES


class DecoderTest(VaswaniTests, TrainingTesterMixin, unittest.TestCase):
    all_model_classes = (VaswaniModel, VaswaniForCausalLM)
    fields = {
        **SIZES,
        "is_encoder_decoder": False,
        "is_decoder": True,
        "norm": "pre",
        "positions": "learned",
        "tie_word_embeddings": False,
    }


class DecoderClassifierTest(VaswaniTests, unittest.TestCase):
    all_model_classes = (VaswaniForSequenceClassification,)
    fields = {**DecoderTest.fields, "classifier_pooling": "last"}


class ModernDecoderTest(VaswaniTests, TrainingTesterMixin, unittest.TestCase):
    """The block of LLaMA, with heads that share keys."""

    all_model_classes = (VaswaniModel, VaswaniForCausalLM)
    fields = {
        **SIZES,
        "is_encoder_decoder": False,
        "is_decoder": True,
        "norm": "pre",
        "norm_type": "rms",
        "gated_feed_forward": True,
        "activation": "silu",
        "bias": False,
        "positions": "rotary",
        "num_key_value_heads": NUM_HEADS // 2,
        "scale_embedding": False,
        "tie_word_embeddings": False,
    }


class EncoderTest(VaswaniTests, unittest.TestCase):
    all_model_classes = (VaswaniModel, VaswaniForMaskedLM, VaswaniForSequenceClassification)
    fields = {
        **SIZES,
        "is_encoder_decoder": False,
        "norm": "none",
        "self_attention_score": "additive",
        "self_attention_distribution": "sparsemax",
    }


class VaswaniConfigTest(unittest.TestCase):
    def test_config(self) -> None:
        ConfigTester(
            self,
            config_class=VaswaniConfig,
            common_properties=["hidden_size", "num_attention_heads"],
            vocab_size=31,
            hidden_size=32,
            norm="pre",
        ).run_common_tests()
