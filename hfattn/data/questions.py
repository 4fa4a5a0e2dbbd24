"""Extractive question answering: read questions, encode them, and decode a model's answers.

The format is that of SQuAD: a question has a context and, unless it is unanswerable, one or more correct answers, each
with the character of the context at which it starts.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from .batches import TrainingExamples
from .encoding import lengths_of
from .examples import Examples
from .model_limits import prepare_positions
from .rows import Rows, Source, local_file, open_rows


class Answer(NamedTuple):
    """A passage of a context, and the character at which it starts."""

    text: str
    start: int


class Question(NamedTuple):
    """A question about a context, with its correct answers (empty if it is unanswerable), id, and line or row."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()
    line: int | None = None
    fields: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Questions(Examples[Question]):
    """Questions in memory."""

    noun = "Question"
    shared_name = "context"

    def columns(self, item: Question) -> tuple[str, ...]:
        return item.question, item.context, *(f"{answer.start} {answer.text}" for answer in item.answers)

    def texts(self, item: Question) -> tuple[str, ...]:
        return item.question, item.context

    def shared_key(self, item: Question) -> str:
        return item.context

    @property
    def references(self) -> list[list[str]]:
        """The correct answers to each question."""
        return [[answer.text for answer in item.answers] for item in self.items]

    def place(self, index: int) -> str:
        return f"{super().place(index)} (id {self.items[index].id!r})"


def read_questions(
    dataset: Source,
    *,
    unanswerable: bool = False,
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
) -> Questions:
    """Read questions.

    Args:
        dataset: path of a ``.json`` file of SQuAD 1.1 or 2.0; or another source of rows, as in ``open_rows``, with
            ``question``, ``context``, ``answers`` and optionally ``id`` in each row. Answers are ``{"text": [...],
            "answer_start": [...]}``, or a list of objects with both keys.
        unanswerable: whether unanswerable questions are accepted, as in SQuAD 2.0.
        config, split, revision: configuration, split and revision of a dataset on the Hub.

    Raises:
        UserError: the file or dataset does not exist or is empty, or a question is malformed; in particular, if the
            context does not contain an answer at its ``answer_start``.
    """
    path = local_file(dataset)
    if path is not None and path.suffix == ".json":
        questions = Questions(path.name, list(_squad_questions(path)))
    else:
        rows = open_rows(dataset, config=config, split=split, revision=revision)
        questions = Questions(rows.name, list(_questions_in_rows(rows)), unit=rows.unit)
    if not questions.items:
        raise UserError(f"{questions.name} is empty; write questions with their contexts and answers.")
    for i, item in enumerate(questions):
        for name, text in (("question", item.question), ("context", item.context)):
            if not isinstance(text, str):
                raise UserError(f"{questions.place(i)} has {text!r} as its {name}; write a text.")
        if not item.question.strip() or not item.context.strip():
            empty = "context" if item.question.strip() else "question"
            raise UserError(f"{questions.place(i)} has an empty {empty}; fill it in, or remove the question.")
        if not item.answers and not unanswerable:
            raise UserError(
                f"{questions.place(i)} has no answer; write data.unanswerable: true to admit such questions, or remove "
                "it."
            )
        for answer in item.answers:
            _check_answer(answer, item.context, questions.place(i))
    return questions


def _check_answer(answer: Answer, context: str, place: str) -> None:
    if not answer.text.strip():
        raise UserError(f"{place} has an empty answer; write an empty list if it is unanswerable.")
    end = answer.start + len(answer.text)
    there = context[max(answer.start, 0) : max(end, 0)]
    if answer.start < 0 or there != answer.text:
        starts = (found.start() for found in re.finditer(f"(?={re.escape(answer.text)})", context))
        closest = min(starts, key=lambda start: abs(start - answer.start), default=None)
        advice = (
            "the context does not contain it; correct it"
            if closest is None
            else f"write answer_start {closest}, where it is"
        )
        raise UserError(
            f"{place} has the answer {answer.text!r} at character {answer.start} of its context, which is "
            f"{there!r}; {advice}."
        )


def _squad_questions(path: Path) -> Iterator[Question]:
    try:
        articles = json.loads(path.read_text(encoding="utf-8-sig"))["data"]
        for article in articles:
            for paragraph in article["paragraphs"]:
                for each in paragraph["qas"]:
                    # SQuAD 2.0 lists plausible answers to unanswerable questions, which are not correct.
                    place = f"Question {each['id']!r} of {path.name}"
                    answers = () if each.get("is_impossible", False) else _answers(each["answers"], place)
                    fields = {"title": article.get("title", "")}
                    yield Question(str(each["id"]), each["question"], paragraph["context"], answers, None, fields)
    except UnicodeDecodeError:
        raise UserError(f"{path.name} is not UTF-8; convert it, for example with iconv -t UTF-8.") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path.name} is not JSON ({error.msg} in line {error.lineno}); correct it.") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path.name} is not in the format of SQuAD ({type(error).__name__}: {error}); write data, paragraphs, "
            "context, qas, id, question, answers, text and answer_start, or a .jsonl file."
        ) from None


def _questions_in_rows(rows: Rows) -> Iterator[Question]:
    for row in rows:
        question, context = rows.text(row, "question"), rows.text(row, "context")
        answers = _answers(rows.value(row, "answers"), rows.place(row))
        known = ("id", "question", "context", "answers")
        fields = {name: value for name, value in row.values.items() if name not in known}
        yield Question(str(row.values.get("id", row.number)), question, context, answers, row.number, fields)


def _answers(written: Any, place: str) -> tuple[Answer, ...]:
    try:
        pairs = (
            zip(written["text"], written["answer_start"], strict=True)
            if isinstance(written, Mapping)
            else ((each["text"], each["answer_start"]) for each in written)
        )
        answers = tuple(Answer(text, start) for text, start in pairs)
        if not all(isinstance(answer.text, str) and type(answer.start) is int for answer in answers):
            raise TypeError("an answer is not a text with a number")
    except (KeyError, TypeError, ValueError):
        raise UserError(
            f'{place} has the answers {written!r}; write {{"text": [...], "answer_start": [...]}}, one number for each '
            "text, or empty lists for no answer."
        ) from None
    return tuple(dict.fromkeys(answers))


class FoundAnswer(NamedTuple):
    """The answer of a model to a question.

    Attributes:
        text: text of the answer; empty if the model predicts that there is none.
        span: the best span of the context, even if the answer is "no answer".
        start: character of the context at which that span starts.
        null_margin: score of "no answer", the lowest over the windows, minus the score of the span. A score is the sum
            of a start and an end logit.
        probability: probability of the answer among the ``n_best`` spans and, if allowed, "no answer".
    """

    text: str
    span: str
    start: int
    null_margin: float
    probability: float


class EncodedQuestions(TrainingExamples[dict[str, Any]]):
    """Token ids of questions with windows of their contexts, for ``DataCollatorWithPadding``.

    Rows have ``input_ids``, ``start_positions``, ``end_positions`` and, if the tokenizer returns them,
    ``token_type_ids``. The positions are those of the first correct answer; in a window that does not contain all of
    it, those of [CLS] (of the first token if the tokenizer has no [CLS]).

    Args:
        questions: the questions.
        tokenizer: a fast tokenizer, whose padding is set to the right.
        max_length: maximum number of tokens of a row, including the question and special tokens.
        overlap: tokens of the context that two windows share.
        n_best: number of spans over which the probability is distributed.
        max_answer_length: maximum number of tokens of an answer.
        null_threshold: the model answers "no answer" if its score exceeds the score of the best span by more than this
            value. By default, every question has an answer.

    Attributes:
        questions: the questions.
        rows_of: indices of the rows of each question.
        lengths: (n, 1) number of tokens of each row.
        lost: number of questions whose answer is not completely in any window.

    Raises:
        UserError: the tokenizer does not return offsets, ``max_length`` leaves no room for a context, or a context has
            no tokens.
    """

    def __init__(
        self,
        questions: Questions,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        *,
        overlap: int = 128,
        n_best: int = 20,
        max_answer_length: int = 30,
        null_threshold: float | None = None,
    ) -> None:
        prepare_positions(tokenizer, max_length)
        self.questions, self.n_best = questions, n_best
        self.max_length, self.overlap = max_length, overlap
        self.max_answer_length, self.null_threshold = max_answer_length, null_threshold
        # Some questions of SQuAD start with a space, which would become a token.
        asked = [item.question.lstrip() for item in questions]
        special = tokenizer.num_special_tokens_to_add(pair=True)
        for i, ids in enumerate(tokenizer(asked, add_special_tokens=False).input_ids):
            room = max_length - special - len(ids)
            if room <= overlap:
                raise UserError(
                    f"{questions.place(i)} has {len(ids)} tokens, and data.max_length {max_length} leaves "
                    f"{max(room, 0)} for its context; write a data.overlap below that (it is {overlap}), a larger "
                    "data.max_length, or a shorter question."
                )
        encoded = tokenizer(
            asked,
            [item.context for item in questions],
            truncation="only_second",
            max_length=max_length,
            stride=overlap,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        self.rows: list[dict[str, Any]] = []
        self.contexts: list[np.ndarray] = []  # for each row (S, 2): characters of the context, -1 at other tokens
        self.nulls: list[int] = []
        self.rows_of: list[list[int]] = [[] for _ in questions.items]
        for row, question in enumerate(encoded.overflow_to_sample_mapping):
            ids = encoded.input_ids[row]
            inside = np.array([part == 1 for part in encoded.sequence_ids(row)])
            if not inside.any():
                raise UserError(
                    f"{questions.place(question)} has a context without tokens, such as one of invisible characters; "
                    "fill it in, or remove the question."
                )
            offsets = np.where(inside[:, None], np.array(encoded.offset_mapping[row]), -1)
            null = ids.index(tokenizer.cls_token_id) if tokenizer.cls_token_id in ids else 0
            answers = questions.items[question].answers
            inside_window = (_positions(answer, offsets) for answer in answers)
            start, end = next(filter(None, inside_window), (null, null))
            features = {"input_ids": ids, "start_positions": start, "end_positions": end}
            if "token_type_ids" in encoded:
                features["token_type_ids"] = encoded.token_type_ids[row]
            self.rows.append(features)
            self.contexts.append(offsets)
            self.nulls.append(null)
            self.rows_of[question].append(row)
        self.lengths = lengths_of([row["input_ids"] for row in self.rows])
        self.lost = sum(
            bool(item.answers) and all(self.rows[row]["start_positions"] == self.nulls[row] for row in rows)
            for item, rows in zip(questions, self.rows_of, strict=True)
        )

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]

    @property
    def references(self) -> list[list[str]]:
        """The correct answers to each question."""
        return self.questions.references

    def answers(self, starts: Sequence[np.ndarray], ends: Sequence[np.ndarray]) -> list[FoundAnswer]:
        """Decode the answer to each question.

        The answer is the span of up to ``max_answer_length`` tokens with the highest sum of start and end logit over
        all windows, as it is written in the context.

        Args:
            starts, ends: logits (S,) of each row; padding follows the tokens of a row.
        """
        return [self._answer(question, starts, ends) for question in range(len(self.rows_of))]

    def nats(self, starts: Sequence[np.ndarray], ends: Sequence[np.ndarray]) -> float:
        """Return the negative log-likelihood of the correct start and end in nats, averaged over both and all rows.

        Unlike the models' own losses, it ignores the padding after a row, which depends on the batch.

        Args:
            starts, ends: logits (S,) of each row.
        """
        total = 0.0
        for row, first, last in zip(self.rows, starts, ends, strict=True):
            for logits, name in ((first, "start_positions"), (last, "end_positions")):
                own = logits[: len(row["input_ids"])].astype(np.float64)
                total += float(np.logaddexp.reduce(own) - own[row[name]])
        return total / (2 * len(self.rows))

    def _answer(self, question: int, starts: Sequence[np.ndarray], ends: Sequence[np.ndarray]) -> FoundAnswer:
        context, null = self.questions.items[question].context, float("inf")
        spans: dict[str, tuple[float, int]] = {}  # a text that occurs in several windows or places counts once
        for row in self.rows_of[question]:
            null = min(null, float(starts[row][self.nulls[row]] + ends[row][self.nulls[row]]))
            offsets = self.contexts[row]
            tokens = np.flatnonzero(offsets[:, 0] >= 0)  # (n,), concatenated
            behind = np.pad(ends[row][tokens], (0, self.max_answer_length - 1), constant_values=-np.inf)
            scores = starts[row][tokens, None] + sliding_window_view(behind, self.max_answer_length)  # (n, length - 1)
            for place in _highest(scores, self.n_best):
                first, length = divmod(place, self.max_answer_length)
                if first + length < len(tokens):
                    start, end = offsets[tokens[first], 0], offsets[tokens[first + length], 1]
                    written = context[start:end]
                    text, start = written.strip(), int(start) + len(written) - len(written.lstrip())
                    score = float(scores[first, length])
                    if text not in spans or score > spans[text][0]:
                        spans[text] = score, start
        ranked = sorted(spans.items(), key=lambda span: -span[1][0])[: self.n_best]
        span, (score, start) = ranked[0]
        given, compared = score, [each for _, (each, _) in ranked]
        if self.null_threshold is not None:
            compared.append(null)
            given = null if null - score > self.null_threshold else score
        probability = float(1 / np.exp(np.array(compared) - given).sum())
        return FoundAnswer(span if given == score else "", span, start, null - score, probability)


def _highest(scores: np.ndarray, number: int) -> list[int]:
    """Return the flat indices of the highest scores."""
    flat = scores.ravel()
    number = min(number, len(flat))
    return np.argpartition(-flat, number - 1)[:number].tolist()


def _positions(answer: Answer, offsets: np.ndarray) -> tuple[int, int] | None:
    """Return the first and the last token of an answer, or None if the window of these ``offsets`` lacks part of it."""
    text = answer.text.strip()  # no token may be at white space
    start = answer.start + answer.text.index(text)
    end = start + len(text)
    tokens = np.flatnonzero(offsets[:, 0] >= 0)
    if offsets[tokens[0], 0] > start or offsets[tokens[-1], 1] < end:
        return None
    inside = tokens[(offsets[tokens, 1] > start) & (offsets[tokens, 0] < end)]
    return (int(inside[0]), int(inside[-1])) if len(inside) else None
