"""Counterfactual tests of classifiers: change words that should not matter, and measure how the predictions change."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import UserError
from ..yaml_values import read_yaml

Pairs = Sequence[tuple[str, str]]
Input = str | tuple[str, str]  # what a classifier reads: a text, or a pair of texts
Predict = Callable[[list[Any]], np.ndarray]  # from n inputs to class probabilities (n, C)

_WORD = re.compile(r"\w+")
_OWN = Path(__file__).with_name("swaps.yaml")
_TEMPLATES = {  # files of sentences, by ISO 639 code
    "en": Path(__file__).with_name("templates.yaml"),
    "es": Path(__file__).with_name("templates_es.yaml"),
}


class Templates(NamedTuple):
    """Sentences with fields in braces, and the words to fill in.

    Attributes:
        words: k rows with a word for each field; the first value of a row names it.
        texts: sentences for classifiers of one text.
        pairs: pairs of sentences for classifiers of two texts.
    """

    words: Sequence[Mapping[str, str]]
    texts: Sequence[str]
    pairs: Sequence[tuple[str, str]]


def read_swaps(path: str | Path | None = None) -> dict[str, Pairs]:
    """Return the words to swap, by kind: the built-in ones (gender, country, name), and those of a file.

    Args:
        path: YAML file of kinds, each with a list of pairs ``[one, other]``; a kind replaces the built-in kind of the
            same name. By default, only the built-in ones.

    Raises:
        UserError: the file does not exist or has another format, or a pair cannot be swapped.
    """
    swaps = _read(_OWN)
    if path is not None:
        file = Path(path)
        if not file.is_file():
            raise UserError(
                f"The file {path} with the words to swap does not exist; write the path of a YAML file, or null."
            )
        swaps |= _read(file)
    for pairs in swaps.values():
        _partners(pairs)
    return swaps


def read_templates(path: str | Path | None = None, languages: Sequence[str] = ()) -> dict[str, Templates]:
    """Return sentences to fill with words that should not matter, by kind: country, gender, name, or those of a file.

    Args:
        path: YAML file in the format of ``templates.yaml``; by default, the built-in sentences.
        languages: ISO 639 codes of the languages of the built-in sentences, English (en) and Spanish (es); English if
            there are none for any of these languages.

    Raises:
        UserError: the file does not exist or has another format, or a sentence has a field for which a word is missing.
    """
    if path is None:
        files = [_TEMPLATES[language] for language in languages if language in _TEMPLATES] or [_TEMPLATES["en"]]
        return {kind: templates for file in files for kind, templates in _read_templates(file).items()}
    return _read_templates(Path(path))


def _read_templates(file: Path) -> dict[str, Templates]:
    if not file.is_file():
        raise UserError(f"The file {file} with sentence templates does not exist; write the path of a YAML file.")
    kinds = read_yaml(file)
    try:
        found = {
            str(kind): Templates(
                [{str(name): str(word) for name, word in row.items()} for row in values["words"]],
                [str(text) for text in values.get("texts", [])],
                [(str(first), str(second)) for first, second in values.get("pairs", [])],
            )
            for kind, values in kinds.items()
        }
        for templates in found.values():
            _fill(templates, [*templates.texts, *templates.pairs])
    except KeyError as error:
        raise UserError(f"{file.name} has no {error} where it is needed; add it to each row of words.") from None
    except (AttributeError, IndexError, TypeError, ValueError):
        raise UserError(
            f"{file.name} is not a file of templates; write kinds, each with words (rows such as {{country: India}}), "
            "texts and pairs."
        ) from None
    for kind, templates in found.items():
        if len({next(iter(row.values()), "") for row in templates.words}) < max(2, len(templates.words)):
            raise UserError(f"The words of {kind!r} in {file.name} need at least two rows that begin differently.")
    return found


def _fill(templates: Templates, sentences: Sequence[Any]) -> list[Any]:
    """Return each sentence, or pair of sentences, filled with each row of words, sentence by sentence."""
    return [
        each.format(**row) if isinstance(each, str) else tuple(sentence.format(**row) for sentence in each)
        for each in sentences
        for row in templates.words
    ]


def _read(path: Path) -> dict[str, Pairs]:
    kinds = read_yaml(path)
    if not isinstance(kinds, dict) or not kinds:
        raise UserError(
            f"{path.name} has no kinds of words; write lines such as 'age:' and below it '  - [young, old]'."
        )
    for kind, pairs in kinds.items():
        for pair in pairs if isinstance(pairs, list) and pairs else [pairs]:
            if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(word, str) for word in pair):
                raise UserError(
                    f"{path.name} has {pair!r} among the words of {kind!r}; write pairs, such as [young, old]."
                )
    return {str(kind): [(one, other) for one, other in pairs] for kind, pairs in kinds.items()}


def swap_words(text: str, pairs: Pairs) -> str:
    """Replace each word of the pairs by its partner, in both directions at once; whole words only, keeping the case.

    A word in several pairs is replaced by its partner in the first of them.

    Raises:
        UserError: a pair does not consist of two different single words.
    """
    partners = _partners(pairs)

    def replace(match: re.Match[str]) -> str:
        word = match[0]
        partner = partners.get(word.casefold())
        if partner is None:
            return word
        if word.islower():
            return partner.lower()
        if word.isupper() and len(word) > 1:
            return partner.upper()
        return partner[0].upper() + partner[1:]

    return _WORD.sub(replace, text)


def _partners(pairs: Pairs) -> dict[str, str]:
    partners: dict[str, str] = {}
    for one, other in pairs:
        if not (_WORD.fullmatch(one) and _WORD.fullmatch(other)) or one.casefold() == other.casefold():
            raise UserError(f"{one!r} and {other!r} cannot be swapped; write two different words, each without spaces.")
        partners.setdefault(one.casefold(), other)
        partners.setdefault(other.casefold(), one)
    return partners


def counterfactual(
    predict: Predict,
    texts: Sequence[Input],
    swaps: Mapping[str, Pairs] | None = None,
    examples: int = 3,
    threshold: float | None = None,
) -> dict[str, dict[str, Any]]:
    """Swap words in all texts, separately for each kind, and measure the change of predictions (none if fair).

    This is the counterfactual token fairness of Garg et al. 2019, with swaps in both directions at once.

    Args:
        predict: function from n texts to class probabilities (n, C), whose rows sum to 1.
        texts: texts, or pairs of texts, to predict; for each kind, those without a swapped word are left out.
        swaps: pairs of words to swap, by kind; None for ``read_swaps()``.
        examples: number of texts to return, those with the largest change of the prediction.
        threshold: the classifier abstains below this probability of its most probable class; None: never.

    Returns:
        For each kind, the number of ``texts`` that changed; ``flipped``, the fraction of them whose most probable class
        changed; ``mean_shift`` and ``max_shift``, the mean and the maximum of the total variation distance
        ½ Σ_c |p_c - p'_c| between both predictions, which for two classes is the absolute shift of either probability
        (all are None if no text changed); and ``examples``, the texts with the largest change: ``index`` in ``texts``,
        ``text``, ``counterfactual``, the probabilities of all classes ``before`` and ``after``, and their distance
        ``shift``. With a threshold also ``abstaining``: the fractions of texts for which the classifier answers
        ``both`` the text and its counterfactual, answers ``one`` of them only, and answers both with different classes
        (``flipped``).

    Raises:
        UserError: a pair cannot be swapped, or ``predict`` does not return probabilities.
    """
    results: dict[str, dict[str, Any]] = {}
    for kind, pairs in (read_swaps() if swaps is None else swaps).items():
        swapped = [
            swap_words(each, pairs) if isinstance(each, str) else tuple(swap_words(text, pairs) for text in each)
            for each in texts
        ]
        changed = [i for i, text in enumerate(texts) if swapped[i] != text]
        if not changed:
            results[kind] = {"texts": 0, "flipped": None, "mean_shift": None, "max_shift": None, "examples": []}
            continue
        before = _probabilities(predict, [texts[i] for i in changed])
        after = _probabilities(predict, [swapped[i] for i in changed])
        sides = [texts[i] for i in changed], [swapped[i] for i in changed]
        worst = _worst(before, after, *sides, examples)
        results[kind] = {
            "texts": len(changed),
            **_changes(before, after, threshold),
            "examples": [{"index": changed[row], **example} for row, example in worst.items()],
        }
    return results


def template_test(
    predict: Predict,
    templates: Mapping[str, Templates] | None = None,
    *,
    pairs: bool = False,
    examples: int = 3,
    threshold: float | None = None,
) -> dict[str, dict[str, Any]]:
    """Fill sentences with words that should not matter, and compare the predictions for each two of the words.

    The sentences do not depend on the data of a classifier, so every classifier of their language can be tested. This
    is an invariance test of Ribeiro et al. 2020, section 2, with templates as in Kiritchenko & Mohammad 2018.

    Args:
        predict: function from n texts, or pairs of texts, to class probabilities (n, C), whose rows sum to 1.
        templates: sentences and words by kind; None for ``read_templates()``.
        pairs: use the pairs of sentences, for classifiers of two texts.
        examples, threshold: as in ``counterfactual``.

    Returns:
        For each kind, the number of ``sentences``; the number of ``pairs`` of filled sentences that are compared, each
        sentence with every two of the k words; ``flipped``, ``mean_shift``, ``max_shift``, ``examples`` and
        ``abstaining`` over these pairs, as in ``counterfactual``; and ``by_word``: for each word, the same scores of
        the pairs that contain it.

    Raises:
        UserError: no kind has such sentences, or ``predict`` does not return probabilities.
    """
    results: dict[str, dict[str, Any]] = {}
    for kind, each in (read_templates() if templates is None else templates).items():
        sentences: Sequence[Input] = each.pairs if pairs else each.texts
        if not sentences:
            continue
        filled, k = _fill(each, sentences), len(each.words)
        probabilities = _probabilities(predict, filled)
        one, other = np.triu_indices(k, 1)  # all pairs of words
        starts = k * np.arange(len(sentences))[:, None]
        left, right = (starts + one).ravel(), (starts + other).ravel()
        before, after = probabilities[left], probabilities[right]
        worst = _worst(before, after, [filled[i] for i in left], [filled[i] for i in right], examples)
        results[kind] = {
            "sentences": len(sentences),
            "pairs": len(left),
            **_changes(before, after, threshold),
            "by_word": {},
            "examples": list(worst.values()),
        }
        for i, row in enumerate(each.words):
            held = (left % k == i) | (right % k == i)
            results[kind]["by_word"][next(iter(row.values()))] = {
                "pairs": int(held.sum()),
                **_changes(before[held], after[held], threshold),
            }
    if not results:
        raise UserError(f"The templates have no {'pairs' if pairs else 'texts'}; add some to a kind.")
    return results


def _changes(before: np.ndarray, after: np.ndarray, threshold: float | None) -> dict[str, Any]:
    """Compare the class probabilities (n, C) of n inputs and of their counterfactuals."""
    flipped = before.argmax(axis=1) != after.argmax(axis=1)
    shifts = np.abs(before - after).sum(axis=1) / 2  # (n,)
    changes: dict[str, Any] = {
        "flipped": float(flipped.mean()),
        "mean_shift": float(shifts.mean()),
        "max_shift": float(shifts.max()),
    }
    if threshold is not None:
        first, second = before.max(axis=1) >= threshold, after.max(axis=1) >= threshold
        changes["abstaining"] = {
            "both": float((first & second).mean()),
            "one": float((first ^ second).mean()),
            "flipped": float((first & second & flipped).mean()),
        }
    return changes


def _worst(
    before: np.ndarray, after: np.ndarray, texts: Sequence[Any], counterfactuals: Sequence[Any], number: int
) -> dict[int, dict[str, Any]]:
    """Return the inputs whose probabilities (n, C) change most, by their index from 0 to n - 1."""
    shifts = np.abs(before - after).sum(axis=1) / 2
    return {
        row: {
            "text": texts[row],
            "counterfactual": counterfactuals[row],
            "before": before[row].tolist(),
            "after": after[row].tolist(),
            "shift": float(shifts[row]),
        }
        for row in np.argsort(-shifts, kind="stable")[:number].tolist()
        if shifts[row] > 0
    }


def _probabilities(predict: Predict, texts: list[Any]) -> np.ndarray:
    probabilities = np.asarray(predict(texts), dtype=np.float64)
    rows = probabilities.ndim == 2 and len(probabilities) == len(texts)
    if not rows or (probabilities < 0).any() or not np.allclose(probabilities.sum(axis=1), 1, atol=1e-2):
        raise UserError(
            f"What predict returned for {len(texts)} texts, of shape {probabilities.shape}, is not the probability of "
            "each class for each of them; hfattn.metrics.class_probabilities computes it from logits."
        )
    return probabilities
