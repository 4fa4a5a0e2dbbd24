"""Distributions: each against a float64 loop or an independent solution, masks, gradients, and drawn positions."""

import copy
import itertools
import math
import pickle
from typing import Any

import pytest
import torch

from hfattn import attention
from hfattn.models.attention_distances import Compositional
from hfattn.models.attention_distributions import Entmax, Hard, Sparsemax, hard_sample, score_function

F64 = torch.float64
DISTRIBUTIONS: dict[str, Any] = attention.DISTRIBUTIONS
# name, options: every distribution, entmax in each of its ways, hard in both of its modes
CASES: list[tuple[str, dict[str, Any]]] = [
    ("softmax", {}),
    ("sigmoid", {}),
    ("sparsemax", {}),
    ("entmax", {}),
    ("entmax", {"alpha": 1.0}),
    ("entmax", {"alpha": 1.2}),
    ("entmax", {"alpha": 3.0}),
    ("hard", {}),
    ("hard", {"estimator": "score_function"}),
    ("compositional", {}),
    ("normalize", {}),
]
SIMPLEX = [case for case in CASES if case[0] not in ("sigmoid", "compositional")]
IDS = [f"{name}-{options}" for name, options in CASES]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def rand(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape, dtype=F64, requires_grad=grad)


class Weights:
    """A distribution as a function of energies and mask alone, whatever else it wants."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self.positive = name == "normalize"
        self.module = DISTRIBUTIONS[name](
            **({"query_size": 3, "key_size": 3} if name == "compositional" else {}), **options
        )

    def __call__(self, energies: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if self.positive:
            energies = energies.square()
        generator = torch.Generator().manual_seed(1)
        vectors = [
            torch.randn(*energies.shape[:-2], size, 3, generator=generator).to(energies.dtype)
            for size in energies.shape[-2:]
        ]
        torch.manual_seed(2)  # what is drawn is the same at each call
        return self.module(energies, mask, vectors[0], self.module.prepare(vectors[1]))


def masks(batch: int, t: int, s: int) -> dict[str, torch.Tensor]:
    padding = torch.ones(batch, 1, s, dtype=torch.bool)
    padding[0, :, s - 2 :] = False
    padding[1, :, 0] = False
    causal = torch.ones(t, s, dtype=torch.bool).tril()
    rows = torch.ones(batch, t, s, dtype=torch.bool)
    rows[0, 1] = False
    rows[1] = False
    return {"padding": padding, "causal": causal, "both": padding & causal, "whole rows": rows, "all": rows & False}


def test_the_registry_holds_the_names_of_the_specification() -> None:
    assert set(DISTRIBUTIONS) == {"softmax", "sigmoid", "sparsemax", "entmax", "hard", "compositional", "normalize"}
    assert {name for name, _ in CASES} == set(DISTRIBUTIONS)


# Formulas


def test_softmax_sigmoid_and_normalize() -> None:
    energies = rand(2, 3, 4)
    for b, t in itertools.product(range(2), range(3)):
        row = energies[b, t].tolist()
        total = sum(math.exp(e) for e in row)
        positive = [abs(e) for e in row]
        for s, e in enumerate(row):
            assert DISTRIBUTIONS["softmax"]()(energies)[b, t, s].item() == pytest.approx(math.exp(e) / total)
            assert DISTRIBUTIONS["sigmoid"]()(energies)[b, t, s].item() == pytest.approx(1 / (1 + math.exp(-e)))
            normalized = DISTRIBUTIONS["normalize"]()(energies.abs())[b, t, s].item()
            assert normalized == pytest.approx(positive[s] / sum(positive))


def brute_force_projection(energies: list[float]) -> list[float]:
    """The nearest point of the simplex: the best of the projections on each of its faces that lies on it."""
    best, nearest = math.inf, [0.0]
    for size in range(1, len(energies) + 1):
        for support in itertools.combinations(range(len(energies)), size):
            shift = (sum(energies[i] for i in support) - 1) / size
            point = [energies[i] - shift if i in support else 0.0 for i in range(len(energies))]
            distance = sum((p - e) ** 2 for p, e in zip(point, energies, strict=True))
            if min(point) >= 0 and distance < best:
                best, nearest = distance, point
    return nearest


def test_sparsemax_is_the_projection_on_the_simplex() -> None:
    energies = rand(40, 6)
    weights = Sparsemax()(energies)
    for row, expected in zip(weights, energies, strict=True):
        assert row.tolist() == pytest.approx(brute_force_projection(expected.tolist()), abs=1e-12)
    assert 0.3 < (weights == 0).double().mean() < 0.9


def bisected_entmax(energies: list[float], alpha: float) -> list[float]:
    """Σ max((α - 1) e - τ, 0)^(1 / (α - 1)) = 1, solved for τ to the last bit."""
    z = [(alpha - 1) * e for e in energies]
    low, high = max(z) - 1, max(z)
    for _ in range(200):
        middle = (low + high) / 2
        if sum(max(x - middle, 0) ** (1 / (alpha - 1)) for x in z) >= 1:
            low = middle
        else:
            high = middle
    return [max(x - low, 0) ** (1 / (alpha - 1)) for x in z]


@pytest.mark.parametrize("alpha", [1.1, 1.3, 1.5, 1.9, 2.0, 2.5, 4.0])
@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
def test_entmax_solves_its_equation(alpha: float, scale: float) -> None:
    energies = scale * rand(20, 7)
    weights = Entmax(alpha=alpha)(energies)
    for row, expected in zip(weights, energies, strict=True):
        assert row.tolist() == pytest.approx(bisected_entmax(expected.tolist(), alpha), abs=1e-9)
    single = Entmax(alpha=alpha)(energies.float())
    torch.testing.assert_close(single.double(), weights, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("alpha", [1.5, 2.0, 3.0])
def test_entmax_is_the_best_point_of_the_simplex(alpha: float) -> None:
    """It maximizes p·e + (1 - Σ p^α) / (α (α - 1))."""
    energies = rand(6)

    def objective(p: torch.Tensor) -> torch.Tensor:
        return p @ energies + (1 - p.pow(alpha).sum(-1)) / (alpha * (alpha - 1))

    best = Entmax(alpha=alpha)(energies[None])[0]
    others = torch.distributions.Dirichlet(torch.ones(6, dtype=F64)).sample((2000,))
    near = 0.999 * best + 0.001 * others
    assert (objective(others) < objective(best)).all()
    assert (objective(near) < objective(best)).all()


def test_entmax_known_values() -> None:
    rows = torch.tensor([[0.0, 0.0], [0.5, 0.0], [1.0, 0.0], [2.0, 0.0]], dtype=F64)
    assert Sparsemax()(rows).tolist() == [[0.5, 0.5], [0.75, 0.25], [1.0, 0.0], [1.0, 0.0]]
    weights = Entmax()(rows)
    # For two positions, z = (d, 0) = e / 2 and τ² + (d - τ)² = 1 give τ = (d - √(2 - d²)) / 2; d = 1 leaves one.
    assert weights[0].tolist() == pytest.approx([0.5, 0.5])
    assert weights[3].tolist() == [1.0, 0.0]
    tau = (0.5 - math.sqrt(2 - 0.25)) / 2
    assert weights[2].tolist() == pytest.approx([(0.5 - tau) ** 2, tau**2])
    torch.testing.assert_close(Entmax(alpha=1.0)(rows), rows.softmax(-1))
    torch.testing.assert_close(Entmax(alpha=2.0)(rows), Sparsemax()(rows))
    torch.testing.assert_close(Entmax(alpha=1.0001)(rows), rows.softmax(-1), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(Entmax(alpha=1.5 + 1e-9)(rows), weights, atol=1e-7, rtol=0)  # bisection, exact form


def test_entmax_of_many_positions() -> None:
    energies = 3 * torch.randn(4, 5000)
    for alpha in (1.2, 1.5, 2.0):
        weights = Entmax(alpha=alpha)(energies)
        torch.testing.assert_close(weights.sum(-1), torch.ones(4))
        torch.testing.assert_close(weights, Entmax(alpha=alpha)(energies.double()).float(), atol=1e-5, rtol=1e-3)
    even = Entmax()(torch.zeros(1, 5000))
    torch.testing.assert_close(even, torch.full((1, 5000), 1 / 5000))


@pytest.mark.parametrize("dissimilarity", ["manhattan", "euclidean", "sq_euclidean", "chebyshev"])
def test_compositional(dissimilarity: str) -> None:
    """tanh(E) ⊙ sigmoid(N) (Tay et al. 2019), in (-1, 1), and its own map where the widths differ."""
    orders = {"manhattan": 1, "euclidean": 2, "sq_euclidean": 2, "chebyshev": math.inf}
    for d_q in (3, 2):
        module: Any = Compositional(d_q, 3, dissimilarity=dissimilarity).to(F64)
        assert [name for name, _ in module.named_parameters()] == ([] if d_q == 3 else ["P"])
        energies, query, key = 3 * rand(4, 5), rand(4, d_q), rand(5, 3)
        weights = module(energies, None, query, module.prepare(key))
        for t, s in itertools.product(range(4), range(5)):
            mapped = query[t] if d_q == 3 else module.P @ query[t]
            n = -(
                torch.linalg.vector_norm(mapped - key[s], orders[dissimilarity])
                ** (1 + (dissimilarity == "sq_euclidean"))
            )
            torch.testing.assert_close(weights[t, s], torch.tanh(energies[t, s]) * torch.sigmoid(n))
        assert weights.abs().max() < 1
        assert weights.min() < 0 < weights.max()
        mask = torch.ones(4, 5, dtype=torch.bool).tril()
        masked = module(energies.masked_fill(~mask, math.nan), mask, query, module.prepare(key))
        assert torch.equal(masked, weights.masked_fill(~mask, 0))
    with pytest.raises(ValueError, match="'compositional' compares vectors; pass query and prepared"):
        module(energies)
    with pytest.raises(ValueError, match="'manhatan' is not a dissimilarity; did you mean 'manhattan'"):
        Compositional(3, 3, dissimilarity="manhatan")


# Properties


@pytest.mark.parametrize(("name", "options"), SIMPLEX)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_weights_are_a_distribution(name: str, options: dict, scale: float) -> None:
    for dtype in (F64, torch.float32):
        weights = Weights(name, options)(scale * torch.randn(2, 5, 6, dtype=dtype))
        assert weights.min() >= 0
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 5, dtype=dtype))


def test_sigmoid_and_compositional_do_not_sum_to_one() -> None:
    for name in ("sigmoid", "compositional"):
        total = Weights(name, {})(rand(2, 5, 6)).sum(-1)
        assert not torch.isclose(total, torch.ones_like(total), atol=1e-3).any()


@pytest.mark.parametrize("dtype", [F64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_masks(name: str, options: dict, dtype: torch.dtype) -> None:
    """Exact zeros, no NaN, the same as without the masked keys, forward and backward; also in rows without any key."""
    for training in (True, False):
        weigh = Weights(name, options)
        weigh.module.train(training)
        for kind, mask in masks(2, 5, 6).items():
            energies = torch.randn(2, 5, 6).to(dtype).requires_grad_()
            full = mask.expand(2, 5, 6)
            weights = weigh(energies, mask)
            assert weights.dtype == dtype
            assert weights.isfinite().all()
            assert not weights[~full].any(), kind
            if (name, options) in SIMPLEX:
                expected = full.any(-1).to(torch.float32)
                torch.testing.assert_close(weights.float().sum(-1), expected, atol=0.02, rtol=0)
            if not weights.requires_grad:
                assert name == "hard"
                continue
            (weights.float() * torch.randn(2, 5, 6)).sum().backward()
            assert energies.grad is not None
            assert energies.grad.isfinite().all()
            assert not energies.grad[~full].any()
            if name != "hard":
                allowed = full[0, 3]
                if allowed.any():
                    alone = weigh.module(
                        energies.detach().square()[0, 3:4, allowed]
                        if weigh.positive
                        else energies.detach()[0, 3:4, allowed],
                        *(() if name != "compositional" else _vectors(energies, allowed, weigh)),
                    )
                    torch.testing.assert_close(weights[0, 3, allowed], alone[0])


def _vectors(energies: torch.Tensor, allowed: torch.Tensor, weigh: Weights) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(1)
    query, key = (torch.randn(2, size, 3, generator=generator).to(energies.dtype) for size in (5, 6))
    return None, query[0, 3:4], weigh.module.prepare(key[0, allowed])


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e38])
@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_what_stands_behind_a_mask_changes_nothing(name: str, options: dict, poison: float) -> None:
    weigh, mask, energies = Weights(name, options), masks(2, 5, 6)["both"], torch.randn(2, 5, 6)
    poisoned = energies.masked_fill(~mask, poison).requires_grad_()
    weights = weigh(poisoned, mask)
    assert torch.equal(weights, weigh(energies, mask))
    if weights.requires_grad:
        weights.square().sum().backward()
        assert poisoned.grad is not None
        assert poisoned.grad[mask.expand(2, 5, 6)].isfinite().all()


@pytest.mark.parametrize(("name", "options"), [case for case in CASES if case[0] != "hard"])
def test_gradients(name: str, options: dict) -> None:
    weigh = Weights(name, options)
    torch.autograd.gradcheck(weigh, (rand(2, 3, 5, grad=True),))
    for mask in masks(2, 5, 6).values():
        torch.autograd.gradcheck(lambda energies, mask=mask: weigh(energies, mask), (rand(2, 5, 6, grad=True),))


@pytest.mark.parametrize("alpha", [1.5, 2.0, 2.5])
def test_second_gradients_of_entmax(alpha: float) -> None:
    torch.autograd.gradgradcheck(Entmax(alpha=alpha), (rand(3, 5, grad=True),))


def test_gradient_of_sparsemax_is_centred_on_its_support() -> None:
    energies = rand(10, 6, grad=True)
    weights, gradient = Sparsemax()(energies), rand(10, 6)
    (result,) = torch.autograd.grad(weights, energies, gradient)
    for row, g, p in zip(result, gradient, weights, strict=True):
        support = p > 0
        assert not row[~support].any()
        torch.testing.assert_close(row[support], g[support] - g[support].mean())


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5, 2.0, 2.5])
def test_entmax_of_energies_that_are_not_finite_is_softmax_s(alpha: float, poison: float) -> None:
    """NaN in the weights and in the gradient of the row, and of no other: a scaler of gradients then skips the step."""
    entmax, softmax = DISTRIBUTIONS["entmax"](alpha=alpha), DISTRIBUTIONS["softmax"]()
    found = []
    for whole in (False, True):
        for distribution in (entmax, softmax):
            energies = torch.zeros(3, 4)
            energies[1, slice(None) if whole else 2] = poison
            energies.requires_grad_()
            weights = distribution(energies, torch.tensor([[True], [True], [False]]))
            weights[:, 0].sum().backward()
            assert energies.grad is not None
            found.append((weights.isnan(), energies.grad.isnan()))
        ours, theirs = found[-2:]
        assert all(map(torch.equal, ours, theirs))
        assert not ours[0][[0, 2]].any()
        assert ours[0][1].any() == (whole or poison != -math.inf)


def test_normalize_of_an_empty_window_is_zero() -> None:
    energies = torch.tensor([[0.0, 0.0], [0.5, 0.0]], requires_grad=True)
    weights = DISTRIBUTIONS["normalize"]()(energies)
    assert weights.tolist() == [[0, 0], [1, 0]]
    weights.sum().backward()
    assert energies.grad is not None
    assert energies.grad.isfinite().all()


# Drawn positions


def test_hard_draws_in_proportion_to_softmax() -> None:
    energies = torch.tensor([0.0, 1.0, -1.0, 2.0])
    mask = torch.tensor([True, True, True, False])
    draws = 20000
    weights, log_prob = hard_sample(energies.expand(draws, 4), mask.expand(draws, 4))
    expected = energies.masked_fill(~mask, -math.inf).softmax(-1)
    assert (weights.sum(-1) == 1).all()
    torch.testing.assert_close(weights.mean(0), expected, atol=0.015, rtol=0)
    torch.testing.assert_close(log_prob.exp(), (weights * expected).sum(-1))


def test_hard_is_one_position_and_repeats_under_a_generator() -> None:
    energies, hard = torch.randn(3, 4, 5), Hard()
    one, two = (hard_sample(energies, generator=torch.Generator().manual_seed(7))[0] for _ in range(2))
    assert torch.equal(one, two)
    assert not torch.equal(one, hard(energies))
    assert set(one.flatten().tolist()) == set(hard(energies).flatten().tolist()) == {0.0, 1.0}
    hard.eval()
    assert torch.equal(hard(energies).argmax(-1), energies.argmax(-1))
    weights, log_prob = hard_sample(energies, torch.zeros(5, dtype=torch.bool))
    assert not weights.any()
    assert not log_prob.any()


def test_straight_through_has_the_gradient_of_softmax() -> None:
    energies, gradient = rand(3, 5, grad=True), rand(3, 5)
    mask = torch.ones(3, 5, dtype=torch.bool).tril(1)
    (one,) = torch.autograd.grad(Hard()(energies, mask), energies, gradient)
    (two,) = torch.autograd.grad(DISTRIBUTIONS["softmax"]()(energies, mask), energies, gradient)
    torch.testing.assert_close(one, two)


@pytest.mark.parametrize("baseline", [0.0, 1.0])
def test_the_score_function_estimator_is_unbiased(baseline: float) -> None:
    """The mean of the estimates beside the gradient of the expectation, for a loss that is not linear."""
    energies, values = rand(4, grad=True), rand(4)
    weight = torch.tensor(0.7, dtype=F64, requires_grad=True)

    def loss(context: torch.Tensor) -> torch.Tensor:
        return (weight * context - 0.3) ** 2 + torch.cos(context)

    exact = torch.autograd.grad(energies.softmax(-1) @ loss(values), (energies, weight))
    draws = 40000
    drawn, log_prob = hard_sample(energies.expand(draws, 4))
    each = loss(drawn @ values)
    surrogate = score_function(each, log_prob, baseline)
    torch.testing.assert_close(surrogate, each)
    estimate = torch.autograd.grad(surrogate.mean(), (energies, weight))
    torch.testing.assert_close(estimate, exact, atol=0.02, rtol=0)
    assert not torch.allclose(torch.zeros(4, dtype=F64), exact[0], atol=0.05)


# Construction


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_distributions_are_copied_and_pickled(name: str, options: dict) -> None:
    weigh, energies = Weights(name, options), rand(2, 3, 4)
    expected = weigh(energies)
    for twin in (copy.deepcopy(weigh), pickle.loads(pickle.dumps(weigh))):
        assert torch.equal(twin(energies), expected)


def test_messages() -> None:
    with pytest.raises(ValueError, match=r"alpha is 0.5; write 1 \(softmax\), 2 \(sparsemax\) or another"):
        Entmax(alpha=0.5)
    with pytest.raises(
        ValueError, match="'gumbel' is not an estimator; write one of 'straight_through', 'score_function'"
    ):
        Hard(estimator="gumbel")
