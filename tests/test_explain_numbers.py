"""Numbers of attention and rollout: each against a loop that follows its formula."""

import json
import math
from typing import Any

import pytest
import torch

from hfattn.errors import UserError
from hfattn.explaining import (
    AttentionRecord,
    agreement,
    alignment_error_rate,
    coverage,
    coverage_deviation,
    diagonality,
    effective_tokens,
    entropy,
    links,
    mean_distance,
    rollout,
    summary,
)
from hfattn.generated import GENERATED, date_links, date_pairs


def weights(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).softmax(-1)


def record(weights: torch.Tensor, kind: str = "self") -> AttentionRecord:
    targets, sources = weights.shape[-2:]
    names = tuple(f"t{i}" for i in range(max(targets, sources)))
    return AttentionRecord(names[:sources], names[:targets], weights, kind)


# Rollout


def test_rollout_is_the_product_of_its_layers() -> None:
    layers, heads, size = 3, 2, 4
    given = weights(layers, heads, size, size) * 0.9  # rows that do not sum to one
    expected = [[float(i == j) for j in range(size)] for i in range(size)]
    for layer in given.tolist():
        mixed = []
        for i in range(size):
            row = [sum(layer[h][i][j] for h in range(heads)) / heads / 2 + (i == j) / 2 for j in range(size)]
            mixed.append([value / sum(row) for value in row])
        expected = [[sum(mixed[i][k] * expected[k][j] for k in range(size)) for j in range(size)] for i in range(size)]
    result = rollout(record(given))
    torch.testing.assert_close(result.weights[0, 0], torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(result.weights.sum(-1), torch.ones(1, 1, size, dtype=torch.float64))


def test_rollout_keeps_what_cannot_be_seen() -> None:
    causal = weights(3, 2, 5, 5).tril()
    causal = causal / causal.sum(-1, keepdim=True)
    result = rollout(record(causal, "decoder"))
    assert result.kind == "decoder"
    assert not result.weights.triu(1).any()
    assert (result.matrix().tril() > 0).sum() == 15
    identity = torch.eye(5, dtype=torch.float64)
    torch.testing.assert_close(rollout(record(identity.expand(3, 2, 5, 5))).matrix(), identity)
    torch.testing.assert_close(rollout(record(torch.zeros(2, 1, 5, 5).double())).matrix(), identity)


def test_rollout_of_a_record_without_the_rows() -> None:
    with pytest.raises(ValueError, match=r'of cross-attention; use .* kind="encoder"'):
        rollout(record(weights(1, 1, 3, 3), "cross"))
    with pytest.raises(ValueError, match="2 rows for 5 tokens; use the record of a forward pass"):
        rollout(record(weights(1, 1, 2, 5)))


# Numbers


def test_entropy_and_the_number_of_tokens() -> None:
    given = weights(2, 3, 5) * 1.7  # rows are divided by their sum
    for i, row in enumerate(given.view(6, 5).tolist()):
        nats = -sum(a / sum(row) * math.log(a / sum(row)) for a in row)
        assert float(entropy(given).view(6)[i]) == pytest.approx(nats)
        assert float(entropy(given, normalized=True).view(6)[i]) == pytest.approx(nats / math.log(5))
        assert float(effective_tokens(given).view(6)[i]) == pytest.approx(math.exp(nats))
    known = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.0, 1.0, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0], [0.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(
        effective_tokens(known), torch.tensor([4.0, 1.0, 2.0, math.nan]).double(), equal_nan=True
    )
    assert entropy(torch.ones(2, 1), normalized=True).tolist() == [0, 0]


def test_distance_counts_tokens() -> None:
    given = weights(2, 4, 4)
    for matrix, result in zip(given.tolist(), mean_distance(given).tolist(), strict=True):
        for i in range(4):
            assert result[i] == pytest.approx(sum(matrix[i][j] * abs(i - j) for j in range(4)))
    with pytest.raises(ValueError, match="has 3 rows for 4 tokens"):
        mean_distance(weights(3, 4))


def test_diagonality_is_a_correlation() -> None:
    given = weights(2, 4, 6)
    for matrix, result in zip(given.tolist(), diagonality(given).tolist(), strict=True):
        pairs = [(i, j, matrix[i][j] / 4) for i in range(4) for j in range(6)]
        mean_i, mean_j = (sum(pair[side] * pair[2] for pair in pairs) for side in (0, 1))
        both = sum((i - mean_i) * (j - mean_j) * p for i, j, p in pairs)
        spread_i = sum((i - mean_i) ** 2 * p for i, _, p in pairs)
        spread_j = sum((j - mean_j) ** 2 * p for _, j, p in pairs)
        assert result == pytest.approx(both / math.sqrt(spread_i * spread_j))
    identity = torch.eye(5)
    assert float(diagonality(identity)) == pytest.approx(1)
    assert float(diagonality(identity.flip(1))) == pytest.approx(-1)
    assert float(diagonality(torch.ones(5, 3))) == pytest.approx(0)
    assert diagonality(torch.ones(1, 3)).isnan()
    assert diagonality(torch.eye(3)[:1].expand(4, 3)).isnan()  # all rows look at one token
    empty = torch.cat([identity, torch.zeros(1, 5)])
    assert float(diagonality(empty)) == pytest.approx(1)  # a row that reads nothing is left out


def test_coverage_is_one_where_each_token_is_read_once() -> None:
    assert coverage(torch.eye(3).flip(0)).tolist() == [1, 1, 1]
    assert float(coverage_deviation(torch.eye(3))) == 0
    repeated = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert coverage(repeated).tolist() == [2, 0]
    assert float(coverage_deviation(repeated)) == 1
    given = weights(2, 3, 4)
    assert coverage(given)[1, 2] == pytest.approx(sum(float(given[1, i, 2]) for i in range(3)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.tensor([[0.5, -0.5]]), "Some weights are negative"),
        (torch.tensor([[0.5, math.nan]]), "NaN or infinity"),
        (torch.ones(3), r"has shape \(3,\); pass rows"),
    ],
)
@pytest.mark.parametrize("measure", [entropy, effective_tokens, mean_distance, diagonality])
def test_what_is_no_distribution(measure: Any, given: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure(given)


# Alignments


def test_error_rate_of_an_alignment() -> None:
    given = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.5, 0.4], [0.2, 0.2, 0.6], [0.4, 0.3, 0.3]])
    assert links(given) == {(0, 0), (1, 1), (2, 2), (3, 0)}
    assert links(given, 0.4) == {(0, 0), (1, 1), (1, 2), (2, 2), (3, 0)}
    sure, possible = {(0, 0), (1, 2)}, {(2, 2)}
    # A ∩ S is (0, 0), A ∩ P is (0, 0) and (2, 2), which holds S though it was not passed in P.
    assert alignment_error_rate(given, sure, possible) == pytest.approx(1 - (1 + 2) / (4 + 2))
    assert alignment_error_rate(given, sure) == pytest.approx(1 - (1 + 1) / (4 + 2))
    assert alignment_error_rate(given, sure, possible, threshold=0.4) == pytest.approx(1 - (2 + 3) / (5 + 2))
    assert alignment_error_rate(given, links(given)) == 0
    assert alignment_error_rate(record(given[None, None], "cross"), [], links(given)) == 0
    assert alignment_error_rate(given, {(0, 1)}) == 1
    with pytest.raises(ValueError, match=r"link \(4, 0\) is out of range: there are 4 target and 3 source tokens"):
        alignment_error_rate(given, {(4, 0)})
    with pytest.raises(ValueError, match="has a link; lower the threshold"):
        alignment_error_rate(given, [], threshold=2.0)


def test_the_right_alignment_of_a_date() -> None:
    written, iso = "Friday, 3 November 2017", "2017-11-03"
    known = date_links(written, iso)
    assert known.sure == {(0, 19), (1, 20), (2, 21), (3, 22), (9, 8)}
    assert {(5, 10), (6, 17), (8, 8), (9, 8), (4, 0), (7, 22)} <= known.possible
    assert not {(0, 8), (5, 8), (9, 10)} & known.possible
    for part in GENERATED["dates"].parts:
        for source, target, *_ in date_pairs(part, 100, seed=1):
            sure, possible = date_links(source, target)
            assert all(source[j] == target[i] for i, j in sure)
            assert {i for i, _ in sure} >= {0, 1, 2, 3, 9}
            right = torch.zeros(len(target), len(source))
            for i in range(len(target)):
                right[i, min(j for each in (sure, possible) for k, j in each if k == i)] = 1
            for i, j in sure:
                right[i] = 0
                right[i, j] = 1
            assert alignment_error_rate(right, sure, possible) == 0
            assert alignment_error_rate(right.flip(0), sure, possible) > 0.3
    with pytest.raises(UserError, match="'2019, April' is not 2019-04-22 in a known form"):
        date_links("2019, April", "2019-04-22")


# Agreement


def test_agreement_against_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    generator = torch.Generator().manual_seed(0)
    for one, other in (
        (torch.rand(9, generator=generator), torch.randn(9, generator=generator)),
        (torch.tensor([3, 1, 1, 2, 0, 0.0]), torch.tensor([-2, 2, 0, 1, 0, 5.0])),  # with ties
    ):
        result = agreement(one, other, k=2)
        assert result.kendall == pytest.approx(stats.kendalltau(one, other.abs()).statistic)
        assert result.spearman == pytest.approx(stats.spearmanr(one, other.abs()).statistic)
    assert result.k == 2
    assert result.top_k == 0.5  # the first and the fourth token, and the last and the first: of equals, the earlier one
    same = agreement(torch.arange(5.0), -torch.arange(5.0) * 3)
    assert (same.kendall, same.spearman, same.top_k, same.k) == (1, 1, 1, 3)
    turned = agreement(torch.arange(2.0), 1 - torch.arange(2.0), k=9)
    assert (turned.kendall, turned.spearman, turned.top_k, turned.k) == (-1, -1, 1, 2)
    assert math.isnan(agreement(torch.ones(4), torch.arange(4.0)).kendall)


def test_agreement_of_other_texts() -> None:
    with pytest.raises(ValueError, match=r"shape \(3,\) and scores \(4,\)"):
        agreement(torch.ones(3), torch.ones(4))
    with pytest.raises(ValueError, match="There are 1 tokens and k is 3"):
        agreement(torch.ones(1), torch.ones(1))


def test_summary_has_the_numbers_of_each_head() -> None:
    given = weights(2, 3, 4, 4)
    known = summary(record(given))
    assert json.loads(json.dumps(known)) == known
    assert [(head["layer"], head["head"]) for head in known["heads"]] == [(i, j) for i in range(2) for j in range(3)]
    last = known["heads"][-1]
    assert last["entropy"] == pytest.approx(float(entropy(given[1, 2]).mean()))
    assert last["mean_distance"] == pytest.approx(float(mean_distance(given[1, 2]).mean()))
    assert "coverage_deviation" not in last
    cross = summary(record(weights(1, 1, 2, 5), "cross"))
    assert (cross["kind"], cross["tokens"], cross["target_tokens"]) == ("cross", 5, 2)
    assert cross["heads"][0]["coverage_deviation"] == pytest.approx(float(coverage_deviation(weights(1, 1, 2, 5))))
    assert "mean_distance" not in cross["heads"][0]
    assert summary(record(torch.ones(1, 1, 1, 3), "cross"))["heads"][0]["diagonality"] is None
