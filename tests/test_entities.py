"""Entities of tagged sentences: their metric beside the pairwise rules of conlleval, and the sums over windows."""

import random

import pytest
import torch
from transformers import EvalPrediction

from hfattn.errors import UserError
from hfattn.metrics import Entity, EntityMetric, EntityScores, find_entities, token_loss


def chunks_by_pairs_of_tags(tags: list[str]) -> list[tuple[str, int, int]]:
    """As conlleval goes about it: does a chunk end, and does one begin, between each two tags?"""
    chunks, begin = [], 0
    before, before_type = "O", ""
    for i, tag in enumerate([*tags, "O"]):
        prefix, _, kind = tag.partition("-")
        ends = before in ("E", "S") or (before in ("B", "I") and prefix in ("B", "S", "O"))
        ends = ends or (before != "O" and before_type != kind)
        begins = prefix in ("B", "S") or (before in ("E", "S", "O") and prefix in ("E", "I"))
        begins = begins or (prefix != "O" and before_type != kind)
        if ends and before != "O":
            chunks.append((before_type, begin, i))
        if begins:
            begin = i
        before, before_type = prefix, kind
    return chunks


def test_entities_of_any_tags_are_those_of_the_rules_for_pairs_of_tags() -> None:
    generator = random.Random(0)
    tags = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("X", "Y-Z"))]
    for _ in range(2000):
        sentence = generator.choices(tags, k=generator.randrange(1, 9))
        assert [tuple(entity) for entity in find_entities(sentence)] == chunks_by_pairs_of_tags(sentence), sentence


def test_entities_of_bio_bioes_and_the_first_scheme_of_conll() -> None:
    expected = [Entity("PER", 0, 2), Entity("PER", 2, 3), Entity("LOC", 4, 5)]
    for tags in ("B-PER I-PER B-PER O B-LOC", "B-PER E-PER S-PER O S-LOC", "I-PER I-PER B-PER O I-LOC"):
        assert find_entities(tags.split()) == expected


def test_scores_counted_by_hand() -> None:
    """Right: PER 0-1, LOC 3-3; PER 0-0. Found: PER 0-1, LOC 2-3 (too long); LOC 0-0 (another type)."""
    scores = EntityMetric().compute(
        predictions=[["B-PER", "I-PER", "B-LOC", "I-LOC"], ["B-LOC", "O"]],
        references=[["B-PER", "I-PER", "O", "B-LOC"], ["B-PER", "O"]],
    )
    assert (scores["precision"], scores["recall"], scores["f1"]) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert (scores["entities"], scores["predicted_entities"], scores["accuracy"]) == (3, 3, 3 / 6)
    by_type = scores["entities_by_type"]
    assert (by_type["PER"]["precision"], by_type["PER"]["recall"]) == (1, 1 / 2)
    assert by_type["PER"]["f1"] == pytest.approx(2 / 3)
    assert (by_type["LOC"]["f1"], by_type["LOC"]["entities"], by_type["LOC"]["predicted_entities"]) == (0, 1, 2)
    nothing = EntityMetric().compute(predictions=[["O"]], references=[["O"]])
    assert (nothing["f1"], nothing["accuracy"], nothing["entities"]) == (0, 1, 0)
    with pytest.raises(UserError, match="Sentence 2 has 1 predicted tags and 2 correct ones; give one of each"):
        EntityMetric().compute(predictions=[["O"], ["O"]], references=[["O"], ["O", "O"]])
    with pytest.raises(UserError, match="There is nothing to score"):
        EntityMetric().compute(predictions=[], references=[])


def test_the_loss_is_the_mean_over_all_labels_of_a_step() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(2, 3, 4), torch.tensor([[-100, 1, 2], [3, -100, -100]])
    nats = [-logits[place].log_softmax(-1)[labels[place]] for place in ((0, 1), (0, 2), (1, 0))]
    torch.testing.assert_close(token_loss({"logits": logits}, labels), sum(nats, start=torch.tensor(0.0)) / 3)
    two_batches = sum(token_loss({"logits": logits[i, None]}, labels[i, None], num_items_in_batch=3) for i in range(2))
    torch.testing.assert_close(two_batches, token_loss({"logits": logits}, labels))


def test_windows_are_put_together_and_words_without_one_are_outside() -> None:
    """The first sentence in two windows, its last word in neither; the batches cut it apart."""
    labels = ["O", "B-X", "I-X"]
    scores = EntityScores(labels)
    references = [("B-X", "I-X", "O", "B-X"), ("O", "B-X")]
    scores.expect(references, [(0, {1: 0, 3: 1}), (0, {2: 2}), (1, {1: 0, 2: 1})])
    ids = torch.tensor([[0, 1, 0, 2, 0], [1, 1, 0, 1, 1], [0, 0, 1, 1, 1]])
    nats = torch.tensor([[0.0, 1, 0, 2, 0], [0, 0, 4, 0, 0], [0, 8, 16, 0, 0]])
    for _ in range(2):  # an evaluation leaves nothing behind for the next
        assert scores(EvalPrediction((ids[:1], nats[:1]), None), compute_result=False) == {}
        found = scores(EvalPrediction((ids[1:], nats[1:]), None), compute_result=True)
        assert scores.predicted == [["B-X", "I-X", "O", "O"], ["O", "B-X"]]
        assert scores.nats == [7, 24]
        assert (found["precision"], found["recall"], found["f1_X"]) == pytest.approx((1, 2 / 3, 4 / 5))
        assert (found["accuracy"], found["nats_per_word"], found["sentences"]) == (5 / 6, 31 / 5, 2)
