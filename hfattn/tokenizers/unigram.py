"""The unigram language model of subwords: its lattices, and how its pieces are learned.

The ``tokenizers`` library has a trainer too, but it takes its candidates from a list of distinct words with a separator
after each. A string that stands only at the ends of words is never one of them ("whil" is, "while" is not), which makes
texts a fifth to a quarter longer; and what it learns varies from process to process.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

LONGEST = 16  # characters of a piece
_CANDIDATES = 20  # for each piece that is asked for
_KEPT = 0.75  # of the pieces, in each round of pruning
_ITERATIONS = 2  # of EM, in each round


def learn_pieces(counts: Mapping[str, int], size: int) -> dict[str, float]:
    """Learn the pieces of a unigram language model and their log-probabilities (Kudo 2018, section 3.2).

    The first candidates are all characters and the most frequent longer strings. EM estimates their probabilities,
    those that the likelihood needs least are dropped, and so on, until ``size`` are left. Characters stay.

    Args:
        counts: how often each word occurs; no piece crosses from one to another.
        size: the number of pieces, at least that of the characters. There are fewer if the words have no more strings
            that occur twice.

    Returns:
        The natural logarithm of each piece's probability, rounded to 6 decimals, the most probable first.
    """
    words = sorted(counts)
    occurrences: Counter[str] = Counter()
    for word in words:
        for start in range(len(word)):
            for end in range(start + 1, min(start + LONGEST, len(word)) + 1):
                occurrences[word[start:end]] += counts[word]
    # A string that occurs only within one particular longer string is never needed beside it.
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
            # A piece that is hardly used keeps a probability above 0: a character may be needed for another text.
            expected = np.maximum(of_words.expected_counts(_log_shares(expected), frequencies), 0.5)
        scores = _log_shares(expected)
        if len(pieces) <= size:
            ranked = sorted(zip(scores.round(6).tolist(), pieces, strict=True), key=lambda item: (-item[0], item[1]))
            return {piece: score for score, piece in ranked}
        # The likelihood that goes when each occurrence of a piece is made of other pieces instead.
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
    """All segmentations of some words into pieces, for sums over them; word by word at once, end by end.

    A node is a position within a word, an edge a piece between two of them.

    Args:
        words: the words.
        ids: the number of each piece; every character is one.
        proper: without the segmentation of a word into one piece, the word itself (characters excepted).
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
        """Drop the edges of all but some pieces, which are numbered anew, and all but some words, given as masks."""
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
        """For each word, the log of the summed probabilities of its segmentations, given those of the pieces."""
        return self._forward(scores)[0][self._last]

    def expected_counts(self, scores: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
        """How often each piece is used, in expectation over the segmentations of words of given frequencies."""
        forward, edges = self._forward(scores)
        uses = np.exp(edges - forward[self._target])  # of an edge, given that its target is passed
        passes = np.zeros_like(forward)
        passes[self._last] = frequencies
        for edge, _ in reversed(self._slices):
            uses[edge] *= passes[self._target[edge]]
            np.add.at(passes, self._source[edge], uses[edge])
        return np.bincount(self._piece, uses, minlength=len(scores))

    def _group(self) -> None:
        """Edges are sorted by their end, then by word: those into one node are neighbours."""
        new = np.diff(self._target, prepend=-1) != 0
        self._heads, self._group_of = np.flatnonzero(new), np.cumsum(new) - 1
        bounds = np.append(np.flatnonzero(np.diff(self._end, prepend=-1)), len(self._end))
        groups = np.searchsorted(self._heads, bounds)
        self._slices = [
            (slice(*edge), slice(*group)) for edge, group in zip(pairwise(bounds), pairwise(groups), strict=True)
        ]

    def _forward(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The log of the summed probabilities up to each node, and up to it over each edge."""
        forward = np.zeros(int(self._target.max()) + 1)
        edges = scores[self._piece]
        for edge, group in self._slices:
            edges[edge] += forward[self._source[edge]]
            heads = self._heads[group]
            largest = np.maximum.reduceat(edges[edge], heads - edge.start)
            shares = np.exp(edges[edge] - largest[self._group_of[edge] - group.start])
            forward[self._target[heads]] = largest + np.log(np.add.reduceat(shares, heads - edge.start))
        return forward, edges
