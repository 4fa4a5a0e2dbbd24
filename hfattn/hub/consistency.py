"""Check that the numbers in ``results.json`` do not contradict each other: what an edited score can give away."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# Relative difference of two sums of the same numbers in another order, in single precision.
_TOLERANCE = 1e-5
_SHARES = (
    *("accuracy", "agreement", "calibration_error", "chance", "coverage", "exact_match", "f1", "flipped"),
    *("mrr", "precision", "recall", r"recall_at_\d+", "rouge[12L]"),
)
LIMITS = (  # of scores, by a pattern of their names
    (re.compile(rf"(\w+_)?({'|'.join(_SHARES)})|f1_.+"), 0.0, 1.0),
    (re.compile(r"bleu|bleu_lowercase|chrf"), 0.0, 100.0),
    (re.compile(r"brier"), 0.0, 2.0),
    (re.compile(r"pearson|spearman"), -1.0, 1.0),
    (re.compile(r"(nats|bits)_per_\w+|mean_squared_error"), 0.0, math.inf),
    (re.compile(r"(pseudo_)?perplexity(_per_\w+)?"), 1.0, math.inf),
)
# Groups of slices to which each example belongs once. A text can have several words, or none.
_LENGTH = re.compile(r"^(.*?)\d+(?:-\d+|\+) words$")


def check_consistency(results: Mapping[str, Any]) -> str:
    """Check that the scores of a run do not contradict each other.

    A score is in its range and in its own interval; scores of slices have the mean of the whole, and slices its number
    of examples; a confusion matrix has the accuracy and the F1 that are stated; a perplexity is the exponential of
    its nats; BLEU of lowercased texts is not below BLEU. Whoever edits all numbers consistently passes.

    Args:
        results: content of ``results.json``.

    Returns:
        The number of comparisons.

    Raises:
        AssertionError: the first contradiction, and what to do.
    """
    number = 0
    try:
        for holds, sentence in _comparisons(results.get("metrics", {}), "metrics"):
            assert holds, f"{sentence}; copy results.json from the run again, or train again"
            number += 1
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise AssertionError(f"metrics are not as a recipe writes them ({reason}); copy results.json again") from error
    return f"{number:,} comparisons of scores with each other"


def _comparisons(scores: Mapping[str, Any], place: str) -> Iterator[tuple[bool, str]]:
    """Yield whether each relation between the scores holds, and a sentence for the case that it does not."""
    for name, value in scores.items():
        there = f"{place}.{name}"
        if isinstance(value, Mapping) and name != "signatures":
            yield from _comparisons(value, there)
        elif type(value) in (int, float):
            for pattern, low, high in LIMITS:
                if pattern.fullmatch(name):
                    slack = 1e-9 * high if high < math.inf else 1e-9
                    yield low - slack <= value <= high + slack, f"{there} is {value}, outside {low:g} to {high:g}"
        if name.endswith("_interval"):
            low, high = value
            score = scores[name.removesuffix("_interval")]
            slack = _TOLERANCE * max(1.0, abs(score))
            if name == "bleu_interval":  # the bootstrap of few pairs is biased, because BLEU is not a mean
                slack += 100 / next(scores[each] for each in ("translated", "pairs", "images") if each in scores)
            holds = low - slack <= score <= high + slack
            yield holds, f"{there} is {low:.6g} to {high:.6g}, without the score {score:.6g}"
    if "bleu_lowercase" in scores:
        bleu, lower = scores["bleu"], scores["bleu_lowercase"]
        yield bleu <= lower + 1e-6, f"{place}.bleu is {bleu:.6g}, above {lower:.6g}, that of lowercased texts"
    for name, value in scores.items():
        yield from _likelihoods(name, value, scores, place)
    if "confusion" in scores:
        yield from _confusion(scores, place)
    if "by_slice" in scores:
        yield from _slices(scores, place)
    if "pairs_by_kind" in scores:
        counts, shares = scores["pairs_by_kind"], scores["exact_match_by_kind"]
        if counts and sum(counts.values()) == scores["translated"]:  # a pair of other data has no kind
            mean = sum(shares[kind] * number for kind, number in counts.items()) / scores["translated"]
            yield _same(scores, "exact_match", mean, f"{place}.exact_match_by_kind", place)
    if (rows := scores.get("by_source_length")) and "pairs" in scores:
        pairs, whole = sum(row["pairs"] for row in rows), scores.get("translated", scores["pairs"])
        yield pairs == whole, f"{place}.by_source_length has {pairs:,} pairs, and {whole:,} were translated"


def _likelihoods(name: str, value: Any, scores: Mapping[str, Any], place: str) -> Iterator[tuple[bool, str]]:
    """Compare a likelihood in nats with the same in bits, and with the perplexity."""
    if not name.startswith("nats_per_"):
        return
    unit = name.removeprefix("nats_per_")
    if (bits := f"bits_per_{unit}") in scores:
        yield _same(scores, bits, value / math.log(2), f"{place}.{name}", place)
    perplexity = "pseudo_perplexity" if unit == "masked_token" else "perplexity"
    # A text is scored by token and, to compare tokenizers, by character; its perplexity is that of tokens.
    if perplexity in scores and (unit != "character" or "nats_per_token" not in scores):
        expected = math.exp(value) if value < 709 else math.inf
        yield _same(scores, perplexity, expected, f"{place}.{name}", place, max(1.0, value))


def _confusion(scores: Mapping[str, Any], place: str) -> Iterator[tuple[bool, str]]:
    matrix: Sequence[Sequence[int]] = scores["confusion"]
    right, columns = [row[i] for i, row in enumerate(matrix)], [sum(column) for column in zip(*matrix, strict=True)]
    examples = sum(columns)
    source = f"{place}.confusion"
    yield examples == scores["examples"], f"{source} has {examples:,} examples, and {scores['examples']:,} are stated"
    yield _same(scores, "accuracy", sum(right) / examples, source, place)
    sums = [sum(row) + column for row, column in zip(matrix, columns, strict=True)]
    each = [2 * both / total for both, total in zip(right, sums, strict=True) if total]
    yield _same(scores, "f1", sum(each) / len(each), source, place)


def _slices(scores: Mapping[str, Any], place: str) -> Iterator[tuple[bool, str]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for name, each in scores["by_slice"].items():
        length = _LENGTH.match(name)
        group = f"{length[1]}words" if length else name.partition(": ")[0]
        if group != "word" and each["examples"]:
            groups.setdefault(group, []).append(each)
    whole = next(scores[count] for count in ("examples", "questions", "sentences") if count in scores)
    # Scores that are means. The F1 of answers is one, unlike that of classes.
    means = ("exact_match", "f1") if "questions" in scores else ("accuracy", "mean_squared_error")
    for group, slices in groups.items():
        source = f"{place}.by_slice ({group})"
        examples = sum(each["examples"] for each in slices)
        yield examples == whole, f"{source} has {examples:,} examples, and the whole {whole:,}"
        count = "words" if "words" in scores else "examples"  # of tags, the accuracy is that of words
        for score in means:
            if score in scores:
                mean = sum(each[score] * each[count] for each in slices) / sum(each[count] for each in slices)
                yield _same(scores, score, mean, source, place)


def _same(
    scores: Mapping[str, Any], name: str, value: float, source: str, place: str, factor: float = 1.0
) -> tuple[bool, str]:
    """Compare a score with its value according to other numbers."""
    stated = scores[name]
    same = stated == value or math.isclose(stated, value, rel_tol=factor * _TOLERANCE, abs_tol=_TOLERANCE**2)
    return same, f"{place}.{name} is {stated:.6g}, and {value:.6g} according to {source}"
