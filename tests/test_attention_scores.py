"""Scores: each against its formula in a float64 loop, their identities, gradients, memory, precision and messages."""

import copy
import itertools
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from commands import ROOT, environment
from model_checks import Largest

from hfattn import attention
from hfattn.models import score_kernels
from hfattn.models.attention_scores import SET_FEATURE_MAPS, Additive, Feature, Score
from hfattn.models.score_kernels import additive_energies

Vector = torch.Tensor
F64 = torch.float64
SCORES: dict[str, Any] = attention.SCORES  # made with options that only a score's own class declares


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def rand(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape, dtype=F64, requires_grad=grad)


def deep_formula(m: Any, q: Vector, k: Vector) -> Vector:
    e = torch.relu(m.W_0 @ k + m.W_1 @ q + m.b_1)
    e = torch.relu(m.W_2 @ e + m.b_2)
    e = torch.relu(m.W_3 @ e + m.b_3)
    return m.v @ e + m.b_4[0]


# name, query width, key width, options, the formula for one query and one key
CASES: list[tuple[str, int, int, dict[str, Any], Callable[[Any, Vector, Vector], Any] | None]] = [
    ("dot", 3, 3, {}, lambda m, q, k: sum(a * b for a, b in zip(q, k, strict=True))),
    ("scaled_dot", 3, 3, {}, lambda m, q, k: sum(a * b for a, b in zip(q, k, strict=True)) / math.sqrt(3)),
    ("dot", 3, 3, {"learn_beta": True}, lambda m, q, k: m.log_beta.exp()[0] * (q @ k)),
    ("scaled_dot", 3, 3, {"learn_beta": True}, lambda m, q, k: m.log_beta.exp()[0] * (q @ k) / math.sqrt(3)),
    ("cosine", 3, 3, {}, lambda m, q, k: q @ k / math.sqrt(q @ q) / math.sqrt(k @ k)),
    ("cosine", 3, 3, {"learn_beta": True}, lambda m, q, k: m.log_beta.exp()[0] * q @ k / (q.norm() * k.norm())),
    ("general", 3, 4, {}, lambda m, q, k: sum(q[i] * m.W[i, j] * k[j] for i in range(3) for j in range(4))),
    ("general", 3, 4, {"scaled": True}, lambda m, q, k: q @ m.W @ k / math.sqrt(4)),
    ("biased_general", 3, 4, {}, lambda m, q, k: k @ (m.W @ q + m.b)),
    ("activated_general", 3, 4, {}, lambda m, q, k: torch.tanh(q @ m.W @ k + m.b[0])),
    ("activated_general", 3, 4, {"activation": "sigmoid"}, lambda m, q, k: torch.sigmoid(q @ m.W @ k + m.b[0])),
    ("additive", 3, 4, {"hidden_size": 5}, lambda m, q, k: m.v @ torch.tanh(m.W_q @ q + m.W_k @ k)),
    (
        "additive",
        3,
        4,
        {"hidden_size": 5, "activation": "gelu"},
        lambda m, q, k: m.v @ torch.nn.functional.gelu(m.W_q @ q + m.W_k @ k),
    ),
    (
        "concat",
        3,
        4,
        {"bias": True},
        lambda m, q, k: m.v @ torch.tanh(torch.cat([m.W_q, m.W_k], 1) @ torch.cat([q, k]) + m.b),
    ),
    ("deep", 3, 4, {"hidden_size": 5, "num_layers": 4}, deep_formula),
    (
        "deep",
        3,
        4,
        {"num_layers": 2, "activation": "tanh"},
        lambda m, q, k: m.v @ torch.tanh(m.W_0 @ k + m.W_1 @ q + m.b_1) + m.b_2[0],
    ),
    ("gaussian", 3, 3, {}, lambda m, q, k: -sum((a - b) ** 2 for a, b in zip(q, k, strict=True)) / 2),
    (
        "gaussian",
        3,
        3,
        {"s": 0.7},
        lambda m, q, k: -sum((a - b) ** 2 for a, b in zip(q, k, strict=True)) / (2 * 0.7**2),
    ),
    ("boxcar", 3, 3, {}, lambda m, q, k: 0.5 if math.dist(q.tolist(), k.tolist()) <= 1 else 0.0),
    (
        "generalized_kernel",
        3,
        3,
        {},
        lambda m, q, k: (torch.nn.functional.elu(q) + 1) @ (torch.nn.functional.elu(k) + 1),
    ),
    ("generalized_kernel", 3, 3, {"feature_map": "exp"}, lambda m, q, k: q.exp() @ k.exp()),
    ("euclidean", 3, 3, {}, lambda m, q, k: -math.dist(q.tolist(), k.tolist())),
    ("sq_euclidean", 3, 3, {}, lambda m, q, k: -(math.dist(q.tolist(), k.tolist()) ** 2)),
    (
        "standardized_euclidean",
        3,
        3,
        {},
        lambda m, q, k: -math.sqrt(sum((q[i] - k[i]) ** 2 / m.s[i] ** 2 for i in range(3))),
    ),
    (
        "minkowski",
        3,
        3,
        {"p": 3.5},
        lambda m, q, k: -(sum(abs(a - b) ** 3.5 for a, b in zip(q, k, strict=True)) ** (1 / 3.5)),
    ),
    ("manhattan", 3, 3, {}, lambda m, q, k: -sum(abs(a - b) for a, b in zip(q, k, strict=True))),
    ("chebyshev", 3, 3, {}, lambda m, q, k: -max(abs(a - b) for a, b in zip(q, k, strict=True))),
    (
        "mahalanobis",
        3,
        3,
        {},
        lambda m, q, k: -math.sqrt((q - k) @ torch.linalg.inv(torch.linalg.inv(m.W.T @ m.W)) @ (q - k)),
    ),
    ("location", 3, 4, {"max_length": 8}, None),
    ("location", 3, 4, {"max_length": 8, "activation": "tanh"}, None),
    ("feature", 3, 4, {"hidden_size": 5}, None),
]
IDS = [f"{name}-{options}" for name, _, _, options, _ in CASES]
DISTANCES = [
    "euclidean", "sq_euclidean", "standardized_euclidean", "minkowski", "manhattan", "chebyshev", "mahalanobis",
    "gaussian",
]  # fmt: skip


def make(name: str, query_size: int, key_size: int, options: dict[str, Any], dtype: torch.dtype = F64) -> Any:
    """A score whose every parameter is random, biases too."""
    score = SCORES[name](query_size, key_size, **options).to(dtype)
    for parameter in score.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return score


def loop(score: Any, formula: Any, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Energies of (B, T, d_q) and (B, S, d_k), one number at a time."""
    energies = torch.empty(len(query), query.shape[1], key.shape[1], dtype=F64)
    with torch.no_grad():
        for b, t, s in itertools.product(*map(range, energies.shape)):
            energies[b, t, s] = formula(score, query[b, t], key[b, s])
    return energies


def test_the_registry_holds_the_names_of_the_specification() -> None:
    assert list(SCORES) == [
        "dot", "scaled_dot", "cosine", "general", "biased_general", "activated_general", "additive", "concat", "deep",
        "location", "feature", "generalized_kernel", "gaussian", "boxcar", "euclidean", "sq_euclidean",
        "standardized_euclidean", "minkowski", "manhattan", "chebyshev", "mahalanobis",
    ]  # fmt: skip
    assert {name for name, *_ in CASES} == set(SCORES)


@pytest.mark.parametrize(("name", "d_q", "d_k", "options", "formula"), [case for case in CASES if case[4]])
def test_formula(name: str, d_q: int, d_k: int, options: dict, formula: Any) -> None:
    score, query, key = make(name, d_q, d_k, options), rand(2, 4, d_q), 0.6 * rand(2, 5, d_k)
    torch.testing.assert_close(score(query, key), loop(score, formula, query, key), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("options", "act"), [({}, lambda e: e), ({"activation": "tanh"}, torch.tanh)])
def test_location_reads_the_query_and_the_position_only(options: dict[str, str], act: Any) -> None:
    score, query = make("location", 3, 4, {"max_length": 8, **options}), rand(2, 4, 3)
    energies = score(query, rand(2, 5, 4))
    for b, t, s in itertools.product(range(2), range(4), range(5)):
        torch.testing.assert_close(energies[b, t, s], act((score.W @ query[b, t])[s]))
    assert torch.equal(score(query, rand(2, 5, 4)), energies)
    with pytest.raises(ValueError, match="9 positions and the score 'location' knows 8; make it with max_length=9"):
        score(query, rand(2, 9, 4))


SET_LOOPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mean": lambda rows: rows.sum(0) / len(rows),
    "sum": lambda rows: rows.sum(0),
    "max": lambda rows: torch.stack([max(column) for column in rows.T]),
    "min": lambda rows: torch.stack([min(column) for column in rows.T]),
    "std": lambda rows: ((rows - rows.sum(0) / len(rows)) ** 2).sum(0).div(len(rows)).sqrt(),
}


@pytest.mark.parametrize("set_map", SET_FEATURE_MAPS)
def test_feature_sees_the_keys_that_its_query_may_attend_to(set_map: str) -> None:
    score = make("feature", 3, 4, {"hidden_size": 5, "set_map": set_map, "key_map": "relu", "activation": "sigmoid"})
    query, key, mask = rand(2, 4, 3), rand(2, 6, 4), torch.rand(2, 4, 6) > 0.4
    mask[0, 1] = False
    energies = score(query, key, mask)
    for b, t, s in itertools.product(range(2), range(4), range(6)):
        rows = key[b][mask[b, t]]
        of_set = SET_LOOPS[set_map](rows) if len(rows) else torch.zeros(4, dtype=F64)
        expected = score.v @ torch.sigmoid(score.W_0 @ key[b, s].relu() + score.W_1 @ of_set + score.b)
        torch.testing.assert_close(energies[b, t, s], expected)
    torch.testing.assert_close(score(query, key), score(query, key, torch.ones(4, 6, dtype=torch.bool)))
    # With a causal mask nothing of the future arrives at the energies of allowed keys.
    causal = torch.ones(6, 6, dtype=torch.bool).tril()
    changed = key.clone()
    changed[:, 4:] += 5
    before, after = score(rand(2, 6, 3), key, causal), score(rand(2, 6, 3), changed, causal)
    assert torch.equal(before[:, :4, :4], after[:, :4, :4])
    assert not torch.allclose(before[:, 5, :4], after[:, 5, :4])


@pytest.mark.parametrize(("name", "d_q", "d_k", "options", "formula"), CASES, ids=IDS)
def test_batches_broadcast_and_the_two_halves_are_the_whole(
    name: str, d_q: int, d_k: int, options: dict, formula: Any
) -> None:
    score, query, key = make(name, d_q, d_k, options), rand(2, 3, 4, d_q), rand(2, 1, 5, d_k)
    prepared = score.prepare(key)
    assert prepared.shape[:-1] == key.shape[:-1]
    whole = score(query, key)
    assert whole.shape == (2, 3, 4, 5)
    assert torch.equal(score.compare(query, prepared), whole)
    for b, h in itertools.product(range(2), range(3)):
        torch.testing.assert_close(score(query[b, h], key[b, 0]), whole[b, h])
    for t in range(4):  # one query at a time, as a decoder comes
        torch.testing.assert_close(score.compare(query[:, :, t : t + 1], prepared), whole[:, :, t : t + 1])


@pytest.mark.parametrize(("name", "d_q", "d_k", "options", "formula"), CASES, ids=IDS)
def test_gradients(name: str, d_q: int, d_k: int, options: dict, formula: Any) -> None:
    score, query, key = make(name, d_q, d_k, options), rand(2, 3, d_q, grad=True), rand(2, 4, d_k, grad=True)
    if name == "boxcar":
        assert not score(query, key).requires_grad
        return
    names = [parameter for parameter, _ in score.named_parameters()]
    mask = torch.ones(3, 4, dtype=torch.bool).tril() if name == "feature" else None

    def energies(query: torch.Tensor, key: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        replaced = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(score, replaced, (query, key, mask))

    torch.autograd.gradcheck(energies, (query, key, *score.parameters()))


@pytest.mark.parametrize("set_map", SET_FEATURE_MAPS)
def test_gradients_of_set_features(set_map: str) -> None:
    score = make("feature", 3, 2, {"set_map": set_map})
    mask = torch.tensor([[True, False, False, False], [True, True, False, True], [False] * 4])
    torch.autograd.gradcheck(lambda key: score(torch.zeros(3, 3, dtype=F64), key, mask), (rand(4, 2, grad=True),))


@pytest.mark.parametrize("name", [*DISTANCES, "cosine"])
def test_gradients_where_the_distance_or_the_norm_is_zero(name: str) -> None:
    score, query = SCORES[name](3, 3), torch.zeros(2, 3, requires_grad=True)
    key = torch.zeros(4, 3, requires_grad=True)
    energies = score(query, key)
    assert energies.abs().max() == 0
    energies.sum().backward()
    assert query.grad is not None
    assert key.grad is not None
    assert query.grad.isfinite().all()
    assert key.grad.isfinite().all()
    same, expected = torch.randn(1, 3), torch.full((1, 1), float(name == "cosine"))
    torch.testing.assert_close(score(same, same), expected, atol=1e-6, rtol=0)


# Identities


def test_identities_of_products() -> None:
    query, key = rand(2, 4, 3), rand(2, 5, 3)
    dot = SCORES["dot"](3, 3)(query, key)
    torch.testing.assert_close(SCORES["scaled_dot"](3, 3)(query, key), dot / math.sqrt(3))
    for name in ("general", "biased_general"):
        score: Any = SCORES[name](3, 3).to(F64)
        score.neutral_()
        torch.testing.assert_close(score(query, key), dot)
    unit = [tensor / tensor.norm(dim=-1, keepdim=True) for tensor in (query, key)]
    torch.testing.assert_close(SCORES["cosine"](3, 3)(query, key), SCORES["dot"](3, 3)(*unit))
    assert SCORES["concat"] is SCORES["additive"]
    deep, additive = make("deep", 3, 3, {"num_layers": 2, "activation": "tanh"}), make("additive", 3, 3, {"bias": True})
    additive.load_state_dict({"W_q": deep.W_1, "W_k": deep.W_0, "b": deep.b_1, "v": deep.v})
    torch.testing.assert_close(deep(query, key), additive(query, key) + deep.b_2)


def test_identities_of_distances() -> None:
    query, key = rand(2, 4, 3), rand(2, 5, 3)
    by_name = {name: SCORES[name](3, 3).to(F64)(query, key) for name in DISTANCES}
    for p, name in ((1, "manhattan"), (2, "euclidean"), (math.inf, "chebyshev")):
        torch.testing.assert_close(SCORES["minkowski"](3, 3, p=p)(query, key), by_name[name])
    for name in ("mahalanobis", "standardized_euclidean", "minkowski"):
        torch.testing.assert_close(by_name[name], by_name["euclidean"])
    torch.testing.assert_close(by_name["sq_euclidean"], -by_name["euclidean"].square())
    torch.testing.assert_close(by_name["gaussian"], by_name["sq_euclidean"] / 2)
    s = torch.tensor([0.5, 2.0, 3.0], dtype=F64)
    standardized: Any = SCORES["standardized_euclidean"](3, 3)
    standardized.substitute({"s": s})
    mahalanobis: Any = SCORES["mahalanobis"](3, 3).to(F64)
    mahalanobis.substitute({"Sigma": torch.diag(s**2)})
    torch.testing.assert_close(mahalanobis(query, key), standardized(query, key))


def test_mahalanobis_takes_a_covariance() -> None:
    root = rand(3, 3)
    sigma = (root @ root.T + 0.1 * torch.eye(3, dtype=F64)).requires_grad_()
    score: Any = SCORES["mahalanobis"](3, 3).to(F64)
    score.substitute({"Sigma": sigma})
    query, key = rand(4, 3), rand(5, 3)
    inverse = torch.linalg.inv(sigma)
    expected = torch.stack([torch.stack([-((q - k) @ inverse @ (q - k)).sqrt() for k in key]) for q in query])
    torch.testing.assert_close(score(query, key), expected)
    assert torch.autograd.grad(score(query, key).sum(), sigma)[0].isfinite().all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"Sigma": torch.eye(3), "W": torch.eye(3)}, "W and Sigma both define the covariance"),
        ({"Sigma": torch.eye(4)}, r"Sigma has the shape \(4, 4\); pass a covariance of the shape \(3, 3\)"),
        ({"Sigma": -torch.eye(3)}, "Sigma is not symmetric and positive definite"),
        ({"Sigma": torch.eye(3) + torch.ones(3, 3).tril(-1) / 4}, "Sigma is not symmetric and positive definite"),
    ],
)
def test_messages_of_a_covariance(parameters: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SCORES["mahalanobis"](3, 3).substitute(parameters)


def test_a_covariance_in_half_precision() -> None:
    query, key = torch.randn(4, 3).bfloat16(), torch.randn(5, 3).bfloat16()
    score: Any = SCORES["mahalanobis"](3, 3)
    score.substitute({"Sigma": (4 * torch.eye(3)).bfloat16()})
    torch.testing.assert_close(score(query, key), SCORES["euclidean"](3, 3)(query, key) / 2)


@pytest.mark.parametrize("set_map", SET_FEATURE_MAPS)
def test_the_features_of_no_key(set_map: str) -> None:
    assert Feature(3, 3, set_map=set_map)(torch.zeros(2, 4, 3), torch.zeros(2, 0, 3)).shape == (2, 4, 0)


def test_gaussian_is_dot_where_keys_have_one_norm_and_width_d_plus_one_everywhere() -> None:
    query, key = rand(4, 3), rand(6, 3)
    weights = SCORES["gaussian"](3, 3)(query, key).softmax(-1)
    half = -0.5 * key.square().sum(-1, keepdim=True)
    wide = torch.cat([query, torch.ones(4, 1, dtype=F64)], -1) @ torch.cat([key, half], -1).T
    torch.testing.assert_close(weights, wide.softmax(-1))
    torch.testing.assert_close(weights, (query @ key.T - 0.5 * key.square().sum(-1)).softmax(-1))
    unit = key / key.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(SCORES["gaussian"](3, 3)(query, unit).softmax(-1), (query @ unit.T).softmax(-1))


def test_gram_matrices() -> None:
    points = rand(40, 3)
    gaussian = torch.linalg.eigvalsh(SCORES["gaussian"](3, 3)(points, points).exp())
    assert gaussian.min() > -1e-12
    line = torch.tensor([[0.0], [0.9], [1.8]], dtype=F64)
    smallest = torch.linalg.eigvalsh(SCORES["boxcar"](1, 1)(line, line)).min().item()
    assert smallest == pytest.approx((1 - math.sqrt(2)) / 2)  # -0.2071
    for feature_map in ("elu", "relu", "softplus", "exp"):
        kernel = SCORES["generalized_kernel"](3, 3, feature_map=feature_map)(points, points)
        assert torch.linalg.eigvalsh(kernel).min() > -1e-9
        assert kernel.min() >= 0


@pytest.mark.parametrize("name", ["dot", "scaled_dot", "cosine"])
def test_a_learned_temperature_starts_at_one(name: str) -> None:
    query, key = rand(2, 4, 3), rand(2, 5, 3)
    learned = SCORES[name](3, 3, learn_beta=True).to(F64)
    assert torch.equal(learned(query, key), SCORES[name](3, 3)(query, key))
    mixed = SCORES[name](3, 3, learn_beta=True)  # its parameter stays in float32
    assert mixed(query.bfloat16(), key.bfloat16()).dtype == torch.bfloat16


# What is computed once


@pytest.mark.parametrize("name", ["general", "biased_general", "activated_general", "additive", "deep", "feature"])
def test_the_map_of_the_keys_is_computed_once(name: str) -> None:
    """Spoilt after prepare, it is missed by nobody."""
    score, query, key = make(name, 3, 4, {}), rand(2, 4, 3), rand(2, 5, 4)
    whole, prepared = score(query, key), score.prepare(key)
    spoilt = {"general": "W", "biased_general": "W", "activated_general": "W", "additive": "W_k"}.get(name, "W_0")
    torch.nn.init.constant_(getattr(score, spoilt), math.nan)
    assert torch.equal(score.compare(query, prepared), whole)


# Memory and chunks


def naive_additive(query: torch.Tensor, key: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.tanh(query[..., :, None, :] + key[..., None, :, :]) @ v


@pytest.fixture(params=[1, 40, 200, 2**18])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setitem(score_kernels.CHUNK_ELEMENTS, "cpu", request.param)
    return request.param


@pytest.mark.parametrize("batch", [((), ()), ((2,), (2,)), ((2, 3), (2, 1)), ((1,), (3,)), ((), (2,))])
def test_chunked_additive_is_the_naive_form(chunk: int, batch: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    query, key, v = rand(*batch[0], 5, 4, grad=True), rand(*batch[1], 6, 4, grad=True), rand(4, grad=True)
    energies, expected = additive_energies(query, key, v), naive_additive(query, key, v)
    torch.testing.assert_close(energies, expected)
    gradient = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(energies, (query, key, v), gradient),
        torch.autograd.grad(expected, (query, key, v), gradient),
    )


def test_chunked_additive_gradcheck(chunk: int) -> None:
    torch.autograd.gradcheck(
        additive_energies, (rand(2, 3, 4, grad=True), rand(1, 3, 4, grad=True), rand(4, grad=True))
    )


@pytest.mark.parametrize(
    ("name", "options"), [("additive", {}), ("additive", {"activation": "relu"}), ("deep", {}), ("feature", {})]
)
def test_no_tensor_of_all_pairs_forward_or_backward(
    name: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    t, s, h = 48, 64, 32
    monkeypatch.setitem(score_kernels.CHUNK_ELEMENTS, "cpu", 2 * s * h)
    score = make(name, h, h, options)
    query, key = rand(1, t, h, grad=True), rand(1, s, h, grad=True)
    mask = torch.ones(t, s, dtype=torch.bool).tril() if name == "feature" else None
    with Largest() as largest:
        energies = score(query, key, mask)
        energies.backward(torch.ones_like(energies))
    assert largest.elements <= 2 * s * h < t * s * h / 10
    whole = copy.deepcopy(score)
    monkeypatch.setitem(score_kernels.CHUNK_ELEMENTS, "cpu", 2**30)
    other = [tensor.detach().clone().requires_grad_() for tensor in (query, key)]
    for parameter in whole.parameters():
        parameter.grad = None
    whole(*other, mask).sum().backward()
    torch.testing.assert_close([query.grad, key.grad], [tensor.grad for tensor in other])
    for one, two in zip(score.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad)


MEMORY = """
import re, torch
from hfattn.models.score_kernels import additive_energies, pairwise
def pairs(sums, v): return sums.tanh() @ v
def whole(query, key, v): return pairs(query[:, :, None] + key[:, None], v)
def peak(form, size):
    tensors = [torch.randn(shape, requires_grad=True) for shape in ((1, size, 64), (1, size, 64), (64,))]
    form(*tensors).sum().backward()
    # not ru_maxrss, which counts what the process that started this one holds
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1024
for form in (additive_energies, lambda *tensors: pairwise(pairs, *tensors), whole):
    before = peak(form, 16)
    print(peak(form, 640) - before)
"""


def test_peak_memory() -> None:
    """Peak memory of the whole process, in MiB: T S H is 100 of them, and holding all pairs takes three times that."""
    done = subprocess.run([sys.executable, "-c", MEMORY], env=environment(), capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    additive, by_autograd, whole = map(float, done.stdout.split())
    assert additive < 50  # 20 or 40, by the release of torch
    assert by_autograd < 50
    assert whole > 200


def test_additive_is_differentiable_under_autocast_and_keeps_what_needs_no_gradient() -> None:
    score = Additive(8, 8, hidden_size=16)
    query, key = torch.randn(2, 5, 8, requires_grad=True), torch.randn(2, 6, 8)
    expected = score.double()(query.double(), key.double())
    score.float()
    with torch.autocast("cpu", torch.bfloat16):
        energies = score(query, key)
        step = score(query[:, :1], key)
        energies.float().sum().backward()
    torch.testing.assert_close(energies.double(), expected, atol=0.05, rtol=0.05)
    torch.testing.assert_close(step.float(), energies[:, :1].float(), atol=0.05, rtol=0.05)
    assert query.grad is not None
    assert query.grad.isfinite().all()
    score.W_k.requires_grad_(False)
    score(query, key).sum().backward()
    assert score.v.grad is not None


# Precision


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("name", "d_q", "d_k", "options", "formula"), CASES, ids=IDS)
def test_precision(name: str, d_q: int, d_k: int, options: dict, formula: Any, dtype: torch.dtype) -> None:
    """The energies in this type, beside float64 on the same (already rounded) numbers."""
    score = make(name, d_q, d_k, options, dtype)
    query, key = torch.randn(2, 4, d_q).to(dtype), torch.randn(2, 5, d_k).to(dtype)
    energies = score(query, key)
    exact = copy.deepcopy(score).double()(query.double(), key.double())
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 0.05, torch.float16: 0.01}[dtype]
    torch.testing.assert_close(energies.double(), exact, rtol=tolerance, atol=tolerance)
    if name in DISTANCES:  # widened inside
        torch.testing.assert_close(energies.double(), exact, rtol=1e-4, atol=1e-4)


def test_far_points_in_half_precision_are_far_and_not_infinitely_so() -> None:
    query, key = torch.full((1, 4), 200.0, dtype=torch.float16), torch.full((2, 4), -200.0, dtype=torch.float16)
    assert SCORES["sq_euclidean"](4, 4)(query, key).tolist() == [[-640000.0, -640000.0]]


# Parameters


@pytest.mark.parametrize(("name", "d_q", "d_k", "options", "formula"), CASES, ids=IDS)
def test_initial_values(name: str, d_q: int, d_k: int, options: dict, formula: Any) -> None:
    """Glorot, zeros, ones or the identity; a parameter that a checkpoint has filled stays."""
    score = SCORES[name](d_q, d_k, **options)
    for parameter_name, parameter in score.named_parameters():
        if name == "mahalanobis":
            assert torch.equal(parameter, torch.eye(3))
        elif parameter_name == "s":
            assert torch.equal(parameter, torch.ones(3))
        elif parameter_name.startswith("b") or parameter_name == "log_beta":
            assert not parameter.any()
        else:
            fans = sum(parameter.shape) if parameter.ndim == 2 else 1 + len(parameter)
            assert 0.3 * math.sqrt(6 / fans) < parameter.abs().max() <= math.sqrt(6 / fans)
    filled: list[Any] = [torch.nn.init.constant_(parameter, 7) for parameter in score.parameters()]
    for parameter in filled:
        parameter._is_hf_initialized = True
    score.initialize_()
    assert all((parameter == 7).all() for parameter in filled)
    for parameter in filled:
        del parameter._is_hf_initialized
    score.initialize_()
    assert not any((parameter == 7).any() for parameter in filled)


@pytest.mark.parametrize(("name", "d_q", "d_k", "options", "formula"), CASES, ids=IDS)
def test_scores_are_copied_and_pickled(name: str, d_q: int, d_k: int, options: dict, formula: Any) -> None:
    score, query, key = make(name, d_q, d_k, options), rand(4, d_q), rand(5, d_k)
    for twin in (copy.deepcopy(score), pickle.loads(pickle.dumps(score))):
        assert torch.equal(twin(query, key), score(query, key))


# Messages


@pytest.mark.parametrize("name", [name for name, kind in SCORES.items() if kind.one_width])
def test_two_widths_where_one_is_meant(name: str) -> None:
    with pytest.raises(ValueError, match="queries have 3 features and keys 4; take the score 'general' or 'additive'"):
        SCORES[name](3, 4)


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: SCORES["location"](3, 4), "its option max_length, such as {'max_length': 100}"),
        (lambda: SCORES["minkowski"](3, 3, p=0.5), "p is 0.5; below 1 it makes no distance"),
        (lambda: SCORES["gaussian"](3, 3, s=0.0), "s is 0.0; write a width above 0"),
        (lambda: SCORES["deep"](3, 3, num_layers=1), "num_layers is 1; a deep score has at least 2"),
        (lambda: SCORES["location"](3, 3, max_length=2, activation="identity"), "'identity' is not an activation"),
        (lambda: SCORES["additive"](3, 3, activation="prelu"), "'prelu' has parameters, which no score trains"),
        (lambda: SCORES["additive"](3, 3, activation="tahn"), "'tahn' is not an activation; did you mean 'tanh'"),
        (lambda: SCORES["deep"](3, 3, activation="tahn"), "'tahn' is not an activation; did you mean 'tanh'"),
        (lambda: Feature(3, 3, set_map="maximum"), "'maximum' is not a feature map of the set of keys; did you mean"),
        (lambda: SCORES["generalized_kernel"](3, 3, feature_map="zzz"), "write one of 'identity', 'elu', 'relu'"),
    ],
)
def test_messages_of_options(make_it: Callable[[], Score], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_it()
