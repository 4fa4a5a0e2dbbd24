"""The char-RNN: configuration, forward pass, precision, adapters, saving."""

import copy
import itertools
import json
import pickle
from pathlib import Path

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from model_checks import check_adapter, check_half_precision
from peft import LoraConfig
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from hfattn import CharRNNConfig, CharRNNForCausalLM, CharRNNModel, RecurrentCache
from hfattn.models.recurrent_cells import CELLS, GRUResetBefore, Jordan, find_cell

V, D, H = 11, 6, 8


def make(cell: str = "gru", seed: int = 0, **fields: object) -> CharRNNForCausalLM:
    torch.manual_seed(seed)
    config = CharRNNConfig(
        **{"vocab_size": V, "embedding_size": D, "hidden_size": H, "num_hidden_layers": 2, "cell": cell, **fields}
    )
    return CharRNNForCausalLM(config).double().eval()


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(1, V, shape, generator=torch.Generator().manual_seed(1))


# Configuration


def test_defaults() -> None:
    config = CharRNNConfig()
    assert (config.embedding_size, config.hidden_size, config.cell, config.num_hidden_layers) == (16, 128, "gru", 1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hiden_size": 64}, "'hiden_size' is not a field of CharRNNConfig; did you mean 'hidden_size'?"),
        ({"cell": "GRU"}, "write one of 'elman', 'jordan', 'lstm', 'gru', 'gru_reset_before'"),
        ({"hidden_size": "big"}, "expected int, got str"),
        ({"hidden_size": 0}, "hidden_size is 0; write a whole number of at least 1"),
        ({"conditioning_size": 0}, "conditioning_size is 0; write a whole number of at least 1"),
        ({"dropout": 1.0, "num_hidden_layers": 2}, "dropout is 1.0; write a probability from 0 to below 1"),
        ({"dropout": 0.1}, "write num_hidden_layers: 2 or more"),
        ({"initializer_range": float("nan")}, "write a number above 0"),
        ({"pad_token_id": 65}, "write an id from 0 to 64, or null"),
        ({"tie_word_embeddings": True}, "write embedding_size: 128 or tie_word_embeddings: false"),
    ],
)
def test_a_wrong_field_is_refused_with_what_to_write_instead(fields: dict[str, object], message: str) -> None:
    with pytest.raises((ValueError, StrictDataclassError)) as error:
        CharRNNConfig(**fields)
    assert message in str(error.value)


def test_a_field_is_checked_when_it_is_assigned() -> None:
    config = CharRNNConfig()
    with pytest.raises(StrictDataclassError, match="expected int"):
        config.hidden_size = "big"  # type: ignore[assignment]


def test_a_saved_configuration_may_have_fields_of_a_later_transformers_but_no_misspelled_ones(tmp_path: Path) -> None:
    CharRNNConfig(hidden_size=24).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    saved = json.loads(path.read_text())
    path.write_text(json.dumps({**saved, "sparsity_of_the_future": {"a": 1}}))
    assert CharRNNConfig.from_pretrained(tmp_path).hidden_size == 24
    path.write_text(json.dumps({**saved, "hiden_size": 12}))
    with pytest.raises(ValueError, match="did you mean 'hidden_size'"):
        CharRNNConfig.from_pretrained(tmp_path)


def test_a_configuration_is_copied_and_saved_without_change(tmp_path: Path) -> None:
    config = CharRNNConfig(cell="lstm", num_hidden_layers=2, dropout=0.25, eos_token_id=[3, 4])
    config.save_pretrained(tmp_path)
    for copied in (
        copy.deepcopy(config),
        pickle.loads(pickle.dumps(config)),
        CharRNNConfig.from_dict(config.to_dict()),
        CharRNNConfig.from_pretrained(tmp_path),
    ):
        assert copied.to_dict() | {"transformers_version": None} == config.to_dict() | {"transformers_version": None}


# Forward pass


PEERS = {"elman": nn.RNN, "jordan": Jordan, "lstm": nn.LSTM, "gru": nn.GRU, "gru_reset_before": GRUResetBefore}


@pytest.mark.parametrize("cell", CELLS)
def test_logits_equal_a_plain_torch_model_with_the_same_weights(cell: str) -> None:
    model = make(cell)
    embedding, output = nn.Embedding(V, D).double(), nn.Linear(H, V).double()
    embedding.load_state_dict(model.model.embed_tokens.state_dict())
    output.load_state_dict(model.lm_head.state_dict())
    hidden = embedding(ids(3, 9))
    for layer in model.model.layers:
        rnn = PEERS[cell](layer.rnn.weight_ih_l0.shape[1], H).double()
        rnn.batch_first = True
        rnn.load_state_dict(layer.rnn.state_dict())
        hidden, _ = rnn(hidden)
    torch.testing.assert_close(model(ids(3, 9)).logits, output(hidden))


@pytest.mark.parametrize("cell", CELLS)
def test_cached_run_equals_uncached_run(cell: str) -> None:
    model = make(cell)
    text = ids(3, 9)
    whole = model(text)
    first = model(text[:, :4], use_cache=True)
    second = model(text[:, 4:], past_key_values=first.past_key_values)
    torch.testing.assert_close(torch.cat([first.logits, second.logits], 1), whole.logits)
    assert second.past_key_values.get_seq_length() == 9
    assert isinstance(whole.past_key_values, RecurrentCache)
    assert model(text, use_cache=False).past_key_values is None


@pytest.mark.parametrize("cell", CELLS)
def test_attention_mask_hides_padding_on_the_left(cell: str) -> None:
    model = make(cell)
    text = ids(2, 9)
    mask = torch.ones_like(text)
    mask[0, :5] = 0
    padded = model(text, attention_mask=mask)
    torch.testing.assert_close(padded.logits[0, 5:], model(text[:1, 5:]).logits[0])
    torch.testing.assert_close(padded.logits[1:], model(text[1:]).logits)
    replaced = text.clone()
    replaced[0, :5] = 0
    assert torch.equal(model(replaced, attention_mask=mask).logits[:, 5:], padded.logits[:, 5:])


# One vector that conditions a text

K = 3


def vectors(rows: int) -> torch.Tensor:
    return torch.randn(rows, K, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


@torch.no_grad()
@pytest.mark.parametrize("cell", CELLS)
def test_the_state_of_each_layer_starts_from_the_vector(cell: str) -> None:
    """One row of W and one element of b for each layer, tensor of its state and unit, in this order."""
    model, text, given = make(cell, conditioning_size=K), ids(2, 7), vectors(2)
    projection = model.model.initial_state
    assert projection is not None
    cache = RecurrentCache(2)
    parts = find_cell(cell).num_states
    for layer in range(2):
        state = torch.zeros(parts, 2, H, dtype=torch.float64)
        for part, row, unit in itertools.product(range(parts), range(2), range(H)):
            i = (layer * parts + part) * H + unit
            state[part, row, unit] = torch.tanh(torch.dot(projection.weight[i], given[row]) + projection.bias[i])
        cache.update_state(tuple(state), layer, 0)
    outputs = model(text, conditioning=given)
    torch.testing.assert_close(outputs.logits, model(text, past_key_values=cache).logits)
    assert not torch.allclose(outputs.logits, model(text, conditioning=given.flip(0)).logits)
    # The states in a cache include the vector, so it is needed once.
    first = model(text[:, :3], conditioning=given, use_cache=True)
    for again in ({}, {"conditioning": given}):
        rest = model(text[:, 3:], past_key_values=copy.deepcopy(first.past_key_values), **again)
        torch.testing.assert_close(rest.logits, outputs.logits[:, 3:])


@pytest.mark.parametrize("cell", CELLS)
def test_a_conditioned_text_after_padding(cell: str) -> None:
    model, text, given = make(cell, conditioning_size=K), ids(2, 9), vectors(2)
    mask = torch.ones_like(text)
    mask[0, :5] = 0
    padded = model(text, attention_mask=mask, conditioning=given).logits
    torch.testing.assert_close(padded[0, 5:], model(text[:1, 5:], conditioning=given[:1]).logits[0])
    torch.testing.assert_close(padded[1:], model(text[1:], conditioning=given[1:]).logits)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_conditioned_text_in_half_precision(dtype: torch.dtype) -> None:
    model, text = make("lstm", conditioning_size=K).float(), ids(2, 12)
    check_half_precision(model, {"input_ids": text, "conditioning": vectors(2).float()}, text, dtype)


def test_a_vector_that_is_missing_or_of_another_shape_is_refused() -> None:
    model, text = make(conditioning_size=K), ids(2, 5)
    with pytest.raises(ValueError, match=r"conditioning is missing; pass one vector for each text, of shape \(2, 3\)"):
        model(text)
    for shape in ((2, 4), (1, 3), (3,)):
        with pytest.raises(ValueError, match=r"conditioning has the shape .*; pass one vector for each text"):
            model(text, conditioning=torch.ones(shape))
    with pytest.raises(ValueError, match="is for a model with conditioning_size in its configuration; leave it out"):
        make()(text, conditioning=vectors(2))


@pytest.mark.parametrize("shape", [(1, 5), (2, 4), (2, 1, 1, 5)])
def test_an_attention_mask_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="pass one of shape \\(2, 5\\)"):
        make()(ids(2, 5), attention_mask=torch.ones(shape))


def test_the_loss_is_the_mean_of_literal_cross_entropies() -> None:
    model = make()
    text = ids(2, 6)
    labels = text.clone()
    labels[0, 3] = -100
    outputs = model(text, labels=labels)
    log_probabilities = outputs.logits.log_softmax(-1)
    targets = [(b, t) for b in range(2) for t in range(5) if labels[b, t + 1] != -100]
    expected = -sum(log_probabilities[b, t, labels[b, t + 1]] for b, t in targets) / len(targets)
    torch.testing.assert_close(outputs.loss.double(), expected, atol=1e-6, rtol=0)

    shifted = torch.cat([text[:, 1:], ids(2, 1)], 1)
    every = model(text, labels=shifted, shift_labels=shifted).loss
    expected = -log_probabilities.gather(-1, shifted[..., None]).mean()
    torch.testing.assert_close(every.double(), expected, atol=1e-6, rtol=0)


def test_inputs_embeds_and_hidden_states() -> None:
    model = make()
    text = ids(2, 5)
    embeds = model.get_input_embeddings()(text)
    outputs = model(inputs_embeds=embeds, output_hidden_states=True)
    assert torch.equal(outputs.logits, model(text).logits)
    assert len(outputs.hidden_states) == 3
    assert torch.equal(outputs.hidden_states[0], embeds)
    assert torch.equal(outputs.hidden_states[1], model.model.layers[0](embeds)[0])
    assert torch.equal(model.lm_head(outputs.hidden_states[2]), outputs.logits)
    with pytest.raises(ValueError, match="exactly one of input_ids and inputs_embeds"):
        model(text, inputs_embeds=embeds)


def test_logits_to_keep_and_tuples() -> None:
    model = make()
    text = ids(2, 5)
    whole = model(text).logits
    torch.testing.assert_close(model(text, logits_to_keep=2).logits, whole[:, -2:])
    torch.testing.assert_close(model(text, logits_to_keep=torch.tensor([0, 3])).logits, whole[:, [0, 3]])
    assert torch.equal(model(text, return_dict=False)[0], whole)


def test_dropout_acts_only_where_configured_and_only_in_training() -> None:
    model = make(dropout=0.5)
    text = ids(1, 50)
    assert torch.equal(model(text).logits, model(text).logits)
    model.train()
    seen = model(text, output_hidden_states=True).hidden_states
    torch.testing.assert_close(seen[0], model.get_input_embeddings()(text))  # no embedding dropout was asked for
    torch.testing.assert_close(seen[1], model.model.layers[0](seen[0])[0])
    assert not torch.allclose(seen[2], model.model.layers[1](seen[1])[0])
    embedded = make(embedding_dropout=0.5).train()(text, output_hidden_states=True).hidden_states[0]
    assert 0.3 < (embedded == 0).double().mean() < 0.7


def test_resizing_the_vocabulary_keeps_the_weights() -> None:
    for tied in (False, True):
        model = make(embedding_size=H, tie_word_embeddings=tied)
        text = ids(2, 5)
        before = model(text).logits
        model.resize_token_embeddings(V + 3)
        after = model(text).logits
        assert after.shape[-1] == V + 3
        torch.testing.assert_close(after[..., :V], before)
        assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_changes_no_gradient_and_keeps_the_state(cell: str, reentrant: bool) -> None:
    text = ids(2, 12)

    def run(checkpointing: bool) -> tuple[list[torch.Tensor], RecurrentCache]:
        model = make(cell).train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        first = model(text[:, :6], use_cache=True)
        outputs = model(text[:, 6:], labels=text[:, 6:], past_key_values=first.past_key_values.detach(), use_cache=True)
        outputs.loss.backward()
        return [parameter.grad for parameter in model.parameters()], outputs.past_key_values

    plain, plain_cache = run(False)
    replayed, replayed_cache = run(True)
    for expected, gradient in zip(plain, replayed, strict=True):
        torch.testing.assert_close(gradient, expected)
    torch.testing.assert_close(replayed_cache.get_state(1)[0], plain_cache.get_state(1)[0])
    assert replayed_cache.get_seq_length() == 12


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("cell", CELLS)
def test_half_precision(cell: str, dtype: torch.dtype) -> None:
    """Also for a text whose beginning is in the cache, in float32, and whose rest is read under autocast."""
    model, text = make(cell).float(), ids(2, 12)
    check_half_precision(model, {"input_ids": text}, text, dtype)
    if dtype == torch.bfloat16:
        with torch.autocast("cpu", dtype):
            first = model(text[:, :6], use_cache=True)
            second = model(text[:, 6:], labels=text[:, 6:], past_key_values=first.past_key_values)
        torch.testing.assert_close(second.logits.float(), model(text).logits[:, 6:], atol=0.05, rtol=0.05)
        second.loss.backward()
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("cell", ["gru", "gru_reset_before"])
def test_torch_compile(cell: str) -> None:
    model = make(cell)
    text = ids(2, 6)
    mask = torch.ones_like(text)
    mask[0, :2] = 0
    expected = model(text, labels=text)
    expected.loss.backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    compiled = torch.compile(model, backend="aot_eager")
    outputs = compiled(text, labels=text)
    torch.testing.assert_close(outputs.logits, expected.logits)
    outputs.loss.backward()
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    torch.testing.assert_close(compiled(text, attention_mask=mask).logits, model(text, attention_mask=mask).logits)
    step = compiled(text[:, -1:], past_key_values=model(text[:, :-1], use_cache=True).past_key_values)
    torch.testing.assert_close(step.logits[:, -1], expected.logits[:, -1])


# Saving, loading, adapting


@pytest.mark.parametrize("tied", [False, True])
def test_save_and_load(tmp_path: Path, tied: bool) -> None:
    model = make("lstm", embedding_size=H, tie_word_embeddings=tied)
    model.save_pretrained(tmp_path)
    loaded, info = CharRNNForCausalLM.from_pretrained(tmp_path, dtype=torch.float64, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert (loaded.lm_head.weight is loaded.model.embed_tokens.weight) == tied
    text = ids(2, 5)
    torch.testing.assert_close(loaded(text).logits, model(text).logits, atol=1e-14, rtol=0)
    base = AutoModel.from_pretrained(tmp_path, dtype=torch.float64)
    assert isinstance(base, CharRNNModel)
    torch.testing.assert_close(base(text).last_hidden_state, model.model(text).last_hidden_state, atol=1e-14, rtol=0)


@pytest.mark.parametrize("cell", CELLS)
def test_a_parameter_missing_from_the_checkpoint_is_initialized(tmp_path: Path, cell: str) -> None:
    """from_pretrained builds on the meta device: a recurrent weight that nothing fills is uninitialized memory."""
    small = make(cell, num_hidden_layers=1)
    small.save_pretrained(tmp_path)
    model = CharRNNForCausalLM.from_pretrained(tmp_path, num_hidden_layers=2, dtype=torch.float64)
    weight = model.model.layers[1].rnn.weight_hh_l0
    torch.testing.assert_close(weight.T @ weight, torch.eye(H, dtype=torch.float64))
    assert torch.equal(model.model.layers[0].rnn.weight_hh_l0, small.model.layers[0].rnn.weight_hh_l0)


def test_auto_classes_load_the_model(tmp_path: Path) -> None:
    make().save_pretrained(tmp_path)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), CharRNNConfig)
    assert isinstance(AutoModelForCausalLM.from_pretrained(tmp_path), CharRNNForCausalLM)
    assert isinstance(AutoModel.from_config(CharRNNConfig()), CharRNNModel)


@pytest.mark.parametrize("cell", CELLS)
def test_lora_on_the_recurrent_weights(tmp_path: Path, cell: str) -> None:
    text = ids(4, 12)
    names = [f"layers.{i}.rnn.weight_{half}_l0" for i in range(2) for half in ("ih", "hh")]
    config = LoraConfig(r=2, lora_alpha=4, target_modules=[], target_parameters=names, task_type="CAUSAL_LM")
    merged = check_adapter(make(cell), config, {"input_ids": text}, text, tmp_path, steps=40, learning_rate=0.05)
    generated = merged.generate(text, max_new_tokens=4, do_sample=False)
    assert torch.equal(generated, merged.generate(text, max_new_tokens=4, do_sample=False, use_cache=False))
