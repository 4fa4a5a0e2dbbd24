"""Nearest words and analogies, computed by gensim from word vectors."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..data.rows import read_lines
from ..data.vectors import word_vectors
from ..errors import UserError
from ..extras import optional
from .classifier import SETTINGS, BaselineClassifier
from .vectors import TextVectors


def load_words(vectors: str | Path, words: str | Path | None = None) -> Any:
    """Load word vectors as gensim's ``KeyedVectors``.

    Args:
        vectors: run folder of recipes/baselines with ``features.kind: vectors``, or a file as of
            ``hfattn.data.word_vectors``.
        words: for a ``.npy`` file, the file of its words.

    Raises:
        UserError: the folder has no word vectors, or a file is malformed.
        OSError: a file cannot be read.
    """
    vectors = Path(vectors)
    if vectors.is_dir():
        if words is not None:
            raise UserError(f"{vectors} is a run folder, which has its own words; remove the file of words.")
        if not (vectors / SETTINGS).is_file():
            raise UserError(f"{vectors} has no baseline ({SETTINGS}); give a run folder of recipes/baselines.")
        features = BaselineClassifier.from_pretrained(vectors).features
        if not isinstance(features, TextVectors):
            raise UserError(f"{vectors} has no word vectors; give a run with features.kind: vectors.")
        return features.keyed_vectors
    rows: dict[str, np.ndarray] = {}
    for word, row in word_vectors(vectors, words):
        rows.setdefault(word, row)
    if not rows:
        raise UserError(f"{vectors} has no word vectors; give a file with some.")
    loaded = optional("baselines", "gensim.models").KeyedVectors(len(next(iter(rows.values()))))
    loaded.add_vectors(list(rows), np.array(list(rows.values()), np.float32))
    return loaded


def nearest_words(vectors: Any, expression: str, number: int = 10) -> list[tuple[str, float]]:
    """Return the words nearest to a word or to a sum of words, such as ``king - man + woman``.

    The vectors of the words are normalized to length 1 before they are added, and the words of the expression are not
    answers (3CosAdd; Mikolov et al. 2013, NAACL, and Levy & Goldberg 2014, section 3).

    Args:
        vectors: what ``load_words`` returns.
        expression: words joined by + and - between spaces.
        number: number of words to return.

    Returns:
        The words with their cosines, the nearest first.

    Raises:
        UserError: the expression is malformed, or a word has no vector. Vectors of fastText also represent unknown
            words, by their character n-grams.
    """
    parts = ["+", *expression.split()]
    signs, words = parts[::2], parts[1::2]
    if len(signs) != len(words) or not set(signs) <= {"+", "-"}:
        raise UserError(f"Cannot read {expression!r}; write words joined by + and -, such as king - man + woman.")
    for word in words:
        if word not in vectors:
            raise UserError(
                f"The word {word!r} has no vector; write one of the {len(vectors):,} words that have one, in their "
                "spelling (most vectors are of lowercased words)."
            )
    pairs = list(zip(signs, words, strict=True))
    return vectors.most_similar(
        positive=[word for sign, word in pairs if sign == "+"],
        negative=[word for sign, word in pairs if sign == "-"],
        topn=number,
    )


def analogy_scores(vectors: Any, path: str | Path, first: int | None = None) -> list[dict[str, Any]]:
    """Answer the analogies of a file as gensim's ``evaluate_word_analogies`` does, without regard to case.

    Args:
        vectors: what ``load_words`` returns.
        path: UTF-8 text file in the format of word2vec's ``questions-words.txt`` (Mikolov et al. 2013, arXiv
            1301.3781, section 4): ``: SECTION`` lines, each followed by lines of four words a b c d, of which d is the
            answer to b - a + c.
        first: number of words, from the first, that are read and can be answers; default: all.

    Returns:
        For each section, and last for all of them (``total``): ``section``; the numbers ``questions``, ``answered``
        (all four words have a vector) and ``right``; and ``accuracy``, right / answered, None if none is answered.

    Raises:
        UserError: the file is malformed or has no question.
        OSError: the file cannot be read.
    """
    path = Path(path)
    questions = _questions(path)
    _, sections = vectors.evaluate_word_analogies(str(path), restrict_vocab=first or len(vectors))
    # gensim starts a section at each header; a name that occurs twice is counted once here.
    right = Counter(dict.fromkeys(questions, 0))
    answered = right.copy()
    for section in sections[:-1]:
        right[section["section"]] += len(section["correct"])
        answered[section["section"]] += len(section["correct"]) + len(section["incorrect"])
    rows = [(name, questions[name], answered[name], right[name]) for name in questions]
    rows.append(("total", questions.total(), answered.total(), right.total()))
    return [
        {
            "section": name,
            "questions": asked,
            "answered": known,
            "right": hits,
            "accuracy": hits / known if known else None,
        }
        for name, asked, known, hits in rows
    ]


def _questions(path: Path) -> Counter[str]:
    """Return the number of questions of each section, after a check of each line."""
    counts: Counter[str] = Counter()
    section = None
    for number, line in read_lines(path):
        if line.startswith(": "):
            section = line.lstrip(": ").strip()
            counts[section] += 0
        elif line.strip():
            if section is None or len(line.split()) != 4:
                wanted = "a line ': SECTION'" if section is None else "four words"
                raise UserError(f"Line {number} of {path.name} is not {wanted}; write it as in questions-words.txt.")
            counts[section] += 1
    if not counts.total():
        raise UserError(f"{path.name} has no analogies; write a line ': SECTION', then four words on each line.")
    return counts


def neighbours(vectors: Any, words: Sequence[str], number: int = 5) -> dict[str, list[tuple[str, float]]]:
    """Return the nearest words of each word with their cosines; none for a word without a vector."""
    return {word: nearest_words(vectors, word, number) if word in vectors else [] for word in words}
