"""An attention record as lines of text, for a terminal."""

from ..models.alignment import AttentionRecord
from .labels import label

_LONGEST_LABEL = 20  # characters


def render_text(record: AttentionRecord, most: int = 3) -> str:
    """Return one line for each token that attends, with the tokens that it attends to most.

    Args:
        record: the record, whose mean over layers and heads is shown.
        most: number of tokens named in a line; weights below 1% are left out.
    """
    targets = [label(token, _LONGEST_LABEL) for token in record.target_tokens]
    width = max(map(len, targets), default=0)
    lines = []
    for target, row in zip(targets, record.matrix().tolist(), strict=True):
        order = sorted(range(len(row)), key=lambda j: -row[j])[:most]
        seen = [f"{label(record.tokens[j], _LONGEST_LABEL)} {row[j]:.0%}" for j in order if row[j] >= 0.01]
        lines.append(f"{target:{width}} ← {'   '.join(seen)}".rstrip())
    return "\n".join(lines)
