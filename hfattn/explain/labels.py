"""How a token is written in a picture."""

# Spaces of a text, of SentencePiece, and without a break; ends of lines; tabs.
_BLANKS = str.maketrans({" ": "␣", "▁": "␣", "\u00a0": "␣", "\n": "↵", "\r": "↵", "\t": "⇥"})


def label(token: str, longest: int | None = None) -> str:
    """The token with its white space made visible, cut to ``longest`` characters."""
    text = token.translate(_BLANKS) or "∅"
    return text if longest is None or len(text) <= longest else text[: longest - 1] + "…"


__all__ = ["label"]
