"""ELMo (Peters et al. 2018): the bidirectional language model, mixtures of a frozen encoder's hidden states beside the
embeddings of a recurrent model, and the uses of a word that are nearest to one."""

import errno
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import ROOT, results_of, run_here
from tiny_models import TEXTS, placeholder, tiny_language_model, tiny_model, tiny_translator, with_tiny_models
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertConfig,
    DataCollatorWithPadding,
    DistilBertConfig,
    TrainingArguments,
)
from typer.testing import CliRunner

from hfattn import (
    BiLMConfig,
    BiLMForCausalLM,
    BiLMModel,
    RNNEncoderConfig,
    RNNEncoderForSequenceClassification,
    RNNEncoderForTokenClassification,
    VaswaniConfig,
)
from hfattn.contextual_words import nearest_uses, uses_of, vectors_of_uses
from hfattn.data import EncodedTexts, Labeled, LabeledTexts, PackedBlocks
from hfattn.errors import UserError
from hfattn.likelihood import BackwardDirection, score_rows
from hfattn.loading import ModelLocation, load_tokenizer
from hfattn.metrics import token_loss
from hfattn.models.contextual_vectors import ContextualVectors, ScalarMix
from hfattn.models.recurrent_cells import CELLS
from hfattn.tokenizers import TokenizerConfig, build_tokenizer
from hfattn.training import ReliableTrainer, stored_states
from hfattn.training.contextual import ContextualConfig, ends_of_texts, pieces_of_tokens
from hfattn.training.expected import read_expected
from hfattn.training.stored_states import StoredStates
from hfattn_cli import app

pytestmark = pytest.mark.runs

SIZES = {"vocab_size": 20, "hidden_size": 12, "pad_token_id": 0}


def bilm(**fields: Any) -> BiLMForCausalLM:
    torch.manual_seed(0)
    return BiLMForCausalLM(BiLMConfig(**{**SIZES, **fields})).double().eval()


# The bidirectional language model


@pytest.mark.parametrize("cell", CELLS)
def test_the_language_model_equals_a_literal_loop(cell: str) -> None:
    model = bilm(cell=cell, num_hidden_layers=3)
    ids = torch.randint(1, 20, (2, 7), generator=torch.Generator().manual_seed(1))
    outputs = model(ids, labels=ids, output_hidden_states=True)
    states = []  # of each direction: L + 1 tensors (B, T, W / 2)
    for side, order in (("forward_rnn", range(7)), ("backward_rnn", range(6, -1, -1))):
        x = model.model.embed_tokens(ids)
        side_states = [x]
        for layer_idx, layer in enumerate(model.model.layers):
            rnn = getattr(layer, side).rnn
            state = tuple(torch.zeros(2, 6, dtype=torch.float64) for _ in range(rnn.num_states))
            steps: dict[int, torch.Tensor] = {}
            for t in order:
                state = rnn.step(rnn.project(x[:, t]), state)
                steps[t] = state[0] + x[:, t] if layer_idx > 0 else state[0]
            x = torch.stack([steps[t] for t in range(7)], dim=1)
            side_states.append(x)
        states.append(side_states)
    for hidden, ahead, back in zip(outputs.hidden_states, *states, strict=True):
        torch.testing.assert_close(hidden, torch.cat([ahead, back], dim=-1))
    loss = 0.0
    for row in range(2):
        for t in range(7):
            if t < 6:
                loss -= model.lm_head(states[0][-1][row, t]).log_softmax(-1)[ids[row, t + 1]].item() / 12
            if t > 0:
                loss -= model.lm_head(states[1][-1][row, t]).log_softmax(-1)[ids[row, t - 1]].item() / 12
    assert outputs.loss.item() == pytest.approx(loss)


def test_no_direction_sees_the_token_that_it_predicts() -> None:
    model = bilm()
    ids = torch.randint(1, 20, (1, 8))
    other = ids.clone()
    other[0, 4] = (ids[0, 4] + 1) % 19 + 1
    one, two = model(ids), model(other)
    torch.testing.assert_close(one.logits[:, :4], two.logits[:, :4])
    torch.testing.assert_close(one.backward_logits[:, 5:], two.backward_logits[:, 5:])
    assert not torch.allclose(one.logits[:, 4:], two.logits[:, 4:])
    assert not torch.allclose(one.backward_logits[:, :5], two.backward_logits[:, :5])


def test_padding_anywhere_changes_nothing() -> None:
    model = bilm()
    ids = torch.randint(1, 20, (1, 5))
    alone = model(ids, output_hidden_states=True)
    padded = torch.zeros(1, 9, dtype=torch.long)
    places = torch.tensor([0, 2, 3, 6, 7])
    padded[0, places] = ids[0]
    mask = (padded > 0).long()
    there = model(padded, attention_mask=mask, output_hidden_states=True)
    torch.testing.assert_close(there.logits[:, places], alone.logits)
    torch.testing.assert_close(there.backward_logits[:, places], alone.backward_logits)
    for one, other in zip(there.hidden_states[1:], alone.hidden_states[1:], strict=True):
        torch.testing.assert_close(one[:, places], other)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_not_in_the_loss(side: str) -> None:
    """Padding beside a text predicts neither its first nor its last token."""
    model, ids = bilm(), torch.randint(1, 20, (1, 5))
    places = slice(3, 8) if side == "left" else slice(0, 5)
    padded, labels, mask = torch.zeros(1, 8).long(), torch.full((1, 8), -100), torch.zeros(1, 8).long()
    padded[:, places], labels[:, places], mask[:, places] = ids, ids, 1
    loss = model(padded, attention_mask=mask, labels=labels).loss
    torch.testing.assert_close(loss, model(ids, labels=ids).loss)


def test_targets_may_be_shifted_already() -> None:
    model, ids = bilm(), torch.randint(1, 20, (1, 6))
    outputs = model(ids[:, :5], labels=ids[:, 1:], shift_labels=ids[:, 1:])
    ahead, back = (each.log_softmax(-1) for each in (outputs.logits[0], outputs.backward_logits[0]))
    expected = -ahead[range(5), ids[0, 1:]].mean() - back[range(2, 5), ids[0, 1:4]].mean()
    assert outputs.loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_generation_reads_forward_with_a_cache_as_without() -> None:
    model = bilm()
    ids = torch.randint(1, 20, (2, 4))
    cached = model.generate(ids, max_new_tokens=6, do_sample=False)
    assert torch.equal(cached, model.generate(ids, max_new_tokens=6, do_sample=False, use_cache=False))
    outputs = model(ids, use_cache=True)
    assert outputs.backward_logits is None
    later = model(cached[:, 4:6], past_key_values=outputs.past_key_values)
    torch.testing.assert_close(later.logits, model(cached[:, :6]).logits[:, 4:])


def test_both_directions_share_embedding_and_output() -> None:
    names = {name for name, _ in bilm().named_parameters()}
    assert [name for name in names if "embed" in name or "head" in name] != []
    assert {name for name in names if "rnn" not in name} == {"model.embed_tokens.weight", "lm_head.bias"}


def test_the_loss_of_blocks_is_that_of_both_directions() -> None:
    """Every token of a block but the last two is predicted backward, from all tokens of the block after it."""
    model = bilm()
    batch = PackedBlocks(torch.randint(1, 20, (41,)).numpy(), 8).__getitems__([0, 2, 3])
    outputs = model(batch["input_ids"])
    labels, total, number = batch["labels"], 0.0, 0
    for row in range(3):
        for t in range(8):
            total -= outputs.logits[row, t].log_softmax(-1)[labels[row, t + 1]].item()
            number += 1
            if t > 0 and labels[row, t - 1] >= 0:
                total -= outputs.backward_logits[row, t].log_softmax(-1)[labels[row, t - 1]].item()
    assert token_loss(outputs, labels).item() == pytest.approx(total / number, rel=1e-5)


def test_the_backward_direction_is_scored_as_a_language_model() -> None:
    """Its windows are those of the reversed text, and each token but the first of the stream is predicted once."""
    model = bilm()
    ids = torch.randint(1, 20, (25,))
    scores = score_rows(BackwardDirection(model), PackedBlocks(ids.numpy(), 8, 4))
    total, done = 0.0, 0
    for start in range(0, 17, 4):
        window = ids[start : start + 9]
        logits = model(window[:8].flip(0)[None]).backward_logits[0].flip(0)
        for t in range(8):
            if start + t + 1 > done:
                done = start + t + 1
                total -= logits[t].log_softmax(-1)[window[t + 1]].item()
    assert (scores["tokens"], done) == (24, 24)
    assert scores["nats_per_token"] == pytest.approx(total / 24)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_size": 7}, "hidden_size is 7, and each direction has half of it; write an even number"),
        ({"dropout": 0.1, "num_hidden_layers": 1}, "there is only one; write num_hidden_layers: 2 or more"),
        ({"cell": "gruu"}, "did you mean 'gru'"),
    ],
)
def test_a_bad_field_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        BiLMConfig(**fields)


# Mixtures


@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_mixture_equals_a_literal_loop(layer_norm: bool) -> None:
    mix = ScalarMix(4, layer_norm=layer_norm, weight=0.01).double()
    torch.nn.init.normal_(mix.scalars)
    torch.nn.init.constant_(mix.gamma, 1.7)
    states = [torch.randn(2, 3, 5, dtype=torch.float64) for _ in range(4)]
    mixed = mix(states)
    powers = [math.exp(number) for number in mix.scalars.tolist()]
    for row in range(2):
        for k in range(3):
            for i in range(5):
                value = 0.0
                for power, state in zip(powers, states, strict=True):
                    h = state[row, k]
                    if layer_norm:
                        h = (h - h.mean()) / (h.var(correction=0) + 1e-5).sqrt()
                    value += power / sum(powers) * h[i].item()
                assert mixed[row, k, i].item() == pytest.approx(1.7 * value)
    assert mix.penalty().item() == pytest.approx(0.01 * sum(number**2 for number in mix.scalars.tolist()))


def encoders() -> dict[str, Any]:
    return {
        "bilm": BiLMConfig(**{**SIZES, "vocab_size": 30}),
        "distilbert": DistilBertConfig(vocab_size=30, dim=16, n_heads=2, hidden_dim=16, n_layers=2),
        "bert": BertConfig(
            vocab_size=30, hidden_size=16, num_attention_heads=2, intermediate_size=16, num_hidden_layers=2
        ),
        "vaswani": VaswaniConfig(
            vocab_size=30,
            hidden_size=16,
            intermediate_size=16,
            num_attention_heads=2,
            encoder_layers=2,
            is_encoder_decoder=False,
        ),
    }


TABLE = {"contextual_pieces": 3, "contextual_start_ids": [28], "contextual_end_ids": [29, 27]}


def contextual_config(kind: str, **fields: Any) -> RNNEncoderConfig:
    sizes = {"vocab_size": 12, "embedding_size": 4, "hidden_size": 6, "direction": "bidirectional", "pooling": "max"}
    return RNNEncoderConfig(**{**sizes, "contextual_config": encoders()[kind], **TABLE, **fields})


def fill_table(model: Any) -> list[list[int]]:
    """Give each token from none to three pieces, and padding none."""
    pieces: list[list[int]] = [[], *([2 * token + i for i in range(token % 4)] for token in range(1, 12))]
    for token, row in enumerate(pieces):
        for i, piece in enumerate(row):
            model.model.contextual.pieces[token, i] = piece
    return pieces


@pytest.mark.parametrize("kind", encoders())
def test_vectors_of_words_are_means_over_their_pieces(kind: str) -> None:
    torch.manual_seed(0)
    model = RNNEncoderForTokenClassification(contextual_config(kind)).double().eval()
    pieces = fill_table(model)
    ids = torch.randint(1, 12, (3, 6))
    mask = torch.tensor([[1] * 6, [1, 1, 0, 1, 0, 0], [0, 1, 1, 1, 1, 1]]).bool()
    vectors = model.model.contextual
    found = vectors.read(ids, mask)
    for row in range(3):
        text, spans = [28], {}
        for k in range(6):
            if mask[row, k]:
                spans[k] = (len(text), len(text) + len(pieces[ids[row, k]]))
                text += pieces[ids[row, k]]
        states = vectors.encoder(torch.tensor([[*text, 29, 27]]), output_hidden_states=True).hidden_states
        assert len(states) == len(found) == 3
        for state, mine in zip(states, found, strict=True):
            for k in range(6):
                start, end = spans.get(k, (0, 0))
                expected = state[0, start:end].mean(0) if end > start else torch.zeros_like(state[0, 0])
                torch.testing.assert_close(mine[row, k], expected)


def test_the_mixtures_stand_beside_embeddings_and_outputs() -> None:
    torch.manual_seed(0)
    config = contextual_config("bilm", contextual_places=["input", "output"], pooling="mean", num_hidden_layers=2)
    model = RNNEncoderForSequenceClassification(config).double().eval()
    fill_table(model)
    torch.nn.init.normal_(model.model.contextual.mixes["output"].scalars)
    ids = torch.randint(1, 12, (2, 5))
    vectors = model.model.contextual
    states = vectors.read(ids, None)
    hidden = torch.cat([model.model.embed_tokens(ids), vectors.mixes["input"](states)], dim=-1)
    for layer in model.model.layers:
        hidden = layer.recurrent(hidden)[0]
    hidden = torch.cat([hidden, vectors.mixes["output"](states)], dim=-1)
    torch.testing.assert_close(model(ids).logits, model.classifier(hidden.mean(1)))


def test_pieces_beyond_the_longest_input_of_the_encoder_have_zeros() -> None:
    model = RNNEncoderForTokenClassification(contextual_config("bert", contextual_max_length=7)).eval()
    model.model.contextual.pieces[:, 0] = torch.arange(12)
    (state, *_) = model.model.contextual.read(torch.full((1, 9), 5), None)
    assert (state[0].abs().sum(-1) > 0).tolist() == [True] * 4 + [False] * 5  # 7 less three special tokens


@pytest.mark.parametrize("kind", encoders())
def test_an_encoder_may_have_the_tokens_of_the_task(kind: str) -> None:
    """Padding anywhere, ends of texts and a longest input, as with a table of pieces."""
    fields = {"vocab_size": 30, "contextual_pieces": None, "pooling": "mean", "cell": "gru"}
    torch.manual_seed(0)
    model = RNNEncoderForSequenceClassification(contextual_config(kind, **fields)).double().eval()
    vectors, ids = model.model.contextual, torch.randint(1, 28, (1, 4))
    ends = torch.cat([torch.tensor([[28]]), ids, torch.tensor([[29, 27]])], dim=1)
    states = vectors.encoder(ends, output_hidden_states=True).hidden_states
    for mine, state in zip(vectors.read(ids, None), states, strict=True):
        torch.testing.assert_close(mine, state[:, 1:5])
    expected = model(ids).logits
    for places in (torch.arange(3, 7), torch.arange(4), torch.tensor([0, 2, 3, 6])):
        padded, mask = torch.zeros(2, 7).long(), torch.zeros(2, 7).long()  # the second row is padding alone
        padded[0, places], mask[0, places] = ids[0], 1
        logits = model(padded, attention_mask=mask).logits
        torch.testing.assert_close(logits[:1], expected)
        assert logits.isfinite().all()
    vectors.config.contextual_max_length = 5
    assert (vectors.read(ids, None)[0].abs().sum(-1) > 0).tolist() == [[True, True, False, False]]
    vectors.config.contextual_start_ids = vectors.config.contextual_end_ids = []
    nothing = torch.zeros(2, 3).long()
    assert all(not state.any() for state in vectors.read(nothing, nothing.bool()))


def test_the_table_of_pieces_is_resized(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = RNNEncoderForSequenceClassification(contextual_config("bilm")).eval()
    fill_table(model)
    ids = torch.randint(1, 12, (2, 5))
    before = model(ids).logits
    model.resize_token_embeddings(14)
    torch.testing.assert_close(model(ids).logits, before)
    assert model(torch.tensor([[12, 13, 1]])).logits.isfinite().all()
    model.save_pretrained(tmp_path)
    again = RNNEncoderForSequenceClassification.from_pretrained(tmp_path)
    torch.testing.assert_close(again(ids).logits, before)
    own = RNNEncoderForSequenceClassification(contextual_config("bilm", vocab_size=30, contextual_pieces=None))
    with pytest.raises(ValueError, match="tokens are those of the frozen encoder, which cannot get others"):
        own.resize_token_embeddings(31)


def test_only_the_mixture_of_the_encoder_is_trained_with_its_penalty() -> None:
    torch.manual_seed(0)
    config = contextual_config("bert", contextual_penalty=0.5, contextual_dropout=0.0, num_labels=3)
    model = RNNEncoderForSequenceClassification(config).train()
    fill_table(model)
    vectors = model.model.contextual
    torch.nn.init.normal_(vectors.mixes["input"].scalars)
    assert not vectors.encoder.training
    ids, labels = torch.randint(1, 12, (4, 6)), torch.tensor([0, 1, 2, 0])
    loss = model(ids, labels=labels).loss
    penalty = 0.5 * vectors.mixes["input"].scalars.square().sum()
    torch.testing.assert_close(loss - penalty, model.eval()(ids, labels=labels).loss)
    loss.backward()
    assert all(parameter.grad is None for parameter in vectors.encoder.parameters())
    assert vectors.mixes["input"].scalars.grad.abs().sum() > 0
    assert vectors.mixes["input"].gamma.grad.abs() > 0


# Hidden states that are stored for training


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_stored_states_are_those_of_the_encoder(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = RNNEncoderForSequenceClassification(contextual_config("bilm")).eval()
    fill_table(model)
    vectors = model.model.contextual
    texts = [torch.randint(1, 12, (length,)) for length in (5, 2, 7, 5)]

    def batch(*places: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        ids = torch.nn.utils.rnn.pad_sequence([texts[i] for i in places], batch_first=True)
        return ids, None if ids.all() else ids > 0

    def compared(*places: int) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            expected = list(torch.stack(vectors.read(*batch(*places))))  # the embeddings are in float32
        torch.testing.assert_close(
            stored(*batch(*places)), expected, atol=1e-6, rtol=1e-2 if dtype.itemsize == 2 else 0
        )

    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        stored = StoredStates(vectors, [batch(0, 3), batch(1, 2)], dtype)
    assert list(stored.rows.lengths) == [3 * 12 * length * dtype.itemsize for length in (5, 5, 2, 7)]
    with monkeypatch.context() as context:
        context.setattr(type(vectors), "_encode", None)
        results = [stored(*batch(*places)) for places in ((2, 0, 1), (0,), (3, 0))]
    assert results[0][0].shape == (3, 7, 12)
    for places in ((2, 0, 1), (0,), (3, 0)):
        compared(*places)
    texts.append(torch.tensor([1, 2, 3]))
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        torch.testing.assert_close(stored(*batch(0, 4)), vectors.read(*batch(0, 4)))  # text 4 is not stored
    expected_logits = model(batch(0, 3)[0]).logits
    vectors.read = stored
    torch.testing.assert_close(
        torch.compile(model, backend="eager")(batch(0, 3)[0]).logits,
        expected_logits,
        atol=1e-5 if dtype.itemsize == 4 else 1e-2,
        rtol=1e-5 if dtype.itemsize == 4 else 1e-2,
    )


@pytest.mark.parametrize("sampled", [False, True])
def test_the_encoder_reads_each_training_text_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampled: bool
) -> None:
    items = [Labeled(" ".join("abcdefghij"[: 2 + i % 7]), i % 2, i, {}) for i in range(24)]
    data = LabeledTexts("letters", items, ["even", "odd"])
    tokenizer = build_tokenizer(TokenizerConfig(kind="word", vocab_size=12), (item.text for item in items), ends=False)
    read: list[int] = []
    encode = ContextualVectors._encode

    def counted(self: ContextualVectors, ids: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
        read.append(len(ids))
        return encode(self, ids, mask)

    monkeypatch.setattr(ContextualVectors, "_encode", counted)

    def train(epochs: int, largest: float, measured: bool = True) -> tuple[int, dict[str, torch.Tensor]]:
        monkeypatch.setattr(stored_states, "LARGEST", largest)
        torch.manual_seed(0)
        model = RNNEncoderForSequenceClassification(contextual_config("bilm", pad_token_id=0, contextual_dropout=0.0))
        fill_table(model)
        options: dict[str, Any] = {
            "report_to": "none",
            "save_strategy": "no",
            "use_cpu": True,
            "num_train_epochs": epochs,
        }
        arguments = TrainingArguments(str(tmp_path), **options, per_device_train_batch_size=8, learning_rate=1e-2)
        texts = EncodedTexts(data, tokenizer, 12)
        texts.is_sampled = sampled
        if not measured:
            del texts.lengths
        trainer = ReliableTrainer(model, arguments, DataCollatorWithPadding(tokenizer), texts)
        read.clear()
        trainer.train()
        assert "read" not in vars(model.model.contextual)
        return sum(read), model.state_dict()

    number, weights = train(4, math.inf)
    plain_number, plain_weights = train(4, 0)
    assert plain_number == 4 * 24
    assert number == (4 * 24 if sampled else 24)
    torch.testing.assert_close(weights, plain_weights, rtol=1e-4, atol=1e-5)
    assert train(1, math.inf)[0] == 24  # each text is read once anyway
    assert train(2, math.inf, measured=False)[0] == 2 * 24


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_an_encoder_reads_texts_again_after_training_however_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], dtype: torch.dtype
) -> None:
    """With weights of another type than float32, a collator without a mask, a full disk, and an error in evaluation."""
    items = [Labeled("a b c d", i % 2, i, {}) for i in range(8)]
    tokenizer = build_tokenizer(TokenizerConfig(kind="word", vocab_size=12), (item.text for item in items), ends=False)
    texts = EncodedTexts(LabeledTexts("letters", items, ["even", "odd"]), tokenizer, 12)

    def collate(examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        return {
            "input_ids": torch.tensor([example["input_ids"] for example in examples]),
            "labels": torch.tensor([example["labels"] for example in examples]),
        }

    def fail(outputs: Any) -> dict[str, float]:
        assert is_read_once()
        raise RuntimeError("no score")

    def is_read_once() -> bool:
        return "read" in vars(model.model.contextual)

    torch.manual_seed(0)
    model = RNNEncoderForSequenceClassification(contextual_config("bilm", pad_token_id=0)).to(dtype)
    fill_table(model)
    options: dict[str, Any] = {"report_to": "none", "save_strategy": "no", "use_cpu": True, "num_train_epochs": 2}
    arguments = TrainingArguments(str(tmp_path), **options, eval_strategy="epoch")
    trainer = ReliableTrainer(model, arguments, collate, texts, eval_dataset=texts, compute_metrics=fail)
    with pytest.raises(RuntimeError, match="no score"):
        trainer.train()
    assert not is_read_once()

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(stored_states, "StoredArrays", full)
    trainer.compute_metrics = None
    trainer.train()
    assert trainer.state.epoch == 2
    assert "The folder for temporary files (TMPDIR) is full" in capsys.readouterr().out


CLEAN = """
import sys, torch
from transformers import AutoModelForTokenClassification
model = AutoModelForTokenClassification.from_pretrained("model", trust_remote_code=True)
ids, mask, logits = torch.load("outputs.pt")
torch.testing.assert_close(model(ids, attention_mask=mask).logits, logits)
assert not any(parameter.requires_grad for parameter in model.model.contextual.encoder.parameters())
assert not any(name.partition(".")[0] == "hfattn" for name in sys.modules)
"""


@pytest.mark.parametrize("kind", ["bilm", "distilbert"])
def test_a_saved_model_has_its_encoder_and_loads_without_hfattn(tmp_path: Path, kind: str) -> None:
    model = RNNEncoderForTokenClassification(contextual_config(kind)).eval()
    fill_table(model)
    ids, mask = torch.randint(1, 12, (2, 5)), torch.tensor([[1] * 5, [1, 1, 1, 0, 0]])
    model.save_pretrained(tmp_path / "model")
    code = {path.name for path in (tmp_path / "model").glob("*.py")}
    own = {"configuration_bilm.py", "modeling_bilm.py"}
    assert code & own == (own if kind == "bilm" else set())
    assert {"contextual_vectors.py", "penalties.py"} <= code
    torch.save((ids, mask, model(ids, attention_mask=mask).logits), tmp_path / "outputs.pt")
    environment = {**os.environ, "HF_MODULES_CACHE": str(tmp_path / "modules")}
    done = subprocess.run(
        [sys.executable, "-c", CLEAN], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_an_encoder_with_a_field_of_another_release_is_loaded(tmp_path: Path) -> None:
    RNNEncoderForTokenClassification(contextual_config("bilm")).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["contextual_config"]["a_field_of_transformers"] = None
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert RNNEncoderConfig.from_pretrained(tmp_path).contextual_config.hidden_size == 12


def test_a_model_without_an_encoder_has_no_files_of_one(tmp_path: Path) -> None:
    RNNEncoderForTokenClassification(RNNEncoderConfig(vocab_size=9)).save_pretrained(tmp_path)
    assert not (tmp_path / "contextual_vectors.py").exists()


def test_texts_without_a_token_are_read() -> None:
    model = RNNEncoderForSequenceClassification(contextual_config("bilm")).eval()
    assert model(torch.zeros(2, 0)).logits.isfinite().all()


def test_what_cannot_be_read_is_refused_in_one_sentence() -> None:
    model = RNNEncoderForSequenceClassification(contextual_config("bilm"))
    with pytest.raises(ValueError, match="reads tokens; pass input_ids, not inputs_embeds"):
        model(inputs_embeds=torch.zeros(1, 2, 4))
    with pytest.raises(ValueError, match=r"pooling last reads states .* write contextual_places: \[input\]"):
        RNNEncoderForSequenceClassification(contextual_config("bilm", contextual_places=["output"], pooling="last"))
    with pytest.raises(Exception, match="contextual_places has 'embeddings'; write input, output, or both"):
        contextual_config("bilm", contextual_places=["embeddings"])
    with pytest.raises(Exception, match="contextual_penalty is -1; write a number of at least 0"):
        contextual_config("bilm", contextual_penalty=-1)
    with pytest.raises(Exception, match="contextual_config is a VaswaniConfig of an encoder-decoder; write is_encoder"):
        RNNEncoderConfig(contextual_config=VaswaniConfig())
    with pytest.raises(Exception, match="contextual_config has latents, with which the encoder has no vector for each"):
        RNNEncoderConfig(contextual_config=VaswaniConfig(is_encoder_decoder=False, latents=4))
    with pytest.raises(ValueError, match="contextual_config is 'bert'; write the fields of a configuration"):
        RNNEncoderConfig(contextual_config="bert")


def test_penalties_of_the_frozen_encoder_are_not_in_the_loss() -> None:
    spans = {"encoder_pattern": "adaptive_span", "encoder_pattern_options": {"span": 4, "ramp": 2, "penalty": 100.0}}
    fields = encoders()["vaswani"].to_diff_dict()
    config = contextual_config("bert", contextual_config={**fields, **spans}, contextual_penalty=0.0)
    model = RNNEncoderForSequenceClassification(config).train()
    fill_table(model)
    for layer in model.model.contextual.encoder.encoder.layers:
        layer.self_attn.spans.data.fill_(0.5)
    assert model(torch.randint(1, 12, (2, 5)), labels=torch.tensor([0, 1])).loss.item() < 5


# Pieces of words


@pytest.mark.parametrize("kind", ["word pieces", "bytes", "bpe"])
def test_the_pieces_of_a_word_are_those_in_a_text(tmp_path: Path, kind: str) -> None:
    ours = build_tokenizer(TokenizerConfig(kind="word"), TEXTS, ends=False, pairs=True)
    if kind == "bpe":
        tiny_language_model(tmp_path, TEXTS, both=True)
    else:
        tiny_model(tmp_path, "distilbert" if kind == "word pieces" else "gpt2")
    theirs = load_tokenizer(ModelLocation(name=str(tmp_path)))
    pieces = pieces_of_tokens(ours, theirs)
    text = "Mary Smith lives in London"
    ids = ours(text)["input_ids"]
    assert ours.unk_token_id not in ids
    start, end = ends_of_texts(theirs)
    prefix = " " if kind == "bytes" else ""  # GPT-2's tokenizer puts no space before the first word
    whole = theirs(prefix + text)["input_ids"]
    assert whole == [*start, *(piece for token in ids for piece in pieces[token]), *end]
    assert len(start) == len(end) == (kind == "word pieces")
    assert pieces[ours.pad_token_id] == []
    assert pieces[ours.unk_token_id] == [theirs.unk_token_id]


# Recipes


def trained(name: str, folder: Path, *words: object) -> Path:
    """Train with a configuration of a recipe, and return the run folder."""
    recipe, config = (ROOT / "recipes" / name).parent, ROOT / "recipes" / f"{name}.yaml"
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        run_here(recipe, monkeypatch, "--config", config, "--output_dir", folder / "run", *words)
    return folder / "run"


def reviews(path: Path) -> Path:
    words = [("great", 1), ("dull", 0), ("happy", 1), ("terrible", 0)]
    rows = [{"text": f"The {i} dog was {words[i % 4][0]}.", "label": words[i % 4][1]} for i in range(60)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def train_words(folder: Path, *words: object) -> list[Any]:
    encoder = tiny_language_model(folder / "bilm", TEXTS, both=True)
    fixed = {
        "data.dataset": reviews(folder / "reviews.jsonl"), "data.test": "null", "data.labels": "null",
        "data.split": "[0.6, 0.2, 0.2]", "data.text_column": "text", "data.label_column": "label",
        "data.vectors": "null", "training.max_steps": 4, "training.eval_steps": 2, "training.save_steps": 2,
        "training.warmup_steps": 1, "training.bf16": "false", "evaluation.counterfactual_texts": 4,
        "contextual.name": encoder, "model.hidden_size": 8, "publish.texts": "samples",
    }  # fmt: skip
    pairs = [word for name, value in fixed.items() for word in (f"--{name}", value)]
    return [*pairs, *words]


def test_a_run_reports_the_shares_and_saves_the_encoder(tmp_path: Path) -> None:
    both = ("--contextual.places", "[input, output]")
    out = trained("classification/sst2_elmo", tmp_path, *train_words(tmp_path, *both))
    results = results_of(out)
    facts = results["model"]["contextual"]
    assert (facts["encoder"], facts["model_type"]) == ("bilm", "bilm")
    for place in ("input", "output"):
        assert sum(facts["mixtures"][place]["shares"]) == pytest.approx(1, abs=1e-3)
        assert len(facts["mixtures"][place]["shares"]) == 3
    assert results["model"]["trained_parameters"] < results["model"]["parameters"]
    card = (out / "README.md").read_text()
    assert "`bilm`" in card
    assert f"{facts['mixtures']['input']['shares'][1]:.3f}" in card
    model = AutoModelForSequenceClassification.from_pretrained(out)
    encoder = BiLMModel.from_pretrained(tmp_path / "bilm")
    for name, tensor in encoder.state_dict().items():
        torch.testing.assert_close(model.model.contextual.encoder.state_dict()[name], tensor)
    verified = CliRunner().invoke(app, ["verify", str(out)])
    assert verified.exit_code == 0, verified.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--contextual", "{places: [input]}"], "The section contextual needs the contextual.name of an encoder"),
        (["--contextual.places", "[top]"], "places is ['top']; write [input], [output] or [input, output]"),
        (["--contextual.subwords", "true"], "remove the section tokenizer, or write false"),
        (["--tokenizer.kind", "bpe"], "contextual has vectors of words, and tokenizer.kind is bpe; write word, or"),
        (["--model", "{model_type: vaswani}"], "a vaswani has no place for it; remove it"),
        (["--model", "{name: somewhere}"], "contextual is for a model from scratch"),
        (["--contextual.droput", "0.1"], "did you mean 'contextual.dropout'"),
    ],
)
def test_a_bad_section_is_named(tmp_path: Path, words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        trained("classification/sst2_elmo", tmp_path, *words)


def test_a_tagger_reads_the_subwords_of_its_encoder(tmp_path: Path) -> None:
    encoder = tiny_model(tmp_path / "encoder", "distilbert")
    words: list[object] = ["--data.examples", 40, "--data.evaluation_examples", 20, "--training.num_train_epochs", 1]
    words += ["--contextual.name", encoder]
    out = trained("token_classification/names_elmo", tmp_path, *words)
    results = results_of(out)
    assert results["model"]["contextual"]["subwords"] is True
    assert "shares" in (out / "README.md").read_text()
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer.get_vocab() == AutoTokenizer.from_pretrained(encoder).get_vocab()
    model = AutoModelForTokenClassification.from_pretrained(out)
    assert model.model.contextual.mixes["input"].scalars.shape == (3,)


def test_the_student_of_a_distillation_may_have_contextual_vectors(tmp_path: Path) -> None:
    overrides = read_expected(ROOT / "recipes" / "distillation" / "sst2_bilstm.expected.json").tiny.overrides
    words = [*with_tiny_models(overrides, tmp_path), "--contextual.name", str(placeholder("TINY_BILM", tmp_path))]
    words += ["--training.max_steps", "2", "--training.eval_steps", "2", "--training.save_steps", "2"]
    out = trained("distillation/sst2_bilstm", tmp_path, *words, "--augmentation.copies", "0")
    assert results_of(out)["model"]["contextual"]["encoder"] == "tiny_bilm"


def test_a_language_model_of_both_directions_reports_both(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n".join(f"{i} {text}" for i in range(30) for text in TEXTS))
    words: list[object] = ["--data.dataset", "text.txt", "--data.validation", "null", "--data.test", "null"]
    words += ["--data.document_start", "null", "--data.split", "[0.8, 0.1, 0.1]", "--data.max_length", 16]
    words += ["--tokenizer.vocab_size", 100, "--model.hidden_size", 16, "--sample.max_new_tokens", 3]
    words += ["--training.num_train_epochs", 1, "--training.per_device_train_batch_size", 4]
    out = trained("causal_lm/wikitext2_bilm", tmp_path, *words)
    metrics = results_of(out)["metrics"]["test"]
    for scores in (metrics, metrics["backward"]):
        assert 1 < scores["perplexity"] < 120
    assert metrics["tokens"] == metrics["backward"]["tokens"]
    assert metrics["perplexity"] != metrics["backward"]["perplexity"]
    assert "test, backward" in (out / "README.md").read_text()


def test_prompts_and_completions_have_no_place_for_both_directions(tmp_path: Path) -> None:
    words = ["--data", "{dataset: dates, examples: 20, evaluation_examples: 10}", "--tokenizer.vocab_size", 60]
    with pytest.raises(UserError, match="A bilm predicts tokens from both sides"):
        trained("causal_lm/wikitext2_bilm", tmp_path, *words)


# Uses of a word


SENTENCES = ("The dog was on the right.", "You are right about it.", "Turn right, and right again.", "A brighter day.")


def test_the_uses_of_a_word() -> None:
    assert [str(use) for use in uses_of("right", SENTENCES)] == [
        "The dog was on the [right].",
        "You are [right] about it.",
        "Turn [right], and right again.",
        "Turn right, and [right] again.",
    ]


def test_the_vector_of_a_use_is_the_mean_over_its_tokens_and_the_states(tmp_path: Path) -> None:
    tiny_model(tmp_path, "distilbert")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    model = AutoModel.from_pretrained(tmp_path).eval()
    uses = uses_of("right", SENTENCES)
    vectors = vectors_of_uses(model, tokenizer, uses)
    for use, vector in zip(uses, vectors, strict=True):
        before = tokenizer(use.text[: use.start], add_special_tokens=False)["input_ids"]
        inside = tokenizer("right", add_special_tokens=False)["input_ids"]
        states = torch.stack(model(**tokenizer(use.text, return_tensors="pt"), output_hidden_states=True).hidden_states)
        start = 1 + len(before)
        expected = states[:, 0, start : start + len(inside)].mean((0, 1))
        torch.testing.assert_close(vector, expected, rtol=1e-4, atol=1e-5)


def test_a_bilm_reads_a_use_between_end_tokens(tmp_path: Path) -> None:
    """As a model that takes its vectors reads each text."""
    tiny_language_model(tmp_path, TEXTS + SENTENCES, both=True)
    tokenizer, model = AutoTokenizer.from_pretrained(tmp_path), AutoModel.from_pretrained(tmp_path).eval()
    uses = uses_of("right", SENTENCES)
    for use, vector in zip(uses, vectors_of_uses(model, tokenizer, uses), strict=True):
        encoded = tokenizer(use.text, return_offsets_mapping=True)
        inside = [i for i, (start, end) in enumerate(encoded.offset_mapping, 1) if start < use.end and end > use.start]
        end = [tokenizer.eos_token_id]
        outputs = model(torch.tensor([end + encoded.input_ids + end]), output_hidden_states=True)
        expected = torch.stack(outputs.hidden_states)[:, 0, inside].mean((0, 1))
        torch.testing.assert_close(vector, expected, rtol=1e-4, atol=1e-5)


def test_the_command_prints_the_nearest_uses(tmp_path: Path) -> None:
    tiny_language_model(tmp_path / "bilm", TEXTS + SENTENCES, both=True)
    (tmp_path / "sentences.txt").write_text("\n".join(SENTENCES))
    words = ["words", "in-context", str(tmp_path / "bilm"), "right", SENTENCES[0], str(tmp_path / "sentences.txt")]
    done = CliRunner().invoke(app, [*words, "-n", "2"])
    assert done.exit_code == 0, done.output
    found = nearest_uses(str(tmp_path / "bilm"), "right", SENTENCES[0], tmp_path / "sentences.txt", 2)
    assert done.output.splitlines() == [f"{cosine:7.4f}  {use}" for use, cosine in found]
    assert found[0][1] >= found[1][1]
    tiny_translator(tmp_path / "marian", "marian", SENTENCES)
    with pytest.raises(UserError, match="is an encoder-decoder; give an encoder"):
        nearest_uses(str(tmp_path / "marian"), "right", SENTENCES[0], tmp_path / "sentences.txt")
    with pytest.raises(UserError, match="does not have the word 'left'"):
        nearest_uses(str(tmp_path / "bilm"), "left", SENTENCES[0], tmp_path / "sentences.txt")
    with pytest.raises(UserError, match=r"No other sentence of .* has the word 'dog'"):
        nearest_uses(str(tmp_path / "bilm"), "dog", SENTENCES[0], tmp_path / "sentences.txt")


def test_a_use_behind_the_last_token_is_none(tmp_path: Path) -> None:
    """It has no vector, and is not similar to anything."""
    folder, file = tiny_model(tmp_path / "bert", "bert"), tmp_path / "sentences.txt"
    late = f"{'film ' * 600}plot"
    file.write_text(f"{late}\nthe plot was good\nthe plot of the actor\n")
    found = nearest_uses(str(folder), "plot", "a plot", file)
    assert sorted(use.text for use, _ in found) == ["the plot of the actor", "the plot was good"]
    with pytest.raises(UserError, match=r"stands behind the last token that .* reads; give a shorter text"):
        nearest_uses(str(folder), "plot", late, file)


def test_the_section_has_the_values_of_the_paper() -> None:
    section = ContextualConfig(name="x")
    assert (section.dropout, section.penalty, section.places) == (0.5, 0.001, ["input"])
