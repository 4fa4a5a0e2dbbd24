"""Classification by nearest neighbors, against scikit-learn and a literal loop."""

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from hfattn.errors import UserError
from hfattn.metrics import neighbor_accuracy, neighbor_votes, neighbors


def test_votes_are_those_of_a_literal_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbors, "CHUNK", 4)  # 11 queries are three chunks
    generator = torch.Generator().manual_seed(0)
    bank, queries = (torch.randn(n, 5, generator=generator) for n in (30, 11))
    labels = torch.arange(30) % 3
    votes = neighbor_votes(queries, bank, labels, 4, neighbors=7, temperature=0.2)
    assert votes.shape == (11, 4)
    for query, vote in zip(queries.double(), votes, strict=True):
        cosines = [float(query @ each / query.norm() / each.norm()) for each in bank.double()]
        shares = [0.0] * 4
        for i in sorted(range(30), key=lambda i: -cosines[i])[:7]:
            shares[int(labels[i])] += math.exp(cosines[i] / 0.2)
        assert vote.tolist() == pytest.approx([share / sum(shares) for share in shares], abs=1e-5)


def test_accuracy_is_that_of_scikit_learn() -> None:
    digits = load_digits()
    pixels, labels = torch.tensor(digits.data), torch.tensor(digits.target)
    theirs = KNeighborsClassifier(20, metric="cosine", weights=lambda distances: np.exp((1 - distances) / 0.07))
    theirs.fit(pixels[:1000], labels[:1000])
    expected = theirs.score(pixels[1000:], labels[1000:])
    assert neighbor_accuracy(pixels[1000:], labels[1000:], pixels[:1000], labels[:1000]) == pytest.approx(expected)
    assert 0.9 < expected < 1


def test_a_bank_smaller_than_k_votes_as_a_whole_and_bad_input_gets_one_sentence() -> None:
    bank, labels = torch.eye(3), torch.tensor([0, 1, 1])
    assert neighbor_votes(torch.ones(1, 3), bank, labels)[0].tolist() == pytest.approx([1 / 3, 2 / 3])
    with pytest.raises(UserError, match="3 vectors and 2 labels"):
        neighbor_votes(torch.ones(1, 3), bank, labels[:2])
    with pytest.raises(UserError, match="no vectors"):
        neighbor_votes(torch.ones(1, 3), bank[:0], labels[:0])
    with pytest.raises(UserError, match="1 queries and 0 labels"):
        neighbor_accuracy(torch.ones(1, 3), labels[:0], bank, labels)
