"""Train a unigram language model of subwords.

The ``tokenizers`` library has a trainer too, but it takes its candidates from a list of distinct words with a separator
after each. A string that occurs only at the ends of words is never a candidate ("whil" is, "while" is not), which makes
encoded texts 20 to 25% longer, and its result varies from process to process.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

LONGEST = 16  # maximum number of characters of a piece
_CANDIDATES = 20  # number of initial candidates per requested piece
_KEPT = 0.75  # fraction of pieces kept in each round of pruning
_ITERATIONS = 2  # EM iterations in each round


def learn_pieces(counts: Mapping[str, int], size: int) -> dict[str, float]:
    """Learn the pieces of a unigram language model and their log-probabilities (Kudo 2018, section 3.2).

    The initial candidates are all characters and the most frequent longer strings. EM estimates their probabilities,
    and the pieces whose loss reduces the likelihood least are dropped; this is repeated until ``size`` pieces remain.
    Characters are never dropped.

    Args:
        counts: number of occurrences of each word; no piece spans two words.
        size: number of pieces, at least the number of characters. The result has fewer if not enough strings occur
            twice.

    Returns:
        The natural logarithm of the probability of each piece, rounded to 6 decimals, most probable first.
    """
    words = sorted(counts)
    occurrences: Counter[str] = Counter()
    for word in words:
        for start in range(len(word)):
            for end in range(start + 1, min(start + LONGEST, len(word)) + 1):
                occurrences[word[start:end]] += counts[word]
    # A string that occurs only within one particular longer string is redundant.
    inner = {part for piece, n in occurrences.items() for part in (piece[1:], piece[:-1]) if occurrences[part] == n}
    characters = sorted(piece for piece in occurrences if len(piece) == 1)
    longer = [piece for piece, n in occurrences.items() if len(piece) > 1 and n > 1 and piece not in inner]
    longer.sort(key=lambda piece: (-occurrences[piece] * len(piece), piece))
    pieces = np.array(characters + longer[: _CANDIDATES * size], dtype=object)
    frequencies = np.array([counts[word] for word in words], dtype=np.float64)
    expected = np.array([occurrences[piece] * len(piece) for piece in pieces], dtype=np.float64)

    ids = {piece: i for i, piece in enumerate(pieces)}
    of_words, of_pieces = Lattices(words, ids), Lattices(list(pieces), ids, proper=True)
    while True:
        for _ in range(_ITERATIONS):
            # Rare pieces keep a probability above 0, because another text may need them.
            expected = np.maximum(of_words.expected_counts(_log_shares(expected), frequencies), 0.5)
        scores = _log_shares(expected)
        if len(pieces) <= size:
            ranked = sorted(zip(scores.round(6).tolist(), pieces, strict=True), key=lambda item: (-item[0], item[1]))
            return {piece: score for score, piece in ranked}
        # Loss of log-likelihood if each occurrence of a piece is segmented into other pieces.
        loss = expected * (scores - of_pieces.log_likelihoods(scores))
        loss[: len(characters)] = np.inf
        kept = np.zeros(len(pieces), dtype=bool)
        kept[np.argsort(-loss, kind="stable")[: max(size, int(_KEPT * len(pieces)))]] = True
        pieces, expected = pieces[kept], expected[kept]
        of_words.keep(kept)
        of_pieces.keep(kept, words=kept)


def _log_shares(weights: np.ndarray) -> np.ndarray:
    return np.log(weights / weights.sum())


class Lattices:
    """The lattices of all segmentations of words into pieces, for sums over the segmentations.

    A node is a position within a word, an edge a piece between two positions. Sums run over all words at once, from
    position to position.

    Args:
        words: the words.
        ids: index of each piece; every character is a piece.
        proper: leave out the segmentation of a word of two or more characters into a single piece.
    """

    def __init__(self, words: Sequence[str], ids: Mapping[str, int], proper: bool = False) -> None:
        lengths = np.array([len(word) for word in words])
        self._last = np.cumsum(lengths + 1) - 1
        self._first = self._last - lengths
        edges = np.fromiter(
            (
                (number, start, end, ids[word[start:end]])
                for number, word in enumerate(words)
                for end in range(1, len(word) + 1)
                for start in range(max(0, end - LONGEST), end)
                if word[start:end] in ids and not (proper and 1 < len(word) == end - start)
            ),
            dtype=np.dtype((np.int64, 4)),
        )
        self._word, start, self._end, self._piece = edges[np.argsort(edges[:, 2], kind="stable")].T
        self._source, self._target = self._first[self._word] + start, self._first[self._word] + self._end
        self._group()

    def keep(self, pieces: np.ndarray, words: np.ndarray | None = None) -> None:
        """Keep only some pieces, which are renumbered, and some words, both given as masks."""
        edges = pieces[self._piece]
        if words is not None:
            edges &= words[self._word]
            self._first, self._last = self._first[words], self._last[words]
            self._word = (np.cumsum(words) - 1)[self._word]
        self._piece = (np.cumsum(pieces) - 1)[self._piece]
        for name in ("_word", "_end", "_piece", "_source", "_target"):
            setattr(self, name, getattr(self, name)[edges])
        self._group()

    def log_likelihoods(self, scores: np.ndarray) -> np.ndarray:
        """Return for each word the log of the summed probabilities of its segmentations, given log-probabilities."""
        return self._forward(scores)[0][self._last]

    def expected_counts(self, scores: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
        """Return the expected number of uses of each piece, over the segmentations of words with given frequencies."""
        forward, edges = self._forward(scores)
        uses = np.exp(edges - forward[self._target])  # probability of an edge, given that its target is on the path
        passes = np.zeros_like(forward)
        passes[self._last] = frequencies
        for edge, _ in reversed(self._slices):
            uses[edge] *= passes[self._target[edge]]
            np.add.at(passes, self._source[edge], uses[edge])
        return np.bincount(self._piece, uses, minlength=len(scores))

    def _group(self) -> None:
        """Group the edges, which are sorted by end and then by word, so that edges into the same node are adjacent."""
        new = np.diff(self._target, prepend=-1) != 0
        self._heads, self._group_of = np.flatnonzero(new), np.cumsum(new) - 1
        bounds = np.append(np.flatnonzero(np.diff(self._end, prepend=-1)), len(self._end))
        groups = np.searchsorted(self._heads, bounds)
        self._slices = [
            (slice(*edge), slice(*group)) for edge, group in zip(pairwise(bounds), pairwise(groups), strict=True)
        ]

    def _forward(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the log of the summed probabilities up to each node, and up to it over each edge."""
        forward = np.zeros(int(self._target.max()) + 1)
        edges = scores[self._piece]
        for edge, group in self._slices:
            edges[edge] += forward[self._source[edge]]
            heads = self._heads[group]
            largest = np.maximum.reduceat(edges[edge], heads - edge.start)
            shares = np.exp(edges[edge] - largest[self._group_of[edge] - group.start])
            forward[self._target[heads]] = largest + np.log(np.add.reduceat(shares, heads - edge.start))
        return forward, edges
