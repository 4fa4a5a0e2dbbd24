"""The tests that transformers puts each of its own models through, on the recurrent encoder-decoders."""

import unittest
from typing import Any
from unittest.mock import patch

import torch
from transformers.models.auto import modeling_auto
from upstream_tests import upstream

from hfattn import BahdanauConfig, BahdanauForConditionalGeneration, BahdanauModel

common = upstream("test_modeling_common")
ModelTesterMixin: Any = common.ModelTesterMixin
ConfigTester: Any = upstream("test_configuration_common").ConfigTester

SIZES = {
    "vocab_size": 31,
    "embedding_size": 32,  # upstream takes all the hidden states to be of one width
    "encoder_hidden_size": 16,
    "hidden_size": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
}
BAHDANAU = {"cell": "gru_reset_before", "attention_score": "additive"}
LUONG = {
    "cell": "lstm",
    "initial_state": "final",
    "attention_position": "after",
    "attention_score": "general",
    "output_layer": "attentional",
}
SUTSKEVER = {**LUONG, "attention_score": None, "output_layer": "state"}


class BahdanauModelTester:
    """What upstream's tests ask about the model: sizes, a tiny configuration, a batch."""

    is_training = True
    batch_size = 3
    seq_length = encoder_seq_length = decoder_seq_length = 7
    hidden_size = 32
    num_hidden_layers = 2
    vocab_size = 31

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    def get_config(self) -> BahdanauConfig:
        return BahdanauConfig(**{**SIZES, **self.fields})

    def prepare_config_and_inputs_for_common(self) -> tuple[BahdanauConfig, dict[str, torch.Tensor]]:
        """The mask has holes anywhere, which a recurrent encoder must step over."""
        shape = (self.batch_size, self.seq_length)
        return self.get_config(), {
            "input_ids": common.ids_tensor(shape, self.vocab_size),
            "attention_mask": common.random_attention_mask(shape),
            "decoder_input_ids": common.ids_tensor(shape, self.vocab_size),
        }


class BahdanauTests(ModelTesterMixin):
    fields: dict[str, Any]

    model_tester: Any = None
    all_model_classes = (BahdanauModel, BahdanauForConditionalGeneration)
    is_encoder_decoder = True
    has_attentions = False  # upstream means self-attention; cross-attention has its tests in test_bahdanau.py
    test_can_init_all_missing_weights_before_2023 = True  # the year is read from a copyright line, and there is none

    def setUp(self) -> None:
        self.model_tester = BahdanauModelTester(self.fields)
        # Upstream knows by these names which classes have a loss, and which labels to make for them.
        for names, model_class in (
            (modeling_auto.MODEL_MAPPING_NAMES, BahdanauModel),
            (modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, BahdanauForConditionalGeneration),
        ):
            entry = patch.dict(names, {BahdanauConfig.model_type: model_class.__name__})
            entry.start()
            self.addCleanup(entry.stop)

    @unittest.skip("transformers does not distribute GenerationTesterMixin; test_bahdanau.py tests generate()")
    def test_generation_tester_mixin_inheritance(self) -> None: ...


class BahdanauTest(BahdanauTests, unittest.TestCase):
    fields = BAHDANAU


class LuongTest(BahdanauTests, unittest.TestCase):
    fields = {**LUONG, "share_embeddings": False}

    @unittest.skip("it embeds the target with the source's embeddings; test_bahdanau.py tests embeddings as inputs")
    def test_inputs_embeds_matches_input_ids(self) -> None: ...


class LuongFedTest(BahdanauTests, unittest.TestCase):
    fields = {**LUONG, "input_feeding": True, "tie_word_embeddings": True}


class SutskeverTest(BahdanauTests, unittest.TestCase):
    fields = SUTSKEVER


class BahdanauConfigTest(unittest.TestCase):
    def test_config(self) -> None:
        ConfigTester(
            self, config_class=BahdanauConfig, common_properties=["hidden_size"], has_text_modality=False, **SIZES
        ).run_common_tests()
