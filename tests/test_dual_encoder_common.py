"""Transformers' own model tests on the dual encoder."""

import unittest
from typing import Any

import torch
from common_tests import HIDDEN_SIZE, NUM_HEADS, NUM_LAYERS, VOCAB_SIZE, CommonTests, ConfigTester
from transformers import BertConfig

from hfattn import DualEncoderConfig, DualEncoderModel, VaswaniVisionConfig

LAYERS: dict[str, Any] = {"hidden_size": HIDDEN_SIZE, "intermediate_size": 37, "num_attention_heads": NUM_HEADS}


class DualEncoderTest(CommonTests, unittest.TestCase):
    """With a tower of hfattn and one of transformers."""

    config_class = DualEncoderConfig
    all_model_classes = (DualEncoderModel,)
    has_attentions = False
    extra_inputs = {"pixel_values": torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))}
    fields = {
        "vision_config": VaswaniVisionConfig(
            **LAYERS, encoder_layers=NUM_LAYERS, image_size=16, patch_size=8
        ).to_dict(),
        "text_config": BertConfig(**LAYERS, num_hidden_layers=NUM_LAYERS, vocab_size=VOCAB_SIZE).to_dict(),
        "projection_dim": 12,
        "text_hidden_size": 20,
        "logit_bias_init_value": -10,
    }

    @unittest.skip("the outputs of the towers have the hidden states; test_get_text_features_hidden_states has them")
    def test_hidden_states_output(self) -> None: ...

    @unittest.skip("the outputs of the towers have the hidden states")
    def test_retain_grad_hidden_states_attentions(self) -> None: ...


class DualEncoderConfigTest(unittest.TestCase):
    model_tester = None  # upstream asks for it when a configuration has others inside

    def test_config(self) -> None:
        ConfigTester(
            self, config_class=DualEncoderConfig, has_text_modality=False, common_properties=["projection_dim"]
        ).run_common_tests()
