"""Transformers' own model tests on the captioner."""

import unittest

import torch
from common_tests import HIDDEN_SIZE, VOCAB_SIZE, CommonTests, ConfigTester
from transformers import Dinov2Config

from hfattn import ShowAttendTellConfig, ShowAttendTellForConditionalGeneration, ShowAttendTellModel

SIZES = {
    "vocab_size": VOCAB_SIZE,
    "embedding_size": HIDDEN_SIZE,
    "hidden_size": HIDDEN_SIZE,
    "annotation_size": HIDDEN_SIZE,
    "channels": [8, 16],
}


class CaptionerTests(CommonTests):
    config_class = ShowAttendTellConfig
    all_model_classes = (ShowAttendTellModel, ShowAttendTellForConditionalGeneration)
    is_encoder_decoder = True
    has_attentions = False  # upstream means self-attention; cross-attention has its tests in test_show_attend_tell.py
    main_input_name = "pixel_values"
    extra_inputs = {"pixel_values": torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))}

    @unittest.skip("it makes input_ids; test_show_attend_tell.py resizes the embeddings")
    def test_resize_tokens_embeddings(self) -> None: ...

    @unittest.skip("it makes input_ids; test_show_attend_tell.py resizes the embeddings")
    def test_resize_embeddings_untied(self) -> None: ...

    @unittest.skip("it asks for the hidden states of a text")
    def test_hidden_states_output(self) -> None: ...

    @unittest.skip("it asks for the hidden states of a text")
    def test_retain_grad_hidden_states_attentions(self) -> None: ...


class SoftTest(CaptionerTests, unittest.TestCase):
    fields = SIZES


class HardTest(CaptionerTests, unittest.TestCase):
    fields = {
        **SIZES,
        "decoder_layers": 2,
        "attention_distribution": "hard",
        "attention_distribution_options": {"estimator": "score_function"},
    }


class Dinov2Test(CaptionerTests, unittest.TestCase):
    fields = {
        **SIZES,
        "vision_config": Dinov2Config(
            hidden_size=HIDDEN_SIZE,
            num_hidden_layers=1,
            num_attention_heads=2,
            mlp_ratio=1,
            use_mask_token=False,
            image_size=16,
            patch_size=8,
        ).to_dict(),
    }


class ShowAttendTellConfigTest(unittest.TestCase):
    def test_config(self) -> None:
        ConfigTester(
            self, config_class=ShowAttendTellConfig, common_properties=["hidden_size"], has_text_modality=False, **SIZES
        ).run_common_tests()
