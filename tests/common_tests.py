"""The tests that transformers puts each of its own models through, for the families of this package to subclass.

    class LSTMTest(CommonTests, unittest.TestCase):
        config_class = CharRNNConfig
        all_model_classes = (CharRNNModel, CharRNNForCausalLM)
        fields = {"cell": "lstm", ...}

Upstream's tests of what a model does not have (RoPE, experts, parallel plans) skip themselves, each with its reason.
"""

import unittest
from typing import Any
from unittest.mock import patch

import torch
from transformers import PreTrainedConfig
from transformers.models.auto import modeling_auto
from upstream_tests import upstream

common = upstream("test_modeling_common")
ConfigTester: Any = upstream("test_configuration_common").ConfigTester
TrainingTesterMixin: Any = upstream("test_training_mixin").TrainingTesterMixin

# Sizes of every tiny configuration. Upstream takes the hidden states of a model, embeddings too, to be of one width.
VOCAB_SIZE, HIDDEN_SIZE, NUM_LAYERS, NUM_HEADS = 31, 32, 2, 4

# By these names upstream knows which classes have a loss, and which labels to make for them.
TASKS = {
    "Model": modeling_auto.MODEL_MAPPING_NAMES,
    "ForCausalLM": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "ForConditionalGeneration": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    "ForImageClassification": modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
    "ForMaskedLM": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "ForSequenceClassification": modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    "ForTokenClassification": modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
}


class ModelTester:
    """What upstream's tests ask about a model: sizes, a tiny configuration, a batch."""

    is_training = True
    batch_size = 3
    seq_length = encoder_seq_length = decoder_seq_length = 7
    vocab_size, hidden_size, num_hidden_layers, num_attention_heads = VOCAB_SIZE, HIDDEN_SIZE, NUM_LAYERS, NUM_HEADS

    def __init__(
        self,
        config_class: type[PreTrainedConfig],
        fields: dict[str, Any],
        models: dict[str, type],
        extra_inputs: dict[str, torch.Tensor],
    ) -> None:
        self.config_class, self.fields, self.extra_inputs = config_class, fields, extra_inputs
        self.causal_lm_class = models.get("ForCausalLM")

    def get_config(self) -> PreTrainedConfig:
        return self.config_class(**self.fields)

    def prepare_config_and_inputs_for_common(self) -> tuple[PreTrainedConfig, dict[str, torch.Tensor]]:
        """The masks have holes anywhere, which every family must step over."""
        config = self.get_config()
        shape = (self.batch_size, self.seq_length)
        inputs = dict(self.extra_inputs)
        prefixes = ["", "decoder_"] if config.is_encoder_decoder else [""]
        if config.is_encoder_decoder and "pixel_values" in inputs:
            prefixes.remove("")  # the source is an image
        for prefix in prefixes:
            inputs[f"{prefix}input_ids"] = common.ids_tensor(shape, self.vocab_size)
            inputs[f"{prefix}attention_mask"] = common.random_attention_mask(shape)
        return config, inputs


class CommonTests(common.ModelTesterMixin):  # type: ignore[name-defined]
    config_class: type[PreTrainedConfig]
    fields: dict[str, Any]
    all_model_classes: tuple[type, ...]
    extra_inputs: dict[str, torch.Tensor] = {}  # beside ids and masks, (3, 7) or (3, …)

    model_tester: Any = None
    model_tester_class: type[ModelTester] = ModelTester
    test_can_init_all_missing_weights_before_2023 = True  # the year is read from a copyright line, and there is none

    def setUp(self) -> None:
        models = {}
        for model_class in self.all_model_classes:
            task = next(task for task in TASKS if model_class.__name__.endswith(task))
            models[task] = model_class
            entry = patch.dict(TASKS[task], {self.config_class.model_type: model_class.__name__})
            entry.start()
            self.addCleanup(entry.stop)
        self.model_tester = self.model_tester_class(self.config_class, self.fields, models, self.extra_inputs)

    @unittest.skip(
        "transformers does not distribute GenerationTesterMixin; generation_tests.py has tests of generate()"
    )
    def test_generation_tester_mixin_inheritance(self) -> None: ...


class LayersTests(CommonTests):
    """Of the models with the layers of a Transformer."""

    def setUp(self) -> None:
        super().setUp()
        # Upstream sets the epsilon of every norm it has ever known; these configurations refuse names that they lack.
        steady = patch.object(
            common, "set_config_for_less_flaky_test", lambda config: setattr(config, "layer_norm_eps", 1.0)
        )
        steady.start()
        self.addCleanup(steady.stop)
