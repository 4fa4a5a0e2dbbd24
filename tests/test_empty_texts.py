"""Texts without a token: what a model says of no tokens, of only padding, and of such a row in a batch, is the same."""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from transformers import pipeline

import hfattn
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
from hfattn.exchange.to_onnx import export_onnx
from hfattn.tokenizers import TokenizerConfig, build_tokenizer

V = 20
NOTHING: list[list[int]] = [[]]
PADDING, BATCH = [[0, 0, 0]], [[0, 0, 0], [4, 5, 6]]
ENDS = {"bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}


def random(model: Any) -> Any:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(std=0.5)
    return model.eval()


def recurrent_classifier(pooling: str, cell: str = "lstm") -> Any:
    torch.manual_seed(0)
    options: dict[str, Any] = {"sentence_end_token_ids": [3]} if pooling == "hierarchical" else {}
    sizes = {"vocab_size": V, "hidden_size": 8, "embedding_size": 8, "num_labels": 3, "pad_token_id": 0}
    return random(RNNEncoderForSequenceClassification(RNNEncoderConfig(**sizes, pooling=pooling, cell=cell, **options)))


def vaswani(kind: Any, **options: Any) -> Any:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 16, "num_attention_heads": 2, "encoder_layers": 2, "decoder_layers": 2}
    encoder = kind in (VaswaniForSequenceClassification, VaswaniForMaskedLM)
    sizes |= dict.fromkeys(ENDS) if encoder else ENDS
    config = VaswaniConfig(
        vocab_size=V,
        intermediate_size=16,
        pad_token_id=0,
        is_encoder_decoder=kind is VaswaniForConditionalGeneration,
        is_decoder=kind is VaswaniForCausalLM,
        **sizes,
        **options,
    )
    return random(kind(config))


def translator(preset: str) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "embedding_size": 8, "encoder_hidden_size": 8}
    if preset in ("eager", "sdpa"):
        model = vaswani(VaswaniForConditionalGeneration)
        model.set_attn_implementation(preset)
        return model
    config = BahdanauConfig.preset(preset, vocab_size=V, source_vocab_size=V, pad_token_id=0, **sizes, **ENDS)
    return random(BahdanauForConditionalGeneration(config))


def vaswani_classifier(pooling: str, positions: str, implementation: str) -> Any:
    model = vaswani(VaswaniForSequenceClassification, classifier_pooling=pooling, positions=positions, num_labels=3)
    model.set_attn_implementation(implementation)
    return model


CLASSIFIERS: dict[str, Callable[[], Any]] = {
    **{
        pooling: partial(recurrent_classifier, pooling)
        for pooling in ("attention", "last", "mean", "max", "hierarchical")
    },
    **{
        f"vaswani {' '.join(options)}": partial(vaswani_classifier, *options)
        for options in itertools.product(("mean", "first"), ("sinusoidal", "learned"), ("eager", "sdpa"))
    },
}


def ids_and_mask(rows: list[list[int]]) -> dict[str, torch.Tensor]:
    """As a tokenizer returns them: the ids of no token are floats."""
    ids = torch.tensor(rows)
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}


@pytest.mark.parametrize("name", CLASSIFIERS)
@torch.no_grad()
def test_a_class_of_no_tokens(name: str) -> None:
    model = CLASSIFIERS[name]()
    answers = [model(**ids_and_mask(rows)).logits[0] for rows in (NOTHING, PADDING, BATCH)]
    assert answers[0].isfinite().all()
    for other in answers[1:]:
        torch.testing.assert_close(other, answers[0])
    model.train()  # a batch with such a row does not spoil the gradients
    with torch.enable_grad():
        model(**ids_and_mask(BATCH), labels=torch.tensor([1, 2])).loss.backward()
    assert all(each.grad is None or each.grad.isfinite().all() for each in model.parameters())


@pytest.mark.parametrize("preset", ["bahdanau2015", "luong2015_general", "sutskever2014", "eager", "sdpa"])
def test_a_translation_of_no_tokens(preset: str) -> None:
    model = translator(preset)
    found = [
        model.generate(**ids_and_mask(rows), max_new_tokens=6, num_beams=2)[0].tolist()
        for rows in (NOTHING, PADDING, BATCH)
    ]
    length = min(map(len, found))
    assert found[0][:length] == found[1][:length] == found[2][:length]


@torch.no_grad()
def test_no_logits_for_no_tokens() -> None:
    sizes = {"vocab_size": V, "hidden_size": 8, "embedding_size": 8}
    for model in (
        RNNEncoderForTokenClassification(RNNEncoderConfig(**sizes, num_labels=3)),
        CharRNNForCausalLM(CharRNNConfig(**sizes)),
        vaswani(VaswaniForMaskedLM),
        vaswani(VaswaniForCausalLM, positions="learned"),
    ):
        logits = model.eval()(torch.tensor(NOTHING)).logits
        assert logits.shape[:2] == (1, 0)
        assert model(**ids_and_mask(PADDING)).logits.isfinite().all()


@pytest.mark.variants  # each export takes seconds
@pytest.mark.parametrize("name", ["attention", "max", "vaswani first learned eager"])
def test_onnx_says_the_same(name: str, tmp_path: Path) -> None:
    model = CLASSIFIERS[name]()
    export_onnx(model, None, tmp_path)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for rows in (NOTHING, PADDING, BATCH):
        inputs = {name: tensor.long() for name, tensor in ids_and_mask(rows).items()}
        (logits,) = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
        with torch.no_grad():
            np.testing.assert_allclose(logits, model(**inputs).logits.numpy(), atol=1e-5)


def test_a_blank_line_in_a_pipeline(tmp_path: Path) -> None:
    tokenizer = build_tokenizer(TokenizerConfig(kind="word"), ["a good film", "a bad film"], ends=False)
    config = RNNEncoderConfig(vocab_size=len(tokenizer), hidden_size=8, pooling="attention", num_labels=2)
    RNNEncoderForSequenceClassification(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    classify = pipeline("text-classification", model=str(tmp_path))
    scores = [classify(text)[0]["score"] for text in ("", "  ", "\n")]
    assert scores == [scores[0]] * 3
    found = hfattn.predict(tmp_path, ["a good film", "", " "])
    assert found[1]["probability"] == found[2]["probability"] == pytest.approx(scores[0])
