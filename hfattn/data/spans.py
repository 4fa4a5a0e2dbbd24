"""Span corruption: hide spans of a text behind sentinels, and write what they hide (Raffel et al. 2020)."""

import re
from itertools import chain
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..tokenizers import uncovered_characters
from .batches import TrainingExamples
from .documents import Documents
from .encoding import unknown_character
from .masking import encode_plain

SENTINEL = "<extra_id_{}>"
_SENTINEL = re.compile(r"<extra_id_(\d+)>")


def sentinel_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the ids of ``<extra_id_0>``, ``<extra_id_1>`` and so on, as far as the tokenizer has them."""
    found = {
        int(match[1]): id_ for token, id_ in tokenizer.get_vocab().items() if (match := _SENTINEL.fullmatch(token))
    }
    ids: list[int] = []
    while (number := len(ids)) in found:
        ids.append(found[number])
    return ids


class SpanCorruption:
    """Replace random spans of a text by one sentinel each (Raffel et al. 2020, section 3.1.4 and figure 2).

    Of T tokens, ``share`` are hidden (rounded; at least one, and not all), in spans of ``mean_length`` tokens on
    average. Hidden and visible spans alternate, a visible one first; both are cut at random places, so that every way
    to cut them is equally probable (as in the authors' code).

    Args:
        tokenizer: tokenizer with sentinels, ``<extra_id_0>`` and so on.
        share: share of the tokens to hide.
        mean_length: mean length of the hidden spans, in tokens.

    Raises:
        UserError: the tokenizer has no sentinels.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, share: float = 0.15, mean_length: float = 3.0) -> None:
        self.sentinels = sentinel_ids(tokenizer)
        if not self.sentinels:
            raise UserError(
                "Span corruption needs a tokenizer with sentinels, <extra_id_0> and so on; write tokenizer.sentinels: "
                "100 for a model from scratch, or the model.name of a T5."
            )
        self.share, self.mean_length = share, mean_length
        self.ends = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]

    def counts(self, length: int) -> tuple[int, int]:
        """Return how many of ``length`` tokens are hidden, and in how many spans; nothing of a single token is."""
        hidden = min(max(round(length * self.share), 1), length - 1)
        return hidden, min(max(round(hidden / self.mean_length), 1), hidden, length - hidden)

    def sizes(self, length: int) -> tuple[int, int]:
        """Return the numbers of tokens of the source and of the target for a text, end tokens included."""
        hidden, spans = self.counts(length)
        return length - hidden + spans + len(self.ends), hidden + spans + 1 + len(self.ends)

    def longest(self, max_source_length: int, max_target_length: int) -> int:
        """Return the largest length of a text whose source and target have at most these numbers of tokens.

        Raises:
            UserError: there are too few sentinels for a text of that length.
        """
        length = 2
        limits = (max_source_length, max_target_length)
        while all(size <= most for size, most in zip(self.sizes(length + 1), limits, strict=True)):
            length += 1
        if (needed := self.counts(length)[1] + 1) > len(self.sentinels):
            raise UserError(
                f"A text of {length} tokens needs {needed} sentinels, and the tokenizer has {len(self.sentinels)}; "
                "write a larger tokenizer.sentinels, or a smaller data.max_source_length."
            )
        return length

    def __call__(self, ids: np.ndarray, generator: np.random.Generator) -> tuple[list[int], list[int]]:
        """Corrupt a text.

        Args:
            ids: (T,) token ids, without an end token; at least two.
            generator: random generator; it draws the ends of the hidden spans, and then those of the visible ones.

        Returns:
            The source, with a sentinel for each hidden span, and the target: each sentinel with what it hides, and one
            more sentinel. Both end with the end token, if the tokenizer has one.
        """
        hidden, spans = self.counts(len(ids))
        hidden_lengths, visible_lengths = _cut(hidden, spans, generator), _cut(len(ids) - hidden, spans, generator)
        source: list[int] = []
        target: list[int] = []
        start = 0
        for sentinel, visible, covered in zip(self.sentinels, visible_lengths, hidden_lengths, strict=False):
            middle, end = start + visible, start + visible + covered
            source += [*ids[start:middle].tolist(), sentinel]
            target += [sentinel, *ids[middle:end].tolist()]
            start = end
        return source + self.ends, [*target, self.sentinels[spans], *self.ends]


def _cut(number: int, parts: int, generator: np.random.Generator) -> list[int]:
    """Return the lengths of ``parts`` pieces, none of them empty, into which ``number`` tokens are cut at random."""
    edges = np.sort(generator.choice(number - 1, parts - 1, replace=False)) + 1
    return np.diff(edges, prepend=0, append=number).tolist()


class SpanExamples(TrainingExamples[dict[str, Any]]):
    """Documents, joined and cut into texts that are corrupted anew in each epoch: ``input_ids`` and ``labels``.

    Seed, epoch and index determine what is hidden. Without calls of ``set_epoch``, it never changes, as evaluation
    requires.

    Args:
        documents: the documents.
        tokenizer: the tokenizer.
        corruption: what is hidden.
        max_source_length, max_target_length: maximum numbers of tokens, the end token included.
        seed: random seed.

    Attributes:
        lengths: (n, 2) numbers of tokens of source and target, which are the same in each epoch.

    Raises:
        UserError: the documents have fewer than two tokens, the tokenizer does not know a character of them, or it has
            too few sentinels.
    """

    def __init__(
        self,
        documents: Documents,
        tokenizer: PreTrainedTokenizerBase,
        corruption: SpanCorruption,
        max_source_length: int,
        max_target_length: int,
        seed: int,
    ) -> None:
        length = corruption.longest(max_source_length, max_target_length)
        if missing := uncovered_characters(tokenizer, chain.from_iterable(item.text for item in documents)):
            index = next(i for i, item in enumerate(documents) if missing[0] in item.text)
            raise unknown_character(missing[0], documents.place(index))
        encoded = encode_plain([item.text for item in documents], tokenizer)
        ids = np.concatenate([np.zeros(0, np.int64), *encoded])
        blocks = [ids[start : start + length] for start in range(0, len(ids), length)]
        self.blocks = [block for block in blocks if len(block) > 1]
        if not self.blocks:
            raise UserError(f"{documents.name} has fewer than two tokens; span corruption needs a longer text.")
        self.corruption, self.seed = corruption, seed
        self.lengths = np.array([corruption.sizes(len(block)) for block in self.blocks], np.int64)

    def __len__(self) -> int:
        return len(self.blocks)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        source, target = self.corruption(self.blocks[index], self.generator(index))
        return {"input_ids": source, "labels": target}
