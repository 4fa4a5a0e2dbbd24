"""Transformers' own model tests on the language model of both directions."""

import unittest

from common_tests import HIDDEN_SIZE, NUM_LAYERS, VOCAB_SIZE, CommonTests, ConfigTester, TrainingTesterMixin

from hfattn import BiLMConfig, BiLMForCausalLM, BiLMModel

SIZES = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": HIDDEN_SIZE,
    "num_hidden_layers": NUM_LAYERS,
    "pad_token_id": 0,
}


class BiLMTests(CommonTests, TrainingTesterMixin):
    config_class = BiLMConfig
    all_model_classes = (BiLMModel, BiLMForCausalLM)
    has_attentions = False
    training_overfit_learning_rate = 1e-2  # the default is for wider models


class TiedTest(BiLMTests, unittest.TestCase):
    fields = SIZES


class UntiedGRUTest(BiLMTests, unittest.TestCase):
    fields = {**SIZES, "cell": "gru", "tie_word_embeddings": False, "residual": False}


class BiLMConfigTest(unittest.TestCase):
    def test_config(self) -> None:
        ConfigTester(
            self, config_class=BiLMConfig, common_properties=["hidden_size", "num_hidden_layers"], **SIZES
        ).run_common_tests()
