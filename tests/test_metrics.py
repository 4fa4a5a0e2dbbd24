"""The metrics against literal sums, offline."""

import math
from types import SimpleNamespace

import evaluate
import numpy as np
import pytest
import torch

from hfattn.metrics import (
    BitsPerCharacter,
    LanguageModelScores,
    NextCharacterAccuracy,
    Perplexity,
    token_statistics,
)


def test_accuracy_in_batches_equals_the_literal_share() -> None:
    metric = NextCharacterAccuracy()
    metric.add_batch(predictions=[1, 2, 3], references=[1, 0, 3])
    metric.add(predictions=4, references=5)
    assert metric.compute() == {"accuracy": 2 / 4}


def test_perplexity_of_a_uniform_guess_is_the_number_of_symbols() -> None:
    assert Perplexity().compute(predictions=[math.log(7)] * 5)["perplexity"] == pytest.approx(7)
    assert Perplexity().compute(predictions=[1000.0])["perplexity"] == math.inf


def test_bits_are_shared_out_among_the_characters_of_a_token() -> None:
    result = BitsPerCharacter().compute(predictions=[math.log(8), math.log(2)], references=[3, 1])
    assert result["bits_per_character"] == pytest.approx(4 / 4)
    assert result["nats_per_character"] == pytest.approx(math.log(2))


def test_metrics_combine_as_those_of_evaluate_do() -> None:
    combined = evaluate.combine([Perplexity()])
    combined.add_batch(predictions=[0.5, 1.5])
    assert combined.compute()["perplexity"] == pytest.approx(math.exp(1.0))


def test_an_evaluation_counts_each_target_once_and_no_padding() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(3, 5, 7, dtype=torch.float64), torch.randint(0, 7, (3, 5))
    labels[0, :2] = -100
    scores = LanguageModelScores()
    for _ in range(2):  # a second evaluation begins again from nothing
        for rows, last in ((slice(0, 1), False), (slice(1, 3), True)):
            predicted, nats = token_statistics(logits[rows], labels[rows])
            result = scores(SimpleNamespace(predictions=(predicted, nats), label_ids=labels[rows]), compute_result=last)
            assert bool(result) == last
    each = [
        (logits[b, t].log_softmax(-1)[labels[b, t]].item(), int(logits[b, t].argmax()) == int(labels[b, t]))
        for b in range(3)
        for t in range(5)
        if labels[b, t] != -100
    ]
    mean = -float(np.mean([log_probability for log_probability, _ in each]))
    assert result["characters"] == len(each) == 13
    assert result["accuracy"] == pytest.approx(np.mean([right for _, right in each]))
    assert result["nats_per_character"] == pytest.approx(mean, rel=1e-5)
    assert result["perplexity"] == pytest.approx(math.exp(mean), rel=1e-5)
    assert result["bits_per_character"] == pytest.approx(mean / math.log(2), rel=1e-5)
