"""Subword regularization: a new segmentation of a text is sampled each time it is read in training."""

import json
import math
from bisect import bisect_right
from itertools import pairwise
from random import Random

import numpy as np
from transformers import PreTrainedTokenizerFast

from ..errors import UserError

# Log-probability of an unknown character below the least probable piece, as in the tokenizers library.
_UNKNOWN_PENALTY = 10.0


def check_sampling(kind: str, sampling: float) -> None:
    """Check the sampling option for a kind of tokenizer.

    Raises:
        UserError: the kind does not support sampling, or ``sampling`` is out of range.
    """
    if kind not in ("bpe", "unigram"):
        raise UserError(f"sampling is for kinds bpe and unigram; leave it out of kind {kind}.")
    if kind == "bpe" and not 0 < sampling < 1:
        raise UserError(
            f"sampling is {sampling}; write the probability of dropping a merge, such as 0.1, or 0 for none."
        )
    if not 0 < sampling < math.inf:
        raise UserError(f"sampling is {sampling}; write a positive alpha such as 0.2, or 0 for none.")


class SubwordSampler:
    """Encodes a text with a randomly drawn segmentation; the tokenizer itself always returns the same one.

    Unigram: draws from all segmentations, each with a probability proportional to P(x)^alpha, by forward filtering and
    backward sampling (Kudo 2018, arXiv 1804.10959, section 3.3 with l = infinity). An alpha near 0 makes all equally
    likely; a large alpha leaves only the most probable.

    BPE: BPE-dropout (Provilkov et al. 2020, arXiv 1910.13267, algorithm 1): before each merge, each possible merge is
    dropped with the given probability.

    The tokenizers library can do both, but from a random state that cannot be set, so training could not be repeated or
    resumed exactly. Here all randomness comes from ``rng``.

    Args:
        tokenizer: a unigram or BPE tokenizer of ``build_tokenizer``.
        sampling: alpha, or the probability of dropping a merge; see ``TokenizerConfig``. It must not be 0.

    Raises:
        UserError: the tokenizer is of another kind, or ``sampling`` is out of range.
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
        """Return the ids of a text, including its end token, in a segmentation drawn with ``rng``."""
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
            # Consecutive unknown characters become one token, as in the library.
            if not (ids and token == ids[-1] == self._unknown):
                ids.append(token)
            end = start
        return ids[::-1]

    def _lattice(self, word: str) -> list[tuple[list[int], list[float]]]:
        """Return for each end within a word the possible starts of a piece, and their cumulative probabilities."""
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
