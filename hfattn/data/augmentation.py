"""Unlabeled texts for a teacher to label: read from a file, or made from labeled texts by augmentation."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from random import Random

from huggingface_hub.dataclasses import strict

from ..errors import UserError
from ..fields import at_least, share
from .labeled import Labeled, LabeledTexts
from .rows import JSON_LINES, is_table, local_file, open_rows, read_lines

MASKED = "\ue000"  # in place of a masked word: a private-use character, which tokenizers of hfattn encode as unknown
LONGEST_NGRAM = 5  # words


def read_unlabeled(dataset: str, text_column: str = "text", without: Collection[str] = ()) -> LabeledTexts:
    """Read unlabeled texts; each gets class 0.

    Args:
        dataset: path of a ``.txt`` file with one text per line, or of another file with columns, as in ``open_rows``.
        text_column: column of the texts, for files with columns.
        without: texts to leave out. Repeated texts are read once.

    Raises:
        UserError: the file or column does not exist, or no text remains.
    """
    path = local_file(dataset)
    if path is None or (path.suffix not in (".tsv", ".txt") and not is_table(path)):
        raise UserError(f"{dataset} is not a file of texts; write the path of a .txt, {JSON_LINES}, .csv or .tsv file.")
    if path.suffix == ".txt":
        found = [(line.strip(), number) for number, line in read_lines(path) if line.strip()]
    else:
        rows = open_rows(dataset)
        found = [(rows.text(row, text_column, "text", "text_column"), row.number) for row in rows]
    left, items = set(without), []
    for text, number in found:
        if text not in left:
            left.add(text)
            items.append(Labeled(text, 0, number))
    if not items:
        raise UserError(f"{path.name} has no text that is not among the labeled texts already; add at least one.")
    return LabeledTexts(path.name, items, ["any"])


@strict
@dataclass
class AugmentationConfig:
    """The section ``augmentation``: noisy copies of each labeled text (Tang et al. 2019, section 3.3)."""

    copies: int = at_least(0, 0)  # copies of each text; 20 in the paper
    mask: float | int = share(0.1)  # probability that a word is masked
    ngram: float | int = share(0.25)  # probability that a copy is cut to one to five consecutive words

    def validate_noise(self) -> None:
        if self.copies and self.mask == self.ngram == 0:
            raise ValueError("mask and ngram are 0, so every copy equals its text; write copies: 0, or raise one.")


def augmented(texts: LabeledTexts, config: AugmentationConfig, seed: int) -> LabeledTexts:
    """Create noisy copies of texts: words are masked, and some copies are cut to a few consecutive words.

    The paper also replaces words by words of the same part of speech, which requires a tagger. Copies that equal their
    text or another copy of it, or in which every word is masked, are left out.

    Args:
        texts: the labeled texts; the copies do not keep their labels.
        config: the number of copies, and the probabilities.
        seed: random seed, combined with the index of a text.

    Returns:
        The copies, all of class 0, with ``MASKED`` in place of each masked word.
    """
    items = [
        Labeled(drawn, 0)
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


def spell_masks(texts: LabeledTexts, mask: str) -> LabeledTexts:
    """Return the texts with ``mask`` in place of each masked word; an empty ``mask`` removes the word."""
    items = [
        item._replace(text=" ".join(item.text.replace(MASKED, mask).split())) if MASKED in item.text else item
        for item in texts
    ]
    return replace(texts, items=items)
