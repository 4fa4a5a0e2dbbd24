"""Scores of entities in tagged sentences: exact spans and types, as in conlleval (Tjong Kim Sang & De Meulder 2003).

Tags are in BIO or BIOES, see hfattn/data/tagged.py.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import datasets
import torch
from transformers import EvalPrediction

from ..errors import UserError
from .checks import PairedMetric

_OUTSIDE = "O"


class Entity(NamedTuple):
    """An entity: words ``start`` to ``end`` - 1 of a sentence, and their type."""

    type: str
    start: int
    end: int


def find_entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of a sentence, decoded as in conlleval, even if a model's tags violate the scheme.

    An I- or E- that does not continue an entity of its type begins one.

    Args:
        tags: tags of the words of the sentence.
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


def _entity_scores(predicted: Sequence[Sequence[str]], right: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return the scores of ``EntityMetric``, given the tags of each sentence."""
    found, wanted, both = Counter[str](), Counter[str](), Counter[str]()
    words = right_words = 0
    for tags, right_tags in zip(predicted, right, strict=True):
        entities, right_entities = set(find_entities(tags)), set(find_entities(right_tags))
        found.update(entity.type for entity in entities)
        wanted.update(entity.type for entity in right_entities)
        both.update(entity.type for entity in entities & right_entities)
        words += len(right_tags)
        right_words += sum(one == other for one, other in zip(tags, right_tags, strict=True))
    return {
        **_scores(both.total(), found.total(), wanted.total()),
        "accuracy": right_words / words if words else 0.0,
        "words": words,
        "entities_by_type": {kind: _scores(both[kind], found[kind], wanted[kind]) for kind in sorted(wanted | found)},
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
    """Precision, recall and F1 of entities; an entity is found if its first word, its last word and its type match.

    ``compute(predictions=sentences, references=sentences)``, where a sentence is a list of tags, returns ``precision``,
    ``recall`` and ``f1`` over all entities, from 0 to 1 (0 if there are no entities), the numbers of ``entities`` in
    the references and of ``predicted_entities``, the same for each type in ``entities_by_type``, and ``accuracy``, the
    fraction of the ``words`` with the correct tag.
    """

    prediction = datasets.Sequence(datasets.Value("string"))
    reference = datasets.Sequence(datasets.Value("string"))

    def add_batch(self, *, predictions: Any = None, references: Any = None, **kwargs: Any) -> None:
        """Add sentences.

        Raises:
            UserError: the numbers of sentences, or of the tags of a sentence, differ.
        """
        for i, (predicted, right) in enumerate(zip(predictions or (), references or (), strict=False)):
            if len(predicted) != len(right):
                raise UserError(
                    f"Sentence {i + 1} has {len(predicted)} predicted tags and {len(right)} correct ones; give "
                    "one of each for every word."
                )
        super().add_batch(predictions=predictions, references=references, **kwargs)

    def _compute(self, predictions: Any, references: Any) -> dict[str, Any]:
        return _entity_scores(predictions, references)


class EntityScores:
    """A ``compute_metrics`` for a token classifier whose rows are windows of sentences.

    For ``TrainingArguments(batch_eval_metrics=True)`` with ``token_statistics``. Reassembles the sentences and returns
    the scores of ``EntityMetric``, with the F1 of each type as ``f1_PER`` and so on, ``nats_per_word``, the mean
    negative log-likelihood of the correct tags, and the number of ``sentences``. The prediction for a word outside all
    windows is "O".

    Args:
        labels: names of the tags, from tag 0 on.

    Attributes:
        predicted: after an evaluation, the predicted tags of each sentence.
        nats: (n,) after an evaluation, the negative log-likelihood of the correct tags of each sentence, in nats.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = list(labels)

    def expect(self, references: Sequence[Sequence[str]], windows: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        """Set the data of the following evaluations.

        Args:
            references: correct tags of each sentence.
            windows: for each row, in the order of evaluation, the index of its sentence, and a mapping from each
                position whose prediction counts to the index of its word.
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
        assert self.row == len(self.windows), "an evaluation reads each window once, in order"
        self.predicted, self.nats = self._predicted, self._nats
        self._reset()
        scores = _entity_scores(self.predicted, self.references)
        by_type = scores.pop("entities_by_type")
        decided = sum(len(words) for _, words in self.windows)
        return {
            **scores,
            **{f"f1_{kind}": of_type["f1"] for kind, of_type in by_type.items()},
            "nats_per_word": sum(self.nats) / decided,
            "sentences": len(self.references),
        }
