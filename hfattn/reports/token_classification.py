"""The report of the recipe token_classification."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase, pipeline

from ..data import EncodedSentences, TaggedSentences
from ..hub.fingerprints import synthetic_text
from ..metrics import EntityMetric, column_slices, find_entities, length_slices, scores_by_slice
from ..metrics.slices import SENTENCE_EDGES
from ..training import contextual_facts, mixture_lines
from .base import TrainedRun, leave_behind, quotable, shown_part

LONGEST_SHOWN = 300  # characters of a sentence in a table


class EvaluatedSentences(NamedTuple):
    """The evaluation of one part.

    Attributes:
        metrics: the scores of the whole part.
        predicted: the predicted tags of each sentence.
        nats: negative log-likelihood of the right tags of each sentence.
    """

    metrics: dict[str, Any]
    predicted: list[list[str]]
    nats: list[float]


def report(
    run: TrainedRun,
    encoded: Mapping[str, EncodedSentences],
    evaluated: Mapping[str, EvaluatedSentences],
    vectors: Mapping[str, Any] | None,
    tuning: Mapping[str, Any],
    columns: Sequence[str],
    mistakes: int,
) -> None:
    """Save the model and write all other output files of the run.

    Args:
        run: the finished run.
        encoded: the sentences of each part, training included.
        evaluated: what was measured on the other parts.
        vectors: facts about the word vectors of the embeddings, as ``WordVectorsConfig.load`` returns them.
        tuning: what was trained of which pretrained model, as ``tuning_facts`` returns it.
        columns: columns of the data with a slice for each value.
        mistakes: number of sentences with wrong entities to show.
    """
    parts = {part: dataset.sentences for part, dataset in encoded.items()}
    train, shown = encoded["train"], shown_part(parts)
    run.save()
    samples = sentences_with_mistakes(parts[shown], evaluated[shown], mistakes if run.texts == "samples" else 0)
    text = first_with_entity(parts[shown]) if run.texts == "samples" else synthetic_text(run.tokenizer)
    example = found_entities(run.model, run.tokenizer, text)
    sections: dict[str, Any] = {
        "data": {
            "name": train.sentences.name,
            "labels": train.sentences.labels,
            "max_length": train.max_length,
            "too_long": train.too_long,
            "overlap": train.overlap,
            "label_all_pieces": train.label_all_pieces,
            **quotable(run, {"vectors": vectors} if vectors else {}),
            "parts": {
                part: {
                    "sentences": len(dataset.sentences),
                    "windows": len(dataset),
                    "undecided_words": dataset.undecided,
                    "sha256": dataset.sentences.fingerprint,
                }
                for part, dataset in encoded.items()
            },
        },
        "model": {
            "model_type": run.model.config.model_type,
            **tuning,
            **contextual_facts(run.model, run.config),
        },
        "metrics": {part: part_scores(parts[part], each, columns) for part, each in evaluated.items()},
        "training": run.training_facts("windows", len(train)),
        "samples": samples,
        "example": example,
    }
    leave_behind(
        run, sections, summary(run.folder, sections["metrics"], tuning), [example["text"]], loss="nats_per_word"
    )


def part_scores(
    sentences: TaggedSentences, evaluated: EvaluatedSentences, columns: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the scores of a part: overall, by type of entity and by slice."""
    references = [item.tags for item in sentences]
    whole = EntityMetric().compute(predictions=evaluated.predicted, references=references)
    slices = length_slices([" ".join(item.words) for item in sentences], SENTENCE_EDGES)
    for column in columns:
        slices |= column_slices(column, [item.fields[column] for item in sentences])
    by_slice = scores_by_slice(EntityMetric(), evaluated.predicted, references, slices)
    for scores in by_slice.values():
        scores.pop("entities_by_type", None)
    return {**evaluated.metrics, "entities_by_type": whole["entities_by_type"], "by_slice": by_slice}


def sentences_with_mistakes(
    sentences: TaggedSentences, evaluated: EvaluatedSentences, number: int
) -> list[dict[str, str]]:
    """Return the sentences with wrong entities, those whose right tags were least likely first."""
    samples: list[dict[str, str]] = []
    for i in np.argsort(-np.array(evaluated.nats), kind="stable").tolist():
        item = sentences.items[i]
        right, found = (set(find_entities(tags)) for tags in (item.tags, evaluated.predicted[i]))
        if right == found or len(samples) == number:
            continue
        missed, wrong = (
            "; ".join(
                f"{' '.join(item.words[e.start : e.end])} [{e.type}]" for e in sorted(each, key=lambda e: e.start)
            )
            for each in (right - found, found - right)
        )
        text = textwrap.shorten(" ".join(item.words), LONGEST_SHOWN, placeholder=" …")
        samples.append(
            {"place": sentences.place(i), "sentence": text, "missed": missed or "–", "found instead": wrong or "–"}
        )
    return samples


def first_with_entity(sentences: TaggedSentences) -> str:
    """Return the first sentence with an entity, or else the first one."""
    return " ".join(next((item for item in sentences if set(item.tags) > {"O"}), sentences.items[0]).words)


def found_entities(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str) -> dict[str, Any]:
    """Return a sentence and the entities that the pipeline of the card finds in it."""
    find = pipeline("token-classification", model=model, tokenizer=tokenizer, aggregation_strategy="first")
    found = [{"type": each["entity_group"], "text": text[each["start"] : each["end"]]} for each in find(text)]
    return {"text": text, "entities": found}


def summary(folder: Path, metrics: Mapping[str, Any], model: Mapping[str, Any] | None = None) -> str:
    """Return the scores of each part, type and slice, and what the facts of a model say of mixtures, as text."""
    lines = ["", f"{'':24}{'entities':>10}{'precision':>11}{'recall':>9}{'F1':>9}{'accuracy':>10}"]
    for part, score in metrics.items():
        lines.append(f"{part.replace('_', ' '):24}{_row(score)}{score['accuracy']:10.4f}")
    shown = metrics[shown_part(metrics)]
    lines += ["", f"{'type':24}{'entities':>10}{'precision':>11}{'recall':>9}{'F1':>9}"]
    lines += [f"{kind:24}{_row(score)}" for kind, score in shown["entities_by_type"].items()]
    lines += ["", f"{'slice':24}{'entities':>10}{'precision':>11}{'recall':>9}{'F1':>9}"]
    lines += [f"{name:24}{_row(score)}" for name, score in shown["by_slice"].items() if score.get("entities")]
    return "\n".join([*lines, "", *mixture_lines(model or {}), f"Model, results, curve and table: {folder}"])


def _row(score: Mapping[str, Any]) -> str:
    return f"{score['entities']:10d}{score['precision']:11.4f}{score['recall']:9.4f}{score['f1']:9.4f}"
