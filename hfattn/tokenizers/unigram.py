"""Train a unigram language model of subwords.

The ``tokenizers`` library has a trainer too, but it takes its candidates from a list of distinct words with a separator
after each. A string that occurs only at the ends of words is never a candidate ("whil" is, "while" is not), which makes
encoded texts 20 to 25% longer, and its result varies from process to process.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    frequencies = np.array([counts[word] for word in words], dtype=np.float64)
    pieces, expected, of_words, of_pieces = _candidates(words, frequencies, _CANDIDATES * size)
    characters = len(set("".join(words)))
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
        loss[:characters] = np.inf
        kept = np.zeros(len(pieces), dtype=bool)
        kept[np.argsort(-loss, kind="stable")[: max(size, int(_KEPT * len(pieces)))]] = True
        pieces, expected = pieces[kept], expected[kept]
        of_words.keep(kept)
        of_pieces.keep(kept, words=kept)


def _candidates(
    words: Sequence[str], frequencies: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray, "Lattices", "Lattices"]:
    """Return the first pieces: all characters, by their code points, and the longer strings that cover most.

    Args:
        words: the words.
        frequencies: the number of occurrences of each (w,).
        most: number of longer strings.

    Returns:
        The pieces, the characters that each covers, and the lattices of the words and of the pieces.
    """
    text, lengths = "".join(words), np.array([len(word) for word in words])
    strings = strings_by_length(words, frequencies)
    characters = strings[0]
    longer = sorted(
        (-covered, text[start : start + each.length], start)
        for each in strings[1:]
        for covered, start in zip((each.length * each.counts)[each.kept], each.first[each.kept], strict=True)
    )[:most]
    starts = np.array([*characters.first, *(start for _, _, start in longer)])
    pieces = np.array([*(text[start] for start in characters.first), *(piece for _, piece, _ in longer)], dtype=object)
    covered = np.array([*characters.counts, *(-covered for covered, _, _ in longer)])
    sizes = np.array([len(piece) for piece in pieces])
    at = list(pieces_at(strings, starts, sizes, len(text)))
    of_words = Lattices(lengths, lattice_edges(np.cumsum(lengths) - lengths, lengths, at))
    return pieces, covered, of_words, Lattices(sizes, lattice_edges(starts, sizes, at, proper=True))


def _log_shares(weights: np.ndarray) -> np.ndarray:
    return np.log(weights / weights.sum())


@dataclass
class Strings:
    """The distinct strings of one length within words; a place is an index of the joined words.

    Attributes:
        length: number of characters.
        places: where such strings start, in ascending order (o,).
        numbers: which string starts there (o,).
        first: the first place of each string (s,).
        counts: its number of occurrences (s,).
        kept: whether it is a candidate: it occurs at least twice, and not only within one longer string (s,).
    """

    length: int
    places: np.ndarray
    numbers: np.ndarray
    first: np.ndarray
    counts: np.ndarray
    kept: np.ndarray


def strings_by_length(words: Sequence[str], frequencies: np.ndarray) -> list[Strings]:
    """Return the strings of 1, 2, ... ``LONGEST`` characters within words.

    Two strings are the same if they are so without their last character and have the same last character. A string that
    begins with one that occurs once is left out: it occurs once too.
    """
    lengths = np.array([len(word) for word in words])
    codes = np.frombuffer("".join(words).encode("utf-32-le"), dtype="<u4")
    alphabet, letters = np.unique(codes, return_inverse=True)
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(letters))  # characters to the end of the word
    frequencies = np.repeat(frequencies, lengths)
    number_at = np.zeros(len(letters), dtype=np.int64)
    places, found = np.arange(len(letters)), list[Strings]()
    for length in range(1, LONGEST + 1):
        keys = number_at[places] * len(alphabet) + letters[places + length - 1]
        _, first, numbers = np.unique(keys, return_index=True, return_inverse=True)
        counts = np.bincount(numbers, frequencies[places])
        strings = Strings(length, places, numbers, places[first], counts, counts > 1)
        if found:  # a string that occurs as often as a longer one occurs only within it
            start, count = strings.first[strings.kept], counts[strings.kept]
            for part in (number_at[start], number_at[start + 1]):
                found[-1].kept[part[found[-1].counts[part] == count]] = False
        found.append(strings)
        number_at[places] = numbers
        places = places[(left[places] > length) & strings.kept[numbers]]
    return found


def pieces_at(strings: Sequence[Strings], starts: np.ndarray, sizes: np.ndarray, letters: int) -> Iterator[np.ndarray]:
    """Yield for each length which piece of that length starts at each place (letters,), or -1."""
    for each in strings:
        pieces = np.flatnonzero(sizes == each.length)
        ids = np.full(len(each.first), -1, dtype=np.int32)
        ids[each.numbers[np.searchsorted(each.places, starts[pieces])]] = pieces
        at = np.full(letters, -1, dtype=np.int32)
        at[each.places] = ids[each.numbers]
        yield at


def lattice_edges(
    starts: np.ndarray, lengths: np.ndarray, at: Sequence[np.ndarray], proper: bool = False
) -> np.ndarray:
    """Return the edges of the lattices of words, as rows of word, start and end within it, and piece.

    Args:
        starts: the place of each word (w,).
        lengths: its number of characters (w,).
        at: for each length from 1, the piece of that length that starts at each place, or -1.
        proper: leave out the segmentation of a word of two or more characters into a single piece.
    """
    found = []
    for length, pieces in enumerate(at, 1):
        number = np.maximum(lengths - length + 1, 0)  # of places in each word
        word = np.repeat(np.arange(len(lengths)), number)
        start = np.arange(len(word)) - np.repeat(np.cumsum(number) - number, number)
        piece = pieces[starts[word] + start]
        kept = piece >= 0
        if proper and length > 1:
            kept &= lengths[word] > length
        found.append(np.stack([word, start, start + length, piece], axis=1)[kept])
    return np.concatenate(found)


class Lattices:
    """The lattices of all segmentations of words into pieces, for sums over the segmentations.

    A node is a position within a word, an edge a piece between two positions. Sums run over all words at once, from
    position to position.

    Args:
        lengths: number of characters of each word (w,).
        edges: the word, the start and end within it, and the piece of each edge (e, 4); every character is a piece.
    """

    def __init__(self, lengths: np.ndarray, edges: np.ndarray) -> None:
        self._last = np.cumsum(lengths + 1) - 1
        self._first = self._last - lengths
        order = np.argsort(edges[:, 2] * len(lengths) + edges[:, 0], kind="stable")  # by end, then by word
        self._word, start, self._end, self._piece = edges[order].T
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
