"""Transformers' own model tests on the char-RNN with each of its cells."""

import unittest

import torch
from common_tests import HIDDEN_SIZE, NUM_LAYERS, VOCAB_SIZE, CommonTests, ConfigTester, TrainingTesterMixin

from hfattn import CharRNNConfig, CharRNNForCausalLM, CharRNNForSequenceClassification, CharRNNModel

SIZES = {
    "vocab_size": VOCAB_SIZE,
    "embedding_size": HIDDEN_SIZE,
    "hidden_size": HIDDEN_SIZE,
    "num_hidden_layers": NUM_LAYERS,
    "pad_token_id": 0,
}


class CharRNNTests(CommonTests, TrainingTesterMixin):
    config_class = CharRNNConfig
    all_model_classes = (CharRNNModel, CharRNNForCausalLM)
    has_attentions = False
    training_overfit_learning_rate = 1e-2  # the default is for wider models
    training_overfit_steps = 150  # half of the default, with the same demands


class ElmanTest(CharRNNTests, unittest.TestCase):
    fields = {**SIZES, "cell": "elman"}


class JordanTest(CharRNNTests, unittest.TestCase):
    fields = {**SIZES, "cell": "jordan"}


class LSTMTest(CharRNNTests, unittest.TestCase):
    fields = {**SIZES, "cell": "lstm"}


class GRUTest(CharRNNTests, unittest.TestCase):
    fields = {**SIZES, "cell": "gru"}


class GRUResetBeforeTest(CharRNNTests, unittest.TestCase):
    fields = {**SIZES, "cell": "gru_reset_before"}


class TiedGRUTest(CharRNNTests, unittest.TestCase):
    fields = {**SIZES, "cell": "gru", "tie_word_embeddings": True}


class ClassifierTest(CommonTests, unittest.TestCase):
    config_class = CharRNNConfig
    all_model_classes = (CharRNNForSequenceClassification,)
    has_attentions = False
    fields = {**SIZES, "cell": "lstm", "pooling": "concat", "weight_dropout": 0.2, "variational_dropout": True}


class ConditionedTest(CommonTests, unittest.TestCase):
    config_class = CharRNNConfig
    all_model_classes = (CharRNNModel, CharRNNForCausalLM)
    has_attentions = False
    fields = {**SIZES, "cell": "lstm", "conditioning_size": 5}
    extra_inputs = {"conditioning": torch.randn(3, 5, generator=torch.Generator().manual_seed(0))}


class CharRNNConfigTest(unittest.TestCase):
    def test_config(self) -> None:
        ConfigTester(
            self, config_class=CharRNNConfig, common_properties=["hidden_size", "num_hidden_layers"], **SIZES
        ).run_common_tests()
