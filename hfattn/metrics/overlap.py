"""Metrics of translations by the n-grams they share with right ones, over sacreBLEU.

BLEU is that of Papineni et al. 2002, chrF that of Popović 2015. Either is comparable only with the signature that says
how it was computed (Post 2018, "A Call for Clarity in Reporting BLEU Scores").
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import datasets
import evaluate
import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from ..errors import UserError
from .checks import PairedMetric, check_examples
from .slices import SENTENCE_EDGES, length_groups

References = Sequence[str] | Sequence[Sequence[str]]


def reference_lists(references: References) -> list[list[str]]:
    """The right texts of each prediction as a list, also where each has one.

    Raises:
        UserError: a prediction has none.
    """
    lists = [[one] if isinstance(one, str) else list(one) for one in references]
    if [] in lists:
        raise UserError(f"Prediction {lists.index([]) + 1} has no reference; give at least one right text for each.")
    return lists


class CorpusScore:
    """sacreBLEU's score of a corpus that comes in batches, in constant memory.

    Either score is a function of counts that are summed over the sentences; these sums are all that is kept.

    Args:
        metric: sacreBLEU's own, with the options that its signature names.
    """

    def __init__(self, metric: BLEU | CHRF) -> None:
        self.metric = metric
        self._sums: np.ndarray | None = None
        self._numbers_of_references: set[int] = set()

    def add(self, predictions: Sequence[str], references: References) -> None:
        """Count a batch of texts, each with its right text, or with all of its right texts.

        Raises:
            UserError: there are none, their numbers differ, or a prediction has no reference.
        """
        check_examples(predictions=predictions, references=references)
        # sacreBLEU wants the first references of all predictions, then the second ones, None where there is none.
        columns = list(zip_longest(*reference_lists(references)))
        # Its public methods add these counts up too, but only for a whole corpus at once.
        counts = np.sum(self.metric._extract_corpus_statistics(predictions, columns), axis=0)
        self._sums = counts if self._sums is None else self._sums + counts
        self._numbers_of_references.add(self.metric.num_refs)

    def compute(self) -> tuple[float, str]:
        """The score of what was added until now, from 0 to 100, and its signature.

        Raises:
            UserError: nothing was.
        """
        if self._sums is None:
            raise UserError("There is nothing to score; add a batch of predictions first.")
        numbers = self._numbers_of_references
        self.metric.num_refs = max(numbers) if len(numbers) == 1 else -1  # sacreBLEU's sign of several numbers
        score = self.metric._compute_score_from_stats(self._sums.tolist()).score
        return float(score), str(self.metric.get_signature())


def bootstrap_interval(
    metric: BLEU | CHRF, predictions: Sequence[str], references: References, draws: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """Between which scores 95 % of the corpora lie that are drawn from n sentences, n with replacement (Koehn 2004,
    "Statistical Significance Tests for Machine Translation Evaluation", section 3)."""
    counts = np.asarray(metric._extract_corpus_statistics(predictions, list(zip_longest(*reference_lists(references)))))
    generator = np.random.default_rng(seed)
    scores = []
    for _ in range(draws):
        often = np.bincount(generator.integers(len(counts), size=len(counts)), minlength=len(counts))
        scores.append(metric._compute_score_from_stats((often @ counts).tolist()).score)
    low, high = np.percentile(scores, [2.5, 97.5])
    return float(low), float(high)


def _bleu(lowercase: bool = False, tokenize: str = "13a") -> BLEU:
    if tokenize not in BLEU.TOKENIZERS:
        raise UserError(f"BLEU has no tokenizer {tokenize!r}; write one of {', '.join(BLEU.TOKENIZERS)}.")
    return BLEU(lowercase=lowercase, tokenize=tokenize)


class _Overlap(PairedMetric):
    """Of texts with one right text each, or with several."""

    description: str

    def _info(self) -> evaluate.MetricInfo:
        text, texts = datasets.Value("string"), datasets.Sequence(datasets.Value("string"))
        return evaluate.MetricInfo(
            description=self.description,
            citation="",
            inputs_description="predictions: generated texts; references: the right text of each, or a list of them.",
            features=[
                datasets.Features({"predictions": text, "references": texts}),
                datasets.Features({"predictions": text, "references": text}),
            ],
        )


class Bleu(_Overlap):
    """BLEU of a corpus, with sacreBLEU's signature.

    ``compute(predictions=texts, references=texts, lowercase=False, tokenize="13a")`` returns ``{"bleu": ...,
    "signature": ...}``, from 0 to 100; ``references`` may hold a list of right texts for each. BLEU is 0 where no
    prediction has four tokens.
    """

    description = "n-gram precision of a corpus of translations, with a penalty for those that are too short."

    def _compute(
        self, predictions: Any, references: Any, lowercase: bool = False, tokenize: str = "13a"
    ) -> dict[str, float | str]:
        score = CorpusScore(_bleu(lowercase, tokenize))
        score.add(predictions, references)
        return dict(zip(("bleu", "signature"), score.compute(), strict=True))


class ChrF(_Overlap):
    """chrF of a corpus, with sacreBLEU's signature.

    ``compute(predictions=texts, references=texts, lowercase=False)`` returns ``{"chrf": ..., "signature": ...}``, from
    0 to 100; ``references`` may hold a list of right texts for each.
    """

    description = "F-score of the character n-grams of a corpus of translations."

    def _compute(self, predictions: Any, references: Any, lowercase: bool = False) -> dict[str, float | str]:
        score = CorpusScore(CHRF(lowercase=lowercase))
        score.add(predictions, references)
        return dict(zip(("chrf", "signature"), score.compute(), strict=True))


def bleu_by_length(
    sources: Sequence[str],
    predictions: Sequence[str],
    references: References,
    edges: Sequence[int] = SENTENCE_EDGES,
) -> list[dict[str, Any]]:
    """BLEU of the pairs whose sources have about the same length, as in figure 2 of Bahdanau et al. 2015.

    Args:
        sources: (n,) texts.
        predictions: (n,) their translations.
        references: (n,) their right translations, or a list of these for each.
        edges: the fewest words of a group, ascending; words are what white space separates.

    Returns:
        For each group that is not empty: ``from`` and ``to`` in words (``to`` is None in the last), the number of
        ``pairs``, ``bleu`` from 0 to 100.

    Raises:
        UserError: the numbers differ, there are none, or a source fits in no group.
    """
    check_examples(sources=sources, predictions=predictions, references=references)
    rows = []
    for low, high, mask in length_groups(sources, edges):
        score = CorpusScore(_bleu())
        kept = np.flatnonzero(mask).tolist()
        score.add([predictions[i] for i in kept], [references[i] for i in kept])
        rows.append({"from": low, "to": high, "pairs": len(kept), "bleu": score.compute()[0]})
    return rows


def translation_report(sources: Sequence[str], predictions: Sequence[str], references: References) -> dict[str, Any]:
    """All that is said of a system's translations when it is finished.

    Args:
        sources, predictions, references: as in ``bleu_by_length``.

    Returns:
        ``bleu``, and ``bleu_interval``, its ``bootstrap_interval``; ``bleu_lowercase``, after both sides were
        lower-cased, as most work on Multi30k reports it; ``chrf``; ``exact_match``, the share that is one of its
        references character for character; ``pairs``; ``signatures`` of the three scores; and ``by_source_length``, the
        rows of ``bleu_by_length``.

    Raises:
        UserError: as ``bleu_by_length``.
    """
    check_examples(sources=sources, predictions=predictions, references=references)
    report: dict[str, Any] = {}
    signatures = {}
    for name, metric in (("bleu", _bleu()), ("bleu_lowercase", _bleu(lowercase=True)), ("chrf", CHRF())):
        score = CorpusScore(metric)
        score.add(predictions, references)
        report[name], signatures[name] = score.compute()
    report["bleu_interval"] = list(bootstrap_interval(_bleu(), predictions, references))
    right = [one in several for one, several in zip(predictions, reference_lists(references), strict=True)]
    return {
        **report,
        "exact_match": sum(right) / len(right),
        "pairs": len(right),
        "signatures": signatures,
        "by_source_length": bleu_by_length(sources, predictions, references),
    }


__all__ = ["Bleu", "ChrF", "CorpusScore", "References", "bleu_by_length", "reference_lists", "translation_report"]
