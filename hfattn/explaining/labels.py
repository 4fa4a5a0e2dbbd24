"""Tokens as labels in pictures."""

import re
import unicodedata
from collections.abc import Sequence

# Space, SentencePiece's space, no-break space, line ends, tab.
_BLANKS = str.maketrans({" ": "␣", "▁": "␣", "\u00a0": "␣", "\n": "↵", "\r": "↵", "\t": "⇥"})


_SPECIAL = re.compile(r"\[[^\]\s]+\]|<[^>\s]+>")


def is_special(token: str) -> bool:
    """Return whether a token is written like a special token, such as "[EOS]" or "</s>"."""
    return _SPECIAL.fullmatch(token) is not None


def label(token: str, longest: int | None = None) -> str:
    """Return a token with visible white space, cut to ``longest`` characters."""
    text = token.translate(_BLANKS) or "∅"
    return text if longest is None or len(text) <= longest else text[: longest - 1] + "…"


def right_to_left(tokens: Sequence[str]) -> bool:
    """Return whether most letters of a text are written from right to left; special tokens do not count."""
    words = "".join(token for token in tokens if token[:1] not in ("[", "<"))
    directions = [unicodedata.bidirectional(character) for character in words]
    return sum(d in ("R", "AL") for d in directions) > sum(d == "L" for d in directions)
