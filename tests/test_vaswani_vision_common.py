"""Transformers' own model tests on the Vision Transformer."""

import unittest
from typing import Any

import torch
from common_tests import HIDDEN_SIZE, NUM_HEADS, NUM_LAYERS, ConfigTester, LayersTests, ModelTester, common
from transformers import PreTrainedConfig

from hfattn import VaswaniVisionConfig, VaswaniVisionForImageClassification, VaswaniVisionModel

SIZES: dict[str, Any] = {
    "image_size": [8, 12],
    "patch_size": 4,
    "hidden_size": HIDDEN_SIZE,
    "intermediate_size": 37,
    "encoder_layers": NUM_LAYERS,
    "num_attention_heads": NUM_HEADS,
}


class VisionTester(ModelTester):
    seq_length = encoder_seq_length = 7  # the class token and 2 x 3 patches

    def prepare_config_and_inputs_for_common(self) -> tuple[PreTrainedConfig, dict[str, torch.Tensor]]:
        return self.get_config(), {"pixel_values": common.floats_tensor((self.batch_size, 3, 8, 12))}


class VisionTests(LayersTests):
    config_class = VaswaniVisionConfig
    all_model_classes: tuple[type, ...] = (VaswaniVisionModel, VaswaniVisionForImageClassification)
    model_tester_class = VisionTester
    test_resize_embeddings = False

    @unittest.skip("an image has no embeddings of tokens")
    def test_model_get_set_embeddings(self) -> None: ...

    @unittest.skip("an image has no embeddings of tokens")
    def test_inputs_embeds(self) -> None: ...

    @unittest.skip("an image has no embeddings of tokens")
    def test_inputs_embeds_matches_input_ids(self) -> None: ...


class ViTTest(VisionTests, unittest.TestCase):
    fields = SIZES


class OtherScoreTest(VisionTests, unittest.TestCase):
    fields = {
        **SIZES,
        "norm": "post",
        "positions": "sinusoidal_2d",
        "self_attention_score": "additive",
        "self_attention_distribution": "sparsemax",
    }


class VaswaniVisionConfigTest(unittest.TestCase):
    def test_config(self) -> None:
        ConfigTester(
            self,
            config_class=VaswaniVisionConfig,
            has_text_modality=False,
            common_properties=["hidden_size", "num_attention_heads"],
            hidden_size=32,
            num_attention_heads=4,
        ).run_common_tests()
