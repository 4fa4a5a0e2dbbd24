"""The report of the recipe question_answering."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..data import EncodedQuestions, FoundAnswer, Questions
from ..hub.fingerprints import synthetic_text
from ..metrics import AnswerMetric, answer_f1, best_null_threshold, column_slices, length_slices, scores_by_slice
from .base import TrainedRun, leave_behind, shown_part

LONGEST_SHOWN = 200  # characters of a question or an answer in a table
QUESTION_WORDS = ("how many", "how", "what", "when", "where", "which", "who", "whom", "whose", "why")


class EvaluatedQuestions(NamedTuple):
    """The scores of one part, and the predicted answer to each of its questions."""

    metrics: dict[str, Any]
    answers: list[FoundAnswer]


def report(
    run: TrainedRun,
    encoded: Mapping[str, EncodedQuestions],
    evaluated: Mapping[str, EvaluatedQuestions],
    tuning: Mapping[str, Any],
    *,
    columns: Sequence[str],
    mistakes: int,
) -> None:
    """Save the model and write all other output files of the run.

    Args:
        run: the finished run.
        encoded: the questions of each part, training included.
        evaluated: what was measured on the other parts.
        tuning: what was trained of which pretrained model, as ``tuning_facts`` returns it.
        columns: columns of the data with a slice for each value.
        mistakes: number of wrong answers to show.
    """
    train, shown = encoded["train"], shown_part(evaluated)
    run.save()
    samples = wrong_answers(encoded[shown], evaluated[shown].answers, mistakes if run.texts == "samples" else 0)
    if run.texts == "samples":
        example = answered_question(encoded[shown], evaluated[shown].answers)
    else:
        example = {"question": "What is this?", "context": synthetic_text(run.tokenizer)}
    sections: dict[str, Any] = {
        "data": {
            "name": train.questions.name,
            "unanswerable": train.null_threshold is not None,
            "max_length": train.max_length,
            "overlap": train.overlap,
            "max_answer_length": train.max_answer_length,
            "null_threshold": train.null_threshold,
            "parts": {
                part: {
                    "questions": len(dataset.questions),
                    "windows": len(dataset),
                    "lost_answers": dataset.lost,
                    "sha256": dataset.questions.fingerprint,
                }
                for part, dataset in encoded.items()
            },
        },
        "model": {"model_type": run.model.config.model_type, **tuning},
        "metrics": {
            part: part_scores(encoded[part].questions, train.null_threshold, each, columns)
            for part, each in evaluated.items()
        },
        "training": run.training_facts("windows", len(train)),
        "samples": samples,
        "example": example,
    }
    texts = [(example["question"], example["context"])]
    leave_behind(run, sections, summary(run.folder, sections["metrics"]), texts, loss="nats_per_window")


def part_scores(
    questions: Questions,
    null_threshold: float | None,
    evaluated: EvaluatedQuestions,
    columns: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the scores of a part, overall and by slice; with unanswerable questions also for the best threshold."""
    items = questions.items
    slices = column_slices("asks", [question_word(item.question) for item in items])
    slices |= {f"context of {name}": mask for name, mask in length_slices([item.context for item in items]).items()}
    if null_threshold is not None:
        slices |= column_slices("answer", ["there is one" if item.answers else "there is none" for item in items])
    for column in columns:
        slices |= column_slices(column, [item.fields[column] for item in items])
    texts = [answer.text for answer in evaluated.answers]
    scores = {**evaluated.metrics, "by_slice": scores_by_slice(AnswerMetric(), texts, questions.references, slices)}
    if null_threshold is not None:
        spans, margins = zip(*((answer.span, answer.null_margin) for answer in evaluated.answers), strict=True)
        scores["best_threshold"], scores["best_threshold_f1"] = best_null_threshold(
            spans, margins, questions.references
        )
    return scores


def question_word(question: str) -> str:
    """Return the first question word of a question, such as "when"; "otherwise" if it has none."""
    pattern = "|".join(sorted(QUESTION_WORDS, key=len, reverse=True))
    found = re.search(rf"\b({pattern})\b", question.lower())
    return found[1] if found else "otherwise"


def wrong_answers(dataset: EncodedQuestions, answers: Sequence[FoundAnswer], number: int) -> list[dict[str, str]]:
    """Return wrong answers: those with the lowest F1 first, and among equals the most confident first."""
    graded = [
        (answer_f1(answer.text, right), -answer.probability, i)
        for i, (answer, right) in enumerate(zip(answers, dataset.references, strict=True))
    ]
    samples = []
    for _, _, i in sorted(each for each in graded if each[0] < 1)[:number]:
        right = " / ".join(dict.fromkeys(dataset.references[i])) or "(none)"
        shown = {"question": dataset.questions.items[i].question, "right": right, "answer": answers[i].text or "(none)"}
        samples.append(
            {
                "place": dataset.questions.place(i),
                **{name: textwrap.shorten(text, LONGEST_SHOWN, placeholder=" …") for name, text in shown.items()},
                "probability": f"{answers[i].probability:.2f}",
            }
        )
    return samples


def answered_question(dataset: EncodedQuestions, answers: Sequence[FoundAnswer]) -> dict[str, str]:
    """Return the question with the shortest input and the model's answer to it."""
    items = dataset.questions.items
    shortest = min(range(len(items)), key=lambda i: len(dataset.rows[dataset.rows_of[i][0]]["input_ids"]))
    item = items[shortest]
    return {"question": item.question.strip(), "context": item.context, "answer": answers[shortest].text}


def summary(folder: Path, metrics: Mapping[str, Any]) -> str:
    """Return the scores of each part and slice as text."""
    lines = ["", f"{'':28}{'questions':>10}{'exact match':>13}{'F1':>9}"]
    for part, score in metrics.items():
        lines.append(
            f"{part.replace('_', ' '):28}{score['questions']:10d}{score['exact_match']:13.4f}{score['f1']:9.4f}"
        )
        if "best_threshold" in score:
            lines.append(
                f"{'':4}F1 {score['best_threshold_f1']:.4f} with the best null threshold, {score['best_threshold']:.3f}"
            )
    shown = metrics[shown_part(metrics)]
    lines += ["", f"{'slice':28}{'questions':>10}{'exact match':>13}{'F1':>9}"]
    lines += [
        f"{name:28}{score['examples']:10d}{score['exact_match']:13.4f}{score['f1']:9.4f}"
        for name, score in shown["by_slice"].items()
        if score["examples"]
    ]
    return "\n".join([*lines, "", f"Model, results, curve and table: {folder}"])
