"""ULMFiT (Howard & Ruder 2018): dropouts and truncation of recurrent layers, the classifier of a language model, and
the stages that hand a run folder on."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from commands import OUTSIDE, ROOT, results_of, run, steps, train_here, write_config, written
from huggingface_hub.errors import StrictDataclassError
from recipe_contract import KilledRun
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from typer.testing import CliRunner

from hfattn import (
    CharRNNConfig,
    CharRNNForCausalLM,
    CharRNNForSequenceClassification,
    RNNEncoderConfig,
    RNNEncoderForSequenceClassification,
)
from hfattn.api import predict
from hfattn.clean_process import MEASURED
from hfattn.errors import UserError
from hfattn.evaluation import evaluate_folder
from hfattn.hub.clean_run import CleanRun, Result
from hfattn.hub.measuring import judge_measurement, plan_measurement
from hfattn.likelihood import score_text
from hfattn.loading import load_any_model, load_language_model
from hfattn.measured_outputs import outputs_of_texts
from hfattn.models.pooled_classifier import HiddenClassifier, pool_steps
from hfattn.models.recurrent_cells import CELLS
from hfattn.models.recurrent_layers import DirectedLayer, RecurrentLayer, RowDropout, SequenceDropout
from hfattn.tokenizers import TokenizerConfig, build_tokenizer
from hfattn.training.fine_tuning import layer_depths
from hfattn_cli import app

pytestmark = pytest.mark.runs

LANGUAGE_MODELS, CLASSIFICATION = ROOT / "recipes" / "causal_lm", ROOT / "recipes" / "classification"
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
    got = [outputs.detach(), inputs.grad, weight.grad, layer.rnn.bias_ih_l0.grad]

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

    def gradients() -> list[torch.Tensor | None]:
        torch.manual_seed(3)
        model.zero_grad()
        model(ids, labels=ids).loss.backward()
        return [parameter.grad for parameter in model.parameters()]

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
    read: list[torch.Tensor] = []
    now: list[torch.Tensor] = []
    for t in range(10):  # literal: one step at a time, and the state is cut every ``steps``
        if t and t % steps == 0:
            now = [part.detach() for part in now]
        output, *now = plain(inputs[:, t : t + 1], mask[:, t : t + 1], *now)
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
        norms: list[Any] = [head.input_norm, head.hidden_norm]
        for norm in norms:
            norm.running_mean.copy_(double(norm.num_features))
            norm.running_var.copy_(double(norm.num_features, seed=1).abs() + 0.5)
    logits = model.eval()(ids).logits
    states = model.model(read).last_hidden_state  # (B, T, H)
    for row in range(4):
        h = states[row]
        pooled = torch.cat([h[-1], torch.stack([h[:, i].max() for i in range(8)]), sum(h) / len(h)])

        def normed(x: torch.Tensor, norm: Any) -> torch.Tensor:
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
    norm: Any = model.classifier.input_norm
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


# The stages


REVIEWS = (
    ("The acting was {}, and the story was {}.", ("good", "great", "charming", "moving")),
    ("A {} film; its end is {}!", ("bad", "dull", "boring", "awful")),
)
LAYERS = {
    "model_type": "char_rnn", "embedding_size": 12, "hidden_size": 16, "last_hidden_size": 12, "num_hidden_layers": 2,
    "cell": "lstm", "tie_word_embeddings": True, **DROPOUTS, "output_dropout": 0.1,
}  # fmt: skip
HEAD = {"pooling": "concat", "classifier_hidden_size": 6, "classifier_dropout": 0.1, "bptt_steps": 5}
LANGUAGE_MODEL: dict[str, dict[str, Any]] = {
    "data": {"split": [0.8, 0.1, 0.1], "max_length": 8, "stateful": True, "lines_are_texts": True},
    "training": {
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 2,
        "learning_rate": 1e-2,
        "metric_for_best_model": "perplexity",
    },
    "schedule": {"name": "slanted_triangular"},
    "sample": {"prompts": ["The acting"], "max_new_tokens": 6, "decoding": {"greedy": {"temperature": 0}}},
}
CLASSIFIER_RUN: dict[str, dict[str, Any]] = {
    "data": {"split": [0.7, 0.15, 0.15], "max_length": 32},
    "tuning": {"layer_decay": 0.3846, "gradual_unfreezing": True},
    "schedule": {"name": "slanted_triangular"},
    "training": {"learning_rate": 1e-2, "metric_for_best_model": "accuracy"},
}


def reviews(folder: Path, number: int = 160) -> Path:
    """Write reviews whose words tell their class."""
    rows = []
    for i in range(number):
        form, words = REVIEWS[i % 2]
        rows.append(
            {"text": form.format(words[i // 2 % 4], words[i // 8 % 4]) + f" {i}", "label": ["yes", "no"][i % 2]}
        )
    return written(folder / "reviews.jsonl", rows)


def language_model_config(folder: Path, **sections: Any) -> Path:
    return write_config(folder, LANGUAGE_MODEL, {"data": {"dataset": str(reviews(folder))}}, sections)


def classifier_config(folder: Path, language_model: Path, **sections: Any) -> Path:
    files = {"data": {"dataset": str(reviews(folder))}, "model": {"name": str(language_model), "options": HEAD}}
    return write_config(folder, CLASSIFIER_RUN, files, sections)


class Stages(NamedTuple):
    first: Path
    second: Path
    direction: str


@pytest.fixture(scope="module", params=["forward", "backward"])
def stages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stages:
    """The folders of a language model, and of the same trained further on the reviews."""
    general, task = tmp_path_factory.mktemp("general"), tmp_path_factory.mktemp("task")
    scratch = {"model": {**LAYERS, "direction": request.param}, "tokenizer": {"kind": "bpe", "vocab_size": 90}}
    train_here(LANGUAGE_MODELS, language_model_config(general, training=steps(20), **scratch))
    tuning = {"layer_decay": 0.3846}
    config = language_model_config(task, training=steps(10), model={"name": str(general / "run")}, tuning=tuning)
    train_here(LANGUAGE_MODELS, config)
    return Stages(general / "run", task / "run", request.param)


def test_a_language_model_is_trained_further(stages: Stages) -> None:
    first, second = results_of(stages.first), results_of(stages.second)
    tokenizers = [AutoTokenizer.from_pretrained(folder) for folder in stages[:2]]
    assert tokenizers[0].get_vocab() == tokenizers[1].get_vocab()
    assert len({tuple(tokenizer("The acting was dull!").input_ids) for tokenizer in tokenizers}) == 1
    for part in ("validation", "test"):  # the parts are those of the first stage, and so are the scores before
        before = second["metrics"][part]["before"]
        assert before["nats_per_token"] == pytest.approx(first["metrics"][part]["nats_per_token"], rel=1e-5)
        assert second["metrics"][part]["nats_per_token"] < before["nats_per_token"]
    assert first["data"]["streams"] == 4
    config = AutoConfig.from_pretrained(stages.second)
    assert (config.direction, config.weight_dropout, config.layer_sizes) == (stages.direction, 0.5, [16, 12])
    sample = second["samples"][0]["after"]
    assert sample.startswith("The acting") if stages.direction == "forward" else sample.endswith("The acting")


def test_a_backward_model_predicts_the_previous_token(stages: Stages) -> None:
    model, tokenizer = load_language_model(str(stages.first))
    text = REVIEWS[0][0].format("good", "great")
    ids = tokenizer(text, add_special_tokens=False).input_ids
    start = tokenizer.bos_token_id
    row = torch.tensor([[start, *(ids if stages.direction == "forward" else ids[::-1])]])
    logs = model(row).logits[0].log_softmax(-1)
    expected = -sum(logs[i, row[0, i + 1]].item() for i in range(len(ids))) / len(ids)
    found = score_text(model, tokenizer, text, window=len(ids))
    assert found["nats_per_token"] == pytest.approx(expected, rel=1e-5)


def test_the_scores_of_streams_are_measured_again(stages: Stages) -> None:
    """As ``hfattn verify --measure`` does in a sandbox."""
    results = results_of(stages.first)
    planned = plan_measurement(results, [str(stages.first.parent / "reviews.jsonl")])
    assert not isinstance(planned, str), planned
    model, tokenizer, _ = load_any_model(str(stages.first))
    facts, tensors = outputs_of_texts(model.eval(), tokenizer, json.loads(json.dumps(planned.order)))
    done = CleanRun("none", True, {MEASURED: Result(json.loads(json.dumps(facts)), tensors)}, None)
    check = judge_measurement(done, planned)
    assert check.passed, check.detail


def test_the_card_says_in_which_direction_a_model_reads(stages: Stages) -> None:
    card = (stages.first / "README.md").read_text()
    assert ("The model predicts the previous token" in card) == (stages.direction == "backward")
    assert "from which the state of the model is carried to the next window" in card


def test_a_backward_model_is_not_streamed(stages: Stages) -> None:
    words = ["generate", str(stages.first), "--prompt", "The acting", "--max-new-tokens", "3", "--temperature", "0"]
    printed = CliRunner().invoke(app, words).output.strip()
    assert printed.startswith("The acting") if stages.direction == "forward" else printed.endswith("The acting")
    done = CliRunner().invoke(app, [*words, "--stream"])
    assert (done.exit_code == 0) == (stages.direction == "forward")


@pytest.mark.parametrize("epochs", [1, 2, 4])
def test_the_classifier_is_unfrozen_from_its_head_down(
    stages: Stages, tmp_path: Path, epochs: int, capfd: pytest.CaptureFixture[str]
) -> None:
    training = {"num_train_epochs": epochs, "max_steps": -1, "eval_strategy": "epoch", "save_strategy": "epoch"}
    results = train_here(
        CLASSIFICATION,
        classifier_config(tmp_path, stages.second, training={**training, "load_best_model_at_end": False}),
    )
    before = AutoModelForCausalLM.from_pretrained(stages.second)
    after = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run")
    assert isinstance(after, CharRNNForSequenceClassification)
    assert (after.config.direction, after.config.pooling) == (stages.direction, "concat")
    layers = ["layers.1.rnn.weight_hh_l0", "layers.0.rnn.weight_hh_l0", "embed_tokens.weight"]
    changed = {
        name for name in layers if not torch.equal(after.model.get_parameter(name), before.model.get_parameter(name))
    }
    assert changed == set(layers[: epochs - 1])
    frozen = {1: ("model.",), 2: ("model.layers.0.", "model.embed_tokens."), 4: ()}[epochs]
    trained = sum(each.numel() for name, each in after.named_parameters() if not name.startswith(frozen))
    assert results["model"]["trained_parameters"] == trained
    assert ("gradual_unfreezing needs 4 epochs to train all layers, and" in capfd.readouterr().err) == (epochs < 4)
    assert results["model"]["base_model"] == "run"


class TestKilledLanguageModel(KilledRun):
    """Streams whose state is carried on, with all dropouts."""

    recipe, changed = "causal_lm", "--data.max_length 9"

    @pytest.fixture
    def configure(self) -> Any:
        return partial(
            language_model_config, model=LAYERS, tokenizer={"kind": "bpe", "vocab_size": 90}, training=steps(30, 10)
        )

    def killed(self, folder: Path) -> dict[str, Any]:
        return {}


class TestKilledClassifier(KilledRun):
    """Killed in the middle of the second epoch, when the last layer has been unfrozen."""

    recipe, changed, kill_step = "classification", "--data.max_length 31", 40

    @pytest.fixture
    def configure(self, stages: Stages) -> Any:
        return partial(classifier_config, language_model=stages.second)

    def killed(self, folder: Path) -> dict[str, Any]:
        # 112 training texts are 28 steps an epoch.
        return {"training": {"num_train_epochs": 3, "max_steps": -1, "eval_steps": 19, "save_steps": 19}}


@pytest.mark.parametrize(
    ("recipe", "words", "sentence"),
    [
        (
            "causal_lm",
            "--evaluation.stride 4",
            "data.stateful reads each token once, after all that precede",
        ),
        ("causal_lm", "--data.form messages", "stateful is for running text; write form: text instead of messages"),
        ("causal_lm", "--tuning.gradual_unfreezing true", "trains a pretrained model (model.name) from its head down"),
        ("causal_lm", "--model.embedding_size 13", "write embedding_size: 12 or tie_word_embeddings: false"),
    ],
)
def test_bad_input_gets_one_sentence(
    tmp_path: Path, recipe: str, words: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = language_model_config(tmp_path, model=LAYERS, tokenizer={"kind": "bpe", "vocab_size": 90})
    with pytest.raises(UserError) as error:
        train_here(LANGUAGE_MODELS, config, *words.split())
    assert sentence in str(error.value)


def test_a_model_without_a_state_is_refused(tmp_path: Path) -> None:
    gpt2 = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 8}
    config = language_model_config(tmp_path, model=gpt2, tokenizer={"kind": "bpe", "vocab_size": 90})
    with pytest.raises(UserError, match=r"data\.stateful carries a state, and GPT2LMHeadModel has none"):
        train_here(LANGUAGE_MODELS, config)


CLEAN = (
    "import sys, json\n"
    "sys.modules['hfattn'] = None  # as if it were not installed\n"
    "from transformers import AutoModelForSequenceClassification, AutoTokenizer\n"
    "tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=True)\n"
    "model = AutoModelForSequenceClassification.from_pretrained(sys.argv[1], trust_remote_code=True)\n"
    "assert 'transformers_modules' in type(model).__module__\n"
    "batch = tokenizer(json.loads(sys.argv[2]), padding=True, return_tensors='pt')\n"
    "names = ('weight_dropout', 'embedding_row_dropout', 'variational_dropout', 'bptt_steps', 'direction')\n"
    "print(json.dumps([{name: getattr(model.config, name) for name in names}, model(**batch).logits.tolist()]))\n"
)


def test_a_stage_loads_where_hfattn_is_not_installed(stages: Stages, tmp_path: Path) -> None:
    options: dict[str, Any] = {**HEAD, "num_labels": 2}
    model = AutoModelForSequenceClassification.from_pretrained(stages.second, **options).eval()
    tokenizer = AutoTokenizer.from_pretrained(stages.second)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    texts = ["The acting was good.", "A dull film; its end is awful!"]
    words = [tmp_path / "model", json.dumps(texts)]
    done = run([sys.executable, "-c", CLEAN, *words], cwd=OUTSIDE, HF_MODULES_CACHE=str(tmp_path / "modules"))
    assert done.returncode == 0, done.stderr
    fields, logits = json.loads(done.stdout.splitlines()[-1])
    assert fields == {
        "weight_dropout": 0.5, "embedding_row_dropout": 0.1, "variational_dropout": True, "bptt_steps": 5,
        "direction": stages.direction,
    }  # fmt: skip
    here = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    torch.testing.assert_close(torch.tensor(logits), here.detach(), atol=1e-6, rtol=1e-5)


def test_a_tied_embedding_is_part_of_the_head(stages: Stages) -> None:
    depths = layer_depths(AutoModelForCausalLM.from_pretrained(stages.first))
    assert depths["model.embed_tokens.weight"] == depths["lm_head.bias"] == 0
    assert [depths[f"model.layers.{i}.rnn.weight_hh_l0"] for i in range(2)] == [2, 1]


@pytest.fixture(scope="module")
def classifiers_of_both_directions(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Untrained classifiers that read forward and backward, with a tokenizer and the same classes."""
    folders = []
    rows = [json.loads(line)["text"] for line in reviews(tmp_path_factory.mktemp("texts")).read_text().splitlines()]
    tokenizer = build_tokenizer(TokenizerConfig(kind="bpe", vocab_size=90), rows, ends=True)
    for seed, direction in enumerate(("forward", "backward")):
        torch.manual_seed(seed)
        names: dict[str, Any] = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}
        config = CharRNNConfig(**{**SIZES, "vocab_size": len(tokenizer)}, **HEAD, **names, direction=direction)
        folder = tmp_path_factory.mktemp(direction)
        CharRNNForSequenceClassification(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        folders.append(folder)
    return folders


def test_probabilities_of_two_directions_are_averaged(
    classifiers_of_both_directions: list[Path], tmp_path: Path
) -> None:
    data, both = reviews(tmp_path, 40), [str(folder) for folder in classifiers_of_both_directions]
    found = evaluate_folder(both[0], str(data), together_with=both[1:])
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    mean = torch.zeros(40, 2)
    for folder in both:
        model, tokenizer, _ = load_any_model(folder)
        for i, row in enumerate(rows):
            mean[i] += model(**tokenizer(row["text"], return_tensors="pt")).logits[0].softmax(-1).detach() / 2
    labels = torch.tensor([["no", "yes"].index(row["label"]) for row in rows])
    assert found["accuracy"] == pytest.approx((mean.argmax(-1) == labels).float().mean().item())
    nats = -mean[range(40), labels].log().mean().item()
    assert found["nats_per_example"] == pytest.approx(nats, rel=1e-4)
    done = CliRunner().invoke(app, ["evaluate", both[0], str(data), "--with", both[1], "--json"])
    assert json.loads(done.stdout)["accuracy"] == found["accuracy"], done.output
    texts = [row["text"] for row in rows]
    predicted = predict(both[0], texts, together_with=both[1:])
    probabilities = [list(each["probabilities"].values()) for each in predicted]
    torch.testing.assert_close(torch.tensor(probabilities), mean, rtol=0, atol=1e-5)
    done = CliRunner().invoke(app, ["classify", both[0], texts[0], "--with", both[1]])
    assert done.output == f"{predicted[0]['probability']:.4f}  {predicted[0]['label']}\n"
    output = tmp_path / "out.jsonl"
    done = CliRunner().invoke(app, ["predict", both[0], str(data), "--with", both[1], "--output", str(output)])
    assert done.exit_code == 0, done.output
    written = [json.loads(line)["probability"] for line in output.read_text().splitlines()]
    assert written == pytest.approx([each["probability"] for each in predicted], abs=1e-5)


def test_classes_in_another_order_are_averaged_by_name(
    classifiers_of_both_directions: list[Path], tmp_path: Path
) -> None:
    data, both = str(reviews(tmp_path, 20)), [str(folder) for folder in classifiers_of_both_directions]
    model, tokenizer, _ = load_any_model(both[1])
    model.config.id2label, model.config.label2id = {0: "yes", 1: "no"}, {"yes": 0, "no": 1}
    head = next(each for each in reversed(list(model.modules())) if isinstance(each, nn.Linear))
    with torch.no_grad():
        for weight in head.parameters():
            weight.copy_(weight.flip(0))
    model.save_pretrained(tmp_path / "swapped")
    tokenizer.save_pretrained(tmp_path / "swapped")
    found = evaluate_folder(both[0], data, together_with=[str(tmp_path / "swapped")])
    assert found["nats_per_example"] == pytest.approx(
        evaluate_folder(both[0], data, together_with=both[1:])["nats_per_example"], rel=1e-5
    )
    with pytest.raises(UserError, match="averaged on labeled texts; evaluate each alone on templates"):
        evaluate_folder(both[0], "templates", together_with=both[1:])


def test_models_of_other_classes_are_not_averaged(
    classifiers_of_both_directions: list[Path], stages: Stages, tmp_path: Path
) -> None:
    data, first = str(reviews(tmp_path, 20)), str(classifiers_of_both_directions[0])
    with pytest.raises(UserError, match="is a CharRNNForCausalLM without probabilities of one class; give class"):
        evaluate_folder(first, data, together_with=[str(stages.first)])
    model, tokenizer, _ = load_any_model(first)
    model.config.id2label = {0: "no", 1: "maybe"}
    model.save_pretrained(tmp_path / "other")
    tokenizer.save_pretrained(tmp_path / "other")
    for refused in (
        lambda: evaluate_folder(first, data, together_with=[str(tmp_path / "other")]),
        lambda: predict(first, ["a film"], together_with=[tmp_path / "other"]),
    ):
        with pytest.raises(UserError, match="have different classes; give classifiers of the same classes"):
            refused()
    with pytest.raises(UserError, match="together_with is not for the task of"):
        predict(stages.first, ["a film"], together_with=[first])
    with pytest.raises(UserError, match=r"abstain is not for the task of .*; its options are together_with"):
        predict(first, ["a film"], together_with=[first], abstain=True)
