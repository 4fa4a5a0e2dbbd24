"""Tokens as words: merge the sub-words of a record's words, and leave out its special tokens."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import regex
import torch

from ..models.alignment import AttentionRecord
from .labels import is_special

_IDEOGRAPHS = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # scripts without spaces between words
_MARKS = r"\p{P}\p{S}"
_LETTERS = rf"[^\s{_MARKS}{_IDEOGRAPHS}]+"
_WORD = regex.compile(rf"[{_IDEOGRAPHS}]|{_LETTERS}(?:['’]{_LETTERS})*|(?:(?![{_IDEOGRAPHS}])[{_MARKS}])+")


def piece_groups(pieces: Sequence[str]) -> list[int]:
    """Return the index of the word of each piece of a text.

    Words end at white space and at punctuation ("don't" is one word); each ideograph and each kana is a word. A piece
    that contains several words is not split.

    Args:
        pieces: joined, they are the text, including white space.
    """
    starts = {word.start() for word in _WORD.finditer("".join(pieces))}
    groups: list[int] = []
    place = 0
    for piece in pieces:
        first = place + len(piece) - len(piece.lstrip())
        is_first = not groups or (first in starts and not piece.isspace())
        groups.append(groups[-1] + is_first if groups else 0)
        place += len(piece)
    return groups


def token_words(tokens: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Return the words of a text and the indices of their tokens.

    The tokens may be those of SentencePiece (``▁word``), of a byte-level vocabulary (`` word``), of WordPiece (``##s``)
    or characters. Tokens without any of these marks are words already. A special token is a word.
    """
    ordinary = [token for token in tokens if not is_special(token)]
    pieces = list(tokens)
    if any(token.startswith("##") for token in ordinary):
        pieces = [token[2:] if token.startswith("##") else f" {token}" for token in tokens]
    elif any("▁" in token for token in ordinary):
        pieces = [token.replace("▁", " ") for token in tokens]
    elif not any(token[:1].isspace() for token in ordinary) and any(len(token) > 1 for token in ordinary):
        pieces = [f" {token}" for token in tokens]

    words: list[tuple[str, list[int]]] = []
    for special, run in groupby(range(len(tokens)), key=lambda place: is_special(tokens[place])):
        places = list(run)
        if special:
            words += [(tokens[place], [place]) for place in places]
            continue
        grouped = zip(piece_groups([pieces[place] for place in places]), places, strict=True)
        for _, members in groupby(grouped, key=lambda pair: pair[0]):
            inside = [place for _, place in members]
            words.append(("".join(pieces[place] for place in inside).strip() or tokens[inside[0]], inside))
    return words


def merge_words(record: AttentionRecord) -> AttentionRecord:
    """Return a record of words instead of sub-words or characters.

    The weights on the tokens of a source word are summed, and the rows of the tokens of a target word are averaged
    (Clark et al. 2019, section 4.1), so that a row that adds up to 1 still does. The probability of a word is the
    product of those of its tokens, and its entropy their mean.

    Args:
        record: any record; words are recognized as by ``token_words``.
    """
    sources, targets = token_words(record.tokens), token_words(record.target_tokens)
    weights = torch.stack([record.weights[..., inside].sum(-1) for _, inside in sources], -1)
    weights = torch.stack([weights[..., inside, :].mean(-2) for _, inside in targets], -2)
    probabilities, entropies = record.probabilities, record.entropies
    if probabilities is not None:
        probabilities = torch.stack([probabilities[inside].prod() for _, inside in targets])
    if entropies is not None:
        entropies = torch.stack([entropies[inside].mean() for _, inside in targets])
    names = [tuple(word for word, _ in side) for side in (sources, targets)]
    return replace(
        record,
        tokens=names[0],
        target_tokens=names[1],
        weights=weights,
        probabilities=probabilities,
        entropies=entropies,
    )


def hide_special(record: AttentionRecord) -> AttentionRecord:
    """Return a record without special tokens such as "[EOS]", unless a side has no other tokens.

    The other weights stay as they are, so a row may add up to less than 1.
    """
    sources, targets = (ordinary(side) for side in (record.tokens, record.target_tokens))
    return replace(
        record,
        tokens=tuple(record.tokens[place] for place in sources),
        target_tokens=tuple(record.target_tokens[place] for place in targets),
        weights=record.weights[..., targets, :][..., sources],
        probabilities=None if record.probabilities is None else record.probabilities[targets],
        entropies=None if record.entropies is None else record.entropies[targets],
        num_prefix_tokens=sum(place < record.num_prefix_tokens for place in sources),
    )


def ordinary(tokens: Sequence[str]) -> list[int]:
    """Return the indices of the tokens that are not special; of all tokens if all are special."""
    places = [place for place, token in enumerate(tokens) if not is_special(token)]
    return places or list(range(len(tokens)))
