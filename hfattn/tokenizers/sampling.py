"""Subword regularisation: another segmentation of a text each time that training reads it."""

import json
import math
from bisect import bisect_right
from itertools import pairwise
from random import Random

import numpy as np
from transformers import PreTrainedTokenizerFast

from ..errors import UserError

# What an unknown character costs below the least probable piece, as in the library's own segmentation.
_UNKNOWN_PENALTY = 10.0


def check_sampling(kind: str, sampling: float) -> None:
    """Check how subwords of a kind are to be sampled.

    Raises:
        UserError: the kind has no sampling, or ``sampling`` is not in its range.
    """
    if kind not in ("bpe", "unigram"):
        raise UserError(f"sampling is for kinds bpe and unigram; leave it out of kind {kind}.")
    if kind == "bpe" and not 0 < sampling < 1:
        raise UserError(f"sampling {sampling} is no probability of dropping a merge; write 0.1, or 0 for none.")
    if not 0 < sampling < math.inf:
        raise UserError(f"sampling {sampling} is no alpha; write a positive number such as 0.2, or 0 for none.")


class SubwordSampler:
    """Draws the segmentation of a text, where the tokenizer itself always gives the same one.

    Of a unigram tokenizer: from all segmentations, each with a probability proportional to P(x)^alpha, by forward
    filtering and backward sampling (Kudo 2018, arXiv 1804.10959, section 3.3 with l = infinity). An alpha near 0 makes
    them equally likely, a large one leaves the most probable.

    Of a BPE tokenizer: BPE-dropout (Provilkov et al. 2020, arXiv 1910.13267, algorithm 1): before each merge, every
    merge that is possible is left out with the given probability.

    The library can do both, but from a random state that cannot be set, so that no training could be repeated or
    resumed exactly; here all randomness comes from ``rng``.

    Args:
        tokenizer: a unigram or BPE tokenizer of ``build_tokenizer``.
        sampling: alpha, or the probability of dropping a merge; as in ``TokenizerConfig``, but not 0.

    Raises:
        UserError: the tokenizer is of another kind, or ``sampling`` is not in its range.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, sampling: float) -> None:
        backend = tokenizer.backend_tokenizer
        model = json.loads(backend.to_str())["model"]
        check_sampling(model["type"].lower(), sampling)
        self.sampling = sampling
        self._normalizer, self._pre_tokenizer = backend.normalizer, backend.pre_tokenizer
        self._unknown = tokenizer.unk_token_id
        self._end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        special = set(tokenizer.all_special_tokens)
        self._ids = {piece: i for piece, i in tokenizer.get_vocab().items() if piece not in special}
        if model["type"] == "BPE":
            self._draw = self._drop_merges
            self._ranks = {tuple(merge): rank for rank, merge in enumerate(model["merges"])}
        else:
            self._draw = self._sample_path
            self._scores = {piece: score for piece, score in model["vocab"] if piece not in special}
            self._unknown_score = min(self._scores.values()) - _UNKNOWN_PENALTY
            self._longest = max(map(len, self._scores))
            self._lattices: dict[str, list[tuple[list[int], list[float]]]] = {}

    def __call__(self, text: str, rng: Random | np.random.Generator) -> list[int]:
        """The ids of a text, in a segmentation drawn with ``rng``, its end symbol included."""
        words = self._pre_tokenizer.pre_tokenize_str(self._normalizer.normalize_str(text))
        return [token for word, _ in words for token in self._draw(word, rng)] + self._end

    def _drop_merges(self, word: str, rng: Random | np.random.Generator) -> list[int]:
        pieces = list(word)
        while True:
            kept = [
                (rank, position)
                for position, pair in enumerate(pairwise(pieces))
                if (rank := self._ranks.get(pair)) is not None and rng.random() >= self.sampling
            ]
            if not kept:
                return [self._ids.get(piece, self._unknown) for piece in pieces]
            _, position = min(kept)
            pieces[position : position + 2] = [pieces[position] + pieces[position + 1]]

    def _sample_path(self, word: str, rng: Random | np.random.Generator) -> list[int]:
        if word not in self._lattices:
            self._lattices[word] = self._lattice(word)
        lattice, end = self._lattices[word], len(word)
        ids: list[int] = []
        while end > 0:
            starts, cumulative = lattice[end - 1]
            start = starts[bisect_right(cumulative, rng.random(), hi=len(starts) - 1)]
            token = self._ids.get(word[start:end], self._unknown)
            if not (ids and token == ids[-1] == self._unknown):  # several in a row are one, as in the library
                ids.append(token)
            end = start
        return ids[::-1]

    def _lattice(self, word: str) -> list[tuple[list[int], list[float]]]:
        """For each end within a word, where a piece before it may start, and the cumulative probabilities of that."""
        forward, lattice = [0.0], []  # log of the summed P(x)^alpha of the segmentations up to each position
        for end in range(1, len(word) + 1):
            starts, weights = [], []
            for start in range(max(0, end - self._longest), end):
                score = self._scores.get(word[start:end], self._unknown_score if end - start == 1 else None)
                if score is not None:
                    starts.append(start)
                    weights.append(forward[start] + self.sampling * score)
            largest = max(weights)
            shares = np.exp(np.array(weights) - largest)
            forward.append(largest + math.log(shares.sum()))
            lattice.append((starts, (shares.cumsum() / shares.sum()).tolist()))
        return lattice
