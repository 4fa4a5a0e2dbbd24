"""generate(): each mode with the state carried equals the run that reads the whole text again for each character."""

import itertools
from collections.abc import Callable

import pytest
import torch
from transformers import set_seed
from transformers.generation.streamers import BaseStreamer

from hfattn import CharRNNConfig, CharRNNForCausalLM
from hfattn.models.recurrent_cells import CELLS

V = 12


def make(cell: str = "gru", vocab_size: int = V, **fields: object) -> CharRNNForCausalLM:
    torch.manual_seed(0)
    config = CharRNNConfig(
        vocab_size=vocab_size, cell=cell, hidden_size=16, num_hidden_layers=2, pad_token_id=0, **fields
    )
    model = CharRNNForCausalLM(config).double().eval()
    with torch.no_grad():  # sharper distributions, so that the modes differ
        model.lm_head.weight.mul_(8)
        model.model.embed_tokens.weight.mul_(20)
    return model


def prompts(rows: int = 3, length: int = 5) -> torch.Tensor:
    return torch.randint(1, V, (rows, length), generator=torch.Generator().manual_seed(3))


def literal(model: CharRNNForCausalLM, ids: torch.Tensor, steps: int, choose: Callable) -> torch.Tensor:
    """Generation as it is defined: the whole text through the model, one more character, again."""
    with torch.no_grad():
        for _ in range(steps):
            ids = torch.cat([ids, choose(model(ids, use_cache=False).logits[:, -1].float())[:, None]], dim=1)
    return ids


@pytest.mark.parametrize("cell", CELLS)
def test_greedy(cell: str) -> None:
    model, ids = make(cell), prompts()
    expected = literal(model, ids, 20, lambda logits: logits.argmax(-1))
    assert torch.equal(model.generate(ids, max_new_tokens=20, do_sample=False), expected)
    assert torch.equal(model.generate(ids, max_new_tokens=20, do_sample=False, use_cache=False), expected)


def draw(temperature: float = 1.0, top_k: int = V, top_p: float = 1.0) -> Callable[[torch.Tensor], torch.Tensor]:
    def choose(logits: torch.Tensor) -> torch.Tensor:
        logits = logits / temperature
        for row in logits:
            order = row.argsort(descending=True).tolist()
            mass = row[order].softmax(-1).cumsum(-1).tolist()
            # The nucleus is the smallest set of the most probable characters that reaches top_p.
            nucleus = 1 + sum(reached < top_p for reached in mass)
            row[order[min(top_k, nucleus) :]] = -torch.inf
        return torch.multinomial(logits.softmax(-1), 1).squeeze(1)

    return choose


@pytest.mark.parametrize("options", [{}, {"temperature": 0.3}, {"temperature": 2.0}, {"top_k": 3}, {"top_p": 0.7}])
@pytest.mark.parametrize("cell", CELLS)
def test_sampling(cell: str, options: dict[str, float]) -> None:
    model, ids = make(cell), prompts()
    set_seed(5)
    expected = literal(model, ids, 20, draw(**options))
    for use_cache in (True, False):
        set_seed(5)
        generated = model.generate(
            ids, max_new_tokens=20, do_sample=True, **{"top_k": 0, **options}, use_cache=use_cache
        )
        assert torch.equal(generated, expected)


def test_temperatures_are_repetitive_good_and_noise() -> None:
    """0.01 is the greedy text; 100 is close to uniform (documents)."""
    model, ids = make(), prompts()
    set_seed(0)
    cold = model.generate(ids, max_new_tokens=20, do_sample=True, top_k=0, temperature=0.01)
    assert torch.equal(cold, model.generate(ids, max_new_tokens=20, do_sample=False))
    hot = model.generate(ids[:1].repeat(200, 1), max_new_tokens=10, do_sample=True, top_k=0, temperature=100.0)
    counts = torch.bincount(hot[:, 5:].flatten(), minlength=V)
    assert counts.min() > 0.5 * counts.sum() / V
    assert counts.max() < 1.6 * counts.sum() / V


@pytest.mark.parametrize("cell", CELLS)
def test_beam_search(cell: str) -> None:
    model, ids = make(cell), prompts()
    options = {"max_new_tokens": 12, "num_beams": 4, "num_return_sequences": 3, "do_sample": False}
    cached = model.generate(ids, **options, return_dict_in_generate=True, output_scores=True)
    uncached = model.generate(ids, **options, use_cache=False, return_dict_in_generate=True, output_scores=True)
    assert torch.equal(cached.sequences, uncached.sequences)
    torch.testing.assert_close(cached.sequences_scores, uncached.sequences_scores)
    assert not torch.equal(cached.sequences[0], cached.sequences[1])


def test_a_wide_beam_finds_the_most_probable_text_of_all() -> None:
    model, steps = make(vocab_size=4, eos_token_id=None), 4
    prompt = torch.tensor([[1, 2]])
    best = model.generate(prompt, max_new_tokens=steps, num_beams=64, do_sample=False)

    def log_probability(continuation: tuple[int, ...]) -> float:
        ids = torch.cat([prompt, torch.tensor([continuation])], dim=1)
        log_probabilities = model(ids).logits.log_softmax(-1)[0, 1:-1]
        return sum(log_probabilities[t, token].item() for t, token in enumerate(continuation))

    with torch.no_grad():
        expected = max(itertools.product(range(4), repeat=steps), key=log_probability)
    assert best[0, 2:].tolist() == list(expected)


def test_num_return_sequences_draws_each_as_a_row_of_its_own() -> None:
    model, ids = make(), prompts(2)
    set_seed(7)
    drawn = model.generate(ids, max_new_tokens=10, do_sample=True, top_k=0, num_return_sequences=3)
    set_seed(7)
    expected = literal(model, ids.repeat_interleave(3, 0), 10, draw())
    assert torch.equal(drawn, expected)


class Collected(BaseStreamer):
    def __init__(self) -> None:
        self.values: list[int] = []
        self.ended = False

    def put(self, value: torch.Tensor) -> None:
        self.values += value.flatten().tolist()

    def end(self) -> None:
        self.ended = True


def test_streamer_sees_the_text_as_it_is_written() -> None:
    model, ids, streamer = make(), prompts(1), Collected()
    generated = model.generate(ids, max_new_tokens=10, do_sample=False, streamer=streamer)
    assert streamer.values == generated[0].tolist()
    assert streamer.ended


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
def test_a_returned_cache_serves_several_continuations_of_each_text(cell: str, options: dict[str, object]) -> None:
    model, ids = make(cell), prompts()
    options = {"max_new_tokens": 10, "top_k": 0, "pad_token_id": V, **options}
    cache = model(ids[:, :-1], use_cache=True).past_key_values
    set_seed(2)
    expected = model.generate(ids, use_cache=False, **options)
    set_seed(2)
    assert torch.equal(model.generate(ids, past_key_values=cache, **options), expected)


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("cell", CELLS)
def test_a_left_padded_batch_equals_its_rows_alone(cell: str, num_beams: int) -> None:
    model, ids = make(cell), prompts()
    lengths = [2, 5, 3]
    mask = torch.tensor([[0] * (5 - length) + [1] * length for length in lengths])
    options = {"max_new_tokens": 10, "do_sample": False, "num_beams": num_beams}
    batch = model.generate(ids * mask, attention_mask=mask, **options)
    for row, length in enumerate(lengths):
        alone = model.generate(ids[row : row + 1, 5 - length :], **options)
        assert torch.equal(batch[row, 5 - length :], alone[0])
    assert torch.equal(batch, model.generate(ids * mask, attention_mask=mask, use_cache=False, **options))


def test_rows_end_at_the_end_symbol() -> None:
    model, ids = make(), prompts()
    free = model.generate(ids, max_new_tokens=20, do_sample=False)
    end = int(free[0, 8])
    stopped = model.generate(ids, max_new_tokens=20, do_sample=False, eos_token_id=end)
    uncached = model.generate(ids, max_new_tokens=20, do_sample=False, eos_token_id=end, use_cache=False)
    assert torch.equal(stopped, uncached)
    position = free[0, 5:].tolist().index(end) + 5
    assert stopped[0, : position + 1].tolist() == free[0, : position + 1].tolist()
    assert not stopped[0, position + 1 :].any()


def test_from_inputs_embeds() -> None:
    model, ids = make(), prompts()
    expected = model.generate(ids, max_new_tokens=10, do_sample=False)[:, ids.shape[1] :]
    embeds = model.get_input_embeddings()(ids)
    assert torch.equal(model.generate(inputs_embeds=embeds, max_new_tokens=10, do_sample=False), expected)


@pytest.mark.parametrize("options", [{"do_sample": False}, {"do_sample": True, "top_k": 0}, {"num_beams": 3}])
def test_a_step_reads_one_character_however_long_the_text(options: dict[str, object]) -> None:
    """The cost of a character is O(1): after the prompt, the network never sees more than the last character."""
    model = make()
    read: list[int] = []
    model.model.embed_tokens.register_forward_hook(lambda module, args, output: read.append(args[0].shape[1]))
    model.generate(prompts(1, 700), max_new_tokens=30, **options)
    assert read == [700] + [1] * 29


def test_what_a_recurrent_state_cannot_do_is_refused_in_words() -> None:
    model, ids = make(), prompts(1)
    with pytest.raises(ValueError, match="assisted generation is not supported with stateful models"):
        model.generate(ids, assistant_model=make(), max_new_tokens=5)
    with pytest.raises(ValueError, match="assisted generation is not supported with stateful models"):
        model.generate(ids, prompt_lookup_num_tokens=3, max_new_tokens=5)
    with pytest.raises(ValueError, match="leave cache_implementation out"):
        model.generate(ids, cache_implementation="static", max_new_tokens=5)
    with pytest.raises(ValueError, match="run the shorter text from its start"):
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
