"""Entities in tagged sentences: exact spans and types, as conlleval counts (Tjong Kim Sang & De Meulder 2003).

A tag is "O" or a prefix and a type: B- begins an entity, I- goes on with it; in BIOES, E- also ends it and S- is one of
a single word.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import datasets
import evaluate
import torch
from transformers import EvalPrediction

from ..errors import UserError
from .checks import PairedMetric

_OUTSIDE = "O"


class Entity(NamedTuple):
    """Words ``start`` to ``end`` - 1 of a sentence, and what they are."""

    type: str
    start: int
    end: int


def find_entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence, as conlleval reads any sequence of tags, also of a model that breaks the scheme.

    An I- or E- that goes on with nothing of its type begins an entity.

    Args:
        tags: of its words.
    """
    found: list[Entity] = []
    start: int | None = None
    kind = ""
    for i, tag in enumerate([*tags, _OUTSIDE]):
        prefix, _, type_ = tag.partition("-")
        if start is not None and (prefix in (_OUTSIDE, "B", "S") or type_ != kind):
            found.append(Entity(kind, start, i))
            start = None
        if prefix != _OUTSIDE and start is None:
            start, kind = i, type_
        if start is not None and prefix in ("E", "S"):
            found.append(Entity(kind, start, i + 1))
            start = None
    return found


class EntityCounts:
    """Counts of right, predicted and rightly predicted entities of each type, and of words with the right tag."""

    def __init__(self) -> None:
        self.right: Counter[str] = Counter()
        self.predicted: Counter[str] = Counter()
        self.both: Counter[str] = Counter()
        self.words = self.right_words = 0

    def add(self, predicted: Sequence[str], right: Sequence[str]) -> None:
        """Count a sentence, given the tags of its words."""
        found, wanted = set(find_entities(predicted)), set(find_entities(right))
        for counts, entities in ((self.predicted, found), (self.right, wanted), (self.both, found & wanted)):
            counts.update(entity.type for entity in entities)
        self.words += len(right)
        self.right_words += sum(one == other for one, other in zip(predicted, right, strict=True))

    def scores(self) -> dict[str, Any]:
        """As ``EntityMetric.compute`` returns them."""
        types = sorted(self.right | self.predicted)
        return {
            **_scores(self.both.total(), self.predicted.total(), self.right.total()),
            "accuracy": self.right_words / self.words if self.words else 0.0,
            "words": self.words,
            "entities_by_type": {
                kind: _scores(self.both[kind], self.predicted[kind], self.right[kind]) for kind in types
            },
        }


def _scores(both: int, predicted: int, right: int) -> dict[str, Any]:
    return {
        "precision": both / predicted if predicted else 0.0,
        "recall": both / right if right else 0.0,
        "f1": 2 * both / (predicted + right) if predicted + right else 0.0,
        "entities": right,
        "predicted_entities": predicted,
    }


class EntityMetric(PairedMetric):
    """Precision, recall and F1 of entities: one is found where its first word, its last word and its type are right.

    ``compute(predictions=sentences, references=sentences)``, where a sentence is a list of tags, returns ``precision``,
    ``recall`` and ``f1`` of all entities together, from 0 to 1 (0 where there is none), the numbers of ``entities``
    that are right and of ``predicted_entities``, the same of each type in ``entities_by_type``, and ``accuracy``, the
    share of the ``words`` with the right tag.
    """

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description="Precision, recall and F1 of entities with exact spans and types, as in conlleval.",
            citation="",
            inputs_description="predictions: lists of tags, one for each word; references: the right ones.",
            features=datasets.Features(
                {
                    "predictions": datasets.Sequence(datasets.Value("string")),
                    "references": datasets.Sequence(datasets.Value("string")),
                }
            ),
        )

    def add_batch(self, *, predictions: Any = None, references: Any = None, **kwargs: Any) -> None:
        """Add sentences.

        Raises:
            UserError: the numbers of sentences or of a sentence's tags differ.
        """
        for i, (predicted, right) in enumerate(zip(predictions or (), references or (), strict=False)):
            if len(predicted) != len(right):
                raise UserError(
                    f"Sentence {i + 1} has {len(predicted)} predicted tags and {len(right)} right ones; give one of "
                    "each for every word."
                )
        super().add_batch(predictions=predictions, references=references, **kwargs)

    def _compute(self, predictions: Any, references: Any) -> dict[str, Any]:
        counts = EntityCounts()
        for predicted, right in zip(predictions, references, strict=True):
            counts.add(predicted, right)
        return counts.scores()


class EntityScores:
    """A ``compute_metrics`` for a token classifier whose rows are windows of sentences.

    For ``TrainingArguments(batch_eval_metrics=True)``, with ``token_statistics``. It puts the sentences together again
    and returns what ``EntityMetric`` does, by type without a level of its own (``f1_PER``), ``nats_per_word``, the mean
    negative log-likelihood of the right tags, and the number of ``sentences``. A word that no window has counts as
    predicted "O".

    Args:
        labels: names of the tags, from 0 on.

    Attributes:
        predicted: tags of the words of each sentence, after an evaluation.
        nats: (n,) the negative log-likelihood of each sentence's right tags, in nats, after an evaluation.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = list(labels)

    def expect(self, references: Sequence[Sequence[str]], windows: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        """Say what is evaluated next, and until something else is.

        Args:
            references: right tags of the words of each sentence.
            windows: of each row, in the order in which they are evaluated: the index of its sentence, and for each
                position that decides about a word, the index of the word.
        """
        self.references, self.windows = references, list(windows)
        self._reset()

    def _reset(self) -> None:
        self.row = 0
        self._predicted = [[_OUTSIDE] * len(tags) for tags in self.references]
        self._nats = [0.0] * len(self.references)

    def __call__(self, prediction: EvalPrediction, compute_result: bool) -> dict[str, float]:
        predicted, nats = (torch.as_tensor(tensor).tolist() for tensor in prediction.predictions)
        for ids, of_ids in zip(predicted, nats, strict=True):
            sentence, words = self.windows[self.row]
            self.row += 1
            for position, word in words.items():
                self._predicted[sentence][word] = self.labels[ids[position]]
                self._nats[sentence] += of_ids[position]
        if not compute_result:
            return {}
        assert self.row == len(self.windows), "an evaluation reads each window once, in its order"
        counts = EntityCounts()
        for tags, right in zip(self._predicted, self.references, strict=True):
            counts.add(tags, right)
        self.predicted, self.nats = self._predicted, self._nats
        self._reset()
        scores = counts.scores()
        by_type = scores.pop("entities_by_type")
        decided = sum(len(words) for _, words in self.windows)
        return {
            **scores,
            **{f"f1_{kind}": of_type["f1"] for kind, of_type in by_type.items()},
            "nats_per_word": sum(self.nats) / decided,
            "sentences": len(self.references),
        }
