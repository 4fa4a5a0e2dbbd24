"""Attention records: out of generation and forward passes, of this package's models and of transformers'."""

import html.parser
import json
import re
import sys
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
import pytest
import torch
from commands import OUTSIDE, run_anew
from matplotlib.text import Text
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertModel,
    DeiTConfig,
    DeiTModel,
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.modeling_outputs import BaseModelOutput

from hfattn import (
    BahdanauConfig,
    BahdanauForConditionalGeneration,
    RNNEncoderConfig,
    RNNEncoderModel,
    VaswaniConfig,
    VaswaniForConditionalGeneration,
)
from hfattn.explaining import (
    AttentionRecord,
    alignment,
    hide_special,
    merge_words,
    plot_alignment,
    plot_flow,
    plot_heads,
    render_html,
    render_text,
    rollout,
    save_animation,
    save_html,
)
from hfattn.explaining.words import token_words
from hfattn.tokenizers import build_character_tokenizer

V, PAD, BOS, EOS = 12, 0, 1, 2
ENDS = [2, 4, 7]  # several symbols that end a text: hypotheses of an untrained model then differ in length
IDS = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
SIDES = {
    "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "d_model": 16, "max_position_embeddings": 64,
}  # fmt: skip


def make(name: str, seed: int = 0) -> Any:
    """A small random model in float64 and eager attention, with weights large enough for its hypotheses to differ."""
    torch.manual_seed(seed)
    model: Any
    if name == "marian":
        model = MarianMTModel(
            MarianConfig(vocab_size=V, decoder_start_token_id=PAD, forced_eos_token_id=None, **SIDES, **IDS)
        )
    elif name == "bart":
        model = BartForConditionalGeneration(
            BartConfig(vocab_size=V, decoder_start_token_id=EOS, forced_eos_token_id=None, **SIDES, **IDS)
        )
    elif name == "t5":
        sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 2, "num_heads": 2}
        model = T5ForConditionalGeneration(T5Config(vocab_size=V, decoder_start_token_id=PAD, **sizes, **IDS))
    elif name == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(vocab_size=V, n_embd=16, n_layer=2, n_head=2, n_positions=64, **IDS))
    elif name == "vaswani":
        config = VaswaniConfig.preset(
            "small", vocab_size=V, hidden_size=16, intermediate_size=16, num_attention_heads=2,
            decoder_start_token_id=BOS, **IDS,
        )  # fmt: skip
        model = VaswaniForConditionalGeneration(config)
    elif name == "bahdanau":
        model = BahdanauForConditionalGeneration(
            BahdanauConfig(vocab_size=V, hidden_size=8, encoder_hidden_size=4, embedding_size=8)
        )
    else:
        model = BahdanauForConditionalGeneration(
            BahdanauConfig.preset(
                name, vocab_size=V, hidden_size=8, encoder_hidden_size=8, embedding_size=8, encoder_layers=1,
                decoder_layers=1, dropout=0.0,
            )
        )  # fmt: skip
    model.set_attn_implementation("eager")
    for part in (model.get_encoder(), model.get_decoder()):
        part.config._attn_implementation = "eager"  # T5's halves have configurations of their own
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1 and parameter.requires_grad:  # tables of positions stay
                parameter.normal_(std=0.5)
    return model


LENGTHS = [3, 6, 4]


def batch(side: str) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, V, (len(LENGTHS), max(LENGTHS)), generator=generator)
    mask = torch.tensor([[1] * n + [0] * (max(LENGTHS) - n) for n in LENGTHS])
    mask = mask if side == "right" else mask.flip(1)
    return {"input_ids": ids * mask, "attention_mask": mask}


OPTIONS: dict[str, Any] = {
    "output_attentions": True,
    "return_dict_in_generate": True,
    "max_new_tokens": 9,
    "eos_token_id": ENDS,
}
MODES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "uncached": {"do_sample": False, "use_cache": False},
    "sampled": {"do_sample": True, "num_return_sequences": 2, "top_k": 0},
    "beam": {"do_sample": False, "num_beams": 4, "num_return_sequences": 2},
    "beam uncached": {"do_sample": False, "num_beams": 4, "num_return_sequences": 3, "use_cache": False},
}
SEQ2SEQ = ["marian", "bart", "t5", "vaswani", "bahdanau", "luong2015_dot", "luong2015_local_p"]


def generated(name: str, inputs: dict[str, torch.Tensor], mode: str) -> tuple[Any, Any]:
    """A model and what it generates: the first of those at random whose sequences end at different steps."""
    prompt = inputs["input_ids"].shape[1] if name == "gpt2" else 1
    for seed in range(30):
        model = make(name, seed)
        outputs = model.generate(**inputs, **OPTIONS, **MODES[mode])
        if len({len(finished(sequence[prompt:].tolist())) for sequence in outputs.sequences}) > 1:
            return model, outputs
    raise AssertionError("sequences of one length cannot show that the steps after an end are left out")


def finished(written: list[int]) -> list[int]:
    return written[: next((i for i, token in enumerate(written, 1) if token in ENDS), len(written))]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SEQ2SEQ)
@torch.no_grad()
def test_alignment_of_a_translation_is_that_of_reading_it_again(name: str, mode: str) -> None:
    """Each hypothesis of each text against a teacher-forced pass over it alone, without padding."""
    inputs = batch("right")
    model, outputs = generated(name, inputs, mode)
    hypotheses = MODES[mode].get("num_return_sequences", 1)
    for index, source_length in enumerate(LENGTHS):
        for hypothesis in range(hypotheses):
            record = alignment(outputs, index, hypothesis=hypothesis, eos_token_id=ENDS, **inputs)
            source = inputs["input_ids"][index : index + 1, :source_length]
            sequence = outputs.sequences[index * hypotheses + hypothesis]
            target = finished(sequence[1:].tolist())
            start = model.config.decoder_start_token_id
            again = model(
                input_ids=source, decoder_input_ids=torch.tensor([[start, *target[:-1]]]), output_attentions=True
            )
            expected = torch.stack([layer[0] for layer in again.cross_attentions])
            torch.testing.assert_close(record.weights, expected, rtol=1e-9, atol=1e-12)
            assert record.kind == "cross"
            assert record.tokens == tuple(map(str, source[0].tolist()))
            assert record.target_tokens == tuple(map(str, target))

            labels = torch.tensor([[*target, -100, -100]])
            fed = torch.tensor([[start, *target[:-1], PAD, PAD]])
            padded = {name: tensor[index : index + 1] for name, tensor in inputs.items()}
            forced = model(**padded, decoder_input_ids=fed, output_attentions=True)
            same = alignment(forced, labels=labels, **padded)
            torch.testing.assert_close(same.weights, expected, rtol=1e-9, atol=1e-12)
            assert (same.tokens, same.target_tokens) == (record.tokens, record.target_tokens)


@pytest.mark.parametrize("mode", ["greedy", "sampled", "beam uncached"])
@pytest.mark.parametrize("name", ["marian", "bahdanau"])
@torch.no_grad()
def test_probabilities_of_a_translation_are_those_of_reading_it_again(name: str, mode: str) -> None:
    """From the logits of generation, and of a forward pass; without logits there are none."""
    inputs, count = batch("right"), MODES[mode].get("num_return_sequences", 1)
    model, _ = generated(name, inputs, mode)
    torch.manual_seed(0)
    outputs = model.generate(**inputs, **OPTIONS, **MODES[mode], output_logits=True)
    for index, length in enumerate(LENGTHS):
        record = alignment(outputs, index, hypothesis=count - 1, eos_token_id=ENDS, **inputs)
        assert record.probabilities is not None
        assert record.entropies is not None
        target = [int(token) for token in record.target_tokens]
        source, labels = inputs["input_ids"][index : index + 1, :length], torch.tensor([target])
        fed = torch.tensor([[model.config.decoder_start_token_id, *target[:-1]]])
        again = model(input_ids=source, decoder_input_ids=fed, output_attentions=True)
        for probability, entropy, logits, token in zip(
            record.probabilities, record.entropies, again.logits[0], target, strict=True
        ):
            shares = logits.softmax(-1)
            assert float(probability) == pytest.approx(float(shares[token]), rel=1e-4)
            assert float(entropy) == pytest.approx(-sum(float(p * p.log()) for p in shares), rel=1e-4)
        forced = alignment(again, input_ids=source, labels=labels)
        torch.testing.assert_close(forced.probabilities, record.probabilities, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(forced.entropies, record.entropies, rtol=1e-4, atol=1e-6)
    assert alignment(generated(name, inputs, mode)[1], eos_token_id=ENDS, **inputs).probabilities is None


@pytest.mark.parametrize("mode", MODES)
@torch.no_grad()
def test_self_attention_of_a_continuation_is_that_of_reading_it_again(mode: str) -> None:
    inputs = batch("left")
    model, outputs = generated("gpt2", inputs, mode)
    hypotheses = MODES[mode].get("num_return_sequences", 1)
    width = max(LENGTHS)
    for index, length in enumerate(LENGTHS):
        for hypothesis in range(hypotheses):
            record = alignment(outputs, index, hypothesis=hypothesis, eos_token_id=ENDS, **inputs)
            sequence = outputs.sequences[index * hypotheses + hypothesis].tolist()
            written = finished(sequence[width:])
            text = torch.tensor([sequence[width - length : width] + written[:-1]])
            expected = torch.stack([layer[0] for layer in model(text, output_attentions=True).attentions])
            torch.testing.assert_close(record.weights, expected, rtol=1e-9, atol=1e-12)
            assert record.kind == "self"
            assert record.tokens == record.target_tokens == tuple(map(str, text[0].tolist()))


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
@pytest.mark.parametrize("mode", ["greedy", "beam", "beam uncached"])
@torch.no_grad()
def test_self_attention_of_either_side(kind: str, mode: str) -> None:
    inputs = batch("right")
    model, outputs = generated("marian", inputs, mode)
    count = MODES[mode].get("num_return_sequences", 1)
    for index, length in enumerate(LENGTHS):
        record = alignment(outputs, index, kind=kind, eos_token_id=ENDS, **inputs)
        source = inputs["input_ids"][index : index + 1, :length]
        read = torch.tensor([[PAD, *finished(outputs.sequences[index * count, 1:].tolist())[:-1]]])
        again = model(input_ids=source, decoder_input_ids=read, output_attentions=True)
        expected = torch.stack([layer[0] for layer in again[f"{kind}_attentions"]])
        torch.testing.assert_close(record.weights, expected, rtol=1e-9, atol=1e-12)
        forced = alignment(again, kind=kind, input_ids=source, decoder_input_ids=read)
        torch.testing.assert_close(forced.weights, expected)
        tokens = source if kind == "encoder" else read
        assert record.tokens == record.target_tokens == forced.tokens == tuple(map(str, tokens[0].tolist()))


@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_self_attention_of_a_text_that_was_read(side: str) -> None:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=V, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16, attn_implementation="eager", **IDS,
    )  # fmt: skip
    model, inputs = BertModel(config).double().eval(), batch(side)
    outputs = model(
        **inputs, position_ids=(inputs["attention_mask"].cumsum(1) - 1).clamp(min=0), output_attentions=True
    )
    for index in range(len(LENGTHS)):
        record = alignment(outputs, index, **inputs)
        text = inputs["input_ids"][index : index + 1, inputs["attention_mask"][index].bool()]
        expected = torch.stack([layer[0] for layer in model(text, output_attentions=True).attentions])
        torch.testing.assert_close(record.weights, expected, rtol=1e-9, atol=1e-12)
        assert record.kind == "self"
        assert record.tokens == record.target_tokens == tuple(map(str, text[0].tolist()))


@pytest.mark.parametrize("use_cache", [True, False])
@torch.no_grad()
def test_rows_of_a_static_cache_and_of_a_continued_one(use_cache: bool) -> None:
    """Keys that are all there from the start are cut to the text; a cache from before has no rows for what it read."""
    model, inputs = make("gpt2"), batch("left")
    endless = {**OPTIONS, "eos_token_id": None, "do_sample": False}
    static = model.generate(**inputs, **endless, cache_implementation="static")
    known = model.generate(**inputs, **endless, use_cache=use_cache)
    for index in range(len(LENGTHS)):
        one, other = (alignment(outputs, index, eos_token_id=[], **inputs) for outputs in (static, known))
        assert one.tokens == other.tokens
        torch.testing.assert_close(one.weights, other.weights)

    text = inputs["input_ids"][1:2]
    cache = model(text[:, :4], use_cache=True).past_key_values
    continued = model.generate(text, past_key_values=cache, **endless)
    record, whole = (alignment(outputs) for outputs in (continued, model.generate(text, **endless)))
    assert record.tokens == whole.tokens
    assert record.target_tokens == whole.tokens[4:]
    torch.testing.assert_close(record.weights, whole.weights[:, :, 4:])


@torch.no_grad()
def test_attention_pooling_is_one_row() -> None:
    torch.manual_seed(0)
    config = RNNEncoderConfig(vocab_size=V, pooling="attention", pad_token_id=PAD)
    model, inputs = RNNEncoderModel(config).eval(), batch("right")
    outputs = model(**inputs, output_attentions=True)
    for index, length in enumerate(LENGTHS):
        record = alignment(outputs, index, **inputs)
        assert (len(record.tokens), record.target_tokens) == (length, ("[text]",))
        torch.testing.assert_close(record.weights.sum(-1), torch.ones(1, 1, 1))


# Pictures


@torch.no_grad()
def test_attention_of_a_vision_transformer_has_a_grid_and_a_prefix() -> None:
    """Two token rows before 2 x 3 patches; drawn and stored, the record keeps its grid."""
    torch.manual_seed(0)
    config = DeiTConfig(
        image_size=(4, 6), patch_size=2, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=8, attn_implementation="eager",
    )  # fmt: skip
    model = DeiTModel(config).double().eval()
    outputs = model(torch.randn(2, 3, 4, 6).double(), output_attentions=True)
    record = alignment(outputs, 1, grid=(2, 3), prefix_tokens=("[CLS]", "[DIST]"))
    assert record.tokens == record.target_tokens == ("[CLS]", "[DIST]", "0,0", "0,1", "0,2", "1,0", "1,1", "1,2")
    assert (record.kind, record.grid, record.num_prefix_tokens) == ("self", (2, 3), 2)
    maps = record.maps(1, 0)
    for row in range(2):
        for column in range(3):
            torch.testing.assert_close(maps[:, row, column], outputs.attentions[1][1, 0, :, 2 + 3 * row + column])

    again = AttentionRecord.from_dict(json.loads(json.dumps(record.to_dict())))
    assert (again.tokens, again.grid, again.num_prefix_tokens) == (record.tokens, record.grid, record.num_prefix_tokens)
    assert torch.equal(again.weights, record.weights)
    merged = merge_words(record)
    assert (merged.tokens, merged.grid, merged.num_prefix_tokens) == (record.tokens, (2, 3), 2)
    hidden = hide_special(record)
    assert (hidden.tokens, hidden.grid, hidden.num_prefix_tokens) == (record.tokens[2:], (2, 3), 0)
    assert torch.equal(hidden.maps(), record.maps()[2:])

    # Rollout: the columns of the prefix are left out after the product; before it, the result would be another one.
    traced = rollout(record)
    product = torch.eye(8, dtype=torch.float64)
    for layer in outputs.attentions:
        product = (layer[1].mean(0) + torch.eye(8)) / 2 @ product
    torch.testing.assert_close(traced.maps()[0].flatten(), product[0, 2:])


@pytest.mark.parametrize("mode", ["greedy", "beam"])
def test_alignment_of_a_caption_is_over_the_grid(mode: str) -> None:
    """What a decoder attends to is a text or a picture; the weights are the same."""
    inputs, count = batch("right"), MODES[mode].get("num_return_sequences", 1)
    _, outputs = generated("bahdanau", inputs, mode)
    index = LENGTHS.index(6)
    known = alignment(outputs, index, hypothesis=count - 1, eos_token_id=ENDS, **inputs)
    pictures = torch.zeros(len(LENGTHS), 3, 4, 6)
    record = alignment(
        outputs, index, hypothesis=count - 1, eos_token_id=ENDS, grid=(2, 3), pixel_values=pictures
    )  # fmt: skip
    assert record.tokens == ("0,0", "0,1", "0,2", "1,0", "1,1", "1,2")
    assert record.target_tokens == known.target_tokens
    assert torch.equal(record.maps(), known.matrix().view(-1, 2, 3))
    with pytest.raises(ValueError, match=r"grid is \(2, 2\) with 1 prefix tokens, 5 in all; the weights are on 6"):
        alignment(outputs, index, eos_token_id=ENDS, grid=(2, 2), prefix_tokens=("[CLS]",), pixel_values=pictures)


def test_a_grid_that_does_not_fit() -> None:
    sides = (tuple("abcd"), ("cat",), torch.full((1, 1, 1, 4), 0.25))
    for options, message in (
        ({"grid": (2, 3)}, "grid is 2 x 3 and num_prefix_tokens 0, which are 6 tokens; the record has 4"),
        ({"grid": (2, 2), "num_prefix_tokens": 1}, "which are 5 tokens"),
        ({"num_prefix_tokens": 1}, "num_prefix_tokens is 1; only the tokens of a grid have a prefix"),
    ):
        with pytest.raises(ValueError, match=message):
            AttentionRecord(*sides, **options)
    with pytest.raises(ValueError, match=r"has no grid.*use matrix"):
        AttentionRecord(*sides).maps()


@torch.no_grad()
def test_layers_of_different_shapes_are_no_one_record() -> None:
    weights = (torch.ones(1, 1, 1, 4), torch.ones(1, 1, 1, 2))  # of words, and of sentences
    with pytest.raises(ValueError, match=r"different shapes \(\(1, 1, 1, 4\), \(1, 1, 1, 2\)\)"):
        alignment(BaseModelOutput(attentions=weights), input_ids=torch.ones(1, 4, dtype=torch.long))


def byte_level_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<pad>": 0, "<s>": 1, "</s>": 2, **{c: i for i, c in enumerate(alphabet, 3)}, "Ġt": 300, "Ġto": 301}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[("Ġ", "t"), ("Ġt", "o")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


@torch.no_grad()
def test_a_tokenizer_names_the_tokens_and_knows_padding_and_end() -> None:
    tokenizer = build_character_tokenizer(["abcdefgh "], ends=True)
    assert len(tokenizer) == V
    inputs = tokenizer(["a b", "cafe"], padding=True, return_tensors="pt")
    model = make("bahdanau", 1)
    outputs = model.generate(**inputs, **{**OPTIONS, "eos_token_id": EOS})
    record = alignment(outputs, 0, input_ids=inputs.input_ids, tokenizer=tokenizer)
    assert record.tokens == ("a", " ", "b", "[EOS]")
    known = alignment(outputs, 0, eos_token_id=EOS, **inputs)
    assert record.target_tokens == tuple(tokenizer.convert_ids_to_tokens(list(map(int, known.target_tokens))))
    assert torch.equal(record.weights, known.weights)

    levels = byte_level_tokenizer()
    ids = levels("a to é", return_tensors="pt").input_ids
    weights = (torch.full((1, 1, ids.shape[1], ids.shape[1]), 0.1),)
    read = alignment(BaseModelOutput(attentions=weights), input_ids=ids, tokenizer=levels)
    assert read.tokens == ("a", " to", " ", "\ufffd", "\ufffd")  # é is two bytes, and a token is one of them


# What cannot be answered


@torch.no_grad()
@pytest.mark.parametrize(
    ("kind", "attended", "attending"),
    [("cross", "source", "target"), ("encoder", "source", "source"), ("decoder", "target", "target")],
)
def test_each_side_has_the_names_of_its_own_tokenizer(kind: str, attended: str, attending: str) -> None:
    """The same ids on both sides, and names that differ: which tokenizer named them cannot be mistaken."""
    tokenizers = {
        "source": build_character_tokenizer(["abcdefgh "], ends=True),
        "target": build_character_tokenizer(["αβγδεζηθ "], ends=True),
    }
    options: dict[str, Any] = {"tokenizer": tokenizers["source"], "target_tokenizer": tokenizers["target"]}
    inputs = tokenizers["source"](["a b", "cafe"], padding=True, return_tensors="pt")
    ids, mask = inputs.input_ids, inputs.attention_mask
    model = make("vaswani")
    reading = model(input_ids=ids, attention_mask=mask, labels=ids, output_attentions=True)
    generated = model.generate(ids, attention_mask=mask, **{**OPTIONS, "eos_token_id": EOS})
    for outputs in (reading, generated):
        known = alignment(
            outputs, 0, kind=kind, input_ids=ids, attention_mask=mask, labels=ids, decoder_input_ids=ids,
            decoder_attention_mask=mask, eos_token_id=EOS,
        )  # fmt: skip
        record = alignment(outputs, 0, kind=kind, input_ids=ids, labels=ids, decoder_input_ids=ids, **options)
        for names, numbers, side in (
            (record.tokens, known.tokens, attended),
            (record.target_tokens, known.target_tokens, attending),
        ):
            assert names == tuple(tokenizers[side].convert_ids_to_tokens(list(map(int, numbers))))
        assert torch.equal(record.weights, known.weights)


def test_missing_weights_and_arguments() -> None:
    model, inputs = make("marian"), batch("right")
    outputs = model.generate(**inputs, **OPTIONS, do_sample=False)
    forced = model(**inputs, labels=inputs["input_ids"], output_attentions=True)
    ids = inputs["input_ids"]
    model.set_attn_implementation("sdpa")
    fused = model.generate(**inputs, **OPTIONS)
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (fused, inputs, r"contain no cross_attentions.*set_attn_implementation\("),
        (fused, {"kind": "encoder", **inputs}, "contain no encoder_attentions"),
        (
            model(**inputs, labels=ids, output_attentions=True),
            inputs,
            "contain no cross_attentions.*output_attentions=True",
        ),
        (
            model.generate(**inputs, max_new_tokens=2, return_dict_in_generate=True),
            inputs,
            "contain no cross_attentions",
        ),
        (model.generate(**inputs, max_new_tokens=2), inputs, "not a Tensor; pass return_dict_in_generate=True"),
        (outputs, {"eos_token_id": ENDS}, "do not contain input_ids.*pass input_ids"),
        (outputs, inputs, "do not tell where a sequence of a batch ends; pass tokenizer or eos_token_id"),
        (outputs, {"kind": "crossed", **inputs}, "kind is 'crossed'; write one of 'cross'"),
        (outputs, {"index": 3, "eos_token_id": ENDS, **inputs}, "index is 3; write 0 to 2"),
        (outputs, {"index": -1, "eos_token_id": ENDS, **inputs}, "index is -1"),
        (outputs, {"hypothesis": 1, "eos_token_id": ENDS, **inputs}, "hypothesis is 1; write 0"),
        (outputs, {"input_ids": ids[:2], "eos_token_id": ENDS}, "input_ids has 2 rows for 3 sequences"),
        (outputs, {"input_ids": ids[:, 1:], "eos_token_id": ENDS}, r"input_ids has shape \(3, 5\).*\(batch, 6\)"),
        (outputs, {"eos_token_id": ENDS, **inputs, "attention_mask": ids[:, :2]}, "mask has shape"),
        (forced, inputs, "do not contain labels.*pass labels"),
        (forced, {"kind": "decoder", **inputs}, "do not contain decoder_input_ids"),
        (forced, {"hypothesis": 1, "labels": ids, **inputs}, "hypothesis is 1; write 0"),
        (forced, {"index": 3, "labels": ids, **inputs}, "index is 3"),
    ]
    for given, arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            alignment(given, **arguments)


def test_a_record_has_the_shape_of_its_tokens() -> None:
    with pytest.raises(ValueError, match=r"need \(layers, heads, 1, 2\)"):
        AttentionRecord(("a", "b"), ("c",), torch.ones(1, 1, 2, 1))
    with pytest.raises(ValueError, match="kind is 'other'"):
        AttentionRecord(("a",), ("c",), torch.ones(1, 1, 1, 1), "other")
    record = AttentionRecord(("a", "b"), ("c",), torch.arange(12.0).view(2, 3, 1, 2))
    assert record.matrix().tolist() == [[5, 6]]
    assert record.matrix(layer=1).tolist() == [[8, 9]]
    assert record.matrix(layer=-1, head=2).tolist() == [[10, 11]]
    with pytest.raises(ValueError, match="head is 3; the record has 3: write 0 to 2"):
        record.matrix(head=3)


def test_a_record_survives_json() -> None:
    record = hard_record()
    again = AttentionRecord.from_dict(json.loads(json.dumps(record.to_dict())))
    assert (again.tokens, again.target_tokens, again.kind) == (record.tokens, record.target_tokens, record.kind)
    assert torch.equal(again.weights.float(), record.weights)


# Pictures

HOSTILE = "</script><img src=x onerror=alert(1)>"


def hard_record(layers: int = 2, heads: int = 3) -> AttentionRecord:
    """Tokens that break pictures: white space, markup, formulas, other directions, other scripts, places to fill in."""
    tokens = (
        " like",
        "▁I",
        "\n",
        HOSTILE,
        "$x^{",
        "\\frac",
        "サッカー",
        "כדורגל",
        "كرة",
        "&amp;",
        "$record",
        "",
        "\u2028",
        "👩‍🚀",
    )
    targets = ("[BOS]", "</s>", "'\"", "<!--", "]]>", "x" * 80)
    weights = torch.rand(layers, heads, len(targets), len(tokens), generator=torch.Generator().manual_seed(0))
    return AttentionRecord(tokens, targets, weights.softmax(-1))


class Page(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self.texts: dict[str, str] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside.append(dict(attrs).get("id") or tag)

    def handle_endtag(self, tag: str) -> None:
        self.inside.pop()

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.texts[self.inside[-1]] = self.texts.get(self.inside[-1], "") + data


def test_a_page_is_one_file_that_holds_its_record(tmp_path: Path) -> None:
    record = hard_record()
    save_html(record, tmp_path / "map.html", title=f"{HOSTILE} $record & co")
    text = (tmp_path / "map.html").read_text(encoding="utf-8")
    assert text == render_html(record, f"{HOSTILE} $record & co")
    page = Page(text)
    assert "img" not in [tag for tag, _ in page.elements]
    assert not [name for _, attributes in page.elements for name in attributes if name in ("src", "href", "onerror")]
    assert page.texts["title"] == page.texts["h1"] == f"{HOSTILE} $record & co"
    held = json.loads(page.texts["record"])
    assert tuple(held["tokens"]) == record.tokens
    assert tuple(held["target_tokens"]) == record.target_tokens
    torch.testing.assert_close(torch.tensor(held["weights"]), record.weights, rtol=1e-3, atol=0)
    assert re.findall(r"[a-z]+://[^\s\"']*", text) == ["http://www.w3.org/2000/svg"]  # the name of a format
    assert "default-src 'none'" in text


def test_titles_of_pages() -> None:
    record = hard_record()
    assert '<h1 dir="auto">Alignment</h1>' in render_html(record)
    read = AttentionRecord(("a",), ("a",), torch.ones(1, 1, 1, 1), "self")
    assert "<title>Self-attention</title>" in render_html(read)


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_a_plot_of_hard_tokens(tmp_path: Path, kind: str) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # what this machine's fonts lack
        figure = plot_alignment(hard_record(), title="$x^{ \\frac")
        figure.savefig(tmp_path / f"map.{kind}")
    assert (tmp_path / f"map.{kind}").stat().st_size > 2000


@pytest.mark.parametrize(("targets", "sources"), [(1, 1), (1, 60), (60, 2), (60, 60)])
def test_a_plot_shows_each_weight_and_cuts_no_label(targets: int, sources: int) -> None:
    weights = torch.rand(2, 2, targets, sources, generator=torch.Generator().manual_seed(1))
    rows = tuple(f"internationalisation{i}" for i in range(targets))
    columns = tuple(f"responsibility{i}" if i % 2 else "." for i in range(sources))
    record = AttentionRecord(columns, rows, weights)
    figure = plot_alignment(record, layer=1, head=0, title="A title")
    figure.draw_without_rendering()
    axes, bar = figure.axes
    (image,) = axes.images
    torch.testing.assert_close(torch.tensor(np.asarray(image.get_array())), weights[1, 0])
    assert [tick.get_text() for tick in axes.get_yticklabels()] == list(rows)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == list(columns)
    width, height = figure.bbox.width, figure.bbox.height
    boxes = [tick.get_window_extent() for tick in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    for box in (*boxes, *(text.get_window_extent() for text in figure.texts), bar.get_tightbbox()):
        assert box is not None
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= width
        assert box.y1 <= height
    for one, other in [*pairwise(boxes[:sources]), *pairwise(boxes[sources:])]:
        assert not one.overlaps(other)
    cell = axes.get_window_extent()
    assert cell.width / sources == pytest.approx(cell.height / targets, rel=1e-6)
    assert len({tick.get_rotation() for tick in axes.get_xticklabels()}) == 1


@pytest.mark.parametrize("style", ["default", "dark_background"])
def test_a_larger_weight_stands_out_more_from_the_background(style: str) -> None:
    record = AttentionRecord(("a", "b"), ("x", "y"), torch.tensor([[[[1.0, 0.0], [0.0, 1.0]]]]))
    with matplotlib.style.context(style):
        drawn = (plot_alignment(record), plot_heads(record))
        ramps = [figure.axes[0].images[0].get_cmap()(range(256)) for figure in drawn]
        paper = matplotlib.colors.to_rgb(matplotlib.rcParams["figure.facecolor"])
    theme = "light" if style == "default" else "dark"
    for ramp in ramps:
        lightness = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b, _ in ramp]
        assert all((low < high) == (theme == "dark") for low, high in pairwise(lightness))
        assert np.abs(ramp[0, :3] - paper).max() < 0.15 < 0.6 < np.abs(ramp[-1, :3] - paper).min()
    held = json.loads(re.findall(r'id="record">(.*?)</script>', render_html(record), re.DOTALL)[0])["ramps"][theme]
    assert [matplotlib.colors.to_hex(ramps[0][0]), matplotlib.colors.to_hex(ramps[0][-1])] == [held[0], held[-1]]


def test_labels_of_characters_are_horizontal_and_special_tokens_fit_into_their_cell() -> None:
    record = AttentionRecord((*"22 nov", "[EOS]"), ("x",), torch.ones(1, 1, 1, 7))
    for figure in (plot_alignment(record), plot_heads(record)):
        figure.draw_without_rendering()
        axes = figure.axes[0]
        labels = [text for text in (*axes.get_xticklabels(), *axes.texts) if text.get_text() in {*"2␣nov", "[EOS]"}]
        boxes = [text.get_window_extent() for text in labels]
        assert len(boxes) == 7
        assert {text.get_rotation() for text in labels} == {0.0}
        assert not any(one.overlaps(other) for one, other in pairwise(boxes))


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ((" La", " ni", "ñ", "ita", ".", "[EOS]"), ["La", "niñita", ".", "[EOS]"]),
        (("▁do", "n't", "▁", "go", "</s>"), ["don't", "go", "</s>"]),
        (("[CLS]", "un", "##believ", "##able", "!", "[SEP]"), ["[CLS]", "unbelievable", "!", "[SEP]"]),
        ((*"22 nov", "[EOS]"), ["22", "nov", "[EOS]"]),
        ((*"1794-11", "[EOS]"), ["1794", "-", "11", "[EOS]"]),
        (("why", "is", "it", "?"), ["why", "is", "it", "?"]),
        (("▁天空", "为", "</s>"), ["天空", "为", "</s>"]),
        (("\n",), ["\n"]),
    ],
)
def test_words_of_tokens(tokens: tuple[str, ...], words: list[str]) -> None:
    found = token_words(tokens)
    assert [word for word, _ in found] == words
    assert [place for _, places in found for place in places] == list(range(len(tokens)))


def test_merged_words_sum_over_the_source_and_average_over_the_target() -> None:
    tokens, targets = (" a", "b", " c", "[EOS]"), (" x", "y", "z", " w", "[EOS]")
    torch.manual_seed(0)
    weights = torch.randn(2, 3, 5, 4).softmax(-1)
    record = AttentionRecord(tokens, targets, weights, "cross", torch.rand(5), torch.rand(5))
    merged = merge_words(record)
    assert (merged.tokens, merged.target_tokens) == (("ab", "c", "[EOS]"), ("xyz", "w", "[EOS]"))
    sources, rows = [[0, 1], [2], [3]], [[0, 1, 2], [3], [4]]
    for layer in range(2):
        for head in range(3):
            for i, members in enumerate(rows):
                for j, columns in enumerate(sources):
                    total = 0.0
                    for row in members:
                        for column in columns:
                            total += weights[layer, head, row, column].item()
                    assert merged.weights[layer, head, i, j].item() == pytest.approx(total / len(members))
    torch.testing.assert_close(merged.weights.sum(-1), torch.ones(2, 3, 3))
    assert record.probabilities is not None
    assert merged.probabilities is not None
    assert merged.entropies is not None
    one, two, three, *_ = record.probabilities.tolist()
    assert merged.probabilities[0].item() == pytest.approx(one * two * three)
    assert merged.entropies[0].item() == pytest.approx(sum(record.entropies[:3].tolist()) / 3)  # type: ignore[index]


def test_hidden_special_tokens_leave_the_other_weights_as_they_are() -> None:
    weights = torch.arange(12.0).reshape(1, 1, 3, 4)
    record = AttentionRecord(("[CLS]", "a", "b", "</s>"), ("x", "[EOS]", "y"), weights, "cross", torch.rand(3))
    hidden = hide_special(record)
    assert (hidden.tokens, hidden.target_tokens) == (("a", "b"), ("x", "y"))
    assert hidden.weights[0, 0].tolist() == [[1, 2], [9, 10]]
    assert hidden.probabilities is not None
    assert hidden.probabilities.tolist() == record.probabilities[[0, 2]].tolist()  # type: ignore[index]
    pooled = AttentionRecord(("[CLS]", "a"), ("[text]",), torch.ones(1, 1, 1, 2), "self")
    assert hide_special(pooled).target_tokens == ("[text]",)  # the only row


def test_a_record_keeps_its_probabilities() -> None:
    record = AttentionRecord(("a",), ("x",), torch.ones(1, 1, 1, 1), "cross", torch.tensor([0.25]), torch.tensor([1.5]))
    again = AttentionRecord.from_dict(json.loads(json.dumps(record.to_dict())))
    assert again.to_dict() == record.to_dict()
    assert record.to_dict()["probabilities"] == [0.25]
    with pytest.raises(ValueError, match=r"entropies has shape \(2,\); 1 target tokens need \(1,\)"):
        AttentionRecord(("a",), ("x",), torch.ones(1, 1, 1, 1), entropies=torch.ones(2))


def test_a_list_of_what_was_looked_at() -> None:
    record = AttentionRecord(("a", " ", "c"), ("x", "yz"), torch.tensor([[[[0.7, 0.296, 0.004], [0.0, 0.0, 0.0]]]]))
    assert render_text(record) == "x  ← a 70%   ␣ 30%\nyz ←"


def test_a_record_that_cannot_be_drawn() -> None:
    empty = AttentionRecord((), ("a",), torch.ones(1, 1, 1, 0))
    odd = AttentionRecord(("a",), ("a",), torch.full((1, 1, 1, 1), torch.nan))
    for draw in (render_html, plot_alignment, plot_heads, plot_flow):
        with pytest.raises(ValueError, match="no tokens on one side"):
            draw(empty)
        with pytest.raises(ValueError, match="NaN or infinite weights"):
            draw(odd)
    with pytest.raises(ValueError, match="layer is 2; the record has 2"):
        plot_alignment(hard_record(), layer=2)
    with pytest.raises(ValueError, match="head is 3; the record has 3"):
        plot_flow(hard_record(), head=3)


def within(figure: Any) -> None:
    """Every text of the figure is inside of it."""
    figure.draw_without_rendering()
    shown = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    assert shown
    for text in shown:
        box = text.get_window_extent()
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= figure.bbox.width, text
        assert box.y1 <= figure.bbox.height, text


@pytest.mark.parametrize(("targets", "sources"), [(1, 1), (7, 9), (2, 60), (60, 60)])
def test_a_map_of_each_head(targets: int, sources: int) -> None:
    weights = torch.rand(3, 4, targets, sources, generator=torch.Generator().manual_seed(1)) ** 2
    rows = tuple(f"internationalisation{i}" for i in range(targets))
    columns = tuple(f"responsibility{i}" for i in range(sources))
    record = AttentionRecord(columns, rows, weights)
    figure = plot_heads(record, title="A title")
    within(figure)
    sheet = figure.axes[0]
    named = {text.get_text(): text.get_position() for text in sheet.texts}
    for index, image in enumerate(sheet.images):
        layer, head = divmod(index, 4)
        expected = weights[layer, head] / weights[layer, head].max()
        torch.testing.assert_close(torch.tensor(np.asarray(image.get_array())), expected)
        left, _, _, top = image.get_extent()
        assert named[f"L{layer + 1} H{head + 1}"] == pytest.approx((left, top - 0.05))
    assert len(sheet.images) == 12
    assert ("responsibility0" in named) == (sources < 60)  # where there is room for them
    assert "A title" in [text.get_text() for text in figure.texts]


def test_a_head_that_a_map_has_no_room_for_keeps_its_greatest_weights() -> None:
    weights = torch.full((1, 1, 500, 500), 0.1)
    weights[0, 0, 333, 21] = -0.3
    weights[0, 0, 77, 401] = 0.9
    tokens = tuple(map(str, range(500)))
    (image,) = plot_heads(AttentionRecord(tokens, tokens, weights)).axes[0].images
    shown = np.asarray(image.get_array())
    assert shown.max() == 1
    assert np.unravel_index(shown.argmax(), shown.shape) == (77 * 160 // 500, 401 * 160 // 500)
    assert shown.min() == pytest.approx(0.1 / 0.9)


@pytest.mark.parametrize("long", [False, True])
def test_threads_lead_from_token_to_token(long: bool) -> None:
    tokens = tuple(f"word{i}" for i in range(60 if long else 4))
    targets = ("uno", "dos", "tres")
    weights = torch.zeros(1, 1, len(targets), len(tokens))
    weights[0, 0, 0, 3], weights[0, 0, 1, 0], weights[0, 0, 2, 1], weights[0, 0, 2, 2] = 0.8, 0.4, 0.2, 0.03
    figure = plot_flow(AttentionRecord(tokens, targets, weights), title="$x^{")
    within(figure)
    places = {text.get_text(): text.get_position() for text in figure.axes[0].texts}
    threads: Any
    (threads,) = figure.axes[0].collections
    along = 1 if long else 0  # the axis that runs along a text

    def nearest(point: Any, names: tuple[str, ...]) -> str:
        return min(names, key=lambda name: abs(places[name][along] - point[along]))

    curves = [path.vertices for path in threads.get_paths()]
    ends = [(nearest(curve[0], tokens), nearest(curve[-1], targets)) for curve in curves]
    assert ends == [("word1", "tres"), ("word0", "dos"), ("word3", "uno")]  # the strongest on top
    assert len(places) == len(tokens) + len(targets)
    opacity = np.asarray(threads.get_edgecolors())[:, 3]
    for amount in (threads.get_linewidths(), opacity):
        assert all(low < high for low, high in pairwise(amount))


def test_a_flow_runs_as_its_texts_do() -> None:
    record = AttentionRecord(("سأل", "توم", "ماري", "[EOS]"), ("tom", "asked", "mary"), torch.ones(1, 1, 3, 4))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        places = {text.get_text(): text.get_position()[0] for text in plot_flow(record).axes[0].texts}
    assert places["سأل"] > places["توم"] > places["ماري"] > places["[EOS]"]
    assert places["tom"] < places["asked"] < places["mary"]


def test_a_film_shows_row_after_row(tmp_path: Path) -> None:
    record = AttentionRecord(("a", "b", "c"), ("x", "y", "z", "[EOS]"), torch.eye(4)[None, None, :, :3])
    save_animation(record, tmp_path / "film.gif", title="A film")
    film: Any = Image.open(tmp_path / "film.gif")
    assert film.n_frames == 4
    whole, box = [], []
    for frame in range(4):
        film.seek(frame)
        pixels = np.asarray(film.convert("L"))
        left = pixels[:, : pixels.shape[1] // 2]  # without the scale
        whole.append(film.info["duration"])
        box.append(int(np.nonzero((left < 250).any(1))[0].max()))
    row = (box[3] - box[0]) / 3
    assert row > 20
    assert [(b - box[0]) / row for b in box] == pytest.approx([0, 1, 2, 3], abs=0.1)
    assert whole[:3] == [500] * 3
    assert whole[3] > 2000
    for name in ("film.svg", "film.png", "film"):
        with pytest.raises(ValueError, match=r"is a GIF, not .*; end the name with \.gif"):
            save_animation(record, tmp_path / name)
        assert not (tmp_path / name).exists()


def test_explain_works_without_matplotlib() -> None:
    code = """
import sys, torch
sys.modules['matplotlib'] = None
from hfattn.explaining import AttentionRecord, plot_alignment, render_html
record = AttentionRecord(('a',), ('b',), torch.ones(1, 1, 1, 1))
assert len(render_html(record)) > 1000
try:
    plot_alignment(record)
except ValueError as error:
    print(error)
"""
    done = run_anew([sys.executable, "-c", code], cwd=OUTSIDE)  # one that has not imported matplotlib yet
    assert done.returncode == 0, done.stderr
    command = f"{sys.executable} -m pip install 'hfattn[explain]'"
    assert done.stdout == f"This needs matplotlib, which is not installed; run: {command}\n"
