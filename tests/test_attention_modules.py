"""Patterns, each against its formula: windows, heads, features, views, pooling, co-attention and hard attention."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import nn
from transformers import initialization as init

from hfattn.attention import (
    DISTRIBUTIONS,
    SCORES,
    Attention,
    AttentionPooling,
    CoAttention,
    HardAttention,
    HierarchicalAttentionPooling,
    LocalMonotonic,
    LocalPredictive,
    MultiDimensionalAttention,
    MultiHeadAttention,
    MultiRepresentationalAttention,
    attend,
    score_function,
)

F64 = torch.float64


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def rand(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape, dtype=F64, requires_grad=grad)


def randomize(module: Any) -> Any:
    for parameter in module.double().parameters():
        nn.init.normal_(parameter, std=0.5)
    return module


# Local windows


def padded_sources() -> torch.Tensor:
    """Seven real keys each: at the end, in the middle, with a hole; and one source of padding alone."""
    mask = torch.zeros(4, 10, dtype=torch.bool)
    mask[0, 3:] = mask[1, 1:8] = mask[2, :5] = mask[2, 8:] = True
    return mask


@pytest.mark.parametrize("half_width", [0, 1, 3])
def test_local_monotonic(half_width: int) -> None:
    query, mask = rand(4, 6, 3), padded_sources()
    window, multiplier = LocalMonotonic(half_width)(query, mask)
    assert multiplier is None
    assert window.dtype == torch.bool
    for b, t in itertools.product(range(4), range(6)):
        real = [s for s in range(10) if mask[b, s]]
        expected = {real[p] for p in range(len(real)) if abs(p - t) <= half_width}
        assert {s for s in range(10) if window[b, t, s]} == expected
    for t in range(6):  # step by step, as generation goes, with one start for all or one for each
        for start in (t, torch.full((4,), t)):
            step, _ = LocalMonotonic(half_width)(query[:, t : t + 1], mask, start)
            assert torch.equal(step[:, 0], window[:, t])
    starts = torch.tensor([0, 2, 1, 0])
    moved, _ = LocalMonotonic(half_width)(query[:, :3], mask, starts)
    for b in range(4):
        assert torch.equal(moved[b], window[b, starts[b] : starts[b] + 3])


@pytest.mark.parametrize("half_width", [1, 2, 5])
def test_local_predictive(half_width: int) -> None:
    local, query, mask = randomize(LocalPredictive(3, half_width)), rand(4, 6, 3), padded_sources()
    window, multiplier = local(query, mask)
    for b, t in itertools.product(range(4), range(6)):
        real = [s for s in range(10) if mask[b, s]]
        centre = len(real) / (1 + math.exp(-(local.v_p @ torch.tanh(local.W_p @ query[b, t])).item()))
        for p, s in enumerate(real):
            assert window[b, t, s].item() == (abs(p - centre) <= half_width)
            expected = math.exp(-((p - centre) ** 2) / (2 * (half_width / 2) ** 2))
            assert multiplier[b, t, s].item() == pytest.approx(expected, abs=1e-6)
        assert not window[b, t, [s for s in range(10) if s not in real]].any()
    step, factor = local(query[:, 2:3], mask, 2)
    assert torch.equal(step[:, 0], window[:, 2])
    torch.testing.assert_close(factor[:, 0], multiplier[:, 2])


def test_a_model_learns_where_to_look() -> None:
    """Through the multiplier, the only way for a gradient of p_t; a source of padding alone makes no NaN."""
    local, query, mask = LocalPredictive(3, 2), torch.randn(4, 6, 3, requires_grad=True), padded_sources()
    key = torch.randn(4, 10, 3)
    window, multiplier = local(query, mask)
    context, weights = attend(query, key, key, "dot", mask=window, multiplier=multiplier)
    assert not context[3].any()
    torch.testing.assert_close(weights, attend(query, key, key, "dot", mask=window)[1] * multiplier)
    (context.square().sum()).backward()
    for parameter in local.parameters():
        assert parameter.grad.isfinite().all()
        assert parameter.grad.any()
    assert query.grad.isfinite().all()


def test_positions_far_out_are_told_apart_in_half_precision() -> None:
    local = LocalPredictive(3, 2).to(torch.bfloat16)
    mask = torch.ones(1, 3000, dtype=torch.bool)
    with torch.autocast("cpu", torch.bfloat16):
        window, multiplier = local(torch.randn(1, 4, 3, dtype=torch.bfloat16), mask)
    assert set(window.sum(-1).flatten().tolist()) <= {4, 5}
    assert multiplier.dtype == torch.bfloat16


def test_messages_of_windows() -> None:
    with pytest.raises(ValueError, match="half_width is -1; write the number of keys to see on each side, 0 or more"):
        LocalMonotonic(-1)
    with pytest.raises(ValueError, match="half_width is 0; write the number of keys to see on each side, 1 or more"):
        LocalPredictive(3, 0)


# Multi-head


def port(ours: Any, theirs: nn.MultiheadAttention) -> None:
    projections = (ours.q_proj, ours.k_proj, ours.v_proj)
    for linear, weight, bias in zip(
        projections, theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3), strict=True
    ):
        init.copy_(linear.weight, weight)
        init.copy_(linear.bias, bias)
    ours.out_proj.load_state_dict(theirs.out_proj.state_dict())


@pytest.mark.parametrize("need_weights", [True, False])
def test_multi_head_is_torch_s_with_its_weights(need_weights: bool) -> None:
    theirs = nn.MultiheadAttention(12, 3, batch_first=True)
    nn.init.normal_(theirs.in_proj_bias)
    ours = MultiHeadAttention(12, 3)
    port(ours, theirs)
    query, key, value = torch.randn(2, 4, 12), torch.randn(2, 5, 12), torch.randn(2, 5, 12)
    padding = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    expected, expected_weights = theirs(query, key, value, key_padding_mask=~padding, average_attn_weights=False)
    output, weights = ours(query, key, value, padding[:, None], need_weights)
    torch.testing.assert_close(output, expected)
    if need_weights:
        torch.testing.assert_close(weights, expected_weights)
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    expected, _ = theirs(query, query, query, attn_mask=~causal)
    torch.testing.assert_close(ours(query, query, query, causal, need_weights)[0], expected)


@pytest.mark.parametrize("score", ["scaled_dot", "additive", "gaussian", "manhattan"])
@pytest.mark.parametrize("distribution", ["softmax", "sparsemax", "compositional"])
def test_multi_head_is_each_head_by_itself(score: str, distribution: str) -> None:
    """head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V), side by side, then W^O; all the widths differ."""
    module = randomize(
        MultiHeadAttention(6, 3, head_dim=4, key_size=5, value_size=7, score=score, distribution=distribution)
    )
    query, key, value = rand(2, 4, 6), rand(2, 5, 5), rand(2, 5, 7)
    mask = torch.rand(2, 4, 5) > 0.3
    output, weights = module(query, key, value, mask)
    heads = []
    for i in range(3):
        rows = slice(4 * i, 4 * i + 4)
        q, k, v = (
            tensor @ linear.weight[rows].T + linear.bias[rows]
            for tensor, linear in ((query, module.q_proj), (key, module.k_proj), (value, module.v_proj))
        )
        context, alone = module.attention(q, module.attention.prepare(k), v, mask)
        torch.testing.assert_close(weights[:, i], alone)
        heads.append(context)
    torch.testing.assert_close(output, torch.cat(heads, -1) @ module.out_proj.weight.T + module.out_proj.bias)


def test_one_head_is_single_head_attention() -> None:
    module = MultiHeadAttention(4, 1, bias=False).double()
    assert not [name for name, _ in module.named_parameters() if "bias" in name]
    for linear in (module.q_proj, module.k_proj, module.v_proj, module.out_proj):
        init.eye_(linear.weight)
    query, key, value = rand(2, 3, 4), rand(2, 5, 4), rand(2, 5, 4)
    output, weights = module(query, key, value)
    expected, expected_weights = attend(query, key, value)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(weights[:, 0], expected_weights)


def test_messages_of_multi_head() -> None:
    with pytest.raises(
        ValueError, match="hidden_size=10 is not a multiple of num_heads=3; change one, or pass head_dim"
    ):
        MultiHeadAttention(10, 3)


# One weight per feature, several views


@pytest.mark.parametrize("distribution", ["softmax", "sparsemax", "sigmoid"])
def test_multi_dimensional(distribution: str) -> None:
    module = randomize(MultiDimensionalAttention(3, 4, 5, hidden_size=6, distribution=distribution))
    query, key, value, mask = rand(2, 3, 3), rand(2, 4, 4), rand(2, 4, 5), torch.rand(2, 3, 4) > 0.3
    mask[0, 1] = False
    context, weights = module(query, key, value, mask)
    assert weights.shape == (2, 3, 4, 5)
    for b, t in itertools.product(range(2), range(3)):
        hidden = [torch.tanh(module.W_q @ query[b, t] + module.W_k @ key[b, s] + module.b_1) for s in range(4)]
        energies = torch.stack([module.W @ h + module.b for h in hidden])  # (S, d_v)
        for j in range(5):
            expected = module.distribution(energies[:, j], mask[b, t])
            torch.testing.assert_close(weights[b, t, :, j], expected)
            torch.testing.assert_close(context[b, t, j], expected @ value[b, :, j])
    assert not context[0, 1].any()
    torch.autograd.gradcheck(
        lambda *tensors: module(*tensors, mask)[0], [x.requires_grad_() for x in (query, key, value)]
    )
    with pytest.raises(ValueError, match="weighs pairs of vectors, not features; take another, such as 'softmax'"):
        MultiDimensionalAttention(3, 4, 5, distribution="compositional")


def test_multi_representational() -> None:
    module = randomize(MultiRepresentationalAttention([3, 5], 4))
    views = [rand(2, 6, 3), rand(2, 6, 5)]
    pooled, weights = module(views)
    projected = [linear(view) for linear, view in zip(module.projections, views, strict=True)]
    energies = torch.stack(
        [torch.tanh(x @ module.pooling.W.T + module.pooling.b) @ module.pooling.u for x in projected], -1
    )
    torch.testing.assert_close(weights, energies.softmax(-1))
    torch.testing.assert_close(pooled, sum(weights[..., i, None] * x for i, x in enumerate(projected)))
    with pytest.raises(ValueError, match="1 views are given; this module was made for 2"):
        module(views[:1])


# Pooling


@pytest.mark.parametrize("hidden_size", [None, 3])
def test_attention_pooling(hidden_size: int | None) -> None:
    """u_i = tanh(W h_i + b), α = softmax(u_i · u), Σ α_i h_i (Yang et al. 2016, eq. 5-7)."""
    module, inputs = randomize(AttentionPooling(4, hidden_size)), rand(3, 5, 4)
    mask = torch.tensor([[True] * 5, [False, True, True, False, True], [False] * 5])
    pooled, weights = module(inputs, mask)
    for b in range(2):
        real = [s for s in range(5) if mask[b, s]]
        scores = {s: math.exp((torch.tanh(module.W @ inputs[b, s] + module.b) @ module.u).item()) for s in real}
        for s in range(5):
            assert weights[b, s].item() == pytest.approx(scores.get(s, 0) / sum(scores.values()))
        torch.testing.assert_close(pooled[b], sum(weights[b, s] * inputs[b, s] for s in real))
    assert not pooled[2].any()
    assert not weights[2].any()
    torch.testing.assert_close(module(inputs[1:2, mask[1]])[0], pooled[1:2])
    torch.autograd.gradcheck(lambda x: module(x, mask)[0], (inputs.requires_grad_(),))


@pytest.mark.parametrize(("score", "options"), [("additive", {}), ("scaled_dot", {}), ("location", {"max_length": 9})])
def test_attention_pooling_with_another_score(score: str, options: dict) -> None:
    module = randomize(AttentionPooling(4, 3, score, "sparsemax", score_options=options))
    inputs, mask = rand(2, 5, 4), torch.ones(2, 5, dtype=torch.bool)
    mask[1, 3:] = False
    pooled, weights = module(inputs, mask)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, dtype=F64))
    torch.testing.assert_close(module(inputs[1:, :3])[0], pooled[1:])


class Doubled(nn.Module):
    """A sentence encoder that shows what it is given."""

    def forward(self, sentences: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.cat([sentences, -sentences], -1).masked_fill(~mask[..., None], 9.0)


@pytest.mark.parametrize("encoder", [None, Doubled()])
def test_hierarchical_pooling(encoder: nn.Module | None) -> None:
    """Sentence by sentence, then the document; sentences and words that are padding are as if they were not there."""
    module = randomize(HierarchicalAttentionPooling(4, 4 if encoder is None else 8, 3, encoder, distribution="softmax"))
    words, mask = rand(2, 3, 5, 4), torch.ones(2, 3, 5, dtype=torch.bool)
    mask[0, 1, 2:] = mask[1, 2] = mask[1, 0, 0] = False
    result = module(words, mask)
    for b, count in ((0, 3), (1, 2)):
        sentences = torch.stack([module.words(words[b, n][mask[b, n]])[0] for n in range(count)])
        annotations = sentences if encoder is None else encoder(sentences, torch.ones(count, dtype=torch.bool))
        document, weights = module.sentences(annotations)
        torch.testing.assert_close(result.document[b], document)
        torch.testing.assert_close(result.sentence_weights[b, :count], weights)
    assert result.sentence_weights[1, 2] == 0
    assert not result.word_weights[~mask].any()
    whole = module(words)
    torch.testing.assert_close(whole.document, module(words, torch.ones_like(mask)).document)


# Co-attention


@pytest.mark.parametrize("score", ["general", "additive"])
@pytest.mark.parametrize("distribution", ["softmax", "sparsemax", "compositional"])
def test_co_attention(score: str, distribution: str) -> None:
    """The rows of one affinity matrix, and its columns."""
    module = randomize(CoAttention(3, 4, score=score, distribution=distribution))
    first, second = rand(2, 5, 3), rand(2, 6, 4)
    first_mask, second_mask = torch.ones(2, 5, dtype=torch.bool), torch.ones(2, 6, dtype=torch.bool)
    first_mask[0, 3:] = second_mask[1, :2] = False
    result = module(first, second, first_mask, second_mask)
    for b in range(2):
        x, y = first[b][first_mask[b]], second[b][second_mask[b]]
        affinity = module.score(x, y)
        rows = module.to_second(affinity, None, x, module.to_second.prepare(y))
        columns = module.to_first(affinity.T, None, y, module.to_first.prepare(x))
        torch.testing.assert_close(result.first_context[b][first_mask[b]], rows @ y)
        torch.testing.assert_close(result.second_context[b][second_mask[b]], columns @ x)
        torch.testing.assert_close(result.first_weights[b][first_mask[b]][:, second_mask[b]], rows)
        torch.testing.assert_close(result.second_weights[b][second_mask[b]][:, first_mask[b]], columns)
        assert not result.first_context[b][~first_mask[b]].any()
    for masks in ((None, None), (first_mask, None), (None, second_mask)):
        one = module(first, second, *masks)
        full = [torch.ones_like(m) if g is None else g for g, m in zip(masks, (first_mask, second_mask), strict=True)]
        torch.testing.assert_close(tuple(one), tuple(module(first, second, *full)))


def test_co_attention_with_a_symmetric_score_is_two_attentions() -> None:
    module, first, second = CoAttention(4, 4, score="dot"), rand(2, 5, 4), rand(2, 6, 4)
    result = module(first, second)
    torch.testing.assert_close(result.first_context, attend(first, second, second, "dot")[0])
    torch.testing.assert_close(result.second_context, attend(second, first, first, "dot")[0])


# Hard attention


def test_hard_attention_draws_in_training_and_decides_at_evaluation() -> None:
    module = randomize(HardAttention(3, 4, "general"))
    query, key, value, mask = rand(2, 5, 3), rand(2, 6, 4), rand(2, 6, 2), torch.ones(2, 1, 6, dtype=torch.bool)
    mask[0, :, 4:] = mask[1] = False
    energies = module.score(query, key)
    seen = set()
    for _ in range(20):
        context, weights, log_prob = module(query, key, value, mask)
        torch.testing.assert_close(context, weights @ value)
        expected = energies.masked_fill(~mask, -torch.inf)[0].log_softmax(-1)
        torch.testing.assert_close(log_prob[0], expected[weights[0].bool()])
        assert not weights[1].any()
        assert not log_prob[1].any()
        seen.add(tuple(weights[0].argmax(-1).tolist()))
    assert len(seen) > 10
    generators = (torch.Generator().manual_seed(3) for _ in range(2))
    one, two = (module(query, key, value, mask, generator)[1] for generator in generators)
    assert torch.equal(one, two)
    module.eval()
    _, weights, _ = module(query, key, value, mask)
    assert torch.equal(weights[0].argmax(-1), energies[0, :, :4].argmax(-1))


def test_hard_attention_learns_by_the_score_function() -> None:
    """The loss reaches the parameters of the score though the weights carry no gradient: the right key is found."""
    torch.manual_seed(1)
    module = HardAttention(4, 4, "general")
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    keys = torch.eye(4).expand(32, 4, 4)
    for _ in range(150):
        query = torch.eye(4)[torch.randint(4, (32,))][:, None]
        context, _, log_prob = module(query, keys, keys.roll(1, -1))  # the value of key i is i + 1
        loss = (context - query).square().sum(-1)
        score_function(loss, log_prob, loss.mean()).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    module.eval()
    chosen = module(torch.eye(4)[:, None], keys[:4], keys[:4])[1].argmax(-1).flatten()
    assert chosen.tolist() == [3, 0, 1, 2]


def test_attention_is_the_global_pattern() -> None:
    attention, x = Attention(4, 4), torch.randn(2, 5, 4)
    torch.testing.assert_close(attention(x, attention.prepare(x), x)[0], attend(x, x, x)[0])


def test_what_does_not_fit_is_refused_in_words() -> None:
    vectors, mask = torch.randn(2, 3, 4), torch.ones(2, 3)
    with pytest.raises(ValueError, match=r"The mask is torch.float32; pass a boolean one"):
        LocalMonotonic(1)(vectors, mask)
    with pytest.raises(ValueError, match="num_heads is 0; write a whole number of at least 1"):
        MultiHeadAttention(4, 0)
    with pytest.raises(ValueError, match="Keys have 4 features; this attention was made for key_size=5"):
        MultiHeadAttention(4, 2, key_size=5)(vectors, vectors, vectors)
    with pytest.raises(ValueError, match="Values have 4 features; this attention was made for value_size=6"):
        MultiDimensionalAttention(4, 4, 6)(vectors, vectors, vectors)
    with pytest.raises(ValueError, match="second sequence have 4 features; this attention was made for second_size=5"):
        CoAttention(4, 5)(vectors, vectors)
    with pytest.raises(ValueError, match=r"The mask is torch.float32; pass a boolean one"):
        CoAttention(4, 4)(vectors, vectors, first_mask=mask)


@pytest.mark.parametrize(
    ("score", "options", "message"),
    [
        ("additive", {"hidden_size": 0}, r"would have the shape \(0, 4\); write widths that are whole numbers"),
        ("deep", {"hidden_size": -3}, r"would have the shape \(-3, 4\)"),
        ("location", {}, "its option max_length"),
        ("minkowski", {"p": "inf"}, "p is 'inf'; below 1 it makes no distance"),
        ("gaussian", {"s": "1"}, "s is '1'; write a width above 0"),
    ],
)
def test_options_are_checked(score: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SCORES[score](4, 4, **options)
    with pytest.raises(ValueError, match=r"alpha is '1.3'; write 1"):
        DISTRIBUTIONS["entmax"](alpha="1.3")
