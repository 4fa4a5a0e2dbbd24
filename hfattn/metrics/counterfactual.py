"""Counterfactual tests of classifiers: swap words that should not matter, and measure how the predictions change."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ..errors import UserError

Pairs = Sequence[tuple[str, str]]

_WORD = re.compile(r"\w+")
_OWN = Path(__file__).with_name("swaps.yaml")


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
            raise UserError(f"There is no file {path} of words to swap; write the path of a YAML file, or null.")
        swaps |= _read(file)
    for pairs in swaps.values():
        _partners(pairs)
    return swaps


def _read(path: Path) -> dict[str, Pairs]:
    try:
        kinds = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path.name} is not valid YAML: {' '.join(str(error).split())}.") from None
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
    predict: Callable[[list[str]], np.ndarray],
    texts: Sequence[str],
    swaps: Mapping[str, Pairs] | None = None,
    examples: int = 3,
) -> dict[str, dict[str, Any]]:
    """Swap words in all texts, separately for each kind, and measure the change of predictions (none if fair).

    This is the counterfactual token fairness of Garg et al. 2019, with swaps in both directions at once.

    Args:
        predict: function from n texts to class probabilities (n, C), whose rows sum to 1.
        texts: texts to predict; for each kind, texts without a swapped word are left out.
        swaps: pairs of words to swap, by kind; None for ``read_swaps()``.
        examples: number of texts to return, those with the largest change of the prediction.

    Returns:
        For each kind, the number of ``texts`` that changed; ``flipped``, the fraction of them whose most probable class
        changed; ``mean_shift``, the mean total variation distance ½ Σ_c |p_c - p'_c| between both predictions, which
        for two classes is the absolute shift of either probability (both are None if no text changed); and
        ``examples``, the texts with the largest change: ``index`` in ``texts``, ``text``, ``counterfactual``, the
        probabilities of all classes ``before`` and ``after``, and their distance ``shift``.

    Raises:
        UserError: a pair cannot be swapped, or ``predict`` does not return probabilities.
    """
    results: dict[str, dict[str, Any]] = {}
    for kind, pairs in (read_swaps() if swaps is None else swaps).items():
        swapped = [swap_words(text, pairs) for text in texts]
        changed = [i for i, text in enumerate(texts) if swapped[i] != text]
        if not changed:
            results[kind] = {"texts": 0, "flipped": None, "mean_shift": None, "examples": []}
            continue
        before = _probabilities(predict, [texts[i] for i in changed])
        after = _probabilities(predict, [swapped[i] for i in changed])
        shifts = np.abs(before - after).sum(axis=1) / 2  # (n,)
        worst = [row for row in np.argsort(-shifts, kind="stable")[:examples].tolist() if shifts[row] > 0]
        results[kind] = {
            "texts": len(changed),
            "flipped": float(np.mean(before.argmax(axis=1) != after.argmax(axis=1))),
            "mean_shift": float(shifts.mean()),
            "examples": [
                {
                    "index": changed[row],
                    "text": texts[changed[row]],
                    "counterfactual": swapped[changed[row]],
                    "before": before[row].tolist(),
                    "after": after[row].tolist(),
                    "shift": float(shifts[row]),
                }
                for row in worst
            ],
        }
    return results


def _probabilities(predict: Callable[[list[str]], np.ndarray], texts: list[str]) -> np.ndarray:
    probabilities = np.asarray(predict(texts), dtype=np.float64)
    rows = probabilities.ndim == 2 and len(probabilities) == len(texts)
    if not rows or (probabilities < 0).any() or not np.allclose(probabilities.sum(axis=1), 1, atol=1e-2):
        raise UserError(
            f"What predict returned for {len(texts)} texts, of shape {probabilities.shape}, is not the probability of "
            "each class for each of them; hfattn.metrics.class_probabilities computes it from logits."
        )
    return probabilities
