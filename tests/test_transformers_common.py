"""The tests that transformers puts each of its own models through, on the char-RNN with each of its cells."""

import unittest
from typing import Any
from unittest.mock import patch

import torch
from transformers.models.auto import modeling_auto
from upstream_tests import upstream

from hfattn import CharRNNConfig, CharRNNForCausalLM, CharRNNModel

common = upstream("test_modeling_common")
ModelTesterMixin: Any = common.ModelTesterMixin
TrainingTesterMixin: Any = upstream("test_training_mixin").TrainingTesterMixin
ConfigTester: Any = upstream("test_configuration_common").ConfigTester


class CharRNNModelTester:
    """What upstream's tests ask about the model: sizes, a tiny configuration, a batch."""

    causal_lm_class = CharRNNForCausalLM
    is_training = True
    batch_size = 3
    seq_length = 7
    hidden_size = 32
    num_hidden_layers = 2
    vocab_size = 31

    def __init__(self, cell: str, tie_word_embeddings: bool) -> None:
        self.cell = cell
        self.tie_word_embeddings = tie_word_embeddings

    def get_config(self) -> CharRNNConfig:
        return CharRNNConfig(
            vocab_size=self.vocab_size,
            embedding_size=self.hidden_size,  # upstream takes all the hidden states to be of one width
            hidden_size=self.hidden_size,
            num_hidden_layers=self.num_hidden_layers,
            cell=self.cell,
            tie_word_embeddings=self.tie_word_embeddings,
            pad_token_id=0,
        )

    def prepare_config_and_inputs_for_common(self) -> tuple[CharRNNConfig, dict[str, torch.Tensor]]:
        """The mask has holes anywhere, which a recurrent model must step over."""
        shape = (self.batch_size, self.seq_length)
        input_ids = common.ids_tensor(shape, self.vocab_size)
        return self.get_config(), {"input_ids": input_ids, "attention_mask": common.random_attention_mask(shape)}


class CharRNNTests(ModelTesterMixin, TrainingTesterMixin):
    """Upstream's tests; those on attention, RoPE, experts and parallel plans skip themselves, each with its reason."""

    cell: str
    tie_word_embeddings = False

    model_tester: Any = None
    all_model_classes = (CharRNNModel, CharRNNForCausalLM)
    has_attentions = False
    test_can_init_all_missing_weights_before_2023 = True  # the year is read from a copyright line, and there is none
    training_overfit_learning_rate = 1e-2  # the default is for wider models

    def setUp(self) -> None:
        self.model_tester = CharRNNModelTester(self.cell, self.tie_word_embeddings)
        # Upstream knows by these names which classes have a loss, and which labels to make for them.
        for names, model_class in (
            (modeling_auto.MODEL_MAPPING_NAMES, CharRNNModel),
            (modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, CharRNNForCausalLM),
        ):
            entry = patch.dict(names, {CharRNNConfig.model_type: model_class.__name__})
            entry.start()
            self.addCleanup(entry.stop)

    @unittest.skip("transformers does not distribute GenerationTesterMixin; test_generation.py tests generate()")
    def test_generation_tester_mixin_inheritance(self) -> None: ...


class ElmanTest(CharRNNTests, unittest.TestCase):
    cell = "elman"


class LSTMTest(CharRNNTests, unittest.TestCase):
    cell = "lstm"


class GRUTest(CharRNNTests, unittest.TestCase):
    cell = "gru"


class GRUResetBeforeTest(CharRNNTests, unittest.TestCase):
    cell = "gru_reset_before"


class TiedGRUTest(CharRNNTests, unittest.TestCase):
    cell = "gru"
    tie_word_embeddings = True


class CharRNNConfigTest(unittest.TestCase):
    def test_config(self) -> None:
        ConfigTester(
            self,
            config_class=CharRNNConfig,
            common_properties=["hidden_size", "num_hidden_layers"],
            vocab_size=31,
            hidden_size=32,
            cell="lstm",
        ).run_common_tests()
