"""Batches by tokens: what they hold, that epochs are equally long, how several processes share them."""

import numpy as np
import pytest
from accelerate.data_loader import BatchSamplerShard

from hfattn.data import TokenBatches, padding_share
from hfattn.errors import UserError


def random_lengths(n: int = 600, sides: int = 2, seed: int = 0) -> np.ndarray:
    """Long tails, and sides that are alike, as in translation."""
    generator = np.random.default_rng(seed)
    base = generator.lognormal(2.3, 0.7, size=(n, 1))
    return np.clip(base * generator.uniform(0.7, 1.4, size=(n, sides)), 1, 90).astype(np.int64)


@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize(("max_tokens", "multiple_of"), [(90, 1), (91, 3), (256, 2), (1000, 4), (100_000, 1)])
def test_every_pass_holds_each_example_once_in_as_many_batches(sides: int, max_tokens: int, multiple_of: int) -> None:
    lengths = random_lengths(sides=sides)
    sampler = TokenBatches(lengths, max_tokens, seed=1, multiple_of=multiple_of)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        assert len(batches) == len(sampler)
        assert len(sampler) % multiple_of == 0
        assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
        for batch in batches:
            for side in range(sides):
                assert len(batch) * lengths[batch, side].max() <= max_tokens


def test_batches_are_full_and_hold_little_padding() -> None:
    lengths = random_lengths(5000)
    sampler = TokenBatches(lengths, 1024, seed=0)
    order = np.random.default_rng(0).permutation(len(lengths))
    assert padding_share(lengths, np.array_split(order, len(sampler))) > 0.4
    assert sampler.padding_share < 0.15
    # No arrangement could do with fewer batches than the tokens of the longest sides fill.
    assert len(sampler) < 1.15 * lengths.max(axis=1).sum() / 1024


def test_the_padding_share_is_that_of_a_literal_count() -> None:
    lengths = random_lengths(200)
    sampler = TokenBatches(lengths, 300, seed=0)
    padded = positions = 0
    for batch in sampler:
        for side in range(2):
            longest = max(lengths[i, side] for i in batch)
            padded += sum(longest - lengths[i, side] for i in batch)
            positions += longest * len(batch)
    assert sampler.padding_share == pytest.approx(padded / positions, abs=1e-12)


def test_seed_and_epoch_decide_the_batches() -> None:
    lengths = random_lengths(2000)

    def batches(seed: int, epoch: int) -> list[list[int]]:
        sampler = TokenBatches(lengths, 256, seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert batches(1, 2) == batches(1, 2)
    assert batches(1, 2) != batches(1, 3)
    assert batches(1, 2) != batches(2, 2)
    # Neither the batches nor who is in them is always the same.
    again = {tuple(sorted(batch)) for batch in batches(1, 2)} & {tuple(sorted(batch)) for batch in batches(1, 3)}
    assert len(again) < 0.1 * len(batches(1, 2))
    longest = [lengths[batch].max() for batch in batches(1, 2)]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.3


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_processes_share_the_batches_equally(processes: int) -> None:
    lengths = random_lengths()
    sampler = TokenBatches(lengths, 256, 0, multiple_of=processes)
    shares = [list(BatchSamplerShard(sampler, processes, process)) for process in range(processes)]
    assert {len(share) for share in shares} == {len(sampler) // processes}
    assert [shares[i % processes][i // processes] for i in range(len(sampler))] == list(sampler)


def test_what_does_not_fit_is_refused() -> None:
    lengths = np.array([[3, 4], [5, 12], [2, 2]])
    with pytest.raises(UserError, match="max_tokens is 11, but example 2 of the training data has 12 tokens; write"):
        TokenBatches(lengths, 11, 0)
    assert len(TokenBatches(lengths, 12, 0)) == 2
    with pytest.raises(UserError, match="3 training examples are too few for 4 processes"):
        TokenBatches(lengths, 12, 0, multiple_of=4)
    single = np.full((3, 1), 8)
    with pytest.raises(UserError, match="max_tokens 8 makes 3 batches of one example, which 2 processes cannot"):
        TokenBatches(single, 8, 0, multiple_of=2)
    assert len(TokenBatches(single, 16, 0, multiple_of=2)) == 2
