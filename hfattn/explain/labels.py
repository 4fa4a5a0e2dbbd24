"""How a token is written in a picture."""

import unicodedata
from collections.abc import Sequence

# Spaces of a text, of SentencePiece, and without a break; ends of lines; tabs.
_BLANKS = str.maketrans({" ": "␣", "▁": "␣", "\u00a0": "␣", "\n": "↵", "\r": "↵", "\t": "⇥"})


def label(token: str, longest: int | None = None) -> str:
    """The token with its white space made visible, cut to ``longest`` characters."""
    text = token.translate(_BLANKS) or "∅"
    return text if longest is None or len(text) <= longest else text[: longest - 1] + "…"


def right_to_left(tokens: Sequence[str]) -> bool:
    """Whether most of a text's letters are written from right to left; special symbols do not count."""
    words = "".join(token for token in tokens if token[:1] not in ("[", "<"))
    directions = [unicodedata.bidirectional(character) for character in words]
    return sum(d in ("R", "AL") for d in directions) > sum(d == "L" for d in directions)


__all__ = ["label", "right_to_left"]
