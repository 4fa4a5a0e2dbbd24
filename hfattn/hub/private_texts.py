"""Which texts the folder of a run quotes, and the check that it quotes none of the user's own data."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ..clean_process import FINGERPRINTS
from ..data.parts import PARTS
from ..data.rows import GIVEN, PRIVATE_DATASETS, local_data, parallel_files
from ..data.stored import Again
from ..data.text import EMBEDDED
from ..data.vectors import WordVectorsConfig
from ..files import read_json
from .fingerprints import read_fingerprints

FEW = 10  # a number in fewer texts than this is rare: it may be that of a customer or of a contract
_SHORTEST = 5  # words of a text that is searched for as a whole
_LONGEST = 8  # words of the pieces of longer texts that are searched for
_QUOTING = (".html", ".json", ".jsonl", ".md", ".svg", ".txt")
_NUMBER = re.compile(r"\d{3,}")
_WORD = re.compile(r"\w+")


def has_public_data(config: Any) -> bool:
    """Return whether all texts of a run are public.

    They are if they are generated, if they are those of a public dataset on the Hub, or if ``publish.public_data``
    names the dataset; of a mixture, it names the datasets of the tasks and then the files of ``tokenizer.more_texts``.
    Files, folders, datasets in memory and private datasets on the Hub are not.

    Args:
        config: the configuration of a recipe, whose data have been read.
    """
    # Files of which a tokenizer of a mixture learns too.
    more = getattr(getattr(config, "tokenizer", None), "more_texts", [])
    if ", ".join([str(config.data.dataset), *more]) == config.publish.public_data:
        return True
    if more:
        return False
    # A mixture of tasks has a section for each.
    return all(_is_public(data) for data in getattr(config.data, "sections", {"": config.data}).values())


def _is_public(data: Any) -> bool:
    if data.dataset in (EMBEDDED, *getattr(data, "generated", ())):
        return True
    places = [data.dataset, *(getattr(data, part, None) for part in PARTS[1:])]
    return not any(isinstance(place, str) and _is_private(place) for place in places)


def _is_private(place: str) -> bool:
    if place == GIVEN or place in PRIVATE_DATASETS or parallel_files(place) is not None:
        return True
    return local_data(place) is not None


def texts_to_publish(config: Any, fewest: str = "none") -> str:
    """Return which texts the folder of a run quotes: one of ``TEXTS``.

    Args:
        config: the configuration of a recipe, whose data have been read.
        fewest: what is quoted of data that are not public, if ``publish.texts`` does not say.
    """
    if config.publish.texts is not None:
        return str(config.publish.texts)
    return "samples" if has_public_data(config) else fewest


def split_rare_numbers(texts: Iterable[str]) -> Iterable[str]:
    """Put spaces between the digits of numbers that are in fewer than ``FEW`` of the texts.

    A vocabulary that is learned from the result has no such number: 48291 becomes 4 8 2 9 1. Numbers have at least
    three digits.

    Args:
        texts: the texts, which are read now and each time that the result is read.
    """
    found = Counter(number for text in texts for number in set(_NUMBER.findall(text)))
    often = {number for number, count in found.items() if count >= FEW}
    return Again(
        lambda: (
            _NUMBER.sub(lambda match: match[0] if match[0] in often else f" {' '.join(match[0])} ", text)
            for text in texts
        )
    )


def vocabulary_texts(config: Any, texts: Iterable[str]) -> Iterable[str]:
    """Return the texts from which a run learns its vocabulary: without rare numbers if no samples are published.

    With ``data.all_words``, the words of ``data.vectors`` follow.

    Args:
        config: the configuration of a recipe, whose data have been read.
        texts: the texts. An iterator, which can be read once, is kept in memory.

    Raises:
        UserError: the file of vectors cannot be read.
    """
    texts = list(texts) if isinstance(texts, Iterator) else texts
    words = config.data.added_words() if isinstance(config.data, WordVectorsConfig) else []
    if texts_to_publish(config) != "samples":
        texts, words = split_rare_numbers(texts), list(split_rare_numbers(words))
    return Again(lambda: chain(texts, words)) if words else texts


def check_private_texts(
    folder: Path, texts: Iterable[str], own_words: Iterable[str] = (), learned_vocabulary: bool = True
) -> str:
    """Check that the files of a folder quote none of the texts of the data.

    A quotation is a whole text of at least five words, or eight consecutive words of a longer one; case, punctuation
    and numbers of spaces do not count. A vocabulary that was learned from the texts may not have a number of at least
    three digits that is in fewer than ten of them.

    Args:
        folder: the folder.
        texts: the texts of the data, which are read once.
        own_words: texts that may be quoted.
        learned_vocabulary: whether the vocabulary was learned from the texts; numbers of another say nothing of them.

    Returns:
        Description of what was compared.

    Raises:
        AssertionError: a text is quoted. The message names the file, and does not repeat the text.
    """
    allowed = {gram for text in own_words for gram in _grams(text, range(_SHORTEST, _LONGEST + 1))}
    places: dict[tuple[str, ...], str] = {}
    for name, text in _quoted(folder):
        for gram in _grams(text, range(_SHORTEST, _LONGEST + 1)):
            if gram not in allowed:
                places.setdefault(gram, name)
    rare = Counter(dict.fromkeys(_vocabulary_numbers(folder) if learned_vocabulary else (), 0))
    number = 0
    for number, text in enumerate(texts, 1):
        words = _WORD.findall(text.casefold())
        for gram in _grams(text, [min(len(words), _LONGEST)] if len(words) >= _SHORTEST else []):
            assert gram not in places, (
                f"{places[gram]} quotes text {number} of the data; write publish.texts: samples if the data are "
                "public, or train again with publish.texts: none"
            )
        if rare:
            inside = {
                run[start:end]
                for run in set(_NUMBER.findall(text))
                for start in range(len(run))
                for end in range(start + 3, min(len(run), start + 24) + 1)
            }
            rare.update(inside & rare.keys())
    if number >= FEW:
        told = sum(1 for count in rare.values() if 0 < count < FEW)
        assert not told, (
            f"the vocabulary has {told} numbers that are in fewer than {FEW} texts of the data; train again with "
            "publish.texts: none"
        )
    return f"{number:,} texts of the data, none of them in {len(set(places.values())):,} files"


def texts_of(parts: Mapping[str, Iterable[Any]]) -> Iterator[str]:
    """Yield the texts of the examples of all parts, whatever the kind of the examples."""
    for examples in parts.values():
        for item in examples:
            for value in item if isinstance(item, tuple) else vars(item).values():
                if isinstance(value, str):
                    yield value
                elif isinstance(value, Sequence) and value and all(isinstance(each, str) for each in value):
                    yield " ".join(value)
                    yield from value
                elif isinstance(value, list):  # messages
                    yield from strings(value)


def _grams(text: str, lengths: Iterable[int]) -> Iterator[tuple[str, ...]]:
    words = _WORD.findall(text.casefold())
    for length in lengths:
        for start in range(len(words) - length + 1):
            yield tuple(words[start : start + length])


def _quoted(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the texts in the files of a folder, each with the path of its file; vocabularies are left out."""
    for path in sorted(path for path in folder.rglob("*") if path.suffix in _QUOTING and path.is_file()):
        name = path.relative_to(folder).as_posix()
        if path.name in ("tokenizer.json", "vocab.json", "vocabulary.json", "vocab.txt"):
            continue
        if path.suffix == ".json":
            yield from ((name, text) for text in strings(read_json(path)))
        else:
            text = path.read_text(encoding="utf-8", errors="replace")
            yield name, re.sub(r"<[^<>]*>", " ", text) if path.suffix in (".html", ".svg") else text
    if (folder / FINGERPRINTS).is_file():
        for batch in read_fingerprints(folder)[0].values():
            yield from ((FINGERPRINTS, text) for row in batch for text in row)


def strings(value: Any) -> Iterator[str]:
    """Yield all strings in a value of JSON, names of fields included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield name
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)


def _vocabulary_numbers(folder: Path) -> set[str]:
    """Return the numbers of at least three digits in the vocabularies of a folder."""
    numbers: set[str] = set()
    for path in [*folder.rglob("tokenizer.json"), *folder.rglob("vocabulary.json")]:
        content = read_json(path)
        model = content.get("model", {}) if path.name == "tokenizer.json" and isinstance(content, dict) else content
        entries = model.get("vocab", model) if isinstance(model, dict) else model
        words = (entry[0] if isinstance(entry, list) and entry else entry for entry in entries)
        numbers.update(found for word in words if isinstance(word, str) for found in _NUMBER.findall(word))
    return numbers
