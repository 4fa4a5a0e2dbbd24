"""ULMFiT (Howard & Ruder 2018): dropouts and truncation of recurrent layers, the classifier of a language model, and
the stages that hand a run folder on."""

from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import AutoModelForSequenceClassification

from hfattn import (
    CharRNNConfig,
    CharRNNForCausalLM,
    CharRNNForSequenceClassification,
    RNNEncoderConfig,
    RNNEncoderForSequenceClassification,
)
from hfattn.models.pooled_classifier import HiddenClassifier, pool_steps
from hfattn.models.recurrent_cells import CELLS
from hfattn.models.recurrent_layers import DirectedLayer, RecurrentLayer, RowDropout, SequenceDropout

SIZES = {"vocab_size": 20, "embedding_size": 6, "hidden_size": 8, "pad_token_id": 0}
CLASSIFIER = {"pooling": "concat", "classifier_hidden_size": 5, "classifier_dropout": 0.2, "num_labels": 3}
DROPOUTS = {
    "embedding_row_dropout": 0.1, "embedding_dropout": 0.3, "dropout": 0.2, "weight_dropout": 0.5,
    "variational_dropout": True,
}  # fmt: skip


def double(*size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# Dropouts


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("padded", [False, True])
def test_weight_drop_equals_a_literal_loop_with_one_mask(cell: str, padded: bool) -> None:
    layer = RecurrentLayer(cell, 4, 6, weight_dropout=0.5).double().train()
    inputs = double(3, 7, 4).requires_grad_()
    mask = torch.ones(3, 7, dtype=torch.bool)
    if padded:
        mask[0, 4:], mask[1, :3] = False, False
    torch.manual_seed(1)
    outputs, *state = layer(inputs, mask if padded else None)
    (outputs.sin().sum() + sum(part.cos().sum() for part in state)).backward()
    weight = layer.rnn.weight_hh_l0
    got = [outputs.detach(), inputs.grad.clone(), weight.grad.clone(), layer.rnn.bias_ih_l0.grad.clone()]

    torch.manual_seed(1)
    kept = torch.empty_like(weight).bernoulli_(0.5) / 0.5
    assert 0.2 < (kept == 0).double().mean() < 0.8
    loop = RecurrentLayer(cell, 4, 6).double()
    loop.load_state_dict(layer.state_dict())
    own = loop.rnn.weight_hh_l0
    del loop.rnn._parameters["weight_hh_l0"]
    loop.rnn.weight_hh_l0 = own * kept  # a plain tensor, which step reads
    again = inputs.detach().requires_grad_()
    rows = []
    for row in range(3):
        now = tuple(torch.zeros(1, 6, dtype=torch.float64) for _ in range(loop.rnn.num_states))
        steps = []
        for t in range(7):
            if mask[row, t]:
                now = loop.rnn.step(loop.rnn.project(again[row : row + 1, t]), now)
            steps.append(now[0])
        rows.append((torch.stack(steps, dim=1), now))
    expected = torch.cat([outputs for outputs, _ in rows])
    (expected.sin().sum() + sum(part.cos().sum() for _, now in rows for part in now)).backward()
    wanted = [expected.detach(), again.grad, own.grad, loop.rnn.bias_ih_l0.grad]
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other)
    # In evaluation, all weights are used.
    torch.testing.assert_close(layer.eval()(inputs)[0], RecurrentLayer.forward(_plain(layer, cell), inputs)[0])


def _plain(layer: RecurrentLayer, cell: str) -> RecurrentLayer:
    plain = RecurrentLayer(cell, 4, 6).double()
    plain.load_state_dict(layer.state_dict())
    return plain


def test_the_weights_of_both_directions_are_dropped() -> None:
    layer = DirectedLayer("lstm", 4, 6, "bidirectional", weight_dropout=0.5).train()
    inputs = torch.randn(2, 5, 4)
    first, second = layer(inputs)[0], layer(inputs)[0]
    assert not torch.equal(first[..., :6], second[..., :6])
    assert not torch.equal(first[..., 6:], second[..., 6:])
    torch.testing.assert_close(layer.eval()(inputs)[0], layer(inputs)[0])


def test_variational_dropout_has_one_mask_for_all_steps() -> None:
    ones = torch.ones(50, 9, 40)
    dropped = SequenceDropout(0.25, variational=True).train()(ones)
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert dropped.unique().tolist() == pytest.approx([0, 4 / 3])
    assert (dropped == 0).float().mean() == pytest.approx(0.25, abs=0.04)
    each = SequenceDropout(0.25).train()(ones)
    assert not torch.equal(each, each[:, :1].expand_as(each))
    assert torch.equal(SequenceDropout(0.25, variational=True).eval()(ones), ones)


def test_row_dropout_drops_a_token_wherever_it_occurs() -> None:
    ids = torch.randint(400, (30, 40))
    dropped = RowDropout(0.3).train()(torch.ones(30, 40, 3), ids, 400)
    assert torch.equal(dropped, dropped[..., :1].expand_as(dropped))
    values = dropped[..., 0]
    for token in ids.unique():
        assert len(values[ids == token].unique()) == 1
    by_token = torch.stack([values[ids == token][0] for token in ids.unique()])
    assert by_token.unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert (by_token == 0).float().mean() == pytest.approx(0.3, abs=0.08)


ACTING = [name for name in DROPOUTS if name != "variational_dropout"]


@pytest.mark.parametrize("name", [*ACTING, "output_dropout"])
def test_each_dropout_of_the_language_model_acts_in_training_only(name: str) -> None:
    model = CharRNNForCausalLM(CharRNNConfig(**SIZES, num_hidden_layers=2, cell="lstm", **{name: 0.5}))
    ids = torch.randint(1, 20, (2, 9))
    model.train()
    assert not torch.allclose(model(ids).logits, model(ids).logits)
    model.eval()
    torch.testing.assert_close(model(ids).logits, model(ids).logits)


@pytest.mark.parametrize("name", ACTING)
def test_each_dropout_of_the_encoder_acts_in_training_only(name: str) -> None:
    config = RNNEncoderConfig(**SIZES, num_hidden_layers=2, cell="lstm", **{name: 0.5})
    model = RNNEncoderForSequenceClassification(config)
    ids = torch.randint(1, 20, (2, 9))
    model.train()
    assert not torch.allclose(model(ids).logits, model(ids).logits)
    model.eval()
    torch.testing.assert_close(model(ids).logits, model(ids).logits)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_draws_the_same_masks_again(reentrant: bool) -> None:
    model = CharRNNForCausalLM(CharRNNConfig(**SIZES, num_hidden_layers=2, cell="lstm", **DROPOUTS)).double().train()
    ids = torch.randint(1, 20, (2, 9))

    def gradients() -> list[torch.Tensor]:
        torch.manual_seed(3)
        model.zero_grad()
        model(ids, labels=ids).loss.backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    plain = gradients()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    torch.testing.assert_close(gradients(), plain)


# Pieces of a text (BPT3C)


@pytest.mark.parametrize("cell", ["lstm", "gru_reset_before"])
@pytest.mark.parametrize("steps", [1, 3, 4, 50])
def test_pieces_give_the_values_of_one_pass_and_gradients_of_states_that_are_detached(cell: str, steps: int) -> None:
    layer = RecurrentLayer(cell, 4, 6, bptt_steps=steps).double().train()
    inputs, mask = double(3, 10, 4).requires_grad_(), torch.ones(3, 10, dtype=torch.bool)
    mask[0, 7:], mask[1, :2], mask[2, 4:6] = False, False, False
    outputs, *state = layer(inputs, mask)
    whole, *end = _plain(layer, cell)(inputs, mask)
    torch.testing.assert_close(outputs, whole)
    torch.testing.assert_close(state, end)

    def gradient(outputs: torch.Tensor, last: torch.Tensor) -> list[torch.Tensor]:
        pooled = pool_steps("concat", outputs, last, mask)
        return list(torch.autograd.grad(pooled.sin().sum(), [inputs, *layer.parameters()]))

    got = gradient(outputs, state[0])
    plain = _plain(layer, cell)
    plain.rnn = layer.rnn
    read, now = [], ()
    for t in range(10):  # literal: one step at a time, and the state is cut every ``steps``
        if t and t % steps == 0:
            now = tuple(part.detach() for part in now)
        output, *now = plain(inputs[:, t : t + 1], mask[:, t : t + 1], *now)  # type: ignore[assignment]
        read.append(output)
    torch.testing.assert_close(got, gradient(torch.cat(read, dim=1), now[0]))
    full = gradient(*plain(inputs, mask)[:2])
    assert torch.allclose(got[0], full[0]) == (steps >= 10)
    if steps < 10:  # every piece has a gradient, by the maximum and the mean
        assert got[0][mask].abs().sum(-1).min() > 0


def test_a_classifier_in_pieces_is_exact_in_evaluation() -> None:
    config = CharRNNConfig(**SIZES, num_hidden_layers=2, cell="lstm", bptt_steps=4, **CLASSIFIER)
    model = CharRNNForSequenceClassification(config).double().eval()
    ids = torch.randint(1, 20, (3, 11))
    whole = CharRNNForSequenceClassification(CharRNNConfig(**{**config.to_diff_dict(), "bptt_steps": None})).double()
    whole.load_state_dict(model.state_dict())
    torch.testing.assert_close(model(ids).logits, whole.eval()(ids).logits)


# The classifier


def classifiers() -> dict[str, Any]:
    fields = {**SIZES, "num_hidden_layers": 2, "cell": "lstm", **CLASSIFIER}
    return {
        "char_rnn": lambda: CharRNNForSequenceClassification(CharRNNConfig(**fields)),
        "backward": lambda: CharRNNForSequenceClassification(CharRNNConfig(**fields, direction="backward")),
        "rnn_encoder": lambda: RNNEncoderForSequenceClassification(RNNEncoderConfig(**fields)),
        "bidirectional": lambda: RNNEncoderForSequenceClassification(
            RNNEncoderConfig(**fields, direction="bidirectional")
        ),
    }


@pytest.mark.parametrize("kind", classifiers())
@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_concat_pooling_of_a_padded_text_is_that_of_the_text(kind: str, side: str) -> None:
    model = classifiers()[kind]().double().eval()
    texts = [torch.randint(1, 20, (length,)) for length in (3, 8, 1)]
    ids, mask = torch.zeros(3, 10, dtype=torch.long), torch.zeros(3, 10, dtype=torch.long)
    for row, text in enumerate(texts):
        start = {"left": 10 - len(text), "right": 0, "both": 1}[side]
        ids[row, start : start + len(text)], mask[row, start : start + len(text)] = text, 1
    together = model(ids, attention_mask=mask, output_pooled=True)
    for row, text in enumerate(texts):
        alone = model(text[None], output_pooled=True)
        torch.testing.assert_close(together.pooler_output[row], alone.pooler_output[0])
        torch.testing.assert_close(together.logits[row], alone.logits[0])


@pytest.mark.parametrize("kind", ["char_rnn", "backward"])
def test_the_classifier_equals_its_formula(kind: str) -> None:
    model = classifiers()[kind]().double()
    ids = torch.randint(1, 20, (4, 6))
    read = ids.flip(1) if kind == "backward" else ids
    head = model.classifier
    assert isinstance(head, HiddenClassifier)
    with torch.no_grad():
        for norm in (head.input_norm, head.hidden_norm):
            norm.running_mean.copy_(double(norm.num_features))
            norm.running_var.copy_(double(norm.num_features, seed=1).abs() + 0.5)
    logits = model.eval()(ids).logits
    states = model.model(read).last_hidden_state  # (B, T, H)
    for row in range(4):
        h = states[row]
        pooled = torch.cat([h[-1], torch.stack([h[:, i].max() for i in range(8)]), sum(h) / len(h)])

        def normed(x: torch.Tensor, norm: nn.BatchNorm1d) -> torch.Tensor:
            return (x - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias

        hidden = (head.hidden.weight @ normed(pooled, head.input_norm) + head.hidden.bias).clamp(min=0)
        torch.testing.assert_close(
            logits[row], head.output.weight @ normed(hidden, head.hidden_norm) + head.output.bias
        )


@pytest.mark.parametrize("kind", classifiers())
def test_a_batch_of_one_text_and_texts_without_tokens_have_finite_gradients(kind: str) -> None:
    model = classifiers()[kind]().train()
    for ids, mask in (
        (torch.randint(1, 20, (1, 4)), None),
        (torch.zeros(2, 3, dtype=torch.long), torch.zeros(2, 3, dtype=torch.long)),
        (torch.zeros(2, 0), torch.zeros(2, 0)),
    ):
        output = model(ids, attention_mask=mask, labels=torch.zeros(len(ids), dtype=torch.long))
        output.loss.backward()
        assert output.logits.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_a_classifier_starts_from_the_layers_of_a_language_model(tmp_path: Path) -> None:
    config = CharRNNConfig(
        **SIZES, num_hidden_layers=3, last_hidden_size=6, cell="lstm", tie_word_embeddings=True, **DROPOUTS
    )
    assert config.layer_sizes == [8, 8, 6]
    language_model = CharRNNForCausalLM(config)
    assert language_model.lm_head.weight is language_model.model.embed_tokens.weight
    ids = torch.randint(1, 20, (2, 7))
    written = language_model.eval().generate(ids, max_new_tokens=3, num_beams=2)
    assert written.shape[0] == 2
    language_model.save_pretrained(tmp_path)
    model, info = AutoModelForSequenceClassification.from_pretrained(
        tmp_path, pooling="concat", classifier_hidden_size=5, num_labels=2, output_loading_info=True
    )
    assert isinstance(model, CharRNNForSequenceClassification)
    assert {name.split(".")[0] for name in info["missing_keys"]} == {"classifier"}
    assert not info["unexpected_keys"]
    for name, parameter in model.model.named_parameters():
        assert torch.equal(parameter, language_model.model.get_parameter(name)), name
    norm = model.classifier.input_norm
    assert torch.equal(norm.running_mean, torch.zeros(18))
    assert torch.equal(norm.running_var, torch.ones(18))
    model.train()(ids, labels=torch.tensor([0, 1])).loss.backward()
    model.save_pretrained(tmp_path / "classifier")
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "classifier")
    torch.testing.assert_close(again.eval()(ids).logits, model.eval()(ids).logits)


@pytest.mark.parametrize(
    ("config", "fields", "words"),
    [
        (CharRNNConfig, {"weight_dropout": 1.0}, "weight_dropout is 1.0; write a probability"),
        (CharRNNConfig, {"pooling": "attention"}, "pooling is 'attention'; write one of"),
        (CharRNNConfig, {"direction": "bidirectional"}, "direction is 'bidirectional'; write one of"),
        (CharRNNConfig, {"bptt_steps": 0}, "bptt_steps is 0; write a whole number of at least 1"),
        (CharRNNConfig, {"last_hidden_size": 0}, "last_hidden_size is 0"),
        (RNNEncoderConfig, {"embedding_row_dropout": -0.1}, "embedding_row_dropout is -0.1; write a probability"),
        (RNNEncoderConfig, {"classifier_hidden_size": 0}, "classifier_hidden_size is 0"),
    ],
)
def test_wrong_fields_are_refused(config: Any, fields: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, StrictDataclassError)) as error:
        config(**fields)
    assert words in str(error.value)
