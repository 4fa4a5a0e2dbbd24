"""generate() of the char-RNN: the tests of every family, and those of a state that is carried on."""

from typing import Any

import pytest
import torch
from generation_tests import GenerationTests, Inputs, Make, sharpen
from transformers import set_seed

from hfattn import CharRNNConfig, CharRNNForCausalLM
from hfattn.models.recurrent_cells import CELLS

V = 12


def make(cell: str = "gru", vocab_size: int = V, **fields: object) -> Any:
    torch.manual_seed(0)
    config = CharRNNConfig(
        vocab_size=vocab_size, cell=cell, hidden_size=16, num_hidden_layers=2, pad_token_id=0, **fields
    )
    model = CharRNNForCausalLM(config)
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(20)
    return sharpen(model)


def prompts(rows: int = 3, length: int = 5) -> torch.Tensor:
    return torch.randint(1, V, (rows, length), generator=torch.Generator().manual_seed(3))


class TestGeneration(GenerationTests):
    @pytest.fixture(params=CELLS)
    def make(self, request: pytest.FixtureRequest) -> Make:
        return lambda **fields: make(request.param, **{"eos_token_id": 2, **fields})


class TestConditionedGeneration(GenerationTests):
    """Each text has a vector of its own, from which the states of all layers start."""

    @pytest.fixture
    def make(self) -> Make:
        return lambda **fields: make("lstm", conditioning_size=3, **{"eos_token_id": 2, **fields})

    def batch(self, lengths: list[int] | None = None, vocab_size: int = V) -> Inputs:
        inputs = super().batch(lengths, vocab_size)
        return {**inputs, "conditioning": vectors(len(inputs["input_ids"]))}


def vectors(rows: int) -> torch.Tensor:
    return 3 * torch.randn(rows, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


@pytest.mark.parametrize("options", [{"do_sample": False}, {"num_beams": 3}])
def test_a_vector_alone_begins_a_text_of_its_own(options: dict[str, object]) -> None:
    model = make(conditioning_size=3, bos_token_id=1)
    written = model.generate(conditioning=vectors(4), max_new_tokens=10, **options)
    start = torch.ones(4, 1, dtype=torch.long)
    assert torch.equal(written, model.generate(start, conditioning=vectors(4), max_new_tokens=10, **options))
    assert len({tuple(row) for row in written.tolist()}) > 1


def test_temperatures_are_repetitive_good_and_noise() -> None:
    """0.01 gives the greedy text; 100 is close to uniform."""
    model, ids = make(), prompts()
    set_seed(0)
    cold = model.generate(ids, max_new_tokens=20, do_sample=True, top_k=0, temperature=0.01)
    assert torch.equal(cold, model.generate(ids, max_new_tokens=20, do_sample=False))
    hot = model.generate(ids[:1].repeat(200, 1), max_new_tokens=10, do_sample=True, top_k=0, temperature=100.0)
    counts = torch.bincount(hot[:, 5:].flatten(), minlength=V)
    assert counts.min() > 0.5 * counts.sum() / V
    assert counts.max() < 1.6 * counts.sum() / V


@pytest.mark.parametrize("cell", CELLS)
def test_generation_continues_from_a_returned_cache(cell: str) -> None:
    model, ids = make(cell), prompts()
    options = {"do_sample": False, "pad_token_id": V}  # an untrained model writes the padding symbol like any other
    whole = model.generate(ids, max_new_tokens=20, **options)
    first = model.generate(ids, max_new_tokens=8, return_dict_in_generate=True, **options)
    second = model.generate(first.sequences, past_key_values=first.past_key_values, max_new_tokens=12, **options)
    assert torch.equal(second, whole)
    # The same with characters in between that the model did not write.
    first = model.generate(ids, max_new_tokens=8, return_dict_in_generate=True, **options)
    text = torch.cat([first.sequences, prompts(3, 4)], 1)
    continued = model.generate(text, past_key_values=first.past_key_values, max_new_tokens=6, **options)
    assert torch.equal(continued, model.generate(text, max_new_tokens=6, use_cache=False, **options))


@pytest.mark.parametrize("options", [{"num_beams": 3}, {"do_sample": True, "num_return_sequences": 3}])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_several_continuations_of_each_text_from_a_returned_cache(cell: str, options: dict[str, object]) -> None:
    model, ids = make(cell), prompts()
    options = {"max_new_tokens": 10, "top_k": 0, "pad_token_id": V, **options}
    cache = model(ids[:, :-1], use_cache=True).past_key_values
    set_seed(2)
    expected = model.generate(ids, use_cache=False, **options)
    set_seed(2)
    assert torch.equal(model.generate(ids, past_key_values=cache, **options), expected)


def test_from_inputs_embeds() -> None:
    model, ids = make(), prompts()
    expected = model.generate(ids, max_new_tokens=10, do_sample=False)[:, ids.shape[1] :]
    embeds = model.get_input_embeddings()(ids)
    assert torch.equal(model.generate(inputs_embeds=embeds, max_new_tokens=10, do_sample=False), expected)


@pytest.mark.parametrize("options", [{"do_sample": False}, {"do_sample": True, "top_k": 0}, {"num_beams": 3}])
def test_a_step_reads_one_character(options: dict[str, object]) -> None:
    """The cost of a character is O(1): after the prompt, the network reads only the last character."""
    model = make()
    read: list[int] = []
    model.model.embed_tokens.register_forward_hook(lambda module, args, output: read.append(args[0].shape[1]))
    model.generate(prompts(1, 700), max_new_tokens=30, **options)
    assert read == [700] + [1] * 29


def test_what_a_recurrent_state_cannot_do_is_refused() -> None:
    model, ids = make(), prompts(1)
    with pytest.raises(ValueError, match="assisted generation is not supported with stateful models"):
        model.generate(ids, assistant_model=make(), max_new_tokens=5)
    with pytest.raises(ValueError, match="assisted generation is not supported with stateful models"):
        model.generate(ids, prompt_lookup_num_tokens=3, max_new_tokens=5)
    with pytest.raises(ValueError, match="is for models with self-attention; remove it"):
        model.generate(ids, cache_implementation="static", max_new_tokens=5)
    with pytest.raises(ValueError, match="run the model on the shorter text"):
        model(ids, use_cache=True).past_key_values.crop(2)


def test_cache_operations_on_the_batch() -> None:
    cache = make("lstm")(prompts(3), use_cache=True).past_key_values
    h, c = cache.get_state(1)
    cache.batch_repeat_interleave(2)
    assert torch.equal(cache.get_state(1)[1], c.repeat_interleave(2, 0))
    cache.batch_select_indices(torch.tensor([0, 2, 4]))
    assert torch.equal(cache.get_state(1)[0], h)
    cache.reorder_cache(torch.tensor([2, 0, 1]))
    assert torch.equal(cache.get_state(1)[0], h[[2, 0, 1]])
    assert cache.get_seq_length() == 5
    cache.reset()
    assert cache.get_state(1) is None
    assert cache.get_seq_length() == 0
