"""Transformers' own model tests on the recurrent encoder-decoders."""

import unittest

from common_tests import HIDDEN_SIZE, NUM_LAYERS, VOCAB_SIZE, CommonTests, ConfigTester

from hfattn import BahdanauConfig, BahdanauForConditionalGeneration, BahdanauModel

SIZES = {
    "vocab_size": VOCAB_SIZE,
    "embedding_size": HIDDEN_SIZE,
    "encoder_hidden_size": HIDDEN_SIZE // 2,
    "hidden_size": HIDDEN_SIZE,
    "encoder_layers": NUM_LAYERS,
    "decoder_layers": NUM_LAYERS,
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


class BahdanauTests(CommonTests):
    config_class = BahdanauConfig
    all_model_classes = (BahdanauModel, BahdanauForConditionalGeneration)
    is_encoder_decoder = True
    has_attentions = False  # upstream means self-attention; cross-attention has its tests in test_bahdanau.py


class BahdanauTest(BahdanauTests, unittest.TestCase):
    fields = {**SIZES, **BAHDANAU}


class LuongTest(BahdanauTests, unittest.TestCase):
    fields = {**SIZES, **LUONG, "share_embeddings": False}

    @unittest.skip("it embeds the target with the source's embeddings; test_bahdanau.py tests embeddings as inputs")
    def test_inputs_embeds_matches_input_ids(self) -> None: ...


class LuongFedTest(BahdanauTests, unittest.TestCase):
    fields = {**SIZES, **LUONG, "input_feeding": True, "tie_word_embeddings": True}


class SutskeverTest(BahdanauTests, unittest.TestCase):
    fields = {**SIZES, **SUTSKEVER}


class BahdanauConfigTest(unittest.TestCase):
    def test_config(self) -> None:
        ConfigTester(
            self, config_class=BahdanauConfig, common_properties=["hidden_size"], has_text_modality=False, **SIZES
        ).run_common_tests()
