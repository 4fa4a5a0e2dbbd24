"""The tests that transformers puts each of its own models through, on the Transformer's stacks, together and alone."""

import unittest
from typing import Any
from unittest.mock import patch

import torch
from transformers.models.auto import modeling_auto
from upstream_tests import upstream

from hfattn import (
    VaswaniConfig,
    VaswaniForCausalLM,
    VaswaniForConditionalGeneration,
    VaswaniForMaskedLM,
    VaswaniForSequenceClassification,
    VaswaniModel,
)

common = upstream("test_modeling_common")
ModelTesterMixin: Any = common.ModelTesterMixin
TrainingTesterMixin: Any = upstream("test_training_mixin").TrainingTesterMixin
ConfigTester: Any = upstream("test_configuration_common").ConfigTester

# Upstream knows by these names which classes have a loss, and which labels to make for them.
MAPPINGS: list[tuple[Any, type]] = [
    (modeling_auto.MODEL_MAPPING_NAMES, VaswaniModel),
    (modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, VaswaniForConditionalGeneration),
    (modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, VaswaniForCausalLM),
    (modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, VaswaniForMaskedLM),
    (modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES, VaswaniForSequenceClassification),
]


class VaswaniModelTester:
    """What upstream's tests ask about the model: sizes, a tiny configuration, a batch."""

    is_training = True
    batch_size = 3
    seq_length = 7
    hidden_size = 32
    num_hidden_layers = 2
    num_attention_heads = 4
    vocab_size = 31

    def __init__(self, is_encoder_decoder: bool, is_decoder: bool, fields: dict[str, Any]) -> None:
        self.causal_lm_class = VaswaniForCausalLM if is_decoder else None
        self.is_encoder_decoder, self.is_decoder, self.fields = is_encoder_decoder, is_decoder, fields

    def get_config(self) -> VaswaniConfig:
        return VaswaniConfig(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            intermediate_size=37,
            encoder_layers=self.num_hidden_layers,
            decoder_layers=self.num_hidden_layers,
            num_attention_heads=self.num_attention_heads,
            is_encoder_decoder=self.is_encoder_decoder,
            is_decoder=self.is_decoder,
            **self.fields,
        )

    def prepare_config_and_inputs_for_common(self) -> tuple[VaswaniConfig, dict[str, torch.Tensor]]:
        shape = (self.batch_size, self.seq_length)
        inputs = {
            "input_ids": common.ids_tensor(shape, self.vocab_size),
            "attention_mask": common.random_attention_mask(shape),
        }
        if self.is_encoder_decoder:
            inputs["decoder_input_ids"] = common.ids_tensor(shape, self.vocab_size)
            inputs["decoder_attention_mask"] = common.random_attention_mask(shape)
        return self.get_config(), inputs


class VaswaniTests(ModelTesterMixin):
    """Upstream's tests; those on RoPE, experts and parallel plans skip themselves, each with its reason."""

    is_encoder_decoder = False
    is_decoder = False
    fields: dict[str, Any] = {}

    model_tester: Any = None
    test_can_init_all_missing_weights_before_2023 = True  # the year is read from a copyright line, and there is none

    def setUp(self) -> None:
        self.model_tester = VaswaniModelTester(self.is_encoder_decoder, self.is_decoder, self.fields)
        for names, model_class in MAPPINGS:
            entry = patch.dict(names, {VaswaniConfig.model_type: model_class.__name__})
            entry.start()
            self.addCleanup(entry.stop)
        # Upstream sets the epsilon of every norm it has ever known; this configuration refuses names that it lacks.
        steady = patch.object(
            common, "set_config_for_less_flaky_test", lambda config: setattr(config, "layer_norm_eps", 1.0)
        )
        steady.start()
        self.addCleanup(steady.stop)

    @unittest.skip("transformers does not distribute GenerationTesterMixin; test_vaswani.py tests generate()")
    def test_generation_tester_mixin_inheritance(self) -> None: ...


class EncoderDecoderTest(VaswaniTests, unittest.TestCase):
    all_model_classes = (VaswaniModel, VaswaniForConditionalGeneration)
    is_encoder_decoder = True


class DecoderTest(VaswaniTests, TrainingTesterMixin, unittest.TestCase):
    all_model_classes = (VaswaniModel, VaswaniForCausalLM)
    is_decoder = True
    fields = {"norm": "pre", "positions": "learned", "tie_word_embeddings": False}


class EncoderTest(VaswaniTests, unittest.TestCase):
    all_model_classes = (VaswaniModel, VaswaniForMaskedLM, VaswaniForSequenceClassification)
    fields = {"norm": "none", "self_attention_score": "additive", "self_attention_distribution": "sparsemax"}


class VaswaniConfigTest(unittest.TestCase):
    def test_config(self) -> None:
        ConfigTester(
            self,
            config_class=VaswaniConfig,
            common_properties=["hidden_size", "num_attention_heads"],
            vocab_size=31,
            hidden_size=32,
            norm="pre",
        ).run_common_tests()
