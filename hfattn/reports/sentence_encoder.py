"""The report of the recipe sentence_encoder, and the scores without training that it states beside those of a run."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..baselines.sentences import WordMeans
from ..data import EncodedTextPairs, PairNumbers, TextPairs
from ..hub.fingerprints import synthetic_text
from ..metrics.sentences import cosines, sentence_scores
from ..pictures import Picture
from ..sentence_encoders import SentenceEncoder, SentenceModules, write_modules
from ..tokenizers import uncovered_characters
from ..training import scores_of_part
from .base import TrainedRun, leave_behind, shown_part

EXAMPLES = ("A man is playing a guitar.", "Someone is playing an instrument.", "A dog is running through the snow.")
SIF = 1e-3  # the parameter a of smooth inverse frequency (Arora et al. 2017, section 4.1)
_LONGEST = 120  # characters of a text in a table
_MAIN = ("spearman", "pearson", "average_precision", "recall_at_1")  # one of these is in every part
Found = tuple[dict[str, Any], np.ndarray]  # metrics, and the vectors of the texts


def baselines(
    config: Any,
    data: Any,
    parts: Mapping[str, TextPairs],
    train: TextPairs,
    encoder: SentenceEncoder,
    teacher: Mapping[str, torch.Tensor | None],
    rows: int,
) -> dict[str, dict[str, Any]]:
    """Return the scores of what is not trained, by name and part.

    These are the pretrained encoder before the training; the teacher, for both texts of a pair; and, if there are word
    vectors, their means, plain and by smooth inverse frequency, whose frequencies are those of the training texts.

    Args:
        config: the configuration of the recipe.
        data: its section ``data``.
        parts: the pairs of each part.
        train: the pairs that are trained on.
        encoder: the encoder before the training.
        teacher: vectors of a teacher for the texts of each part; None without one.
        rows: number of texts that a model reads at once.
    """
    texts = {part: PairNumbers(pairs).texts for part, pairs in parts.items() if part != "train"}
    vectors: dict[str, dict[str, np.ndarray]] = {}
    if config.sentence.loss == "distillation":
        vectors["teacher"] = {part: each.numpy() for part in texts if (each := teacher[part]) is not None}
    if config.pretrained is not None and config.pretrained.name != config.teacher.name:
        vectors["before training"] = {part: encoder.embed(each, rows).numpy() for part, each in texts.items()}
    if data.vectors is not None:
        for name, a in (("mean of word vectors", None), ("SIF", SIF)):
            means = WordMeans(data.vectors, data.words, a).fit(PairNumbers(train).texts)
            vectors[name] = {part: means.transform(each) for part, each in texts.items()}
    labels = tuple(data.positive_labels)
    return {
        name: {part: sentence_scores(parts[part], each, labels) for part, each in of_parts.items()}
        for name, of_parts in vectors.items()
    }


def report(
    run: TrainedRun,
    modules: SentenceModules,
    parts: Mapping[str, TextPairs],
    train: EncodedTextPairs,
    found: Mapping[str, Found],
    before: Mapping[str, Any],
    facts: Mapping[str, Any],
    span: tuple[float, float],
) -> None:
    """Save the model and write all other output files of the run.

    Args:
        run: the finished run.
        modules: what is done with the outputs of the model.
        parts: the pairs of each part, training included.
        train: the pairs that were trained on.
        found: metrics and vectors of the other parts.
        before: what ``baselines`` returned.
        facts: facts about the model, for ``results.json``.
        span: the scores of the cosines 0 and 1.
    """
    run.save()
    write_modules(run.folder, modules, facts["width"])
    config: Any = run.config
    shown, quotes = shown_part(parts), run.texts == "samples"
    metrics = {part: scores_of_part(scores, part) for part, (scores, _) in found.items()}
    pairs, vectors = parts[shown], found[shown][1]
    scored = pairs.items[0].score is not None
    if scored:
        low, high = span = span if config.sentence.loss == "cosine" else score_limits(pairs)
        targets = [(item.score - low) / (high - low) for item in pairs if item.score is not None]
        points = {"right": targets, "predicted": pair_cosines(pairs, vectors).tolist(), "label": "cosine"}
        run.pictures.append(Picture("predictions.png", "predictions", {**points, "title": run.title}))
    texts, positive = example_texts(run, pairs), config.data.positive_labels
    sections = {
        "data": {
            "name": parts["train"].name,
            "max_length": config.data.max_length,
            "scored": scored,
            "trained": len(train),
            "parts": {part: {"pairs": len(each), "sha256": each.fingerprint} for part, each in parts.items()},
        },
        "model": dict(facts),
        "metrics": metrics,
        "baselines": before,
        "training": run.training_facts("pairs", len(train)),
        "samples": largest_errors(pairs, vectors, span, positive, config.sample.mistakes) if quotes else [],
        "own_code": any(run.folder.glob("modeling_*.py")),  # a model of this package, whose code is beside its weights
        "example": {"texts": texts},
    }
    lines = ["", f"{'':24}{'pairs':>8}" + "".join(f"{name:>20}" for name in _MAIN if name in metrics[shown])]
    for part in metrics:
        named = {part: metrics[part], **{f"  {name}": each[part] for name, each in before.items()}}
        for name, scores in named.items():
            values = "".join(f"{scores[each]:20.4f}" for each in _MAIN if each in scores)
            lines.append(f"{name:24}{len(parts[part]):8d}{values}")
    summary = "\n".join([*lines, "", f"Model, results, curve and card: {run.folder}"])
    leave_behind(run, sections, summary, texts[:2], loss="loss", loss_unit=f"{config.sentence.loss} loss")


def score_limits(pairs: TextPairs) -> tuple[float, float]:
    """Return the lowest and the highest score of pairs; 0 and 1 if all are equal."""
    scores = [item.score for item in pairs if item.score is not None]
    return (min(scores), max(scores)) if min(scores) < max(scores) else (0.0, 1.0)


def pair_cosines(pairs: TextPairs, vectors: np.ndarray) -> np.ndarray:
    """Return the cosine of the two texts of each pair, (N,)."""
    rows = PairNumbers(pairs).rows
    return cosines(vectors[rows[:, 0]], vectors[rows[:, 1]])


def example_texts(run: TrainedRun, pairs: TextPairs) -> list[str]:
    """Return the texts that the code of the card compares: those of the configuration, of the data, or made up."""
    config: Any = run.config
    if config.sample.examples and run.texts != "none":
        return list(config.sample.examples)
    if run.texts == "samples":
        first = pairs.items[0]
        other = next((item.pair for item in pairs if item.pair not in (first.text, first.pair)), first.text)
        return [first.text, first.pair, other]
    if uncovered_characters(run.tokenizer, "".join(EXAMPLES)):
        return [synthetic_text(run.tokenizer)] * 2
    return list(EXAMPLES)


def largest_errors(
    pairs: TextPairs, vectors: np.ndarray, span: tuple[float, float], positive: Sequence[str], number: int
) -> list[dict[str, Any]]:
    """Return the pairs whose cosine is farthest from what it should be.

    That is the cosine of their score, 1 for a pair that belongs together, and 0 for one that does not.
    """
    low, high = span
    found = pair_cosines(pairs, vectors)
    belong = [item.label is None or not positive or pairs.labels[item.label] in positive for item in pairs]
    right = np.array(
        [
            float(together) if item.score is None else (item.score - low) / (high - low)
            for item, together in zip(pairs, belong, strict=True)
        ]
    )
    return [
        {
            "place": pairs.place(i),
            "text": " | ".join(_shortened(text) for text in (pairs.items[i].text, pairs.items[i].pair)),
            "right": None if pairs.items[i].score is None else f"{pairs.items[i].score:g}",
            "cosine": f"{found[i]:.2f}",
        }
        for i in np.argsort(-np.abs(found - right), kind="stable")[:number].tolist()
    ]


def _shortened(text: str) -> str:
    return textwrap.shorten(text, _LONGEST, placeholder=" …")
