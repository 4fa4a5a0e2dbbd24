"""Scores that contradict each other: every record of a run is consistent, and one edited number is found out."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT

from hfattn.hub.consistency import check_consistency
from hfattn.metrics import translation_report

CARDS = sorted((ROOT / "tests" / "cards").glob("*/results.json"))
RECORDS = sorted((ROOT / "recipes").glob("*/*.expected.json"))


def read(card: str) -> dict[str, Any]:
    return json.loads((ROOT / "tests" / "cards" / card / "results.json").read_text())


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.parent.name)
def test_the_scores_of_a_run_agree(path: Path) -> None:
    assert "comparisons" in check_consistency(json.loads(path.read_text()))


def test_the_recorded_scores_agree() -> None:
    for path in RECORDS:
        for run in json.loads(path.read_text())["full"]["recorded"]:
            for scores in run["metrics"].values():
                for each in (scores, scores.get("beam", {})):
                    each.pop("by_source_length", None)  # a record has its rows by name
            check_consistency(run)


def test_bleu_of_a_few_pairs_is_near_its_interval() -> None:
    """The bootstrap draws pairs without a 4-gram more often than they occur: its interval can miss the score."""
    pairs = ["yes", "no", "a b c d e", "f g h i j k"]
    scores = translation_report(pairs, pairs, pairs)
    assert scores["bleu_interval"][1] < scores["bleu"]
    check_consistency({"metrics": {"test": scores}})


def test_exact_match_is_that_of_all_kinds() -> None:
    scores = {"exact_match": 0.6, "translated": 5, "exact_match_by_kind": {"a": 1.0, "b": 1 / 3}}
    results = {"metrics": {"test": {**scores, "pairs_by_kind": {"a": 2, "b": 3}}}}
    check_consistency(results)
    results["metrics"]["test"]["exact_match"] = 0.8
    with pytest.raises(AssertionError, match=r"exact_match is 0.8, and 0.6 according to .*by_kind"):
        check_consistency(results)


# A card, the path of a number in its metrics, what is written there, and what the check says.
EDITS: list[tuple[str, list[Any], Any, str]] = [
    ("translation", ["test", "bleu"], 96.0, "bleu is 96, above 94.4204, that of lowercased texts"),
    ("translation", ["test", "chrf"], 101.0, "chrf is 101.0, outside 0 to 100"),
    ("translation", ["test", "chrf"], float("nan"), "chrf is nan, outside 0 to 100"),
    ("translation", ["test", "nats_per_token"], 0.05, "perplexity is 1.06618, and 1.05127 according to"),
    ("translation", ["test", "by_source_length", 0, "pairs"], 90, "has 118 pairs, and 100 were translated"),
    ("classification", ["test", "accuracy"], 0.785, "accuracy is 0.785, and 0.735 according to metrics.test.confusion"),
    ("classification", ["test", "f1"], 0.78, "f1 is 0.78, and 0.733071 according to metrics.test.confusion"),
    ("classification", ["test", "confusion", 0, 0], 92, "confusion has 210 examples, and 200 are stated"),
    ("classification", ["test", "by_slice", "class: valid", "accuracy"], 0.9, r"according to .*by_slice \(class\)"),
    ("multiple_choice", ["test", "accuracy"], 0.9, r"accuracy is 0.9, and 0.871 according to .*by_slice \(words\)"),
    ("multiple_choice", ["test", "by_slice", "choices: 4", "examples"], 900, "has 900 examples, and the whole 1,000"),
    ("question_answering", ["validation", "f1"], 0.5, r"f1 is 0.5, and 0.0333333 according to .*by_slice \(asks\)"),
    ("question_answering", ["test", "exact_match"], 1, r"exact_match is 1, and 0 according to"),
    ("regression", ["validation", "pearson"], 0.9, "interval is 0.784365 to 0.880934, without the score 0.9"),
    ("regression", ["validation", "mean_squared_error"], 0.3, r"according to .*by_slice \(words\)"),
    ("token_classification", ["test", "accuracy"], 0.9, r"according to .*by_slice \(words\)"),
    ("char_lm", ["test", "bits_per_character"], 2.0, "bits_per_character is 2, and 3.6703 according to"),
    ("causal_lm", ["test", "before", "perplexity"], 9.0, "before.perplexity is 9, and 319.289 according to"),
    ("masked_lm", ["test", "pseudo_perplexity"], 9.0, "pseudo_perplexity is 9, and 314.581 according to"),
    ("char_lm", ["test", "accuracy"], [0.5], ""),
    ("classification", ["test", "by_slice"], "all", "metrics are not as a recipe writes them"),
    ("classification", ["test", "confusion"], [[1, 2], [3]], "metrics are not as a recipe writes them"),
    ("classification", ["test", "confusion"], [], "confusion has 0 examples, and 200 are stated"),
    ("regression", ["validation", "pearson_interval"], None, "metrics are not as a recipe writes them"),
    ("char_lm", ["test", "nats_per_character"], "2", "metrics are not as a recipe writes them"),
]


@pytest.mark.parametrize(("card", "place", "value", "message"), EDITS)
def test_an_edited_score_contradicts_another(card: str, place: list[Any], value: Any, message: str) -> None:
    results = read(card)
    *there, name = place
    scores = results["metrics"]
    for each in there:
        scores = scores[each]
    scores[name] = value
    if not message:  # a score that nothing else repeats
        check_consistency(results)
        return
    with pytest.raises(AssertionError, match=message):
        check_consistency(results)
