"""The tests that transformers puts each of its own models through, on the char-RNN."""

import unittest
from typing import Any

import torch
from upstream_tests import upstream

from hfattn import CharRNNConfig, CharRNNForCausalLM, CharRNNModel

common = upstream("test_modeling_common")
ModelTesterMixin: Any = common.ModelTesterMixin
TrainingTesterMixin: Any = upstream("test_training_mixin").TrainingTesterMixin
ConfigTester: Any = upstream("test_configuration_common").ConfigTester


class CharRNNModelTester:
    """What upstream's tests ask about the model: sizes, a tiny configuration, a batch."""

    base_model_class = CharRNNModel
    causal_lm_class = CharRNNForCausalLM
    is_training = True
    batch_size = 3
    seq_length = 7
    hidden_size = 16
    num_hidden_layers = 2
    vocab_size = 31

    def __init__(self, cell: str, tie_word_embeddings: bool) -> None:
        self.cell = cell
        self.tie_word_embeddings = tie_word_embeddings

    def get_config(self) -> CharRNNConfig:
        return CharRNNConfig(
            vocab_size=self.vocab_size,
            embedding_size=self.hidden_size,
            hidden_size=self.hidden_size,
            num_hidden_layers=self.num_hidden_layers,
            cell=self.cell,
            tie_word_embeddings=self.tie_word_embeddings,
            pad_token_id=0,
        )

    def prepare_config_and_inputs_for_common(self) -> tuple[CharRNNConfig, dict[str, torch.Tensor]]:
        shape = (self.batch_size, self.seq_length)
        input_ids = common.ids_tensor(shape, self.vocab_size)
        return self.get_config(), {"input_ids": input_ids, "attention_mask": common.random_attention_mask(shape)}


class CharRNNTests(ModelTesterMixin, TrainingTesterMixin):
    cell = "gru"
    tie_word_embeddings = False
    model_tester: Any = None
    all_model_classes = (CharRNNModel, CharRNNForCausalLM)
    has_attentions = False

    def setUp(self) -> None:
        self.model_tester = CharRNNModelTester(self.cell, self.tie_word_embeddings)

    def test_config(self) -> None:
        ConfigTester(self, config_class=CharRNNConfig, common_properties=["hidden_size", "num_hidden_layers"]).run_common_tests()


class GRUTest(CharRNNTests, unittest.TestCase):
    pass
