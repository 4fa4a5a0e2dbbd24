"""The digits of scikit-learn: 1,797 images of 8 x 8 pixels, which need no download."""

from collections.abc import Sequence

import numpy as np

from ..errors import UserError
from .images import CaptionedImage, CaptionedImages, LabeledImage, LabeledImages

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SPANISH_WORDS = ("cero", "uno", "dos", "tres", "cuatro", "cinco", "seis", "siete", "ocho", "nueve")
_NAMES = {"en": WORDS, "es": SPANISH_WORDS}


def read_digits() -> LabeledImages:
    """Return the digits as gray images, with the classes 0 to 9 (Alpaydin & Kaynak 1998)."""
    from sklearn.datasets import load_digits

    found = load_digits()
    pixels = np.minimum(found.images * 16, 255).astype(np.uint8)  # from 0 to 16
    labeled = zip(pixels, found.target.tolist(), strict=True)
    items = [LabeledImage(image, label, line) for line, (image, label) in enumerate(labeled, 1)]
    return LabeledImages("the digits of scikit-learn", items, labels=[str(digit) for digit in range(10)])


def read_digit_words(languages: Sequence[str] = ("en",)) -> CaptionedImages:
    """Return the digits with their names, such as "seven", as texts: one for each language, "en" or "es".

    Raises:
        UserError: there are no names in a language.
    """
    if unknown := [language for language in languages if language not in _NAMES]:
        raise UserError(f"The digits have no names in {unknown[0]!r}; write en, es, or both in data.text_columns.")
    digits = read_digits()
    items = [
        CaptionedImage(image, _NAMES[language][label], line)
        for language in languages
        for image, label, line, _ in digits
    ]
    return CaptionedImages(digits.name, items)
