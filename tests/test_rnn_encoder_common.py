"""Transformers' own model tests on the recurrent encoder."""

import unittest
from typing import Any

import torch
from common_tests import HIDDEN_SIZE, NUM_LAYERS, VOCAB_SIZE, CommonTests, ConfigTester

from hfattn import (
    RNNEncoderConfig,
    RNNEncoderForSequenceClassification,
    RNNEncoderForTokenClassification,
    RNNEncoderModel,
)

SIZES = {
    "vocab_size": VOCAB_SIZE,
    "embedding_size": HIDDEN_SIZE,
    "hidden_size": HIDDEN_SIZE // 2,
    "num_hidden_layers": NUM_LAYERS,
    "direction": "bidirectional",
}


class RNNEncoderTests(CommonTests):
    config_class = RNNEncoderConfig
    all_model_classes: tuple[type, ...] = (
        RNNEncoderModel,
        RNNEncoderForSequenceClassification,
        RNNEncoderForTokenClassification,
    )
    has_attentions = False  # upstream means self-attention; that of pooling has its tests in test_rnn_encoder.py


class LastTest(RNNEncoderTests, unittest.TestCase):
    fields = {**SIZES, "cell": "lstm"}


class JordanTest(RNNEncoderTests, unittest.TestCase):
    fields = {**SIZES, "cell": "jordan", "pooling": "mean"}


class ConcatTest(RNNEncoderTests, unittest.TestCase):
    fields: dict[str, Any] = {**SIZES, "cell": "lstm", "pooling": "concat", "weight_dropout": 0.2, "bptt_steps": 3}


class UnmaskedMaxTest(RNNEncoderTests, unittest.TestCase):
    fields = {**SIZES, "cell": "gru_reset_before", "pooling": "max", "mask_padding": False}


class HierarchicalTest(RNNEncoderTests, unittest.TestCase):
    fields: dict[str, Any] = {**SIZES, "pooling": "hierarchical", "sentence_end_token_ids": [3]}
    all_model_classes = (RNNEncoderModel, RNNEncoderForSequenceClassification)  # a tagger has no sentences
    extra_inputs = {"sentence_ids": torch.tensor([[0, 0, 0, 1, 1, 1, 1], [5, 5, 2, 2, 7, 7, 7], [0, 0, 0, 0, 0, 0, 0]])}


class RNNEncoderConfigTest(unittest.TestCase):
    def test_config(self) -> None:
        ConfigTester(
            self, config_class=RNNEncoderConfig, common_properties=["hidden_size", "num_hidden_layers"], **SIZES
        ).run_common_tests()
