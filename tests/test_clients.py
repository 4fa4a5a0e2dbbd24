"""Every family under what other tools ask of a model: tuples, offloading, graphs, adapters, features."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import cpu_offload
from peft import IA3Config, LoraConfig, PeftModel, PrefixTuningConfig, PromptTuningConfig, get_peft_model
from torch import nn
from torch._dynamo.utils import counters
from transformers import BertConfig, BertModel, PreTrainedModel, pipeline

from hfattn import (
    BahdanauConfig,
    BahdanauForConditionalGeneration,
    CharRNNConfig,
    CharRNNForCausalLM,
    RNNEncoderConfig,
    RNNEncoderForSequenceClassification,
    RNNEncoderForTokenClassification,
    VaswaniConfig,
    VaswaniForCausalLM,
    VaswaniForConditionalGeneration,
    VaswaniForMaskedLM,
    VaswaniForSequenceClassification,
)
from hfattn.adapters import ia3_targets, lora_targets, prompt_sizes
from hfattn.errors import UserError
from hfattn.tokenizers import TokenizerConfig, build_character_tokenizer, build_tokenizer

pytestmark = pytest.mark.runs

V = 20
LAYERED: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": 16,
    "intermediate_size": 20,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "num_attention_heads": 2,
}
RECURRENT: dict[str, Any] = {"vocab_size": V, "embedding_size": 8, "hidden_size": 16}
LUONG = {
    "initial_state": "final",
    "attention_position": "after",
    "attention_score": "general",
    "output_layer": "attentional",
    "encoder_hidden_size": 8,
}


def char_rnn(**fields: Any) -> Any:
    return CharRNNForCausalLM(CharRNNConfig(**{**RECURRENT, "num_hidden_layers": 2, **fields}))


def bahdanau(**fields: Any) -> Any:
    return BahdanauForConditionalGeneration(BahdanauConfig(**{**RECURRENT, "encoder_hidden_size": 8, **fields}))


def rnn_encoder(kind: Any = RNNEncoderForSequenceClassification, **fields: Any) -> Any:
    return kind(RNNEncoderConfig(**{**RECURRENT, "direction": "bidirectional", **fields}))


def vaswani(kind: Any = VaswaniForConditionalGeneration, **fields: Any) -> Any:
    return kind(VaswaniConfig(**{**LAYERED, **fields}))


MODELS: dict[str, Callable[[], Any]] = {
    "char-rnn gru": lambda: char_rnn(cell="gru"),
    "char-rnn lstm": lambda: char_rnn(cell="lstm"),
    "char-rnn jordan": lambda: char_rnn(cell="jordan"),
    "bahdanau": bahdanau,
    "bahdanau reset before": lambda: bahdanau(cell="gru_reset_before", decoder_layers=2),
    "luong": lambda: bahdanau(cell="lstm", **LUONG),
    "luong fed": lambda: bahdanau(**LUONG, input_feeding=True, attention_window="local_p"),
    "sutskever": lambda: bahdanau(**{**LUONG, "attention_score": None, "output_layer": "state"}),
    "rnn-encoder": lambda: rnn_encoder(pooling="attention"),
    "rnn-encoder last": lambda: rnn_encoder(cell="lstm", pooling="last"),
    "tagger": lambda: rnn_encoder(RNNEncoderForTokenClassification),
    "translator": vaswani,
    "language model": lambda: vaswani(VaswaniForCausalLM, self_attention_score="additive"),
    "masked": lambda: vaswani(VaswaniForMaskedLM, cross_attention_distribution="compositional"),
    "classifier": lambda: vaswani(VaswaniForSequenceClassification, self_attention_distribution="compositional"),
}
every_model = pytest.mark.parametrize("name", MODELS)


def make(name: str) -> Any:
    torch.manual_seed(0)
    return MODELS[name]().eval()


def batch(model: Any, rows: int = 3, source: int = 6, target: int = 5) -> dict[str, torch.Tensor]:
    """Texts with padding on the right of the second."""
    random = torch.Generator().manual_seed(rows)
    inputs = {"input_ids": torch.randint(3, V, (rows, source), generator=random)}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    inputs["attention_mask"][1, -2:] = 0
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.randint(3, V, (rows, target), generator=random)
    return inputs


def source_of(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: inputs[name] for name in ("input_ids", "attention_mask")}


@every_model
def test_tuples_instead_of_outputs(name: str) -> None:
    """By argument or by configuration, of the model and of its body, and generate() writes the same."""
    model = make(name)
    inputs = batch(model)
    expected = model(**inputs)
    for returned in (model(**inputs, return_dict=False), model.model(**inputs, return_dict=False)):
        assert isinstance(returned, tuple)
    assert torch.equal(model(**inputs, return_dict=False)[0], expected.logits)
    generates = model.can_generate()
    if generates:
        written = model.generate(**source_of(inputs), max_new_tokens=4, num_beams=2)
    model.config.return_dict = False
    assert torch.equal(model(**inputs)[0], expected.logits)
    if generates:
        assert torch.equal(model.generate(**source_of(inputs), max_new_tokens=4, num_beams=2), written)


@every_model
def test_weights_are_offloaded(name: str) -> None:
    """They are there only while a module is called."""
    model = make(name)
    inputs = batch(model)
    expected = model(**inputs).logits
    cpu_offload(model, execution_device=torch.device("cpu"))
    assert all(parameter.is_meta for parameter in model.parameters())
    torch.testing.assert_close(model(**inputs).logits, expected)


@pytest.mark.parametrize("name", ["bahdanau", "char-rnn lstm", "translator"])
def test_weights_are_offloaded_to_the_disk(name: str, tmp_path: Path) -> None:
    model = make(name)
    inputs = batch(model)
    model.save_pretrained(tmp_path / "model")
    loaded = type(model).from_pretrained(
        tmp_path / "model", device_map={"": "disk"}, offload_folder=tmp_path / "offloaded"
    )
    torch.testing.assert_close(loaded(**inputs).logits, model(**inputs).logits)


@every_model
def test_torch_export(name: str) -> None:
    """For batches of any size with padding; the lengths are those of the example where there is a recurrent layer."""
    model = make(name)
    inputs = batch(model)
    fixed = {"use_cache": False} if model.can_generate() else {}  # a cache is no output of a graph
    size = torch.export.Dim.AUTO
    recurrent = any(".rnn." in parameter for parameter, _ in model.named_parameters())
    shapes: dict[str, Any] = {key: {0: size} if recurrent else {0: size, 1: size} for key in inputs}
    shapes |= dict.fromkeys(fixed)
    exported = torch.export.export(model, (), {**inputs, **fixed}, dynamic_shapes=shapes).module()
    for rows, source, target in ((3, 6, 5), (5, 6, 5), *([] if recurrent else [(4, 9, 7)])):
        other = batch(model, rows, source, target)
        found = exported(**other, **fixed).logits
        torch.testing.assert_close(found, model(**other).logits, rtol=1e-4, atol=1e-5)


def test_hierarchical_pooling_is_not_exported() -> None:
    model = rnn_encoder(pooling="hierarchical", sentence_end_token_ids=[3]).eval()
    with pytest.raises(ValueError, match="Hierarchical pooling finds the sentences of a batch"):
        torch.export.export(model, (), batch(model))


@pytest.mark.parametrize("name", ["char-rnn gru", "luong", "rnn-encoder last"])
def test_torch_compile_breaks_the_graph_at_recurrent_layers_only(name: str) -> None:
    model = make(name)
    torch.compiler.reset()
    counters.clear()
    compiled = torch.compile(model, backend="eager")
    inputs = batch(model)
    torch.testing.assert_close(compiled(**inputs).logits, model(**inputs).logits)
    assert counters["graph_break"]
    for reason in counters["graph_break"]:
        assert "_run_masked" in reason or "Attempted to wrap RNN, GRU, or LSTM" in reason
    torch.compiler.reset()


@every_model
def test_dynamic_int8(name: str) -> None:
    """All linear layers but those that are tied become int8, and the outputs stay near."""
    model = make(name)
    inputs = batch(model)
    expected = model(**inputs).logits
    quantized = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    assert not any(type(module) is nn.Linear for module in quantized.modules())
    found = quantized(**inputs).logits
    assert not torch.equal(found, expected)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.05 * float(expected.abs().max()))


def test_linear_layers_are_of_the_class_that_quantization_replaces() -> None:
    for name in MODELS:
        for module in make(name).modules():
            assert type(module) is nn.Linear or not isinstance(module, nn.Linear)


# Adapters


def randomize(adapted: Any, kind: str) -> None:
    """Give an adapter that starts as nothing other weights."""
    for name, parameter in adapted.named_parameters():
        if kind in name:
            nn.init.normal_(parameter, mean=1.0 if kind == "ia3" else 0.0, std=0.3)


@every_model
def test_lora_on_the_default_targets(name: str, tmp_path: Path) -> None:
    """It changes the logits, is saved and loaded, and merges exactly."""
    model = make(name)
    inputs = batch(model)
    before = model(**inputs).logits
    adapted = get_peft_model(model, LoraConfig(r=2, **lora_targets(model)))
    randomize(adapted, "lora")
    found = adapted.eval()(**inputs).logits
    assert not torch.allclose(found, before, atol=1e-5)
    adapted.save_pretrained(tmp_path)
    reloaded = PeftModel.from_pretrained(make(name), tmp_path).eval()
    torch.testing.assert_close(reloaded(**inputs).logits, found, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(reloaded.merge_and_unload()(**inputs).logits, found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["translator", "language model", "masked", "classifier"])
def test_ia3_merges(name: str) -> None:
    model = make(name)
    inputs = batch(model)
    before = model(**inputs).logits
    adapted = get_peft_model(model, IA3Config(**ia3_targets(model)))
    randomize(adapted, "ia3")
    found = adapted.eval()(**inputs).logits
    assert not torch.allclose(found, before, atol=1e-5)
    torch.testing.assert_close(adapted.merge_and_unload()(**inputs).logits, found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("char-rnn lstm", "CAUSAL_LM"),
        ("language model", "CAUSAL_LM"),
        ("bahdanau", "SEQ_2_SEQ_LM"),
        ("translator", "SEQ_2_SEQ_LM"),
    ],
)
def test_prompt_tuning(name: str, task: str) -> None:
    """The prompt learns, and texts are generated after it."""
    model = make(name)
    inputs = batch(model)
    adapted = get_peft_model(model, PromptTuningConfig(task_type=task, num_virtual_tokens=3, **prompt_sizes(model)))
    labels = inputs.get("decoder_input_ids", inputs["input_ids"])
    optimizer = torch.optim.Adam([weight for weight in adapted.parameters() if weight.requires_grad], lr=0.1)
    losses = []
    for _ in range(15):
        loss = adapted(**source_of(inputs), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert adapted.eval().generate(**source_of(inputs), max_new_tokens=3).shape[0] == 3


def test_prefix_tuning_is_for_attention() -> None:
    translator = make("translator")
    adapted = get_peft_model(translator, PrefixTuningConfig(task_type="SEQ_2_SEQ_LM", num_virtual_tokens=3))
    assert adapted(**batch(translator)).logits.isfinite().all()
    model = make("char-rnn gru")
    adapted = get_peft_model(
        model, PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3, **prompt_sizes(model))
    )
    with pytest.raises(ValueError, match="and a recurrent model has no keys"):
        adapted(**batch(model))


def test_models_without_these_layers_are_refused() -> None:
    sizes = {"vocab_size": 9, "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    bert = BertModel(BertConfig(**sizes, intermediate_size=8))
    for targets in (lora_targets, ia3_targets):
        with pytest.raises(UserError, match="BertModel has no layers of hfattn; write target_modules"):
            targets(bert)
    with pytest.raises(UserError, match="IA3 scales outputs of linear layers, and a recurrent layer has none"):
        ia3_targets(make("bahdanau"))


# Features and generation


@pytest.mark.parametrize("name", ["bahdanau", "translator"])
def test_features_of_a_source(name: str) -> None:
    tokenizer = build_character_tokenizer(["abcdefghijklm "], ends=True)
    model: PreTrainedModel = make(name)
    features = pipeline("feature-extraction", model=model.get_encoder(), tokenizer=tokenizer)("abc")
    expected = model.get_encoder()(**tokenizer("abc", return_tensors="pt")).last_hidden_state
    torch.testing.assert_close(torch.tensor(features), expected)
    with pytest.raises(ValueError, match=r"For features of the source alone, run model.get_encoder\(\)"):
        pipeline("feature-extraction", model=model, tokenizer=tokenizer)("abc")


def test_token_healing() -> None:
    """A prompt that ends within a word is completed by tokens that begin with its end."""
    text = ["the house, the mouse and the thesis there"] * 4
    tokenizer = build_tokenizer(TokenizerConfig(kind="bpe", vocab_size=60), text, ends=False)
    tokenizer.bos_token = tokenizer.pad_token
    torch.manual_seed(0)
    for model in (char_rnn(vocab_size=len(tokenizer)), vaswani(VaswaniForCausalLM, vocab_size=len(tokenizer))):
        prompt = tokenizer("the ho", return_tensors="pt").input_ids
        written = model.eval().generate(prompt, max_new_tokens=4, token_healing=True, tokenizer=tokenizer)
        assert tokenizer.decode(written[0]).startswith("the ho")
        assert written.shape[1] > prompt.shape[1]
