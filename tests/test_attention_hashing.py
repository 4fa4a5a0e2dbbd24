"""The pattern lsh: equal to dense attention to the keys of the same hash, in functions and in models."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from model_checks import Largest, check_cached_generation, check_cached_steps
from test_attention_kernels import SMALL, padded_batch

from hfattn import VaswaniConfig, VaswaniForCausalLM, VaswaniForConditionalGeneration, VaswaniForMaskedLM
from hfattn.models import attention_hashing
from hfattn.models.attention_hashing import attend_in_blocks, buckets_of, seen_keys
from hfattn.models.attention_scores import unit

OPTIONS = {"buckets": 4, "keys": 3, "rounds": 3}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that short texts have several blocks."""
    monkeypatch.setattr(attention_hashing, "BLOCK", 4)


def language_model(implementation: str = "sdpa", **fields: Any) -> VaswaniForCausalLM:
    torch.manual_seed(0)
    fields = {"decoder_pattern": "lsh", "decoder_pattern_options": OPTIONS, **fields}
    config = VaswaniConfig(**SMALL, **fields, eos_token_id=None, attn_implementation=implementation)
    return VaswaniForCausalLM(config).double().eval()


def masked_model(implementation: str = "sdpa", **fields: Any) -> VaswaniForMaskedLM:
    torch.manual_seed(0)
    fields = {"encoder_pattern": "lsh", "encoder_pattern_options": OPTIONS, **fields}
    return VaswaniForMaskedLM(VaswaniConfig(**SMALL, **fields, attn_implementation=implementation)).double().eval()


def literal_keys(hashes: list[list[int]], real: list[bool], number: int, causal: bool, i: int) -> set[int]:
    """P_i of one head by its definition, from the hashes of each position in each round."""
    found = set()
    for of_round in hashes:
        same = [j for j, each in enumerate(of_round) if real[j] and each == of_round[i]]
        found |= set([j for j in same if j < i][-number:])
        found |= set() if causal else set([j for j in same if j > i][:number])
    return found or ({i} if real[i] else set())


@pytest.mark.parametrize("causal", [True, False])
def test_blocks_equal_dense_attention_to_the_keys_of_the_definition(causal: bool) -> None:
    """Outputs and gradients; one and several rounds, blocks of each length, padded on each side."""
    torch.manual_seed(0)
    for length, (number, rounds, buckets), side in itertools.product(
        (1, 4, 13), ((1, 1, 2), (2, 3, 6), (50, 2, 2)), (None, "left", "right")
    ):
        query, value = torch.randn(2, 2, 2, length, 3, dtype=torch.float64).unbind()
        directions = torch.randn(rounds, buckets // 2, 3, dtype=torch.float64)
        real = torch.ones(2, length, dtype=torch.bool)
        if side is not None:
            real[1, slice(5) if side == "left" else slice(-5, None)] = False
        mask = torch.zeros(2, 2, length, length, dtype=torch.bool)
        hashes = torch.zeros(2, 2, rounds, length, dtype=torch.int)
        for row, head in itertools.product(range(2), range(2)):
            for of_round, i in itertools.product(range(rounds), range(length)):
                products = (directions[of_round] @ query[row, head, i]).tolist()
                both = [*products, *(-each for each in products)]
                hashes[row, head, of_round, i] = both.index(max(both))
            for i in range(length):
                if real[row, i]:
                    of_head = hashes[row, head].tolist(), real[row].tolist()
                    mask[row, head, i, list(literal_keys(*of_head, number, causal, i))] = True
        assert torch.equal(buckets_of(query, directions), hashes)
        given = None if side is None else real
        kept = real[:, None, :, None]
        assert torch.equal(seen_keys(hashes, given, length, number, causal) & kept, mask)
        gradients = []
        for dense in (True, False):
            q, v = query.clone().requires_grad_(), value.clone().requires_grad_()
            if dense:
                energies = q @ unit(q).transpose(-1, -2)
                expected = (energies.masked_fill(~mask, -1e300).softmax(-1) * mask) @ v
                expected.square().sum().backward()
            else:
                context = attend_in_blocks(q, unit(q), v, hashes, given, number, causal)
                torch.testing.assert_close(context, expected, atol=1e-12, rtol=0)
                context.square().sum().backward()
            gradients.append([q.grad, v.grad])
        torch.testing.assert_close(*gradients, atol=1e-11, rtol=0)


def test_a_pair_of_vectors_shares_a_bucket_as_often_as_in_the_paper() -> None:
    """The probability of a collision falls with the angle, and r rounds miss a pair with (1 - p)^r."""
    torch.manual_seed(0)
    first = unit(torch.randn(4000, 16, dtype=torch.float64))
    other = torch.randn(4000, 16, dtype=torch.float64)
    other = unit(other - (other * first).sum(-1, keepdim=True) * first)
    shares = []
    for cosine in (0.0, 0.5, 0.9):
        second = cosine * first + (1 - cosine**2) ** 0.5 * other
        pairs = torch.stack([first, second])[None]  # (1, 2, 4000, 16)
        buckets = buckets_of(pairs, torch.randn(40, 8, 16, dtype=torch.float64))[0]
        same = (buckets[0] == buckets[1]).double()  # (40, 4000)
        assert abs((same.view(10, 4, -1).amax(1)).mean() - (1 - (1 - same.mean()) ** 4)) < 0.03
        shares.append(same.mean().item())
    assert abs(shares[0] - 1 / 16) < 0.01  # orthogonal: by chance
    assert shares[0] < shares[1] < shares[2]


@pytest.mark.parametrize("causal", [True, False])
def test_weights_are_those_of_the_context(causal: bool) -> None:
    """The same output with and without weights, which are zero outside of the pattern; each score that there is."""
    ids, mask, real = padded_batch("left")
    for score, options in (("scaled_dot", {}), ("dot", {}), ("cosine", {"learn_beta": True})):
        fields: dict[str, Any] = {"self_attention_score": score, "self_attention_score_options": options}
        make: Any = language_model if causal else masked_model
        fused, eager = make("sdpa", **fields), make("eager", **fields)
        outputs = eager(ids, attention_mask=mask, output_attentions=True)
        found = fused(ids, attention_mask=mask).logits
        torch.testing.assert_close(found[mask.bool()], outputs.logits[mask.bool()], atol=1e-12, rtol=0)
        for weights in outputs.attentions:
            assert weights.shape == (2, 2, 21, 21)
            torch.testing.assert_close(weights[:, :, real].sum(-1), torch.ones(2, 2, 15, dtype=torch.float64))
            assert not weights[1, :, :, :6].any()  # padding
            seen = (weights > 0).sum(-1)
            assert (seen <= OPTIONS["keys"] * OPTIONS["rounds"] * (1 if causal else 2)).all()
            alone = weights.diagonal(dim1=-2, dim2=-1) > 0
            assert (seen[alone] == 1).all()
        assert bool(outputs.attentions[0].triu(1).any()) != causal


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"decoder_pattern": ["full", "lsh"], "positions": "rotary"},
        {"decoder_pattern": ["lsh", "window"], "decoder_pattern_options": {**OPTIONS, "window": 3}},
    ],
)
def test_cached_equals_uncached(fields: dict[str, Any]) -> None:
    """Greedy search, samples and beams, several returned, with padding on the left; and steps of several tokens."""
    model = language_model(**fields)
    ids, mask, _ = padded_batch("left", 13, 5)
    check_cached_generation(model, {"input_ids": ids, "attention_mask": mask}, max_new_tokens=9)
    whole = model(ids, attention_mask=mask).logits
    check_cached_steps(model, ids, mask, (3, 12, 13))  # of the second text, the first three are padding
    alone = model(ids[1:, 5:]).logits  # without its padding
    torch.testing.assert_close(alone[0], whole[1, 5:], atol=1e-12, rtol=0)
    cache = model(ids[:, :6], use_cache=True).past_key_values
    cache.batch_repeat_interleave(2)
    cache.batch_select_indices(torch.tensor([3, 0]))
    found = model(ids[:, 6:].flip(0), past_key_values=cache).logits
    torch.testing.assert_close(found, model(ids).logits[:, 6:].flip(0), atol=1e-12, rtol=0)


def test_later_tokens_change_nothing() -> None:
    ids = torch.randint(3, 23, (1, 30))
    model = language_model()
    expected = model(ids).logits[:, :17]
    for _ in range(5):
        changed = torch.cat([ids[:, :17], torch.randint(3, 23, (1, 13))], 1)
        torch.testing.assert_close(model(changed).logits[:, :17], expected, atol=1e-13, rtol=0)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_of_an_encoder_is_invisible(side: str) -> None:
    model = masked_model()
    ids, mask, real = padded_batch(side)
    whole = model(ids, attention_mask=mask).logits
    torch.testing.assert_close(model(ids[1:, real]).logits[0], whole[1, real], atol=1e-12, rtol=0)
    torch.testing.assert_close(model(ids[:1]).logits[0], whole[0], atol=1e-12, rtol=0)


@pytest.mark.parametrize("causal", [True, False])
def test_texts_without_a_token_are_zeros(causal: bool) -> None:
    model: Any = language_model() if causal else masked_model()
    attention = (model.model.decoder if causal else model.model.encoder).layers[0].self_attn
    attention.out_proj = torch.nn.Identity()
    for length in (0, 1, 9):
        hidden = torch.randn(2, length, 24, dtype=torch.float64, requires_grad=True)
        output, _ = attention(hidden, torch.zeros(2, length))
        assert torch.equal(output, torch.zeros(2, length, 24, dtype=torch.float64))
        output.sum().backward()
        assert hidden.grad is not None
        assert hidden.grad.isfinite().all()


def test_a_translator_with_hashes_in_both_stacks() -> None:
    torch.manual_seed(0)
    fields = {f"{stack}_{key}": value for stack in ("encoder", "decoder")
              for key, value in (("pattern", "lsh"), ("pattern_options", OPTIONS))}  # fmt: skip
    model = VaswaniForConditionalGeneration(VaswaniConfig(**SMALL, **fields, eos_token_id=None)).double().eval()
    ids, mask, _ = padded_batch("right", 9, 3)
    generated = [
        model.generate(ids, attention_mask=mask, max_new_tokens=12, num_beams=2, use_cache=cached)
        for cached in (True, False)
    ]
    assert torch.equal(*generated)


def test_no_matrix_of_all_pairs_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_hashing, "BLOCK", 64)
    length = 4096
    query, value = torch.randn(2, 1, 1, length, 2)
    with Largest() as largest:
        buckets = buckets_of(query, torch.randn(2, 8, 2))
        attend_in_blocks(query, unit(query), value, buckets, None, 32, True)
    assert largest.elements <= length * (32 + 64)


def test_matrices_are_saved_and_drawn_again_in_training_only(tmp_path: Path) -> None:
    ids = torch.randint(3, 23, (2, 9))
    model: Any = masked_model()
    directions = model.model.encoder.layers[0].self_attn.directions
    first = directions.clone()
    assert directions.shape == (3, 2, 12)
    model(ids)
    assert torch.equal(directions, first)
    model.train().gradient_checkpointing_enable()  # which runs a layer twice for each pass
    model(ids, labels=ids).loss.backward()
    assert torch.equal(directions, first)
    model(ids, labels=ids).loss.backward()
    assert not torch.equal(directions, first)
    model.eval().save_pretrained(tmp_path)
    again: Any = VaswaniForMaskedLM.from_pretrained(tmp_path, dtype=torch.float64)
    torch.testing.assert_close(again(ids).logits, model(ids).logits, atol=1e-12, rtol=0)
    kept = masked_model(encoder_pattern_options={**OPTIONS, "redraw": 0}).train()
    torch.testing.assert_close(kept(ids).logits, kept(ids).logits, atol=1e-12, rtol=0)
    more: Any = VaswaniForMaskedLM.from_pretrained(
        tmp_path, encoder_pattern_options={**OPTIONS, "rounds": 8}, ignore_mismatched_sizes=True, dtype=torch.float64
    )
    assert more.model.encoder.layers[0].self_attn.directions.shape == (8, 2, 12)
    assert more(ids).logits.isfinite().all()


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "buckets": ({"buckets": 3}, "buckets is 3; write an even number, because a direction has two sides."),
    "keys": ({"keys": 0}, "keys is 0; write a whole number of at least 1."),
    "rounds": ({"rounds": True}, "rounds is True; write a whole number of at least 1."),
    "redraw": ({"redraw": -1}, "redraw is -1; write a whole number of at least 0."),
    "score": (
        {"self_attention_score": "additive"},
        "The pattern 'lsh' hashes vectors by their directions, so that keys of one bucket have large inner products, "
        "and self_attention_score is 'additive'; write dot, scaled_dot or cosine.",
    ),
    "distribution": (
        {"self_attention_distribution": "entmax"},
        "The pattern 'lsh' merges rounds by the denominators of softmax, and self_attention_distribution is 'entmax'; "
        "leave it out, or write another pattern.",
    ),
    "heads": (
        {"num_key_value_heads": 1},
        "The pattern 'lsh' has one projection for queries and keys, so that there are as many heads of keys; leave "
        "num_key_value_heads out.",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_configuration_is_one_sentence(name: str) -> None:
    fields, sentence = MISTAKES[name]
    options = {**OPTIONS, **{option: value for option, value in fields.items() if option == name}}
    fields = {field: value for field, value in fields.items() if field != name}
    with pytest.raises(StrictDataclassError) as error:
        VaswaniConfig(**SMALL, **fields, decoder_pattern="lsh", decoder_pattern_options=options)
    assert str(error.value.__cause__) == sentence


def test_a_static_cache_is_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="a pattern of attention has a cache of its own; leave"):
        language_model().generate(torch.tensor([[3, 4]]), cache_implementation="static", max_new_tokens=2)
