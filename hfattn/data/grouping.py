"""Splits that separate what belongs together: pairs that share a text, and phrases of one sentence."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, TypeVar

from .examples import Examples
from .text import split_positions

Kind = TypeVar("Kind", bound=Examples[Any])
PHRASE_WORDS = 3  # shorter phrases, such as "a film", occur in most parts of any dataset


def split_by_shared_text(
    pairs: Kind, split: Sequence[float | int | str], seed: int, large: float = 0.0, unit: str = "pairs"
) -> list[Kind]:
    """Split pairs, or examples of more texts, so that no text occurs in two parts.

    Pairs that share a text are connected, and the pairs of a connected component go into one part. The largest
    component is assigned first, and each to the part that lacks most pairs. The smallest ones then fill the test; with
    ``large``, only components above that size are assigned first, and the others in random order.

    Args:
        pairs: the pairs.
        split: fractions or counts of pairs, see ``split_positions``. The parts come as close as the components allow.
        seed: random seed for the order of components of the same size.
        large: share of the pairs above which a component is assigned before the others.
        unit: plural name of the pairs, used in messages.

    Raises:
        UserError: the split is impossible, or leaves a part empty.
    """
    connected: dict[int, list[Any]] = defaultdict(list)
    for item, component in zip(pairs, components(pairs), strict=True):
        connected[component].append(item)
    order = list(connected.values())
    Random(seed).shuffle(order)
    lacking = [where.stop - where.start for where in split_positions(len(pairs), split, unit)]
    part_of: dict[str, int] = {}
    for items in sorted(order, key=lambda items: len(items) if len(items) > large * len(pairs) else 0, reverse=True):
        part = lacking.index(max(lacking))
        lacking[part] -= len(items)
        part_of |= dict.fromkeys((pairs.texts(item)[0] for item in items), part)
    return pairs.distribute(
        [part_of[pairs.texts(item)[0]] for item in pairs], split, len(order), f"groups of connected {unit}"
    )


def components(pairs: Examples[Any]) -> list[int]:
    """Return the number of the connected component of each pair: pairs that share a text are connected."""
    import networkx  # slow to import, and only needed here

    graph = networkx.Graph()
    for item in pairs:
        networkx.add_path(graph, pairs.texts(item))
    component_of = {text: i for i, texts in enumerate(networkx.connected_components(graph)) for text in texts}
    return [component_of[pairs.texts(item)[0]] for item in pairs]


def split_by_phrase(texts: Kind, split: Sequence[float | int | str], seed: int) -> list[Kind]:
    """Split a dataset that has sentences and their phrases, such as SST-2, into parts that share no phrase.

    A sentence is a text that is not part of another one. The parts after the first one consist of sentences. All other
    texts are for training, except phrases of three or more words that occur in a sentence of another part, which are
    left out.

    Args:
        texts: the sentences and phrases, each the first text of its example; words are separated by spaces.
        split: fractions or counts of sentences, see ``split_positions``.
        seed: random seed for shuffling.

    Raises:
        UserError: the split is impossible, or leaves a part empty.
    """
    words = [" ".join(texts.texts(item)[0].split()) for item in texts]
    every = _Sentences(set(words))
    sentences = [text for text in dict.fromkeys(words) if not every.contain(text)]
    Random(seed).shuffle(sentences)
    positions = split_positions(len(sentences), split, "sentences")
    part_of = {text: part for part, where in enumerate(positions) for text in sentences[where]}
    held_out = _Sentences(text for text, part in part_of.items() if part > 0)
    parts = [
        part_of.get(text, None if len(text.split()) >= PHRASE_WORDS and held_out.contain(text) else 0) for text in words
    ]
    return texts.distribute(parts, split, len(sentences), "sentences")


class _Sentences:
    """An index of texts by their words, in which a phrase is looked up by its rarest word."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._with_word: dict[str, list[str]] = defaultdict(list)
        for text in texts:
            for word in dict.fromkeys(text.split()):
                self._with_word[word].append(f" {text} ")

    def contain(self, phrase: str) -> bool:
        """Return whether a text contains the phrase as consecutive words, and is longer."""
        candidates = min((self._with_word.get(word, []) for word in phrase.split()), key=len, default=[])
        return any(f" {phrase} " in text and len(text) > len(phrase) + 2 for text in candidates)
