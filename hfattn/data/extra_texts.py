"""Texts without labels, for a teacher to label: read from a file, or drawn from labelled ones."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from random import Random

from huggingface_hub.dataclasses import strict

from ..errors import UserError
from .labelled import Labelled, LabelledTexts
from .rows import JSON_LINES, local_file, open_rows, read_lines

MASKED = "\ue000"  # a word of its own, of a character that no text has: to a tokenizer of ours, an unknown one
LONGEST_NGRAM = 5  # words


def read_unlabelled(source: str, text_column: str = "text", without: Collection[str] = ()) -> LabelledTexts:
    """Read texts whose labels are not known; each is given class 0.

    Args:
        source: the path of a ``.txt`` file with a text on each line, of a ``.jsonl`` file, or of a tab-separated file
            whose first line names its columns.
        text_column: of a file with columns.
        without: texts to leave out. Of equal texts the first is read.

    Raises:
        UserError: there is no such file or column, or no text in it that is not to be left out.
    """
    path = local_file(source)
    if path is None or path.suffix not in (JSON_LINES, ".tsv", ".txt"):
        raise UserError(f"{source} is no file of texts; write the path of a .txt, {JSON_LINES} or .tsv file.")
    if path.suffix == ".txt":
        found = [(line.strip(), number) for number, line in read_lines(path) if line.strip()]
    else:
        rows = open_rows(source)
        found = [(rows.text(row, text_column, "text"), row.number) for row in rows]
    left, items = set(without), []
    for text, number in found:
        if text not in left:
            left.add(text)
            items.append(Labelled(text, 0, number))
    if not items:
        raise UserError(f"{path.name} has no text that the labelled ones do not have; write at least one.")
    return LabelledTexts(path.name, items, ["any"])


@strict
@dataclass
class AugmentationConfig:
    """The section ``augmentation``: texts drawn from each labelled one (Tang et al. 2019, section 3.3)."""

    copies: int = 0  # draws of each text; 20 in the paper
    mask: float | int = 0.1  # probability of a word to be masked
    ngram: float | int = 0.25  # probability of a draw to be cut to one to five words in a row

    def validate_ranges(self) -> None:
        if self.copies < 0:
            raise ValueError(f"copies is {self.copies}; write a whole number, or 0 for none.")
        for name in ("mask", "ngram"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; write a probability from 0 to 1.")
        if self.copies and self.mask == self.ngram == 0:
            raise ValueError("mask and ngram are 0, so that a copy is the text itself; write copies: 0, or another.")


def augmented(texts: LabelledTexts, config: AugmentationConfig, seed: int) -> LabelledTexts:
    """Draw texts from others: words are masked, and of some a few words in a row are kept.

    The paper also replaces words by others of the same part of speech, for which one would need a tagger. A draw that
    equals its text or an earlier draw of it, or that has no word left, is left out.

    Args:
        texts: the labelled texts; their labels are not those of what is drawn.
        config: how many, and how.
        seed: together with a text's index, it decides the draws.

    Returns:
        The draws, all of class 0, with ``MASKED`` in the place of each masked word.
    """
    items = [
        Labelled(drawn, 0)
        for i, item in enumerate(texts)
        for drawn in dict.fromkeys(_draws(item.text.split(), config, Random(f"{seed} {i}")))
    ]
    return replace(texts, items=items, labels=["any"])


def _draws(words: list[str], config: AugmentationConfig, generator: Random) -> Iterator[str]:
    for _ in range(config.copies):
        drawn = [MASKED if generator.random() < config.mask else word for word in words]
        if generator.random() < config.ngram:
            length = generator.randint(1, LONGEST_NGRAM)
            start = generator.randint(0, max(0, len(drawn) - length))
            drawn = drawn[start : start + length]
        if drawn != words and set(drawn) != {MASKED}:
            yield " ".join(drawn)


def spell_masks(texts: LabelledTexts, mask: str) -> LabelledTexts:
    """The texts with another word in the place of each masked one; an empty one leaves it out."""
    items = [
        item._replace(text=" ".join(item.text.replace(MASKED, mask).split())) if MASKED in item.text else item
        for item in texts
    ]
    return replace(texts, items=items)


__all__ = ["LONGEST_NGRAM", "MASKED", "AugmentationConfig", "augmented", "read_unlabelled", "spell_masks"]
