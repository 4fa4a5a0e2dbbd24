"""The recurrent encoder and classifier, against torch's layers, literal loops, and texts without padding."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import OUTSIDE, run
from huggingface_hub.errors import StrictDataclassError
from model_checks import check_adapter, check_gradient_checkpointing, check_half_precision
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    pipeline,
    set_seed,
)

from hfattn import (
    RNNEncoderConfig,
    RNNEncoderForSequenceClassification,
    RNNEncoderForTokenClassification,
    RNNEncoderModel,
)
from hfattn.models.configuration_rnn_encoder import POOLINGS
from hfattn.models.modeling_rnn_encoder import find_sentences
from hfattn.models.recurrent_cells import CELLS

V, D, H = 13, 6, 4
STOPS = [3, 4]


def make(pooling: str = "last", seed: int = 0, **fields: object) -> RNNEncoderForSequenceClassification:
    torch.manual_seed(seed)
    sizes = {"vocab_size": V, "embedding_size": D, "hidden_size": H, "direction": "bidirectional", "pooling": pooling}
    if pooling == "hierarchical":
        sizes["sentence_end_token_ids"] = STOPS
    return RNNEncoderForSequenceClassification(RNNEncoderConfig(**{**sizes, **fields})).double().eval()


def ids(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(1, V, shape, generator=torch.Generator().manual_seed(seed))


def with_holes() -> tuple[torch.Tensor, torch.Tensor]:
    """Texts with padding on the right, on the left, in the middle, everywhere except one step, and nowhere."""
    mask = torch.tensor(
        [
            [1, 1, 1, 1, 0, 0, 0, 0, 0],
            [0, 0, 0, 1, 1, 1, 1, 1, 1],
            [1, 1, 0, 0, 1, 1, 0, 1, 1],
            [0, 0, 0, 0, 0, 1, 0, 0, 0],
            [1, 1, 1, 1, 1, 1, 1, 1, 1],
        ]
    )
    return ids(*mask.shape), mask


# Configuration


def parameters(model: nn.Module) -> tuple[int, int]:
    return sum(p.numel() for p in model.parameters()), sum(p.numel() for p in model.parameters() if p.requires_grad)


def test_preset_gru128() -> None:
    """1,000 x 128 embeddings; a GRU with 3 (128 x 128 + 128 x 128) weights; one output."""
    model = RNNEncoderForSequenceClassification(RNNEncoderConfig.preset("gru128"))
    total = 1000 * 128 + 3 * 128 * (128 + 128 + 2) + 128 + 1
    assert parameters(model) == (total, total)
    assert model.config.mask_padding
    assert not RNNEncoderConfig.preset("gru128", mask_padding=False).mask_padding


def test_preset_bilstm32_glove() -> None:
    """2,034,113 parameters, 34,113 of them trained, in Keras, where a gate has one bias vector. In torch it has two,
    which are added: 4 x 32 more parameters in each direction."""
    model = RNNEncoderForSequenceClassification(RNNEncoderConfig.preset("bilstm32_glove"))
    second_biases = 2 * 4 * 32
    assert parameters(model) == (2_034_113 + second_biases, 34_113 + second_biases)
    named = [name for name, _ in model.named_parameters() if name.endswith("bias_hh_l0")]
    assert sum(model.get_parameter(name).numel() for name in named) == second_biases
    assert model.get_input_embeddings().weight.numel() == 2_000_000
    # Embedding, Bidirectional(LSTM(32)), Dropout(0.5), Dense(1)
    assert (model.classifier_dropout.p, model.config.embedding_dropout) == (0.5, 0.0)


def test_preset_yang2016() -> None:
    """Section 3.3: words of 200, 50 units each way, queries of 100 over annotations of 100."""
    model = RNNEncoderForSequenceClassification(
        RNNEncoderConfig.preset("yang2016", vocab_size=50, num_labels=5, sentence_end_token_ids=[1])
    )
    words = 2 * 3 * 50 * (200 + 50 + 2) + 100 * 100 + 100 + 100
    sentences = 2 * 3 * 50 * (100 + 50 + 2) + 100 * 100 + 100 + 100
    assert parameters(model)[0] == 50 * 200 + words + sentences + 5 * 101
    assert model(ids(2, 9)).logits.shape == (2, 5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"poling": "mean"}, "'poling' is not a field of RNNEncoderConfig; did you mean 'pooling'?"),
        ({"pooling": "sum"}, "write one of 'last', 'mean', 'max', 'concat', 'attention', 'hierarchical'"),
        ({"direction": "both"}, "write one of 'forward', 'backward', 'bidirectional'"),
        ({"cell": "GRU"}, "write one of 'elman', 'jordan', 'lstm', 'gru', 'gru_reset_before'"),
        ({"hidden_size": 0}, "hidden_size is 0; write a whole number of at least 1"),
        ({"attention_hidden_size": 0}, "attention_hidden_size is 0; write a whole number of at least 1"),
        ({"classifier_dropout": 1.0}, "classifier_dropout is 1.0; write a probability from 0 to below 1"),
        ({"dropout": 0.1}, "write num_hidden_layers: 2 or more, or use embedding_dropout or classifier_dropout"),
        ({"initializer_range": float("nan")}, "write a number above 0"),
        (
            {"pooling": "attention", "attention_distribution_options": {"estimator": "score_function"}},
            "write attention_distribution_options: {estimator: straight_through}",
        ),
        ({"pooling": "attention", "attention_score": "cosin"}, "did you mean 'cosine'"),
        ({"pad_token_id": 1000}, "write an id from 0 to 999, or null"),
        ({"sentence_end_token_ids": [4]}, "write pooling: hierarchical, or remove sentence_end_token_ids"),
        ({"pooling": "hierarchical", "sentence_end_token_ids": [4, 1000]}, "contains 1000; write ids from 0 to 999"),
    ],
)
def test_a_wrong_field_is_refused_with_what_to_write_instead(fields: dict[str, object], message: str) -> None:
    with pytest.raises((ValueError, StrictDataclassError)) as error:
        RNNEncoderConfig(**fields)
    assert message in str(error.value)


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a preset of RNNEncoderConfig; "):
        RNNEncoderConfig.preset("gru")


# Layers and pooling, against torch's layers and literal loops


@pytest.mark.parametrize(("cell", "peer_class"), [("elman", nn.RNN), ("lstm", nn.LSTM), ("gru", nn.GRU)])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_layers_equal_those_of_torch_with_the_same_weights(
    cell: str, peer_class: type[nn.LSTM], direction: str
) -> None:
    """Outputs of both layers, the state that "last" pools, and every gradient."""
    model = make(cell=cell, direction=direction, num_hidden_layers=2)
    ways = 2 if direction == "bidirectional" else 1
    peer = peer_class(D, H, num_layers=2, bidirectional=ways == 2, batch_first=True).double()
    names = {}
    for name, _ in peer.named_parameters():
        kind, layer = name.removesuffix("_reverse").rsplit("_l", 1)
        way = "backward" if name.endswith("_reverse") else "forward"
        names[name] = f"model.layers.{layer}.recurrent.{way}_rnn.rnn.{kind}_l0"
    peer.load_state_dict({name: model.get_parameter(own) for name, own in names.items()})

    text = ids(3, 9)
    expected, state = peer(model.get_input_embeddings()(text))
    final = (state[0] if cell == "lstm" else state)[-ways:].transpose(0, 1).flatten(1)
    outputs = model.model(text)
    torch.testing.assert_close(outputs.last_hidden_state, expected)
    torch.testing.assert_close(outputs.pooler_output, final)
    torch.testing.assert_close(model(text).logits, model.classifier(final))
    (final.square().sum() + expected.sum()).backward()
    (outputs.pooler_output.square().sum() + outputs.last_hidden_state.sum()).backward()
    for name, own in names.items():
        torch.testing.assert_close(model.get_parameter(own).grad, peer.get_parameter(name).grad)


def test_last_of_a_backward_reader_is_its_state_after_the_first_word() -> None:
    model = make(direction="backward")
    outputs = model.model(ids(2, 5))
    assert torch.equal(outputs.pooler_output, outputs.last_hidden_state[:, 0])


def literal_attention(pooling: nn.Module, annotations: list[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Yang et al. 2016, eq. 5-7, one step at a time."""
    exponentials = [torch.exp(torch.dot(torch.tanh(pooling.W @ h + pooling.b), pooling.u)) for h in annotations]
    weights = [exponential / sum(exponentials) for exponential in exponentials]
    vector = torch.zeros_like(annotations[0])
    for weight, h in zip(weights, annotations, strict=True):
        vector = vector + weight * h
    return vector, weights


@pytest.mark.parametrize("pooling", ["mean", "max", "attention"])
def test_pooling_equals_a_literal_loop_over_the_words(pooling: str) -> None:
    model = make(pooling, num_hidden_layers=2, attention_hidden_size=5).model
    text, mask = with_holes()
    outputs = model(text, attention_mask=mask, output_attentions=True)
    for row in range(len(text)):
        words = [outputs.last_hidden_state[row, t] for t in range(9) if mask[row, t]]
        if pooling == "mean":
            expected = sum(words) / len(words)
        elif pooling == "max":
            expected = words[0]
            for word in words[1:]:
                expected = torch.where(word > expected, word, expected)
        else:
            expected, weights = literal_attention(model.word_attention, words)
            (seen,) = outputs.attentions
            assert seen.shape == (5, 1, 1, 9)
            torch.testing.assert_close(seen[row, 0, 0, mask[row].bool()], torch.stack(weights))
            assert not seen[row, 0, 0, ~mask[row].bool()].any()
        torch.testing.assert_close(outputs.pooler_output[row], expected)
    if pooling != "attention":
        assert outputs.attentions is None


def literal_sentences(words: list[int]) -> list[list[int]]:
    """Indices of the words of each sentence."""
    sentences: list[list[int]] = []
    for place, word in enumerate(words):
        if not sentences or (words[place - 1] in STOPS and word not in STOPS):
            sentences.append([])
        sentences[-1].append(place)
    return sentences


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_hierarchical_pooling_equals_a_literal_double_loop(cell: str) -> None:
    """Run and pool each sentence alone, then run and pool the sentences of a text (Yang et al. 2016)."""
    model = make("hierarchical", cell=cell, num_hidden_layers=2).model
    _, mask = with_holes()
    text = torch.tensor(
        [
            [5, 3, 6, 7, 9, 9, 9, 9, 9],  # two sentences, the second without an end
            [3, 3, 3, 3, 4, 8, 7, 6, 3],  # begins with two ends, which are a part of the first sentence
            [5, 3, 9, 9, 4, 6, 3, 7, 8],  # two ends with padding between them, and padding inside a sentence
            [9, 9, 9, 9, 9, 4, 9, 9, 9],  # nothing but an end
            [5, 6, 7, 8, 5, 6, 7, 8, 9],  # one sentence
        ]
    )
    outputs = model(text, attention_mask=mask, output_attentions=True, output_hidden_states=True)
    word_weights, sentence_weights = outputs.attentions
    assert word_weights.shape == (5, 1, 1, 9)
    assert sentence_weights.shape == (5, 1, 1, 2)
    for row in range(5):
        places = mask[row].nonzero()[:, 0]
        words = text[row, places]
        vectors, annotations, seen = [], torch.zeros(9, 2 * H).double(), torch.zeros(9).double()
        for sentence in literal_sentences(words.tolist()):
            hidden = model.embed_tokens(words[sentence])[None]
            for layer in model.layers:
                hidden, _ = layer.recurrent(hidden)
            vector, weights = literal_attention(model.word_attention, list(hidden[0]))
            vectors.append(vector)
            annotations[places[sentence]], seen[places[sentence]] = hidden[0].detach(), torch.stack(weights).detach()
        assert model.sentence_layer is not None
        read, _ = model.sentence_layer(torch.stack(vectors)[None])
        document, weights = literal_attention(model.sentence_attention, list(read[0]))
        torch.testing.assert_close(outputs.pooler_output[row], document)
        torch.testing.assert_close(outputs.last_hidden_state[row], annotations)
        torch.testing.assert_close(word_weights[row, 0, 0], seen)
        torch.testing.assert_close(sentence_weights[row, 0, 0, : len(weights)], torch.stack(weights))
        assert not sentence_weights[row, 0, 0, len(weights) :].any()
    assert [len(literal_sentences(text[row, mask[row].bool()].tolist())) for row in range(5)] == [2, 2, 2, 1, 1]
    assert len(outputs.hidden_states) == 3
    assert torch.equal(outputs.hidden_states[-1], outputs.last_hidden_state)


def test_sentence_ids_define_the_sentences() -> None:
    """Consecutive equal ids form a sentence; their values do not matter, and ids at padding are ignored."""
    model = make("hierarchical")
    text, mask = with_holes()
    expected = model(text, attention_mask=mask, output_attentions=True)
    numbers = torch.full(text.shape, 99)
    for row in range(len(text)):
        places = mask[row].nonzero()[:, 0]
        for number, sentence in enumerate(literal_sentences(text[row, places].tolist())):
            numbers[row, places[sentence]] = 7 - 2 * number
    given = model(inputs_embeds=model.get_input_embeddings()(text), attention_mask=mask, sentence_ids=numbers)
    torch.testing.assert_close(given.logits, expected.logits)
    one = model(text, attention_mask=mask, sentence_ids=torch.zeros_like(text), output_attentions=True)
    assert one.attentions[1].shape == (5, 1, 1, 1)
    torch.testing.assert_close(one.attentions[0].sum(-1), torch.ones(5, 1, 1).double())


def test_joining_split_sentences_restores_the_texts() -> None:
    text, mask = with_holes()
    layout = find_sentences(mask.bool(), end=torch.isin(text, torch.tensor(STOPS)))
    values = torch.randn(*text.shape, 2)
    again = layout.join(layout.split(values), text.shape[1])
    assert torch.equal(again, values * mask[..., None])
    assert layout.word_mask.sum() == mask.sum()
    assert torch.equal(layout.sentence_mask.sum(), torch.tensor(len(layout.word_mask)))


@pytest.mark.parametrize("score", ["additive", "scaled_dot", "general", "gaussian"])
@pytest.mark.parametrize("distribution", ["softmax", "sparsemax", "entmax"])
def test_any_score_and_distribution_pools(score: str, distribution: str) -> None:
    model = make("attention", attention_score=score, attention_distribution=distribution)
    text, mask = with_holes()
    (weights,) = model(text, attention_mask=mask, output_attentions=True).attentions
    torch.testing.assert_close(weights.sum(-1), torch.ones(5, 1, 1).double())
    assert not weights[:, 0, 0][mask == 0].any()


# Padding


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_padding_anywhere_is_invisible(cell: str, pooling: str) -> None:
    model = make(pooling, cell=cell, num_hidden_layers=2)
    text, mask = with_holes()
    logits = model(text, attention_mask=mask).logits
    for row in range(len(text)):
        real = mask[row].bool()
        torch.testing.assert_close(logits[row], model(text[row : row + 1, real]).logits[0])
    replaced = torch.where(mask.bool(), text, STOPS[0])
    assert torch.equal(model(replaced, attention_mask=mask).logits, logits)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_padding_that_is_not_masked_is_a_word(pooling: str) -> None:
    """With mask_padding=False the mask has no effect, padding is read, and its embedding is trained."""
    model = make(pooling, mask_padding=False)
    text, mask = with_holes()
    text = text * mask
    logits = model(text, attention_mask=mask).logits
    torch.testing.assert_close(logits, model(text).logits)
    short = model(text[:1, :4]).logits
    assert (logits[0] - short[0]).abs().max() > 1e-4
    logits.sum().backward()
    assert model.get_input_embeddings().weight.grad[0].abs().max() > 0
    assert model.get_input_embeddings().weight[0].abs().max() > 0

    masked = make(pooling)
    masked(text, attention_mask=mask).logits.sum().backward()
    assert not masked.get_input_embeddings().weight.grad[0].any()
    assert not masked.get_input_embeddings().weight[0].any()


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("rows", [[1], [0, 1, 2, 3, 4]])
def test_a_text_without_words_has_finite_values_and_gradients(pooling: str, rows: list[int]) -> None:
    model = make(pooling)
    text, mask = with_holes()
    mask[rows] = 0
    outputs = model(text, attention_mask=mask, output_attentions=True, labels=torch.tensor([0, 1, 0, 1, 0]))
    assert outputs.logits.isfinite().all()
    if pooling in ("last", "mean", "max", "attention"):
        torch.testing.assert_close(outputs.logits[rows], model.classifier.bias.expand(len(rows), -1))
    assert all(not weights[rows].any() for weights in outputs.attentions or ())
    outputs.loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


# Inputs, losses, dropout


def test_inputs_embeds_and_hidden_states() -> None:
    model = make(num_hidden_layers=2)
    text = ids(2, 5)
    embeds = model.get_input_embeddings()(text)
    outputs = model(inputs_embeds=embeds, output_hidden_states=True)
    assert torch.equal(outputs.logits, model(text).logits)
    assert len(outputs.hidden_states) == 3
    assert torch.equal(outputs.hidden_states[0], embeds)
    assert torch.equal(outputs.hidden_states[1], model.model.layers[0](embeds, None, None)[0])
    assert torch.equal(outputs.hidden_states[2], model.model(text).last_hidden_state)
    assert torch.equal(model(text, return_dict=False)[0], outputs.logits)


def test_wrong_calls_are_refused_in_one_sentence() -> None:
    model, tree = make(), make("hierarchical")
    text = ids(2, 5)
    embeds = model.get_input_embeddings()(text)
    with pytest.raises(ValueError, match="exactly one of input_ids and inputs_embeds"):
        model(text, inputs_embeds=embeds)
    with pytest.raises(ValueError, match="attention_mask has the shape \\(2, 4\\); pass one of shape"):
        model(text, attention_mask=torch.ones(2, 4))
    with pytest.raises(ValueError, match="sentence_ids has the shape \\(2, 1\\)"):
        tree(text, sentence_ids=text[:, :1])
    with pytest.raises(
        ValueError, match="sentence_ids is for hierarchical pooling, but this model's pooling is 'last'"
    ):
        model(text, sentence_ids=text)
    with pytest.raises(ValueError, match="cannot find the sentences; pass sentence_ids"):
        tree(inputs_embeds=embeds)
    with pytest.raises(ValueError, match="sentence_end_token_ids in its configuration"):
        make("hierarchical", sentence_end_token_ids=[])(text)
    with pytest.raises(ValueError, match="labels has the shape \\(2,\\); pass zeros and ones of shape"):
        make(num_labels=3, problem_type="multi_label_classification")(text, labels=torch.tensor([0, 1]))


def test_losses_equal_their_formulas() -> None:
    text = ids(3, 5)
    several = make(num_labels=3)
    labels = torch.tensor([0, 2, 1])
    outputs = several(text, labels=labels)
    expected = -outputs.logits.log_softmax(-1)[torch.arange(3), labels].mean()
    torch.testing.assert_close(outputs.loss, expected)

    multi = make(num_labels=3, problem_type="multi_label_classification")
    marks = torch.tensor([[0, 1, 1], [1, 0, 0], [0, 0, 0]])
    outputs = multi(text, labels=marks)
    p = outputs.logits.sigmoid()
    torch.testing.assert_close(outputs.loss, -torch.where(marks == 1, p, 1 - p).log().mean())

    one = make(num_labels=1, problem_type="multi_label_classification")
    for shape in ((3,), (3, 1)):  # one sigmoid, with labels in either shape
        outputs = one(text, labels=torch.tensor([0, 1, 1]).view(shape))
        p = outputs.logits[:, 0].sigmoid()
        torch.testing.assert_close(outputs.loss, -torch.stack([1 - p[0], p[1], p[2]]).log().mean())

    regression = make(num_labels=1)
    targets = torch.tensor([0.5, -1.0, 2.0]).double()
    outputs = regression(text, labels=targets)
    torch.testing.assert_close(outputs.loss, (outputs.logits[:, 0] - targets).square().mean())


def test_dropout_acts_only_where_configured_and_only_in_training() -> None:
    text = ids(2, 50)
    for place in ("embedding_dropout", "dropout", "classifier_dropout"):
        model = make(num_hidden_layers=2, **{place: 0.5})
        assert torch.equal(model(text).logits, model(text).logits)
        model.train()
        set_seed(0)
        seen = model(text, output_hidden_states=True)
        first, second = (
            layer(hidden, None, None) for layer, hidden in zip(model.model.layers, seen.hidden_states, strict=False)
        )
        embedded = model.get_input_embeddings()(text)
        pooled = seen.hidden_states[2][:, -1, :H], seen.hidden_states[2][:, 0, H:]
        assert torch.equal(seen.hidden_states[0], embedded) == (place != "embedding_dropout")
        assert torch.equal(seen.hidden_states[1], first[0])
        assert torch.equal(seen.hidden_states[2], second[0]) == (place != "dropout")
        same = torch.allclose(seen.logits, model.classifier(torch.cat(pooled, -1)))
        assert same == (place != "classifier_dropout")


# The tagger: one output per step


def make_tagger(seed: int = 0, **fields: object) -> RNNEncoderForTokenClassification:
    torch.manual_seed(seed)
    sizes = {"vocab_size": V, "embedding_size": D, "hidden_size": H, "direction": "bidirectional", "num_labels": 3}
    return RNNEncoderForTokenClassification(RNNEncoderConfig(**{**sizes, **fields})).double().eval()


def test_a_tagger_equals_a_literal_loop_over_the_steps() -> None:
    """An Elman network in each direction, and a linear layer over both states of a word; and its loss."""
    model = make_tagger(cell="elman")
    text, mask = with_holes()
    labels = torch.arange(45).view(5, 9) % 3
    labels[mask == 0] = -100
    labels[0, 0] = -100
    outputs = model(text, attention_mask=mask, labels=labels)
    losses = []
    for row in range(len(text)):
        places = mask[row].nonzero()[:, 0].tolist()
        states: dict[tuple[str, int], torch.Tensor] = {}
        for way, order in (("forward", places), ("backward", places[::-1])):
            rnn = model.get_submodule(f"model.layers.0.recurrent.{way}_rnn.rnn")
            h = torch.zeros(H).double()
            for t in order:
                x = model.get_input_embeddings().weight[text[row, t]]
                h = torch.tanh(rnn.weight_ih_l0 @ x + rnn.bias_ih_l0 + rnn.weight_hh_l0 @ h + rnn.bias_hh_l0)
                states[way, t] = h
        for t in places:
            annotation = torch.cat([states["forward", t], states["backward", t]])
            scores = model.classifier.weight @ annotation + model.classifier.bias
            torch.testing.assert_close(outputs.logits[row, t], scores)
            if labels[row, t] != -100:
                losses.append(scores.exp().sum().log() - scores[labels[row, t]])
    torch.testing.assert_close(outputs.loss.double(), torch.stack(losses).mean(), atol=1e-6, rtol=0)
    summed = model(text, attention_mask=mask, labels=labels, num_items_in_batch=2 * len(losses)).loss
    torch.testing.assert_close(summed.double(), torch.stack(losses).mean() / 2, atol=1e-6, rtol=0)


@pytest.mark.parametrize("cell", CELLS)
def test_padding_of_a_tagged_text_is_invisible(cell: str) -> None:
    model = make_tagger(cell=cell, num_hidden_layers=2)
    text, mask = with_holes()
    logits = model(text, attention_mask=mask).logits
    for row in range(len(text)):
        real = mask[row].bool()
        torch.testing.assert_close(logits[row, real], model(text[row : row + 1, real]).logits[0])


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_tagger_pools_nothing_and_starts_from_any_encoder(tmp_path: Path, pooling: str) -> None:
    """It has the layers of a classifier that was trained before, without its pooling."""
    classifier, text = make(pooling), ids(2, 5)
    classifier.save_pretrained(tmp_path)
    options = {"num_labels": 3, "ignore_mismatched_sizes": True, "dtype": torch.float64}
    tagger = AutoModelForTokenClassification.from_pretrained(tmp_path, **options)
    assert isinstance(tagger, RNNEncoderForTokenClassification)
    names = {name for name, _ in tagger.named_parameters()}
    assert not [name for name in names if "attention" in name or "sentence" in name]
    hidden = classifier.model.layers[0](classifier.get_input_embeddings()(text), None, None)[0]
    torch.testing.assert_close(tagger.model(text).last_hidden_state, hidden)
    assert tagger.model(text).pooler_output is None
    with pytest.raises(ValueError, match="sentence_ids is for hierarchical pooling"):
        tagger(text, sentence_ids=text)
    tagger(text, labels=text % 3).loss.backward()
    assert all(parameter.grad is not None for parameter in tagger.parameters())


def test_a_tagger_in_half_precision_and_with_checkpointing() -> None:
    text, mask = with_holes()
    inputs, labels = {"input_ids": text, "attention_mask": mask}, text % 3
    check_half_precision(make_tagger(), inputs, labels, torch.bfloat16, tolerance=0.02)
    check_gradient_checkpointing(make_tagger(num_hidden_layers=2), inputs, labels, reentrant=False)


def test_a_tagger_learns_what_only_a_later_word_tells() -> None:
    """The tag of a word is the parity of the word two steps after it, which no forward network sees."""
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(1, V, (128, 8), generator=generator)
    labels = torch.nn.functional.pad(text[:, 2:] % 2, (0, 2), value=-100)
    accuracy = {}
    for direction in ("forward", "bidirectional"):
        model = make_tagger(direction=direction, hidden_size=16, num_labels=2).float()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        for _ in range(60):
            optimizer.zero_grad()
            model(text, labels=labels).loss.backward()
            optimizer.step()
        new = torch.randint(1, V, (64, 8), generator=generator)
        right = model(new).logits.argmax(-1)[:, :-2] == new[:, 2:] % 2
        accuracy[direction] = right.double().mean().item()
    assert accuracy["bidirectional"] > 0.95
    assert 0.4 < accuracy["forward"] < 0.6


# Training


def step(model: nn.Module, text: torch.Tensor, labels: torch.Tensor) -> None:
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1, weight_decay=0.1)
    model(text, labels=labels).loss.backward()
    optimizer.step()


def test_frozen_embeddings_do_not_change(tmp_path: Path) -> None:
    """Not by a training step, by saving and loading, or by resizing; the rest of the model is trained."""
    text, labels = ids(2, 5), torch.tensor([0, 1])
    make(freeze_embeddings=True).save_pretrained(tmp_path)
    model = RNNEncoderForSequenceClassification.from_pretrained(tmp_path, dtype=torch.float64).train()
    for _ in range(2):
        before = model.get_input_embeddings().weight.clone()
        others = [p.clone() for p in model.parameters() if p.requires_grad]
        step(model, text, labels)
        assert model.get_input_embeddings().weight.grad is None
        assert torch.equal(model.get_input_embeddings().weight, before)
        assert not any(map(torch.equal, others, (p for p in model.parameters() if p.requires_grad)))
        model.resize_token_embeddings(V + 2)
    trained = make()
    before = trained.get_input_embeddings().weight.clone()
    step(trained, text, labels)
    assert not torch.equal(trained.get_input_embeddings().weight, before)


@pytest.mark.parametrize("pooling", ["last", "hierarchical"])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_changes_no_gradient(pooling: str, frozen: bool, reentrant: bool) -> None:
    text, mask = with_holes()
    model = make(pooling, num_hidden_layers=2, freeze_embeddings=frozen)
    inputs = {"input_ids": text, "attention_mask": mask}
    check_gradient_checkpointing(model, inputs, torch.tensor([0, 1, 0, 1, 0]), reentrant)


def test_two_runs_with_one_seed_are_equal() -> None:
    text, mask = with_holes()

    def run() -> torch.Tensor:
        set_seed(3)
        model = make("hierarchical", embedding_dropout=0.3, classifier_dropout=0.3).train()
        for _ in range(3):
            step(model, text, torch.tensor([0, 1, 0, 1, 0]))
        return model.eval()(text, attention_mask=mask).logits

    assert torch.equal(run(), run())


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_it_learns_from_padded_texts(pooling: str, side: str) -> None:
    """Learn which of two words comes first in a text of 3 to 12 words (or one-word sentences)."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(3, 13, (256,), generator=generator)
    text = torch.randint(5, V, (256, 12), generator=generator)
    labels = torch.randint(0, 2, (256,), generator=generator)
    places = torch.stack([torch.randperm(int(length), generator=generator)[:2].sort().values for length in lengths])
    rows = torch.arange(256)
    text[rows, places[:, 0]], text[rows, places[:, 1]] = 1 + labels, 2 - labels
    steps = torch.arange(12)
    mask = steps < lengths[:, None] if side == "right" else steps >= 12 - lengths[:, None]
    padded = torch.zeros_like(text)
    padded[mask] = text[steps < lengths[:, None]]

    torch.manual_seed(0)
    fields = {"sentence_end_token_ids": list(range(1, V))} if pooling == "hierarchical" else {}
    config = RNNEncoderConfig(
        vocab_size=V, embedding_size=16, hidden_size=16, direction="bidirectional", pooling=pooling, **fields
    )
    model = RNNEncoderForSequenceClassification(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(40):
        optimizer.zero_grad()
        model(padded, attention_mask=mask.long(), labels=labels).loss.backward()
        optimizer.step()
    model.eval()
    predictions = model(padded, attention_mask=mask.long()).logits.argmax(-1)
    assert (predictions == labels).double().mean() > 0.98


def test_trainer_with_labels_of_each_problem_type(tmp_path: Path) -> None:
    """One sigmoid, labels 0 and 1, texts of different lengths: the pad token is the only difference to the longest."""
    tokenizer = word_tokenizer()
    rows = [{**tokenizer(text), "label": label} for text, label in (("good film", 1), ("a bad dull film .", 0))]
    model = make(num_labels=1, problem_type="multi_label_classification", freeze_embeddings=True).float()
    before = model.get_input_embeddings().weight.clone()
    arguments = TrainingArguments(
        tmp_path, max_steps=60, learning_rate=0.05, report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True
    )
    trainer = Trainer(model, arguments, DataCollatorWithPadding(tokenizer), rows, rows)
    trainer.train()
    predictions = trainer.predict(rows).predictions
    assert predictions.shape == (2, 1)
    assert predictions[0, 0] > 1 > -1 > predictions[1, 0]
    assert torch.equal(model.get_input_embeddings().weight, before)


# Precision, devices, adapters, files


@pytest.mark.parametrize("pooling", POOLINGS)
def test_bfloat16(pooling: str) -> None:
    text, mask = with_holes()
    inputs, labels = {"input_ids": text, "attention_mask": mask}, torch.tensor([0, 1, 0, 1, 0])
    check_half_precision(make(pooling), inputs, labels, torch.bfloat16, tolerance=0.02)


@pytest.mark.parametrize("pooling", ["last", "hierarchical"])
def test_save_and_load_with_auto_classes(tmp_path: Path, pooling: str) -> None:
    model = make(pooling, freeze_embeddings=True)
    model.save_pretrained(tmp_path)
    text = ids(2, 9)
    loaded, info = AutoModelForSequenceClassification.from_pretrained(
        tmp_path, dtype=torch.float64, device_map="auto", output_loading_info=True
    )
    assert isinstance(loaded, RNNEncoderForSequenceClassification)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert not loaded.get_input_embeddings().weight.requires_grad
    torch.testing.assert_close(loaded(text).logits, model(text).logits, atol=1e-14, rtol=0)
    base = AutoModel.from_pretrained(tmp_path, dtype=torch.float64)
    assert isinstance(base, RNNEncoderModel)
    torch.testing.assert_close(base(text).pooler_output, model.model(text).pooler_output, atol=1e-14, rtol=0)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), RNNEncoderConfig)
    assert isinstance(AutoModelForSequenceClassification.from_config(RNNEncoderConfig()).model, RNNEncoderModel)


def test_a_parameter_missing_from_the_checkpoint_is_initialized(tmp_path: Path) -> None:
    """A pretrained encoder with a new pooling and a new head, built on the meta device."""
    make("last").save_pretrained(tmp_path)
    model = RNNEncoderForSequenceClassification.from_pretrained(
        tmp_path,
        pooling="hierarchical",
        sentence_end_token_ids=STOPS,
        num_labels=7,
        ignore_mismatched_sizes=True,
        dtype=torch.float64,
    )
    weight = model.model.sentence_layer.backward_rnn.rnn.weight_hh_l0
    torch.testing.assert_close(weight.T @ weight, torch.eye(H).double())
    for name, parameter in model.named_parameters():
        assert parameter.isfinite().all(), name
        if name.endswith(("attention.W", "attention.u", "classifier.weight")):
            assert 0 < parameter.abs().max() < 3, name
        if name.endswith(("attention.b", "classifier.bias")):
            assert not parameter.any(), name


def test_resizing_the_vocabulary_keeps_the_weights() -> None:
    model = make("attention")
    text = ids(2, 5)
    before = model(text).logits
    model.resize_token_embeddings(V + 3)
    torch.testing.assert_close(model(text).logits, before)
    assert model.config.vocab_size == V + 3
    assert model(text + 3).logits.isfinite().all()


@pytest.mark.parametrize("cell", CELLS)
def test_lora_on_recurrent_and_linear_weights(tmp_path: Path, cell: str) -> None:
    """Trained, saved, reloaded, merged."""
    weights = [
        f"layers.0.recurrent.{way}_rnn.rnn.weight_{half}_l0" for way in ("forward", "backward") for half in ("ih", "hh")
    ]
    config = LoraConfig(r=2, lora_alpha=4, target_modules=["classifier"], target_parameters=weights)
    model, text, labels = make("attention", cell=cell), {"input_ids": ids(8, 7)}, torch.tensor([0, 1] * 4)
    merged = check_adapter(model, config, text, labels, tmp_path, steps=20, learning_rate=0.05)
    initial = make("attention", cell=cell).state_dict()
    changed = [name for name, tensor in merged.state_dict().items() if not torch.equal(tensor, initial[name])]
    assert len(changed) == 5


def word_tokenizer() -> PreTrainedTokenizerFast:
    words = ["[PAD]", "[UNK]", "good", ".", "!", "bad", "film", "the", "actors", "were", "a", "and", "dull"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")


CLEAN = (
    "import sys, json\n"
    "sys.modules['hfattn'] = None  # as if it were not installed\n"
    "from transformers import AutoModel, AutoTokenizer, pipeline\n"
    "folder, texts = sys.argv[1], json.loads(sys.argv[2])\n"
    "classify = pipeline(sys.argv[4], model=folder, trust_remote_code=True, device='cpu', batch_size=2)\n"
    "assert 'transformers_modules' in type(classify.model).__module__\n"
    "assert AutoModel.from_pretrained(folder, trust_remote_code=True).config.pooling == classify.model.config.pooling\n"
    "print(json.dumps(classify(texts, **json.loads(sys.argv[5])), default=float))\n"
    "classify.save_pretrained(sys.argv[3])\n"
)


def test_the_pipeline_returns_the_probability_of_one_sigmoid() -> None:
    model, tokenizer = make(num_labels=1, problem_type="multi_label_classification").float(), word_tokenizer()
    texts = ["the actors were good . a good film !", "dull"]
    scored = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu", batch_size=2)(texts)
    for text, found in zip(texts, scored, strict=True):
        logits = model(torch.tensor([tokenizer(text).input_ids])).logits
        assert found["score"] == pytest.approx(logits.sigmoid().item(), abs=1e-6)


@pytest.mark.parametrize(
    ("task", "options"),
    [("text-classification", {"top_k": None}), ("token-classification", {"aggregation_strategy": "first"})],
)
def test_a_saved_folder_works_where_hfattn_is_not_installed(
    tmp_path: Path, task: str, options: dict[str, object]
) -> None:
    """The scores are equal here, there, and from a copy that was saved there, for texts of different lengths."""
    names = {0: "O", 1: "B-PERSON", 2: "I-PERSON"}
    model: Any = make("hierarchical") if task == "text-classification" else make_tagger(seed=3, id2label=names)
    model, tokenizer = model.float(), word_tokenizer()
    model.save_pretrained(tmp_path / "one")
    tokenizer.save_pretrained(tmp_path / "one")
    texts = ["the actors were good . a good film !", "dull"]
    expected = pipeline(task, model=model, tokenizer=tokenizer, device="cpu")(texts, **options)
    assert all(expected)
    for name, again in (("one", "two"), ("two", "three")):
        words = [tmp_path / name, json.dumps(texts), tmp_path / again, task, json.dumps(options)]
        done = run([sys.executable, "-c", CLEAN, *words], cwd=OUTSIDE, HF_MODULES_CACHE=str(tmp_path / "modules"))
        assert done.returncode == 0, done.stderr
        for there, here in zip(json.loads(done.stdout.splitlines()[-1]), expected, strict=True):
            for found, entry in zip(there, here, strict=True):
                assert found.pop("score") == pytest.approx(float(entry["score"]), abs=1e-6)
                assert found == {key: value for key, value in entry.items() if key != "score"}
