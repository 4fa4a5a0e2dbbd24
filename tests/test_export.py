"""Models of ours in other software: bit for bit under other names, the same numbers in other engines."""

import importlib.util
import json
import re
import shlex
import shutil
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import ROOT, run_anew
from safetensors.torch import load_file, save_file
from test_convert import CHARACTERS, RENAMES, WORDS, joeynmt_config, randomize, saved, written
from their_models import (
    JOEYNMT,
    TheirCharRNN,
    TheirGPT,
    TheirTorchEncoder,
    TheirTorchTransformer,
    TheirTranslator,
    sines,
)
from tiny_models import TEXTS, wordpiece_tokenizer
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    RobertaConfig,
    RobertaForMaskedLM,
)

from hfattn import (
    BahdanauConfig,
    BahdanauForConditionalGeneration,
    BiLMConfig,
    CharRNNConfig,
    CharRNNForCausalLM,
    RNNEncoderConfig,
    RNNEncoderForSequenceClassification,
    VaswaniConfig,
    VaswaniForCausalLM,
    VaswaniForConditionalGeneration,
    VaswaniForMaskedLM,
    VaswaniForSequenceClassification,
)
from hfattn.errors import UserError
from hfattn.exchange import FORMATS, TARGETS, convert, export, to_onnx
from hfattn.files import read_json_object
from hfattn.loading import save_translator
from hfattn.tokenizers import build_character_tokenizer
from hfattn.training import divide_logits
from hfattn_cli import app

pytestmark = pytest.mark.runs


def model_folder(folder: Path, model: PreTrainedModel, tokenizer: Any = None) -> Path:
    randomize(model)
    model.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return folder


def there_and_back(
    tmp_path: Path, kind: str, theirs: nn.Module, settings: dict[str, Any], renames: dict[str, str] | None = None
) -> dict[str, torch.Tensor]:
    """Converted and exported, twice; the weights that come out, which are those that went in."""
    vocabulary = written(tmp_path, "vocabulary.json", CHARACTERS)
    state = randomize(theirs).state_dict()
    single = kind in ("char-rnn", "nanogpt")
    convert(
        kind, saved(tmp_path, state), tmp_path / "ours", settings=settings, renames=renames,
        vocabulary=vocabulary if single else None,
    )  # fmt: skip
    export("torch", tmp_path / "ours", tmp_path / "theirs")
    convert(
        kind, tmp_path / "theirs" / "weights.safetensors", tmp_path / "again",
        config=tmp_path / "theirs" / "settings.json",
        vocabulary=tmp_path / "theirs" / "vocabulary.json" if single else None,
    )  # fmt: skip
    ours, again = (load_file(tmp_path / name / "model.safetensors") for name in ("ours", "again"))
    assert ours.keys() == again.keys()
    assert all(torch.equal(ours[name], again[name]) for name in ours)
    for name in ("config.json", *(["tokenizer.json"] if single else [])):
        assert (tmp_path / "ours" / name).read_text() == (tmp_path / "again" / name).read_text()
    return load_file(tmp_path / "theirs" / "weights.safetensors")


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize(("cell", "one_hot"), [(nn.LSTM, False), (nn.GRU, True), (nn.RNN, False)])
def test_a_character_model_goes_back_bit_for_bit(tmp_path: Path, cell: type[nn.RNNBase], one_hot: bool) -> None:
    theirs = TheirCharRNN(cell, len(CHARACTERS), 2, one_hot)
    assert_equal(there_and_back(tmp_path, "char-rnn", theirs, {}), theirs.state_dict())


def test_a_character_model_of_ours_keeps_its_padding(tmp_path: Path) -> None:
    tokenizer = build_character_tokenizer(["to be"], unknown=True)
    config = CharRNNConfig(vocab_size=len(tokenizer), hidden_size=8, pad_token_id=0)
    export("torch", model_folder(tmp_path / "ours", CharRNNForCausalLM(config), tokenizer), tmp_path / "theirs")
    again = convert(
        "char-rnn", tmp_path / "theirs" / "weights.safetensors", tmp_path / "again",
        vocabulary=tmp_path / "theirs" / "vocabulary.json",
    )  # fmt: skip
    texts = ["to", "be [PAD]"]
    assert again.tokenizer is not None
    assert again.tokenizer(texts, padding=True).input_ids == tokenizer(texts, padding=True).input_ids
    assert again.model.config.pad_token_id == 0


@pytest.mark.parametrize("bias", [True, False])
def test_a_nanogpt_goes_back_bit_for_bit(tmp_path: Path, bias: bool) -> None:
    theirs = TheirGPT(2, 2, 16, 9, bias, len(CHARACTERS))
    found = there_and_back(tmp_path, "nanogpt", theirs, {"n_head": 2})
    assert_equal(found, {name: tensor for name, tensor in theirs.state_dict().items() if ".attn.bias" not in name})
    assert json.loads((tmp_path / "theirs" / "settings.json").read_text())["bias"] == bias


@pytest.mark.parametrize(("interleaved", "bias"), [(True, True), (False, False)])
def test_a_torch_transformer_goes_back_bit_for_bit(tmp_path: Path, interleaved: bool, bias: bool) -> None:
    theirs = TheirTorchTransformer(True, bias, "gelu", sines(9, 16, interleaved))
    settings = {"num_attention_heads": 4, "norm": "pre", "activation": "gelu", "pad_token_id": 1}
    found = there_and_back(tmp_path, "torch-transformer", theirs, settings, RENAMES)
    expected = dict(theirs.state_dict())
    table = expected.pop("positional_encoding.pos_embedding").squeeze(1)
    expected = {name.removeprefix("transformer."): tensor for name, tensor in expected.items()}
    for side, name in (("source", "src_tok_emb"), ("target", "tgt_tok_emb")):
        expected[f"{side}_embedding.weight"] = expected.pop(f"{name}.weight")
        if not interleaved:
            expected[f"{side}_positions"] = table
    assert_equal(found, expected)
    # And they are what torch itself reads.
    own = {name: tensor for name, tensor in found.items() if name.startswith(("encoder.", "decoder."))}
    theirs.transformer.load_state_dict(own)


@pytest.mark.parametrize(("kind", "classes"), [("torch-lm", None), ("torch-classifier", 3)])
def test_a_torch_encoder_goes_back_bit_for_bit(tmp_path: Path, kind: str, classes: int | None) -> None:
    theirs = TheirTorchEncoder(False, True, classes, False)
    settings = {"num_attention_heads": 2, "activation": "gelu", "scale_embedding": False}
    expected = theirs.state_dict()
    found = there_and_back(tmp_path, kind, theirs, settings)
    expected["positions"] = expected["positions"][0]
    assert_equal(found, expected)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            lambda: CharRNNForCausalLM(CharRNNConfig(vocab_size=5, cell="gru_reset_before")),
            "no layer with the cell gru_",
        ),
        (lambda: CharRNNForCausalLM(CharRNNConfig(vocab_size=5, cell="jordan")), "no layer with the cell jordan; expo"),
        (lambda: CharRNNForCausalLM(CharRNNConfig(vocab_size=5, conditioning_size=2)), "no vector that conditions a t"),
        (
            lambda: GPT2LMHeadModel(
                GPT2Config(vocab_size=5, n_embd=8, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1)
            ),
            "nanoGPT supports only activation_function=gelu, but this model has gelu_new",
        ),
        (lambda: translator(norm="none"), "no Transformer without layer norms"),
        (lambda: translator(cross_attention_distribution="sparsemax"), "only scaled_dot attention with softmax"),
        (lambda: translator(head_dim=5), "no heads of width 5"),
        (lambda: translator(norm_type="rms"), 'no Transformer with rms norms; export one with norm_type "layer"'),
        (lambda: translator(encoder_pattern="fourier"), "no Transformer with the pattern fourier; export one without"),
        (lambda: translator(positions="rotary"), "no Transformer with rotary positions; export one with other"),
        (lambda: translator(positions="alibi"), "no Transformer with alibi positions; export one with other"),
        (lambda: translator(num_key_value_heads=1), "no Transformer whose heads share keys; export one without num_"),
        (lambda: translator(embedding_norm=True), "no Transformer with a norm of the embeddings; export one without"),
        (lambda: translator(gated_feed_forward=True), "no Transformer with gated feed-forward networks; export one"),
    ],
)
def test_what_other_projects_do_not_have(tmp_path: Path, model: Any, sentence: str) -> None:
    folder = model_folder(tmp_path / "ours", model())
    with pytest.raises(UserError, match=sentence):
        export("torch", folder, tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()


# ONNX


def run_onnx(folder: Path, file: str = "model.onnx", **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    """The outputs by their names; inputs that the graph does not read are left out."""
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / file, providers=["CPUExecutionProvider"])
    read = {given.name for given in (*session.get_inputs(), *session.get_overridable_initializers())}
    inputs = {name: tensor for name, tensor in inputs.items() if name in read}
    names = [output.name for output in session.get_outputs()]
    found = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
    return dict(zip(names, map(torch.from_numpy, found), strict=True))


@pytest.fixture(scope="module")
def character_model(tmp_path_factory: pytest.TempPathFactory) -> tuple[CharRNNForCausalLM, Path]:
    """A model, and the folder that has it in ONNX."""
    folder = tmp_path_factory.mktemp("characters")
    config = CharRNNConfig(
        vocab_size=len(CHARACTERS), hidden_size=8, embedding_size=6, num_hidden_layers=2, cell="lstm"
    )
    model = CharRNNForCausalLM(config)
    tokenizer = build_character_tokenizer(CHARACTERS[1:])
    export("onnx", model_folder(folder / "ours", model, tokenizer), folder / "onnx")
    return model, folder / "onnx"


def test_a_character_model_in_onnx_goes_on_from_a_state(character_model: tuple[CharRNNForCausalLM, Path]) -> None:
    """One text in one piece, and in two with the state between them, padded on either side."""
    model, folder = character_model
    assert (folder / "tokenizer.json").is_file()
    ids = torch.randint(len(CHARACTERS), (3, 7))
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1]])
    zeros = torch.zeros(2, 3, 8)
    whole = run_onnx(folder, input_ids=ids, attention_mask=mask, h=zeros, c=zeros)
    with torch.no_grad():
        expected = model(ids, attention_mask=mask)
    torch.testing.assert_close(whole["logits"], expected.logits, rtol=1e-4, atol=1e-5)
    h, c = (torch.stack([expected.past_key_values.get_state(layer)[i] for layer in range(2)]) for i in range(2))
    torch.testing.assert_close(whole["new_h"], h, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(whole["new_c"], c, rtol=1e-4, atol=1e-5)
    first = run_onnx(folder, input_ids=ids[:, :1], attention_mask=mask[:, :1], h=zeros, c=zeros)
    rest = run_onnx(folder, input_ids=ids[:, 1:], attention_mask=mask[:, 1:], h=first["new_h"], c=first["new_c"])
    torch.testing.assert_close(rest["logits"], whole["logits"][:, 1:], rtol=1e-4, atol=1e-5)


def test_a_tokenizer_beside_a_graph_loads_without_a_question_about_code(
    character_model: tuple[CharRNNForCausalLM, Path],
) -> None:
    """In a process that does not import hfattn, and that cannot answer."""
    _, folder = character_model
    assert not list(folder.glob("*.py"))
    assert "auto_map" not in read_json_object(folder / "config.json")
    text = "".join(CHARACTERS[3:])
    code = f"from transformers import AutoTokenizer; print(AutoTokenizer.from_pretrained({str(folder)!r})({text!r}))"
    done = run_anew([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    assert str(build_character_tokenizer(CHARACTERS[1:])(text).input_ids) in done.stdout


def test_a_character_model_in_onnx_starts_from_zeros(character_model: tuple[CharRNNForCausalLM, Path]) -> None:
    """Without states among the inputs, for a batch."""
    model, folder = character_model
    ids = torch.randint(len(CHARACTERS), (3, 7))
    found = run_onnx(folder, input_ids=ids, attention_mask=torch.ones_like(ids))
    with torch.no_grad():
        expected = model(ids).logits
    torch.testing.assert_close(found["logits"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [VaswaniForCausalLM, VaswaniForMaskedLM])
def test_a_language_model_in_onnx(tmp_path: Path, kind: Any) -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 20, "encoder_layers": 1, "decoder_layers": 1}
    config = VaswaniConfig(vocab_size=13, **sizes, num_attention_heads=4, self_attention_score="general", norm="pre")
    model = kind(config)
    export("onnx", model_folder(tmp_path / "ours", model), tmp_path / "onnx")
    ids = torch.randint(13, (3, 9))
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    with torch.no_grad():
        expected = model(ids, attention_mask=mask).logits
    found = run_onnx(tmp_path / "onnx", input_ids=ids, attention_mask=mask)["logits"]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


AFTER = {"attention_position": "after", "output_layer": "attentional"}
SOURCE = torch.tensor([[5, 6, 7, 8, 2], [9, 4, 2, 0, 0]])


def test_a_transformer_translates_in_onnx(tmp_path: Path) -> None:
    model = translator()
    export("onnx", model_folder(tmp_path / "ours", model), tmp_path / "onnx")
    written = torch.ones(2, 1, dtype=torch.long)
    for _ in range(6):
        found = run_onnx(
            tmp_path / "onnx", input_ids=SOURCE, attention_mask=(SOURCE > 0).long(), decoder_input_ids=written
        )
        written = torch.cat([written, found["logits"][:, -1:].argmax(-1)], dim=1)
    expected = model.generate(SOURCE, attention_mask=SOURCE > 0, max_new_tokens=6, eos_token_id=None)
    assert torch.equal(written, expected)


@pytest.mark.parametrize(
    "fields",
    [
        {"cell": "gru_reset_before", "decoder_layers": 2},
        {**AFTER, "cell": "lstm", "attention_distribution": "sparsemax"},
        {**AFTER, "input_feeding": True, "attention_window": "local_p", "attention_score": "general"},
        {"initial_state": "final", "attention_score": None, "output_layer": "state", "encoder_hidden_size": 4},
    ],
)
def test_a_recurrent_translator_in_onnx(tmp_path: Path, fields: dict[str, Any]) -> None:
    """The encoder, then the decoder step by step, write what the model writes."""
    sizes = {"vocab_size": 13, "embedding_size": 6, "hidden_size": 8, "encoder_hidden_size": 5}
    model = BahdanauForConditionalGeneration(BahdanauConfig(**{**sizes, **fields}))
    export("onnx", model_folder(tmp_path / "ours", model), tmp_path / "onnx")
    mask = (SOURCE > 0).long()
    found = run_onnx(tmp_path / "onnx", "encoder.onnx", input_ids=SOURCE, attention_mask=mask)
    token, written = torch.ones(2, 1, dtype=torch.long), [torch.ones(2, 1, dtype=torch.long)]
    for _ in range(6):
        known = {name: tensor for name, tensor in found.items() if name.startswith(("annotations", "keys_", "state_"))}
        step = run_onnx(tmp_path / "onnx", "decoder.onnx", decoder_input_ids=token, attention_mask=mask, **known)
        token = step.pop("logits").argmax(-1)
        written.append(token)
        found |= {name.removeprefix("new_"): tensor for name, tensor in step.items()}
    expected = model.generate(SOURCE, attention_mask=SOURCE > 0, max_new_tokens=6, eos_token_id=None)
    assert torch.equal(torch.cat(written, dim=1), expected)


def classifier(kind: str) -> tuple[PreTrainedModel, Any]:
    if kind == "bert":
        tokenizer = wordpiece_tokenizer(TEXTS, types=True)
        sizes = {"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2}
        return BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), num_labels=3, **sizes)), tokenizer
    tokenizer = build_character_tokenizer([*TEXTS])
    size = {"vocab_size": len(tokenizer), "num_labels": 3, "hidden_size": 16}
    config = VaswaniConfig(**size, intermediate_size=20, encoder_layers=1, num_attention_heads=4, norm="pre")
    return VaswaniForSequenceClassification(config), tokenizer


@pytest.mark.parametrize("kind", ["vaswani", "bert"])  # and a recurrent one as the page has it
def test_a_classifier_in_onnx(tmp_path: Path, kind: str) -> None:
    model, tokenizer = classifier(kind)
    folder = model_folder(tmp_path / "ours", model, tokenizer)
    uncalibrated = deepcopy(model)
    divide_logits(model, 1.7)
    model.save_pretrained(folder)
    export("onnx", folder, tmp_path / "onnx")
    for texts in (TEXTS, ["A", "dull film"], ["Mary"]):
        for side in ("left", "right"):
            batch = tokenizer(list(texts), padding=True, return_tensors="pt", padding_side=side)
            with torch.no_grad():
                expected = uncalibrated(**batch).logits / 1.7
            found = run_onnx(tmp_path / "onnx", **batch)["logits"]
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_graph_that_computes_something_else_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, character_model: tuple[CharRNNForCausalLM, Path]
) -> None:
    model, folder = character_model

    class Other:
        def save(self, path: str) -> None:
            shutil.copy(folder / "model.onnx", path)

    monkeypatch.setattr(to_onnx, "_program", lambda runner, example: Other())
    other = CharRNNForCausalLM(model.config)
    other.save_pretrained(tmp_path / "ours")
    with pytest.raises(UserError, match="The logits of the graph and the model differ on a batch of 1 x 1, by"):
        export("onnx", tmp_path / "ours", tmp_path / "onnx")
    wider = model_folder(tmp_path / "wider", CharRNNForCausalLM(CharRNNConfig(vocab_size=12, cell="lstm")))
    with pytest.raises(UserError, match="The graph does not run on a batch of 1 x 1"):
        export("onnx", wider, tmp_path / "onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours", "wider"]


def test_what_onnx_is_not_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "adapter").mkdir()
    written(tmp_path / "adapter", "adapter_config.json", {"peft_type": "LORA"})
    with pytest.raises(
        UserError, match=r"adapter is an adapter alone, .*; train it with tuning\.merge: true, or merge"
    ):
        export("onnx", tmp_path / "adapter", tmp_path / "onnx")
    config = RNNEncoderConfig(vocab_size=9, pooling="hierarchical", sentence_end_token_ids=[3])
    by_sentences = model_folder(tmp_path / "sentences", RNNEncoderForSequenceClassification(config))
    with pytest.raises(UserError, match="Hierarchical pooling splits texts into sentences"):
        export("onnx", by_sentences, tmp_path / "onnx")
    mixed = RNNEncoderConfig(vocab_size=9, contextual_config=BiLMConfig(vocab_size=9, hidden_size=8))
    contextual = model_folder(tmp_path / "contextual", RNNEncoderForSequenceClassification(mixed))
    with pytest.raises(UserError, match="The encoder of contextual vectors reads pieces of the tokens"):
        export("onnx", contextual, tmp_path / "onnx")
    gpt = GPT2LMHeadModel(GPT2Config(vocab_size=9, n_embd=8, n_layer=1, n_head=2))
    with pytest.raises(UserError, match="GPT2LMHeadModel cannot be exported to ONNX; give a classifier of texts"):
        export("onnx", model_folder(tmp_path / "gpt", gpt), tmp_path / "onnx")
    local = BahdanauForConditionalGeneration(BahdanauConfig(vocab_size=9, **AFTER, attention_window="local_m"))
    with pytest.raises(UserError, match="does not know its position, which local_m needs; use the model"):
        export("onnx", model_folder(tmp_path / "local", local), tmp_path / "onnx")
    conditioned = CharRNNForCausalLM(CharRNNConfig(vocab_size=5, conditioning_size=2))
    with pytest.raises(UserError, match="has no vector that conditions a text; use the model"):
        export("onnx", model_folder(tmp_path / "conditioned", conditioned), tmp_path / "onnx")
    with pytest.raises(UserError, match=r"is not a model folder: config.json is missing"):
        export("onnx", tmp_path, tmp_path / "onnx")
    with pytest.raises(UserError, match="'onxx' is not a kind of export; did you mean 'onnx'"):
        export("onxx", by_sentences, tmp_path / "onnx")
    with pytest.raises(UserError, match="--quantization is for ctranslate2 only"):
        export("onnx", by_sentences, tmp_path / "onnx", quantization="int8")
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if "onnx" in name else found(name, *rest))
    with pytest.raises(
        UserError, match=r"needs onnx, which is not installed; run: .* -m pip install 'hfattn\[export\]'"
    ):
        export("onnx", by_sentences, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


def decoder(**fields: Any) -> VaswaniForCausalLM:
    sizes = {"vocab_size": 13, "hidden_size": 16, "intermediate_size": 20, "decoder_layers": 2}
    return VaswaniForCausalLM(VaswaniConfig(**sizes, num_attention_heads=2, **fields)).eval()


PATTERNS: dict[str, dict[str, Any]] = {
    "window": {"window": 5},
    "block_local": {"block": 4},
    "memory": {"segment_length": 4, "memory_length": 6},
    "linear": {},
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_of_decoders_in_onnx_read_texts_of_several_blocks(tmp_path: Path, pattern: str) -> None:
    fields = {"decoder_pattern": pattern, "decoder_pattern_options": PATTERNS[pattern]}
    model = randomize(decoder(**fields))
    export("onnx", model_folder(tmp_path / "ours", model), tmp_path / "onnx")
    for length in (128, 129, 300):
        ids, mask = torch.randint(13, (2, length)), torch.ones(2, length, dtype=torch.long)
        mask[1, : length // 3] = 0
        with torch.no_grad():
            expected = model(ids, attention_mask=mask).logits
        found = run_onnx(tmp_path / "onnx", input_ids=ids, attention_mask=mask)["logits"]
        torch.testing.assert_close(found[mask.bool()], expected[mask.bool()], rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"decoder_pattern": ["full", "strided"], "decoder_pattern_options": {"stride": 4}}, "strided"),
        ({"decoder_pattern": "performer"}, "performer"),
        (
            {"decoder_pattern": "window", "decoder_pattern_options": {"window": 4, "global_tokens": 2}},
            "window with global",
        ),
    ],
)
def test_a_pattern_without_a_graph_is_refused(tmp_path: Path, fields: dict[str, Any], named: str) -> None:
    with pytest.raises(
        UserError, match=f"decoder_pattern is {named}.*, which cannot be written as an ONNX graph .*; use the model"
    ):
        export("onnx", model_folder(tmp_path / "ours", decoder(**fields)), tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


# CTranslate2


def translator(**fields: Any) -> VaswaniForConditionalGeneration:
    sizes = {"vocab_size": 13, "hidden_size": 16, "intermediate_size": 20, "encoder_layers": 1, "decoder_layers": 2}
    return VaswaniForConditionalGeneration(VaswaniConfig(**{**sizes, "num_attention_heads": 4, **fields}))


def translator_folder(folder: Path, own_target: bool = False, **fields: Any) -> tuple[Any, Any, Any]:
    """A saved model with random weights, and its tokenizers."""
    tokenizer = build_character_tokenizer(["abcdefghij"], ends=True)
    writer = build_character_tokenizer(["uvwxyz"], ends=True) if own_target else None
    size = len(writer or tokenizer)
    if own_target:
        fields |= {"source_vocab_size": len(tokenizer), "share_embeddings": False}
    model = randomize(translator(vocab_size=size, **fields))
    save_translator(folder, model, tokenizer, writer)
    return model, tokenizer, writer or tokenizer


@pytest.mark.parametrize(
    ("own_target", "fields"),
    [
        (False, {}),
        (True, {"norm": "pre", "positions": "learned", "max_position_embeddings": 30, "activation": "gelu"}),
        (False, {"final_norm": True, "scale_embedding": False, "activation": "silu", "layer_norm_eps": 1e-2}),
        (
            False,
            {"positions": "none", "tie_word_embeddings": False, "lm_head_bias": True, "activation": "tanh"},
        ),
    ],
)
def test_a_translator_in_ctranslate2(tmp_path: Path, own_target: bool, fields: dict[str, Any]) -> None:
    """Token for token, greedy and by beams, in batches padded on our side; and near that with eight bits."""
    import ctranslate2

    model, reader, writer = translator_folder(tmp_path / "ours", own_target, **fields)
    export("ctranslate2", tmp_path / "ours", tmp_path / "engine")
    names = {path.name for path in (tmp_path / "engine").iterdir()}
    assert names - {"model.bin", "config.json"} == (
        {"source_vocabulary.json", "target_vocabulary.json"} if own_target else {"shared_vocabulary.json"}
    )
    texts = ["abc", "hijaabcdd", "a", "jjjjjj"]
    batch = reader(texts, padding=True, return_tensors="pt")
    sources = [reader.convert_ids_to_tokens(reader(text).input_ids) for text in texts]
    engine = ctranslate2.Translator(str(tmp_path / "engine"), intra_threads=1, inter_threads=1)
    for num_beams in (1, 4):
        # The engine stops when as many hypotheses as it has beams are finished.
        ids = model.generate(
            **batch, num_beams=num_beams, max_new_tokens=12, do_sample=False, early_stopping=num_beams > 1
        )
        ours = [row[1:].tolist() for row in ids]
        ours = [row[: row.index(2)] if 2 in row else row for row in ours]
        found = engine.translate_batch(sources, beam_size=num_beams, max_decoding_length=12, min_decoding_length=0)
        assert [result.hypotheses[0] for result in found] == [writer.convert_ids_to_tokens(row) for row in ours]


def test_eight_bits_are_near_and_smaller(tmp_path: Path) -> None:
    import ctranslate2

    _, reader, writer = translator_folder(tmp_path / "ours")
    scores = []
    for quantization in ("float32", "int8"):
        folder = tmp_path / quantization
        export("ctranslate2", tmp_path / "ours", folder, quantization=quantization)
        engine = ctranslate2.Translator(str(folder), intra_threads=1, inter_threads=1)
        source, target = (reader.convert_ids_to_tokens(reader("abcd").input_ids), writer.tokenize("dcba"))
        scores.append(torch.tensor(engine.score_batch([source], [target])[0].log_probs))
    assert not torch.equal(*scores)
    torch.testing.assert_close(*scores, rtol=0.1, atol=0.3)
    sizes = [(tmp_path / quantization / "model.bin").stat().st_size for quantization in ("float32", "int8")]
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"norm": "none"}, 'no Transformer with norm "none"'),
        ({"head_dim": 5}, "no Transformer with head_dim 5"),
        ({"cross_attention_score": "additive"}, "cross-attention with the score additive and the distribution softmax"),
        ({"self_attention_distribution": "sparsemax"}, "self-attention with the score scaled_dot and the distribution"),
        ({"eos_token_id": [2, 3]}, "no Transformer with several end tokens"),
        ({"norm_type": "rms"}, "no Transformer with rms norms"),
        ({"gated_feed_forward": True}, "no Transformer with gated feed-forward networks"),
        ({"bias": False}, "no Transformer with bias: false"),
        ({"encoder_pattern": "fourier"}, "no Transformer with the pattern fourier"),
        ({"embedding_norm": True}, "no Transformer with embedding_norm"),
        ({"positions": "rotary"}, "no Transformer with rotary positions"),
        ({"positions": "alibi"}, "no Transformer with alibi positions"),
        ({"num_key_value_heads": 2}, "no Transformer with num_key_value_heads 2"),
    ],
)
def test_what_ctranslate2_does_not_have(tmp_path: Path, fields: dict[str, Any], sentence: str) -> None:
    translator_folder(tmp_path / "ours", **fields)
    with pytest.raises(UserError, match=sentence):
        export("ctranslate2", tmp_path / "ours", tmp_path / "engine")
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


def test_what_ctranslate2_is_not_for(tmp_path: Path) -> None:
    translator_folder(tmp_path / "ours")
    with pytest.raises(UserError, match="'int9' is not a quantization; write float32 or int8"):
        export("ctranslate2", tmp_path / "ours", tmp_path / "engine", quantization="int9")
    weights = load_file(tmp_path / "ours" / "model.safetensors")
    save_file(
        {**weights, "model.decoder.layers.0.self_attn.q_proj.bias": torch.zeros(3)},
        tmp_path / "ours" / "model.safetensors",
        metadata={"format": "pt"},
    )
    with pytest.raises(UserError, match="does not load"):
        export("ctranslate2", tmp_path / "ours", tmp_path / "engine")
    alone = model_folder(tmp_path / "alone", translator())
    with pytest.raises(UserError, match="has no tokenizer, which CTranslate2 needs"):
        export("ctranslate2", alone, tmp_path / "engine")
    build_character_tokenizer(["abc"], ends=True).save_pretrained(alone)
    with pytest.raises(UserError, match="The tokenizer has 6 tokens and the model 13"):
        export("ctranslate2", alone, tmp_path / "engine")
    characters = model_folder(
        tmp_path / "rnn", CharRNNForCausalLM(CharRNNConfig(vocab_size=6)), build_character_tokenizer(["abc"])
    )
    with pytest.raises(UserError, match="cannot be exported to CTranslate2: it is a CharRNNForCausalLM, not a Vaswani"):
        export("ctranslate2", characters, tmp_path / "engine")


# The page, and the commands


def test_the_page_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its commands and its Python in one process; what the comments say of a printed line is what is printed."""
    page = (ROOT / "docs" / "convert.md").read_text()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    characters = sorted(set("To be, or not"))
    written(tmp_path, "characters.json", characters)
    saved(tmp_path, randomize(TheirCharRNN(nn.LSTM, len(characters), 1)).state_dict()).rename("shakespeare.safetensors")
    arguments = {"n_layer": 1, "n_head": 2, "n_embd": 8, "block_size": 9, "bias": False, "vocab_size": len(characters)}
    gpt = randomize(TheirGPT(1, 2, 8, 9, False, len(characters)))
    torch.save({"model": gpt.state_dict(), "model_args": arguments}, "ckpt.pt")
    theirs = randomize(TheirTorchTransformer(True, True, "relu", sines(9, 16)))
    saved(tmp_path, theirs.state_dict()).rename("translator.safetensors")
    joey = TheirTranslator(JOEYNMT, True, True, sines(60, 16)[None], (True, True, False), "relu", (9, 10), False)
    torch.save({"model_state": joey.state()}, "best.ckpt")
    written(tmp_path, "config.json", joeynmt_config(True)).rename("config.yaml")
    written(tmp_path, "src_vocab.txt", WORDS)
    written(tmp_path, "trg_vocab.txt", [*WORDS, "f"])
    tokenizer = build_character_tokenizer(["a good film", "bad"])
    fields = {"cell": "gru", "direction": "bidirectional", "pooling": "attention", "num_labels": 2}
    model = RNNEncoderForSequenceClassification(
        RNNEncoderConfig(vocab_size=len(tokenizer), embedding_size=6, hidden_size=8, **fields)
    )
    model_folder(tmp_path / "runs" / "imdb", model, tokenizer)
    sizes = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}
    stories = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes))
    model_folder(tmp_path / "stories15M", stories, tokenizer)
    roberta = RobertaForMaskedLM(RobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=40, **sizes))
    model_folder(tmp_path / "roberta", roberta, tokenizer)

    names: dict[str, Any] = {}
    printed = []
    for language, block in re.findall(r"```(sh|python)\n(.*?)```", page, re.DOTALL):
        capsys.readouterr()
        if language == "python":
            exec(block, names)
            assert capsys.readouterr().out.splitlines() == re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)
            continue
        for command in block.replace("\\\n", " ").splitlines():
            app(shlex.split(command)[1:], standalone_mode=False)
        printed.append(capsys.readouterr().out)
    assert "assumed (override with --set): activation=relu, layer_norm_eps=1e-05," in printed[2]
    first, again = (load_file(tmp_path / "runs" / name / "model.safetensors") for name in ("gpt", "gpt-again"))
    assert_equal(again, first)
    # The classifier that the page exports, on either side of padding and alone.
    for texts in (["a good film", "bad", "a"], ["mad"]):
        for side in ("left", "right"):
            batch = tokenizer(texts, padding=True, return_tensors="pt", padding_side=side)
            with torch.no_grad():
                expected = model(**batch).logits
            found = run_onnx(tmp_path / "runs" / "imdb-onnx", **batch)["logits"]
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("convert nanogpt none.pt --output ours", "error: none.pt was not found; give the path of a checkpoint.\n"),
        (
            "convert nanogpt none.pt --output ours --set n_head",
            "--set n_head is not NAME=VALUE; write",
        ),
        (
            "convert nanogpt none.pt --output ours --set n_head=[",
            "of --set n_head is not valid YAML",
        ),
        ("export onnx none --output ours", "error: none is not a model folder: config.json is missing;"),
    ],
)
def test_a_refusal_is_one_sentence(
    words: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        app(words.split(), standalone_mode=False)
    assert end.value.code == 2
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_help_names_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    for command, kinds in (("convert", FORMATS), ("export", TARGETS)):
        app([command, "--help"], standalone_mode=False)
        text = re.sub(r"-\s+", "-", capsys.readouterr().out)  # a line breaks behind a hyphen
        assert all(kind in text for kind in kinds)
        assert f"hfattn {command} " in text
