"""Attention records: out of generation and forward passes, of this package's models and of transformers'."""

from typing import Any

import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
    T5Config,
    T5ForConditionalGeneration,
)

from hfattn import (
    BahdanauConfig,
    BahdanauForConditionalGeneration,
    VaswaniConfig,
    VaswaniForConditionalGeneration,
)
from hfattn.explain import alignment

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
