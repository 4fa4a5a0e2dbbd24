"""Attention as a whole: the sum in a loop, its properties, masks, the fused route, neutral parameters, messages."""

import contextlib
import inspect
import io
import itertools
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import ROOT
from commands import run as run_command
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedConfig, PreTrainedModel

import hfattn.attention
from hfattn.attention import DISTRIBUTIONS, SCORES, Attention, attend
from hfattn.models.attention_distributions import Distribution, Softmax
from hfattn.models.attention_scores import InnerProduct, Parametric

F64 = torch.float64
FUSED = [name for name, kind in SCORES.items() if issubclass(kind, InnerProduct)]
NON_NEGATIVE = ("boxcar", "generalized_kernel")
PAIRS = [
    (score, distribution)
    for score, distribution in itertools.product(SCORES, DISTRIBUTIONS)
    if distribution != "normalize" or score in NON_NEGATIVE
]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def rand(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape, dtype=F64, requires_grad=grad)


def make(score: str, distribution: str = "softmax", width: int = 4, **options: Any) -> Attention:
    """With random parameters; at evaluation, so that ``hard`` draws nothing."""
    usual: dict[str, dict[str, Any]] = {"location": {"max_length": 16}, "dot": {"learn_beta": True}}
    options = usual.get(score, options)
    attention = Attention(width, width, score, distribution, score_options=options).to(F64).eval()
    for parameter in attention.parameters():
        nn.init.normal_(parameter)
    return attention


def run(attention: Attention, *tensors: Any, **rest: Any) -> tuple[Any, Any]:
    query, key, value, *mask = tensors
    return attention(query, attention.prepare(key), value, *mask, **rest)


@pytest.mark.parametrize(("score", "distribution"), PAIRS)
def test_every_score_through_every_distribution(score: str, distribution: str) -> None:
    """context_t = Σ_s weight_ts v_s, in a loop over a padding and causal mask with a row of its own that is empty."""
    attention = make(score, distribution)
    query, key, value = rand(2, 3, 4), rand(2, 5, 4), rand(2, 5, 6)
    mask = torch.ones(2, 3, 5, dtype=torch.bool).tril(2)
    mask[0, :, 4] = mask[1, 2] = False
    context, weights = run(attention, query, key, value, mask)
    energies = attention.score(query, key, mask)
    prepared = attention.distribution.prepare(key)
    torch.testing.assert_close(weights, attention.distribution(energies, mask, query, prepared))
    for b, t in itertools.product(range(2), range(3)):
        total = torch.zeros(6, dtype=F64)
        for s in range(5):
            assert mask[b, t, s] or weights[b, t, s] == 0
            total = total + weights[b, t, s] * value[b, s]
        torch.testing.assert_close(context[b, t], total)
    assert not context[1, 2].any()
    assert context.isfinite().all()


# Properties


@pytest.mark.parametrize("distribution", ["softmax", "sparsemax", "entmax", "hard"])
def test_the_context_is_in_the_convex_hull_of_the_values(distribution: str) -> None:
    """A corner of a simplex for each value: the coordinates of the context are the weights of the corners."""
    context, weights = run(
        make("general", distribution), rand(2, 3, 4), rand(2, 5, 4), torch.eye(5, dtype=F64).expand(2, 5, 5)
    )
    assert context.min() >= 0
    torch.testing.assert_close(context.sum(-1), torch.ones(2, 3, dtype=F64))
    torch.testing.assert_close(context, weights)


@pytest.mark.parametrize("score", [name for name in SCORES if name != "location"])
def test_self_attention_without_positions_is_permutation_equivariant(score: str) -> None:
    attention, x = make(score), rand(2, 6, 4)
    order = torch.randperm(6)
    context, weights = run(attention, x, x, x)
    moved, moved_weights = run(attention, x[:, order], x[:, order], x[:, order])
    torch.testing.assert_close(moved, context[:, order])
    torch.testing.assert_close(moved_weights, weights[:, order][:, :, order])


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("score", SCORES)
def test_nothing_comes_from_the_future(score: str, need_weights: bool) -> None:
    attention, x = make(score), rand(2, 6, 4)
    causal = torch.ones(6, 6, dtype=torch.bool).tril()
    changed = x.clone()
    changed[:, 3:] += rand(2, 3, 4)
    before, _ = run(attention, x, x, x, causal, need_weights=need_weights)
    after, _ = run(attention, changed, changed, changed, causal, need_weights=need_weights)
    torch.testing.assert_close(after[:, :3], before[:, :3], rtol=0, atol=1e-14)
    assert not torch.allclose(after[:, 3:], before[:, 3:])


@pytest.mark.parametrize(("score", "distribution"), PAIRS)
def test_padding_and_masked_tokens_are_invisible(score: str, distribution: str) -> None:
    attention = make(score, distribution)
    query, key, value = rand(2, 3, 4), rand(2, 5, 4), rand(2, 5, 6)
    context, weights = run(attention, query, key, value)
    mask = torch.ones(2, 1, 8, dtype=torch.bool)
    sides = [(0, 3)] if score == "location" else [(0, 3), (3, 0), (1, 2)]
    for left, right in sides:
        padded = [torch.cat([100 * rand(2, left, n), x, 100 * rand(2, right, n)], 1) for x, n in ((key, 4), (value, 6))]
        mask[:, :, :left] = mask[:, :, left + 5 :] = False
        mask[:, :, left : left + 5] = True
        for need_weights in (True, False):
            again, wide = run(attention, query, *padded, mask, need_weights=need_weights)
            torch.testing.assert_close(again, context)
            if need_weights:
                torch.testing.assert_close(wide[..., left : left + 5], weights)
                assert not wide[..., :left].any()
                assert not wide[..., left + 5 :].any()


def test_keys_prepared_once_serve_beams_and_single_steps() -> None:
    """The batch is on dimension 0 of every prepared tensor."""
    for score, distribution in PAIRS:
        attention, query, key, value = make(score, distribution), rand(2, 3, 4), rand(2, 5, 4), rand(2, 5, 6)
        context, _ = run(attention, query, key, value)
        prepared = tuple(tensor.repeat_interleave(2, 0)[[1, 3]] for tensor in attention.prepare(key))
        for t in range(3):
            step, _ = attention(query[:, t : t + 1], prepared, value)
            torch.testing.assert_close(step, context[:, t : t + 1])


def test_heads_with_a_mask_for_all_of_them() -> None:
    query, key, value = rand(2, 3, 4, 4), rand(2, 3, 5, 4), rand(2, 3, 5, 4)
    mask = torch.rand(2, 1, 4, 5) > 0.3
    for score in SCORES:
        attention = make(score)
        context, weights = run(attention, query, key, value, mask)
        assert weights.shape == (2, 3, 4, 5)
        for b, h in itertools.product(range(2), range(3)):
            alone, _ = run(attention, query[b, h], key[b, h], value[b, h], mask[b, 0])
            torch.testing.assert_close(alone, context[b, h])


@pytest.mark.parametrize(("score", "distribution"), PAIRS)
def test_no_key_or_no_query(score: str, distribution: str) -> None:
    attention = make(score, distribution)
    for t, s in ((3, 0), (0, 4), (0, 0)):
        tensors = [rand(2, t, 4, grad=True), rand(2, s, 4, grad=True), rand(2, s, 5)]
        for need_weights in (True, False):
            context, _ = run(attention, *tensors, torch.ones(2, 1, s, dtype=torch.bool), need_weights=need_weights)
            assert context.shape == (2, t, 5)
            assert not context.any()
            if context.requires_grad:
                context.sum().backward()


def test_multiplier_and_dropout() -> None:
    attention, query, key, value = make("dot"), rand(2, 3, 4), rand(2, 5, 4), rand(2, 5, 6)
    factor = rand(2, 3, 5).sigmoid()
    context, weights = run(attention, query, key, value)
    for need_weights in (True, False):
        scaled, _ = run(attention, query, key, value, multiplier=factor, need_weights=need_weights)
        torch.testing.assert_close(scaled, (weights * factor) @ value)
        dropped = torch.stack(
            [run(attention, query, key, value, dropout=0.5, need_weights=need_weights)[0] for _ in range(2000)]
        )
        assert not torch.equal(dropped[0], dropped[1])
        torch.testing.assert_close(dropped.mean(0), context, atol=0.15, rtol=0)


@pytest.mark.parametrize(("score", "distribution"), PAIRS)
def test_a_bias_is_added_to_the_energies(score: str, distribution: str) -> None:
    attention, query, key, value = make(score, distribution), rand(2, 3, 4), rand(2, 5, 4), rand(2, 5, 6)
    mask = torch.ones(2, 3, 5, dtype=torch.bool).tril(2)
    mask[0, 1] = False
    bias = rand(3, 5)
    energies = attention.score(query, key, mask)
    for t, s in itertools.product(range(3), range(5)):
        energies[:, t, s] += bias[t, s]
    expected = attention.distribution(energies, mask, query, attention.distribution.prepare(key))
    context, weights = run(attention, query, key, value, mask, bias=bias)
    torch.testing.assert_close(weights, expected)
    fused, _ = run(attention, query, key, value, mask, bias=bias, need_weights=False)
    torch.testing.assert_close(fused, context)
    torch.testing.assert_close(context, expected @ value)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_a_bias_in_the_fused_route(batch: tuple[int, ...]) -> None:
    """Biases and masks that broadcast, and the gradient of the bias."""
    attention = make("scaled_dot")
    shapes = [(5,), (4, 1), (4, 5), *([(*batch, 1, 5), (*batch[:-1], 1, 4, 5)] if batch else [])]
    masks = [None, torch.ones(4, 5, dtype=torch.bool).tril(), torch.zeros(*[1] * len(batch), 1, 5, dtype=torch.bool)]
    for shape, mask in itertools.product(shapes, masks):
        query, key, value = (rand(*batch, n, 4, grad=True) for n in (4, 5, 5))
        bias = rand(*shape, grad=True)
        context, _ = run(attention, query, key, value, mask, bias=bias)
        fused, _ = run(attention, query, key, value, mask, bias=bias, need_weights=False)
        torch.testing.assert_close(fused, context)
        ours, theirs = (torch.autograd.grad(c.square().sum(), (query, key, value, bias)) for c in (fused, context))
        torch.testing.assert_close(ours, theirs)
    context, _ = attend(query, key, value, bias=bias, causal=True)
    earlier = torch.ones(4, 5, dtype=torch.bool).tril(1)
    torch.testing.assert_close(context, run(attention, query, key, value, earlier, bias=bias)[0])


# The fused route


class Shapes(TorchDispatchMode):
    """The last two dimensions of everything that is computed, and the operations."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: set[tuple[int, ...]] = set()
        self.operations: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operations.add(func.overloadpacket.__name__)
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.shapes.add(tuple(tensor.shape[-2:]))
        return result


def test_which_scores_are_fused() -> None:
    assert {"dot", "scaled_dot", "general", "gaussian"} <= set(FUSED)


@pytest.mark.parametrize("d_v", [4, 6, 3])
@pytest.mark.parametrize("score", FUSED)
def test_the_fused_route_has_the_same_numbers_and_no_matrix(score: str, d_v: int) -> None:
    attention, t, s = make(score), 37, 41
    tensors = [rand(2, t, 4, grad=True), rand(2, s, 4, grad=True), rand(2, s, d_v, grad=True)]
    padding = torch.ones(2, 1, s, dtype=torch.bool)
    padding[1, :, 30:] = False
    for mask in (None, padding):
        context, _ = run(attention, *tensors, mask)
        gradient = torch.randn_like(context)
        expected = torch.autograd.grad(context, [*tensors, *attention.parameters()], gradient, allow_unused=True)
        with Shapes() as seen:
            fused, none = run(attention, *tensors, mask, need_weights=False)
            result = torch.autograd.grad(fused, [*tensors, *attention.parameters()], gradient, allow_unused=True)
        assert none is None
        assert not seen.shapes & {(t, s), (s, t)}
        assert any("attention" in operation for operation in seen.operations)
        torch.testing.assert_close(fused, context)
        torch.testing.assert_close(result, expected)
        with Shapes() as seen:
            run(attention, *tensors, mask)
        assert (t, s) in seen.shapes


@pytest.mark.parametrize("batch", [(), (2,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("score", ["scaled_dot", "gaussian"])
def test_the_fused_route_under_masks(score: str, batch: tuple[int, ...]) -> None:
    """Any number of batch dimensions, masks that broadcast, and rows without any key: zeros, with gradients zero."""
    attention = make(score)
    shapes = [(), (5,), (1, 5), (4, 1), (4, 5), (*batch, 4, 5), (*[1] * len(batch), 4, 5)]
    for shape in shapes:
        query, key, value = (rand(*batch, n, 4, grad=True) for n in (4, 5, 5))
        mask = torch.rand(shape) > 0.4
        context, _ = run(attention, query, key, value, mask)
        fused, _ = run(attention, query, key, value, mask, need_weights=False)
        torch.testing.assert_close(fused, context)
        empty = ~mask.expand(*batch, 4, 5).any(-1)
        assert not fused[empty].any()
        ours, theirs = (torch.autograd.grad(c.square().sum(), (query, key, value)) for c in (fused, context))
        torch.testing.assert_close(ours, theirs)
        assert not ours[0][empty].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("score", FUSED)
def test_the_fused_route_in_each_precision(score: str, dtype: torch.dtype) -> None:
    attention = make(score).to(dtype)
    query, key, value = (torch.randn(2, n, 4).to(dtype) for n in (4, 5, 5))
    context, _ = run(attention, query, key, value)
    fused, _ = run(attention, query, key, value, need_weights=False)
    assert fused.dtype == context.dtype == dtype
    exact, _ = run(attention.double(), query.double(), key.double(), value.double())
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 0.05, torch.float16: 0.01}[dtype]
    torch.testing.assert_close(fused.double(), exact, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(context.double(), exact, rtol=tolerance, atol=tolerance)


def test_gaussian_under_autocast_stays_precise() -> None:
    """Distances of long vectors are differences of large numbers: rounded products would make noise of them."""
    attention = Attention(8, 8, "gaussian")
    key = 30 + torch.randn(1, 5, 8)
    query, value = key[:, :3] + 0.1 * torch.randn(1, 3, 8), torch.randn(1, 5, 8)
    exact, _ = run(attention, query.double(), key.double(), value.double())
    with torch.autocast("cpu", torch.bfloat16):
        for need_weights in (True, False):
            context, _ = run(attention, query, key, value, need_weights=need_weights)
            torch.testing.assert_close(context.double(), exact, atol=0.03, rtol=0.01)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("score", ["gaussian", "sq_euclidean"])
def test_distances_far_from_the_origin(score: str, need_weights: bool) -> None:
    """In float32, where the squares of the vectors are 10⁵ times those of their differences; padding is zeros."""
    attention = Attention(64, 64, score)
    tensors = [100 + 0.3 * torch.randn(2, n, 64) for n in (7, 9)] + [torch.randn(2, 9, 5)]
    tensors[1][1, 6:] = 0
    mask = torch.ones(2, 1, 9, dtype=torch.bool)
    mask[1, :, 6:] = False
    exact, _ = run(attention, *(tensor.double() for tensor in tensors), mask)
    context, _ = run(attention, *tensors, mask, need_weights=need_weights)
    torch.testing.assert_close(context[:1].double(), exact[:1], atol=2e-5, rtol=1e-4)
    if need_weights:
        torch.testing.assert_close(context.double(), exact, atol=2e-5, rtol=1e-4)


def test_only_softmax_without_weights_is_fused() -> None:
    query, key, value = rand(2, 3, 4), rand(2, 5, 4), rand(2, 5, 6)
    for distribution in ("sparsemax", "sigmoid", "entmax"):
        context, weights = attend(query, key, value, "dot", distribution)
        alone, none = attend(query, key, value, "dot", distribution, need_weights=False)
        assert weights is not None
        assert none is None
        torch.testing.assert_close(alone, context)


# attend


@pytest.mark.parametrize("score", [name for name in SCORES if name != "location"])
def test_parameters_that_are_not_given_are_neutral(score: str) -> None:
    query, key, value = rand(3, 4), rand(5, 4), rand(5, 6)
    state = torch.get_rng_state()
    context, weights = attend(query, key, value, score)
    assert torch.equal(torch.get_rng_state(), state)
    same_as = {
        "general": "dot",
        "biased_general": "dot",
        "mahalanobis": "euclidean",
        "standardized_euclidean": "euclidean",
    }
    if score in same_as:
        torch.testing.assert_close(weights, attend(query, key, value, same_as[score])[1])
    sums = query[:, None] + key
    expected = {
        "activated_general": torch.tanh(query @ key.T),
        "additive": sums.tanh().sum(-1),
        "deep": sums.relu().sum(-1),
        "feature": (key + key.mean(0)).tanh().sum(-1).expand(3, 5),
    }
    if score in expected:
        torch.testing.assert_close(weights, expected[score].softmax(-1))
    torch.testing.assert_close(context, weights @ value)


@pytest.mark.parametrize("score", SCORES)
def test_parameters_by_name(score: str) -> None:
    """As those of a module, and differentiable; widths and depths are read off them."""
    known: dict[str, dict[str, Any]] = {
        "location": {"max_length": 9},
        "additive": {"hidden_size": 7, "bias": True},
        "deep": {"hidden_size": 7, "num_layers": 4},
        "feature": {"hidden_size": 7},
        **{name: {"learn_beta": True} for name in ("dot", "scaled_dot", "cosine")},
    }
    options = known.get(score, {})
    module = make(score) if not options else Attention(4, 4, score, score_options=options).to(F64)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    parameters = {name: tensor.detach().clone().requires_grad_() for name, tensor in module.score.named_parameters()}
    query, key, value = rand(2, 3, 4), rand(2, 5, 4), rand(2, 5, 6)
    context, weights = attend(query, key, value, score, parameters=parameters)
    expected, expected_weights = run(module, query, key, value)
    torch.testing.assert_close(weights, expected_weights)
    gradient = torch.randn_like(context)
    if parameters:
        torch.testing.assert_close(
            torch.autograd.grad(context, list(parameters.values()), gradient, allow_unused=True),
            torch.autograd.grad(expected, list(module.parameters()), gradient, allow_unused=True),
        )


def test_parameters_reach_the_distribution() -> None:
    module = Attention(3, 4, "general", "compositional").to(F64)
    names = {name.rsplit(".")[-1]: tensor for name, tensor in module.named_parameters()}
    query, key, value = rand(2, 3, 3), rand(2, 5, 4), rand(2, 5, 6)
    expected = run(module, query, key, value)
    torch.testing.assert_close(attend(query, key, value, "general", "compositional", parameters=names), expected)
    names = {"P": names["P"]}
    torch.testing.assert_close(attend(query, key, value, module.score, "compositional", parameters=names), expected)


def test_attend_takes_modules_and_options() -> None:
    query, key, value = rand(3, 4), rand(5, 4), rand(5, 6)
    module: Any = make("general").score
    torch.testing.assert_close(
        attend(query, key, value, module, DISTRIBUTIONS["sparsemax"]()),
        attend(query, key, value, "general", "entmax", parameters={"W": module.W}, distribution_options={"alpha": 2.0}),
    )
    _, one = attend(query, key, value, "gaussian", score_options={"s": 2.0})
    _, two = attend(query / 2, key / 2, value, "gaussian")
    torch.testing.assert_close(one, two)
    boxcar, _ = attend(query, key, value, "boxcar", "normalize")
    near = (torch.cdist(query, key) <= 1).double()
    torch.testing.assert_close(boxcar, near @ value / near.sum(-1, keepdim=True).clamp(min=1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"score": "adddtive"}, "'adddtive' is not a score; did you mean 'additive'?"),
        ({"score": "xyz"}, "'xyz' is not a score; write one of 'dot', 'scaled_dot'"),
        ({"distribution": "sparsmax"}, "'sparsmax' is not a distribution; did you mean 'sparsemax'?"),
        ({"score": "minkowski", "score_options": {"q": 2}}, "'q' is not an option of the score 'minkowski'"),
        ({"score": "biased_general", "score_options": {"p": 2}}, "'p' is not an option of .*'; there is none"),
        ({"score": "additive", "score_options": {"hiden_size": 2}}, "did you mean 'hidden_size'?"),
        (
            {"distribution": "entmax", "distribution_options": {"alfa": 2}},
            "'alfa' is not an option of the distribution",
        ),
        ({"query": rand(2, 3, 5)}, "queries have 5 features and keys 4; take the score 'general'"),
        ({"query": rand(2, 3, 5), "score": "general"}, r"W of General has no neutral value of the shape \(5, 4\)"),
        ({"query": rand(2, 3, 5), "distribution": "compositional", "score": "boxcar"}, "queries have 5"),
        ({"score": "location"}, "its option max_length, such as {'max_length': 100}, or the parameter W itself"),
        (
            {"score": "location", "score_options": {"max_length": 9}},
            "'location' has no neutral W; pass parameters={'W'",
        ),
        ({"score": "general", "parameters": {"w": rand(4, 4)}}, "'w' is not a parameter of General; write one of 'W'"),
        ({"score": "general", "parameters": {"W": rand(4, 3)}}, r"W of General has the shape \(4, 3\); pass a tensor"),
        (
            {"score": "additive", "parameters": {"v": rand(7)}},
            r"W_q of Additive has no neutral value of the shape \(7, 4\)",
        ),
        (
            {"score": SCORES["general"](4, 4), "parameters": {"W": rand(4, 4)}},
            "parameters belong to the name of a score",
        ),
        ({"score": SCORES["general"](4, 4), "score_options": {"a": 1}}, "score_options belong to the name of a score"),
        ({"distribution": Softmax(), "distribution_options": {"a": 1}}, "distribution_options belong to the name"),
        ({"score": None}, "The score is None; pass a name, such as 'scaled_dot', or a module"),
        ({"distribution": torch.softmax}, "The distribution is .*; pass a name, such as 'softmax', or a module"),
        ({"query": rand(4)}, r"Queries have the shape \(4,\); pass \(…, positions, features\)"),
        ({"key": rand(4)}, r"Keys have the shape \(4,\)"),
        ({"value": rand(5)}, r"Values have the shape \(5,\)"),
        ({"value": rand(2, 6, 4)}, "There are 5 keys and 6 values; pass one for each key"),
        ({"key": rand(3, 5, 4), "value": rand(3, 5, 4)}, "The batch dimensions of query .* do not broadcast"),
        ({"mask": torch.ones(2, 3, 5)}, "The mask is torch.float32; pass a boolean one"),
        ({"mask": torch.ones(2, 5, dtype=torch.long)}, "The mask is torch.int64; pass a boolean one"),
        ({"mask": torch.ones(2, 5, dtype=torch.bool)}, r"does not broadcast to .* = \(2, 3, 5\); a padding"),
        ({"mask": torch.ones(1, 2, 3, 5, dtype=torch.bool)}, r"The mask has the shape \(1, 2, 3, 5\)"),
        ({"bias": torch.ones(2, 5)}, r"The bias has the shape \(2, 5\), which does not broadcast to .* \(2, 3, 5\)\."),
        ({"bias": torch.ones(3, 5).bool()}, "The bias is torch.bool; pass numbers that are added to the energies"),
    ],
)
def test_messages(change: dict[str, Any], message: str) -> None:
    arguments = {"query": rand(2, 3, 4), "key": rand(2, 5, 4), "value": rand(2, 5, 4), **change}
    with pytest.raises(ValueError, match=message) as caught:
        attend(**arguments)
    assert "\n" not in str(caught.value)


def test_messages_of_widths() -> None:
    attention = Attention(3, 4, "general")
    with pytest.raises(ValueError, match="prepared is a tensor; pass the tuple that"):
        attention(torch.zeros(5, 3), attention.prepare(torch.zeros(5, 4))[0], torch.zeros(5, 4))
    with pytest.raises(ValueError, match="Keys have 3 features; this attention was made for key_size=4"):
        attention.prepare(torch.zeros(5, 3))
    with pytest.raises(ValueError, match="Queries have 4 features; this attention was made for query_size=3"):
        attention(torch.zeros(5, 4), attention.prepare(torch.zeros(5, 4)), torch.zeros(5, 4))


# A part of models


class Config(PreTrainedConfig):
    model_type = "attention_test"


class Model(PreTrainedModel):
    config_class = Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.attentions = nn.ModuleDict(
            {
                name: Attention(4, 4, name, "compositional", {"max_length": 9} if name == "location" else {})
                for name in SCORES
            }
        )
        self.projected = Attention(3, 4, "general", "compositional")
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, Parametric):
            module.initialize_()


def test_parameters_survive_the_meta_device(tmp_path: Path) -> None:
    """A checkpoint with some of the parameters: those are loaded, the others are initialized and not left as memory."""
    model = Model(Config())
    kept = {
        name: 7 + torch.rand_like(tensor) for name, tensor in model.state_dict().items() if name.endswith((".W", ".v"))
    }
    model.save_pretrained(tmp_path, state_dict=dict(kept))
    for _ in range(2):
        loaded = Model.from_pretrained(tmp_path)
        for name, tensor in loaded.state_dict().items():
            if name in kept:
                assert torch.equal(tensor, kept[name])
            elif name.rsplit(".")[-1].startswith("b") or name.endswith("log_beta"):
                assert not tensor.any()
            elif not name.endswith(".s"):
                fans = sum(tensor.shape) if tensor.ndim == 2 else 1 + len(tensor)
                assert 0.3 * (6 / fans) ** 0.5 < tensor.abs().max() <= (6 / fans) ** 0.5, name


def test_initialize_reaches_the_score_and_the_distribution() -> None:
    attention = Attention(3, 4, "additive", "compositional")
    before = {name: tensor.clone() for name, tensor in attention.named_parameters()}
    attention.initialize_()
    assert set(before) == {"score.W_q", "score.W_k", "score.v", "distribution.P"}
    assert all(not torch.equal(tensor, before[name]) for name, tensor in attention.named_parameters())


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("score", ["scaled_dot", "general", "gaussian", "additive", "euclidean"])
def test_compiles_without_graph_breaks(score: str, need_weights: bool) -> None:
    torch.compiler.reset()
    attention = make(score)
    query, key, value, mask = rand(2, 3, 4, 4), rand(2, 3, 5, 4), rand(2, 3, 5, 4), torch.rand(2, 1, 4, 5) > 0.3

    def whole(*tensors: torch.Tensor) -> torch.Tensor:
        return run(attention, *tensors, need_weights=need_weights)[0]

    compiled = torch.compile(whole, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(query, key, value, mask), whole(query, key, value, mask))


# The public module


def test_the_public_module_has_every_score_distribution_and_pattern() -> None:
    public = vars(hfattn.attention)
    assert set(hfattn.attention.__all__) <= set(public)
    for kind in (*SCORES.values(), *DISTRIBUTIONS.values()):
        assert public[kind.__name__] is kind
    assert {"LocalMonotonic", "LocalPredictive", "MultiHeadAttention", "CoAttention", "HardAttention"} <= set(public)
    for name in hfattn.attention.__all__:
        if inspect.isclass(public[name]) and not issubclass(public[name], tuple):
            assert public[name].__doc__, name


def test_import_hfattn_does_not_load_attention() -> None:
    code = "import sys, hfattn\nassert not [name for name in sys.modules if 'attention' in name and 'hfattn' in name]"
    done = run_command([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr


def test_a_distribution_of_ones_own() -> None:
    class Uniform(Distribution):
        def forward(self, energies: Any, mask: Any = None, query: Any = None, prepared: Any = ()) -> torch.Tensor:
            return torch.full_like(energies, 1 / energies.shape[-1])

    value = rand(5, 6)
    context, _ = attend(rand(3, 4), rand(5, 4), value, distribution=Uniform(), need_weights=False)
    torch.testing.assert_close(context, value.mean(0).expand(3, 6))


# The page


PAGE = (ROOT / "docs" / "attention.md").read_text()


def test_the_page_names_what_there_is_and_its_options() -> None:
    tables = re.findall(r"^\|[ `].*$", PAGE, re.MULTILINE)
    first = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in tables]
    assert {name for names in first for name in names} >= {*SCORES, *DISTRIBUTIONS}
    for names, row in zip(first, tables, strict=True):
        for kind in (SCORES.get(names[0]), DISTRIBUTIONS.get(names[0])) if names else ():
            if kind is not None:
                assert ("●" in row) == issubclass(kind, InnerProduct), names
                signature = inspect.signature(kind).parameters.values()
                for option in (parameter for parameter in signature if parameter.kind == parameter.KEYWORD_ONLY):
                    assert f"`{option.name}" in row, names
                    default = option.default if isinstance(option.default, str) else f"{option.default}"
                    if f"`{option.name}=" in row and not isinstance(option.default, bool):
                        assert default in row, names
        for name in names:
            assert name in SCORES or name in DISTRIBUTIONS or hasattr(hfattn.attention, name)


def test_the_snippets_of_the_page_run() -> None:
    snippets = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(snippets) == 3
    outputs = []
    for snippet in snippets:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(snippet, {})
        outputs.append(printed.getvalue())
    assert outputs[0].startswith("torch.Size([2, 3, 16]) torch.Size([2, 3, 5])\n")
    assert "0.0000, 0.0000]" in outputs[1]
    assert max(map(int, re.findall(r"\d", outputs[2]))) <= 5
